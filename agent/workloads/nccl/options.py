"""The arguments of `nccl`: its own options, and those that every program of nccl-tests gets."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import NamedTuple

from agent.fabrics import FABRICS
from agent.workloads.option import Option, OptionParser, at_least, between

TESTS = (
    "all_reduce",
    "all_gather",
    "broadcast",
    "reduce_scatter",
    "reduce",
    "alltoall",
    "alltoallv",
    "scatter",
    "gather",
    "sendrecv",
    "hypercube",
)


def tests(text: str) -> tuple[str, ...]:
    """A type of options: names of tests, with commas between."""
    names = tuple(dict.fromkeys(name.strip().removesuffix("_perf") for name in text.split(",")))
    if unknown := [name for name in names if name not in TESTS]:
        raise ArgumentTypeError(f"nccl-tests has no {', '.join(map(repr, unknown))}, it has {', '.join(TESTS)}")
    return names


def saved(text: str) -> str:
    """A type of options: a name, or the absolute path of a file."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}|/[^\0\n]{1,1000}", text):
        raise ArgumentTypeError(f"{text!r} is neither a name nor the absolute path of a file")
    return text


AMOUNT = between(0, 1e9, "a number such as 90")
OPTIONS = (
    Option(("--tests",), "A,B", f"which: {', '.join(TESTS)}", "all_reduce,all_gather", several=TESTS, type=tests),
    Option(
        ("--repeat",),
        "N",
        "runs of each test: the median is judged, spread and worst run are shown",
        "1",
        type=at_least(1, 100),
    ),
    Option(("--min-percent",), "P", "percentage of the baseline that is enough, else 65", "90", type=AMOUNT),
    Option(("--min-busbw",), "G", "GB/s that the best size of every test must reach, else 65", type=AMOUNT),
    Option(("--save-baseline",), "NAME", "save a good run as a baseline", type=saved),
)
"""Those of our own; all others go to every program of nccl-tests."""
LONG = {
    "nthreads": "t",
    "ngpus": "g",
    "minbytes": "b",
    "maxbytes": "e",
    "stepbytes": "i",
    "stepfactor": "f",
    "iters": "n",
    "warmup_iters": "w",
    "agg_iters": "m",
    "run_cycles": "N",
    "average": "a",
    "parallel_init": "p",
    "check": "c",
    "op": "o",
    "datatype": "d",
    "root": "r",
    "blocking": "z",
    "stream_null": "y",
    "timeout": "T",
    "cudagraph": "G",
    "report_cputime": "C",
    "report_timestamps": "S",
    "output_file": "J",
    "local_register": "R",
    "cta_policy": "x",
    "device_implementation": "D",
    "device_cta_count": "V",
    "memory": "M",
    "unalign": "u",
    "per_iter_timing": "I",
    "per_iter_skip": "K",
}
"""Options of nccl-tests 2.19: long → short. All of them take a value."""
WIDTH = at_least(1, 1024)
"""Threads of a process, and GPUs of a thread."""
PASSED = [
    Option((f"-{short}", f"--{name}"), "", "", type=WIDTH if short in "tg" else None) for name, short in LONG.items()
]
"""What nccl-tests takes, as far as its values matter here."""
DEFAULT_TESTS = ("all_reduce", "all_gather")
SIZES = {"b": "2M", "e": "16G", "f": "2"}
# One timed iteration, as in the old guides' `-n 1 -w 10`, measures nothing: nobody can tell it from an outlier.
COUNTS = {"g": "1", "n": "20", "w": "5"}


class NcclOptions(NamedTuple):
    """What is to be run, and how it is judged."""

    tests: tuple[str, ...]
    arguments: tuple[str, ...]
    """Arguments of every program: the defaults that were not given, then what was given, unchanged."""
    repeat: int = 1
    min_percent: float = 90.0
    min_busbw: float | None = None
    save_baseline: str = ""
    width: int = 1
    """NCCL ranks of one process: threads times GPUs per thread."""
    iterations: int | None = None
    """Timed ones; None: what was given is not a number."""
    json_elsewhere: bool = False
    """-J was given: that file is the user's."""


def parse_options(words: Sequence[str], profile: str = "") -> NcclOptions:
    """The options in `words`, with the defaults of a fabric profile. Raises UsageError."""
    own, passed = OptionParser("nccl", OPTIONS).parse_known_args(words)
    parser = OptionParser("nccl", PASSED)
    found, unknown = parser.parse_known_args(passed)
    _refuse_strays(parser, unknown)
    values = {short: value for name, short in LONG.items() if (value := getattr(found, name)) is not None}
    fabric = FABRICS.get(profile)
    usual = {**SIZES, **COUNTS, **(fabric.nccl_options if fabric else {})}
    defaults = {name: value for name, value in usual.items() if name not in values}
    if "i" in values:
        defaults.pop("f", None)  # a step and a factor exclude each other
    all_values = {**defaults, **values}
    iterations = all_values["n"]
    return NcclOptions(
        tests=own.tests or (fabric and fabric.nccl_tests) or DEFAULT_TESTS,
        arguments=(*(word for name, value in defaults.items() for word in (f"-{name}", value)), *passed),
        repeat=own.repeat or 1,
        min_percent=90.0 if own.min_percent is None else own.min_percent,
        min_busbw=own.min_busbw,
        save_baseline=own.save_baseline or "",
        width=int(all_values.get("t", 1)) * int(all_values["g"]),
        iterations=int(iterations) if re.fullmatch(r"[0-9]{1,9}", iterations) else None,
        json_elsewhere="J" in values,
    )


def _refuse_strays(parser: OptionParser, unknown: Sequence[str]) -> None:
    """Let options of other releases than nccl-tests 2.19 pass, each with a value; refuse every other word."""
    for before, word in zip(["", *unknown], unknown, strict=False):
        if word in ("-", "--") or not (word.startswith("-") or before.startswith("-")):
            tests = " (a test is named so: --tests all_reduce)" if word.removesuffix("_perf") in TESTS else ""
            parser.error(f"unexpected argument {word!r}{tests}")
