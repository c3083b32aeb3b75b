"""The collectives program for real, with gloo."""

from __future__ import annotations

import json
import subprocess
from itertools import pairwise

import pytest

from agent import wire
from agent.decide.result import Row
from agent.workloads.collectives import CollectivesRecord
from agent.workloads.nccl_tests import parse
from agent.workloads.rank_record import PlannedRanks, read_record
from agent.workloads.sweeps import MeasuredSweep
from tests.programs.conftest import ROOT, TOKEN, Done, Ranks
from tests.torch_environment import TORCH_PYTHON

IN_PLACE_ONLY = {"all_reduce", "broadcast"}
OUT_OF_PLACE_ONLY = {"alltoall", "sendrecv"}
FAULTY = """
import torch.distributed

genuine = torch.distributed.{name}

def faulty(tensor, *args, **kwargs):
    genuine(tensor, *args, **kwargs)
    {fault}

torch.distributed.{name} = faulty
"""


def broken(name: str, fault: str) -> str:
    """What breaks a function of torch.distributed."""
    return FAULTY.format(name=name, fault=fault)


def rounding(row: Row, factor: float, sweep: MeasuredSweep) -> None:
    """busbw is algbw × factor, and algbw is size / time, as far as their printed digits go."""
    for found in row.placements():
        assert found.wrong == 0
        assert found.busbw == pytest.approx(found.algbw * factor, rel=0.02, abs=1.1e-4), (sweep.collective, row)
        assert found.algbw == pytest.approx(row.size / found.time / 1e3, rel=0.02, abs=1.1e-4), (sweep.collective, row)


def busbw_factor(collective: str, ranks: int) -> float:
    """busbw / algbw as nccl-tests defines it."""
    if collective in ("broadcast", "sendrecv"):
        return 1.0
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks


def check(sweep: MeasuredSweep, ranks: int) -> None:
    """What holds for every table of a good run."""
    assert (sweep.ranks, sweep.backend, sweep.out_of_bounds, sweep.copies) == (ranks, "gloo", 0, 1)
    for row in sweep.rows:
        assert (row.out_of_place is None) == (sweep.collective in IN_PLACE_ONLY)
        assert (row.in_place is None) == (sweep.collective in OUT_OF_PLACE_ONLY)
        rounding(row, busbw_factor(sweep.collective, ranks), sweep)
    busbw = [found.busbw for row in sweep.rows for found in row.placements()]
    assert sweep.average_busbw == pytest.approx(sum(busbw) / len(busbw), rel=0.01, abs=1e-4)


def steps(done: Done) -> list[str]:
    return [line["step"] for line in done.record if line["step"] != "doing"]


def test_every_collective(ranks: Ranks) -> None:
    done = ranks("collectives.py", 4, "-b", "8", "-e", "256K", "-f", "32", "-n", "3", "-r", "2")
    assert done.code == 0, done
    assert "Warning" not in done.err
    sweeps = {sweep.collective: sweep for sweep in parse(done.out)}
    assert [*sweeps] == ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"]
    for sweep in sweeps.values():
        check(sweep, 4)
        assert (sweep.iterations, sweep.warmup) == (3, 1)
        assert wire.from_json(MeasuredSweep, wire.to_json(sweep)) == sweep
    shapes = {name: [(row.size, row.count) for row in sweep.rows] for name, sweep in sweeps.items()}
    # 8 bytes are 2 elements; 4 ranks cannot share them, and one element per rank is the least.
    assert shapes["all_reduce"] == [(8, 2), (256, 64), (8192, 2048), (262144, 65536)]
    assert shapes["all_gather"] == [(16, 1), (256, 16), (8192, 512), (262144, 16384)]
    kinds = {name: (sweep.redop, sweep.root) for name, sweep in sweeps.items()}
    assert kinds["broadcast"] == ("none", 2)
    assert kinds["reduce_scatter"] == ("sum", -1)
    check_record(done)


