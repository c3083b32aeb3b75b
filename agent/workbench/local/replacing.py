"""How a lost pod is replaced: what the chart's Job would do, as decisions without effects."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from agent.decide.lives import REPLACED
from agent.errors import Exit
from agent.workbench.local.spec import ClusterSpec, NameFault

_KILLED = 137
"""128 + SIGKILL: a pod that is deleted at once, or whose node is gone."""
_OWN_END_SECONDS = 10.0
"""How long pods may take to end as the coordinator has told them, before the Job ends what is left."""
_SILENT_END_SECONDS = 45.0
"""The same after a coordinator that has told nobody: a lease and some beats."""


class Follows(Enum):
    """What the end of a pod brings about."""

    NOTHING = "nothing"
    REPLACEMENT = "replacement"
    JOB_END = "job end"
    """From now on nothing is replaced."""


class NameStep(NamedTuple):
    """A pod's name has these addresses, so many seconds after its replacement has started."""

    after: float
    addresses: tuple[str, ...]


def what_follows(spec: ClusterSpec, index: int, code: int, *, is_over: bool) -> Follows:
    """`code`: with what pod `index` has ended; `is_over`: the job has ended, or is being ended."""
    if not spec.lives or is_over:
        return Follows.NOTHING
    if index == 0:
        return Follows.JOB_END
    if code in REPLACED:
        return Follows.REPLACEMENT
    return Follows.NOTHING if code == Exit.OK else Follows.JOB_END


def own_end_seconds(code: int) -> float:
    """How long the others have to end by themselves, after a pod whose end with `code` is that of the job."""
    return _SILENT_END_SECONDS if code == _KILLED else _OWN_END_SECONDS


def addresses_between(fault: NameFault, old: str) -> tuple[str, ...]:
    """What the name of a lost pod is answered with until its replacement starts."""
    return (old,) if fault.mode in ("stale", "both") else ()


def name_steps(fault: NameFault, old: str, new: str) -> list[NameStep]:
    """What the name is answered with from then on."""
    at_first = {"late": (), "stale": (old,), "both": (old, new)}
    if fault.mode not in at_first:
        return [NameStep(0.0, (new,))]
    return [NameStep(0.0, at_first[fault.mode]), NameStep(fault.seconds, (new,))]
