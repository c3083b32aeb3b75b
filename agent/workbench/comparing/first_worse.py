"""Since which run a measurement is worse, and what changed with that run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from agent.decide.result import Result
from agent.decide.words import at_most, listed
from agent.workbench.comparing.comparison import settings
from agent.workbench.comparing.key_figures import Trend

LEAST_BEFORE = 5
"""Runs before it: fewer hardly show how they scatter."""
SCATTERS = 4.5
"""Mean distances of runs from the median of their side. Of series that scatter normally and never get worse, at most 1
in 70 looks as if it did."""
LEAST_CHANGE = 0.05
MOST_CHANGES = 4
INVENTORY = ("driver", "kernel", "nccl_plugin")


class FirstWorse(NamedTuple):
    """`run`: number of the first run from which on a measurement is worse; `last_good`: of the one before it."""

    run: int
    last_good: int
    before: float
    """Median of all runs before."""
    after: float
    """Median of it and all that follow."""


def first_worse(trend: Trend, results: Sequence[Result]) -> FirstWorse | None:
    """None where no run divides the others into better ones and, from it on, worse ones, by more than they scatter."""
    good = sorted((results[run].since, run, one.value) for run, one in trend.points if not one.wrong)
    runs, values = [run for _, run, _ in good], [value for *_, value in good]
    divided = range(LEAST_BEFORE, len(values))
    if not divided:
        return None
    at = min(divided, key=lambda one: _left_over(values[:one]) + _left_over(values[one:]))
    before, after = median(values[:at]), median(values[at:])
    scatter = (_left_over(values[:at]) + _left_over(values[at:])) / (len(values) - 2)
    least = max(LEAST_CHANGE * abs(before), SCATTERS * scatter)
    if not trend.subject.is_worse(after, before) or abs(after - before) <= least:
        return None
    return FirstWorse(runs[at], runs[at - 1], before, after)


def _left_over(values: Sequence[float]) -> float:
    middle = median(values)
    return sum(abs(one - middle) for one in values)


def changes(last_good: Result, first: Result) -> str:
    """What the first worse run had otherwise than the last good one: versions, what its pods say, nodes, settings."""
    told = _nodes(last_good, first)
    one, other = _compared(last_good), _compared(first)
    names = [name for name in dict.fromkeys([*other, *one]) if one.get(name, "") != other.get(name, "")]
    found = [f"{name} {one.get(name) or 'none'} → {other.get(name) or 'none'}" for name in names]
    return listed(at_most([*found, *told], MOST_CHANGES, "{} more")) if found or told else "nothing that results tell"


def _compared(result: Result) -> dict[str, str]:
    """Name → value, what most often makes runs slower first."""
    set_ = {name: value for name, value in settings(result).items() if name != "nodes in rank order"}
    versions = {name.removeprefix("version of "): set_.pop(name) for name in [*set_] if name.startswith("version of ")}
    values = {name: {pod.inventory.get(name, "") for pod in result.pods} for name in INVENTORY}
    return {**versions, **{name: " or ".join(sorted(found - {""})) for name, found in values.items()}, **set_}


def _nodes(last_good: Result, first: Result) -> list[str]:
    old, new = [dict.fromkeys(pod.node for pod in one.pods if pod.node) for one in (last_good, first)]
    came = [node for node in new if node not in old]
    left = [node for node in old if node not in new]
    if not came and not left:
        return []
    words = [
        f"{', '.join(at_most(one, 3, 'and {} more'))} {what}" for one, what in ((came, "came"), (left, "left")) if one
    ]
    return [f"nodes ({'; '.join(words)})"]
