"""What coordinator and workers do alike: prepare, know themselves, keep their state, end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent import __version__
from agent.decide.ending import JobEnd, termination_message
from agent.decide.facts import Facts
from agent.decide.hostfile import hostfile, hostnames_order, rank_order
from agent.decide.location import parse_location, parse_topology
from agent.decide.peers import peer_name
from agent.decide.plan import Plan
from agent.decide.pod_state import PodState, RecordedEnd, RunSummary
from agent.decide.runspec import RunSpec
from agent.errors import Exit, SettingsError, SystemFault
from agent.fabrics.profiles import NONE, Profile
from agent.lifecycle.keeping.run_logs import Archives
from agent.lifecycle.pod.sshd import Sshd
from agent.lifecycle.pod.surroundings import Surroundings
from agent.log import Log
from agent.machine.api import Interface, Machine, Whereabouts
from agent.paths import (
    HOSTFILE,
    HOSTFILE_ONE_PER_NODE,
    HOSTNAMES_ORDER,
    RANK_ORDER,
    TERMINATION_LOG,
    RunDir,
    shipped,
)
from agent.settings import Settings

ALIVE_SECONDS = 5.0
LOOPBACK = Interface("lo", "127.0.0.1", False)
KEPT_SUMMARIES = 50
STORE_SECONDS = 30.0
"""The most that a pod's end waits for the results directory."""
LEAST_STORE_SECONDS = 1.0
RESERVED_SECONDS = 3.0
"""Of the pod's grace time, that stay free."""


@dataclass(frozen=True)
class Job:
    """What the command line and the environment ask of this pod."""

    settings: Settings
    environ: Mapping[str, str] = field(repr=False)
    secret: bytes = field(repr=False)
    """Empty for a job of one pod."""
    python: str
    spec: RunSpec
    """The first run."""
    topology: bool = True
    started: float = 0.0
    """When the process started, on the machine's clock."""
    warnings: tuple[str, ...] = ()
    """About the settings; `serve` says them."""


