"""How a pod's grace time (A4_GRACE_SECONDS) is divided once its job is told to end.

On the coordinator the run ends first (`run_seconds`), then every worker hears of it (`TELL_SECONDS`), then the results
are stored, until RESERVED_SECONDS before Kubernetes kills the pod.
"""

from __future__ import annotations

MOST_TERM_SECONDS = 10.0
"""The most that a workload gets between SIGTERM and SIGKILL."""
KILL_SECONDS = 3.0
"""How long a process may take to be gone after SIGKILL."""
ANSWER_SECONDS = 7.0
"""How long a worker may take to clean up and answer, once its workload has ended."""
TELL_SECONDS = 5.0
"""How long the workers may take to confirm the job's result."""
RESERVED_SECONDS = 3.0
"""The part of the grace time that is left for Kubernetes."""
MOST_STORE_SECONDS = 30.0
"""The most that a pod's end waits for the results directory, when there is no other limit."""
LEAST_STORE_SECONDS = 1.0
LEAST_RUN_SECONDS = 2.0


def term_seconds(grace: float) -> float:
    """How long a workload may take to end after SIGTERM; what follows it needs the rest."""
    return max(1.0, min(MOST_TERM_SECONDS, grace - KILL_SECONDS - ANSWER_SECONDS - RESERVED_SECONDS))


def part_seconds(grace: float) -> float:
    """How long a pod's part of a run may take to end and to say so."""
    return term_seconds(grace) + KILL_SECONDS + ANSWER_SECONDS


def run_seconds(grace: float) -> float:
    """How long the coordinator waits for the parts of a run that it ends."""
    return min(part_seconds(grace), max(LEAST_RUN_SECONDS, grace - TELL_SECONDS - RESERVED_SECONDS))


def leave_seconds(grace: float) -> float:
    """When the pod's end is to be over."""
    return grace - RESERVED_SECONDS


def store_seconds(left: float | None) -> float:
    """How long the end may wait for the results directory; `left`: until the pod must have ended, None: no limit."""
    return MOST_STORE_SECONDS if left is None else min(MOST_STORE_SECONDS, max(LEAST_STORE_SECONDS, left))
