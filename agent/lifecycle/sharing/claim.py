"""A claim in the shared directory: held by one writer, and taken over when it is silent.

Locks differ between file servers, and a node that is gone may never give one back. So the holder renames a file now and
then, and each who waits judges its silence by a clock of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from agent.decide.sync_facts import seal, unseal
from agent.errors import DirectoryUnusable, PeerLost
from agent.lifecycle.sharing import claim_files
from agent.lifecycle.waits import REPORT_SECONDS
from agent.machine.shared_files import SharedAnswer, SharedCommand, Steps, look

MOST_HUNG = 10
"""Leases for which storage may not answer."""
NOT_ASKED = SharedAnswer(why="not asked")


@dataclass
class Claim:
    """One writer's claim to a name.

    After `acquire`, `hold` keeps it until it is given back or lost: `lost` is told why, and the holder must end what it
    writes. It may show others what it has written only until the time that `confirm` gives. `by` says to others who
    holds it.
    """

    name: str
    _: KW_ONLY
    nonce: str
    by: str
    lease: float
    lost: Callable[[str], None]
    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._folder = claim_files.claim_directory(self.name)
        self._term = 0
        """The one that is ours."""
        self._held = False
        """It was acquired and not given back."""
        self._count = 0
        """Beats that were done."""
        self._heard = 0.0
        """When the last beat that was done began."""
        self._why_lost = ""

    @property
    def until(self) -> float:
        """Before this time nobody else can have it; 0 when it is not held."""
        return self._fence(self._heard) if self._held and not self._why_lost else 0.0

    def _fence(self, began: float) -> float:
        return began + self.lease * claim_files.FENCE

    def acquire(self) -> Steps[None]:
        """Wait, for as long as it takes, until the claim is free or its holder has been silent for a lease. Raises
        DirectoryUnusable when the directory cannot be looked at for too long."""
        contender, report_at, answered = claim_files.Contender(self.lease), self.now(), self.now()
        while True:
            answer = yield look(self._folder, ("term.",))
            now, term = self.now(), 0
            if answer.why:
                why = f"it cannot be read: {answer.why}"
                if now - answered >= MOST_HUNG * self.lease:
                    what = f"the claim {self.name} has been unreadable for {now - answered:.0f} s: {answer.why}"
                    raise DirectoryUnusable(what, "check the file server and the node's mounts")
            else:
                answered = now
                term = contender.look(now, answer.value["names"])
                why = f"held by {_unsealed(answer.value['texts'].get(contender.holder, '')).get('by', 'somebody')}"
            if term:
                if (yield from self._take(term)):
                    return
            elif now >= report_at:
                report_at = now + REPORT_SECONDS
                self.say(f"waiting for the claim {self.name}: {why}")
            yield claim_files.poll_seconds(random.random())

    def _take(self, term: int) -> Steps[bool]:
        took = self.now()
        until = self._fence(took)
        content = seal({"nonce": self.nonce, "by": self.by})
        answer = yield SharedCommand(("link", self._folder, claim_files.term_file(term), content, until))
        if answer.why or _unsealed(answer.value).get("nonce") != self.nonce:
            return False
        yield SharedCommand(("put", self._folder, claim_files.beat_file(term, self.nonce, 0), "", until))
        answer = yield look(self._folder)
        if answer.why or self.now() > until or not claim_files.is_mine(answer.value["names"], term):
            return False
        self._term, self._heard, self._held = term, took, True
        return True

    def hold(self) -> Steps[None]:
        """Give signs of life."""
        answer = NOT_ASKED
        while self._held:
            if why := self._lost(answer):
                self.lost(why)
                return
            yield min(self.lease / 6, max(0.0, self.until - self.now()))
            if self._held and not self._lost():
                began, until = self.now(), self.until
                old, new = (claim_files.beat_file(self._term, self.nonce, self._count + more) for more in (0, 1))
                answer = yield SharedCommand(("move", self._folder, old, new, until), until)
                if not answer.why and not self._lost():
                    self._count, self._heard = self._count + 1, began
                answer = yield look(self._folder, by=self.until)

    def confirm(self) -> Steps[float]:
        """Look whether it is still held; the time until which that is sure. Raises PeerLost."""
        if why := self._lost((yield look(self._folder))):
            raise PeerLost(why, "another pod may write there now: what was made here was left in a separate directory")
        return self.until

    def release(self) -> Steps[None]:
        """Give it back. It is not held from now on, however that goes."""
        old, until = claim_files.beat_file(self._term, self.nonce, self._count), self.until
        self._held = False
        if until:
            yield SharedCommand(("move", self._folder, old, claim_files.free_file(self._term), until))

    def _lost(self, answer: SharedAnswer = NOT_ASKED) -> str:
        """Why it is no longer held, by the clock and by this listing; empty while it is."""
        late = self.now() - self._heard
        if not self._why_lost and not answer.why and not claim_files.is_mine(answer.value["names"], self._term):
            self._why_lost = f"another pod has taken over the claim {self.name}"
        elif not self._why_lost and late >= self.lease * claim_files.FENCE:
            self._why_lost = f"the claim {self.name} could not be renewed for {late:.0f} s"
        return self._why_lost


def _unsealed(text: str) -> Mapping[str, Any]:
    """What a file of the claim says; nothing when it is damaged, or half written by a pod that died."""
    try:
        found = unseal(text)
    except (ValueError, TypeError):
        return {}
    return found if isinstance(found, Mapping) else {}
