"""The shared directory for a process that does one thing after the other, while its claim is kept alive beside it."""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from agent.errors import Exit
from agent.lifecycle.sharing.claim import MOST_HUNG, Claim
from agent.lifecycle.sharing.claim_files import poll_seconds
from agent.lifecycle.sharing.directory import SharedDirectory
from agent.machine.shared_files import carry_out, look


class Background(SharedDirectory):
    """For the one thread that made it, whose calls wait.

    hung: called in another thread, with why, when that one has waited for the storage for too long: it must end the
    process, for the thread that waits does nothing any more.
    """

    def __init__(
        self, directory: str, by: str, lease: float, say: Callable[[str], None], hung: Callable[[str], None]
    ) -> None:
        super().__init__(directory, f"the shared directory {directory}")
        self._by = by
        self._lease = lease
        self._say = say
        self._hung = hung

    def read(self, folder: str, name: str) -> str:
        """A small file; empty when it is not there."""
        text: str = self._ask(*look(folder, [name]).words)["texts"].get(name, "")
        return text

    def find(self, folder: str, name: str, text: str, seconds: float) -> bool:
        """Wait until a file holds that text; False when it does not in time."""
        until = time.monotonic() + seconds
        while self.read(folder, name) != text:
            if time.monotonic() > until:
                return False
            threading.Event().wait(poll_seconds(random.random()))
        return True

    @contextmanager
    def claim(self, name: str, lost: Callable[[str], None]) -> Iterator[Held]:
        """Hold a claim. When it is lost `lost` is called with why, in another thread, to end what writes. Raises
        DirectoryUnusable when storage does not answer for too long."""
        claim = Claim(name, nonce=secrets.token_hex(16), by=self._by, lease=self._lease, lost=lost, say=self._say)
        ended = threading.Event()
        carry_out(claim.acquire(), self._files.ask, ended.wait)
        beside(lambda: carry_out(claim.hold(), self._files.ask, ended.wait))
        try:
            yield Held(lambda: carry_out(claim.confirm(), self._files.ask, ended.wait))
        finally:
            carry_out(claim.release(), self._files.ask, ended.wait)
            ended.set()

    @contextmanager
    def looking_at(self, path: str) -> Iterator[None]:
        """Say that the storage hangs, while it does, each time that a lease is over."""
        over = threading.Event()

        def watch() -> None:
            leases = 0
            while not over.wait(self._lease):
                leases += 1
                why = f"{path} has not answered for {leases * self._lease:.0f} s: the storage hangs"
                if leases >= MOST_HUNG:
                    self._hung(why)
                self._say(why)

        beside(watch)
        try:
            yield
        finally:
            over.set()


class Held(NamedTuple):
    """A claim that is held, until it is lost."""

    until: Callable[[], float]
    """It is surely held until this time of the monotonic clock. Raises PeerLost."""


def beside(work: Callable[[], None]) -> None:
    """Do it in another thread."""

    def run() -> None:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(Exit.BUG)  # who holds a claim would write without it

    threading.Thread(target=run, daemon=True).start()
