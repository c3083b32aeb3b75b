"""Programs that stages start, and what is said while they run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import FrameType

from agent.decide.pipeline import Stage
from agent.decide.progress import download_words, duration_words
from agent.errors import MissingProgram, PeerLost
from agent.launch import Launch
from agent.machine import files
from agent.machine.launching import Passing, Piped
from agent.machine.stored import tree_bytes


class Told(BaseException):
    """This process was told to end by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """A signal ends this process at once; while a program runs, which gets the signal itself, when that has ended."""

    def __init__(self) -> None:
        self._waits = False
        self.came = 0
        """The first that has come; 0: none."""
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.came = self.came or number
        if not self._waits:
            raise Told(number)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        self._waits = True
        try:
            yield
        finally:
            self._waits = False
        if self.came:
            raise Told(self.came)


@dataclass
class Programs:
    """One after the other, in this pod's environment. Within `looking_at` the shared storage is looked at, which may
    hang."""

    _environ: Mapping[str, str]
    notes: str
    """File for lines that are worth keeping."""
    _signals: Signals
    say: Callable[[str], None]
    looking_at: Callable[[str], AbstractContextManager[None]]
    lost: str = ""
    """Why nothing may be written any more; empty: it may."""
    _running: Piped | None = None

    def run(
        self,
        stage: Stage,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        look: Callable[[str], None] = lambda line: None,
        *,
        grows: str = "",
        total: Callable[[], int] = lambda: 0,
        quiet: bool = False,
    ) -> int:
        """Its status, negative for a signal. `look` gets the lines that it prints, with `quiet` those of stdout, which
        are then not shown. grows: the directory that it fills, with `total` bytes at the end if that is known.
        Raises MissingProgram, PeerLost when the claim is lost under which it wrote, Told.
        """
        watch = _Watch(stage.name, grows, total, self)

        def heard(line: str) -> None:
            watch.heard()
            look(line)

        with self._signals.deferred():
            if not self.lost and not self._signals.came:
                passing = Passing({1: heard}, shown=(2,)) if quiet else Passing({1: heard, 2: heard})
                running = self._running = self._started(stage, argv, {**self._environ, **env}, cwd, passing)
                self._catch_up(running)
                status = running.wait(watch.tick)
                passing.close()
                self._running = None
        if self.lost:
            raise PeerLost(
                self.lost, "another pod may write there now: what was made here was left in a separate directory"
            )
        return status

    def _started(self, stage: Stage, argv: Sequence[str], env: Mapping[str, str], cwd: str, passing: Passing) -> Piped:
        try:
            with self.looking_at(cwd):
                # In our process group, so that it gets the signals that end the run (see Signals).
                return Piped(Launch(argv, env, cwd), passing.take, own_session=False)
        except OSError as error:
            what = f"{stage.name}: {error.filename or argv[0]}: {error.strerror}"
            raise MissingProgram(what, "each pod needs it") from error

    def _catch_up(self, running: Piped) -> None:
        """What came while it was being started may have come too early for it."""
        if self._signals.came:
            running.child.signal(self._signals.came)
        if self.lost:
            running.kill()

    def lose(self, why: str) -> None:
        """The claim is lost under which the program writes. Another thread may call it."""
        self.lost = why
        self.kill()

    def kill(self) -> None:
        if running := self._running:
            running.kill()

    def bytes_in(self, path: str) -> int:
        with self.looking_at(path):
            return tree_bytes(path)


def note(path: str, line: str) -> None:
    """Add a line to a file in the run directory. Raises SystemFault."""
    try:
        files.append(path, f"{line}\n".encode())
    except OSError as error:
        raise files.unusable(path, error) from error


class _Watch:
    """Says again and again how far a program is."""

    def __init__(self, name: str, grows: str, total: Callable[[], int], programs: Programs) -> None:
        self._name = name
        self._grows = grows
        self._total = total
        self._programs = programs
        self._began = self._heard = time.monotonic()
        self._begin = programs.bytes_in(grows) if grows else 0
        self._ticks = 0

    def heard(self) -> None:
        self._heard = time.monotonic()

    def tick(self) -> float:
        """Called at once, and then after as many seconds as it returns."""
        self._ticks += 1
        now = time.monotonic()
        seconds = now - self._began
        say = self._programs.say
        if self._grows:
            if self._ticks > 1:
                there = self._programs.bytes_in(self._grows)
                say(f"{self._name}: {download_words(seconds, self._begin, there, self._total())}")
            return 10.0
        quiet = 60.0  # nothing else is known of it than that it goes on
        if now - self._heard >= quiet:
            say(f"{self._name}: still at it after {duration_words(seconds)}")
        return quiet
