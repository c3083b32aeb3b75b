"""The numbers of a result that are compared over many runs, each with all that makes it comparable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from agent.decide.result import Result, Sweep
from agent.report.number_words import count_text, number_text, size_text, speed_text
from agent.report.training_speed import gpu_models, speed
from agent.workloads import shown
from agent.workloads.showing import Figure

SMALL = 64 * 1024
"""Bytes from which on the smallest size of a sweep stands for small messages: below, times hardly differ."""


class Subject(NamedTuple):
    """What was measured. Numbers are compared only where all of this is the same."""

    name: str
    """all_reduce, 8 GiB"""
    unit: str
    where: str
    """What a group of measurements has in common: workload, 4 pods × 8 NVIDIA B200, type, backend, batch, …"""
    lower: bool
    """Less is better."""

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


def key_figures(result: Result) -> list[KeyFigure]:
    """The most telling first; empty when nothing was measured."""
    failed = result.verdict.status != "passed"
    pods, profiler = _pods(result), profiler_of(result)
    found = []
    for one in (*_of_sweeps(result), *_of_trainings(result), *shown(result).figures):
        if one.value is not None:
            where = " · ".join(filter(None, [result.workload, pods, *one.details, profiler]))
            found.append(KeyFigure(Subject(one.name, one.unit, where, one.lower), one.value, failed or one.wrong))
    return found


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


def _of_sweeps(result: Result) -> Iterator[Figure]:
    """Bandwidth at the largest size and at a small one. A collective that was measured several times counts once."""
    alike: dict[tuple[str, ...], list[Sweep]] = {}
    for sweep in result.sweeps:
        alike.setdefault((sweep.collective, *_sweep_details(sweep, result)), []).append(sweep)
    for (collective, *details), sweeps in alike.items():
        sizes = sorted({row.size for sweep in sweeps for row in sweep.rows if row.busbw is not None})
        small = [size for size in sizes if size >= SMALL][:1]
        for size in dict.fromkeys([*sizes[-1:], *small]):
            rows = [row for sweep in sweeps for row in sweep.rows if row.size == size]
            value = median(row.busbw for row in rows if row.busbw is not None)
            wrong = any(one.wrong for row in rows for one in row.placements())
            yield Figure(f"{collective}, {size_text(size)}", "GB/s", value, details, wrong=wrong)


def _sweep_details(sweep: Sweep, result: Result) -> tuple[str, ...]:
    ranks = "" if sweep.ranks in (0, len(result.pods) * result.slots) else count_text(sweep.ranks, "rank")
    operation = "" if sweep.redop in ("none", "sum") else sweep.redop
    return ranks, sweep.backend, f"{sweep.type} {operation}".strip()


def _of_trainings(result: Result) -> Iterator[Figure]:
    for one in result.trainings:
        measured = speed(result, one)
        batch = f"{one.batch} × {one.sequence} tokens" if one.batch and one.sequence else ""
        details = one.model.rpartition("/")[2], batch
        step, wrong = measured.steps.middle if measured.steps else None, bool(one.nans)
        yield Figure(f"{one.stage}, step time", "s", step, details, lower=True, wrong=wrong)
        yield Figure(f"{one.stage}, speed", "TFLOP/s per GPU", measured.tflops, details, wrong=wrong)
        yield Figure(f"{one.stage}, throughput", "tokens/s", measured.tokens, details, wrong=wrong)
