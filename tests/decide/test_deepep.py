"""What DeepEP's test prints on each node, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from agent.errors import UsageError
from agent.workloads.deepep import DeepEp, elastic, printed
from agent.workloads.deepep.options import Asked, asked
from agent.workloads.deepep.speed import SpeedLimits, judge_speed
from tests.cluster.programs.deepep import (
    NEWEST,
    RELEASES,
    Release,
    cases,
    elastic_cases,
    elastic_head,
    elastic_measured,
    head,
    measured,
)

ABOUT = "script /opt/deepep/DeepEP/tests/test_internode.py\nversion 1.2.1+8a07e7e\n" + "gpu NVIDIA B200\n" * 8
CONFIG = {"num_tokens": 4096, "hidden": 7168, "num_topk_groups": 2, "num_topk": 8}
NEW = RELEASES[NEWEST]
CASE_LINES = [f"{case} passed\n" for case in cases(NEW)]
BEST_LINES = [f"{line}\n" for line in measured(NEW) if "Best" in line]


def output_of(release: Release) -> str:
    passed = [f"{case} passed" for case in cases(release)]
    return "\n".join([head(2), *passed, "", *measured(release), ""])


GOOD = output_of(NEW)
HEAD = head(2)
NCCL = "node-1:88:91 [0] NCCL WARN a line of another process\n"
CUT = "node-1:88:91 [0] NCCL INFO Channel 14/0 : 7"
DEFAULT = SpeedLimits(90.0, 10.0)


def node(output: str = GOOD, errors: str = "") -> printed.Node:
    return printed.read_node(ABOUT, output, errors)


def test_a_good_node() -> None:
    found = node()
    assert found.whole and printed.incomplete(found, "pod 1") == []
    assert (found.begun, found.passed, found.config, found.gpus) == (
        printed.CASES,
        printed.CASES,
        CONFIG,
        "8 × NVIDIA B200",
    )
    assert found.script.endswith("/test_internode.py") and found.version == "1.2.1+8a07e7e"
    assert wire.from_json(printed.Node, wire.to_json(found)) == found


@pytest.mark.parametrize(
    ("name", "count", "times"),
    [
        ("0c984e2", 24, (None, None, None)),
        ("eb155da", 24, (754.4, 1408.6, 1813.0)),
        ("v1.2.1", 32, (754.4, 1408.6, 1813.0)),
        ("8a07e7e", 32, (754.0, 1409.0, 1813.0)),
    ],
)
def test_every_release_is_read(name: str, count: int, times: tuple[float | None, ...]) -> None:
    found = node(output_of(RELEASES[name]))
    assert found.whole and (found.begun, found.passed, found.cases) == (count, count, count)
    setting, figures = "SMs 24, NVL chunk 4, RDMA chunk 12", ((70.5, 231.0), (81.25, 265.0), (75.0, 245.0))
    best = [printed.Best(rdma, nvl, setting, time) for (rdma, nvl), time in zip(figures, times, strict=True)]
    assert [found.best[operation] for operation in printed.OPERATIONS] == best


def test_a_case_that_passed_shows_that_a_collective_was_done() -> None:
    awaited = DeepEp.shows_collective
    begun, *rest = GOOD.partition(" passed")
    assert not awaited.search(begun.encode()) and awaited.search("".join([begun, *rest]).encode())


@given(st.lists(st.tuples(st.integers(0, len(GOOD.split(" passed")) - 2), st.sampled_from([NCCL, CUT])), max_size=8))
def test_lines_of_others_between_the_two_flushes_change_nothing(added: list[tuple[int, str]]) -> None:
    parts = GOOD.split(" passed")
    for place, text in added:
        parts[place] += text
    assert node(" passed".join(parts)) == node()


def test_lines_of_others_at_the_end_of_a_line_that_is_not_ended_change_nothing() -> None:
    assert node(GOOD.replace(" passed\n", f" passed{NCCL}\n").replace("(NVL)\n", f"(NVL){NCCL}\n")) == node()


def test_a_case_passes_once_and_only_when_it_was_begun() -> None:
    started = CASE_LINES[0].replace(" passed\n", "")
    assert node(f"{HEAD} passed\n passed\n").passed == 0
    assert node(f"{HEAD}{started} passed\n passed\n").passed == 1


@pytest.mark.parametrize("missing", [0, 17, 31])
def test_31_of_32(missing: int) -> None:
    lines = [line.replace(" passed", "") if i == missing else line for i, line in enumerate(CASE_LINES)]
    (reason,) = printed.incomplete(node(GOOD.replace("".join(CASE_LINES), "".join(lines))), "pod 1")
    name = CASE_LINES[missing].removeprefix("[testing] Running with ").removesuffix(" ... passed\n")
    assert reason == (f"pod 1: 31 of 32 cases passed; begun and not passed: case {missing + 1} ({name})")


@pytest.mark.parametrize(
    ("output", "reasons"),
    [
        ("", ["pod 1: none of 32 cases was begun"]),
        (HEAD, ["pod 1: none of 32 cases was begun"]),
        (GOOD.replace(CASE_LINES[-1], "", 1), ["pod 1: 31 of 32 cases passed, 31 were begun"]),
        (GOOD.replace(CASE_LINES[0], CASE_LINES[0] * 2, 1), ["pod 1: 33 of 32 cases passed, though 33 were begun"]),
        (GOOD.replace(BEST_LINES[2], ""), ["pod 1 has not measured combine to the end"]),
        (HEAD + "".join(CASE_LINES), ["pod 1 has not measured dispatch FP8, dispatch BF16, combine to the end"]),
    ],
)
def test_what_is_missing(output: str, reasons: list[str]) -> None:
    found = printed.incomplete(node(output), "pod 1")
    assert found == reasons and not node(output).whole


def test_a_silent_node() -> None:
    assert printed.incomplete(None, "pod 1") == ["pod 1 has left no output of the test"]
    assert printed.incomplete(printed.read_node("missing no tests/test_internode.py in /x\n", "", ""), "pod 1") == [
        "pod 1: no tests/test_internode.py in /x"
    ]


def test_a_check_that_failed() -> None:
    cut = GOOD[: GOOD.index(" passed", len(HEAD) + 900)]
    errors = "Traceback (most recent call last):\n  File …\n    raise ProcessRaisedException(msg, …)\n"
    errors += "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 3 terminated with …\n"
    wrong = node(cut, errors + "Traceback …\nAssertionError: 511 != 512\n")
    assert wrong.is_wrong and wrong.error == "AssertionError: 511 != 512"
    assert not node(cut, errors + "RuntimeError: DeepEP error: CPU recv timeout\n").is_wrong
    assert node(cut, "[rank3]: AssertionError\n[rank3]: more\nException ignored in: <f>\n").is_wrong
    assert not node(HEAD, "AssertionError\n").is_wrong, "no result was there to be checked"


def test_tables_have_a_row_for_each_pod() -> None:
    nodes = {2: node(HEAD), 0: node()}
    (table,) = printed.tables(nodes)
    assert table.rows == ((2, 0, *[None] * 6), (0, 32, 70.5, 231.0, 81.25, 265.0, 75.0, 245.0))
    text = printed.text_table(nodes).splitlines()
    assert text[2].split() == ["0", "32/32", "70.50", "/", "231.00", "81.25", "/", "265.00", "75.00", "/", "245.00"]
    assert printed.tables({}) == [] and printed.text_table({}) == ""


def test_releases_that_differ_are_all_named() -> None:
    assert printed.versions({0: node(), 1: node()._replace(version="1.1")}) == {"DeepEP": "1.1, 1.2.1+8a07e7e"}
    assert printed.versions({0: printed.Node()}) == {}


# The elastic test


def elastic_output(node: int = 1, last: int = elastic.CASES) -> str:
    lines = [elastic_head(node, 2)]
    for case in list(elastic_cases())[:last]:
        lines += [case, *elastic_measured(node, 2)]
    return "\n".join([*lines, "", ""])


def elastic_node(output: str, status: str = "0", errors: str = "", args: Sequence[str] = ()) -> printed.Node:
    about = f"test elastic\n{ABOUT}nvshmem 3.4.5\nstatus {status}\n"
    return printed.read_node(about, output, errors, args)


def test_a_good_node_of_the_elastic_test() -> None:
    found = elastic_node(elastic_output())
    assert found.whole and printed.incomplete(found, "pod 1") == []
    assert (found.begun, found.passed, found.cases, found.test) == (144, 144, 144, "elastic")
    config = [2, 8, 6, 256, 4096, 7168, 12, 13]
    assert list(found.config.values()) == config and found.config["num_scaleout_ranks"] == 2
    assert found.best["dispatch BF16"] == printed.Best(89.0, 296.0, "", 1338.123), "that of the slowest GPU"
    assert {"expanded dispatch FP8", "cached dispatch BF16", "reduced combine"} < set(found.best)
    assert wire.from_json(printed.Node, wire.to_json(found)) == found
    assert printed.versions({1: found}) == {"DeepEP": "1.2.1+8a07e7e"}, "NVSHMEM has no part in it"
    assert DeepEp.shows_collective.search(elastic_output().encode())


@pytest.mark.parametrize(
    ("node_", "reasons"),
    [
        (elastic_node(""), ["pod 1: none of 144 cases was begun"]),
        (elastic_node(elastic_output(last=143)), ["pod 1: 143 of 144 cases passed, 143 were begun"]),
        (elastic_node(elastic_output(last=1), args=["--test-first-only"]), []),
        (elastic_node("\n".join(elastic_cases()), args=["--skip-perf-test"]), []),
        (
            elastic_node("\n".join(elastic_cases())),
            ["pod 1 has not measured dispatch FP8, dispatch BF16, combine to the end"],
        ),
    ],
)
def test_what_is_missing_of_the_elastic_test(node_: printed.Node, reasons: list[str]) -> None:
    assert printed.incomplete(node_, "pod 1") == reasons and node_.whole == (not reasons)


def test_a_check_of_the_elastic_test_that_failed() -> None:
    wrong = elastic_node(elastic_output(last=7), "1", "AssertionError: Diff: 0.5\n")
    assert wrong.is_wrong and wrong.open[0].startswith("7 (do_handle_copy=1, expert_alignment=128, use_fp8_dispatch=1")
    assert not elastic_node("", "1", "AssertionError: Invalid NCCL versions: …\n").is_wrong, "nothing was begun"


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ({}, "not judged", "no reference is known for the elastic test"),
        ({"best": {"combine": printed.Best(6.0, 20.0)}}, "failed", "combine 6.00 GB/s over RDMA, below 10 GB/s"),
        ({"best": {}}, "not judged", "has measured nothing"),
        # All is scale-up then.
        (
            {"config": {"num_scaleout_ranks": 1}, "best": {"combine": printed.Best(0.0, 56.0)}},
            "not judged",
            "--allow-hybrid-mode 0",
        ),
    ],
)
def test_the_speed_of_the_elastic_test(change: dict[str, object], status: str, told: str) -> None:
    node_ = elastic_node(elastic_output())._replace(**change)  # type: ignore[arg-type]
    speed = judge_speed({0: node_}, 2, DEFAULT, None)
    assert speed.gate["status"] == status and told in speed.gate["reason"]
    assert len(speed.reasons) == (status == "failed"), "the GPU-NIC mapping is NVSHMEM's"


# How fast


def slow(rdma: float) -> printed.Node:
    return node()._replace(best={name: best._replace(rdma=rdma) for name, best in node().best.items()})


def test_the_published_figures_pass() -> None:
    speed = judge_speed({0: node(), 1: node()}, 2, DEFAULT, "0:mlx5_0:1")
    assert (speed.reasons, speed.gate["status"]) == ([], "passed")
    assert "90 % of the reference for 2 nodes" in speed.gate["reason"]


@pytest.mark.parametrize(("percent", "status"), [(90, "failed"), (80, "passed"), (0, "passed")])
def test_below_the_reference(percent: float, status: str) -> None:
    best = {**node().best, "combine": printed.Best(65.0, 200.0)}
    speed = judge_speed({0: node(), 1: node()._replace(best=best)}, 2, SpeedLimits(percent, 10.0), None)
    assert speed.gate["status"] == status
    if status == "failed":
        assert speed.reasons == ["pod 1: combine 65.00 GB/s over RDMA, below 67.5 GB/s, 90 % of the reference"]


@pytest.mark.parametrize(
    ("change", "count", "why"),
    [
        ({"gpus": ""}, 2, "no telling which GPUs"),
        ({"gpus": "8 × NVIDIA H100 80GB HBM3"}, 2, "no reference is known for 2 nodes of 8 × NVIDIA H100"),
        ({}, 3, "no reference is known for 3 nodes"),
        ({"config": {**CONFIG, "num_tokens": 128}}, 2, "this is num_tokens=128"),
        ({"config": {**CONFIG, "hidden": 2048}}, 2, "hidden=2048"),
        ({"config": {}}, 2, "the reference is for"),
    ],
)
def test_without_a_reference_it_is_not_judged(change: dict[str, object], count: int, why: str) -> None:
    speed = judge_speed({0: slow(12.0)._replace(**change)}, count, DEFAULT, None)  # type: ignore[arg-type]
    assert (list(speed.reasons), speed.gate["status"]) == ([], "not judged")
    assert why in speed.gate["reason"]


@pytest.mark.parametrize(("mapping", "told"), [(None, "is not set here"), ("0:mlx5_0:1", "is '0:mlx5_0:1' here")])
def test_all_gpus_through_one_nic(mapping: str | None, told: str) -> None:
    for node_ in (slow(6.5), slow(6.5)._replace(gpus="")):
        speed = judge_speed({0: node(), 1: node_}, 2, DEFAULT, mapping)
        assert speed.gate["status"] == "failed"
        assert "pod 1: dispatch FP8 6.50 GB/s over RDMA" in speed.reasons[0]
        assert "GPU-NIC mapping" in speed.reasons[-1] and told in speed.reasons[-1]


def test_a_floor_of_ones_own() -> None:
    without = node()._replace(gpus="")
    speed = judge_speed({0: without}, 2, SpeedLimits(90.0, 72.5), None)
    assert speed.reasons == ["pod 0: dispatch FP8 70.50 GB/s over RDMA, below 72.5 GB/s, the floor (--min-rdma)"]
    few = slow(3.0)._replace(config={**CONFIG, "num_tokens": 16})
    assert judge_speed({0: few}, 2, SpeedLimits(90.0, 0.0), None).gate["status"] == "not judged"


def test_options_of_ours_and_of_the_test() -> None:
    assert asked(["--num-tokens", "2048"]) == Asked("", DEFAULT, ["--num-tokens", "2048"])
    words = ["--min-percent=80", "--hidden", "7168", "--min-rdma", "50", "--test-ll-compatibility"]
    assert asked(words) == Asked("", SpeedLimits(80.0, 50.0), ["--hidden", "7168", "--test-ll-compatibility"])
    words = ["--test", "elastic", "--test-first-only"]
    assert asked(words) == Asked("elastic", DEFAULT, ["--test-first-only"])
    for words in (["--min-rdma", "fast"], ["--min-percent=-1"], ["--min-rdma", "nan"]):
        with pytest.raises(UsageError, match=r"is not a number \(at least 0\)"):
            asked(words)
