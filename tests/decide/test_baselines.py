from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.workloads.nccl import baselines
from agent.workloads.nccl_tests import parse
from agent.workloads.sweeps import Measured, MeasuredSweep, Row

SHIPPED = Path(__file__).parents[2] / "env" / "baselines.json"
TCPX = Path(__file__).parent / "nccl_tests" / "tcpx_all_gather.txt"
B200, H200 = "NVIDIA B200", "NVIDIA H200"
KEY = baselines.Key("a4-gib", "all_gather", 2, 8, model=B200)
G8 = 8 << 30


def sweep(speeds: dict[int, float], iterations: int | None = 20, **changes: Any) -> MeasuredSweep:
    rows = tuple(
        Row(size, size // 4, Measured(1.0, speed, speed, 0), Measured(1.0, 999.0, 999.0, 0))
        for size, speed in speeds.items()
    )
    return MeasuredSweep("all_gather", 16, "nccl", "float", "none", -1, iterations, 5, rows, 1.0, 0, None, **changes)


def run(*speeds: float, key: baselines.Key = KEY, size: int = G8, **changes: Any) -> baselines.Runs:
    return baselines.Runs(key, [sweep({1 << 20: 1.0, size: speed}, **changes) for speed in speeds])


def baseline(
    speed: float = 344.0, key: baselines.Key = KEY, size: int = G8, name: str = "one"
) -> baselines.KnownBaseline:
    return baselines.KnownBaseline(name, "somebody", (key,), 20, 5, {size: speed})


def judged(
    *tests: baselines.Runs, entries: list[baselines.KnownBaseline] | None = None, percent: float = 90.0, **more: Any
) -> tuple[str, str]:
    more.setdefault("min_busbw", None)
    gate = baselines.judge(tests, [baseline()] if entries is None else entries, min_percent=percent, **more)
    return gate.status, gate.reason


def test_the_shipped_file() -> None:
    entries = baselines.parse_file(SHIPPED.read_text())
    keys = [key for entry in entries for key in entry.keys]
    assert {key.profile for key in keys} == {"a4-gib", "a4-deepep", "a3-tcpx"}
    assert all(entry.source and (entry.iterations is None or entry.iterations >= 5) for entry in entries)
    known = baselines.find(entries, baselines.Key("a4-gib", "all_reduce", 2, 8, model=B200))
    assert {baselines.size_text(size): entry.busbw[size] for size, entry in known.items()} == {
        "8G": 675.5,
        "16G": 684.5,
        "512M": 593.8,
    }
    assert baselines.parse_file(baselines.file_text(entries)) == entries


def test_the_table_of_the_guide_is_as_good_as_itself() -> None:
    (table,) = parse(TCPX.read_text())
    test = baselines.Runs(
        baselines.Key("a3-tcpx", "all_gather", 2, 8, model="NVIDIA H100 80GB HBM3"), [replace(table, iterations=100)]
    )
    status, reason = judged(test, entries=baselines.parse_file(SHIPPED.read_text()))
    assert status == "passed" and "at least 100.0 %" in reason


@pytest.mark.parametrize(
    ("speeds", "percent", "status", "words"),
    [
        ((344.0,), 90.0, "passed", "at least 100.0 % of the baseline (all_gather 8G)"),
        ((309.6,), 90.0, "passed", "90 % are wanted"),
        ((309.5,), 90.0, "failed", "all_gather of 8G: 309.50 GB/s are 89.9 % of 344.00 GB/s (one), 90 % are wanted"),
        ((309.5,), 80.0, "passed", ""),
        ((200.0, 344.0, 350.0), 90.0, "passed", ""),
        ((200.0, 201.0, 350.0), 90.0, "failed", "201.00 GB/s"),
    ],
)
def test_the_median_out_of_place_counts(speeds: tuple[float, ...], percent: float, status: str, words: str) -> None:
    found = judged(run(*speeds), percent=percent)
    assert found[0] == status and words in found[1]


@pytest.mark.parametrize(
    ("test", "why"),
    [
        (run(100.0, iterations=4), "4 timed iterations, 5 are needed"),
        (baselines.Runs(KEY, [*run(100.0).sweeps, *run(100.0, iterations=1).sweeps]), "1 timed iterations"),
        (run(100.0, iterations=None), "the number of timed iterations is not known"),
        (run(100.0, groups=8), "NCCL_TESTS_SPLIT"),
        (run(100.0, size=G8 * 2), "the baseline has other sizes: 8G"),
        (
            run(100.0, key=KEY._replace(profile="a3-tcpx")),
            "no baseline for all_gather on 2 nodes of 8 × NVIDIA B200 with profile a3-tcpx",
        ),
        (run(100.0, key=KEY._replace(nodes=4)), "no baseline for all_gather on 4 nodes of 8 × NVIDIA B200"),
        (run(100.0, key=KEY._replace(nodes=1)), "on 1 node of 8 × NVIDIA B200"),
        (run(100.0, key=KEY._replace(gpus=4)), "no baseline"),
        (run(100.0, key=KEY._replace(type="half")), "no baseline for all_gather half"),
        (run(100.0, key=KEY._replace(profile="")), "with profile none"),
        (run(100.0, key=KEY._replace(model=H200)), "no baseline for all_gather on 2 nodes of 8 × NVIDIA H200"),
        (run(100.0, key=KEY._replace(model="")), "8 GPUs of an unknown model"),
        (run(100.0, key=KEY._replace(operation="mulsum")), "no baseline for all_gather mulsum on"),
        (run(100.0, key=KEY._replace(root=3)), "no baseline for all_gather root 3 on"),
    ],
)
def test_what_cannot_be_compared_is_not_judged(test: baselines.Runs, why: str) -> None:
    status, reason = judged(test)
    assert status == "not judged" and why in reason


def test_a_part_that_is_not_judged_is_told() -> None:
    other = run(1.0, key=KEY._replace(collective="all_reduce"))
    status, reason = judged(run(344.0), other)
    assert status == "passed" and "all_reduce not judged: there is no baseline" in reason
    assert judged()[0] == "not judged"
    assert judged(run(1.0), why_not="the network is wrong") == (
        "not judged",
        "all_gather not judged: the network is wrong",
    )


def test_a_floor_is_for_the_best_size() -> None:
    assert judged(run(300.0), entries=[], min_busbw=300.0) == ("passed", "every test reaches 300 GB/s")
    status, reason = judged(run(299.0), entries=[], min_busbw=300.0)
    assert (status, reason) == ("failed", "all_gather: at best 299.00 GB/s, --min-busbw 300 is wanted")
    assert judged(run(299.0, iterations=1), entries=[], min_busbw=300.0)[0] == "not judged"
    status, reason = judged(run(344.0), min_busbw=300.0)
    assert status == "passed" and "%" in reason and "every test reaches 300 GB/s" in reason


def test_of_several_baselines_the_last_counts() -> None:
    assert judged(run(344.0), entries=[baseline(), baseline(400.0, name="own")])[0] == "failed"
    assert judged(run(344.0), entries=[baseline(400.0), baseline(344.0, name="own")])[0] == "passed"


def test_what_is_saved_is_found_again() -> None:
    test = baselines.Runs(KEY, [sweep({1 << 20: 1.0, 1 << 29: 279.0, 1 << 30: 280.0, G8: 350.0}), sweep({G8: 340.0})])
    (entry,) = baselines.saved([test, run(1.0, iterations=1)], "mine", "own run x")
    assert (entry.busbw, entry.iterations, entry.warmup) == ({1 << 29: 279.0, 1 << 30: 280.0, G8: 345.0}, 20, 5)
    assert baselines.parse_file(baselines.file_text([entry])) == [entry]
    other = baseline(name="other")
    assert baselines.merged([entry, other], [entry]) == [other, entry]
    assert judged(test, entries=[entry])[0] == "passed"


def test_each_operation_is_saved_under_its_own_key() -> None:
    """As with `-o all`: what is healthy for mulsum says nothing about sum."""
    keys = {operation: KEY._replace(operation=operation) for operation in ("sum", "prod", "mulsum")}
    entries = baselines.saved([run(680.0, key=keys["sum"]), run(400.0, key=keys["mulsum"])], "mine", "own run x")
    assert baselines.parse_file(baselines.file_text(baselines.merged(entries, entries))) == entries
    assert judged(run(420.0, key=keys["sum"]), entries=entries)[0] == "failed"
    assert judged(run(420.0, key=keys["mulsum"]), entries=entries)[0] == "passed"
    assert judged(run(420.0, key=keys["prod"]), entries=entries)[0] == "not judged"


def test_a_file_of_an_older_release() -> None:
    """Its entries have no model, operation and root, and those of `-o all` one key: sum came first."""
    older = {"name": "mine", "profile": "a4-gib", "collective": "all_gather", "nodes": 2, "gpus_per_node": 8}
    older |= {"type": "float", "iterations": 20, "warmup": 5, "source": "own run x of job epoch y"}
    written = [{**older, "busbw": {"8G": speed}} for speed in (680.0, 500.0, 400.0)]
    (entry,) = entries = baselines.parse_file(json.dumps({"version": 1, "baselines": written}))
    assert entry.keys == (KEY._replace(model=""),)
    status, reason = judged(run(680.0, key=KEY._replace(model=H200)), entries=entries)
    assert status == "passed"
    assert reason.endswith("; the baseline mine names no GPU model and counts for every one")
    assert judged(run(420.0), entries=entries)[0] == "failed"
    assert judged(run(420.0, key=KEY._replace(operation="mulsum")), entries=entries)[0] == "not judged"
    assert "names no GPU model" not in judged(run(344.0))[1]
    as_printed = json.dumps(
        {"version": 1, "baselines": [{**older, "operation": "none", "root": -1, "busbw": {"8G": 1}}]}
    )
    assert baselines.parse_file(as_printed)[0].keys == entry.keys, "by hand, as nccl-tests prints them"


def test_cycles_are_not_runs() -> None:
    """With -N the rows of a table come again."""
    once = sweep({1 << 20: 1.0, G8: 344.0})
    cycles = replace(once, rows=(*once.rows, *sweep({1 << 20: 2.0, G8: 300.0}).rows, *sweep({G8: 350.0}).rows))
    assert baselines.Runs(KEY, [cycles]).speeds() == {1 << 20: [1.5], G8: [344.0]}
    assert baselines.Runs(KEY, [cycles, once]).speeds()[G8] == [344.0, 344.0]


GOOD = json.loads(SHIPPED.read_text())["baselines"][-1]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", '"version": 1'),
        ('{"version": 2, "baselines": []}', '"version": 1'),
        ('{"version": 1, "baselines": {}}', "a list"),
        (json.dumps({"version": 1, "baselines": [GOOD, {}]}), "entry 2 has no"),
        (json.dumps({"version": 1, "baselines": [7]}), "entry 1 is not as it should be"),
        *(
            (json.dumps({"version": 1, "baselines": [GOOD | change]}), what)
            for change, what in (
                ({"nodes": 0}, "0 is not a whole number"),
                ({"gpus_per_node": "8"}, "'8' is not a whole number"),
                ({"busbw": {"big": 1}}, "'big' is not a size"),
                ({"busbw": {"8G": "fast"}}, "entry 1"),
                ({"busbw": {"8G": 0}}, "above 0"),
                ({"busbw": {"8G": float("nan")}}, "above 0"),
                ({"busbw": {}}, "above 0"),
                ({"busbw": []}, "entry 1"),
                ({"profile": []}, "needs a profile"),
                ({"iterations": 1}, "fewer than 5 iterations"),
            )
        ),
    ],
)
def test_a_wrong_file_is_refused_in_words(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(what)):
        baselines.parse_file(text)


@pytest.mark.parametrize(
    ("text", "size"), [("8", 8), ("1k", 1024), ("512M", 1 << 29), ("8G", G8), ("1048577", 1048577)]
)
def test_sizes(text: str, size: int) -> None:
    assert baselines.size_of(text) == size
    assert baselines.size_of(baselines.size_text(size)) == size