def check_record(done: Done) -> None:
    assert steps(done) == ["start", "ranks", *["sweep"] * 6, "end"]
    start = done.step("start")
    assert (start["version"], start["program"], start["ranks"], start["backend"]) == (1, "collectives", 4, "gloo")
    assert {"python", "torch"} <= set(start["versions"])
    ranks = done.step("ranks")["ranks"]
    assert [(each["rank"], each["token"], each["device"], each["error"]) for each in ranks] == [
        (rank, TOKEN, "cpu", "") for rank in range(4)
    ]
    doing = [each for each in done.steps("doing") if each["of"] > 1]
    assert [(each["number"], each["of"]) for each in doing] == [(n, 30) for n in range(1, 31)]
    assert [each["what"] for each in doing[5:7]] == ["all_gather, first call", "all_gather, 16 bytes"]
    assert doing[9]["what"] == "all_gather, 256 KiB"
    assert done.step("end")["finished"] == [0, 1, 2, 3]


def test_wrong_sums_are_found_and_the_sweep_goes_on(ranks: Ranks) -> None:
    ranks.spoil(broken("all_reduce", "tensor[0] += 1; tensor[-1:] += 1"), 2)
    options = ("-d", "bfloat16", "-b", "4K", "-e", "16K", "-f", "4", "-n", "2")
    done = ranks("collectives.py", 3, "--tests", "all_reduce,broadcast", *options)
    assert done.code == 65
    assert done.errors == {}
    reduce, broadcast = parse(done.out)
    assert [row.in_place and row.in_place.wrong for row in reduce.rows] == [2, 2]
    assert (reduce.out_of_bounds, reduce.type) == (2, "bfloat16")
    check(broadcast, 3)
    expected = {"step": "wrong", "collective": "all_reduce", "placement": "in-place", "ranks": {"2": 2}}
    assert done.steps("wrong") == [expected | {"size": 4096}, expected | {"size": 16384}]
    assert steps(done)[-1] == "end"
    after = [later["step"] for line, later in pairwise(done.record) if line["step"] == "wrong"]
    assert after == ["doing", "doing"], "what is done after it may hang, too"


def test_a_rank_that_fails_ends_all(ranks: Ranks) -> None:
    """It ends while the others wait for it."""
    fault = "if len(tensor) > 1000: raise MemoryError('no room for the broadcast')"
    ranks.spoil(broken("broadcast", fault), 1)
    done = ranks("collectives.py", 2, "broadcast", "-b", "1K", "-e", "4K", "-f", "4")
    assert done.code == 1
    assert "MemoryError: no room for the broadcast" in done.errors[1]["message"]["message"]
    assert steps(done) == ["start", "ranks", "sweep"]
    (sweep,) = parse(done.out)
    assert [row.size for row in sweep.rows] == [1024]


def test_by_hand_without_what_the_backend_lacks(ranks: Ranks) -> None:
    """Sizes by addition; without checks; in no time; nothing of the agent around it."""
    lacks = "raise RuntimeError('Backend gloo does not support alltoall')"
    ranks.spoil(broken("all_to_all_single", lacks), 0, 1)
    options = ("-b", "1K", "-e", "3K", "-i", "1K", "-c", "0", "-d", "double", "-o", "max", "--budget-seconds", "0")
    done = ranks("collectives.py", 2, "alltoall", "reduce_scatter", *options, record=False)
    assert done.code == 0, done
    assert "Warning" not in done.err
    assert done.record == []
    assert "# alltoall is left out: Backend gloo does not support alltoall" in done.out
    (sweep,) = parse(done.out)
    assert [row.size for row in sweep.rows] == [n << 10 for n in (1, 2, 3)]
    assert (sweep.type, sweep.redop) == ("double", "max")
    assert all(found.wrong is None for row in sweep.rows for found in row.placements())
    assert "# 1024 bytes, in-place: 1 of 4 iterations" in done.out


