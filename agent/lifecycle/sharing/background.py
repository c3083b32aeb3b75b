"""The shared directory for a process that does one thing after the other, while its claim is kept alive beside it."""

from __future__ import annotations

import os
import random
import secrets
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from agent.decide.sync.beats import poll_seconds
from agent.errors import DirectoryUnusable, Exit, PeerLost
from agent.lifecycle.sharing.claim import MOST_HUNG, Claim
from agent.lifecycle.sharing.directory import SharedDirectory
from agent.machine.api import SERVER_SECONDS
from agent.machine.loop import Loop


class Background(SharedDirectory):
    """A thread with a loop of its own. Its methods are for the one thread that made it, and wait.

    hung: called in the thread, with why, when the other one has waited for the storage for too long: it must end the
    process, for the other thread does nothing any more.
    """

    def __init__(
        self, directory: str, by: str, lease: float, say: Callable[[str], None], hung: Callable[[str], None]
    ) -> None:
        super().__init__(Loop(), directory, f"the shared directory {directory}")
        self._by = by
        self._lease = lease
        self._say = say
        self._hung = hung
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the process that works in the directory. Nothing may be asked any more."""

        def close(done: Callable[[Any], None]) -> None:
            self._files.close()
            done(None)

        self._call(close)

    def put(self, folder: str, name: str, text: str, until: float | None = None) -> None:
        until = self.now() + SERVER_SECONDS if until is None else until
        if self._ask(self._files.put, folder, name, text, until) != text:
            raise self._unusable(f"{folder}/{name} reads differently from what was written")

    def read(self, folder: str, name: str) -> str:
        """A small file; empty when it is not there."""
        text: str = self._ask(self._files.look, folder, (name,), ())["texts"].get(name, "")
        return text

    def find(self, folder: str, name: str, text: str, seconds: float) -> bool:
        """Wait until a file holds that text; False when it does not in time."""
        until = self.now() + seconds
        while self.read(folder, name) != text:
            if self.now() > until:
                return False
            threading.Event().wait(poll_seconds(1, random.random()))
        return True

    def remove(self, folder: str, name: str) -> None:
        self._ask(self._files.remove, folder, (name,))

    def _run(self) -> None:
        try:
            self._loop.run()
        except BaseException:
            traceback.print_exc()
            os._exit(Exit.BUG)  # who waits for an answer would wait for ever

    def _call(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:
        got: list[Any] = []
        there = threading.Event()

        def done(value: Any) -> None:
            got.append(value)
            there.set()

        self._loop.post(lambda: begin(done))
        there.wait()
        return got[0]

    @contextmanager
    def claim(self, name: str, lost: Callable[[str], None]) -> Iterator[Held]:
        """Hold a claim. When it is lost `lost` is called with why, in the thread, to end what writes. Raises
        DirectoryUnusable when storage does not answer for too long."""
        held = Held(self._loop, lost)
        claim = held.claim = Claim(
            self._files,
            self,
            name,
            nonce=secrets.token_hex(16),
            by=self._by,
            lease=self._lease,
            acquired=lambda: held.told.put(0.0),
            lost=held.lose,
            say=self._say,
        )
        self._loop.post(claim.acquire)
        try:
            held.told.get()
            if held.why:
                raise DirectoryUnusable(held.why, "look at the file server, and at the node's mounts")
            try:
                yield held
            finally:
                self._call(lambda done: claim.release(lambda: done(None)))
        finally:
            self._loop.post(claim.close)

    @contextmanager
    def looking_at(self, path: str) -> Iterator[None]:
        """Say that the storage hangs, while it does, each time that a lease is over."""
        over = threading.Event()

        def wait(leases: int) -> None:
            self._loop.later(self._lease, lambda: None if over.is_set() else report(leases + 1))

        def report(leases: int) -> None:
            why = f"{path} has not answered for {leases * self._lease:.0f} s: the storage hangs"
            if leases >= MOST_HUNG:
                self._hung(why)
            self._say(why)
            wait(leases)

        self._loop.post(lambda: wait(0))
        try:
            yield
        finally:
            over.set()


class Held:
    """A claim that is held, until it is lost."""

    claim: Claim

    def __init__(self, loop: Loop, lost: Callable[[str], None]) -> None:
        self._loop = loop
        self._lost = lost
        self.why = ""
        """Why it is lost; empty while it is held."""
        self.told: SimpleQueue[float] = SimpleQueue()

    def lose(self, why: str) -> None:
        self._lost(why)  # first: it kills what was started under the claim, and who waits goes on only then
        self.why = why
        self.told.put(0.0)

    def until(self) -> float:
        """It is surely held until this time of the monotonic clock. Raises PeerLost."""
        if not self.why:
            self._loop.post(lambda: self.claim.confirm(self.told.put))
            until = self.told.get()
        if self.why:
            raise PeerLost(self.why, "another pod may write there now: what was made here is left in its own place")
        return until
