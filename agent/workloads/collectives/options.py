"""The options of `collectives`: those of entrypoints/collectives.py."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from agent.workloads.torch_options import Options, at_least

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
TYPES = ("int8", "uint8", "int32", "int64", "half", "float", "double", "bfloat16")
OPERATIONS = ("sum", "prod", "min", "max", "avg")


def check_options(words: Sequence[str], ranks: int, python: str) -> None:
    """Raises UsageError for what the program would not take on so many ranks."""
    parser = own_options(python)
    options = parser.parse_args(words)
    tests = [*filter(None, options.tests.split(",")), *options.collectives]
    if unknown := [name for name in tests if name not in COLLECTIVES]:
        parser.error(f"no test {', '.join(unknown)}: there are {', '.join(COLLECTIVES)}")
    if options.root >= ranks:
        parser.error(f"no rank {options.root} for --root: there are {ranks} ranks")
    if options.minbytes and options.maxbytes and options.minbytes > options.maxbytes:
        parser.error(f"minbytes {options.minbytes} is more than maxbytes {options.maxbytes}")


def own_options(python: str) -> Options:
    parser = Options("collectives", python)
    add = parser.add_argument
    add("collectives", nargs="*", metavar="TEST")
    add("--tests", default="")
    add("-b", "--minbytes", type=byte_size)
    add("-e", "--maxbytes", type=byte_size)
    step = parser.add_mutually_exclusive_group()
    step.add_argument("-f", "--stepfactor", type=at_least(2))
    step.add_argument("-i", "--stepbytes", type=byte_size)
    add("-n", "--iters", type=at_least(1))
    add("-w", "--warmup_iters", type=at_least(0))
    add("-c", "--check", type=at_least(0))
    add("-d", "--datatype", choices=TYPES)
    add("-o", "--op", choices=OPERATIONS)
    add("-r", "--root", type=at_least(0), default=0)
    add("--budget-seconds", type=float)
    return parser


def byte_size(text: str) -> int:
    """Bytes; "1.5M" is 1572864."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)", text, re.IGNORECASE)
    value = int(float(found[1]) * 1024 ** " KMG".index(found[2].upper() or " ")) if found else 0
    if not 0 < value < 1 << 50:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 64K, 1M or 8G")
    return value
