"""What a person need not see of stderr: what all pods say alike and, until the end, tracebacks and torchrun's words.

When one rank fails, the others miss it and print their tracebacks, torchrun those of its own and lists of what it saw,
and what ends them prints more. The run's end tells the cause; then nobody needs these lines, and the logs have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from agent.decide.ending import JobEnd
from agent.decide.tracebacks import CHAIN, EXCEPTION, INSIDE, HeldLines
from agent.errors import Exit

WAITS_SECONDS = 15.0
"""After this, a run that fails with these lines would have ended: it goes on, and they are shown."""

_BEGINS = re.compile(
    rb"\[(?:rank|default)\d+\]: ?(?:Traceback |\[?[WEF]\d{4} |\w*Error|frame #)"
    rb"|Traceback \(most recent call last\):|--- Logging error ---$"
    rb"|\[[WEF]\d{4} .*\[c10d\] .* failed on SocketImpl"
    rb"|[WEF]\d{4} [\d:.]+ \d+ \S*torch/distributed/\S+\] "
)
_GOES_ON = re.compile(
    rb"\[(?:rank|default)\d+\]:|Exception raised from |frame #\d+: |<omitting python frames>$"
    rb"|={20,}$|-{20,}$|\S+ FAILED$|(?:Other )?Failures:$|Root Cause \(first observed failure\):$|\[\d+\]:$"
    rb"|Call stack:$|Message: |Arguments: "  # logging, of a signal that came while it wrote
)

_OF_PEERS = re.compile(
    rb"(?:\[(?:rank|default)\d+\]: ?)?"
    rb"(?:\[[WEF]\d{4} .*\[c10d\] .* failed on SocketImpl"
    rb"|Exception raised from |frame #\d+: |<omitting python frames>)"
    rb"|[WEF]\d{4} [\d:.]+ \d+ \S*torch/distributed/elastic/"
)
"""What torch says of other ranks or other launchers that have ended a moment before."""


class Noise:
    """Takes what each pod prints on stderr, in whole lines, and says what of it to show now."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._troubled: dict[int, float] = {}
        """Pod → when such lines last began."""
        self._waited: dict[int, bool] = {}
        """Pod → whether its last line waits."""
        self._held: list[HeldLines] = []

    def passed(self, pod: int, text: bytes) -> bytes:
        """The lines that do not wait."""
        shown = []
        for line in text.splitlines(keepends=True):
            self._waited[pod] = self._waits(pod, line.rstrip(b"\r\n"))
            if self._waited[pod]:
                self._held.append(HeldLines(pod, self._now(), line))
            else:
                shown.append(line)
        return b"".join(shown)

    def _waits(self, pod: int, line: bytes) -> bool:
        now = self._now()
        if _BEGINS.match(line):
            self._troubled[pod] = now
            return True
        if now - self._troubled.get(pod, -WAITS_SECONDS) >= WAITS_SECONDS:
            return False
        goes_on = any(one.match(line) for one in (_GOES_ON, CHAIN, EXCEPTION))
        return goes_on or (self._waited.get(pod, False) and INSIDE.match(line) is not None)

    def due(self) -> list[HeldLines]:
        """Lines that have waited long enough; they are not held any longer."""
        limit = self._now() - WAITS_SECONDS
        found = [one for one in self._held if one.since <= limit]
        self._held = self._held[len(found) :]
        return found

    def next(self) -> float | None:
        """In how many seconds some will be due; None: there are none."""
        return max(0.0, self._held[0].since + WAITS_SECONDS - self._now()) if self._held else None

    def rest(self) -> list[HeldLines]:
        """All that are still held; they are not any longer."""
        found, self._held = self._held, []
        return found


_OF_AGENT = re.compile(rb"\S+ a4-agent \[\d+/\d+\] ((?:error|done): .*)")


class SaidOnce:
    """Leaves out what the agent of one pod says after that of another: errors, and the end of the job."""

    def __init__(self) -> None:
        self._first: dict[bytes, int] = {}
        self.others: set[int] = set()
        """Pods of which errors were left out."""

    def passed(self, pod: int, text: bytes) -> bytes:
        """The lines that are to be shown."""
        return b"".join(line for line in text.splitlines(keepends=True) if self._is_new(pod, line))

    def _is_new(self, pod: int, line: bytes) -> bool:
        found = _OF_AGENT.match(line)
        if found is None or self._first.setdefault(found[1], pod) == pod:
            return True
        if found[1].startswith(b"error"):
            self.others.add(pod)
        return False


def tells_enough(end: JobEnd) -> bool:
    """Whether the end of a run says what the lines say that are held: why it was ended, or what its program said."""
    said = end.origin == "agent" or re.search(r"\btraceback\b|last lines of its output:", end.why, re.I) is not None
    return end.code != Exit.OK and said


def without_peers(held: Iterable[HeldLines]) -> list[HeldLines]:
    """Less what torch says of peers that have ended before, with empty lines below it: after a success nobody needs to
    read that."""
    found, of_peers = [], dict[int, bool]()
    for one in held:
        empty = not one.text.strip()
        of_peers[one.pod] = _OF_PEERS.match(one.text) is not None or (empty and of_peers.get(one.pod, False))
        if not of_peers[one.pod]:
            found.append(one)
    return found
