"""`ddp`: a small model is trained with DistributedDataParallel on every GPU of every pod; the sums are proved."""

from __future__ import annotations

from agent.launch import Launch
from agent.workloads.base import Findings, Judgement, Kind, Outcome, RunContext, Workload
from agent.workloads.ddp.options import OPTIONS, check_options
from agent.workloads.ddp.record import as_json, judge, parse_record, summary, table, tables
from agent.workloads.rank_record import progress
from agent.workloads.torch_program import names_of, program_end, slots_of, start_program
from agent.workloads.torch_record import parse_record as parse_common
from agent.workloads.torch_record import phases

LOG = "ddp-test.log"


class Ddp(Workload):
    name = "ddp"
    kind: Kind = "everywhere"
    options = OPTIONS
    uses_fabric = True

    def launch(self, context: RunContext) -> Launch:
        """Raises UsageError."""
        check_options(context.args)
        return start_program(context, "ddp.py")

    def progress(self, record: str) -> str:
        return progress(parse_common(record))

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        record = parse_record(outcome.record)
        slots, names = slots_of(context), names_of(context)
        verdict = judge(record, outcome.tokens, slots, names)
        good = f"ddp is good: {record.launched} ranks on {len(names)} pods over {record.backend}"
        end = program_end(context, outcome, verdict, own="ddp", good=good, bad="ddp found something wrong")
        lines = [f"{end.what}: {summary(record)}" if end.code == 0 else f"ddp: {summary(record)}", *verdict.reasons]
        findings = Findings(
            reasons=verdict.reasons,
            tables=tables(record, names, slots),
            versions=record.versions,
            phases=phases(record),
            record=as_json(record, names, slots),
        )
        text = "\n  ".join(lines) + "\n" + table(record, names, slots)
        return Judgement(end, text, findings, LOG)
