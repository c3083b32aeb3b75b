"""The arguments of `nccl`: its own options, and those that every program of nccl-tests gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.errors import UsageError
from agent.fabrics import FABRICS
from agent.workloads.option import Option

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
OPTIONS = (
    Option(("--tests",), "A,B", f"which: {', '.join(TESTS)}", "all_reduce,all_gather", several=TESTS),
    Option(("--repeat",), "N", "runs of each test: the median is judged, spread and worst run are shown", "1"),
    Option(("--min-percent",), "P", "percentage of the baseline that is enough, else 65", "90"),
    Option(("--min-busbw",), "G", "GB/s that the best size of every test must reach, else 65"),
    Option(("--save-baseline",), "NAME", "save a good run as a baseline"),
)
"""Those of our own; all others go to every program of nccl-tests."""
OWN = tuple(name.removeprefix("--") for option in OPTIONS for name in option.names)
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
DEFAULT_TESTS = ("all_reduce", "all_gather")
SIZES = {"b": "2M", "e": "16G", "f": "2"}
# One timed iteration, as in the old guides' `-n 1 -w 10`, measures nothing: nobody can tell it from an outlier.
COUNTS = {"g": "1", "n": "20", "w": "5"}
HINT = "a4-agent run nccl --help lists its options; all others go to nccl-tests: -b, -e, -f, -n, -w, …"


@dataclass(frozen=True)
class Options:
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
    """Timed ones; None: what was given is no number."""
    json_elsewhere: bool = False
    """-J was given: that file is the user's."""


def parse_options(words: Sequence[str], profile: str = "") -> Options:
    """The options in `words`, with the defaults of a fabric profile. Raises UsageError."""
    own: dict[str, str] = {}
    passed: list[str] = []
    values: dict[str, str] = {}
    for name, value, raw in _read(words):
        if name in OWN:
            own[name] = value
            continue
        passed += raw
        if name:
            values[name] = value
    fabric = FABRICS.get(profile)
    usual = {**SIZES, **COUNTS, **(fabric.nccl_options if fabric else {})}
    defaults = {name: value for name, value in usual.items() if name not in values}
    if "i" in values:
        defaults.pop("f", None)  # a step and a factor exclude each other
    all_values = {**defaults, **values}
    return Options(
        tests=_tests(own["tests"]) if "tests" in own else tuple((fabric and fabric.nccl_tests) or DEFAULT_TESTS),
        arguments=(*(word for name, value in defaults.items() for word in (f"-{name}", value)), *passed),
        repeat=_whole("--repeat", own.get("repeat", "1"), 100),
        min_percent=_amount("--min-percent", own.get("min-percent", "90")),
        min_busbw=_amount("--min-busbw", own["min-busbw"]) if "min-busbw" in own else None,
        save_baseline=_saved(own.get("save-baseline")),
        width=_whole("-t", all_values.get("t", "1"), 1024) * _whole("-g", all_values["g"], 1024),
        iterations=int(all_values["n"]) if re.fullmatch(r"[0-9]{1,9}", all_values["n"]) else None,
        json_elsewhere="J" in values,
    )


def _read(words: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """(name, value, the words themselves) of each option: a name of OWN, a short one of LONG, or "" for others."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, value, needs = _option(word)
        if not word.startswith("-") or word in ("-", "--"):
            tests = " (a test is named so: --tests all_reduce)" if word.removesuffix("_perf") in TESTS else ""
            raise UsageError(f"nccl has no use for the word {word!r}{tests}", HINT)
        if name == "h":
            raise UsageError("a4-agent run nccl -- [OPTION…]", HINT)
        raw = [word]
        if needs:
            if not rest:
                raise UsageError(f"nccl: {word} needs a value", HINT)
            value = rest.pop(0)
            raw.append(value)
        elif not name and rest and not rest[0].startswith("-"):
            raw.append(rest.pop(0))  # an option of another release, perhaps with a value
        yield name, value, raw


def _option(word: str) -> tuple[str, str, bool]:
    """(name, value, does the value follow). As getopt does, the beginning of a long name will do if no other has it."""
    if word.startswith("--") and len(word) > 2:
        text, given, value = word[2:].partition("=")
        if "help".startswith(text):
            return "h", "", False
        known = [name for name in (*OWN, *LONG) if name.startswith(text)]
        name = text if text in known else known[0] if len(known) == 1 else ""
        return LONG.get(name, name), value, bool(name) and not given
    short, value = word[1:2], word[2:]
    if short in LONG.values():
        return short, value, not value
    return ("h" if short == "h" else ""), "", False


def _tests(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip().removesuffix("_perf") for name in text.split(",")))
    unknown = [name for name in names if name not in TESTS]
    if unknown:
        raise UsageError(f"--tests: nccl-tests has no {', '.join(map(repr, unknown))}", f"it has {', '.join(TESTS)}")
    return names


def _whole(option: str, text: str, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= most:
        raise UsageError(f"{option} {text!r}: a whole number from 1 to {most} is wanted")
    return int(text)


def _amount(option: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        raise UsageError(f"{option} {text!r}: a number is wanted, such as 90")
    return float(text)


def _saved(text: str | None) -> str:
    """A name, or the absolute path of a file; empty when none is given."""
    if text is None:
        return ""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}|/[^\0\n]{1,1000}", text):
        raise UsageError(f"--save-baseline {text!r}: a name or the absolute path of a file is wanted")
    return text
