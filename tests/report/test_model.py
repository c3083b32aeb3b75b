"""What the page of one run says."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from agent.decide.result_reader import read_result
from agent.report.bandwidth import names
from agent.report.charts import LATENCY, Line, Picture, Scale, chart, spread
from agent.report.grid import MOST_ROWS, Grid, cells, grid, number
from agent.report.model import SECTIONS, run_page, table_grid
from agent.report.places import order_words
from agent.report.startup import MOST_BARS, SLOWEST
from agent.report.ticks import Ticks, duration_ticks, moment_ticks, size_ticks
from tests.report.examples import (
    EXAMPLES,
    NOON,
    Json,
    collectives,
    ddp,
    ended,
    launch,
    lost,
    many,
    none,
    pod,
    result,
    sweep,
    table,
    training,
    verdict,
    wrong,
)


def page(data: Json) -> SimpleNamespace:
    """With what each section shows under its id; None: it is left out."""
    found = run_page(read_result(data))
    sections = dict.fromkeys(section.id for section in SECTIONS) | {one.id: shown for one, shown in found.sections}
    return SimpleNamespace(**sections, **vars(found))


def texts(found: Grid | None) -> list[list[str]]:
    assert found is not None
    return [[cell.text for cell in row] for group in found.groups for row in group.rows]


def test_the_verdict_comes_first() -> None:
    assert [page(make()).title for make in (ddp, wrong, ended, none)] == [
        "✓ passed: ddp --steps 50 · a4-train-x7k2p",
        "✗ failed (65): collectives · a4-train-x7k2p",
        "■ ended (130): script · a4-train-x7k2p",
        "✓ passed: none",
    ]


def test_a_run_is_called_by_its_name_or_command() -> None:
    done = {"args": ["python3", "-c", "x\ny"], "verdict": verdict("python3 done", origin="workload")}
    found = page(result("mpirun", [pod(0)], **done))
    assert (found.called, found.what) == ("mpirun python3 -c 'x\\ny'", "")
    assert page(result("mpirun", [pod(0)], name="night-1", **done)).called == "night-1"
    assert page(result("mpirun", [pod(0)], args=["x" * 999])).called.endswith("x …")
    assert page(ddp()).what == "ddp is good: 32 ranks on 4 pods"


def test_facts() -> None:
    found = dict(page(ddp()).facts)
    assert found["pods × slots"] == "4 × 8 = 32 ranks"
    assert (found["took"], found["limits"]) == ("5 min 13 s", "time 1 h, silence 10 min")
    assert found["arguments"] == "--steps 50"
    assert found["GPUs of each pod"] == "8 × NVIDIA B200"
    assert found["software"] == "torch 2.9.1+cu130, CUDA 13.0, NCCL 2.28.9, driver 580.95.05"
    assert "job" not in dict(page(EXAMPLES["none"]()).facts)
    by_torchrun = launch("script") | {"argv": ["python", "-m", "torch.distributed.run", "train.py"]}
    found = dict(page(result("script", [pod(0)], launch=by_torchrun, versions={})).facts)
    assert found["software"] == "torch not known, driver 580.95.05"


def test_the_peak_is_that_of_the_placement_which_is_named() -> None:
    slower = sweep("all_reduce")
    for row in slower["rows"]:
        row["out_of_place"]["busbw"] /= 2
    assert texts(page(result("nccl", [pod(0)], sweeps=[slower])).bandwidth[0])[0][3:5] == ["380.0", "8 GiB in-place"]


def test_the_worst_rank_is_named() -> None:
    note = page(ddp()).measured[1][0].note
    assert note == "Worst: samples 800.5 1/s on rank 31, step 20.02 ms on rank 31."


def test_nothing_is_told_twice() -> None:
    found = page(EXAMPLES["gated"]())
    assert (found.reasons, found.gate) == ([], ("bad", "failed", ""))
    assert len(page(EXAMPLES["wrong"]()).reasons) == 2


def test_overview() -> None:
    found = page(EXAMPLES["wrong"]())
    line = texts(found.bandwidth[0])[0]
    assert line[:3] == ["all_reduce", "32", "1 KiB to 8 GiB"]
    assert line[4] == "4 GiB out-of-place"
    assert line[-1] == "✗ 1048593"
    assert found.bandwidth[1][0].pictures[0].lines[0].wrong == {2**24}
    labels = ["out-of-place", "in-place"]
    assert [line.label for line in found.bandwidth[1][0].pictures[0].lines] == labels
    one_way = page(result("nccl", [pod(0)], sweeps=[sweep("alltoall")])).bandwidth[1][0].pictures
    assert [[line.label for line in picture.lines] for picture in one_way] == [labels[:1]] * 2
    assert page(ddp()).bandwidth is None


def test_overview_with_a_baseline() -> None:
    found = page(EXAMPLES["gated"]())
    assert [column.name for column in found.bandwidth[0].columns][-3:] == ["of baseline", "least", "wrong"]
    assert texts(found.bandwidth[0])[0][-3:] == ["69 %", "69 %", "0"]
    assert found.bandwidth[1][0].pictures[0].lines[0].label == "baseline"
    bare = sweep("all_reduce", baseline={"name": "b", "source": "s", "rows": []})
    pictures = page(result("nccl", [pod(0)], sweeps=[bare])).bandwidth[1][0].pictures
    assert [line.label for line in pictures[0].lines] == ["out-of-place", "in-place"]


def test_a_sweep_without_rows_or_checks() -> None:
    unchecked = sweep("all_reduce", rows=[], average_busbw=None)
    found = page(result("nccl", [pod(0)], sweeps=[unchecked]))
    assert texts(found.bandwidth[0])[0] == ["all_reduce", "32", "–", "–", "–", "–", "not checked"]


def test_names_of_sweeps_are_different() -> None:
    sweeps = [sweep("all_reduce"), sweep("all_reduce", type="bfloat16"), sweep("all_reduce"), sweep("")]
    found = names(read_result(result("nccl", [pod(0)], sweeps=sweeps)).sweeps)
    assert found == ["all_reduce float sum", "all_reduce bfloat16 sum", "all_reduce float sum (2)", "collective"]


def test_trainings_have_a_line_and_three_curves_each() -> None:
    found = page(EXAMPLES["trained"]())
    assert texts(found.training[0]) == [
        ["train", "0", "11.90", "2.102", "1.845", "1.855", "2.610 at 50", "142\u202f083", "9.1 %", "93.50", "97", "1"],
        ["json-sft", "0", "11.90", "3.100", "1.845", "1.855", "1.855 at 3", *["not known"] * 2, "93.50", "9", "1"],
    ]
    first, _ = found.training[1]
    assert [picture.title for picture in first.pictures] == ["loss", "step time", "speed"]
    assert [len(picture.lines[0].points) for picture in first.pictures] == [96, 96, 97]
    said = "to 97 of 97; the first took 31.5 s and is not among the step times"
    assert first.about == (f"97 iterations, {said}",)
    assert page(EXAMPLES["diverged"]()).training[1][0].pictures[0].lines[0].wrong == {61, 62}
    assert first.grid.length == 97
    assert page(ddp()).training is None


def test_a_training_that_was_thinned_says_so() -> None:
    data = result("pai-megatron-qwen3", [pod(0)], trainings=[training(count=50) | {"count": 5000, "planned": 10000}])
    assert page(data).training[1][0].about[0].startswith("5000 iterations, of which 50 are shown, to 50 of 10000;")


def test_tables_are_summed_up() -> None:
    found = page(ddp()).measured[1][0]
    assert [[cell.text for cell in row] for row in found.foot] == [
        ["least", "800.5", "19.71", "1.210", ""],
        ["median", "806.3", "19.87", "1.210", ""],
        ["greatest", "812.0", "20.02", "1.210", ""],
    ]
    assert [column.kind for column in found.columns] == ["number"] * 5


def test_cells_of_every_kind() -> None:
    data = table("t", "T", [("a", ""), ("b", "s"), ("c", "")], [["x", 1.5, True], [None, None, False]])
    found = table_grid(read_result(result("none", [], tables=[data])).tables[0])
    assert texts(found) == [["x", "1.500", "✓ yes"], ["–", "–", "✗ no"]]
    assert [column.kind for column in found.columns] == ["text", "number", "text"]
    assert found.foot == ()


def test_what_was_measured_comes_first_and_sizes_have_their_unit() -> None:
    (found,) = page(EXAMPLES["connectivity"]()).measured[1]
    assert [column.name for column in found.columns] == ["ranks", "latency", "bandwidth", "message", "pods"]
    assert [column.unit for column in found.columns] == ["", "µs", "GB/s", "", ""]
    assert texts(found)[0] == ["0 - 8", "14.25", "46.50", "8 MiB", "a4-train-workload-0-0 - a4-train-workload-0-1"]
    assert [cell.text for cell in found.foot[0]] == ["least", "14.25", "12.00", "", ""]


def test_long_tables_are_cut_and_say_so() -> None:
    found = grid("T", [number("n")], ([str(n)] for n in range(MOST_ROWS + 1)))
    assert found.length == MOST_ROWS
    assert found.note == f"The first {MOST_ROWS} of {MOST_ROWS + 1} rows; result.json has them all."
    assert grid("T", [number("n")], [["1"]]).note == ""
    assert cells([["a"]])[0][0].text == "a"


# order


def test_the_order_is_grouped_by_block() -> None:
    found = page(ddp())
    assert [group.heading.split(" · ")[1] for group in found.order[1].groups] == [
        "2 pods, ranks 0–15",
        "2 pods, ranks 16–31",
    ]
    assert [column.name for column in found.order[1].columns] == ["ranks", "pod", "node", "sub-block", "host"]
    assert [row[:2] for row in texts(found.order[1])] == [["0–7", "0"], ["8–15", "2"], ["16–23", "1"], ["24–31", "3"]]


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
    found = page(result("none", pods, slots=1)).order[1]
    assert [group.heading for group in found.groups] == [
        "block b, cluster c · 2 pods, ranks 0–1",
        "place unknown · 1 pod, rank 2",
    ]
    assert [row[-2:] for row in texts(found)] == [["s", "h"], ["–", "–"], ["–", "–"]]


# start-up


def test_startup() -> None:
    found = page(collectives()).startup
    assert [phase.phase for phase in found.phases] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (found.total, found.phases[-1].last, found.until) == ("9.90 s", "9.90 s", "the first collective was done")
    assert (len(found.bars), found.aggregated) == (4, False)
    for bar in found.bars:
        ends = [one.left + one.width for one in bar.stretches]
        assert ends == sorted(ends) and ends[-1] <= 100.01
    assert found.ran == "From then on, the processes ran for 5 min 02 s."  # 9.90 s + 5 min 02 s = 312.2 s


def test_startup_without_a_collective_ends_when_the_pods_are_ready() -> None:
    pods = [pod(index) for index in range(2)]
    for each in pods:
        del each["phases"]["first-collective"]
    found = page(result("script", pods)).startup
    assert (found.total, found.until) == ("9.40 s", "the last pod was ready")
    assert found.ran.endswith("the processes ran for 5 min 03 s. When a first collective was done is not known.")


def test_the_last_life_is_drawn_from_its_start() -> None:
    """Its replaced pod has started after the run."""
    data = lost()
    for index, each in enumerate(data["pods"]):
        started = {"process-started": NOON + 101.7, "ranks-ready": NOON + 103}
        each["phases"] |= started | {"first-collective": NOON + 104 + index / 2}
    found = page(data).startup
    assert (found.since, found.total) == ("the start of the last life", "4.00 s")


def test_a_run_that_was_submitted_later_is_drawn_from_its_submission() -> None:
    pods = [pod(index) for index in range(2)]
    for index, each in enumerate(pods):
        started = {"process-started": NOON + 600.2, "ranks-ready": NOON + 601 + index, "process-ended": NOON + 700}
        each["phases"] |= started | {"first-collective": NOON + 603}
    found = page(result("ddp", pods, since=NOON + 600, until=NOON + 701)).startup
    assert (found.since, found.total) == ("the run’s submission", "3.00 s")
    assert found.ran == "From then on, the processes ran for 1 min 37 s."
    assert [(phase.words, phase.first, phase.last) for phase in found.phases] == [
        ("process started", "0.20 s", "0.20 s"),
        ("all ranks found", "1.00 s", "2.00 s"),
        ("first collective done", "3.00 s", "3.00 s"),
    ]
    assert [[one.phase for one in bar.stretches] for bar in found.bars] == [[6, 7, 8], [6, 7, 8]]
    assert [bar.ready for bar in found.bars] == ["1.00 s", "2.00 s"]


def test_startup_of_many_pods_shows_the_slowest() -> None:
    found = page(many()).startup
    assert found.aggregated
    assert len(found.bars) == SLOWEST < MOST_BARS
    assert found.bars[0].label == "pod 61"
    assert found.phases[2].last_pod == "pod 61"


def test_startup_of_pods_that_came_nowhere() -> None:
    phases: list[dict[str, float]] = [{}, {"agent-started": 5.0}, {"unknown": 1.0, "other": 2.0}]
    assert [page(result("none", [pod(0, phases=one)])).startup for one in phases] == [None] * 3
    found = page(EXAMPLES["none"]()).startup
    assert [bar.label for bar in found.bars] == ["pod 0"]


# pods


def test_pods() -> None:
    found = page(EXAMPLES["lost"]())
    assert [row[1] for row in texts(found.pods[0])] == [
        "✗ signal 15, because of pod 2",
        "✗ signal 15, because of pod 2",
        "✗ lost: not heard for 30 s, the cause",
        "✗ signal 15, because of pod 2",
    ]
    assert dict(found.pods[1])["driver"] == "580.95.05"


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
    assert [row[1] for row in texts(found.pods[0])] == shown


@pytest.mark.parametrize(
    ("program", "lead", "free", "shown"),
    [
        ("/usr/bin/mpirun", 0, 0, ["✓ exit 0", "✓ ranks of mpirun", "✗ lost: silent"]),
        ("/usr/bin/mpirun", 0, 1, ["✓ exit 0", "ranks of mpirun, if any", "✗ lost: silent"]),
        ("/usr/bin/mpirun", 1, 0, ["✗ exit 1", "no process", "✗ lost: silent"]),
        ("torchrun", 0, 0, ["✓ exit 0", "no process", "✗ lost: silent"]),
    ],
)
def test_ranks_that_mpirun_started_on_other_pods(program: str, lead: int, free: int, shown: list[str]) -> None:
    """`free` slots have no rank."""
    pods = [pod(0, status=lead), pod(1, status=None), pod(2, status=None, lost="silent")]
    given = result("mpirun", pods)
    ranks = str(given["slots"] * len(pods) - free)
    found = page({**given, "launch": launch("x") | {"argv": [program, "-np", ranks, "hostname"]}})
    assert [row[1] for row in texts(found.pods[0])] == shown


def test_the_inventory_has_plain_words() -> None:
    told = {"mpirun_version_text": "mpirun (Open MPI) 4.1.4\n\nReport bugs", "memlock": "8 MiB", "shm": "64 MiB"}
    other = pod(1, inventory=told | {"shm": "32 MiB"})
    found = page(result("none", [pod(0, inventory=told), other]))
    assert dict(found.pods[1])["Open MPI"] == "mpirun (Open MPI) 4.1.4"
    assert dict(found.pods[1])["memory that may be locked"] == "8 MiB"
    assert found.pods[0].columns[-1].name == "shared memory (/dev/shm)"


def test_what_differs_is_a_column() -> None:
    found = page(EXAMPLES["wrong"]())
    assert [column.name for column in found.pods[0].columns][-2:] == ["driver", "kernel"]
    assert texts(found.pods[0])[3][-2:] == ["570.133.20", "6.6.97+"]
    assert texts(found.differences) == [
        ["driver", "580.95.05", "570.133.20", "pod 3"],
        ["kernel", "6.12.55+", "6.6.97+", "pod 3"],
    ]
    assert page(ddp()).differences is None


def test_launch() -> None:
    found = page(ddp())
    assert found.launch[0].startswith("torchrun --nnodes=4")
    assert [name for name, _ in found.launch[1]] == ["A4_RECORD", "A4_RUN", "MASTER_ADDR", "MASTER_PORT"]
    assert ("HF_TOKEN", "***") in found.launch[2]
    assert page(EXAMPLES["none"]()).launch[0] == ""


# charts


def test_ticks_keep_their_decimals() -> None:
    shown = words_in(Picture([Line("in-place", [(1024, 0.02), (2048, 0.1)])], "a", "b"))
    assert {"0.000", "0.025", "0.050", "0.075", "0.100"} <= set(shown), shown


def words_in(picture: Picture) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", chart(picture))


def test_labels_keep_apart_and_inside() -> None:
    assert spread([50, 50, 50], 10, 100) == [50, 60, 70]
    assert spread([99, 98], 10, 100) == [100, 90]
    assert spread([10, 80], 10, 100) == [10, 80]
    assert spread([], 10, 100) == []


MINUTES, HOURS, DAYS = 60.0, 3600.0, 86400.0
SIZES = [
    (3, 33, ["8 B", "8 KiB", "8 MiB", "8 GiB"]),
    (10, 13, ["1 KiB", "2 KiB", "4 KiB", "8 KiB"]),
    (16, 26, ["256 KiB", "4 MiB", "64 MiB"]),
    (10, 10, ["1 KiB"]),
    (3.2, 3.9, ["9 B"]),
    (0, 60, ["1 B", "1 MiB", "1 TiB", "1024 PiB"]),
]
MOMENTS = [
    (0, ["12:00"]),
    (10 * MINUTES, ["12:05", "12:10"]),
    (36 * HOURS, ["5 Mar", "12:00", "6 Mar"]),
    (25 * DAYS, ["5 Mar", "12 Mar", "19 Mar", "26 Mar"]),
    (4 * 365 * DAYS, ["Dec 2026", "Dec 2027", "Dec 2028", "Dec 2029"]),
]
DURATIONS = [
    (1, 5, ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms"]),
    (-2, 0, ["10 ns", "100 ns", "1 µs"]),
    (0, 9, ["1 µs", "100 µs", "10 ms", "1 s", "100 s"]),
    (7, 9, ["10 s", "100 s", "1000 s"]),
]
TICKS: list[tuple[Ticks, list[str]]] = [
    *((size_ticks(low, high), words) for low, high, words in SIZES),
    *((moment_ticks(NOON + 7, NOON + 7 + span), words) for span, words in MOMENTS),
    *((duration_ticks(low, high), words) for low, high, words in DURATIONS),
]


def test_ticks() -> None:
    for found, words in TICKS:
        assert [text for _, text in found] == words
        assert [at for at, _ in found] == sorted(at for at, _ in found)


def test_what_does_not_count_has_a_cross_and_room_but_no_curve() -> None:
    """And what takes no time has no place on a logarithmic axis."""
    moments = Scale("GB/s", "UTC", "moments")
    picture = Picture([Line("", [(NOON, 90.0)], apart=[(NOON + 60, 180.0)])], "a", "b", moments)
    assert "150" in words_in(picture) and "--bad" in chart(picture)
    assert chart(Picture([Line("A", [(8, 0.0)])], "a", "b", LATENCY)) == ""


def test_lives_say_why_the_run_started_again() -> None:
    assert page(ddp()).lives is None
    ended, started = "0.2 s to end", "0.5 s to start"
    assert texts(page(lost()).lives) == [
        [
            "1",
            "2026-03-04 12:00:00 UTC",
            "1 min 30 s",
            "rank 9 was killed by SIGKILL",
            "pod 2",
            "",
            f"{ended}, {started}",
        ],
        [
            "2",
            "2026-03-04 12:00:00 UTC",
            "1 min 30 s",
            "a pod was lost during the run",
            "pod 2",
            "pod 2",
            f"{ended}, 11.0 s until replaced, {started}",
        ],
    ]
