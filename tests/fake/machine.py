"""A machine on which no time passes but the world's: one for each start of an agent."""

from __future__ import annotations

import errno
import json
import os
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import wire
from agent.clinic.sources.question import LookAnswer, Question
from agent.clinic.sources.torch_server import entered_operations
from agent.clinic.why.records import PodRecords
from agent.fabrics.profiles import PROFILES
from agent.launch import Launch
from agent.lifecycle.serve import guarded
from agent.machine import api
from agent.machine.api import T as T
from agent.paths import DEFAULT_RUN_DIR, TERMINATION_LOG, shipped
from tests.fake.net import FakeEnd
from tests.fake.process import SSHD, FakeChild, FakeGuard, FakeReport, FakeSshd, FakeTool, Life, tool_of
from tests.fake.storage import Ended, FakeClient, FakeKeeperProcess, FakeSpool, Hangs

if TYPE_CHECKING:
    from agent.lifecycle.serve import Role
    from tests.fake.pod import FakePod

DIRECTORIES = {"/", "/dev", "/etc", "/etc/ld.so.conf.d", "/etc/profile.d", "/root", "/run", "/tmp", DEFAULT_RUN_DIR}
SCRIPTS = [shipped("entrypoints", name) for name in ("control-channel.sh", "rank.sh", "enter-run.sh")]
SETTINGS = [shipped("env", name) for name in ("baselines.json", *(f"{name}.env" for name in PROFILES))]
SHIPPED = dict.fromkeys(SCRIPTS, "#!/bin/sh\n") | {path: Path(path).read_text() for path in SETTINGS}
SWEEP_SECONDS = 0.01


