"""How a pod gets ready: its files, its sshd, its environment, and what it finds out of itself.

sshd comes first, and all that can take long or fail comes after it listens: until then the coordinator cannot hear what
is wrong here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent import __version__
from agent.decide.facts import Facts
from agent.decide.inventory import fabric_variables, flat
from agent.decide.location import parse_location, parse_topology
from agent.fabrics import needs, problems
from agent.fabrics.profiles import NONE
from agent.lifecycle.pod.exporting import Exporting
from agent.lifecycle.pod.known import choose_interface
from agent.lifecycle.pod.plan_files import check_places
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.pod.sshd import Sshd
from agent.lifecycle.pod.surroundings import PodSurroundings
from agent.machine.api import Search, Whereabouts
from agent.paths import shipped_text


class Preparing:
    """`prepare`, `start_sshd` and `gather_facts` at the start; `gather_inventory` for runs."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._sshd: Sshd | None = None
        self._exporting = Exporting(pod)
        self._whole_inventory: Mapping[str, Any] | None = None
        self.sshd_listens = False
        self.surroundings = PodSurroundings(pod)
        self.surroundings.ready.when(self._environment_ready)

    def prepare(self) -> None:
        """Write the files that need nothing but the settings. Raises AgentError."""
        pod, machine = self._pod, self._machine
        for path in (pod.dir.channels, pod.dir.ssh, pod.dir.runs):
            machine.make_private_dir(path)
        # An earlier start's. Whoever finds one of these takes it for the present.
        for path in (pod.dir.plan, pod.dir.facts, pod.dir.environment, pod.dir.env_sh):
            machine.remove(path)
        pod.write(pod.dir.events, "", 0o600)
        pod.write(pod.dir.token, pod.nonce + "\n", 0o600)
        for path in (pod.dir.rank_script, pod.dir.enter_script):
            pod.write(path, shipped_text(machine.read, "entrypoints", path.rpartition("/")[2]), 0o700)
        pod.state.event("agent-started", when=pod.job.started)
        pod.state.phase("preparing")
        pod.state.beat_alive()
        pod.learn(interface=choose_interface(pod.settings, machine.interfaces()))
        self.surroundings.choose()
        if not pod.alone:
            # Imported here: a pod that is alone has no keys, and cryptography costs 12 ms.
            from agent.lifecycle.pod.ssh_setup import write_ssh_files

            write_ssh_files(pod)

    def _environment_ready(self) -> None:
        """A script may have changed what SSH sessions get."""
        if self._pod.alone:
            return
        from agent.lifecycle.pod.ssh_setup import write_sshd_config

        if write_sshd_config(self._pod) and self._sshd is not None:
            self._sshd.reload()

    def start_sshd(self, listening: Callable[[], None]) -> None:
        """What can take long follows when it listens, and at once in a pod that is alone and has none. Raises
        AgentError, at once or into the loop."""
        pod = self._pod
        if pod.alone:
            self._machine.later(0, self._go_on)
            return

        def listens() -> None:
            self.sshd_listens = True
            pod.state.event("sshd-listening")
            listening()
            # Not before: a worker that fails can be heard from now on.
            self._machine.later(0, self._go_on)

        self._sshd = Sshd(pod, listens)
        self._sshd.start()

    def _go_on(self) -> None:
        """Raises AgentError into the loop."""
        check_places(self._pod)
        self._exporting.start()
        self.surroundings.start()

    def stop_sshd(self) -> None:
        if self._sshd is not None:
            self._sshd.close()

    # What it finds out of itself

    def gather_facts(self, ready: Callable[[Facts], None]) -> None:
        """Find the node's place, then call `ready`; never raises for what the metadata server does."""
        settings = self._pod.settings
        if settings.location or self._pod.alone:
            place = parse_location(settings.location) if settings.location else None
            self._have_facts({"A4_LOCATION": place} if place else {}, (), ready)
            return

        def located(found: Whereabouts) -> None:
            parsers = {"physical_host_topology": parse_topology, "physical_host": parse_location}
            places, warnings = {}, [found.warning] if found.warning else []
            for source, text in found.answers.items():
                place = parsers[source](text)
                if place:
                    places[source] = place
                else:
                    warnings.append(f"the metadata server's {source} is not a place: {text[:80]!r}")
            self._have_facts(places, tuple(warnings), ready)

        self._machine.locate(settings.metadata_host, located)

    def _have_facts(
        self, places: Mapping[str, tuple[str, ...]], warnings: tuple[str, ...], ready: Callable[[Facts], None]
    ) -> None:
        pod, machine = self._pod, self._machine
        for warning in warnings:
            pod.log.warning(warning)
        facts = Facts(
            index=pod.settings.index,
            nonce=pod.nonce,
            version=__version__,
            node=pod.settings.node_name or machine.hostname(),
            address=pod.known.interface.address,
            interface=pod.known.interface.name,
            slots=pod.settings.gpus_per_node,
            gpus=machine.gpu_count(),
            places=places,
            addresses={i.name: i.address for i in machine.interfaces()},
            warnings=warnings,
            pod_name=pod.settings.pod_name,
        )
        pod.learn(facts=facts)
        pod.log.place["node"] = facts.node
        self._keep_facts()
        pod.state.event("facts-ready")
        ready(facts)
        # After `ready`, because the plan waits for the facts, and nothing waits for this.
        self.surroundings.keep_gpus_awake(facts.gpus)

    def _keep_facts(self) -> None:
        """Write facts.json for people, once there are facts; `inventory` is null until it is known."""
        facts = self._pod.known.facts
        if facts is not None:
            # The nonce stays out: it is what ranks prove their pod with.
            data = {**facts.to_json(), "nonce": "", "inventory": self._whole_inventory}
            self._pod.state.write_json(self._pod.dir.facts, data)

    def gather_inventory(self, ready: Callable[[Mapping[str, str]], None]) -> None:
        """What a run needs to know and the plan does not; not before the surroundings are ready: vendors' scripts set
        the paths on which programs and libraries are looked for."""
        pod = self._pod

        def have(found: Mapping[str, Any]) -> None:
            profile = pod.known.profile.name
            whole = {**found, "environ": fabric_variables(pod.known.environ), "profile": profile}
            found_wrong = problems(profile, whole, pod.settings.nnodes)
            told = {**flat(whole), **({"profile_problems": "\n".join(found_wrong)} if found_wrong else {})}
            self._whole_inventory = {**whole, "profile_problems": found_wrong}
            pod.learn(inventory=told)
            self._keep_facts()
            ready(told)

        self.surroundings.ready.when(lambda: self._machine.gather_inventory(self._search(), pod.log.info, have))

    def _search(self) -> Search:
        pod, known = self._pod, self._pod.known
        wanted = needs(known.profile.name, known.environ)
        return Search(
            path=known.search_path,
            environ=known.environ,
            python=pod.settings.python,
            fabric=known.profile.name != NONE,
            libraries=wanted.libraries,
            files=wanted.files,
            # A pod that is alone uses no fabric, so no sidecar has to be there.
            socket_dir="" if pod.alone else wanted.socket_dir,
        )
