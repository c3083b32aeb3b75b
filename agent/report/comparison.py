"""Several runs side by side: what was set differently, and what came of it. The first named run is the measure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from agent.decide.result import Result
from agent.report.bandwidth import names
from agent.report.charts import Line, Picture
from agent.report.compared_tables import compared_tables
from agent.report.grid import Cell, Grid, GridColumn, View, grid, number
from agent.report.model import HEADINGS, Heading, Pairs, facts
from agent.report.number_words import duration_text, ratio_text, size_text, speed_text

MOST_NODES = 8
"""Nodes that a cell lists; the others are counted."""
SHOWN_FACTS = ("workload", "job", "pods × slots", "began", "took")


class ComparedRun(NamedTuple):
    """One of the runs. `label` is what the tables call it: A, B, …"""

    label: str
    result: Result
    heading: Heading
    facts: Pairs


class ComparisonPage(NamedTuple):
    """All that the page of a comparison shows."""

    title: str
    runs: tuple[ComparedRun, ...]
    settings: Grid | None
    """None: nothing was set differently."""
    given: Grid | None
    """What a4-agent itself gave the programs differently, as it does in every run."""
    sweeps: tuple[View, ...]
    tables: tuple[Grid, ...]


def comparison_page(results: Sequence[Result]) -> ComparisonPage:
    """The page for these results, the first of which is what the others are measured by."""
    labels = labels_of(len(results))
    runs = [
        ComparedRun(
            label, result, HEADINGS[result.verdict.status], [pair for pair in facts(result) if pair[0] in SHOWN_FACTS]
        )
        for label, result in zip(labels, results, strict=True)
    ]
    counts = {word: sum(run.heading.word == word for run in runs) for word in ("failed", "ended", "passed")}
    verdicts = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return ComparisonPage(
        title=f"{len(runs)} runs: {verdicts}",
        runs=tuple(runs),
        settings=_settings_grid("What was set differently", labels, differing([settings(one) for one in results])),
        given=_settings_grid("What a4-agent set differently", labels, differing([given(one) for one in results])),
        sweeps=tuple(_sweeps(labels, results)),
        tables=tuple(compared_tables(labels, results)),
    )


def labels_of(count: int) -> list[str]:
    """A, B, …, Z, then numbers."""
    return [chr(65 + at) if at < 26 else str(at + 1) for at in range(count)]


def settings(result: Result) -> dict[str, str]:
    """What a person or a cluster chose: name → value. Ids of the run itself do not count as differences."""
    launch = result.launch
    nodes = [pod.node for pod in result.pods]
    more = f", … {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else ""
    found = {
        "workload": result.workload,
        "arguments": shlex.join(result.args),
        "pods": str(len(result.pods)),
        "GPUs per pod": str(result.slots),
        "nodes in rank order": ", ".join(nodes[:MOST_NODES]) + more,
        "order from": result.order.source,
        "fabric profile": result.profile.name if result.profile else "",
        "time limit": duration_text(result.limits.timeout) if result.limits.timeout else "",
        "limit of silence": duration_text(result.limits.stall) if result.limits.stall else "",
        "command": shlex.join(launch.argv) if launch else "",
        "directory": launch.cwd if launch else "",
    }
    found |= {f"version of {name}": value for name, value in result.versions.items()}
    if launch:
        found |= {f"${name}": value for name, value in launch.environment.items() if name not in launch.added}
    return {name: _neutral(value, result) for name, value in found.items()}


def given(result: Result) -> dict[str, str]:
    """Variables that a4-agent itself set: name → value."""
    launch = result.launch
    if launch is None:
        return {}
    chosen = {f"${name}": value for name, value in launch.environment.items() if name in launch.added}
    return {name: _neutral(value, result) for name, value in chosen.items()}


def _neutral(value: str, result: Result) -> str:
    """A value in which ids that differ in every run are replaced by words; short ones are left, they may be any
    word."""
    for own, words in ((result.run, "<run>"), (result.epoch, "<epoch>"), (result.job, "<job>")):
        if len(own) > 3:
            value = value.replace(own, words)
    return value


def differing(found: Sequence[Mapping[str, str]]) -> dict[str, list[str | None]]:
    """Name → value in each run (None: not set), of those that are not the same in all."""
    every = dict.fromkeys(name for one in found for name in one)
    values = {name: [one.get(name) for one in found] for name in every}
    return {name: row for name, row in values.items() if len({value or "" for value in row}) > 1}


def _settings_grid(caption: str, labels: Sequence[str], found: Mapping[str, Sequence[str | None]]) -> Grid | None:
    """A column for each run; None when there is nothing to show."""
    if not found:
        return None
    columns = [GridColumn("setting"), *(GridColumn(label, "", "code") for label in labels)]
    rows: list[list[Cell | str]] = [[name, *(_value(value, row[0]) for value in row)] for name, row in found.items()]
    return grid(caption, columns, rows)


def _value(value: str | None, first: str | None) -> Cell:
    """One value, marked where it is not that of the first run."""
    if not value:
        return Cell("not set" if value is None else "empty", "soft")
    return Cell(value, "" if value == first else "odd")


def _speeds(results: Sequence[Result]) -> dict[str, list[dict[int, float]]]:
    """Collective → what each run measured of it, GB/s by size in bytes; nothing where it has not run it."""
    found = [dict(zip(names(result.sweeps), result.sweeps, strict=True)) for result in results]
    return {
        name: [
            {row.size: row.busbw for row in one[name].rows if row.busbw is not None} if name in one else {}
            for one in found
        ]
        for name in dict.fromkeys(name for one in found for name in one)
    }


def _sweeps(labels: Sequence[str], results: Sequence[Result]) -> Iterable[View]:
    """A view for each collective that any of the runs has measured: GB/s out of place, where that was measured, and the
    ratio over all sizes."""
    for at, (name, speeds) in enumerate(_speeds(results).items(), 1):
        runs = f"Bus bandwidth of {name} over size in runs {', '.join(labels)}; the numbers are in the table below"
        lines = [Line(labels[run], sorted(of_run.items()), run) for run, of_run in enumerate(speeds)]
        picture = Picture(lines, f"compared-{at}", runs)
        yield View(name, _summary(labels, speeds), (picture,), _speeds_grid(name, labels, speeds))


def ratios(speeds: Sequence[Mapping[int, float]], at: int) -> dict[int, float]:
    """Size → the run's speed by that of the first run, where both were measured."""
    first = speeds[0]
    return {size: speed / first[size] for size, speed in sorted(speeds[at].items()) if first.get(size)}