class FakeMachine:
    """Implements agent.machine.api.Machine for one life of an agent in one pod."""

    role: Role

    def __init__(self, pod: FakePod) -> None:
        self.pod = pod
        self.world = pod.world
        self.alive = True
        self.ends: list[FakeEnd] = []
        self.children: list[FakeChild] = []
        self.files = {TERMINATION_LOG: "", **pod.files, **dict.fromkeys(pod.scripts, ""), **SHIPPED}
        self.spools: dict[str, FakeSpool] = {}
        self.keepers: list[FakeKeeperProcess] = []
        self.guards: list[FakeGuard] = []
        self._desk: Callable[[api.Channel], None] | None = None
        self.directories = dict.fromkeys([*DIRECTORIES, *sorted(pod.directories)])
        """In the order in which they were made, as `list_dir` gives them."""
        self.emitted: dict[int, bytes] = {1: b"", 2: b""}
        self.sshd: FakeSshd | None = None
        self.crashed = ""
        """Traceback of what escaped from the role's own handling of errors."""
        self.paused = False
        self.gone = False
        self._arrived: list[Callable[[], None]] = []
        self._due: list[Callable[[], None]] = []
        self._door: tuple[str, Callable[[api.Channel], None]] | None = None

    # Life

    def call(self, action: Callable[[], None], *, arrived: bool = False) -> None:
        """Run one callback, as the agent's loop does; during a pause, note it."""
        if self.paused:
            (self._arrived if arrived else self._due).append(action)
        if not self.alive or self.paused:
            return
        try:
            guarded(action, self.role)
        except Exception:
            self.crashed = traceback.format_exc()
            self.pod.over(70)

    def resume(self, *, timers_first: bool = False) -> None:
        """Both orders are real: a call of epoll that SIGCONT interrupts may report nothing, although much waits."""
        if self.gone:
            return
        self.paused = False
        held = [*self._due, *self._arrived] if timers_first else [*self._arrived, *self._due]
        self._arrived, self._due = [], []
        for action in held:
            self.call(action)

    def vanish(self) -> None:
        """The agent is gone, its container and its sshd are not."""
        self.paused = self.gone = True
        self._door = None
        for guard in self.guards:
            guard.fire()
        for end in self.ends:
            end.close()

    def die(self) -> None:
        """The container is gone, and all that was in it."""
        self.alive = False
        for child in self.children:
            child.over = True
        for keeper in self.keepers:
            keeper.close(kill=True)
        for guard in self.guards:
            guard.close()
        for end in self.ends:
            end.close()

    def listens(self, address: str, port: int) -> bool:
        return self.alive and self.sshd is not None and not self.sshd.over and (address, port) in self.sshd.bound

    def ssh_file(self, option: str) -> str:
        """What its sshd reads there."""
        return self.files.get(self.sshd.option(option), "") if self.sshd else ""

    def knock(self, command: str, end: FakeEnd) -> bool:
        """A channel's command has been started here; False when no agent answers it."""
        directory = command.split()[-1]
        assert command == f"exec sh {directory}/control-channel.sh {directory}"
        if self._door is None or f"{directory}/control-channel.sh" not in self.files:
            return False
        where, opened = self._door
        assert where == f"{directory}/channels"
        self.post(0.001, lambda: opened(end))
        return True

    # Time

    def now(self) -> float:
        return self.world.clock.now

    def wall(self) -> float:
        return 1_700_000_000 + self.world.clock.now + self.pod.clock

    def later(self, seconds: float, action: Callable[[], None]) -> api.Timer:
        return self.world.clock.after(seconds, lambda: self.call(action))

    post = later

    # Network

    def resolve(self, names: Sequence[str], done: Callable[[str, str | api.Problem], None]) -> None:
        for name in names:
            self.world.net.resolve(self, name, done)

    def connect(self, target: api.Target, done: Callable[[api.Channel | api.Problem], None]) -> None:
        self.world.net.dial(self, target, done)

    def accept(self, directory: str, opened: Callable[[api.Channel], None]) -> None:
        self._door = (directory, opened)

    def listen(self, path: str, opened: Callable[[api.Channel], None], full: bytes) -> None:
        self._desk = opened

    def client(self) -> FakeClient:
        """A command of this pod connects to its agent."""
        assert self._desk is not None, "this agent takes no commands yet"
        return FakeClient(self, self._desk)

    def locate(self, host: str, done: Callable[[api.Whereabouts], None]) -> None:
        if self.pod.metadata_seconds is not None:
            self.post(self.pod.metadata_seconds, lambda: done(self.pod.whereabouts))

    def interfaces(self) -> list[api.Interface]:
        return [api.Interface("eth0", self.pod.address)]

    def hostname(self) -> str:
        return f"node-{self.pod.index}"

    # Hardware and programs

    def gpu_count(self) -> int:
        return 8

    def memory_kills(self) -> int:
        return self.pod.memory_kills

    def core_count(self) -> int:
        return 64

    def find_program(self, name: str, path: str) -> str | None:
        return self.pod.programs.get(name)

    def why_unstartable(
        self, programs: Sequence[str], path: str, cwd: str, files: Sequence[str] = ()
    ) -> OSError | None:
        if cwd in self.pod.hanging:
            raise Hangs
        refused = [error for program in (*programs, *files) if (error := self._refusal(program))]
        return next((error for error in refused if error.errno == errno.ENOENT), None)

    def _refusal(self, program: str) -> OSError | None:
        number = self.pod.refusing.get(os.path.basename(program))
        return OSError(number, os.strerror(number), program) if number else None

    def start(
        self,
        launch: Launch,
        ended: Callable[[int], None],
        output: Callable[[int, bytes], None],
        *,
        emitted: bool = False,
        marks: api.RunMarks | None = None,
    ) -> api.Child:
        if marks is not None and launch.cwd in self.pod.hanging:
            raise Hangs  # the agent itself: starting a process waits for its program
        if refused := self._refusal(launch.argv[0]):
            raise refused
        is_sshd, is_report = launch.argv[0] == SSHD, "report" in launch.argv
        tool = tool_of(launch)
        kind = FakeSshd if is_sshd else FakeReport if is_report else FakeTool if tool else FakeChild
        child = kind(self, launch, ended, output)
        child.marks = marks
        if isinstance(child, FakeSshd):
            self.sshd = child
        self.children.append(child)
        self.pod.world.started(child)
        life = self.pod.sshd_life if is_sshd else self.pod.report_life if is_report else self.pod.life
        life = self.pod.exporter_life if "agent.exporter" in launch.argv else life
        child.live(self.pod.tools.get(tool, Life(seconds=0.05)) if tool else life)
        return child

    def emit(self, stream: int, data: bytes) -> None:
        self.emitted[stream] += data

    def spool(self, directory: str, limit: int) -> FakeSpool:
        self._may_fail(f"{directory}/", parent=False)
        self.spools[directory] = FakeSpool()
        return self.spools[directory]

    def read_spool(self, directory: str, offset: int, most: int, since: float = 0.0) -> api.Piece | None:
        spool = self.spools.get(directory)
        return spool.read(offset, most) if spool is not None else None

    def start_keeper(
        self, directory: str, number: int, heard: Callable[[Sequence[str]], None], ended: Ended, base: str = ""
    ) -> FakeKeeperProcess:
        if refused := self._refusal("keep-results.py"):
            raise refused
        self.keepers.append(FakeKeeperProcess(self, directory, heard, ended))
        return self.keepers[-1]

    def start_guard(self, marks: api.RunMarks, deadline: float, said: Callable[[api.GuardSaid], None]) -> FakeGuard:
        if refused := self._refusal("guard"):
            raise refused
        self.guards.append(FakeGuard(self, marks, deadline, said))
        return self.guards[-1]

    def gather_inventory(
        self, search: api.Search, say: Callable[[str], None], done: Callable[[Mapping[str, Any]], None]
    ) -> None:
        found = self.pod.inventory
        if found is None:
            return
        if "mpirun" not in self.pod.programs:
            found = {"mpirun_problem": f"mpirun is not on PATH ({search.path})"}
        self.post(self.pod.inventory_seconds, lambda: done(found))

    def ask_process(self, argv: Sequence[str], cwd: str, seconds: float, done: Callable[[str], None]) -> None:
        """The others that are asked so look at the processes of a run."""
        said: object
        if "agent.clinic.probes.counters" in argv:
            said, needed = self.pod.readings[0], self.pod.reading_seconds
            self.pod.readings = self.pod.readings[1:] or self.pod.readings
        elif "agent.clinic.probes.gpu_memory" in argv:
            said, needed = self.pod.gpu_memory[0], self.pod.reading_seconds
            self.pod.gpu_memory = self.pod.gpu_memory[1:] or self.pod.gpu_memory
        elif "flags" in argv:
            said, needed = dict(self.pod.flags), self.pod.reading_seconds
        elif "doctor" in argv:
            said, needed = self.pod.health, self.pod.reading_seconds
        else:
            self.pod.looks.append(wire.from_json(Question, json.loads(argv[-1])))
            records = PodRecords(self.pod.index, f"pod-{self.pod.index}", "", processes=self.pod.processes)
            found = LookAnswer(records, f"stacks of pod {self.pod.index}\n", self.pod.hangs)
            said, needed = wire.to_json(found), self.pod.evidence_seconds
        comes = needed is not None and needed <= seconds
        self.post(needed or 0.0 if comes else seconds, lambda: done(json.dumps(said) if comes else ""))

    def make_cgroup(self, path: str) -> bool:
        if os.path.dirname(path) in self.directories:
            self.directories[path] = None
        return path in self.directories

    def tell(self, marks: api.RunMarks, number: int, variable: str, seconds: float, over: Callable[[], None]) -> None:
        self.pod.told.append((self.world.seconds, int(number), variable))
        life = self.pod.ranks_life or Life(term_seconds=0.0, warned_seconds=0.0)
        if not variable:
            life = self.pod.life
            for child in self.children:
                if child.launch.env.get("A4_RUN") == marks.run:
                    child.signal(number)
        needed = life.term_seconds if number == signal.SIGTERM else life.warned_seconds
        self.post(seconds if needed is None else min(seconds, needed), over)

    def sweep(
        self,
        marks: api.RunMarks,
        seconds: float,
        done: Callable[[int, Sequence[int]], None],
        *,
        at_once: bool = False,
    ) -> None:
        left = 0
        for child in self.children:
            if child.launch.env.get("A4_RUN") == marks.run:
                left += child.life.leftovers + (not child.over)
                child.over = True
        self.directories.pop(marks.cgroup, None)
        self.post(SWEEP_SECONDS, lambda: done(left, self.pod.unkillable))

    def port_holder(self, address: str, port: int) -> str:
        return self.pod.busy.get(address) or self.pod.busy.get(str(port), "")

    # Files

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def read(self, path: str) -> str | None:
        if path in self.pod.hanging:
            raise Hangs
        self._may_be_unreadable(path)
        return self.files.get(path)

    def read_part(self, path: str, offset: int, most: int) -> bytes:
        if path in self.pod.hanging:
            raise Hangs
        return self.files.get(path, "").encode()[offset : offset + most]

    def read_tails(self, path: str, most: int) -> dict[str, str]:
        return {name: text[-most:] for name, text in self.read_ends(path, most).items()}

    def read_ends(self, path: str, most: int) -> dict[str, str]:
        self._may_be_unreadable(path)
        return {os.path.basename(name): text for name, text in self.files.items() if os.path.dirname(name) == path}

    def aside(self, work: Callable[[], T], done: Callable[[T], None], refused: Callable[[OSError], None]) -> None:
        if self.pod.threadless:
            self.post(0.0, lambda: refused(OSError(errno.EAGAIN, "no more threads")))
            return
        try:
            asks_ranks = getattr(work, "func", None) is entered_operations
            found: Any = self.pod.entered if asks_ranks else work()
        except Hangs:
            return
        self.post(0.001, lambda: done(found))

    def list_dir(self, path: str) -> list[str]:
        if self.pod.out_of_descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        self._may_be_unreadable(path)
        return [os.path.basename(name) for name in [*self.directories, *self.files] if os.path.dirname(name) == path]

    def dir_size(self, path: str) -> int:
        return sum(len(text) for name, text in self.files.items() if name.startswith(f"{path}/"))

    def remove_dir(self, path: str) -> None:
        self.directories = dict.fromkeys(name for name in self.directories if not f"{name}/".startswith(f"{path}/"))
        self.files = {name: text for name, text in self.files.items() if not name.startswith(f"{path}/")}
        self.spools = {name: spool for name, spool in self.spools.items() if not name.startswith(f"{path}/")}

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        self._may_fail(path)
        self.files[path] = text

    def check_writable(self, path: str) -> None:
        self._may_fail(path)

    def append(self, path: str, data: bytes) -> None:
        self._may_fail(path)
        self.files[path] = self.files.get(path, "") + data.decode()

    def overwrite(self, path: str, text: str) -> None:
        if path in self.files:
            self._may_fail(path)
            self.files[path] = text

    def raise_file_limit(self) -> None:
        pass

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def make_dir(self, path: str, mode: int = 0o755) -> None:
        if path not in self.directories:
            self._may_fail(f"{path}/", parent=False)
        while path not in self.directories:
            self.directories[path] = None
            path = os.path.dirname(path)

    def make_private_dir(self, path: str) -> None:
        self.make_dir(path, 0o700)

    def refresh(self, path: str) -> None:
        self.append(path, b"")

    def draw_nonce(self) -> str:
        return f"{self.world.random.getrandbits(128):032x}"

    def _may_be_unreadable(self, path: str) -> None:
        for part, number in self.pod.unreadable.items():
            if part in path:
                raise OSError(number, os.strerror(number), path)

    def _may_fail(self, path: str, *, parent: bool = True) -> None:
        for prefix, number in self.pod.failing.items():
            if path.startswith(prefix):
                # The kernel names no file when it has no room for what is written to one.
                raise OSError(number, os.strerror(number), *([] if number == errno.ENOSPC else [path]))
        if parent and os.path.dirname(path) not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
