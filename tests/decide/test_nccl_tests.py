from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from agent.workloads.nccl_tests import FIRST_ROW, parse
from agent.workloads.sweeps import Measured, MeasuredSweep, Row

TEXTS = Path(__file__).parent / "nccl_tests"
TCPX = TEXTS / "tcpx_all_gather.txt"
"""The table of the GPUDirect-TCPX guide (two nodes, 16 ranks), as it is printed there."""


def only(text: str) -> MeasuredSweep:
    (sweep,) = parse(text)
    return sweep


# Documents


def test_table_of_the_tcpx_guide() -> None:
    sweep = only(TCPX.read_text())
    assert [row.size for row in sweep.rows] == [1 << power for power in range(20, 30)]
    first, last = sweep.rows[0], sweep.rows[-1]
    assert (first.count, sweep.type, sweep.redop, sweep.root) == (16384, "float", "none", -1)
    assert (first.out_of_place, first.in_place) == (Measured(696.8, 1.5, 1.41, 0), Measured(729.0, 1.44, 1.35, 0))
    assert (last.out_of_place, last.in_place) == (Measured(7101.7, 75.6, 70.87, 0), Measured(7060.9, 76.03, 71.28, 0))
    assert (sweep.out_of_bounds, sweep.average_busbw) == (0, 29.8293)
    assert (sweep.collective, sweep.ranks, sweep.iterations, sweep.warmup) == ("", 0, None, None)


@pytest.mark.parametrize("path", sorted(TEXTS.iterdir()), ids=lambda path: path.stem)
def test_the_first_row_can_be_waited_for(path: Path) -> None:
    found = FIRST_ROW.search(path.read_bytes())
    assert found and int(found[0].split()[0]) == parse(path.read_text())[0].rows[0].size


# Releases

BANNER = """\
# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22907
# Collective test starting: all_reduce_perf_mpi
# nThread 1 nGpus 1 minBytes 8 maxBytes 17179869184 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid     91 on      pod-0 device  0 [0000:8f:00] NVIDIA B200
#  Rank  1 Group  0 Pid     92 on      pod-0 device  1 [0000:90:00] NVIDIA B200
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
"""  # noqa: E501, W291
ROW = "  1073741824     268435456     float     sum      -1"
ROW += "  2869.11  374.24  374.24       0  2861.35  375.26  375.26       0\n"
OUT, IN = Measured(2869.11, 374.24, 374.24, 0), Measured(2861.35, 375.26, 375.26, 0)
FOOTER = """\
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 374.75 
#
# Collective test concluded: all_reduce_perf_mpi
#
"""  # noqa: W291


def row_of(text: str) -> Row:
    (row,) = only(text).rows
    return row


def test_a_run_of_two_tests_by_the_agent() -> None:
    """nccl-tests 2.19.6 on two pods with two H200 each, over sockets, with the agent's own lines in between."""
    first, second = parse((TEXTS / "h200_two_pods.txt").read_text())
    assert [(one.collective, one.ranks, one.copies, len(one.rows)) for one in (first, second)] == [
        ("all_reduce", 4, 1, 7),
        ("all_gather", 4, 1, 7),
    ]
    assert (first.average_busbw, second.average_busbw) == (3.23435, 2.98542)
    assert first.models == second.models == ("NVIDIA H200",)
    assert first.rows[-1].out_of_place == Measured(31533.3, 2.13, 3.19, 0)
    assert second.rows[0].in_place == Measured(455.59, 2.30, 1.73, 0)


def test_a_whole_table() -> None:
    sweep = only(BANNER + ROW + FOOTER)
    row = Row(1 << 30, 1 << 28, OUT, IN)
    assert sweep == MeasuredSweep(
        "all_reduce", 2, "nccl", "float", "sum", -1, 20, 1, (row,), 374.75, 0, None, models=("NVIDIA B200",)
    )


