"""Many runs: what is compared over time, and what the page of all of them says."""

from __future__ import annotations

from typing import Any

import pytest

from agent.decide.result import Result
from agent.decide.result_reader import read_result
from agent.workbench.comparing.key_figures import key_figures, trends_of
from agent.workbench.comparing.trends import MOST_TRENDS, series_page
from tests.report.examples import (
    NOON,
    SIZES,
    Json,
    pod,
    result,
    sweep,
    table,
    training,
    verdict,
)
from tests.report.test_model import texts

FAILED = verdict("too slow", 65)


def measured(peak: float = 380.0, *, day: float = 0.0, **changes: Any) -> Result:
    """One all_reduce of two pods."""
    given: Json = {"since": NOON + 86400 * day, "run": f"nccl-{day:g}", "sweeps": [sweep("all_reduce", 16, peak)]}
    return read_result(result("nccl", [pod(index) for index in range(2)]) | given | changes)


def of_table(name: str, columns: dict[str, str], rows: list[list[Any]], workload: str, **changes: Any) -> Result:
    return read_result(result(workload, [pod(0)], tables=[table(name, "T", [*columns.items()], rows)], **changes))


PAIRS = {"ranks": "", "latency": "µs", "bandwidth": "GB/s", "message": "bytes"}
DDP = {"rank": "", "rate": "samples/s", "step": "ms"}
DEEPEP = {"pod": "", "dispatch FP8 RDMA": "GB/s", "dispatch FP8 NVL": "GB/s", "combine RDMA": "GB/s"}
FIGURES: list[tuple[Result, list[tuple[str, str]]]] = [
    (measured(), [("all_reduce, 8 GiB", "370.9 GB/s"), ("all_reduce, 64 KiB", "0.73 GB/s")]),
    (measured(sweeps=[]), []),
    (
        read_result(result("pai-megatron-qwen3", [pod(0)], trainings=[training(**SIZES)])),
        [
            ("train, step time", "1.845 s"),
            ("train, speed", "93.50 TFLOP/s per GPU"),
            ("train, throughput", "142083 tokens/s"),
        ],
    ),
    (
        read_result(result("pai-megatron-qwen3", [pod(0)], trainings=[training("json-sft", nans=2)])),
        [("json-sft, step time", "✗ 1.845 s"), ("json-sft, speed", "✗ 93.50 TFLOP/s per GPU")],
    ),
    (
        of_table("ddp-ranks", DDP, [[0, 400.0, 20.0], [1, 390.0, 21.0], [2, 395.0, 20.5]], "ddp"),
        [("step time", "20.50 ms"), ("throughput", "1185 samples/s")],
    ),
    (
        of_table("pairs", PAIRS, [["0 - 8", 14.0, 46.0, 2**23], ["8 - 0", 16.0, 12.0, 2**23]], "nccl"),
        [("slowest neighbours", "12.00 GB/s"), ("latency, median", "15.00 µs")],
    ),
    (
        of_table("deepep", DEEPEP, [[0, 70.5, 231.0, 75.0], [1, 68.5, 230.0, None]], "deepep", record={"nodes": 5}),
        [("dispatch FP8 over RDMA", "68.50 GB/s"), ("combine over RDMA", "75.00 GB/s")],
    ),
    (of_table("ddp-ranks", DDP, [], "ddp"), []),
    (of_table("anything", DDP, [[0, 400.0, 20.0]], "ddp"), []),
    (of_table("ddp-ranks", DDP, [[0, 400.0, 20.0]], "of another version"), []),
]


def test_key_figures() -> None:
    for found, figures in FIGURES:
        assert [(one.subject.name, one.text) for one in key_figures(found)] == figures


def test_a_collective_that_was_measured_several_times_counts_once() -> None:
    sweeps = [sweep("all_reduce", 16, peak) for peak in (100.0, 300.0, 200.0)]
    (large, _) = key_figures(measured(sweeps=sweeps))
    assert large.value == sorted(one["rows"][-1]["out_of_place"]["busbw"] for one in sweeps)[1]


def test_wrong_elements_cross_their_size_alone() -> None:
    bad = sweep("all_reduce", 16)
    bad["rows"][-1]["in_place"]["wrong"] = 3
    assert [one.wrong for one in key_figures(measured(sweeps=[bad]))] == [True, False]
    assert [one.wrong for one in key_figures(measured(verdict=FAILED))] == [True, True]


