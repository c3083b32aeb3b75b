"""Whether all pods of a run are ready to begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agent.decide.ending import JobEnd
from agent.decide.part_end import PartEnd
from agent.decide.subset import grouped, ranges
from agent.decide.words import lines
from agent.errors import Exit


def refusal(ends: Mapping[int, PartEnd], where: Callable[[int], str]) -> JobEnd | None:
    """Why a run cannot begin, by the ends of parts that could not: the reason of the first pod, with all pods that have
    the same, and the others' under it. None when every part could begin."""
    pods_of = grouped({index: (end.code, end.what) for index, end in ends.items() if end.what})
    if not pods_of:
        return None
    (code, first), *others = pods_of
    what, _, hint = first.partition("\n")
    more = [f"{_named(pods_of[other], where)}: {other[1]}" for other in others]
    return JobEnd(code, what, _named(pods_of[code, first], where), lines(hint.strip(), *more))


def not_ready(indices: Sequence[int], seconds: float, where: Callable[[int], str]) -> JobEnd:
    """The end of a run for which these pods are heard but did not get ready in time."""
    what = f"not ready for the run within {seconds:g} s"
    why = "a working directory or a program on a server that does not answer does that"
    return JobEnd(Exit.TRY_AGAIN, what, _named(indices, where), why)


def _named(indices: Sequence[int], where: Callable[[int], str]) -> str:
    return where(indices[0]) if len(indices) == 1 else f"pods {ranges(indices)}"