@pytest.mark.parametrize("version", ["banner", "one line more", "devices", "footer"])
def test_what_releases_leave_out_is_not_known(version: str) -> None:
    lines = BANNER.splitlines(keepends=True)
    text = {
        "banner": "".join(lines[4:]) + ROW + FOOTER,
        "one line more": "# some new line\n" + BANNER + ROW + "# GPU memory usage     : 3 GB\n" + FOOTER,
        "devices": "".join(line.replace(" Group  0", "") for line in lines) + ROW + FOOTER,
        "footer": BANNER + ROW + FOOTER.split("#\n")[0],
    }[version]
    sweep = only(text)
    assert (sweep.rows[0].in_place, sweep.average_busbw, sweep.ranks) == (IN, 374.75, 2)
    assert sweep.iterations == (None if version == "banner" else 20)
    assert sweep.collective == "all_reduce"


@pytest.mark.parametrize(
    ("lines", "models"),
    [
        ("#   Rank  0 Pid 120890 on 10-90-43-152 device  0 [0x87] A100-SXM4-40GB\n", ("A100-SXM4-40GB",)),
        ("#  Rank  0 Group  0 Pid    313 on worker-0 device  0 [0x18] NVIDIA H100 80GB HBM3\n",
         ("NVIDIA H100 80GB HBM3",)),
        ("#  Rank  0 Group  0 Pid     91 on pod-0 device  0 [0000:8f:00] NVIDIA B200\n"
         "#  Rank  1 Group  0 Pid     92 on p0 device  1 [0000:90:00] NVIDIA H200\n", ("NVIDIA B200", "NVIDIA H200")),
        ("#  Rank  0 Group  0 Pid     91 on pod-0 device  0 [0000:8f", ()),
    ],
)  # fmt: skip
def test_models_of_the_gpus(lines: str, models: tuple[str, ...]) -> None:
    assert only(lines).models == models


def test_an_operation_without_a_name() -> None:
    """hypercube_perf of every release prints nothing in that column."""
    sweep = only(BANNER.replace("all_reduce", "hypercube") + ROW.replace("   sum", "      ") + FOOTER)
    assert (sweep.redop, sweep.root, sweep.rows) == ("none", -1, (Row(1 << 30, 1 << 28, OUT, IN),))


OLD = "#                                             out-of-place                       in-place          \n"


@pytest.mark.parametrize(
    ("header", "row", "redop", "root"),
    [
        ("size         count      type   redop", "1024           256     float     sum", "sum", -1),
        ("size         count      type", "1024           256     float", "none", -1),
        ("size         count      type    root", "1024           256     float       3", "none", 3),
        ("size         count      type   redop    root", "1024           256     float     max       0", "max", 0),
    ],
)
def test_releases_before_2_13(header: str, row: str, redop: str, root: int) -> None:
    """Only the columns that the collective needs, and the largest difference instead of a number."""
    figures = "     24   algbw   busbw  error     time   algbw   busbw  error\n".replace("24", "time")
    text = (
        OLD
        + f"#       {header}{figures}        {row}       24    0.04    0.08  0e+00    23.91    0.04    0.08  4e-07\n"
    )
    found, sweep = row_of(text), only(text)
    assert (found.size, found.count, sweep.redop, sweep.root) == (1024, 256, redop, root)
    assert (found.out_of_place, found.in_place) == (Measured(24.0, 0.04, 0.08, 0), Measured(23.91, 0.04, 0.08, None))


HEAD = "     1048576        262144     float     sum      -1"


