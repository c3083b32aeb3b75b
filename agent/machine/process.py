"""Starting and ending processes."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any

from agent.launch import Launch
from agent.machine.api import RunMarks
from agent.machine.loop import READ, Loop
from agent.machine.output_writer import Emitter
from agent.paths import shipped

Output = Callable[[int, bytes], None]
READ_BYTES = 65536
PIPE_BYTES = 1 << 20
"""What a pipe of a run holds: the most that Linux grants everybody. mpirun of Open MPI 5.0 drops the output of ranks
once its pipe is full for a moment (openpmix/openpmix#4105), and ends with 0."""
LAST_OUTPUT_SECONDS = 0.5
"""How long those who hold the pipes of a child that has ended may still write."""


class RunningChild:
    """A process, in a session of its own unless it is told otherwise, watched by the loop.

    What it writes, if that is `emitted`, stays in its pipes while `emitter` is far behind: it has to wait then, as if
    it wrote there itself.
    """

    def __init__(
        self,
        loop: Loop,
        emitter: Emitter | None,
        launch: Launch,
        ended: Callable[[int], None],
        output: Output,
        *,
        emitted: bool = False,
        marks: RunMarks | None = None,
        own_session: bool = True,
    ) -> None:
        """It and all that it starts get the kernel's `marks`. Raises OSError."""
        group, cgroup = (marks.group, marks.cgroup) if marks else (0, "")
        self._process = _start(
            cgroup,
            list(launch.argv),
            env=dict(launch.env),
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=own_session,
            # setgroups replaces the whole list, so the agent's own groups are named, too.
            extra_groups=[*os.getgroups(), group] if group else None,
        )
        self.pid = self._process.pid
        self._send = os.killpg if own_session else os.kill
        self._loop = loop
        self._emitter = emitter if emitted else None
        self._ended = ended
        self._pipes: dict[int, tuple[IO[bytes], Callable[[bytes], None]]] = {}
        """Those that are open, by descriptor, and where their bytes go."""
        self.is_paused = False
        self._abandons = False
        """Time is up for those who hold the pipes of a child that has ended."""
        self._awaits_group = False
        self._status: int | None = None
        """Set when it counts as ended."""
        try:
            self._pidfd = loop.on_end(self.pid, lambda: self._end(self._process.wait()))
        except OSError:  # too many files are open, and nobody would hear of its end
            self.signal(signal.SIGKILL)
            with self._process:  # waits, and closes its pipes
                raise
        for stream, file in ((1, self._process.stdout), (2, self._process.stderr)):
            assert file is not None
            os.set_blocking(file.fileno(), False)
            if emitted:  # of an exclusive run: what users may have of large pipes is little
                with suppress(OSError):
                    fcntl.fcntl(file.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            self._pipes[file.fileno()] = file, partial(output, stream)
        self._watch()

    def signal(self, number: int) -> None:
        """Send a signal to its whole group, if that is its own; one that is gone is ignored."""
        with suppress(ProcessLookupError):
            self._send(self.pid, number)

    def end(self, seconds: float) -> None:
        """End it and wait for that, when the loop does not run any more. It gets SIGTERM, and SIGKILL as soon as it has
        ended, after `seconds` at the latest."""
        with self._process:
            if self._process.returncode is None:
                self.signal(signal.SIGTERM)
                try:
                    select.select([self._pidfd], [], [], seconds)
                finally:
                    self.signal(signal.SIGKILL)  # for the rest of its group, which exists until the status is taken
                    os.close(self._pidfd)

    def await_group(self) -> None:
        self._awaits_group = True

    def _watch(self) -> None:
        for fd in self._pipes:
            self._loop.watch(fd, READ, partial(self._readable, fd))

    def _readable(self, fd: int) -> None:
        if self._emitter is None or not self._emitter.is_far_behind:
            self._read(fd, READ_BYTES)
            return
        self.is_paused = True
        for other in self._pipes:
            self._loop.forget(other)
        self._emitter.on_relief(self._resume)

    def _resume(self) -> None:
        self.is_paused = False
        if self._abandons:
            self._abandon()
        else:
            self._watch()

    def _read(self, fd: int, most: int) -> bool:
        """Pass on what is there; True when there may be more."""
        try:
            data = os.read(fd, most)
        except BlockingIOError:
            return False
        if data:
            self._pipes[fd][1](data)
        else:
            self._finish_stream(fd)
        return bool(data)

    def _read_rest(self, fd: int) -> None:
        """What is in the pipe now, and its end if nobody holds it. This is not much: no need to spare the emitter."""
        if self._read(fd, fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)):
            self._read(fd, READ_BYTES)

    def _end(self, status: int) -> None:
        if not self._awaits_group:
            self._over(status)
            return

        def look() -> bool:
            return group_runs(self.pid)

        def judge(runs: bool) -> None:
            if runs:
                self._loop.later(0.25, lambda: self._end(status))
            else:
                self._over(status)

        # It reads of every process there is, so in a thread if there are some to be had.
        self._loop.aside(look, judge, lambda why: judge(look()))

    def _over(self, status: int) -> None:
        self._status = status
        if not self._pipes:
            self._tell()
            return
        # Its own children may hold the pipes open and still be writing.
        self._loop.later(LAST_OUTPUT_SECONDS, self._abandon)
        for fd in list(self._pipes):
            self._read_rest(fd)  # all that it has written itself

    def _finish_stream(self, fd: int) -> None:
        self._loop.forget(fd)
        self._pipes.pop(fd)[0].close()
        if not self._pipes and self._status is not None:
            self._tell()

    def _tell(self) -> None:
        self.is_paused = False  # nothing is left to be read, though the emitter may be far behind
        status = self._status or 0
        self._loop.post(lambda: self._ended(status))

    def _abandon(self) -> None:
        """No more patience with those who hold the pipes, unless it is we who do not read."""
        self._abandons = True
        if self.is_paused:
            return
        for fd in list(self._pipes):
            self._read_rest(fd)
            if fd in self._pipes:
                self._finish_stream(fd)


def _start(cgroup: str, argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Popen of what begins in `cgroup`, if there is one. Raises OSError."""
    if not cgroup:
        return subprocess.Popen(argv, **options)
    read, write = os.pipe2(os.O_CLOEXEC)
    launcher = [sys.executable, "-I", "-S", "-X", "utf8", shipped("entrypoints", "enter-cgroup.py"), str(write), cgroup]
    with open(read, "rb") as errors:
        try:
            process = subprocess.Popen([*launcher, *argv], pass_fds=[write], **options)
        except OSError as error:
            if error.filename == sys.executable:
                error.filename = argv[0]  # too long together, say
            raise
        finally:
            os.close(write)
        number = errors.read()  # nothing, when the program has begun
    if number:
        with process:  # waits, and closes its pipes
            raise _os_error(int(number), argv[0])
    return process


def find_program(name: str, path: str) -> str | None:
    """Absolute path of a program; sbin directories are looked at too, as images leave them off PATH."""
    found = _which(name, f"{path}:/usr/local/sbin:/usr/sbin:/sbin")
    return os.path.abspath(found) if found else None


def _which(name: str, path: str) -> str | None:
    """As shutil.which, but that an empty folder does not count as the working directory."""
    return shutil.which(name, path=os.pathsep.join(filter(None, path.split(os.pathsep))))


def why_unstartable(programs: Sequence[str], path: str, cwd: str, files: Sequence[str] = ()) -> OSError | None:
    """The error of starting one of these in `cwd`, if that is certain to fail; `path` is the search path. `files`:
    what they must find there."""
    if not os.path.isdir(cwd):
        return _os_error(errno.ENOENT, cwd)
    for program in programs:
        place = os.path.join(cwd, program) if "/" in program else program
        if _which(place, path) is None:
            return _os_error(errno.EACCES if os.path.exists(place) else errno.ENOENT, program)
    places = (os.path.join(cwd, file) for file in files)
    return next((_os_error(errno.ENOENT, place) for place in places if not os.path.exists(place)), None)


def _os_error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)


def stat_of(path: str) -> tuple[str, list[str]]:
    """Name of a process or thread, and the fields behind it: state, parent, group, … Raises OSError when it has ended.

    `path` is its directory in /proc. The name may hold anything, parentheses and spaces too.
    """
    with open(f"{path}/stat", encoding="utf-8", errors="replace") as file:
        head, _, rest = file.read().rpartition(")")
    return head.partition("(")[2], rest.split()


def group_runs(group: int) -> bool:
    """Whether a process of this group is left that is not a zombie. One that may not be read does not count."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            state, _, its_group, *_ = stat_of(f"/proc/{pid}")[1]
            if int(its_group) == group and state not in ("Z", "X"):
                return True
    return False
