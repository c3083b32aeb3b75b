"""The options of `ddp`: those of entrypoints/ddp.py."""

from __future__ import annotations

from collections.abc import Sequence

from agent.workloads.option import Option
from agent.workloads.torch_options import COMMON, Options, at_least

OUTPUTS = 16
"""Of the model: it can be no narrower."""


OPTIONS = (
    Option(("--steps",), "N", "training steps that are checked", "5", type=at_least(1)),
    Option(("--batch",), "N", "samples per rank and step", "256", "32", type=at_least(1)),
    Option(("--width",), "N", "width of the model's layers", "2048", "512", type=at_least(OUTPUTS)),
    Option(("--layers",), "N", "hidden layers of the model", "6", "4", type=at_least(1)),
    Option(("--timed",), "STEPS", "training steps that are timed", "20", "5", type=at_least(1)),
    *COMMON,
)


def check_options(words: Sequence[str]) -> None:
    """Raises UsageError for what the program would not take."""
    Options("ddp", OPTIONS).parse_args(words)
