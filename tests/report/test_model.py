"""What the page of one run says."""

from __future__ import annotations

import re

import pytest

from agent.report.bandwidth import names
from agent.report.charts import Line, Picture, _ticks, chart, spread
from agent.report.grid import MOST_ROWS, Grid, cells, grid, number
from agent.report.model import RunPage, run_page, table_grid
from agent.report.places import order_words
from agent.report.reading import read_result
from agent.report.startup import MOST_BARS, SLOWEST
from tests.report.examples import (
    EXAMPLES,
    NOON,
    Json,
    collectives,
    ddp,
    many,
    pod,
    result,
    sweep,
    table,
    training,
    verdict,
)


def page(data: Json) -> RunPage:
    return run_page(read_result(data))


def texts(found: Grid | None) -> list[list[str]]:
    assert found is not None
    return [[cell.text for cell in row] for group in found.groups for row in group.rows]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("ddp", "✓ passed: ddp-5f1c09 · a4-train-x7k2p"),
        ("wrong", "✗ failed (65): collectives-5f1c09 · a4-train-x7k2p"),
        ("ended", "■ ended (130): script-5f1c09 · a4-train-x7k2p"),
        ("none", "✓ passed: none-5f1c09"),
    ],
)
def test_the_verdict_comes_first(name: str, title: str) -> None:
    assert page(EXAMPLES[name]()).title == title


def test_facts() -> None:
    found = dict(page(ddp()).facts)
    assert found["pods × slots"] == "4 × 8 = 32 ranks"
    assert (found["took"], found["limits"]) == ("5 min 13 s", "time 1 h, silence 10 min")
    assert found["arguments"] == "--steps 50"
    assert found["GPUs of each pod"] == "8 × NVIDIA B200"
    assert found["software"] == "torch 2.9.1+cu130, CUDA 13.0, NCCL 2.28.9, driver 580.95.05"
    assert "job" not in dict(page(EXAMPLES["none"]()).facts)


def test_nothing_is_told_twice() -> None:
    found = page(EXAMPLES["gated"]())
    assert (found.reasons, found.gate) == ([], ("bad", "failed", ""))
    assert len(page(EXAMPLES["wrong"]()).reasons) == 2


def test_overview() -> None:
    found = page(EXAMPLES["wrong"]())
    line = texts(found.overview)[0]
    assert line[:3] == ["all_reduce", "32", "1 KiB to 8 GiB"]
    assert line[4] == "4 GiB out-of-place"
    assert line[-1] == "✗ 1048593"
    assert found.sweeps[0].pictures[0].lines[0].wrong == {2**24}
    assert [line.label for line in found.sweeps[0].pictures[0].lines] == ["out-of-place", "in-place"]
    assert page(ddp()).overview is None


def test_overview_with_a_baseline() -> None:
    found = page(EXAMPLES["gated"]())
    assert found.overview is not None
    assert [column.name for column in found.overview.columns][-3:] == ["of baseline", "least", "wrong"]
    assert texts(found.overview)[0][-3:] == ["69 %", "69 %", "0"]
    assert found.sweeps[0].pictures[0].lines[0].label == "baseline"


def test_a_sweep_without_rows_or_checks() -> None:
    unchecked = sweep("all_reduce", rows=[], average_busbw=None)
    found = page(result("nccl", [pod(0)], sweeps=[unchecked]))
    assert texts(found.overview)[0] == ["all_reduce", "32", "–", "–", "–", "–", "not checked"]


def test_names_of_sweeps_are_different() -> None:
    sweeps = [sweep("all_reduce"), sweep("all_reduce", type="bfloat16"), sweep("all_reduce"), sweep("")]
    found = names(read_result(result("nccl", [pod(0)], sweeps=sweeps)).sweeps)
    assert found == ["all_reduce float sum", "all_reduce bfloat16 sum", "all_reduce float sum (2)", "collective"]


def test_trainings_have_a_line_and_three_curves_each() -> None:
    found = page(EXAMPLES["trained"]())
    assert texts(found.trained) == [
        ["train", "97", "11.90", "2.102", "1.840", "93.50", "1", "0"],
        ["json-sft", "9", "11.90", "3.100", "1.840", "93.50", "1", "✗ 2"],
    ]
    first, second = found.trainings
    assert [picture.title for picture in first.pictures] == ["loss", "step time", "speed"]
    assert [len(picture.lines[0].points) for picture in first.pictures] == [96, 97, 97]
    assert (first.about, second.about) == (("97 iterations, to 97 of 97",), ("9 iterations, to 9 of 9",))
    assert second.pictures[0].lines[0].wrong == {9}
    assert first.grid.length == 97
    assert page(ddp()).trained is None


