"""`collectives`: the sweep of nccl-tests by torch.distributed, for pods that have torch and no nccl-tests."""

from __future__ import annotations

from agent.launch import Launch
from agent.workloads.base import Outcome, RunContext
from agent.workloads.collectives.options import OPTIONS, check_options
from agent.workloads.collectives.record import CollectivesRecord
from agent.workloads.nccl_tests import parse
from agent.workloads.rank_record import read_record
from agent.workloads.torch_program import TorchProgram, start_program


class Collectives(TorchProgram):
    name = "collectives"
    options = OPTIONS
    good = "collectives are right"
    bad = "collectives are wrong"
    before_summary = ";"
    output_bytes = 1 << 20
    """Six tables, each with a line for each of a thousand ranks."""

    def check(self, context: RunContext) -> None:
        check_options(context.args, context.per_pod * len(context.names))

    def launch(self, context: RunContext) -> Launch:
        return start_program(context, "collectives.py")

    def read(self, outcome: Outcome) -> CollectivesRecord:
        return read_record(outcome.record, CollectivesRecord(sweeps=parse(outcome.output)))
