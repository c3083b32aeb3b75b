"""One pod of a fake world: what is scripted for it, its present agent, and what came out of it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent.clinic.sources.question import Question
from agent.clinic.why.records import Process
from agent.decide.runspec import RunSpec
from agent.environment import secrets_of
from agent.lifecycle.pod.pod import Job, Pod
from agent.lifecycle.serve import make_role
from agent.log import Log
from agent.machine.api import Whereabouts
from agent.paths import DEFAULT_RUN_DIR, TERMINATION_LOG, RunDir
from agent.settings import Found, Settings, read_settings
from tests.fake.machine import FakeMachine
from tests.fake.process import FOREVER, SSHD, FakeChild, Life
from tests.fake.storage import FakeStorage

if TYPE_CHECKING:
    from tests.fake.world import FakeWorld

PREFIX, DOMAIN = "job-workload-", "job.default.svc.cluster.local"
SCRIPT = "/workload/task/task-script.sh"
INVENTORY = {"mpirun": "/usr/bin/mpirun", "mpirun_version_text": "mpirun (Open MPI) 4.1.4\n"}
COUNTED = {"uptime": 100.0, "counters": {"mlx5_0/1": {"link_downed": 1}}, "states": {}, "xids": [], "problems": {}}
"""What the devices of a pod counted, as agent.clinic.probes.counters says it."""
DIR = RunDir(DEFAULT_RUN_DIR)
KILLED = 137


class FakePod(FakeStorage):
    """Attributes down to `env` may be changed before the pod starts, or while it lives."""

    def __init__(self, world: FakeWorld, index: int) -> None:
        super().__init__()
        self.world = world
        self.index = index
        self.name = f"{PREFIX}0-{index}.{DOMAIN}"
        self.address = f"10.0.{index // 250}.{index % 250 + 1}"
        self.clock = 0.0
        """How far it is ahead."""
        self.starts: float | None = 0.0
        """Second of its start; None: it never comes."""
        self.life = Life()
        """How long the workload's process lives."""
        self.ranks_life: Life | None = None
        """How long the ranks here live, apart from what started them; None: there are none."""
        self.told: list[tuple[float, int, str]] = []
        """Second, signal and variable each time that processes of a run were told something."""
        self.sshd_life = FOREVER
        self.report_life = Life(seconds=1.0)
        self.exporter_life = FOREVER
        self.metadata_seconds: float | None = 0.05
        self.whereabouts = Whereabouts({"physical_host": f"/cluster/rack-{index % 2}/host-{index}"})
        self.programs = {"sshd": SSHD, "mpirun": "/usr/bin/mpirun"}
        self.unkillable: list[int] = []
        """Processes of runs that stay whatever is done."""
        self.refusing: dict[str, int] = {}
        """Program → errno, when a process of it is to be started."""
        self.busy: dict[str, str] = {}
        """Address on which the SSH port is taken → who holds it."""
        self.failing: dict[str, int] = {}
        """Beginning of paths that cannot be written → errno."""
        self.unreadable: dict[str, int] = {}
        """Part of paths that cannot be read → errno."""
        self.out_of_descriptors = False
        """No directory can be listed, and so no run be prepared."""
        self.threadless = False
        """No more threads can be started."""
        self.memory_kills = 0
        self.hanging: set[str] = set()
        """Paths of files whose reader waits for ever."""
        self.files: dict[str, str] = {}
        self.directories: set[str] = set()
        self.bucket = False
        """One is mounted where results go by default."""
        self.tools: dict[str, Life] = {}
        """How the programs go with which it is prepared, by name, and vendors' scripts, by path."""
        self.scripts: dict[str, Mapping[str, str | None]] = {}
        """Vendors' scripts that are there: path → what they set; None: what they unset."""
        self.inventory: Mapping[str, str] | None = INVENTORY
        """None: it is never told. Of no use without `mpirun` in `programs`."""
        self.inventory_seconds = 0.02
        self.evidence_seconds: float | None = 1.0
        self.processes: tuple[Process, ...] = ()
        """Those of the run, in its records."""
        self.hangs = f"rank {index} hangs"
        self.looks: list[Question] = []
        """What was asked of its processes."""
        """What it says in short when it is asked for evidence."""
        self.readings: list[Mapping[str, Any]] = [COUNTED]
        """What its devices count, before and after each run; the last one stays."""
        self.gpu_memory: list[Mapping[str, Any]] = [{"used": {}}]
        """What its GPUs have in use whenever somebody looks before a run starts again; the last one stays."""
        self.flags: dict[str, str] = {}
        """Flags of old scripts on shared storage, as share-files.py shows them."""
        self.health: Mapping[str, Any] = {}
        """What doctor reads there."""
        self.reading_seconds: float | None = 0.05
        """How long that takes; None: for ever."""
        self.secret = b"0123456789abcdef0123456789abcdef"
        self.env: dict[str, str] = {}
        self.wish: dict[str, Any] = {}
        """More of the first run's RunSpec."""

        self.machine: FakeMachine | None = None
        self.code: int | None = None
        self.ended_at: float | None = None
        self.pids = 0
        self.log = _Lines(world, index)

    # What happens to it

    def start(self) -> None:
        """The container starts, for the first time or again; nothing happens while it is there."""
        if self.living:
            return
        self.code = self.ended_at = None
        machine = self.machine = FakeMachine(self)
        self.world.net.hosts[self.address] = machine
        settings = self.settings
        log = Log("debug", stream=self.log, secrets=secrets_of(settings, self._environ(), self.secret))
        log.labels = {"pod": f"{self.index}/{settings.nnodes}"}
        spec = RunSpec(settings.workload, by="ENTRYPOINT", **self.wish)
        job = Job(settings, self._environ(), self.secret, "/usr/bin/python3", spec, started=machine.now())
        machine.role = make_role(
            Pod(machine, log, job, lambda code: self.over(code) if self.agent is machine else None)
        )
        machine.post(0, machine.role.start)

    @property
    def pod_name(self) -> str:
        return f"{PREFIX}0-{self.index}-x7k2p"

    @property
    def where(self) -> str:
        """As messages name it."""
        return f"pod {self.index}, {self.pod_name}, node node-{self.index}"

    @property
    def settings(self) -> Settings:
        return read_settings(self._environ(), Found(SCRIPT, bucket=self.bucket), self.world.workload)[0]

    def _environ(self) -> Mapping[str, str]:
        return {
            "PATH": "/usr/sbin:/usr/bin",
            "NNODES": str(len(self.world.pods)),
            "JOB_COMPLETION_INDEX": str(self.index),
            "HOSTNAME_PREFIX": PREFIX,
            "DOMAIN_NAME": DOMAIN,
            "JOB_IDENTIFIER": "job",
            "POD_NAME": self.pod_name,
            "NODE_NAME": f"node-{self.index}",
            "A4_EPOCH": "uid.0.0",
            "A4_REPORT": "false",
            **self.world.env,
            **self.env,
        }

    def over(self, code: int) -> None:
        """The agent has ended, and its container with it."""
        if self.living:
            self.code, self.ended_at = code, self.world.clock.seconds
            self.agent.die()

    def kill(self) -> None:
        """The node kills it at once; its peers see their connections end."""
        if self.living:
            self.over(KILLED)

    def strand(self) -> None:
        """Its node is cut off without a word, and lives on. Another pod can start in its place."""
        for pipe in self.world.net.pipes:
            if self.machine in (pipe.near.machine, pipe.far.machine):
                pipe.near.line = pipe.far.line = None
        self.world.net.hosts.pop(self.address, None)
        self.machine = None

    def signal(self, number: int = 15) -> None:
        if self.machine is not None:
            role = self.machine.role
            self.machine.post(0, lambda: role.signalled(number))

    def pause(self, seconds: float, *, timers_first: bool = False) -> None:
        """Its agent is stopped, as by SIGSTOP, and goes on later."""
        if self.living:
            agent = self.agent
            agent.paused = True
            self.world.clock.after(seconds, lambda: agent.resume(timers_first=timers_first))

    def kill_agent(self) -> None:
        """The agent alone: its sshd goes on, and says to who asks that no agent is there."""
        if self.living:
            self.code, self.ended_at = KILLED, self.world.clock.seconds
            self.agent.vanish()

    def kill_sshd(self) -> None:
        assert self.agent.sshd is not None
        self.agent.sshd.die(-9)

    # What came out of it

    @property
    def living(self) -> bool:
        return self.machine is not None and self.machine.alive

    @property
    def agent(self) -> FakeMachine:
        """The machine of its present agent, or of its last."""
        assert self.machine is not None
        return self.machine

    @property
    def files_now(self) -> Mapping[str, str]:
        return self.machine.files if self.machine else {}

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.files_now.get(DIR.events, "").splitlines()]

    def has(self, event: str) -> bool:
        return f'"event": "{event}"' in self.files_now.get(DIR.events, "")

    def state(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.files_now[DIR.state])
        return data

    def said(self) -> dict[str, Any]:
        """Its termination message."""
        data: dict[str, Any] = json.loads(self.files_now[TERMINATION_LOG] or "{}")
        return data

    @property
    def entered(self) -> Mapping[int, int]:
        """What the recorders of its ranks count."""
        return {one.pid: sum(group.entered for group in one.groups) for one in self.processes if one.groups}

    def workloads(self) -> list[tuple[str, list[int]]]:
        """Program and signals of every workload process that was started here."""
        children = self.machine.children if self.machine else []
        return [(child.launch.argv[0], child.signals) for child in children if type(child) is FakeChild]


class _Lines(io.StringIO):
    """The agent's log, with the world's time before each line."""

    def __init__(self, world: FakeWorld, index: int) -> None:
        super().__init__()
        self._world = world

    def write(self, text: str) -> int:
        return super().write(f"{self._world.clock.seconds:9.3f} {text[21:]}")