def test_a_training_that_was_thinned_says_so() -> None:
    data = result("pai-megatron-qwen3", [pod(0)], trainings=[training(count=50) | {"count": 5000, "planned": 10000}])
    assert page(data).trainings[0].about == ("5000 iterations, of which 50 are shown, to 50 of 10000",)


def test_tables_are_summed_up() -> None:
    found = page(ddp()).tables[0]
    assert [[cell.text for cell in row] for row in found.foot] == [
        ["least", "", "800.5", "19.71", "1.210"],
        ["median", "", "806.3", "19.87", "1.210"],
        ["greatest", "", "812.0", "20.02", "1.210"],
    ]
    assert [column.kind for column in found.columns] == ["number"] * 5


def test_cells_of_every_kind() -> None:
    data = table("t", "T", [("a", ""), ("b", "s"), ("c", "")], [["x", 1.5, True], [None, None, False]])
    found = table_grid(read_result(result("none", [], tables=[data])).tables[0])
    assert texts(found) == [["x", "1.500", "✓ yes"], ["–", "–", "✗ no"]]
    assert [column.kind for column in found.columns] == ["text", "number", "text"]
    assert found.foot == ()


def test_long_tables_are_cut_and_say_so() -> None:
    found = grid("T", [number("n")], ([str(n)] for n in range(MOST_ROWS + 1)))
    assert found.length == MOST_ROWS
    assert found.note == f"The first {MOST_ROWS} of {MOST_ROWS + 1} rows; result.json has them all."
    assert grid("T", [number("n")], [["1"]]).note == ""
    assert cells([["a"]])[0][0].text == "a"


# order


def test_the_order_is_grouped_by_block() -> None:
    found = page(ddp())
    assert [group.heading.split(" · ")[1] for group in found.order.groups] == [
        "2 pods, ranks 0–15",
        "2 pods, ranks 16–31",
    ]
    assert [column.name for column in found.order.columns] == ["ranks", "pod", "node", "sub-block", "host"]
    assert [row[:2] for row in texts(found.order)] == [["0–7", "0"], ["8–15", "2"], ["16–23", "1"], ["24–31", "3"]]


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        ([], "No places are known"),
        ([["c", "b", "s", "h"]] * 2, "All are in one block."),
        ([["c", "r", "h"]] * 2, "All are in one rack."),
        ([["c", "a"], ["c", "b"]], "1 pair of neighbours in rank is in different blocks, the least possible."),
        ([["c", "a"], ["c", "b"], ["c", "a"]], "2 pairs of neighbours in rank are in different blocks: 1 block split."),
        ([["c"], ["d"]], "2 pods in 2 clusters; places from physical_host_topology."),
    ],
)
def test_words_on_the_order(places: list[list[str]], sentence: str) -> None:
    pods = [pod(index, place=place) for index, place in enumerate(places)] or [pod(0, place=[])]
    assert sentence in " ".join(order_words(read_result(result("none", pods))))


def test_a_place_that_is_shorter_than_others() -> None:
    pods = [pod(0, place=["c", "b", "s", "h"]), pod(1, place=["c", "b"]), pod(2, place=[])]
    found = page(result("none", pods, slots=1)).order
    assert [group.heading for group in found.groups] == [
        "block b, cluster c · 2 pods, ranks 0–1",
        "place unknown · 1 pod, ranks 2–2",
    ]
    assert [row[-2:] for row in texts(found)] == [["s", "h"], ["–", "–"], ["–", "–"]]


# start-up


def test_startup() -> None:
    found = page(collectives()).startup
    assert found is not None
    assert [phase.phase for phase in found.phases] == [1, 2, 3, 4, 5, 6, 7]
    assert found.phases[-1].last == "9.40 s"
    assert (len(found.bars), found.aggregated) == (4, False)
    for bar in found.bars:
        ends = [one.left + one.width for one in bar.stretches]
        assert ends == sorted(ends) and ends[-1] <= 100.01
    assert found.ran == "The processes then ran for 5 min 11 s."


