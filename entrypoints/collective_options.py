"""The command line of collectives.py, with the options of nccl-tests."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator

from collective_operations import COLLECTIVES, OPERATIONS, TYPES
from torch_ranks import RankParser, at_least

MIB = 1 << 20
FAST = (MIB, 1024 * MIB, 2, 20, 5)
"""Defaults for NCCL: least and most bytes, factor, iterations, warm-up."""
SLOW = (MIB // 16, 16 * MIB, 4, 4, 1)
"""Defaults for gloo: with four ranks on a small machine all six collectives take some seconds."""


def arguments(argv: list[str]) -> argparse.Namespace:
    """The options; anything wrong ends the process with 2."""
    parser = RankParser(
        "Checks and measures collectives, with the options and the tables of nccl-tests.",
        "Sizes take K, M and G (×1024). Defaults: with NCCL -b 1M -e 1G -f 2 -n 20 -w 5, with gloo "
        "-b 64K -e 16M -f 4 -n 4 -w 1.",
    )
    add = parser.add_argument
    add("collectives", nargs="*", metavar="TEST", help=f"of {', '.join(COLLECTIVES)}; default: all")
    add("--tests", default="", help="the same, separated by commas")
    add("-b", "--minbytes", type=byte_size)
    add("-e", "--maxbytes", type=byte_size)
    step = parser.add_mutually_exclusive_group()
    step.add_argument("-f", "--stepfactor", type=at_least(2), help="from one size to the next by multiplication")
    step.add_argument("-i", "--stepbytes", type=byte_size, help="by addition")
    add("-n", "--iters", type=at_least(1))
    add("-w", "--warmup_iters", type=at_least(0))
    add("-c", "--check", type=at_least(0), default=1, help="iterations that are checked (default 1)")
    add("-d", "--datatype", choices=TYPES, default="float", help="default float")
    add("-o", "--op", choices=OPERATIONS, default="sum", help="default sum")
    add("-r", "--root", type=at_least(0), default=0, help="root of broadcast (default 0)")
    add("--budget-seconds", type=float, default=10.0, help="for the iterations of one size (default 10)")
    options = parser.read(argv)
    options.tests = [*filter(None, options.tests.split(",")), *options.collectives] or list(COLLECTIVES)
    if unknown := [name for name in options.tests if name not in COLLECTIVES]:
        parser.error(f"no test {', '.join(unknown)}: there are {', '.join(COLLECTIVES)}")
    if options.root >= int(os.environ["WORLD_SIZE"]):
        parser.error(f"no rank {options.root} for --root: there are {os.environ['WORLD_SIZE']} ranks")
    if options.minbytes and options.maxbytes and options.minbytes > options.maxbytes:
        parser.error(f"minbytes {options.minbytes} is more than maxbytes {options.maxbytes}")
    return options


def byte_size(text: str) -> int:
    """Bytes; "1.5M" is 1572864."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)", text, re.IGNORECASE)
    value = int(float(found[1]) * 1024 ** " KMG".index(found[2].upper() or " ")) if found else 0
    if not 0 < value < 1 << 50:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 64K, 1M or 8G")
    return value


def with_defaults(options: argparse.Namespace, backend: str) -> None:
    """Fill in what depends on the backend. A bound that is given moves the other's default out of its way."""
    least, most, factor, iterations, warmup = FAST if backend == "nccl" else SLOW
    options.minbytes = options.minbytes or min(least, options.maxbytes or least)
    options.maxbytes = options.maxbytes or max(most, options.minbytes)
    options.stepfactor = options.stepfactor or (1 if options.stepbytes else factor)
    options.iters = options.iters or iterations
    options.warmup_iters = warmup if options.warmup_iters is None else options.warmup_iters


def sizes(options: argparse.Namespace) -> Iterator[int]:
    value = options.minbytes
    while value <= options.maxbytes:
        yield value
        value = value * options.stepfactor if options.stepfactor > 1 else value + options.stepbytes
