from __future__ import annotations

import pytest

from agent.errors import UsageError
from agent.workloads.nccl.options import LONG, TESTS, NcclOptions, parse_options


def given(*words: str, profile: str = "") -> NcclOptions:
    return parse_options(words, profile)


def arguments(*words: str, profile: str = "") -> str:
    return " ".join(given(*words, profile=profile).arguments)


@pytest.mark.parametrize("profile", ["", "none", "a4-gib", "a4-deepep"])
def test_defaults(profile: str) -> None:
    options = given(profile=profile)
    assert options.tests == ("all_reduce", "all_gather")
    assert " ".join(options.arguments) == "-b 2M -e 16G -f 2 -g 1 -n 20 -w 5"
    assert (options.repeat, options.min_percent, options.min_busbw, options.save_baseline) == (1, 90.0, None, "")
    assert (options.width, options.iterations, options.json_elsewhere) == (1, 20, False)


def test_defaults_of_tcpx() -> None:
    assert given(profile="a3-tcpx").tests == ("all_gather",)
    assert arguments(profile="a3-tcpx") == "-b 1M -e 512M -f 2 -g 1 -n 100 -w 5"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-b", "8"], "-e 16G -f 2 -g 1 -n 20 -w 5 -b 8"),
        (["-b8"], "-e 16G -f 2 -g 1 -n 20 -w 5 -b8"),
        (["--minbytes", "8"], "-e 16G -f 2 -g 1 -n 20 -w 5 --minbytes 8"),
        (["--minb", "8"], "-e 16G -f 2 -g 1 -n 20 -w 5 --minb 8"),
        (["-i", "1M"], "-b 2M -e 16G -g 1 -n 20 -w 5 -i 1M"),
        (["--iters", "100", "-w", "0"], "-b 2M -e 16G -f 2 -g 1 --iters 100 -w 0"),
        (["-c", "0", "-d", "all"], "-b 2M -e 16G -f 2 -g 1 -n 20 -w 5 -c 0 -d all"),
        (["--new", "1", "-Z", "-c", "1"], "-b 2M -e 16G -f 2 -g 1 -n 20 -w 5 --new 1 -Z -c 1"),
        (["-o", "-1"], "-b 2M -e 16G -f 2 -g 1 -n 20 -w 5 -o -1"),
        (["--repeat", "2"], "-b 2M -e 16G -f 2 -g 1 -n 20 -w 5"),
    ],
)
def test_what_is_given_replaces_the_default_and_goes_on_as_it_is(words: list[str], expected: str) -> None:
    assert arguments(*words) == expected


@pytest.mark.parametrize("name", LONG)
def test_every_option_takes_a_value_in_both_spellings(name: str) -> None:
    short = LONG[name]
    assert given(f"--{name}", "1").arguments[-2:] == (f"--{name}", "1")
    assert given(f"-{short}", "1").arguments[-2:] == (f"-{short}", "1")
    with pytest.raises(UsageError, match=f"argument -{short}/--{name}: expected one argument"):
        given(f"-{short}")


def test_own_options() -> None:
    options = given("--tests=all_gather_perf, sendrecv", "--repeat", "3", "--min-percent", "95.5", "--min-busbw", "300")
    assert options.tests == ("all_gather", "sendrecv")
    assert (options.repeat, options.min_percent, options.min_busbw) == (3, 95.5, 300.0)
    assert given("--tests", ",".join(TESTS)).tests == TESTS
    assert given("--save-baseline", "/a/b.json").save_baseline == "/a/b.json"
    assert given("--save", "mine").save_baseline == "mine"
    assert (given("-t", "2", "-g4").width, given("-n", "0x10").iterations) == (8, None)
    assert given("-J", "/x.json").json_elsewhere and given("--output_file=x.json").json_elsewhere


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--tests", "all_reduc"], "nccl-tests has no 'all_reduc'"),
        (["all_reduce"], "--tests all_reduce"),
        (["-b", "1M", "2M"], "unexpected argument '2M'"),
        (["-Z", "1", "2M"], "unexpected argument '2M'"),
        (["--", "-b", "1M"], "unexpected argument '--'"),
        (["--repeat", "0"], "--repeat: '0'"),
        (["--repeat", "101"], "--repeat: '101' is not a whole number from 1 to 100"),
        (["--min-percent", "-1"], "--min-percent: '-1'"),
        (["--min-busbw=fast"], "--min-busbw: 'fast'"),
        (["--save-baseline", "a/b"], "--save-baseline: 'a/b'"),
        (["-g", "all"], "-g/--ngpus: 'all'"),
        (["-h"], "run nccl"),
        (["--help"], "run nccl"),
        (["--tests"], "--tests: expected one argument"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], what: str) -> None:
    with pytest.raises(UsageError) as caught:
        given(*words)
    assert what in caught.value.what
