"""How a pod's grace time (A4_GRACE_SECONDS) is divided once its job is told to end from outside; see docs/grace.md."""

from __future__ import annotations

from typing import NamedTuple

RESERVED_SECONDS = 3.0
"""The part of the grace time that is left for Kubernetes."""
LEAST_TERM_SECONDS = 2.0
"""What a warning must leave between SIGTERM and SIGKILL."""
MOST_STORE_SECONDS = 30.0
"""The most that a pod's end waits for the results directory, when there is no other limit."""


class Grace(NamedTuple):
    """The shares, in their order. RESERVED_SECONDS after the last of them Kubernetes kills the pod."""

    warn: float
    """Between the warning signal and SIGTERM."""
    term: float
    """Between SIGTERM and SIGKILL."""
    kill: float
    """How long processes may take to be gone after SIGKILL."""
    answer: float
    """How long a pod may take to clean up and answer, once its workload has ended."""
    announce: float
    """How long the workers may take to confirm the job's result."""
    store: float
    """The least that is left for the results directory."""

    @property
    def agents(self) -> float:
        """What the workload does not get."""
        return self.kill + self.answer + self.announce + self.store

    @property
    def save(self) -> float:
        """How long ranks and scripts that are told to end may take to save their state, warning included."""
        return self.warn + self.term

    @property
    def part(self) -> float:
        """How long a pod's part of a run may take to end and to say so."""
        return self.save + self.kill + self.answer

    @property
    def own_term(self) -> float:
        """How long a workload may take to end after SIGTERM when the agent itself has decided that it must."""
        return min(USUAL.term, self.save)

    @property
    def own_part(self) -> float:
        """How long a part may take to end and to say so then."""
        return self.own_term + self.kill + self.answer

    @property
    def leave(self) -> float:
        """When the pod's end is to be over."""
        return self.part + self.announce + self.store


USUAL = Grace(warn=0.0, term=10.0, kill=3.0, answer=7.0, announce=5.0, store=2.0)
"""The shares of a grace time of 30 s. Of a longer one the agent takes as much, of a shorter one the same part; and a
workload that the agent itself ends has this time for it, whatever the grace time is."""


def divided(seconds: float, warn: float = 0.0) -> Grace:
    """The workload gets what the agent does not need, and is warned `warn` seconds before SIGTERM."""
    whole = max(1.0, seconds - RESERVED_SECONDS)
    scale = min(1.0, whole / USUAL.leave)
    kill, answer, announce, store = (share * scale for share in USUAL[2:])
    save = whole - USUAL.agents * scale
    warn = min(warn, save)
    return Grace(warn, save - warn, kill, answer, announce, store)


def most_warn_seconds(seconds: float) -> float:
    """The longest warning for which there is time."""
    return max(0.0, divided(seconds).save - LEAST_TERM_SECONDS)


def store_seconds(left: float | None) -> float:
    """How long the end may wait for the results directory; `left`: until the pod must have ended, None: no limit.
    However little that is, what is being written may get a second."""
    return MOST_STORE_SECONDS if left is None else min(MOST_STORE_SECONDS, max(1.0, left))
