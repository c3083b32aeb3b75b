"""The options of `ddp`: those of entrypoints/ddp.py."""

from __future__ import annotations

from collections.abc import Sequence

from agent.workloads.torch_options import Options, at_least

OUTPUTS = 16
"""Of the model: it can be no narrower."""


def check_options(words: Sequence[str], python: str) -> None:
    """Raises UsageError for what the program would not take."""
    own_options(python).parse_args(words)


def own_options(python: str) -> Options:
    parser = Options("ddp", python)
    parser.add_argument("--steps", type=at_least(1))
    parser.add_argument("--batch", type=at_least(1))
    parser.add_argument("--width", type=at_least(OUTPUTS))
    parser.add_argument("--layers", type=at_least(1))
    parser.add_argument("--timed", type=at_least(1), metavar="STEPS")
    return parser
