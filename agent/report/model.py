"""What the page of one run says, as values; only their look is left to the template."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

from agent.cutting import first_of
from agent.decide.result import Column, Result, Table, Verdict
from agent.decide.run_names import one_line
from agent.decide.torchrun import MODULE as TORCHRUN
from agent.launch import Started
from agent.report.bandwidth import bandwidth
from agent.report.grid import Cell, Grid, GridColumn, grid, numbers_of
from agent.report.heat import HeatMap, heat_maps
from agent.report.launched import command_text
from agent.report.number_words import (
    NONE,
    TIMES,
    count_text,
    decimals,
    duration_text,
    moment_text,
    number_text,
    size_text,
)
from agent.report.places import (
    differences_grid,
    health_grid,
    lives_grid,
    order_grid,
    order_words,
    pods_grid,
    shared_inventory,
)
from agent.report.series import series_view
from agent.report.startup import startup
from agent.report.training import training

GATES = {"passed": "good", "failed": "bad", "not judged": "warn"}
MOST_COMMAND = 160
"""Bytes of a command in a heading; the facts have all arguments."""
FEWEST_SUMMED = 4
"""Rows from which on a table gets its least, median and greatest values."""
OWNERS = ("rank", "ranks", "pod", "pods", "node")
"""First columns that say whose row it is."""
RATES = "/s"
"""How units end of which more is better."""
BYTES = "bytes"
"""The unit of columns that hold sizes of messages."""
Pairs = list[tuple[str, str]]


SIGNS = {"passed": Cell("✓", "good"), "failed": Cell("✗", "bad"), "ended": Cell("■", "ended")}
"""What stands before the verdict's status; neither sign nor tone is needed to understand the word."""


def run_page(result: Result) -> SimpleNamespace:
    """All that the page of one run shows. What is empty is left out."""
    return SimpleNamespace(
        title=title(result),
        called=called(result),
        what=told(result.verdict),
        sign=SIGNS[result.verdict.status],
        result=result,
        facts=facts(result),
        reasons=[reason for reason in result.verdict.reasons if reason not in _said(result.verdict)],
        gate=_gate(result),
        sections=[(one, data) for one in SECTIONS if (data := one.data(result)) is not None],
    )


def called(result: Result) -> str:
    """What people call the run: its name, else its command."""
    return result.name or first_of(one_line(shlex.join([result.workload, *result.args])), MOST_COMMAND, " …")


def told(verdict: Verdict) -> str:
    """The sentence of a verdict; empty where it says no more than "passed": "python3 done"."""
    return "" if verdict.origin == "workload" and not verdict.code and verdict.what.endswith(" done") else verdict.what


def _said(verdict: Verdict) -> str:
    """What the heading says already, and need not be said again."""
    return f"{verdict.what}\n{verdict.why}"


def _gate(result: Result) -> tuple[str, str, str] | None:
    """(tone, status, reason) of the gate, without a reason that the verdict gives already."""
    if result.gate is None:
        return None
    status, reason = result.gate.status, result.gate.reason
    told = reason in _said(result.verdict) or reason in result.verdict.reasons
    return GATES.get(status, "warn"), status, "" if told else reason


def title(result: Result) -> str:
    """The verdict first: it is what a tab shows."""
    verdict = result.verdict
    code = f" ({verdict.code})" if verdict.code else ""
    job = f" · {result.job}" if result.job else ""
    return f"{SIGNS[verdict.status].text} {verdict.status}{code}: {called(result)}{job}"


def facts(result: Result) -> Pairs:
    """What a reader wants to know first, with its name; what is not known is left out."""
    ranks = len(result.pods) * result.slots
    limits = [(result.limits.timeout, "time"), (result.limits.stall, "silence")]
    pairs = [
        ("note", result.note),
        ("workload", result.workload),
        ("arguments", shlex.join(result.args)),
        ("job", result.job),
        ("run", result.run),
        ("pods × slots", f"{len(result.pods)} × {result.slots} = {count_text(ranks, 'rank')}"),
        ("began", moment_text(result.since)),
        ("took", duration_text(result.until - result.since)),
        ("asked for by", result.by),
        ("fabric profile", f"{result.profile.name} ({result.profile.why})" if result.profile else ""),
        ("limits", ", ".join(f"{words} {duration_text(limit)}" for limit, words in limits if limit)),
        ("GPUs of each pod", _everywhere(result, "gpus")),
        ("software", _software(result)),
        ("image", result.image),
        ("epoch", result.epoch),
        ("a4-agent", "" if "a4-agent" in result.versions else result.agent),
    ]
    return [(name, value) for name, value in pairs if value]


def _software(result: Result) -> str:
    """The versions on which results depend most."""
    names = {"torch": "torch", "cuda": "CUDA", "nccl": "NCCL", "cudnn": "cuDNN", "Open MPI": "Open MPI"}
    by_torch = result.launch is not None and TORCHRUN in result.launch.argv
    unknown = ["torch not known"] if by_torch and "torch" not in result.versions else []
    found = [f"{words} {result.versions[name]}" for name, words in names.items() if result.versions.get(name)]
    driver = _everywhere(result, "driver")
    return ", ".join([*unknown, *found, *([f"driver {driver}"] if driver else [])])


def _everywhere(result: Result, name: str) -> str:
    """What the inventory of every pod says; of several values all."""
    return " or ".join(dict.fromkeys(pod.inventory[name] for pod in result.pods if pod.inventory.get(name)))


