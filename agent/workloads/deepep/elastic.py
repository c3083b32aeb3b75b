"""Reads what tests/elastic/test_ep.py of DeepEP 2 prints on one node (b306af0, April 2026, to dd758ca, July 2026).

After a description of what is asked for, local rank 0 begins each case with a line, and every rank of the node says how
fast each of five operations was, in any order, with a barrier between operations:

     > Testing with do_handle_copy=1, expert_alignment=128, use_fp8_dispatch=1, num_bias=0, with_previous_event=0, …
       * EP:   3/16 | dispatch: 90 GB/s (SO), 297 GB/s (SU), 1337.123 us, 397433088 bytes | copy: 4451 GB/s, 179.021 us

SO is scale-out, RDMA; SU is scale-up, NVLink. Results are checked after that, and nothing says that they were right:
the next case begins, or the test ends with 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

ELASTIC = "elastic"
"""The name of the test."""
CASES = 144
"""Per node: {with, without} a copy of the handle x two alignments x {FP8, BF16} x three numbers of biases x {two with,
four without} a previous event."""
FIRST_ONLY, UNMEASURED, ENDLESS = "--test-first-only", "--skip-perf-test", "--do-pressure-test"
"""Options of the test."""
DOMAINS = "num_scaleout_ranks"
"""How many groups of ranks RDMA connects: the nodes; 1 with --allow-hybrid-mode 0."""

_CONFIG = re.compile(
    r"> Ranks: (\d+) x (\d+)\s+> Experts: (\d+)/(\d+)\s+> Tokens: \d+ \(max: (\d+)\), hidden: (\d+)\s+"
    r"> #SM: (\d+), #QPs: (\d+)/\d+"
)
_NAMES = (DOMAINS, "num_scaleup_ranks", "num_topk", "num_experts", "num_tokens", "hidden", "num_sms", "num_qps")
_LINE = re.compile(
    r"> Testing with (?P<case>do_handle_copy=\d+(?:, \w+=\d+)+) \.\.\."
    r"|EP: +\d+/\d+ \| (?P<operation>(?:(?:expanded|cached) )?dispatch|(?:reduced )?combine):"
    r" (?P<out>\d+) GB/s \(SO\), (?P<up>\d+) GB/s \(SU\), (?P<time>\d+\.\d+) us"
)


class Speeds(NamedTuple):
    """How fast one operation was."""

    microseconds: float
    out: float
    """GB/s, scale-out."""
    up: float


class Printed(NamedTuple):
    cases: Sequence[str]
    """Those that were begun, in the test's words."""
    config: dict[str, int]
    best: dict[str, Speeds]
    """By operation, "dispatch FP8": of the case that was fastest, the rank that was slowest."""


def read(output: str) -> Printed:
    cases: list[str] = []
    slowest: dict[tuple[int, str], Speeds] = {}
    for found in _LINE.finditer(output):
        if found["case"]:
            cases.append(found["case"])
        elif cases:
            key = len(cases), _operation(found["operation"], cases[-1])
            speeds = Speeds(float(found["time"]), float(found["out"]), float(found["up"]))
            slowest[key] = max(slowest.get(key, speeds), speeds)
    best: dict[str, Speeds] = {}
    for (_, operation), speeds in slowest.items():
        best[operation] = min(best.get(operation, speeds), speeds)
    config = _CONFIG.search(output)
    return Printed(cases, dict(zip(_NAMES, map(int, config.groups()), strict=True)) if config else {}, best)


def _operation(name: str, case: str) -> str:
    """Tokens go out as FP8 or BF16, and always come back as BF16."""
    return name if name.endswith("combine") else f"{name} {'FP8' if 'use_fp8_dispatch=1' in case else 'BF16'}"


def expected(args: Sequence[str], operations: Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """How many cases the test has with these arguments, and which of the operations it measures."""
    first = FIRST_ONLY in args
    measured = () if UNMEASURED in args else [name for name in operations if not (first and name.endswith("BF16"))]
    return 1 if first else CASES, tuple(measured)
