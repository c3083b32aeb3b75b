"""`ddp`: a small model is trained with DistributedDataParallel on every GPU of every pod; the sums are proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from agent import wire
from agent.decide.result import Result, Table
from agent.decide.result import table as result_table
from agent.decide.tables import render
from agent.decide.words import at_most
from agent.launch import Launch
from agent.workloads.base import Outcome, RunContext
from agent.workloads.option import Option, at_least
from agent.workloads.rank_record import PlannedRanks, ranks_text, read_record
from agent.workloads.showing import Figure, Showing
from agent.workloads.torch_program import COMMON, TorchProgram, TorchRecord, start_program

OUTPUTS = 16
"""How many outputs the model has: it cannot be narrower."""
OPTIONS = (
    Option(("--steps",), "N", "training steps that are checked", "5", type=at_least(1)),
    Option(("--batch",), "N", "samples per rank and step", "256", "32", type=at_least(1)),
    Option(("--width",), "N", "width of the model's layers", "2048", "512", type=at_least(OUTPUTS)),
    Option(("--layers",), "N", "hidden layers of the model", "6", "4", type=at_least(1)),
    Option(("--timed",), "STEPS", "training steps that are timed", "20", "5", type=at_least(1)),
    *COMMON,
)


class Ddp(TorchProgram):
    name = "ddp"
    options = OPTIONS
    good = "ddp is good"
    bad = "ddp found something wrong"

    def launch(self, context: RunContext) -> Launch:
        return start_program(context, "ddp.py")

    def read(self, outcome: Outcome) -> DdpRecord:
        return read_record(outcome.record, DdpRecord())

    def shown(self, result: Result) -> Showing:
        """A step, which all ranks take together, and the samples of all of them."""
        batch, parameters = result.record.get("batch"), result.record.get("parameters")
        details = [
            str(result.record.get("backend", "")),
            f"{batch} samples per rank" if batch else "",
            f"{parameters / 1e6:.4g} million parameters" if isinstance(parameters, int) else "",
        ]
        steps, rates = result.numbers(TABLE, "step"), result.numbers(TABLE, "rate")
        step, rate = median(steps) if steps else None, sum(rates) if rates else None
        return Showing(
            [Figure("step time", "ms", step, details, lower=True), Figure("throughput", "samples/s", rate, details)]
        )


TABLE = "ddp-ranks"
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


class ReferenceCheck(NamedTuple):
    """Largest difference of a parameter to a run in one process, relative to its tensor; None: not a number."""

    difference: float | None
    tolerance: float
    within: bool
    steps: int


class RankSpeed(NamedTuple):
    """What one rank measured: steps with and without their all-reduce, and the all-reduce alone."""

    rank: int
    samples_per_s: float
    step_ms: float
    gradient_gb_s: float
    compute_ms: float | None = None


@dataclass
class DdpRecord(TorchRecord):
    """What the rank program wrote, as far as it came. None: that step was not reached."""

    OF = "ddp"
    sums: Sequence[WrongSum] | None = None
    different: Sequence[int] | None = None
    """Ranks whose parameters are not those of rank 0."""
    reference: ReferenceCheck | None = None
    speeds: Sequence[RankSpeed] | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    """batch (per rank), steps (timed), parameters, gradient_bytes."""

    def read_sum(self, values: Mapping[str, Any]) -> None:
        self.sums = wire.from_json(tuple[WrongSum, ...], values["wrong"])
        self.note("first-collective", values)

    def read_parameters(self, values: Mapping[str, Any]) -> None:
        self.different = wire.from_json(tuple[int, ...], values["different"])

    def read_reference(self, values: Mapping[str, Any]) -> None:
        self.reference = wire.from_json(ReferenceCheck, values)

    def read_measured(self, values: Mapping[str, Any]) -> None:
        sizes = {name: int(values[name]) for name in ("batch", "steps", "parameters", "gradient_bytes")}
        self.speeds, self.sizes = wire.from_json(tuple[RankSpeed, ...], values["ranks"]), sizes

    def wrong(self, planned: PlannedRanks) -> list[str]:
        sums = [
            f"{planned.on(one.rank)} got a wrong all-reduce: {float(one.found):g}, {one.expected:g} is right"
            + (f" ({one.elements} elements are wrong)" if one.elements else "")
            for one in self.sums or []
        ]
        different = [
            f"{planned.on(rank)} has other parameters after training than rank 0" for rank in self.different or []
        ]
        return [*super().wrong(planned), *at_most(sums), *at_most(different), *self._far_off()]

    def _far_off(self) -> list[str]:
        """Training went wrong though no sum was seen to be: gradients were lost in between."""
        found = self.reference
        if found is None or (found.within and found.difference is not None):
            return []
        if found.difference is None:
            return [f"after {found.steps} steps of training, parameters are not finite numbers"]
        return [
            f"after {found.steps} steps the parameters differ from those of a single process by "
            f"{found.difference:.1e} of their size, {found.tolerance:.0e} is allowed: gradients were lost or wrong"
        ]

    def incomplete(self, planned: PlannedRanks) -> list[str]:
        steps = {
            "all-reduce": self.sums,
            "check of the parameters": self.different,
            "comparison with a single process": self.reference,
            "measurement": self.speeds,
        }
        skipped = [f"the record of the ranks has no {what}" for what, found in steps.items() if found is None]
        return [*super().incomplete(planned), *skipped]

    def summary(self) -> str:
        """What was checked, in one line, as far as it came."""
        parts = []
        if self.sums is not None:
            parts.append(f"all-reduce {'WRONG' if self.sums else 'right'}")
        if self.different is not None:
            ranks = f"DIFFERENT on {ranks_text(self.different)}" if self.different else "the same on all ranks"
            parts.append(f"parameters {ranks}")
        if found := self.reference:
            difference = "not finite" if found.difference is None else f"{found.difference:.1e}"
            sign = "within" if found.within else "NOT WITHIN"
            parts.append(f"difference to one process {difference}, {sign} {found.tolerance:.0e}")
        return "; ".join(parts) or "nothing was checked"

    def tables(self, planned: PlannedRanks) -> list[Table]:
        if not self.speeds:
            return []
        title = f"Training with DDP, {self.sizes['batch']} samples per rank and step"
        return [result_table(TABLE, title, COLUMNS, self._rows(planned))]

    def table(self, planned: PlannedRanks) -> str:
        if not self.speeds:
            return ""
        heads = [f"{name} ({unit})" if unit else name for name, unit in COLUMNS.items()]
        return render([*heads[:-1], ""], self._rows(planned))

    def _rows(self, planned: PlannedRanks) -> list[list[Any]]:
        """A row of COLUMNS for each rank, the slowest marked."""
        devices = {seen.rank: seen.device for seen in self.ranks or []}
        speeds = sorted(self.speeds or [], key=lambda speed: speed.rank)
        # In whole steps all wait for the rank that computes slowest, and look alike.
        times = {one.rank: one.step_ms if one.compute_ms is None else one.compute_ms for one in speeds}
        slowest = max(times, key=lambda rank: times[rank]) if len(set(times.values())) > 1 else None
        return [
            [
                speed.rank,
                planned.short(speed.rank),
                devices.get(speed.rank, ""),
                speed.samples_per_s,
                speed.step_ms,
                speed.compute_ms,
                speed.gradient_gb_s,
                f"slowest {'step' if speed.compute_ms is None else 'compute'}" if speed.rank == slowest else "",
            ]
            for speed in speeds
        ]

    def as_json(self, planned: PlannedRanks) -> dict[str, Any]:
        return {
            **super().as_json(planned),
            "sum_right": None if self.sums is None else not self.sums,
            "different_parameters": self.different,
            "reference": self.reference._asdict() if self.reference else None,
            **self.sizes,
        }
