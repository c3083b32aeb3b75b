"""The fence: when a pod must have ended its part of a run with lives, as pod 0 may take it for lost soon after.

Pod 0 gives a pod up when it has received nothing from it for a lease, and may then begin the run anew without it. The
pod measures on its own clock, and from the sending of the newest beat that pod 0 has acknowledged: pod 0 has received
that beat later than it was sent, so its lease is over later, too. What is between the two is the time that ending the
processes may take, and what the two clocks may differ by in it.
"""

from __future__ import annotations

import math

from agent.decide.grace import USUAL
from agent.errors import SettingsError

KILL_SECONDS = USUAL.kill
"""How long processes may take to be gone after SIGKILL."""
LOOK_SECONDS = 1.5
"""A look for the run's processes, where it takes the longest: through the environments of all that the node has."""
DRIFT = 0.01
"""By which part of a lease two clocks may drift apart in it: a hundred times what crystals do."""
BEATS = 3
"""For so many beats pod 0 may acknowledge nothing. A lease has six at least."""
LEAST_LEASE_WITH_LIVES = math.ceil((KILL_SECONDS + LOOK_SECONDS) / (1 - DRIFT - BEATS / 6))
"""The shortest, in whole seconds, that leaves these beats their time."""


def fence_seconds(lease: float) -> float:
    """How long after the sending of the newest acknowledged beat the fence passes. A lease that is too short for that
    has none: it passes at once."""
    return max(0.0, lease * (1 - DRIFT) - KILL_SECONDS - LOOK_SECONDS)


def clear_seconds(lease: float, silent: float) -> float:
    """For how many seconds a pod that pod 0 has given up, and has heard nothing from for `silent` seconds on its own
    clock, may still run its part: one that is given up for another reason than its silence."""
    return max(0.0, lease - silent)


def lease_problem(lease: float, lives: int) -> str:
    """Why runs that may start again so often cannot have this lease; empty when they can."""
    if not lives or lease >= LEAST_LEASE_WITH_LIVES:
        return ""
    taken = f"{KILL_SECONDS + LOOK_SECONDS:g} s of it are for ending what a lost pod still runs"
    return f"A4_LEASE_SECONDS={lease:g} should be at least {LEAST_LEASE_WITH_LIVES} for runs with lives: {taken}"


def check_lease(lease: float, lives: int | None) -> None:
    """Raises SettingsError (78) where a run with these lives has too short a lease."""
    if problem := lease_problem(lease, lives or 0):
        raise SettingsError([problem], "set a longer A4_LEASE_SECONDS for the job, or run it with --lives 0")
