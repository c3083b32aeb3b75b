"""A machine that pretends: real files below a directory of its own, a network to its like, processes of no program."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from agent import wire
from agent.clinic.interface import LookAnswer, Question
from agent.launch import Launch
from agent.lifecycle.serve import guarded
from agent.machine import api, files
from agent.machine.api import T as T
from agent.machine.spool import FileSpool, Room, read_spool
from agent.machine.stream import LineStream
from agent.machine.unix_socket import open_door
from agent.paths import shipped

if TYPE_CHECKING:
    from agent.lifecycle.serve import Role
    from agent.testing.loop import JumpingLoop

SHIPPED = tuple(os.path.dirname(shipped(*file)) for file in (("entrypoints", "rank.sh"), ("env", "baselines.json")))
INVENTORY = {"mpirun": "/usr/bin/mpirun", "mpirun_version_text": "mpirun (Open MPI) 4.1.4\n"}
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
Output = Callable[[int, bytes], None]
"""Takes what a process prints: 1 for stdout, 2 for stderr, and the bytes."""
MOST_LOG = 1 << 30
"""Bytes of output that a pod keeps."""


class FakeProcess:
    """An agent.machine.api.Child that starts nothing; `ended` gets its status once, negative for a signal."""

    is_paused = False

    def __init__(self, machine: FakeMachine, pid: int, run: str, ended: Callable[[int], None]) -> None:
        self.pid = pid
        self.run = run
        """The id of its run; empty: it belongs to none."""
        self.over = False
        self.ending: Callable[[int], None] = lambda status: None
        """Does what its program would have done by its end."""
        self._machine = machine
        self._ended = ended

    def end(self, status: int) -> None:
        if not self.over:
            self.over = True
            self.ending(status)
            self._machine.later(0.0, lambda: self._ended(status))

    def signal(self, number: int) -> None:
        if number in ENDING:
            self.end(-number)

    def await_group(self) -> None:
        pass


class FakeChannel:
    """One end of a connection between two pods."""

    def __init__(self, machine: FakeMachine) -> None:
        self.other: FakeChannel
        self._machine = machine
        self._early: list[bytes] = []
        self._line: Callable[[bytes], None] = self._early.append
        self._ended: Callable[[str], None] | None = None
        self._is_open = True
        machine.channels.append(self)

    def send(self, line: bytes) -> None:
        if self._is_open:
            other = self.other
            other._machine.later(0.001, lambda: other._line(line[:-1]))

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.other._machine.later(0.001, lambda: self.other._lost("the connection was closed"))

    def receive(self, line: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self._line, self._ended = line, ended
        early, self._early = self._early, []
        for one in early:
            self._machine.later(0.0, partial(line, one))

    def _lost(self, reason: str) -> None:
        if self._is_open and self._ended is not None:
            self._is_open = False
            self._ended(reason)


class CommandChannel:
    """The connection of a client. What it asks has its turn when time stands still, and lets it go on."""

    def __init__(self, machine: FakeMachine, stream: LineStream) -> None:
        self._machine = machine
        self._stream = stream
        self.close = stream.close
        self._asked: dict[int, Any] = {}

    def send(self, line: bytes) -> None:
        answer = json.loads(line)
        self._machine.answered(self._asked.pop(answer["id"], {}), answer)
        self._stream.send(line)

    def receive(self, line: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        def heard(data: bytes) -> None:
            with suppress(ValueError, KeyError, TypeError):  # the agent closes the connection of who asks that
                request = json.loads(data)
                self._asked[request["id"]] = request
                self._machine.loop.go_on(self._machine.waited(request))
            self._machine.call(partial(line, data))

        def came(data: bytes) -> None:
            self._machine.loop.when_still(partial(heard, data))

        self._stream.receive(came, lambda reason: self._machine.call(partial(ended, reason)))


class FakeKeeper:
    """An agent.machine.api.KeeperProcess that stores at once, in this process."""

    def __init__(self, machine: FakeMachine, directory: str, heard: Callable[[Sequence[str]], None]) -> None:
        self._machine = machine
        self._directory = directory
        self._heard = heard
        self._is_open = True
        self._log = ("", "")
        self._say_alive()

    def send(self, *words: str) -> None:
        match words:
            case ["probe", *_]:
                self._say("probe", "", "")
            case ["write", number, name, text, _]:
                self._write(name, self._machine.edited(name, text).encode(errors="surrogateescape"))
                self._say("write", number, "", "")
            case ["log", spool, name, *_]:
                self._log = (spool, name)
            case ["end", _]:
                spool, name = self._log
                piece = read_spool(spool, 0, MOST_LOG)
                self._write(name, b"".join(data for _, data in piece.frames) if piece else b"")
                self._say("whole", "0", "0", "", "")

    def close(self, *, kill: bool) -> None:
        self._is_open = False
        self._heard = lambda words: None

    def _write(self, name: str, data: bytes) -> None:
        path = f"{self._directory}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def _say(self, *words: str) -> None:
        self._machine.later(0.0, lambda: self._heard(words))

    def _say_alive(self) -> None:
        if self._is_open:
            self._heard(["alive", "0"])
            self._machine.later(2.0, self._say_alive)


class FakeGuard:
    """An agent.machine.api.GuardProcess that has nothing to guard."""

    def until(self, deadline: float) -> None:
        pass

    def close(self) -> None:
        pass


class FakeMachine:
    """Implements agent.machine.api.Machine for one pod. `net` has the machine of each address; `started` is told of
    each process of a run, `answered` of each request of a client and its answer; `waited` says for how many seconds a
    request waits, `edited(path, text)` what is written in place of a text."""

    role: Role

    def __init__(self, loop: JumpingLoop, home: str, address: str, gpus: int, net: dict[str, FakeMachine]) -> None:
        self.loop = loop
        self.alive = True
        self.channels: list[FakeChannel] = []
        self.processes: list[FakeProcess] = []
        self.started: Callable[[FakeProcess, Output], None] = lambda process, output: None
        self.waited: Callable[[Any], float] = lambda request: 0.0
        self.answered: Callable[[Any, Any], None] = lambda request, answer: None
        self.edited: Callable[[str, str], str] = lambda path, text: text
        self._home = home
        self._address = address
        self._gpus = gpus
        self._net = net
        self._wall = time.time() - loop.now()
        self._doors: list[socket.socket | LineStream] = []
        self._opened: Callable[[api.Channel], None] | None = None
        self._room = Room(MOST_LOG)
        self.exists = self._at_home(os.path.exists)
        self.read = self._at_home(files.read)
        self.read_part = self._at_home(files.read_part)
        self.read_tails = self._at_home(files.read_tails)
        self.read_ends = self._at_home(files.read_ends)
        self.list_dir = self._at_home(files.list_dir)
        self.dir_size = self._at_home(files.dir_size)
        self.write = self._at_home(lambda path, text, mode=0o644: files.write(path, self.edited(path, text), mode))
        self.check_writable = self._at_home(files.check_writable)
        self.append = self._at_home(files.append)
        self.overwrite = self._at_home(files.overwrite)
        self.remove = self._at_home(files.remove)
        self.remove_dir = self._at_home(files.remove_dir)
        self.make_private_dir = self._at_home(files.make_private_dir)
        self.refresh = self._at_home(files.refresh)
        self.make_dir = self._at_home(partial(os.makedirs, exist_ok=True))
        for path in ("/etc/profile.d", "/etc/ld.so.conf.d", "/dev", "/root", "/run", "/tmp"):
            self.make_dir(path)

    def _at_home(self, act: Callable[..., Any]) -> Any:
        """What is neither the cluster's nor shipped with the agent, such as /etc, lies below the pod's directory."""
        known = (f"{os.path.dirname(self._home)}/", *SHIPPED)

        def done(path: str, *args: Any, **options: Any) -> Any:
            is_known = f"{path}/".startswith(known)
            return act(path if is_known else f"{self._home}/root{path}", *args, **options)

        return done

    # Life

    def call(self, action: Callable[[], None]) -> None:
        """Run one callback, as the loop of an agent does."""
        if self.alive:
            guarded(action, self.role)

    def die(self) -> None:
        """The pod is gone, and all that was in it."""
        self.alive = False
        for channel in self.channels:
            channel.close()
        for door in self._doors:
            if isinstance(door, socket.socket) and door.fileno() >= 0:
                self.loop.forget(door.fileno())
            door.close()

    # Time

    def now(self) -> float:
        return self.loop.now()

    def wall(self) -> float:
        return self._wall + self.loop.now()

    def later(self, seconds: float, action: Callable[[], None]) -> api.Timer:
        return self.loop.later(seconds, lambda: self.call(action))

    def aside(self, work: Callable[[], T], done: Callable[[T], None], refused: Callable[[OSError], None]) -> None:
        self.later(0.0, lambda: done(work()))

    # Network

    def resolve(self, names: Sequence[str], done: Callable[[str, str | api.Problem], None]) -> None:
        for name in names:
            self.later(0.0, partial(done, name, address_of(int(name.partition(".")[0].rpartition("-")[2]))))

    def connect(self, target: api.Target, done: Callable[[api.Channel | api.Problem], None]) -> None:
        far = self._net[target.address]
        if far._opened is None or not far.alive:
            text = f"DNS ok, port {target.port} at {target.address} does not answer"
            self.later(5.0, lambda: done(api.Problem("timeout", text)))
            return
        ends = FakeChannel(self), FakeChannel(far)
        ends[0].other, ends[1].other = ends[1], ends[0]
        far.later(0.001, partial(far._opened, ends[1]))
        self.later(0.002, partial(done, ends[0]))

    def accept(self, directory: str, opened: Callable[[api.Channel], None]) -> None:
        self._opened = opened

    def listen(self, path: str, opened: Callable[[api.Channel], None], full: bytes) -> None:
        def taken(stream: LineStream) -> None:
            self._doors.append(stream)
            self.call(lambda: opened(CommandChannel(self, stream)))

        self._doors.append(open_door(self.loop, path, taken, full))

    def locate(self, host: str, done: Callable[[api.Whereabouts], None]) -> None:
        self.later(0.0, lambda: done(api.Whereabouts({})))

    def interfaces(self) -> list[api.Interface]:
        return [api.Interface("eth0", self._address)]

    def hostname(self) -> str:
        return self._address

    def port_holder(self, address: str, port: int) -> str:
        return ""

    # Programs

    def gpu_count(self) -> int:
        return self._gpus

    def core_count(self) -> int:
        return 64

    def memory_kills(self) -> int:
        return 0

    def raise_file_limit(self) -> None:
        pass

    def draw_nonce(self) -> str:
        return os.urandom(16).hex()

    def find_program(self, name: str, path: str) -> str | None:
        return f"/usr/bin/{name}"

    def why_unstartable(
        self, programs: Sequence[str], path: str, cwd: str, files: Sequence[str] = ()
    ) -> OSError | None:
        return None

    def start(
        self,
        launch: Launch,
        ended: Callable[[int], None],
        output: Output,
        *,
        emitted: bool = False,
        marks: api.RunMarks | None = None,
    ) -> api.Child:
        process = FakeProcess(self, len(self.processes) + 100, marks.run if marks else "", ended)
        self.processes.append(process)
        if marks is not None:
            self.started(process, output)
        elif launch.argv[0].endswith("/sshd"):
            for line in (self.read(launch.argv[-1]) or "").splitlines():
                if line.startswith("ListenAddress "):
                    address, _, port = line.split()[1].rpartition(":")
                    said = f"Server listening on {address} port {port}.\n"
                    self.later(0.0, partial(output, 2, said.encode()))
        else:
            process.end(0)
        return process

    def start_keeper(
        self,
        directory: str,
        number: int,
        heard: Callable[[Sequence[str]], None],
        ended: Callable[[api.KeeperProcess, int], None],
        base: str = "",
    ) -> api.KeeperProcess:
        return FakeKeeper(self, directory, heard)

    def start_guard(self, marks: api.RunMarks, deadline: float, said: Callable[[api.GuardSaid], None]) -> FakeGuard:
        self.later(0.0, lambda: said("ready"))
        return FakeGuard()

    def gather_inventory(
        self, search: api.Search, say: Callable[[str], None], done: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self.later(0.0, lambda: done(INVENTORY))

    def ask_process(self, argv: Sequence[str], cwd: str, seconds: float, done: Callable[[str], None]) -> None:
        """Nothing is found: no flag, no fault of a device, no process of a run."""
        said: Any = {}
        if "agent.clinic.sources.look" in argv:
            said = wire.to_json(LookAnswer(wire.from_json(Question, json.loads(argv[-1])).pod, ""))
        elif "agent.clinic.probes.gpu_memory" in argv:
            said = {"used": {}}
        self.later(0.0, lambda: done(json.dumps(said)))

    def make_cgroup(self, path: str) -> bool:
        return False

    def tell(self, marks: api.RunMarks, number: int, variable: str, seconds: float, over: Callable[[], None]) -> None:
        self._signal(marks, number)
        self.later(0.0, over)

    def sweep(
        self,
        marks: api.RunMarks,
        seconds: float,
        done: Callable[[int, Sequence[int]], None],
        *,
        at_once: bool = False,
    ) -> None:
        self._signal(marks, signal.SIGKILL)
        self.later(0.0, lambda: done(0, ()))

    def _signal(self, marks: api.RunMarks, number: int) -> None:
        for process in self.processes:
            if process.run == marks.run:
                process.signal(number)

    # Output

    def emit(self, stream: int, data: bytes) -> None:
        pass

    def spool(self, directory: str, limit: int) -> api.Spool:
        return FileSpool(directory, self._room)

    def read_spool(self, directory: str, offset: int, most: int, since: float = 0.0) -> api.Piece | None:
        return read_spool(directory, offset, most, since)


def address_of(index: int) -> str:
    return f"10.0.{index // 250}.{index % 250 + 1}"
