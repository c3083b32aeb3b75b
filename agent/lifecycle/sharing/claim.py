"""A claim in the shared directory: held by one writer, and taken over when it is silent.

Locks differ between file servers, and a node that is gone may never give one back. So the holder renames a file now and
then, and each who waits judges its silence by a clock of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from agent.decide.sync import claims
from agent.decide.sync.beats import poll_seconds
from agent.decide.sync.facts import seal, unseal
from agent.lifecycle.waits import REPORT_SECONDS
from agent.machine.shared_files import Clock, SharedAnswer, SharedFiles

MOST_HUNG = 10
"""Leases for which storage may not answer."""


@dataclass
class Claim:
    """One writer's claim to a name.

    `acquire` waits, for as long as it takes, until the claim is free or its holder has been silent for a lease. `lost`
    is called, with why, when the directory cannot be looked at for too long, and when a claim that was held is lost:
    then the holder must end what it writes. It may show others what it has written only in the callback of `confirm`,
    with its `until`. `by` says to others who holds it.
    """

    files: SharedFiles
    clock: Clock
    name: str
    _: KW_ONLY
    nonce: str
    by: str
    lease: float
    acquired: Callable[[], None]
    lost: Callable[[str], None]
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self._folder = claims.claim_directory(self.name)
        self._contender: claims.Contender | None = claims.Contender(self.lease)
        """None when the wait for it is over."""
        self._report_at = self.clock.now()
        self._failing_since = -1.0
        """When it could first not be looked at, and never since; negative: it can be."""
        self._term = 0
        """The one that is ours; 0: none."""
        self._count = 0
        """Beats that were done."""
        self._heard = 0.0
        """When the last beat that was done began."""

    @property
    def until(self) -> float:
        """Before this time nobody else can have it; 0 when it is not held."""
        return self._heard + self.lease * claims.FENCE if self._term else 0.0

    # Waiting

    def acquire(self) -> None:
        """Begin to wait for it."""
        if self._contender is None:
            return  # closed since this was put off: a command would start the process of `files` anew
        self.files.look(self._folder, ("term.",), (), self._looked)

    def close(self) -> None:
        """Stop waiting, or stop holding it without giving it back: after a lease another may have it."""
        self._contender, self._term = None, 0

    def _looked(self, answer: SharedAnswer) -> None:
        if self._contender is None:
            return
        now = self.clock.now()
        if answer.why:
            self._failing_since = now if self._failing_since < 0 else self._failing_since
            self._wait_for_storage(now - self._failing_since, answer.why)
            return
        self._failing_since = -1.0
        term = self._contender.look(now, answer.value["names"])
        if term:
            content = seal({"nonce": self.nonce, "by": self.by})
            took = self.clock.now()
            until = took + self.lease * claims.FENCE
            self.files.link(
                self._folder, claims.term_file(term), content, until, lambda answer: self._linked(term, took, answer)
            )
        else:
            holder = _unsealed(answer.value["texts"].get(self._contender.holder, "")).get("by", "somebody")
            self._wait(f"held by {holder}")

    def _wait_for_storage(self, seconds: float, why: str) -> None:
        if seconds < MOST_HUNG * self.lease:
            self._wait(f"it cannot be read: {why}")
            return
        self.close()
        self.lost(f"the claim {self.name} has been unreadable for {seconds:.0f} s: {why}")

    def _wait(self, why: str) -> None:
        now = self.clock.now()
        if now >= self._report_at:
            self._report_at = now + REPORT_SECONDS
            self.say(f"waiting for the claim {self.name}: {why}")
        self.clock.later(poll_seconds(1, random.random()), self.acquire)

    def _linked(self, term: int, took: float, answer: SharedAnswer) -> None:
        if self._contender is None:
            return
        if answer.why or _unsealed(answer.value).get("nonce") != self.nonce:
            self.clock.later(poll_seconds(1, random.random()), self.acquire)
            return
        until = took + self.lease * claims.FENCE
        self.files.put(self._folder, claims.beat_file(term, self.nonce, 0), "", until, lambda _: None)
        self.files.look(self._folder, (), (), lambda answer: self._begun(term, took, answer))

    def _begun(self, term: int, took: float, answer: SharedAnswer) -> None:
        if self._contender is None:
            return
        late = self.clock.now() > took + self.lease * claims.FENCE
        if answer.why or late or not claims.is_mine(answer.value["names"], term):
            self.clock.later(poll_seconds(1, random.random()), self.acquire)
            return
        self._contender, self._term, self._count = None, term, 0
        self._hear(took)
        self.clock.later(self.lease / 6, self._beat)
        self.acquired()

    # Holding

    def _beat(self) -> None:
        if not self._is_held():
            return
        began, old, new = (
            self.clock.now(),
            *(claims.beat_file(self._term, self.nonce, self._count + more) for more in (0, 1)),
        )
        self.files.move(self._folder, old, new, self.until, lambda answer: self._beaten(began, answer))

    def _beaten(self, began: float, answer: SharedAnswer) -> None:
        if not self._is_held():
            return
        if not answer.why:
            self._count += 1
            self._hear(began)

        def checked(answer: SharedAnswer) -> None:
            if self._is_held(answer):
                self.clock.later(self.lease / 6, self._beat)

        self.files.look(self._folder, (), (), checked)

    def _hear(self, began: float) -> None:
        """A beat that began then has been done. Should it be the last, `lost` is told in time."""
        self._heard = began
        self.clock.later(self.until - self.clock.now(), self._watch)

    def _watch(self) -> None:
        self._is_held()

    def confirm(self, done: Callable[[float], None]) -> None:
        """Look whether it is still held; if so, call `done` with the time until which that is sure."""

        def looked(answer: SharedAnswer) -> None:
            if self._is_held(answer):
                done(self.until)

        self.files.look(self._folder, (), (), looked)

    def release(self, done: Callable[[], None]) -> None:
        """Give it back. It is not held from now on, however that goes."""
        if not self._is_held():
            done()
            return
        old, until, term = claims.beat_file(self._term, self.nonce, self._count), self.until, self._term
        self._term = 0
        self.files.move(self._folder, old, claims.free_file(term), until, lambda _: done())

    def _is_held(self, answer: SharedAnswer | None = None) -> bool:
        """Whether it is, as this listing says too; `lost` is told when it no longer is."""
        if not self._term:
            return False
        late = self.clock.now() - self._heard
        if answer is not None and not answer.why and not claims.is_mine(answer.value["names"], self._term):
            why = f"another has taken the claim {self.name} over"
        elif late >= self.lease * claims.FENCE:
            why = f"the claim {self.name} could not be renewed for {late:.0f} s"
        else:
            return True
        self._term = 0
        self.lost(why)
        return False


def _unsealed(text: str) -> Mapping[str, Any]:
    """What a file of the claim says; nothing when it is damaged, or half written by a pod that died."""
    try:
        found = unseal(text)
    except (ValueError, TypeError):
        return {}
    return found if isinstance(found, Mapping) else {}