def test_nothing_that_the_backend_has_is_a_wrong_result(ranks: Ranks) -> None:
    lacks = "raise RuntimeError('Backend gloo does not support it')"
    ranks.spoil(broken("broadcast", lacks), 0, 1)
    done = ranks("collectives.py", 2, "broadcast")
    assert done.code == 65
    assert done.errors == {}
    assert "# Nothing was tested: gloo has none of broadcast" in done.out
    assert steps(done) == ["start", "ranks", "left-out", "end"]
    record = read_record("".join(json.dumps(line) + "\n" for line in done.record), CollectivesRecord())
    verdict = record.judge(PlannedRanks(2, ["pod-0"], [TOKEN]))
    assert verdict.code == 65
    assert verdict.reasons == ["nothing was tested: broadcast is left out: Backend gloo does not support it"]


def test_no_memory_names_rank_device_and_size(ranks: Ranks) -> None:
    fault = "import torch; zeros = torch.zeros; torch.zeros = lambda size, **how: zeros(1 << 60, **how)"
    ranks.spoil(broken("all_gather", fault), 1)
    done = ranks("collectives.py", 2, "all_reduce")
    message = done.errors[1]["message"]["message"]
    assert "out of memory on cpu of rank 1: no room for two buffers of 16 MiB" in message
    assert done.record[-1]["what"] == "memory for two buffers of 16 MiB"


VALUES = """
import json
import torch
import collective_operations as operations

cpu = torch.device("cpu")
by_hand = {"sum": torch.add, "prod": torch.mul, "min": torch.minimum, "max": torch.maximum}

def reduced(op, ranks):
    rows = operations.Values(op, ranks, torch.int64, cpu).raw(list(range(ranks)), 7)
    unnoticed = int(rows.sum(0).equal(rows[1:].sum(0)))
    for name, kind in operations.TYPES.items():
        found, *rest = rows.to(kind)
        for row in rest:
            found = by_hand[op](found, row)
        expected = operations.Values(op, ranks, kind, cpu).reduced(7)
        wrong = operations.count_wrong(found, expected, 0, 0.0)
        yield name, op, ranks, wrong, unnoticed, int(expected.eq(operations.NEVER).sum())

operations.BLOCK = 5  # periods: not only one comparison

def moved(length, offset):
    period = operations.Values("", 4, torch.float32, cpu).moved(3, 1)
    buffer = torch.zeros(length)
    operations.fill(buffer, period, offset)
    whole = torch.zeros(length + offset)
    operations.fill(whole, period)
    same = bool(buffer.equal(whole[offset:]))
    shifted = operations.count_wrong(buffer, period, offset + 4096, 0.0)
    buffer[::1000] = float("nan")
    tolerant = operations.count_wrong(buffer, period, offset, 0.5)
    return [same, shifted, operations.count_wrong(buffer, period, offset, 0.0), tolerant, -(-length // 1000)]

counted = {name: [each.count(size, 3, 4) for size in (1, 100, 4096)] for name, each in operations.COLLECTIVES.items()}
result = {
    "reduced": [each for op in by_hand for ranks in (2, 33, 300) for each in reduced(op, ranks)],
    "moved": [moved(*case) for case in ((1, 0), (4093, 5), (10_000, 4093), (100_000, 123_456))],
    "counts": counted,
    "narrow": [operations.narrow(value, 6) for value in (0.01234, 1.5, 375.26, 1234.56, 123456.7, 12345678)],
}
print(json.dumps(result))
"""


def test_values_are_exact_for_every_type() -> None:
    """Reduced in the type itself, one rank after the other; a rank that is left out, or a shift, is noticed."""
    argv, env = [str(TORCH_PYTHON), "-c", VALUES], {"PYTHONPATH": str(ROOT / "entrypoints")}
    result = json.loads(subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout)
    for name, op, ranks, wrong, unnoticed, never in result["reduced"]:
        assert (wrong, unnoticed, never) == (0, 0, 0), (name, op, ranks)
    for same, shifted, wrong, tolerant, nans in result["moved"]:
        assert same
        assert shifted > 0
        assert (wrong, tolerant) == (nans, nans)
    assert result["counts"]["all_reduce"] == [1, 25, 1024]
    assert result["counts"]["all_gather"] == [1, 8, 340]
    assert result["narrow"] == ["0.0123", "  1.50", "375.26", "1234.6", "123457", " 1e+07"]