@pytest.mark.parametrize(
    ("figures", "out", "in_place"),
    [
        # -c 0
        ("    31.25   33.55   33.55    N/A    31.25   33.55   33.55    N/A",
         *[Measured(31.25, 33.55, 33.55, None)] * 2),
        # numbers that have no room
        ("  1.2e+07  123457    0.00       7    45678  2e+06  374.2  1.2e+06",
         Measured(1.2e7, 123457.0, 0.0, 7), Measured(45678.0, 2e6, 374.2, 1200000)),
        # -S
        ("    31.25   33.55   33.55       0    31.25   33.55   33.55       0  2025-11-03 12:30:01",
         *[Measured(31.25, 33.55, 33.55, 0)] * 2),
        # nothing was moved
        ("     5.01     inf    -nan       0     0.00     nan     inf    N/A", None, None),
        # only one placement: nccl-tests replaying a trace, entrypoints/collectives.py twice
        (" " * 32 + "    31.25   33.55   33.55       0", None, Measured(31.25, 33.55, 33.55, 0)),
        ("        -       -       -       -    31.25   33.55   33.55       0", None, Measured(31.25, 33.55, 33.55, 0)),
        ("    31.25   33.55   33.55       0        -       -       -       -", Measured(31.25, 33.55, 33.55, 0), None),
        # cut off
        ("    31.25   33.55   33.55       0    31.2", Measured(31.25, 33.55, 33.55, 0), None),
    ],
)  # fmt: skip
def test_figures(figures: str, out: Measured | None, in_place: Measured | None) -> None:
    found = row_of(BANNER + HEAD + figures + "\n")
    assert (found.out_of_place, found.in_place) == (out, in_place)


def test_a_row_without_figures_is_none() -> None:
    assert only(BANNER + HEAD).rows == ()
    assert only(BANNER + HEAD + "   31.25   33.5").rows == ()


def test_statistics_per_iteration() -> None:
    group = "time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%"
    text = f"#       size         count      type   redop    root  {group}  {group}  timestamp\n"
    figures = "    31.25   33.55   33.55       0    30.00    33.00    32.50     1.20"
    found = row_of(text + HEAD + figures + figures.replace("31.25", "30.75") + "  2026-02-03 12:30:01\n")
    assert found.out_of_place == Measured(31.25, 33.55, 33.55, 0)
    assert found.in_place == Measured(30.75, 33.55, 33.55, 0)


def test_all_types_in_one_table_are_one_sweep_each() -> None:
    table = BANNER + ROW + ROW.replace("   float", "    half").replace("375.26", "175.26") + FOOTER
    first, second = parse(table)
    assert [(sweep.type, len(sweep.rows)) for sweep in (first, second)] == [("float", 1), ("half", 1)]
    assert first.average_busbw == pytest.approx(374.75)
    assert second.average_busbw == pytest.approx(274.75)
    assert first.collective == second.collective == "all_reduce"
    early = parse(table.removesuffix(FOOTER))
    assert [sweep.average_busbw for sweep in early] == [None, None], "it ends early"


# Other text between and on the lines

LOG = "pod-0:91:140 [0] NCCL INFO Channel 00/16 : 0 1 2 3\n"
DIGITS = "10-0-0-1:91:140 [0] NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"


@pytest.mark.parametrize("log", [LOG, DIGITS, "[2026-02-03 12:30:01] " + LOG, LOG + DIGITS + "\n"])
@pytest.mark.parametrize("at", [len(HEAD), ROW.index("       0  2861") + 8, len(ROW) - 1])
def test_a_log_line_in_the_middle_of_a_row(log: str, at: int) -> None:
    """The library's lines come between nccl-tests' writes: after the root, after a number of wrong elements."""
    found = row_of(BANNER + ROW[:at] + log + ROW[at:] + FOOTER)
    assert (found.out_of_place, found.in_place) == (OUT, IN)


def test_a_row_after_other_text() -> None:
    assert row_of(BANNER + LOG.strip() + ROW + FOOTER).in_place == IN
    assert row_of(BANNER.replace("# nThread", LOG.strip() + "# nThread") + "2026-02-03T12:30:01Z " + ROW).in_place == IN


@pytest.mark.parametrize("cut", [len(BANNER), len(BANNER) + ROW.index("       0  2861")])
def test_a_text_whose_beginning_is_cut_off(cut: int) -> None:
    """Only the end of a very long output is kept."""
    whole = BANNER + ROW + ROW + FOOTER
    assert parse(whole[cut:])[0].rows[-1] == row_of(BANNER + ROW)


