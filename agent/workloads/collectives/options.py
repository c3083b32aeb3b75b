"""The options of `collectives`: those of entrypoints/collectives.py."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from agent.workloads.option import Option, OptionParser, at_least
from agent.workloads.torch_program import COMMON

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
TYPES = ("int8", "uint8", "int32", "int64", "half", "float", "double", "bfloat16")
OPERATIONS = ("sum", "prod", "min", "max", "avg")


def byte_size(text: str) -> int:
    """Bytes; "1.5M" is 1572864."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)", text, re.IGNORECASE)
    value = int(float(found[1]) * 1024 ** " KMG".index(found[2].upper() or " ")) if found else 0
    if not 0 < value < 1 << 50:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 64K, 1M or 8G")
    return value


OPTIONS = (
    Option(("--tests",), "A,B", f"which: {', '.join(COLLECTIVES)}", "all", several=COLLECTIVES),
    Option(("-b", "--minbytes"), "SIZE", "smallest size in bytes; K, M, G are ×1024", "1M", "64K", type=byte_size),
    Option(("-e", "--maxbytes"), "SIZE", "largest size", "1G", "16M", type=byte_size),
    Option(("-f", "--stepfactor"), "N", "factor from size to size", "2", "4", type=at_least(2)),
    Option(("-i", "--stepbytes"), "SIZE", "step in bytes from size to size, instead of a factor", type=byte_size),
    Option(("-n", "--iters"), "N", "timed runs", "20", "4", type=at_least(1)),
    Option(("-w", "--warmup_iters"), "N", "warm-up runs", "5", "1", type=at_least(0)),
    Option(("-c", "--check"), "N", "checked runs of each size; 0: none", "1", type=at_least(0)),
    Option(("-d", "--datatype"), "TYPE", ", ".join(TYPES), "float", choices=TYPES),
    Option(("-o", "--op"), "OP", f"reduction: {', '.join(OPERATIONS)}", "sum", choices=OPERATIONS),
    Option(("-r", "--root"), "RANK", "root of broadcast", "0", type=at_least(0)),
    Option(
        ("--budget-seconds",),
        "N",
        "most time for one measurement: on slow links fewer runs are timed, and a line says so",
        "10",
        type=float,
    ),
    *COMMON,
)


def check_options(words: Sequence[str], ranks: int) -> None:
    """Raises UsageError for what the program would not take on so many ranks."""
    parser = OptionParser("collectives", OPTIONS)
    parser.add_argument("collectives", nargs="*", metavar="TEST")
    options = parser.parse_args(words)
    tests = [*filter(None, (options.tests or "").split(",")), *options.collectives]
    if unknown := [name for name in tests if name not in COLLECTIVES]:
        parser.error(f"no test {', '.join(unknown)}: there are {', '.join(COLLECTIVES)}")
    if options.stepfactor and options.stepbytes:
        parser.error("argument -i/--stepbytes: not allowed with argument -f/--stepfactor")
    if (options.root or 0) >= ranks:
        parser.error(f"no rank {options.root} for --root: there are {ranks} ranks")
    if options.minbytes and options.maxbytes and options.minbytes > options.maxbytes:
        parser.error(f"minbytes {options.minbytes} is more than maxbytes {options.maxbytes}")
