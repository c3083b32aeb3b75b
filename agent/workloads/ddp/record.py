"""Reads and judges the record of the DDP test (its schema: entrypoints/ddp.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent import wire
from agent.decide.result import Table
from agent.decide.result import table as result_table
from agent.decide.tables import render
from agent.workloads import rank_record, torch_record
from agent.workloads.rank_record import Verdict, at_most, name_of, rank_on, ranks_text, short
from agent.workloads.torch_record import TorchRecord

COLUMNS = {
    "rank": "",
    "pod": "",
    "device": "",
    "rate": "samples/s",
    "step": "ms",
    "compute": "ms",
    "gradients": "GB/s",
    "remark": "",
}


class WrongSum(NamedTuple):
    """A rank that got a wrong all-reduce; `found`: its first wrong element, "nan" or "inf" for what JSON cannot say."""

    rank: int
    expected: float
    found: float | str
    elements: int | None = None
    """How many are wrong; None: not said."""


class Reference(NamedTuple):
    """Largest difference of a parameter to a run in one process, relative to its tensor; None: not a number."""

    difference: float | None
    tolerance: float
    within: bool
    steps: int


class Speed(NamedTuple):
    """What one rank measured: steps with and without their all-reduce, and the all-reduce alone."""

    rank: int
    samples_per_s: float
    step_ms: float
    gradient_gb_s: float
    compute_ms: float | None = None


@dataclass
class DdpRecord(TorchRecord):
    """What the rank program wrote, as far as it came. None: that step was not reached."""

    wrong: Sequence[WrongSum] | None = None
    different: Sequence[int] | None = None
    """Ranks whose parameters are not those of rank 0."""
    reference: Reference | None = None
    speeds: Sequence[Speed] | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    """batch (per rank), steps (timed), parameters, gradient_bytes."""

    def read_sum(self, values: Mapping[str, Any]) -> None:
        self.wrong = wire.from_json(tuple[WrongSum, ...], values["wrong"])

    def read_parameters(self, values: Mapping[str, Any]) -> None:
        self.different = wire.from_json(tuple[int, ...], values["different"])

    def read_reference(self, values: Mapping[str, Any]) -> None:
        self.reference = wire.from_json(Reference, values)

    def read_measured(self, values: Mapping[str, Any]) -> None:
        sizes = {name: int(values[name]) for name in ("batch", "steps", "parameters", "gradient_bytes")}
        self.speeds, self.sizes = wire.from_json(tuple[Speed, ...], values["ranks"]), sizes


def parse_record(text: str) -> DdpRecord:
    return rank_record.parse_lines(text, DdpRecord())


def judge(record: DdpRecord, tokens: Sequence[str], slots: int, names: Sequence[str]) -> Verdict:
    """Compare the record with the plan: `tokens` and `names` of its pods in order, `slots` ranks on each."""
    if verdict := rank_record.unusable(record, "ddp"):
        return verdict
    wrong = [
        *torch_record.wrong_places(record, tokens, slots, names),
        *at_most(
            [
                f"{rank_on(one.rank, slots, names)} got a wrong all-reduce: "
                + f"{float(one.found):g}, {one.expected:g} is right"
                + (f" ({one.elements} elements are wrong)" if one.elements else "")
                for one in record.wrong or []
            ]
        ),
        *at_most(
            [
                f"{rank_on(rank, slots, names)} has other parameters after training than rank 0"
                for rank in record.different or []
            ]
        ),
        *_far_off(record),
    ]
    incomplete = [*torch_record.unfinished(record, slots, names), *_skipped(record)]
    return rank_record.verdict(record, wrong, incomplete, torch_record.stopped(record))


def summary(record: DdpRecord) -> str:
    """What was checked, in one line, as far as it came."""
    parts = []
    if record.wrong is not None:
        parts.append(f"all-reduce {'WRONG' if record.wrong else 'right'}")
    if record.different is not None:
        ranks = f"DIFFERENT on {ranks_text(record.different)}" if record.different else "the same on all ranks"
        parts.append(f"parameters {ranks}")
    if found := record.reference:
        difference = "not finite" if found.difference is None else f"{found.difference:.1e}"
        sign = "within" if found.within else "NOT WITHIN"
        parts.append(f"difference to one process {difference}, {sign} {found.tolerance:.0e}")
    return "; ".join(parts) or "nothing was checked"


def tables(record: DdpRecord, names: Sequence[str], slots: int) -> list[Table]:
    """The `tables` of result.json; empty when nothing was measured."""
    if not record.speeds:
        return []
    title = f"Training with DDP, {record.sizes['batch']} samples per rank and step"
    return [result_table("ddp-ranks", title, COLUMNS, _rows(record, names, slots))]


def table(record: DdpRecord, names: Sequence[str], slots: int) -> str:
    """The same for people; empty when nothing was measured."""
    if not record.speeds:
        return ""
    heads = [f"{name} ({unit})" if unit else name for name, unit in COLUMNS.items()]
    rows = [[_cell(value) for value in row] for row in _rows(record, names, slots)]
    return render([*heads[:-1], ""], rows, right={0, 3, 4, 5, 6})


def as_json(record: DdpRecord, names: Sequence[str], slots: int) -> dict[str, Any]:
    """The record for `result.json`; None stands for what was not reached. Tokens are left out."""
    return {
        **torch_record.as_json(record, names, slots),
        "sum_right": None if record.wrong is None else not record.wrong,
        "different_parameters": record.different,
        "reference": record.reference._asdict() if record.reference else None,
        **record.sizes,
    }


def _rows(record: DdpRecord, names: Sequence[str], slots: int) -> list[list[Any]]:
    """A row of COLUMNS for each rank, the slowest marked."""
    devices = {seen.rank: seen.device for seen in record.ranks or []}
    speeds = sorted(record.speeds or [], key=lambda speed: speed.rank)
    slowest = _slowest(speeds)
    return [
        [
            speed.rank,
            short(name_of(speed.rank, slots, names)),
            devices.get(speed.rank, ""),
            speed.samples_per_s,
            speed.step_ms,
            speed.compute_ms,
            speed.gradient_gb_s,
            f"slowest {'step' if speed.compute_ms is None else 'compute'}" if speed.rank == slowest else "",
        ]
        for speed in speeds
    ]


def _slowest(speeds: Sequence[Speed]) -> int | None:
    """The rank that computes slowest; in whole steps all wait for it and look alike."""
    times = {one.rank: one.step_ms if one.compute_ms is None else one.compute_ms for one in speeds}
    return max(times, key=lambda rank: times[rank]) if len(set(times.values())) > 1 else None


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _far_off(record: DdpRecord) -> list[str]:
    """Training went wrong though no sum was seen to be: gradients were lost in between."""
    found = record.reference
    if found is None or (found.within and found.difference is not None):
        return []
    if found.difference is None:
        return [f"after {found.steps} steps of training, parameters are not finite numbers"]
    return [
        f"after {found.steps} steps the parameters differ from those of a single process by {found.difference:.1e} "
        f"of their size, {found.tolerance:.0e} is allowed: gradients were lost or wrong"
    ]


def _skipped(record: DdpRecord) -> list[str]:
    """Checks that a record with an end does not have."""
    steps = {
        "all-reduce": record.wrong,
        "check of the parameters": record.different,
        "comparison with a single process": record.reference,
        "measurement": record.speeds,
    }
    return [f"the record of the ranks has no {what}" for what, found in steps.items() if found is None]
