"""Who is alive: pods rename a file of theirs again and again, and readers watch the number in its name grow.

No clock is compared with another machine's, and the listing of a directory tells everything: names that nobody has
looked at are in no cache, contents may be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

STALLED_SECONDS = 10.0
"""Who has not looked for so long was stopped itself: it begins to count anew."""
LEADER_SECONDS = 0.5
"""Between two beats of the pod that leads: everyone waits until it has seen one."""
MANY_PODS = 64
_BEAT = re.compile(r"pod\.(\d{1,6})\.([0-9a-f]{32})\.(\d{1,18})")


class Start(NamedTuple):
    """One start of one pod."""

    pod: int
    nonce: str


class Beats:
    """When each start was last seen to go on. One that was never seen to do so may be left from any time ago.

    fresh: nothing in the directory is older than what is waited for, so that to be there is to be heard.
    """

    def __init__(self, lease: float, *, fresh: bool = False) -> None:
        self.lease = lease
        self._fresh = fresh
        self._counts: dict[Start, int] = {}
        self._heard: dict[Start, float] = {}
        self._looked = float("-inf")

    def look(self, now: float, names: Iterable[str]) -> None:
        """Take in the names in the directory, as they are now."""
        for start, count in beats(names):
            if count > self._counts.setdefault(start, count - self._fresh):
                self._counts[start] = count
                self._heard[start] = now
        if now - self._looked > STALLED_SECONDS:
            self._heard = dict.fromkeys(self._heard, now)
        self._looked = now

    def came(self, pods: Iterable[int]) -> None:
        """These pods have left something since pod 0 was started: at the last look they were heard, if never before.
        One that ends soon after its first command is not seen to go on."""
        for pod in pods:
            self._heard.setdefault(Start(pod, ""), self._looked)

    def heard(self, pod: int) -> set[str]:
        """The starts of a pod that have been seen to go on, whether or not they still do."""
        return {start.nonce for start in self._heard if start.pod == pod}

    def silence(self, pod: int) -> float | None:
        """For how long no start of a pod had gone on when this was last looked at; None for one never heard."""
        return min((self._looked - when for start, when in self._heard.items() if start.pod == pod), default=None)

    def silent_pods(self, pods: Iterable[int]) -> dict[int, float]:
        """Those that have been silent for a lease, and for how long; not those never heard."""
        silences = {pod: self.silence(pod) for pod in pods}
        return {pod: seconds for pod, seconds in silences.items() if seconds is not None and seconds > self.lease}


def beats(names: Iterable[str]) -> Iterator[tuple[Start, int]]:
    """The beats among the names of files."""
    for name in names:
        if found := _BEAT.fullmatch(name):
            yield Start(int(found[1]), found[2]), int(found[3])


def beat_seconds(lease: float, pods: int, *, leads: bool) -> float:
    """Between two beats of a pod: well under the lease, and few where there are many pods."""
    return min(LEADER_SECONDS if leads else _usual_seconds(pods), lease / 6)


def poll_seconds(pods: int, chance: float) -> float:
    """Until the next look at the directory; `chance`, from 0 to 1, keeps pods from looking all at once."""
    return _usual_seconds(pods) * (0.8 + 0.4 * chance)


def _usual_seconds(pods: int) -> float:
    return 5.0 if pods > MANY_PODS else 1.0