H200 = {"gpus": "8 × NVIDIA H200"}
OTHERS: dict[str, Json] = {
    "workload": {"workload": "collectives"},
    "pods": {"pods": [pod(index) for index in range(4)]},
    "GPUs of each pod": {"slots": 4},
    "GPU": {"pods": [pod(index, inventory=H200) for index in range(2)]},
    "two kinds of GPUs": {"pods": [pod(0), pod(1, inventory=H200)]},
    "GPU not known": {"pods": [pod(index, inventory={}) for index in range(2)]},
    "collective": {"sweeps": [sweep("all_gather", 16)]},
    "type": {"sweeps": [sweep("all_reduce", 16, type="bfloat16")]},
    "operation": {"sweeps": [sweep("all_reduce", 16, redop="max")]},
    "backend": {"sweeps": [sweep("all_reduce", 16, backend="gloo")]},
    "ranks": {"sweeps": [sweep("all_reduce", 8)]},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_trends_never_join_what_is_not_alike(changes: Json) -> None:
    trends = trends_of([key_figures(measured()), key_figures(measured(**changes)), key_figures(measured())])
    assert [[run for run, _ in one.points] for one in trends] == [[0, 2], [0, 2], [1], [1]]


def test_other_sizes_are_other_trends() -> None:
    shorter = sweep("all_reduce", 16)
    shorter["rows"] = shorter["rows"][:-1]
    trends = trends_of([key_figures(measured()), key_figures(measured(sweeps=[shorter]))])
    assert [(one.subject.name, len(one.points)) for one in trends] == [
        ("all_reduce, 8 GiB", 1),
        ("all_reduce, 64 KiB", 2),
        ("all_reduce, 4 GiB", 1),
    ]


def test_neighbours_are_one_trend_whichever_message_was_the_fastest() -> None:
    runs = [
        of_table(
            "pairs", PAIRS, [["0 - 8", 14.0, 46.0, 2**fast], ["8 - 0", 16.0, 12.0, 2**23]], "connectivity", **asked
        )
        for fast, asked in ((23, {}), (20, {}), (23, {"args": ["--sizes", "8388608"]}))
    ]
    found = [one for one in trends_of([key_figures(one) for one in runs]) if one.subject.name == "slowest neighbours"]
    assert [len(one.points) for one in found] == [2, 1]


MANY = [
    measured(400, day=3, name="nightly", note="new driver"),
    measured(100, day=1, verdict=FAILED),
    measured(380, day=0),
    measured(420, day=2),
    measured(sweeps=[], day=9, verdict=verdict("cancelled", 130)),
]


def test_runs_keep_their_order_and_failed_ones_do_not_count() -> None:
    page = series_page(MANY, ["x is not JSON"])
    assert (page.title, page.unread) == ("5 runs: 1 failed, 1 ended, 3 passed", ["x is not JSON"])
    assert page.span == "4 Mar 2026 to 13 Mar 2026, UTC"
    assert [row[1] for row in texts(page.runs)] == ["nightly", *["nccl"] * 4]
    assert texts(page.runs)[1][2:4] == ["✗ 97.62 GB/s all_reduce, 8 GiB", "✗ failed (65)"]
    assert [row[6:8] for row in texts(page.runs)][:2] == [["new driver", "–"], ["–", "too slow"]]
    assert texts(page.runs)[4][2:4] == ["–", "■ ended (130)"]
    large, small = texts(page.overview)
    assert large == ["all_reduce, 8 GiB", "390.5", "390.5", "the same", "370.9", "410.0", "GB/s", "–", "3", "✗ 1"]
    assert small[0] == "all_reduce, 64 KiB"
    view = page.trends[0]
    where = "nccl · 2 pods × 8 NVIDIA B200 · nccl · float"
    assert page.overview and [group.heading for group in page.overview.groups] == [where]
    assert view.about[0] == where
    assert view.about[1] == "median 390.5 GB/s of 3 runs, the last the same; 1 run crossed"
    assert [row[0] for row in texts(view.grid)] == ["1", "2", "3", "4"]
    middle, curve = view.pictures[0].lines
    assert [value for _, value in middle.points] == [390.47] * 2
    assert sorted(moment for moment, _ in curve.points) == [NOON, NOON + 2 * 86400, NOON + 3 * 86400]
    assert [moment for moment, _ in curve.apart] == [NOON + 86400]


@pytest.mark.parametrize(
    ("make", "values", "words"),
    [
        (lambda value: measured(value), (380, 380, 300), "21 % less, worse ▼"),
        (lambda value: measured(value), (380, 380, 430), "13 % more, better ▲"),
        (lambda value: measured(value), (240, 100, 180, 150, 200, 99), "40 % less"),
        (lambda value: measured(value), (200, 202, 198, 201, 199, 150), "25 % less, worse ▼"),
        (lambda value: of_table("ddp-ranks", DDP, [[0, 1.0, value]], "ddp"), (20.0, 20.0, 22.0), "10 % more, worse ▼"),
        (lambda value: of_table("ddp-ranks", DDP, [[0, 1.0, value]], "ddp"), (20.0, 20.0, 18.0), "10 % less, better ▲"),
        (lambda value: of_table("ddp-ranks", DDP, [[0, 1.0, value]], "ddp"), (20.0, 20.0, 20.6), "3 % more"),
        (lambda value: of_table("ddp-ranks", DDP, [[0, 1.0, value]], "ddp"), (0.0, 0.0, 1.0), "–"),
        (lambda value: of_table("ddp-ranks", DDP, [[0, 1.0, value]], "ddp"), (20.0,), "–"),
    ],
)
def test_the_last_run_beside_the_median(make: Any, values: tuple[float, ...], words: str) -> None:
    page = series_page([make(value) for value in values], [])
    assert texts(page.overview)[0][3] == words


def steady(*peaks: float, **later: Any) -> list[Result]:
    """A run a day; `later`: changes of those below 350."""
    return [measured(peak, day=day, **(later if peak < 350 else {})) for day, peak in enumerate(peaks)]


WORSE = (380.0, 381.0, 379.0, 380.0, 382.0, 379.0, 333.0, 334.0, 333.0)


def test_the_first_worse_run_and_what_changed_with_it() -> None:
    versions = {"nccl": "2.29.1", "torch": "2.9.1+cu130", "cuda": "13.0", "a4-agent": "0.2.0"}
    later = [pod(0, node="gke-9"), pod(1)]
    runs = steady(*WORSE, versions=versions, pods=later, image="unified:2")
    page = series_page([*runs[::-1]], [])  # in any order
    assert texts(page.overview)[0][7] == "no. 3 ▼"
    assert page.worse == ["Worse ▼ since no. 3, nccl: all_reduce, 8 GiB; all_reduce, 64 KiB"]
    assert page.trends[0].about[2] == (
        "Worse ▼ since no. 3, nccl, 2026-03-10 12:00:00 UTC: then 12 % less, median 325.1 after 370.9 GB/s. "
        "What changed since no. 4: nccl 2.28.9 → 2.29.1, image none → unified:2 "
        "and nodes (gke-9 came; gke-a4-pool-4c9f4b71-0000 left)."
    )
    same = series_page(steady(*WORSE), [])
    assert same.trends[0].about[2].endswith("What changed since no. 6: nothing that results tell.")


@pytest.mark.parametrize(
    "peaks",
    [
        WORSE[:5],
        WORSE[::-1],  # better
        (240, 100, 180, 150, 200, 99, 170),  # scatters
        (380, 381, 379, 380, 382, 366, 365),  # less than 5 %
    ],
)
def test_no_first_worse_run(peaks: tuple[float, ...]) -> None:
    page = series_page(steady(*peaks), [])
    assert len(page.trends[0].about) == 2 and texts(page.overview)[0][7] == "–"


def test_runs_that_all_failed_have_no_median() -> None:
    page = series_page([measured(verdict=FAILED, day=day) for day in range(5)], [])
    assert texts(page.overview)[0][1:6] == ["–"] * 5
    assert page.trends[0].about[1] == "5 runs crossed"
    assert len(page.trends[0].pictures[0].lines) == 1


@pytest.mark.parametrize("since", [0.0, -5.0, 1e30])
def test_moments_that_have_no_date(since: float) -> None:
    page = series_page([measured(since=since)] * 5, [])
    assert page.span == ""
    assert page.trends[0].pictures[0].lines[0].points == []
    assert page.overview is not None and page.runs.length == 5


def test_very_many_trends_are_cut_and_the_page_says_so() -> None:
    sweeps = [sweep(f"test_{number}", 16) for number in range(MOST_TRENDS)]
    runs = [measured(sweeps=sweeps), measured(sweeps=sweeps), measured(sweeps=sweeps[-1:])]
    page = series_page(runs, [])
    assert (len(page.trends), page.overview and page.overview.length) == (MOST_TRENDS, 2 * MOST_TRENDS)
    assert f"test_{MOST_TRENDS - 1}, 8 GiB" in [view.name for view in page.trends]  # three runs have it
    assert (
        page.cut == f"The {MOST_TRENDS} of {2 * MOST_TRENDS} measurements that most runs have; the table above has all."
    )
    assert series_page(MANY, []).cut == ""
