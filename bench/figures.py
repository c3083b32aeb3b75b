"""Figures: each beside a bare interpreter, which was measured in the same minutes, and beside its budget.

Machines differ by a factor of two, and one machine from hour to hour: a multiple of `python -c pass` stays the same.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from agent.decide.tables import render

BARE = [sys.executable, "-c", "pass"]
BARE_RUNS = 10


class Taken(NamedTuple):
    """Seconds that something took."""

    wall: float
    cpu: float


class Figure(NamedTuple):
    """One result. `bare` is the same of a bare interpreter; 0: the two cannot be compared."""

    name: str
    value: float
    unit: str
    bare: float = 0.0
    budget: float | None = None
    in_multiples: bool = False
    """The budget is one of `multiple`, not of `value`."""

    @property
    def multiple(self) -> float | None:
        return self.value / self.bare if self.bare else None

    @property
    def met(self) -> bool | None:
        """Whether it is within the budget; None: there is none."""
        found = self.multiple if self.in_multiples else self.value
        return None if self.budget is None or found is None else found <= self.budget

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "multiple": self.multiple, "met": self.met}


def machine() -> dict[str, Any]:
    """Where and when the figures were taken."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def take(argv: Sequence[str]) -> Taken:
    """What a command takes, with all that it starts and waits for."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def beside_bare(argv: Sequence[str], runs: int = BARE_RUNS) -> tuple[Taken, Taken]:
    """Medians of a command and of a bare interpreter, started in turn."""
    pairs = [(take(argv), take(BARE)) for _ in range(runs)]
    own, bare = zip(*pairs, strict=True)
    return _median(own), _median(bare)


def bare() -> Taken:
    """What a bare interpreter takes now."""
    return _median([take(BARE) for _ in range(BARE_RUNS)])


def _median(taken: Sequence[Taken]) -> Taken:
    return Taken(statistics.median(one.wall for one in taken), statistics.median(one.cpu for one in taken))


def table(figures: Sequence[Figure]) -> str:
    rows = []
    for one in figures:
        multiple = "" if one.multiple is None else f"{one.multiple:.3g}"
        budget = "" if one.budget is None else f"{one.budget:g} {'× bare' if one.in_multiples else one.unit}"
        rows.append(
            [one.name, f"{one.value:.3g} {one.unit}", multiple, budget, {None: "", True: "yes"}.get(one.met, "NO")]
        )
    return render(["what", "value", "× bare", "budget", "met"], rows, right=(2,))
