"""The numbers of a result that are compared over many runs, each with all that makes it comparable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from agent.decide.result import Result, Sweep, Table
from agent.report.grid import below, numbers_of
from agent.report.number_words import count_text, number_text, size_text, speed_text
from agent.report.training_speed import gpu_models, speed

SMALL = 64 * 1024
"""Bytes from which on the smallest size of a sweep stands for small messages: below, times hardly differ."""
OPERATIONS = ("dispatch FP8", "dispatch BF16", "combine")


class Subject(NamedTuple):
    """What was measured. Numbers are compared only where all of this is the same."""

    name: str
    """all_reduce, 8 GiB"""
    unit: str
    details: str = ""
    """What else makes it another measurement: type, backend, batch, …"""
    lower: bool = False
    """Less is better."""
    workload: str = ""
    pods: str = ""
    """4 pods × 8 NVIDIA B200"""

    @property
    def where(self) -> str:
        """All but the name: what a group of measurements has in common."""
        return _joined([self.workload, self.pods, self.details])

    def is_worse(self, value: float, other: float) -> bool:
        return value > other if self.lower else value < other

    def number(self, value: float) -> str:
        """A value of it, without its unit."""
        return speed_text(value) if self.unit == "GB/s" else number_text(value)


class KeyFigure(NamedTuple):
    """One number of one run."""

    subject: Subject
    value: float
    wrong: bool
    """It does not count: the run did not pass, or what it computed was wrong."""

    @property
    def text(self) -> str:
        """As tables show it."""
        return f"{'✗ ' if self.wrong else ''}{self.subject.number(self.value)} {self.subject.unit}"


class Trend(NamedTuple):
    """What some of the runs measured of the same subject."""

    subject: Subject
    points: Sequence[tuple[int, KeyFigure]]
    """(number of the run, figure), in the order of the runs"""

    @property
    def good(self) -> list[float]:
        """Values that count."""
        return [one.value for _, one in self.points if not one.wrong]


Found = tuple[Subject, float | None, bool]
"""A subject without its workload and pods, its value, if it was measured, and whether that is wrong."""


def key_figures(result: Result) -> list[KeyFigure]:
    """The most telling first; empty when nothing was measured."""
    failed = result.verdict.status != "passed"
    pods, profiler = _pods(result), profiler_of(result)
    of_tables = [
        found for table in result.tables if table.name in TABLES for found in TABLES[table.name](result, table)
    ]
    found = [*_of_sweeps(result), *_of_trainings(result), *of_tables]
    return [
        KeyFigure(
            about._replace(workload=result.workload, pods=pods, details=_joined([about.details, profiler])),
            value,
            failed or wrong,
        )
        for about, value, wrong in found
        if value is not None
    ]


def trends_of(figures: Sequence[Sequence[KeyFigure]]) -> list[Trend]:
    """What was measured, by subject: numbers that differ in anything but the run stand in different trends."""
    found: dict[Subject, list[tuple[int, KeyFigure]]] = {}
    for run, measured in enumerate(figures):
        for one in measured:
            found.setdefault(one.subject, []).append((run, one))
    return [Trend(subject, points) for subject, points in found.items()]


def profiler_of(result: Result) -> str:
    """What NCCL's profiler was told; it costs time. Empty: none that somebody named."""
    return " or ".join(dict.fromkeys(filter(None, (pod.inventory.get("nccl_profiler") for pod in result.pods))))


def _pods(result: Result) -> str:
    """How many pods with which GPUs."""
    gpus = " or ".join(sorted(gpu_models(result) - {""}))
    each = f"{result.slots} {gpus}" if gpus else count_text(result.slots, "slot")
    return f"{count_text(len(result.pods), 'pod')} × {each}"


