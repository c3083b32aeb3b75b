"""Claims: one writer holds a name, and another takes over when it is silent for a lease.

    .a4-agent/claims/NAME/
        term.N                   who holds the claim for the N-th time: made by link(2), so by one alone
        beat.N.NONCE.COUNT       the holder is alive: renamed again and again
        free.N                   the holder has given it back

Claims are not of a job: another attempt, or another job, may want to write the same files. Terms are never taken away,
so none is ever made twice, however old the listing on which somebody acts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from agent.decide.sync_facts import TOP, folder

STALLED_SECONDS = 10.0
"""Who has not looked for so long was stopped itself: it begins to count anew."""
FENCE = 2 / 3
"""Part of the lease after which a holder without a beat has lost its claim: before anybody else may have it."""
_FILE = re.compile(r"(?:term\.(\d{1,18})|free\.(\d{1,18})|beat\.(\d{1,18})\.([0-9a-f]{32})\.(\d{1,18}))")


class Seen(NamedTuple):
    """What the names in a claim's directory say."""

    term: int = 0
    """The newest; 0: nobody has ever held it."""
    free: bool = True
    """The newest holder has given it back, or there was none."""
    beats: int = -1
    """Beats of the newest holder; -1: none yet."""


def claim_directory(name: str) -> str:
    return f"{TOP}/claims/{folder(name)}"


def term_file(term: int) -> str:
    return f"term.{term}"


def free_file(term: int) -> str:
    return f"free.{term}"


def beat_file(term: int, nonce: str, count: int) -> str:
    return f"beat.{term}.{nonce}.{count}"


def read_claim(names: Iterable[str]) -> Seen:
    """What is known of the newest term."""
    found = [match for match in map(_FILE.fullmatch, names) if match]
    term = max((int(match[1] or match[2] or match[3]) for match in found), default=0)
    free = not term or any(match[2] and int(match[2]) == term for match in found)
    return Seen(term, free, max((int(match[5]) for match in found if match[3] and int(match[3]) == term), default=-1))


class Contender:
    """Says which term to take, and when, as one who waits for a claim sees it."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._seen = Seen(-1)
        self._changed = 0.0
        self._looked = 0.0

    def look(self, now: float, names: Iterable[str]) -> int:
        """Take in the names in the directory; the term to take now, 0 for none yet."""
        seen = read_claim(names)
        if seen.term < self._seen.term:
            return 0  # an old listing
        if seen.term > self._seen.term or seen.beats > self._seen.beats or now - self._looked > STALLED_SECONDS:
            self._changed = now
        self._seen = seen._replace(beats=max(seen.beats, self._seen.beats if seen.term == self._seen.term else -1))
        self._looked = now
        return seen.term + 1 if seen.free or now - self._changed > self._lease else 0

    @property
    def holder(self) -> str:
        """The file that says who has it; empty when nobody does."""
        return "" if self._seen.free else term_file(self._seen.term)


def poll_seconds(chance: float) -> float:
    """Until the next look at the directory; `chance`, from 0 to 1, keeps pods from looking all at once."""
    return 0.8 + 0.4 * chance


def is_mine(names: Iterable[str], term: int) -> bool:
    """Nobody has taken the claim since this term began."""
    return read_claim(names).term == term
