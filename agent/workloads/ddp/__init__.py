"""`ddp`: a small model is trained with DistributedDataParallel on every GPU of every pod; the sums are proved."""

from __future__ import annotations

from agent.launch import Launch
from agent.workloads.base import Outcome, RunContext
from agent.workloads.ddp.record import DdpRecord
from agent.workloads.option import Option, at_least
from agent.workloads.rank_record import read_record
from agent.workloads.torch_program import COMMON, TorchProgram, start_program

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