def test_line_ends_of_other_systems() -> None:
    assert parse((BANNER + ROW + FOOTER).replace("\n", "\r\n")) == parse(BANNER + ROW + FOOTER)


@pytest.mark.parametrize(
    "tag", ["[1,0]<stdout>:", "[1,0]<stdout>: ", "[prterun-pod-0-77@1,0]<stdout>: ", "[default0]:"]
)
def test_tags_of_launchers(tag: str) -> None:
    other = tag.replace("0]", "1]") + LOG
    tagged = "".join(tag + line + other for line in (BANNER + ROW + FOOTER).splitlines(keepends=True))
    assert parse(tagged) == parse(BANNER + ROW + FOOTER)


def test_tables_one_after_the_other() -> None:
    gather = (BANNER + ROW + FOOTER).replace("all_reduce", "all_gather")
    found = parse("starting\n" + BANNER + ROW + FOOTER + LOG + gather + TCPX.read_text() + TCPX.read_text())
    assert [sweep.collective for sweep in found] == ["all_reduce", "all_gather", "", ""]
    assert [len(sweep.rows) for sweep in found] == [1, 1, 10, 10]
    assert [sweep.ranks for sweep in found] == [2, 2, 0, 0]


def test_a_table_that_ends_before_its_first_row() -> None:
    """And usage, or nothing at all, is no table."""
    sweep = only(BANNER + "pod-1: Test NCCL failure common.cu:954 'unhandled system error'\n")
    assert (sweep.collective, sweep.ranks, sweep.rows, sweep.average_busbw) == ("all_reduce", 2, (), None)
    assert parse("USAGE: all_reduce_perf \n\t[-t,--nthreads <num threads>] \n\t[-g,--ngpus <gpus per thread>] \n") == ()
    assert parse("") == parse("# another line\n") == ()


# Builds without MPI, and groups

ALONE = "".join(line for line in BANNER.splitlines(keepends=True) if "Rank  1" not in line)


@pytest.mark.parametrize("tagged", [False, True])
def test_processes_that_do_not_know_of_each_other(tagged: bool) -> None:
    """Their tables are one rank's, whether they come one after the other, line by line, or tagged."""
    lines = (ALONE + ROW + FOOTER).splitlines(keepends=True)
    together = "".join(f"[1,{n}]<stdout>:{line}" if tagged else line for line in lines for n in range(3))
    found = parse(together)
    assert {sweep.ranks for sweep in found} == {1}
    assert sum(sweep.copies for sweep in found) == 3
    assert sum(len(sweep.rows) for sweep in found) == 3
    assert len(parse((ALONE + ROW + FOOTER) * 3)) == 3


def test_groups() -> None:
    """NCCL_TESTS_SPLIT: the ranks of one communicator count."""
    split = BANNER.replace("Rank  1 Group  0", "Rank  1 Group  1")
    more = split.replace(
        "#  Rank  0", "#  Rank  2 Group  0 Pid 7 on pod-1 device 0 [0000:8f:00] NVIDIA B200\n#  Rank  0"
    )
    sweep = only(more.replace("#  Rank  1", "#  Rank  3 Group  1 Pid 8 on pod-1 device 1 [-] NVIDIA B200\n#  Rank  1"))
    assert (sweep.ranks, sweep.groups, sweep.copies) == (2, 2, 1)


# Laws


PIECES = [
    *(BANNER + ROW + FOOTER + LOG).split(),
    "\n",
    "# Avg bus bandwidth    : nan",
    "9" * 5000,
    "1e999",
    "[1,0]<stdout>:",
]


@given(st.text() | st.lists(st.sampled_from(PIECES) | st.text(max_size=3)).map(" ".join))
def test_any_text_is_read(text: str) -> None:
    for sweep in parse(text + "\n" + BANNER + HEAD + text):
        json.dumps(wire.to_json(sweep.told()), allow_nan=False)
        assert all(math.isfinite(found.time) for row in sweep.rows for found in row.placements())