def test_a_run_that_was_submitted_later_is_drawn_from_its_submission() -> None:
    pods = [pod(index) for index in range(2)]
    for index, each in enumerate(pods):
        started = {"process-started": NOON + 600.2, "ranks-ready": NOON + 601 + index, "process-ended": NOON + 700}
        each["phases"] |= started
    found = page(result("ddp", pods, since=NOON + 600, until=NOON + 701)).startup
    assert found is not None
    assert (found.since, found.total) == ("the run’s submission", "2.00 s")
    assert [(phase.words, phase.first, phase.last) for phase in found.phases] == [
        ("process started", "0.20 s", "0.20 s"),
        ("all ranks found", "1.00 s", "2.00 s"),
    ]
    assert [[one.phase for one in bar.stretches] for bar in found.bars] == [[6, 7], [6, 7]]
    assert [bar.ready for bar in found.bars] == ["1.00 s", "2.00 s"]


def test_startup_of_many_pods_shows_the_slowest() -> None:
    found = page(many()).startup
    assert found is not None and found.aggregated
    assert len(found.bars) == SLOWEST < MOST_BARS
    assert found.bars[0].label == "pod 61"
    assert found.phases[2].last_pod == "pod 61"


@pytest.mark.parametrize("phases", [{}, {"agent-started": 5.0}, {"unknown": 1.0, "other": 2.0}])
def test_no_startup_without_phases(phases: dict[str, float]) -> None:
    assert page(result("none", [pod(0, phases=phases)])).startup is None


def test_startup_of_a_pod_that_came_nowhere() -> None:
    found = page(EXAMPLES["none"]()).startup
    assert found is not None
    assert [bar.label for bar in found.bars] == ["pod 0"]


# pods


def test_pods() -> None:
    found = page(EXAMPLES["lost"]())
    assert [row[1] for row in texts(found.pods)] == [
        "✗ signal 15, because of pod 2",
        "✗ signal 15, because of pod 2",
        "✗ lost: not heard for 30 s, the cause",
        "✗ signal 15, because of pod 2",
    ]
    assert dict(found.shared)["driver"] == "580.95.05"


@pytest.mark.parametrize(
    ("where", "code", "shown"),
    [
        ("pod 1, a4-1", 1, ["✗ signal 15, because of pod 1", "✗ exit 1, the cause"]),
        ("", 1, ["✗ signal 15", "✗ exit 1"]),
        ("pod 1, a4-1", 143, ["✗ signal 15", "✗ exit 1"]),  # told to end
    ],
)
def test_the_pod_that_is_the_cause(where: str, code: int, shown: list[str]) -> None:
    pods = [pod(0, status=-15), pod(1, status=1)]
    found = page(result("script", pods, verdict=verdict("it failed", code, where=where)))
    assert [row[1] for row in texts(found.pods)] == shown


def test_what_differs_is_a_column() -> None:
    found = page(EXAMPLES["wrong"]())
    assert [column.name for column in found.pods.columns][-2:] == ["driver", "kernel"]
    assert texts(found.pods)[3][-2:] == ["570.133.20", "6.6.97+"]
    assert texts(found.differences) == [
        ["driver", "580.95.05", "570.133.20", "pod 3"],
        ["kernel", "6.12.55+", "6.6.97+", "pod 3"],
    ]
    assert page(ddp()).differences is None


def test_launch() -> None:
    found = page(ddp())
    assert found.command.startswith("torchrun --nnodes=4")
    assert [name for name, _ in found.added] == ["A4_RECORD", "A4_RUN", "MASTER_ADDR", "MASTER_PORT"]
    assert ("HF_TOKEN", "***") in found.environment
    assert page(EXAMPLES["none"]()).command == ""


# charts


def test_ticks_keep_their_decimals() -> None:
    svg = chart(Picture([Line("in-place", [(1024, 0.02), (2048, 0.1)])], "a", "b"))
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert {"0.000", "0.025", "0.050", "0.075", "0.100"} <= set(shown), shown


def test_labels_keep_apart_and_inside() -> None:
    assert spread([50, 50, 50], 10, 100) == [50, 60, 70]
    assert spread([99, 98], 10, 100) == [100, 90]
    assert spread([10, 80], 10, 100) == [10, 80]
    assert spread([], 10, 100) == []


@pytest.mark.parametrize(("low", "high"), [(3, 33), (10, 10), (3.2, 3.9), (0, 1), (10, 13), (0, 60)])
def test_ticks(low: float, high: float) -> None:
    found = _ticks(low, high)
    assert 1 <= len(found) <= 6
    assert all(2 ** (low - 0.01) <= tick <= 2 ** (high + 0.01) for tick in found)