def _summary(labels: Sequence[str], speeds: Sequence[Mapping[int, float]]) -> tuple[str, ...]:
    """One line for each run after the first."""
    lines = []
    for at in range(1, len(labels)):
        found = ratios(speeds, at)
        if not found:
            lines.append(f"{labels[at]} / {labels[0]}: no size in common")
            continue
        worst, largest = min(found, key=lambda size: found[size]), max(found)
        lines.append(
            f"{labels[at]} / {labels[0]}: median {ratio_text(median(found.values()))}, "
            f"least {ratio_text(found[worst])} at {size_text(worst)}, "
            f"{ratio_text(found[largest])} at {size_text(largest)}"
        )
    return tuple(lines)


def _speeds_grid(name: str, labels: Sequence[str], speeds: Sequence[Mapping[int, float]]) -> Grid:
    """GB/s of each run at each size, then the ratio to the first run."""
    columns = [number("size"), *(number(label, "GB/s") for label in labels)]
    columns += [number(f"{label} / {labels[0]}") for label in labels[1:]]
    compared = [ratios(speeds, at) for at in range(1, len(labels))]
    rows: list[list[Cell | str]] = [
        [
            size_text(size),
            *(speed_text(one.get(size)) for one in speeds),
            *(_ratio(one.get(size)) for one in compared),
        ]
        for size in sorted({size for one in speeds for size in one})
    ]
    return grid(f"{name}: bus bandwidth by size", columns, rows)


def _ratio(ratio: float | None) -> Cell:
    """Marked from 5 % on: less is what runs differ by anyway."""
    tone = "soft" if ratio is None else "bad" if ratio <= 0.95 else "good" if ratio >= 1.05 else ""
    return Cell(ratio_text(ratio), tone)


def comparison_json(results: Sequence[Result]) -> dict[str, Any]:
    """The same for programs. Lists by run follow the order of `runs`; null: not set, not measured."""
    busbw = {}
    for name, speeds in _speeds(results).items():
        compared = [ratios(speeds, at) for at in range(len(speeds))]
        busbw[name] = [
            {"size": size, "busbw": [one.get(size) for one in speeds], "ratio": [one.get(size) for one in compared]}
            for size in sorted({size for one in speeds for size in one})
        ]
    return {
        "version": 1,
        "runs": [
            {
                "run": one.run,
                "job": one.job,
                "workload": one.workload,
                "status": one.verdict.status,
                "code": one.verdict.code,
            }
            for one in results
        ],
        "settings": differing([settings(one) for one in results]),
        "busbw": busbw,
    }
