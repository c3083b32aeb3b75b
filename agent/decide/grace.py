"""How a pod's grace time (A4_GRACE_SECONDS) is divided once its job is told to end from outside; see docs/grace.md."""

from __future__ import annotations

from typing import NamedTuple

RESERVED_SECONDS = 3.0
"""The part of the grace time that is left for Kubernetes."""
KILL_SECONDS = 3.0
ANSWER_SECONDS = 7.0
ANNOUNCE_SECONDS = 5.0
STORE_SECONDS = 2.0
AGENT_SECONDS = KILL_SECONDS + ANSWER_SECONDS + ANNOUNCE_SECONDS + STORE_SECONDS
FULL_SECONDS = 30.0
"""Of a shorter grace time the agent takes the same part as of this one."""
OWN_TERM_SECONDS = 10.0
"""The most between SIGTERM and SIGKILL where the agent itself decides to end a run."""
LEAST_TERM_SECONDS = 2.0
"""What a warning must leave between SIGTERM and SIGKILL."""
MOST_STORE_SECONDS = 30.0
"""The most that a pod's end waits for the results directory, when there is no other limit."""
LEAST_STORE_SECONDS = 1.0


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
        return min(OWN_TERM_SECONDS, self.save)

    @property
    def own_part(self) -> float:
        """How long a part may take to end and to say so then."""
        return self.own_term + self.kill + self.answer

    @property
    def leave(self) -> float:
        """When the pod's end is to be over."""
        return self.part + self.announce + self.store


def divided(seconds: float, warn: float = 0.0) -> Grace:
    """The workload gets what the agent does not need, and is warned `warn` seconds before SIGTERM."""
    whole = max(1.0, seconds - RESERVED_SECONDS)
    scale = min(1.0, whole / (FULL_SECONDS - RESERVED_SECONDS))
    own = [share * scale for share in (KILL_SECONDS, ANSWER_SECONDS, ANNOUNCE_SECONDS, STORE_SECONDS)]
    save = whole - AGENT_SECONDS * scale
    warn = min(warn, save)
    return Grace(warn, save - warn, *own)


def most_warn_seconds(seconds: float) -> float:
    """The longest warning for which there is time."""
    return max(0.0, divided(seconds).save - LEAST_TERM_SECONDS)


def store_seconds(left: float | None) -> float:
    """How long the end may wait for the results directory; `left`: until the pod must have ended, None: no limit."""
    return MOST_STORE_SECONDS if left is None else min(MOST_STORE_SECONDS, max(LEAST_STORE_SECONDS, left))