class Pod:
    """State and doings of this pod, whatever its role."""

    def __init__(self, machine: Machine, log: Log, job: Job, finished: Callable[[int], None]) -> None:
        self.machine = machine
        self.log = log
        self.job = job
        self.settings = job.settings
        self.dir = RunDir(job.settings.run_dir)
        self.environ: Mapping[str, str] = job.environ
        """What workloads get; complete when `surroundings` are ready."""
        self.profile = Profile(NONE, "not chosen yet")
        self.baselines: Mapping[str, str] = {}
        """Files of baselines, path → text; see Preparations."""
        self.nonce = machine.draw_nonce()
        self.facts: Facts | None = None
        self.inventory: Mapping[str, str] | None = None
        """In the few words that others get."""
        self._whole_inventory: Mapping[str, Any] | None = None
        self.plan: Plan | None = None
        self.interface = LOOPBACK
        self._state: PodState | None = None
        self.phases: dict[str, float] = {}
        """When this pod first reached each event, in seconds since 1970."""
        self.sshd_listens = False
        self._state_lost = False
        self._sshd: Sshd | None = None
        self._finished: Callable[[int], None] | None = finished
        self._leave_by: float | None = None
        self._exit: Callable[[], None] | None = None
        """Set while the end waits for nothing but the results directory."""
        self.archives = Archives(machine, log, job.settings)
        self.surroundings = Surroundings(self)

    @property
    def alone(self) -> bool:
        return self.settings.nnodes == 1

    @property
    def name(self) -> str:
        return peer_name(self.settings.hostname_prefix, self.settings.index, self.settings.domain_name)

    def where(self, index: int) -> str:
        """A pod in words."""
        return f"pod {index}, {peer_name(self.settings.hostname_prefix, index, self.settings.domain_name)}"

    # Preparing

    def prepare(self) -> None:
        """Write the files that need nothing but the settings. Raises AgentError."""
        for path in (self.dir.channels, self.dir.ssh, self.dir.runs):
            self.machine.make_private_dir(path)
        for path in (self.dir.plan, self.dir.facts, self.dir.environment, self.dir.env_sh):
            self.machine.remove(path)
        self.write(self.dir.events, "", 0o600)
        self.write(self.dir.token, self.nonce + "\n", 0o600)
        script = self.machine.read(shipped("entrypoints", "rank.sh"))
        if script is None:
            raise RuntimeError("the installation lacks entrypoints/rank.sh")
        self.write(self.dir.rank_script, script, 0o700)
        self.event("agent-started", when=self.job.started)
        self.phase("preparing")
        self._beat_alive()
        self.interface = self.choose_interface()
        self.surroundings.choose()
        if not self.alone:
            # Imported here: a pod that is alone has no keys, and cryptography costs 12 ms.
            from agent.lifecycle.pod.ssh_setup import write_ssh_files

            write_ssh_files(self)
        else:
            self.machine.later(0, self.surroundings.start)

    def environment_ready(self) -> None:
        """A script may have changed what SSH sessions get."""
        if self.alone:
            return
        from agent.lifecycle.pod.ssh_setup import write_sshd_config

        if write_sshd_config(self) and self._sshd is not None:
            self._sshd.reload()

    def start_sshd(self, listening: Callable[[], None]) -> None:
        """Raises AgentError, at once or into the loop."""

        def listens() -> None:
            self.sshd_listens = True
            self.event("sshd-listening")
            listening()
            # Not before: a worker that fails can be heard from now on.
            self.machine.later(0, self.surroundings.start)

        self._sshd = Sshd(
            self.machine,
            self.log,
            config=self.dir.sshd_config,
            addresses=self.ssh_addresses(),
            port=self.settings.ssh_port,
            path=self.search_path(),
            listening=listens,
        )
        self._sshd.start()

    def choose_interface(self) -> Interface:
        interfaces = self.machine.interfaces()
        wanted = self.settings.interface
        if wanted:
            for interface in interfaces:
                if interface.name == wanted:
                    return interface
            have = ", ".join(f"{i.name} ({i.address})" for i in interfaces) or "none"
            raise SettingsError([f"A4_INTERFACE={wanted} (environment) has no IPv4 address here; there are: {have}"])
        if interfaces:
            return interfaces[0]
        if self.alone:
            return LOOPBACK
        raise SettingsError(["no network interface of this pod has an IPv4 address"])

    def ssh_addresses(self) -> list[str]:
        """Where sshd listens; on loopback for `kubectl port-forward`."""
        return [self.interface.address, LOOPBACK.address]

    def search_path(self) -> str:
        return self.environ.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    # Knowing itself

    def gather_facts(self, ready: Callable[[Facts], None]) -> None:
        """Find the node's place, then call `ready`; never raises for what the metadata server does."""
        settings = self.settings
        if settings.location or self.alone:
            place = parse_location(settings.location) if settings.location else None
            self._have_facts({"A4_LOCATION": place} if place else {}, (), ready)
            return
        self.machine.locate(settings.metadata_host, lambda found: self._located(found, ready))

    def _located(self, found: Whereabouts, ready: Callable[[Facts], None]) -> None:
        parsers = {"physical_host_topology": parse_topology, "physical_host": parse_location}
        places, warnings = {}, [found.warning] if found.warning else []
        for source, text in found.answers.items():
            place = parsers[source](text)
            if place:
                places[source] = place
            else:
                warnings.append(f"the metadata server's {source} is no place: {text[:80]!r}")
        self._have_facts(places, tuple(warnings), ready)

    def _have_facts(
        self, places: Mapping[str, tuple[str, ...]], warnings: tuple[str, ...], ready: Callable[[Facts], None]
    ) -> None:
        for warning in warnings:
            self.log.warning(warning)
        self.facts = Facts(
            index=self.settings.index,
            nonce=self.nonce,
            version=__version__,
            node=self.machine.hostname(),
            address=self.interface.address,
            interface=self.interface.name,
            slots=self.settings.gpus_per_node,
            gpus=self.machine.gpu_count(),
            places=places,
            addresses={i.name: i.address for i in self.machine.interfaces()},
            warnings=warnings,
        )
        self._keep_facts()
        self.event("facts-ready")
        ready(self.facts)
        self.surroundings.keep_gpus_awake(self.facts.gpus)

    def _keep_facts(self) -> None:
        """For people, once there are facts; `inventory` is null until it is there."""
        if self.facts is not None:
            # The nonce stays out: it is what ranks prove their pod with.
            self._write_json(self.dir.facts, {**self.facts.to_json(), "nonce": "", "inventory": self._whole_inventory})

    def gather_inventory(self, ready: Callable[[Mapping[str, str]], None]) -> None:
        """What a run needs to know and the plan does not."""
        from agent.lifecycle.pod.inventory_request import gather  # only now: no pod's start waits for it

        def have(whole: Mapping[str, Any], told: Mapping[str, str]) -> None:
            self._whole_inventory, self.inventory = whole, told
            self._keep_facts()
            ready(told)

        gather(self, have)

    # The plan

    def keep_plan(self, plan: Plan) -> None:
        """Write the plan and every file that follows its order. Raises SystemFault."""
        self.plan = plan
        names = [peer.name for peer in plan.peers]
        self.write(HOSTFILE, hostfile(names, plan.slots))
        self.write(HOSTFILE_ONE_PER_NODE, hostfile(names, 1))
        self.write(RANK_ORDER, rank_order(plan))
        self.write(HOSTNAMES_ORDER, hostnames_order(plan))
        self.write(self.dir.plan, json.dumps(plan.to_json(), indent=1) + "\n", 0o600)
        self.event("plan-ready")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file that the job needs. Raises SystemFault."""
        try:
            self.machine.write(path, text, mode)
        except OSError as error:
            raise SystemFault(f"{path} cannot be written: {error.strerror}") from error

    def make_dir(self, path: str, mode: int) -> None:
        """A directory that the job needs. Raises SystemFault."""
        try:
            self.machine.make_dir(path, mode)
        except OSError as error:
            raise SystemFault(f"{path} cannot be made: {error.strerror}") from error

    # State for people and probes: a full disk must not end a job that needs none of it

    def event(self, name: str, detail: str = "", when: float | None = None) -> None:
        now = self.machine.now()
        record: dict[str, Any] = {"event": name, "monotonic": now, "time": self.machine.wall()}
        if when is not None:
            record |= {"monotonic": when, "time": record["time"] - (now - when)}
        self.phases.setdefault(name, round(record["time"], 3))
        if detail:
            record["detail"] = self.log.masked(detail)
        line = json.dumps(record).encode() + b"\n"
        self.attempt(lambda: self.machine.append(self.dir.events, line))

    def phase(self, name: str, code: int | None = None) -> None:
        """What this pod is doing, for `a4-agent status`."""
        self._state = replace(
            self._state or PodState(name),
            phase=name,
            since=self.machine.wall(),
            epoch=self.settings.epoch,
            index=self.settings.index,
            pods=self.settings.nnodes,
            gpus=self.settings.gpus_per_node,
            agent=__version__,
            missing=None,
            code=code,
        )
        self.update_state()

    def update_state(self, **fields: Any) -> None:
        """Set fields of the state."""
        self._state = replace(self._state or PodState("preparing"), **fields)
        self._write_json(self.dir.state, self._state.to_json())

    def note_run(self, summary: RunSummary) -> None:
        """An exclusive run has begun, or, with `until` in its summary, ended: on this pod or others."""
        if summary.until is None:
            self.archives.begin(summary.id, first=summary.first)
            self.log.labels["run"] = summary.id
            self.event("run-started", detail=summary.id)
            self.update_state(run=summary, idle=None)
            self.phase("running")
            return
        self.log.labels.pop("run", None)
        self.event("run-ended", detail=f"{summary.code}")
        earlier = self._state.runs if self._state is not None else None
        self.update_state(run=None, runs=(*(earlier or ()), summary)[-KEPT_SUMMARIES:], idle=summary.until)

    def _write_json(self, path: str, data: Mapping[str, Any]) -> None:
        text = json.dumps(self.log.masker.value(data), indent=1) + "\n"
        self.attempt(lambda: self.machine.write(path, text, 0o600))

    def attempt(self, write: Callable[[], None]) -> None:
        """Write what is only for people; the first failure is said, and no failure ends anything."""
        try:
            write()
        except OSError as error:
            if not self._state_lost:
                self.log.warning(f"state of this pod cannot be kept: {error.filename}: {error.strerror}")
            self._state_lost = True

    def _beat_alive(self) -> None:
        self.attempt(lambda: self.machine.refresh(self.dir.alive))
        self.machine.later(ALIVE_SECONDS, self._beat_alive)

    # The end

    def record_end(self, end: JobEnd, run_id: str = "", code: int | None = None) -> None:
        """Leave the job's end where Kubernetes and people look; `code` is this pod's own if it differs."""
        # Masked before it is cut and escaped, which would hide a secret from the mask.
        end = JobEnd.from_json(self.log.masker.value(end.to_json()))
        message = termination_message(end, epoch=self.settings.epoch, pod=self.settings.index, run=run_id, code=code)
        self.attempt(lambda: self.machine.overwrite(TERMINATION_LOG, message))
        self.update_state(end=RecordedEnd(**vars(end), run=run_id))
        self.event("result-known", detail=f"{end.code} {end.what}")

    def report_end(self, end: JobEnd) -> None:
        """Say it in the log."""
        if end.code == Exit.OK:
            self.log.info(f"done: {end}")
        else:
            self.log.error(f"the job ends with exit code {end.code}: {end}")

    def told_to_end(self) -> None:
        """SIGTERM or SIGINT has come: the pod has its grace time from now on."""
        if self._leave_by is None:
            self._leave_by = self.machine.now() + self.settings.grace - RESERVED_SECONDS
        if self._exit is not None:
            self.machine.later(self._store_seconds(), self._exit)

    def _store_seconds(self) -> float:
        """How long the end may still wait for the results directory."""
        if self._leave_by is None:
            return STORE_SECONDS
        return min(STORE_SECONDS, max(LEAST_STORE_SECONDS, self._leave_by - self.machine.now()))

    def finish(self, code: int) -> None:
        """The last thing: store what is left, stop sshd, leave the loop with this pod's exit code.

        Later calls do nothing.
        """
        if self._finished is None:
            return
        finished, self._finished = self._finished, None
        self.phase("ended", code=code)
        if self._sshd is not None:
            self._sshd.close()
        if code == Exit.DIRECTORY:
            self._leave_by = self.machine.now()  # nothing can be stored there: why wait for it?
        if self._state:
            self.archives.begin_without_run()
        exited: list[int] = []

        def leave() -> None:
            if not exited:
                exited.append(code)
                finished(code)

        self._exit = leave
        self.archives.close(self._store_seconds(), leave)
