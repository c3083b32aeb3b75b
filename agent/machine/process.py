"""Starting and ending processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO

from agent.launch import Launch
from agent.machine.loop import READ, Loop

Output = Callable[[int, bytes], None]
BRIEF_SECONDS = 20.0
LAST_OUTPUT_SECONDS = 0.5
SWEEP_TERM_SECONDS = 2.0
SWEEP_SECONDS = 5.0
UNSURE_SECONDS = 2.0
KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of <linux/sched.h>."""


class RunningChild:
    """A process in a session of its own, watched by the loop."""

    def __init__(self, loop: Loop, launch: Launch, ended: Callable[[int], None], output: Output | None) -> None:
        piped = subprocess.PIPE if output else None
        self._process = subprocess.Popen(
            list(launch.argv),
            env=dict(launch.env),
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL,
            stdout=piped,
            stderr=piped,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._loop = loop
        self._ended = ended
        self._open: dict[int, IO[bytes]] = {}
        self._status: int | None = None
        self._pidfd = os.pidfd_open(self.pid)
        loop.watch(self._pidfd, READ, self._exited)
        if output:
            for stream, pipe in ((1, self._process.stdout), (2, self._process.stderr)):
                assert pipe is not None
                self._read_from(pipe, stream, output)

    def signal(self, number: int) -> None:
        """To the whole group; a group that is gone is no error."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def _read_from(self, pipe: IO[bytes], stream: int, output: Output) -> None:
        fd = pipe.fileno()
        os.set_blocking(fd, False)
        self._open[fd] = pipe

        def ready() -> None:
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                return
            if data:
                output(stream, data)
            else:
                self._finish_stream(fd)

        self._loop.watch(fd, READ, ready)

    def _exited(self) -> None:
        self._status = self._process.wait()
        self._loop.forget(self._pidfd)
        os.close(self._pidfd)
        if self._open:
            # Its own children may hold the pipes open; what it wrote itself is there already.
            self._loop.later(LAST_OUTPUT_SECONDS, self._abandon_streams)
        else:
            self._loop.post(lambda: self._ended(self._status or 0))

    def _finish_stream(self, fd: int) -> None:
        self._loop.forget(fd)
        self._open.pop(fd).close()
        if not self._open and self._status is not None:
            status = self._status
            self._loop.post(lambda: self._ended(status))

    def _abandon_streams(self) -> None:
        for fd in list(self._open):
            self._finish_stream(fd)


def find_program(name: str, path: str) -> str | None:
    """Absolute path of a program; sbin directories are looked at too, as images leave them off PATH."""
    folders = [folder for folder in path.split(os.pathsep) if folder]  # an empty one would mean here
    found = shutil.which(name, path=os.pathsep.join([*folders, "/usr/local/sbin", "/usr/sbin", "/sbin"]))
    return os.path.abspath(found) if found else None


def run_briefly(argv: Sequence[str]) -> str:
    """Output of a short command. Raises OSError or TimeoutError."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BRIEF_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{argv[0]} did not answer within {BRIEF_SECONDS:.0f} s") from error
    return done.stdout.decode(errors="replace")


@dataclass
class Marked:
    """What was seen of a run: its processes, and whether some process could not be judged yet."""

    pids: list[int] = field(default_factory=list)
    unsure: bool = False


def marked(run_id: str) -> Marked:
    """Processes other than this one that carry A4_RUN=`run_id` in their environment."""
    mark = f"A4_RUN={run_id}".encode()
    seen = Marked()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                environ = file.read()
            if mark in environ.split(b"\0"):
                seen.pids.append(int(entry))
            elif not environ and _runs_a_program(entry):
                seen.unsure = True  # in the middle of an exec: its environment shows in a moment
        except OSError:
            continue  # it has ended: nothing to end
    return seen


def _runs_a_program(entry: str) -> bool:
    """Neither a zombie nor a kernel thread."""
    with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
        state, _, _, _, _, _, flags, *_ = file.read().rpartition(")")[2].split()
    return state not in "ZX" and not int(flags) & KERNEL_THREAD


def sweep(loop: Loop, run_id: str, done: Callable[[int], None], term_seconds: float = SWEEP_TERM_SECONDS) -> None:
    """End what a run left behind: SIGTERM, then SIGKILL, until nothing is left or 5 s are over."""
    started = time.monotonic()
    found: set[int] = set()
    termed: set[int] = set()

    def look() -> None:
        seen = marked(run_id)
        pids = seen.pids
        age = time.monotonic() - started
        if not pids and seen.unsure and age < UNSURE_SECONDS:
            loop.later(0.05, look)
            return
        if not pids or age > SWEEP_SECONDS:
            done(len(found))
            return
        for pid in pids:
            if pid not in termed or age > term_seconds:
                send_signal(pid, signal.SIGKILL if pid in termed else signal.SIGTERM)
                termed.add(pid)
        found.update(pids)
        loop.later(0.05, look)

    loop.post(look)


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def emit(stream: int, data: bytes) -> None:
    """Write to the agent's own stdout or stderr; a reader that has gone, or a full disk, must not end the job."""
    sys.stdout.flush()
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(stream, view) :]
    except OSError:
        pass
