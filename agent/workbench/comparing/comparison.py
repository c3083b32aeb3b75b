"""Several runs side by side: what was set differently, and what came of it. The first named run is the measure."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from types import SimpleNamespace
from typing import Any

from agent.decide.result import Result
from agent.decide.words import at_most
from agent.report.charts import GLYPHS
from agent.report.grid import Cell, Grid, GridColumn, grid, side_by_side
from agent.report.launched import command_settings, stage_settings
from agent.report.model import SIGNS, called, environment, facts, told
from agent.report.number_words import duration_text, moment_text
from agent.workbench.comparing.compared_series import compared_series
from agent.workbench.comparing.compared_sweeps import compared_sweeps, curves_of, ratios, sizes_of
from agent.workbench.comparing.compared_tables import compared_tables
from agent.workbench.comparing.compared_trainings import compared_trainings
from agent.workbench.comparing.key_figures import key_figures, profiler_of
from agent.workbench.comparing.nodes import nodes_grid

MOST_COMPARED = 4
"""Runs that are read side by side; of more, `series` shows the trend."""
MOST_NODES = 8
"""Nodes that a cell lists; the others are counted."""
SHOWN_FACTS = ("note", "job", "run", "pods × slots", "began", "took")


def comparison_page(results: Sequence[Result]) -> SimpleNamespace:
    """All that the page shows of these results, the first of which is what the others are measured by. `label` is what
    the tables call a run: A, B, …"""
    labels = ascii_uppercase[: len(results)]
    runs = [
        SimpleNamespace(
            label=label,
            glyph=glyph,
            began=moment_text(result.since),
            result=result,
            called=called(result),
            what=told(result.verdict),
            sign=SIGNS[result.verdict.status],
            facts=[pair for pair in facts(result) if pair[0] in SHOWN_FACTS],
        )
        for label, glyph, result in zip(labels, GLYPHS, results, strict=False)
    ]
    nodes = nodes_grid(labels, results, [key_figures(one) for one in results])
    return SimpleNamespace(
        title=title_of(results),
        runs=runs,
        settings=_settings_grid("What was set differently", labels, different_settings(results)),
        given=_settings_grid("What a4-agent set differently", labels, differing([given(one) for one in results])),
        sweeps=tuple(compared_sweeps(labels, results)),
        trainings=tuple(compared_trainings(labels, results)),
        series=tuple(compared_series(labels, results)),
        tables=(*([nodes] if nodes else []), *compared_tables(labels, results)),
    )


def title_of(results: Sequence[Result]) -> str:
    """How many runs there are, and how they ended."""
    counts = Counter(one.verdict.status for one in results)
    verdicts = ", ".join(f"{counts[status]} {status}" for status in ("failed", "ended", "passed") if counts[status])
    return f"{len(results)} runs: {verdicts}"


def settings(result: Result) -> dict[str, str]:
    """What a person or a cluster chose: name → value. Ids of the run itself do not count as differences."""
    launch = result.launch
    nodes = [pod.node for pod in result.pods]
    found = {
        "workload": result.workload,
        "arguments": shlex.join(result.args),
        "pods": str(len(result.pods)),
        "GPUs per pod": str(result.slots),
        "nodes in rank order": ", ".join(at_most(nodes, MOST_NODES, "… {} more")),
        "order from": result.order.source,
        "fabric profile": result.profile.name if result.profile else "",
        "profiler of NCCL": profiler_of(result),
        "time limit": duration_text(result.limits.timeout) if result.limits.timeout else "",
        "limit of silence": duration_text(result.limits.stall) if result.limits.stall else "",
        **(command_settings(launch) if launch else {}),
        "directory": launch.cwd if launch else "",
        "image": result.image,
    }
    found |= {f"version of {name}": value for name, value in result.versions.items()}
    found |= {f"${name}": value for name, value in environment(launch, added=False)}
    return {name: _neutral(value, result) for name, value in found.items()}


def different_settings(results: Sequence[Result]) -> dict[str, list[str | None]]:
    """Those that are not the same in all. Options of stages only where all carry out a pipeline: else all differ."""
    stages = [stage_settings(one.launch) if one.launch else {} for one in results]
    more = stages if all(stages) else [{} for _ in results]
    neutral = [
        {name: _neutral(value, one) for name, value in of.items()} for of, one in zip(more, results, strict=True)
    ]
    return differing([settings(one) | of for one, of in zip(results, neutral, strict=True)])


def given(result: Result) -> dict[str, str]:
    """Variables that a4-agent itself set: name → value."""
    return {f"${name}": _neutral(value, result) for name, value in environment(result.launch, added=True)}


def _neutral(value: str, result: Result) -> str:
    """A value in which ids that differ in every run are replaced by words; short ones are left, they may be any
    word."""
    uid = result.epoch.partition(".")[0]
    host = re.sub(r"-\d+-\d+$", "", result.pods[0].name.partition(".")[0]) if result.pods else ""
    service = f".{host.removesuffix('-workload')}."  # not the name alone: it may be a word such as "train"
    ids = ((result.run, "<run>"), (result.epoch, "<epoch>"), (uid, "<epoch>"), (result.job, "<job>"))
    for own, words in (*ids, (host, "<job>"), (service, ".<job>.")):
        if len(own) > 3:
            value = value.replace(own, words)
    return value


def differing(found: Sequence[Mapping[str, str]]) -> dict[str, list[str | None]]:
    """Name → value in each run (None: not set), of those that are not the same in all."""
    return {name: row for name, row in side_by_side(found).items() if len({value or "" for value in row}) > 1}


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


def comparison_json(results: Sequence[Result]) -> dict[str, Any]:
    """The same for programs. Lists by run follow the order of `runs`; null: not set, not measured."""
    busbw = {}
    for name, curves in curves_of(results).items():
        compared = [ratios(curves, at) for at in range(len(curves))]
        busbw[name] = [
            {
                "size": size,
                "busbw": [one.busbw.get(size) for one in curves],
                "ratio": [one.get(size) for one in compared],
                "wrong": [True if size in one.wrong else False if size in one.right else None for one in curves],
            }
            for size in sizes_of(curves)
        ]
    return {
        "version": 1,
        "runs": [
            {
                "run": one.run,
                "name": one.name,
                "note": one.note,
                "job": one.job,
                "workload": one.workload,
                "status": one.verdict.status,
                "code": one.verdict.code,
            }
            for one in results
        ],
        "settings": different_settings(results),
        "busbw": busbw,
    }
