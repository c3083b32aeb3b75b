"""Storage in a directory that may hang: a process does it, entrypoints/keep-results.py, and the loop goes on.

A thread would not do: one that waits for a dead server in the kernel keeps its whole process from ending.

A process that has not got on with a command for as long as it may take is given up: it gets SIGKILL, which it may
not even take, and all that it was asked for fails with "no answer for 10 s". A later command starts another one,
but not within 30 s of the start of the one that hung, and not while three of them still hang; commands in between
fail at once. A process that somebody killed is replaced at once and gets the same commands again; when the next
one, too, ends before it has answered anything, they fail.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from agent.machine import files
from agent.machine.loop import READ, Loop, LoopTimer
from agent.machine.stream import LineStream
from agent.paths import shipped

Done = Callable[[str], None]
ANSWER_SECONDS = 10.0
PROBE_SECONDS = 5.0
RESTART_SECONDS = 30.0
FLUSHED_PER_SECOND = 16 * 1024 * 1024
"""A file gets a second more for so many bytes: a bucket takes them when the file is closed."""
MOST_QUEUED = 64 * 1024 * 1024
MOST_HANGING = 3
MOST_ENDS = 2
"""Processes that may end by themselves without an answer in between, until what they were asked for fails."""
KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
"""What a Python may need to start at all. All others stay away, the mark A4_RUN of a run among them."""


@dataclass
class Command:
    """Something asked for and not answered yet."""

    id: str
    line: bytes
    aside: str
    """The file that a process leaves when it is killed over this command; empty: none."""
    seconds: float
    """How long the process may take without a sign of life."""
    done: Done


@cache
def mount_points() -> tuple[str, ...]:
    """Where something was mounted when this agent first asked: a mount that has gone since is missed."""
    table = files.read("/proc/self/mountinfo") or ""
    return tuple(line.split(" ", 5)[4] for line in table.splitlines())


def mount_of(directory: str, points: Sequence[str]) -> str:
    """The innermost of these mount points that `directory` lies on, by its name alone: nothing is asked of it.

    All as mountinfo writes it, with octal numbers for spaces and the like.
    """
    path = os.path.abspath(directory).translate({ord(char): f"\\{ord(char):03o}" for char in " \t\n\\"})
    return max((point for point in points if f"{path}/".startswith(f"{point.rstrip('/')}/")), key=len, default="/")


class ProcessKeeper:
    """Implements agent.machine.api.Keeper. The process is started by the first command."""

    def __init__(
        self,
        loop: Loop,
        python: str,
        directory: str,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        probe_seconds: float = PROBE_SECONDS,
        restart_seconds: float = RESTART_SECONDS,
    ) -> None:
        self._loop = loop
        program, mount = shipped("entrypoints", "keep-results.py"), mount_of(directory, mount_points())
        self._argv = [python, "-I", "-S", program, mount, directory]
        self._answer_seconds = answer_seconds
        self._probe_seconds = probe_seconds
        self._restart_seconds = restart_seconds
        self._commands: deque[Command] = deque()
        """The commands without an answer, in the order in which they are answered."""
        self._queued = 0
        """Bytes of them all."""
        self._count = 0
        self._helper: Helper | None = None
        self._hanging: set[int] = set()
        """Processes given up that have not ended yet."""
        self._timer: LoopTimer | None = None
        self._started = 0.0
        self._rest_until = 0.0
        self._why = ""
        self._ends = 0
        """Processes that have ended since the last answer, given up ones left out."""
        self._litter: list[str] = []
        """Files that processes given up may have left."""
        self._closed = False

    def write(self, name: str, text: str, done: Done) -> None:
        aside = self._aside(name)
        self._ask(["write", aside, name, text], aside, self._answer_seconds, done)

    def copy_spool(self, spool: str, start: int, end: int, name: str, done: Done) -> None:
        aside = self._aside(name)
        words = ["copy", aside, name, os.path.abspath(spool), str(start), str(end)]
        self._ask(words, aside, self._answer_seconds, done)

    def remove(self, names: Sequence[str], done: Done) -> None:
        self._ask(["remove", *names], "", self._answer_seconds, done)

    def probe(self, done: Done) -> None:
        aside = self._aside("probe")
        self._ask(["probe", aside], aside, self._probe_seconds, done)

    def close(self) -> None:
        self._closed = True
        self._stop_timer()
        if self._helper is not None:
            self._helper.close(kill=bool(self._commands))
        self._commands.clear()

    def _aside(self, name: str) -> str:
        """A name of its own for each try: a process that comes back from a hang writes into nobody else's file."""
        directory, _, base = name.rpartition("/")
        return f"{directory}/.{base}.{os.getpid()}.{self._count}.new".lstrip("/")

    # Commands

    def _ask(self, words: Sequence[str], aside: str, seconds: float, done: Done) -> None:
        if self._closed:
            return
        self._count += 1
        number = str(self._count)
        line = json.dumps([number, *words]).encode() + b"\n"
        why = self._refusal(len(line))
        if why:
            self._tell(done, why)
            return
        if self._helper is None and self._litter:
            self._clear_away()
        self._commands.append(Command(number, line, aside, seconds, done))
        self._queued += len(line)
        if self._helper is None:
            self._start()
        else:
            self._helper.send(line)
            if len(self._commands) == 1:
                self._expect()

    def _refusal(self, size: int) -> str:
        """Why a command cannot be taken now; empty when it can."""
        if self._queued + size > MOST_QUEUED:
            return f"the queue is full ({MOST_QUEUED // 1024 // 1024} MiB)"
        if self._helper is not None:
            return ""
        if len(self._hanging) >= MOST_HANGING:
            return f"{len(self._hanging)} processes hang there"
        return self._why if time.monotonic() < self._rest_until else ""

    def _clear_away(self) -> None:
        litter, self._litter = self._litter, []

        def cleared(why: str) -> None:
            if why:
                self._litter += litter

        self.remove(litter, cleared)

    def _take_first(self) -> Command:
        command = self._commands.popleft()
        self._queued -= len(command.line)
        return command

    def _fail_all(self, why: str) -> None:
        if self._commands and self._commands[0].aside:
            self._litter.append(self._commands[0].aside)  # no other can have been begun
        while self._commands:
            self._tell(self._take_first().done, why)

    def _tell(self, done: Done, why: str) -> None:
        """Call `done` from the loop, never re-entrantly, and not after `close`."""
        self._loop.post(lambda: None if self._closed else done(why))

    # The process

    def _start(self) -> None:
        """Start one and give it all commands."""
        try:
            self._helper = Helper(self._loop, self._argv, self._heard, self._ended)
        except OSError as error:
            self._fail_all(f"{self._argv[0]} cannot be started: {error.strerror}")
            return
        self._started = time.monotonic()
        for command in self._commands:
            self._helper.send(command.line)
        self._expect()

    def _expect(self, written: int = 0) -> None:
        """An answer to the first command, or a sign of life, within its time from now."""
        self._stop_timer()
        seconds = self._commands[0].seconds + written / FLUSHED_PER_SECOND
        self._timer = self._loop.later(seconds, lambda: self._give_up(f"no answer for {round(seconds, 1):g} s"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _heard(self, line: bytes) -> None:
        number, kind, text = json.loads(line)
        if not self._commands or number != self._commands[0].id:
            return
        if kind == "busy":
            self._expect(int(text))
            return
        self._ends = 0
        self._stop_timer()
        self._tell(self._take_first().done, text)
        if self._commands:
            self._expect()

    def _give_up(self, why: str) -> None:
        helper, self._helper = self._helper, None
        assert helper is not None
        self._hanging.add(helper.pid)
        helper.close(kill=True)
        self._why = why
        self._rest_until = self._started + self._restart_seconds
        self._stop_timer()
        self._fail_all(why)

    def _ended(self, helper: Helper, status: int) -> None:
        self._hanging.discard(helper.pid)
        if helper is not self._helper:
            return
        self._helper = None
        self._stop_timer()
        if not self._commands:
            return
        self._ends += 1
        if self._ends < MOST_ENDS:
            self._start()
        else:
            how = f"by signal {-status}" if status < 0 else f"with status {status}"
            self._fail_all(f"the process that stores files was ended {how}")


class Helper:
    """One such process and its pipes. `heard` gets its lines, `ended` its exit status when it is gone."""

    def __init__(
        self,
        loop: Loop,
        argv: Sequence[str],
        heard: Callable[[bytes], None],
        ended: Callable[[Helper, int], None],
    ) -> None:
        self._process = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ},
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.pid = self._process.pid
        self._loop = loop
        self._ended = ended
        self._stream = LineStream(loop, self._process.stdout, self._process.stdin)
        self._stream.receive(heard, lambda reason: self._await_end())

    def send(self, line: bytes) -> None:
        self._stream.send(line)

    def close(self, *, kill: bool) -> None:
        """Nothing more is sent or heard. Without `kill` it does first what it has got, then ends."""
        if kill:
            self._process.kill()
        if self._stream.is_open:
            self._stream.close()
            self._await_end()

    def _await_end(self) -> None:
        """Only now: what it said last still stands in the pipe when it has gone."""
        pidfd = os.pidfd_open(self.pid)
        self._loop.watch(pidfd, READ, lambda: self._exited(pidfd))

    def _exited(self, pidfd: int) -> None:
        self._loop.forget(pidfd)
        os.close(pidfd)
        self._ended(self, self._process.wait())
