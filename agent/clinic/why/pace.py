"""Whether ranks that enter no operation take longer than usual: neither a checkpoint nor a long step is a hang."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Pace(NamedTuple):
    """For how long something has not happened, such as that a rank enters an operation, and how long that was before.

    Times are in seconds. Somebody who looks from time to time sees each step a little late.
    """

    still: float
    """since the last time"""
    longest: float = 0.0
    """the longest time between two; 0: not known"""
    every: float | None = None
    """the mean time between two; None: not known"""

    def words(self, what: str) -> str:
        """no operation for 41 s; before, one every 4 s, and at most 12 s without one"""
        text = f"no {what} for {self.still:.0f} s"
        if self.every is None:
            return text
        rate = f"one every {self.every:.0f} s" if self.every >= 1 else f"{1 / self.every:.0f} a second"
        most = f", and at most {self.longest:.0f} s without one" if self.longest >= 2 * self.every else ""
        return f"{text}; before, {rate}{most}"


class Steps(NamedTuple):
    """A number that grows, as it was looked at from time to time. Times are on one clock."""

    number: int
    at: float
    """when it was last seen to have grown; before that, when it was first seen"""
    first: float | None = None
    """when it was first seen to have grown: how long a program took to start says nothing of its steps"""
    grown: int = 0
    """by how much since `first`"""
    longest: float = 0.0

    def seen(self, number: int, at: float) -> Steps:
        """With one more look. A smaller number is that of another process."""
        if number == self.number:
            return self
        if number < self.number:
            return Steps(number, at)
        if self.first is None:
            return Steps(number, at, first=at)
        longest = max(self.longest, at - self.at)
        return Steps(number, at, self.first, self.grown + number - self.number, longest)

    def pace(self, now: float) -> Pace:
        every = (self.at - self.first) / self.grown if self.first is not None and self.grown else 0.0
        still = max(0.0, now - self.at)
        return Pace(round(still, 1), round(self.longest, 1), float(f"{every:.3g}") or None)


def together(paces: Iterable[Pace | None]) -> Pace | None:
    """As slow as the slowest before, as long still as the one that did something last. None: nothing is known."""
    known = [pace for pace in paces if pace is not None]
    if not known:
        return None
    every = [pace.every for pace in known if pace.every is not None]
    longest = max(pace.longest for pace in known)
    return Pace(min(pace.still for pace in known), longest, max(every, default=None))
