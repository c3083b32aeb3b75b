"""Options of `deepep`: which test, and how fast it must be. All other arguments are the test's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent.workloads.deepep.elastic import ELASTIC
from agent.workloads.deepep.speed import BROKEN, PERCENT, SpeedLimits
from agent.workloads.option import Option, OptionParser, between

TESTS = ("internode", ELASTIC)
AMOUNT = between(0, 1e6, "a number (at least 0)")
OPTIONS = (
    Option(
        ("--test",),
        "NAME",
        f"which test of DeepEP: {' or '.join(TESTS)}",
        "the first that A4_DEEPEP_DIR has",
        choices=TESTS,
    ),
    Option(
        ("--min-rdma",),
        "N",
        "GB/s over RDMA that each node's best dispatch and combine must reach",
        f"{BROKEN:g}",
        type=AMOUNT,
    ),
    Option(("--min-percent",), "N", "percentage of the reference that is enough", f"{PERCENT:g}", type=AMOUNT),
)


class Asked(NamedTuple):
    """What a run was asked for."""

    test: str
    """One of TESTS; empty: the first that is there."""
    limits: SpeedLimits
    args: list[str]
    """The test's own."""


def asked(args: Sequence[str]) -> Asked:
    """Raises UsageError."""
    parser = OptionParser("deepep", OPTIONS)
    parser.set_defaults(test="", min_percent=PERCENT, min_rdma=BROKEN)
    given, rest = parser.parse_known_args(args)
    return Asked(given.test, SpeedLimits(given.min_percent, given.min_rdma), rest)
