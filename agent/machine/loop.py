"""One thread that waits: for descriptors, timers, children, signals and other threads' results."""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
Action = Callable[[], None]
AGAIN_SECONDS = 1.0
"""Until the next try where files or threads have run out."""
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


def result_of(work: Callable[[], Action]) -> Action:
    """What `work` returns; where it fails, an action that raises that in the loop."""
    try:
        return work()
    except Exception as error:
        bug = error

        def raise_in_loop() -> None:
            raise bug

        return raise_in_loop


class LoopTimer:
    """A pending timer; `cancel` makes it never fire."""

    def __init__(self, when: float, action: Action) -> None:
        self.when = when
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class Loop:
    """Runs callbacks one after another until `stop`, again and again."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, LoopTimer]] = []
        """A heap by time; of two at the same time, the one that was made first comes first."""
        self._count = itertools.count()
        self._posted: deque[Action] = deque()
        """What other threads, signals and callbacks want to be done soon."""
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._closing, self._closed = threading.RLock(), False  # a signal handler may post while its thread does
        self.watch(self._wake_read, READ, self._drain)
        self._running = True

    def now(self) -> float:
        """Seconds on a clock that never jumps."""
        return time.monotonic()

    def later(self, seconds: float, action: Action) -> LoopTimer:
        """Run `action` once after that time, never earlier and never from inside this call."""
        timer = LoopTimer(self.now() + seconds, action)
        heapq.heappush(self._timers, (timer.when, next(self._count), timer))
        return timer

    def watch(self, fd: int, event: int, action: Action) -> None:
        """Call `action` whenever `fd` is ready to READ or to WRITE; replaces an earlier watch for the same."""
        known = self._actions(fd)
        actions = {**known, event: action}
        change = self._selector.modify if known else self._selector.register
        # The keys are bits, so their sum is the mask.
        change(fd, sum(actions), actions)

    def forget(self, fd: int, events: int = READ | WRITE) -> None:
        """Stop watching for these; must come before the descriptor is closed."""
        known = self._actions(fd)
        left = {event: action for event, action in known.items() if not event & events}
        if left:
            self._selector.modify(fd, sum(left), left)
        elif known:
            self._selector.unregister(fd)

    def on_end(self, child: int, action: Action) -> int:
        """Call `action` when a child of this process has ended, whose status is to be taken there. Returns its pidfd,
        which is closed then. Raises OSError when no more files can be opened."""
        pidfd = os.pidfd_open(child)

        def ended() -> None:
            self.forget(pidfd)
            os.close(pidfd)
            action()

        self.watch(pidfd, READ, ended)
        return pidfd

    def _actions(self, fd: int) -> dict[int, Action]:
        key = self._selector.get_map().get(fd)
        return key.data if key else {}

    def post(self, action: Action) -> None:
        """Run `action` soon; the one method that other threads and signal handlers may call."""
        self._posted.append(action)
        # A thread may outlive the loop, and the number of a closed descriptor may belong to another file by then.
        with self._closing, suppress(BlockingIOError):  # the pipe is full: the loop is awake anyway
            if not self._closed:
                os.write(self._wake_write, b"!")

    def on_signal(self, number: int, action: Callable[[int], None]) -> None:
        def handle(number: int, frame: FrameType | None) -> None:
            self.post(lambda: action(number))

        signal.signal(number, handle)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def aside(self, work: Callable[[], T], done: Callable[[T], None], refused: Callable[[OSError], None]) -> None:
        """Run `work` in a thread of its own; `done` gets in the loop what came of it. Where no more threads can be had,
        `refused` gets why.

        A bug in `work` is raised in the loop: it must end the agent, not vanish with a thread.
        """

        def and_then() -> Action:
            found = work()
            return lambda: done(found)

        try:
            threading.Thread(target=lambda: self.post(result_of(and_then)), daemon=True).start()
        except RuntimeError:
            self.post(lambda: refused(OSError(errno.EAGAIN, "no more threads can be started in this pod")))

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        """Until `stop`. A further call goes on where it was stopped, or where a callback has raised what left here."""
        while self._running:
            for key, ready in self._selector.select(self._patience()):
                for event, action in key.data.items():
                    # An earlier callback may have closed it, and its number may belong to another by now.
                    if event & ready and self._selector.get_map().get(key.fd) is key:
                        action()
            for _ in range(len(self._posted)):  # not those that they post: timers and descriptors have their turn
                self._posted.popleft()()
            now = self.now()
            while self._timers and self._timers[0][0] <= now and self._running:
                timer = heapq.heappop(self._timers)[2]
                if timer.action is not None:
                    timer.action()
        self._running = True

    def _patience(self) -> float | None:
        """How long descriptors are waited for; None: for ever."""
        if self._posted:
            return 0.0
        return self._timers[0][0] - self.now() if self._timers else None

    def close(self) -> None:
        """Give its descriptors back. It cannot be used any more."""
        with self._closing:
            if self._closed:  # the numbers may belong to others by now
                return
            self._closed = True
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
