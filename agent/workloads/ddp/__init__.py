"""`ddp`: a small model is trained with DistributedDataParallel on every GPU of every pod; the sums are proved."""

from __future__ import annotations

from agent.launch import Launch
from agent.workloads.base import Outcome, RunContext
from agent.workloads.ddp.options import OPTIONS, check_options
from agent.workloads.ddp.record import DdpRecord
from agent.workloads.rank_record import read_record
from agent.workloads.torch_program import TorchProgram, start_program


class Ddp(TorchProgram):
    name = "ddp"
    options = OPTIONS
    good = "ddp is good"
    bad = "ddp found something wrong"

    def launch(self, context: RunContext) -> Launch:
        """Raises UsageError."""
        check_options(context.args)
        return start_program(context, "ddp.py")

    def read(self, outcome: Outcome) -> DdpRecord:
        return read_record(outcome.record, DdpRecord())
