"""What `ddp` and `collectives` have in common: programs of a4-agent that torchrun starts, and the record they write
(entrypoints/torch_ranks.py)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent import wire
from agent.decide.ending import JobEnd
from agent.decide.result import Table
from agent.decide.words import at_most, count_text, lines
from agent.errors import Exit
from agent.launch import Launch
from agent.paths import shipped
from agent.workloads.base import Judgement, Measurements, Outcome, RunContext
from agent.workloads.ends import broken_off
from agent.workloads.network import logs_of, not_used, own_logs, seen_network
from agent.workloads.option import Option, at_least
from agent.workloads.rank_record import VERSION, PlannedRanks, RankRecord, RecordVerdict, read_record
from agent.workloads.sweeps import MeasuredSweep
from agent.workloads.torch_failures import torchrun_failure
from agent.workloads.torchrun import ByTorchrun, start_torchrun

PRESETS = {
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "gIB's checker refuses it when it is set at all",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "a rank that waits for a dead one must be ended",
    "NCCL_ASYNC_ERROR_HANDLING": "the old name of TORCH_NCCL_ASYNC_ERROR_HANDLING",
}
"""Variables that images of NVIDIA preset and that the programs must not get, unless somebody typed them: why."""


COMMON = (
    Option(("--backend",), "NAME", "nccl or gloo", "nccl where there are GPUs", choices=("nccl", "gloo")),
    Option(("--timeout-seconds",), "N", "limit of one collective, in seconds", "600", type=at_least(1)),
)
"""Options that both programs have. The programs, which people also start by hand, read theirs again; tests hold that
they take the same as `check` does."""


@dataclass
class TorchRecord(RankRecord):
    """What the program wrote, as far as it came. None: that step was not reached."""

    backend: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    """Name → version, for result.json: python, torch, cuda, nccl."""
    sweeps: Sequence[MeasuredSweep] = ()
    """Tables that the program printed."""

    def read_start(self, values: Mapping[str, Any]) -> None:
        self.version, self.program = int(values["version"]), str(values.get("program", ""))
        if self.version == VERSION:
            self.launched, self.backend = int(values["ranks"]), str(values["backend"])
            self.versions = wire.from_json(dict[str, str], values["versions"])

    def wrong(self, planned: PlannedRanks) -> list[str]:
        return self.miscounted(planned) or at_most(self.misplaced(planned))

    def incomplete(self, planned: PlannedRanks) -> list[str]:
        return at_most(self.unfinished(planned))

    def stopped(self) -> str:
        if self.ranks is None:
            return f"{self.launched} ranks were started, but not all of them found each other"
        return f"the ranks stopped during: {self.doing}" if self.doing else "the ranks stopped before their end"

    def tables(self, planned: PlannedRanks) -> list[Table]:
        """Those of result.json."""
        return []

    def as_json(self, planned: PlannedRanks) -> dict[str, Any]:
        """The record for result.json; None stands for what was not reached. Tokens are left out."""
        return {
            "program": self.program,
            "ranks": self.launched,
            "backend": self.backend,
            "mapping": self.mapping(planned, "device"),
            "finished": self.finished,
            "doing": str(self.doing or ""),
        }

    def summary(self) -> str:
        """What was found, in one line."""
        return ""

    def warnings(self) -> list[str]:
        """What was not tested, and why."""
        return []

    def table(self, planned: PlannedRanks) -> str:
        """What was measured, for people; empty when nothing was."""
        return ""


class TorchProgram(ByTorchrun):
    """One of these programs."""

    starts_ranks = True
    uses_fabric = True
    imports_torch = True
    good: str
    """Said of a run that went well."""
    bad: str
    """Said of a run whose record shows something wrong."""
    before_summary = ":"
    """What stands between `good` and the summary."""

    @abstractmethod
    def read(self, outcome: Outcome) -> TorchRecord:
        """What the ranks recorded and printed."""

    def progress(self, record: str) -> str:
        return read_record(record, TorchRecord()).progress()  # the lines of its own program say nothing here

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        record = self.read(outcome)
        planned = PlannedRanks(context.per_pod, context.names, outcome.tokens)
        verdict = record.judge(planned)
        used = record.backend == "nccl" and record.finished is not None
        network = seen_network(context, outcome, logs_of(outcome), step=self.name, used=used, must=True)
        end = network.end(self._end(context, outcome, record, verdict))
        measurements = Measurements(
            reasons=verdict.reasons,
            warnings=record.warnings(),
            tables=record.tables(planned),
            sweeps=[sweep.told() for sweep in record.sweeps],
            versions=record.versions,
            phases=record.phases,
            record=record.as_json(planned),
        )
        what = f"{self.name}:" if end.code else f"{end.what}{self.before_summary}"
        told = [*verdict.reasons, *record.warnings(), *network.lines()]
        said = "\n  ".join([f"{what} {record.summary()}", *told])
        text = f"{said}\n{record.table(planned)}"
        return Judgement(end, text, network.measurements(measurements), f"{self.name}-test.log")

    def _end(self, context: RunContext, outcome: Outcome, record: TorchRecord, verdict: RecordVerdict) -> JobEnd:
        """What is wrong by the record comes first, then why the run was ended, processes that failed, lost pods."""
        why = "\n".join(verdict.reasons) if outcome.record or not (outcome.cause or outcome.first is not None) else ""
        if verdict.code:
            return JobEnd(verdict.code, self.bad, why=why, origin="workload")
        end = outcome.cause or torchrun_failure(context, outcome, own=self.name)
        if end is not None:
            return end._replace(why=lines(end.why, why))
        if early := broken_off(context, outcome):
            return early
        if verdict.code is None:
            what = "every process ended with 0, but the record of the ranks ends early"
            return JobEnd(Exit.WRONG_RESULT, what, why=why)
        where = f"{count_text(record.launched, 'rank')} on {count_text(len(context.names), 'pod')}"
        return JobEnd(0, f"{self.good}: {where} over {record.backend}", origin="workload")


def start_program(context: RunContext, program: str) -> Launch:
    """torchrun with entrypoints/`program` and the arguments of the run."""
    without = [name for name in PRESETS if name in context.environ and name not in context.spec.env]
    logs = own_logs(context)
    files = {"A4_TOKEN_FILE": context.token_file, "A4_RECORD": context.record, "A4_SERIES_FILE": context.series_file}
    given = {**files, **logs}
    words = [shipped("entrypoints", program), *context.args]
    launch = start_torchrun(context, words, given=given, cwd="/", without=without)
    notes = [f"{name}={context.environ[name]} of the image is not passed on: {PRESETS[name]}" for name in without]
    return launch._replace(notes=(*launch.notes, *notes, *(not_used(context) if logs else ())))