def table_grid(table: Table) -> Grid:
    """A table of result.json; numbers flushed right, with least, median and greatest below. What was measured stands
    right beside the first column: a phone shows few columns."""
    order = sorted(range(len(table.columns)), key=lambda at: at > 0 and not table.columns[at].unit)
    table = table._replace(
        columns=tuple(table.columns[at] for at in order),
        rows=tuple(tuple(row[at] for at in order) for row in table.rows),
    )
    given = [[row[at] for row in table.rows if row[at] is not None] for at in range(len(table.columns))]
    numeric = [bool(values) and len(numbers_of(values)) == len(values) for values in given]
    columns = [
        GridColumn(column.name, shown_unit(column), "number" if right else "text")
        for column, right in zip(table.columns, numeric, strict=True)
    ]
    places = [decimals(numbers_of(values)) for values in given]
    rows = (list(map(cell, row, table.columns, places)) for row in table.rows)
    return grid(table.title, columns, rows, _sums(table, numeric, places), _worst(table, numeric, places))


def shown_unit(column: Column) -> str:
    """What stands below the name of a column; a size has its unit in its cell."""
    return "" if column.unit == BYTES else column.unit


def _sums(table: Table, numeric: Sequence[bool], places: Sequence[int | None]) -> list[list[Cell | str]]:
    """Lines with the least, median and greatest of each column that was measured. The first is what they are called."""
    columns = [numbers_of([row[at] for row in table.rows]) if numeric[at] else [] for at in range(len(numeric))]
    measured = [table.columns[at].unit not in ("", BYTES) and bool(columns[at]) for at in range(len(columns))]
    if len(table.rows) < FEWEST_SUMMED or not any(measured) or measured[0]:
        return []
    kinds = (("least", min), ("median", median), ("greatest", max))
    return [
        [words, *(number_text(kind(columns[at]), places[at]) if measured[at] else "" for at in range(1, len(columns)))]
        for words, kind in kinds
    ]


def _worst(table: Table, numeric: Sequence[bool], places: Sequence[int | None]) -> str:
    """Who is worst at what, where it is known which way is worse: "Worst: step 34.14 ms on rank 2"."""
    first = table.columns[0].name
    if len(table.rows) < FEWEST_SUMMED or first not in OWNERS:
        return ""
    found = []
    for at, column in enumerate(table.columns):
        values = {str(row[0]): value for row in table.rows for value in numbers_of([row[at]])} if numeric[at] else {}
        kind = max if column.unit in TIMES else min if column.unit.endswith(RATES) else None
        if kind and len(set(values.values())) > 1:
            owner = kind(values, key=lambda one: values[one])
            told = number_text(values[owner], places[at])
            found.append(f"{column.name} {told} {column.unit} on {first.removesuffix('s')} {owner}")
    return f"Worst: {', '.join(found)}." if found else ""


def cell(value: str | float | bool | None, column: Column, places: int | None = None) -> Cell:
    """A value of that column as the page shows it, with so many decimals."""
    if column.unit == BYTES and isinstance(value, int) and value >= 0:
        return Cell(size_text(value))
    if value is None:
        return Cell(NONE, "soft")
    if isinstance(value, bool):
        return Cell("✓ yes", "") if value else Cell("✗ no", "bad")
    return Cell(value if isinstance(value, str) else number_text(value, places))


def environment(launch: Started | None, added: bool) -> Pairs:
    """Variables of the launch: those that a4-agent `added`, or all others."""
    if launch is None:
        return []
    return [(name, value) for name, value in launch.environment.items() if (name in launch.added) == added]


def _launch(result: Result) -> tuple[str, Pairs, Pairs]:
    command = command_text(result.launch) if result.launch else ""
    return command, sorted(environment(result.launch, added=True)), sorted(environment(result.launch, added=False))


def _diagnosis(result: Result) -> Grid | None:
    if result.diagnosis is None:
        return None
    columns = (GridColumn("source"), GridColumn("state"), GridColumn("what it gave"))
    rows = [[one.name, one.state, one.text] for one in result.diagnosis.sources]
    return grid("what each source gave", columns, rows)


def _measured(result: Result) -> tuple[Sequence[HeatMap], Sequence[Grid]] | None:
    return (heat_maps(result), list(map(table_grid, result.tables))) if result.tables else None


class Section(NamedTuple):
    """One heading, and what stands below it: `data`, in templates/sections/ID.html.j2."""

    id: str
    title: str
    data: Callable[[Result], Any]
    """None: the section is left out."""
    short: str = ""
    """In the navigation, where that is not the title."""
    counted: bool = False
    """The navigation says how many rows it has."""

    def link(self, data: Any) -> str:
        return (self.short or self.title) + (f" ({data.length})" if self.counted else "")


SECTIONS = (
    Section("why", "Why it stood still", _diagnosis),
    Section("lives", "Lives before the last", lives_grid, "Lives", counted=True),
    Section("health", "Health of the pods", health_grid, "Health", counted=True),
    Section("bandwidth", "Bandwidth and time over message size", bandwidth, "Bandwidth"),
    Section("training", "Training", training),
    Section("series", "Series of the program", lambda result: series_view(result.series), "Series"),
    Section("measured", "Measured", _measured),
    Section("differences", "What differed between pods", differences_grid, "Differences", counted=True),
    Section("order", "Order of the ranks", lambda result: (order_words(result), order_grid(result)), "Order"),
    Section("startup", "Start-up", startup),
    Section("pods", "Pods", lambda result: (pods_grid(result), shared_inventory(result))),
    Section("launch", "Launch", _launch),
    Section("versions", "Versions", lambda result: result.versions),
)
"""The sections of a run's page, in their order, which is that of the navigation."""