def _of_sweeps(result: Result) -> Iterator[Found]:
    """Bandwidth at the largest size and at a small one. A collective that was measured several times counts once."""
    alike: dict[tuple[str, str], list[Sweep]] = {}
    for sweep in result.sweeps:
        alike.setdefault((sweep.collective, _sweep_details(sweep, result)), []).append(sweep)
    for (collective, details), sweeps in alike.items():
        sizes = sorted({row.size for sweep in sweeps for row in sweep.rows if row.busbw is not None})
        small = [size for size in sizes if size >= SMALL][:1]
        for size in dict.fromkeys([*sizes[-1:], *small]):
            rows = [row for sweep in sweeps for row in sweep.rows if row.size == size]
            value = median(row.busbw for row in rows if row.busbw is not None)
            wrong = any(one.wrong for row in rows for one in row.placements())
            yield Subject(f"{collective}, {size_text(size)}", "GB/s", details), value, wrong


def _sweep_details(sweep: Sweep, result: Result) -> str:
    ranks = "" if sweep.ranks in (0, len(result.pods) * result.slots) else count_text(sweep.ranks, "rank")
    operation = "" if sweep.redop in ("none", "sum") else sweep.redop
    return _joined([ranks, sweep.backend, f"{sweep.type} {operation}".strip()])


def _of_trainings(result: Result) -> Iterator[Found]:
    for one in result.trainings:
        measured = speed(result, one)
        batch = f"{one.batch} × {one.sequence} tokens" if one.batch and one.sequence else ""
        details = _joined([one.model.rpartition("/")[2], batch])
        step = measured.steps.middle if measured.steps else None
        wrong = bool(one.nans)
        yield Subject(f"{one.stage}, step time", "s", details, lower=True), step, wrong
        yield Subject(f"{one.stage}, speed", "TFLOP/s per GPU", details), measured.tflops, wrong
        yield Subject(f"{one.stage}, throughput", "tokens/s", details), measured.tokens, wrong


def _of_ddp(result: Result, table: Table) -> Iterator[Found]:
    """A step, which all ranks take together, and the samples of all of them."""
    batch, parameters = result.record.get("batch"), result.record.get("parameters")
    details = _joined(
        [
            str(result.record.get("backend", "")),
            f"{batch} samples per rank" if batch else "",
            f"{parameters / 1e6:.4g} million parameters" if isinstance(parameters, int) else "",
        ]
    )
    steps, rates = column(table, "step"), column(table, "rate")
    yield Subject("step time", "ms", details, lower=True), median(steps) if steps else None, False
    yield Subject("throughput", "samples/s", details), sum(rates) if rates else None, False


def _of_pairs(_: Result, table: Table) -> Iterator[Found]:
    """The slowest pair, which sets the pace of collectives, and the usual latency."""
    sizes = sorted(set(column(table, "message")))
    details = " and ".join(size_text(round(size)) for size in sizes)
    slowest, times = column(table, "bandwidth"), column(table, "latency")
    yield Subject("slowest neighbours", "GB/s", details), min(slowest, default=None), False
    yield Subject("latency, median", "µs", lower=True), median(times) if times else None, False


def _of_deepep(result: Result, table: Table) -> Iterator[Found]:
    """The slowest pod."""
    details = _deepep_details(result.record.get("nodes"))
    for name in OPERATIONS:
        yield Subject(f"{name} over RDMA", "GB/s", details), min(column(table, f"{name} RDMA"), default=None), False


def _deepep_details(nodes: object) -> str:
    """What the test was asked for, by the first node that says it."""
    said = [one.get("config") for one in nodes.values() if isinstance(one, dict)] if isinstance(nodes, dict) else []
    config = next((one for one in said if isinstance(one, dict) and one), {})
    return ", ".join(f"{name} {value}" for name, value in config.items())


TABLES: dict[str, Callable[[Result, Table], Iterator[Found]]] = {
    "ddp-ranks": _of_ddp,
    "pairs": _of_pairs,
    "deepep": _of_deepep,
}
"""By the name of a table."""


def column(table: Table, name: str) -> list[float]:
    """The numbers below that head."""
    return [value for value in numbers_of(below(table, name)) if math.isfinite(value)]


def _joined(parts: Sequence[str]) -> str:
    return " · ".join(filter(None, parts))
