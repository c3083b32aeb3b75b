"""`collectives`: the sweep of nccl-tests by torch.distributed, for pods that have torch and no nccl-tests."""

from __future__ import annotations

from agent.launch import Launch
from agent.workloads.base import Findings, Judgement, Kind, Outcome, RunContext, Workload
from agent.workloads.collectives.options import OPTIONS, check_options
from agent.workloads.collectives.record import as_json, judge, parse_record, summary, table, warnings
from agent.workloads.nccl_tests import parse
from agent.workloads.rank_record import progress
from agent.workloads.torch_program import names_of, program_end, slots_of, start_program
from agent.workloads.torch_record import parse_record as parse_common
from agent.workloads.torch_record import phases

LOG = "collectives-test.log"


class Collectives(Workload):
    name = "collectives"
    kind: Kind = "everywhere"
    options = OPTIONS
    uses_fabric = True
    output_bytes = 1 << 20
    """Six tables, each with a line for each of a thousand ranks."""

    def launch(self, context: RunContext) -> Launch:
        """Raises UsageError."""
        check_options(context.args, slots_of(context) * len(names_of(context)))
        return start_program(context, "collectives.py")

    def progress(self, record: str) -> str:
        return progress(parse_common(record))

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        record, sweeps = parse_record(outcome.record), parse(outcome.output)
        slots, names = slots_of(context), names_of(context)
        verdict = judge(record, sweeps, outcome.tokens, slots, names)
        good = f"collectives are right: {record.launched} ranks on {len(names)} pods over {record.backend}"
        end = program_end(context, outcome, verdict, own="collectives", good=good, bad="collectives are wrong")
        lines = [f"{end.what}; {summary(sweeps)}" if end.code == 0 else f"collectives: {summary(sweeps)}"]
        findings = Findings(
            reasons=verdict.reasons,
            sweeps=[sweep.told() for sweep in sweeps],
            versions=record.versions,
            phases=phases(record),
            record=as_json(record, names, slots),
        )
        text = "\n  ".join([*lines, *verdict.reasons, *warnings(record)]) + "\n" + table(sweeps)
        return Judgement(end, text, findings, LOG)
