from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.workloads.nccl.json_file import parse_json, version_text
from agent.workloads.sweeps import Measured, MeasuredSweep
from tests.laws import examples

FIGURES = {"time": 2869.11, "alg_bw": 374.24, "bus_bw": 374.25, "nwrong": 0.0}


def row(**changes: Any) -> dict[str, Any]:
    known = {"size": 1 << 30, "count": 1 << 28, "type": "float", "redop": "sum", "root": "    -1"}
    return {**known, "out_of_place": FIGURES, "in_place": FIGURES, "actual_iterations": 20, **changes}


def report(results: list[dict[str, Any]], devices: int = 2, **changes: Any) -> str:
    config = {"nthreads": 1, "ngpus": 1, "warmup_iters": 5, "iterations": 20, **changes.pop("config", {})}
    config.setdefault(
        "devices", [{"rank": rank, "group": 0, "pid": 9, "device_info": "NVIDIA B200"} for rank in range(devices)]
    )
    return json.dumps(
        {
            "version": 3,
            "start_time": "2026-01-01 00:00:00",
            "args": ["/nccl/all_reduce_perf_mpi", "-b", "1G"],
            "env": ["HF_TOKEN=hf_canary"],
            "nccl_version": 22907,
            "config": config,
            "results": results,
            "out_of_bounds": {"count": 0, "okay": "true"},
            "average_bus_bandwidth": {"bandwidth": 374.25, "okay": "unchecked"},
            "errors": [],
            **changes,
        }
    )


def sweeps(text: str) -> tuple[MeasuredSweep, ...]:
    found = parse_json(text)
    assert found is not None
    return found


def test_a_whole_file() -> None:
    (sweep,) = sweeps(report([row(), row(size=1 << 31, in_place=None)]))
    assert (sweep.collective, sweep.ranks, sweep.iterations, sweep.warmup) == ("all_reduce", 2, 20, 5)
    assert (sweep.average_busbw, sweep.out_of_bounds, sweep.groups, sweep.copies) == (374.25, 0, 1, 1)
    measured = Measured(2869.11, 374.24, 374.25, 0)
    assert [each.placements() for each in sweep.rows] == [(measured, measured), (measured,)]
    assert (sweep.root, sweep.redop, sweep.models) == (-1, "sum", ("NVIDIA B200",))
    assert sweeps(report([row(redop="")]))[0].redop == "none", "hypercube_perf"
    assert "canary" not in repr(sweep)


def test_types_and_operations_apart() -> None:
    kinds = [(kind, op) for kind in ("float", "f8e4m3") for op in ("sum", "avg")]
    found = sweeps(report([row(type=kind, redop=op) for kind, op in kinds]))
    assert [(each.type, each.redop) for each in found] == kinds
    assert found[0].average_busbw == pytest.approx(374.25)


@pytest.mark.parametrize(
    ("text", "ranks", "groups", "copies"),
    [
        (report([row()], 16), 16, 1, 1),
        (report([row()], 2, config={"nthreads": 2, "ngpus": 4}), 16, 1, 1),
        (report([row()], config={"devices": [{"rank": r, "group": r % 2} for r in range(4)]}), 2, 2, 1),
        (report([row()], config={"devices": [{"rank": 0}, {"rank": 0}]}), 2, 1, 2),
    ],
)
def test_ranks(text: str, ranks: int, groups: int, copies: int) -> None:
    (sweep,) = sweeps(text)
    assert (sweep.ranks, sweep.groups, sweep.copies) == (ranks, groups, copies)


def test_what_is_not_measured_is_not_known() -> None:
    cpu = {"cpu_time": 1.0, "alg_bw": 2.0, "bus_bw": 3.0, "nwrong": None}
    (sweep,) = sweeps(report([row(out_of_place=cpu, in_place={**FIGURES, "bus_bw": "nan"}, actual_iterations=3)]))
    assert sweep.rows[0].out_of_place == Measured(1.0, 2.0, 3.0, None)
    assert sweep.rows[0].in_place is None
    assert sweep.iterations == 3, "a limit of time cut them"


def test_a_run_that_was_broken_off_has_no_average() -> None:
    text = report([row()], average_bus_bandwidth=None, out_of_bounds=None)
    (sweep,) = sweeps(text)
    assert (sweep.average_busbw, sweep.out_of_bounds) == (None, None)
    (empty,) = sweeps(report([]))
    assert empty.rows == () and empty.ranks == 2


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "1", "null", '{"version": 3}', report([row()])[:-9]),
        report([row()]).replace("374.24", "inf"),
        report([row(root=None)]),
        report([row()], config={"devices": []}),
        report([{}]),
    ],
)
def test_what_is_no_such_file_is_left_to_the_printed_table(text: str) -> None:
    assert parse_json(text) is None


@examples(20)
@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda kids: st.lists(kids) | st.dictionaries(st.text(), kids))
)
def test_nothing_makes_it_fail(data: Any) -> None:
    parse_json(json.dumps(data))
    parse_json(report([], config={"devices": data}))
    parse_json(report([row(out_of_place=data)]))


@pytest.mark.parametrize(
    ("code", "text"), [(22907, "2.29.7"), (2708, "2.7.8"), (21003, "2.10.3"), (0, ""), (None, ""), ("22907", "")]
)
def test_version(code: object, text: str) -> None:
    assert version_text(code) == text
