"""The ddp program for real, with gloo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.workloads.ddp import DdpRecord
from agent.workloads.rank_record import PlannedRanks, read_record
from tests.programs.conftest import TOKEN, Ranks
from tests.torch_environment import own_lines

SMALL = ("--steps", "2", "--timed", "1", "--width", "64", "--layers", "2", "--batch", "8")
FAULTY = """
import torch

genuine, genuine_step = torch.distributed.all_reduce, torch.optim.SGD.step

def all_reduce(tensor, *args, **kwargs):
    work = genuine(tensor, *args, **kwargs)
    if tensor.shape == (1024, 1024):
        tensor[1000, 7] += 1
    return work

def step(self, *args, **kwargs):
    genuine_step(self, *args, **kwargs)
    with torch.no_grad():
        self.param_groups[0]["params"][0][0, 0] += 1e-6

torch.distributed.all_reduce, torch.optim.SGD.step = all_reduce, step
"""
LOSING = """
import torch

genuine = torch.optim.SGD.step
steps = []

def step(self, *args, **kwargs):
    # rank 0 takes two steps of training, then two of the reference
    steps.append(1)
    if len(steps) == 3:
        self.param_groups[0]["params"][0].grad *= 0.75
    genuine(self, *args, **kwargs)

torch.optim.SGD.step = step
"""
DYING = """
import torch

def all_reduce(tensor, *args, **kwargs):
    raise OSError("the network card is on fire")

torch.distributed.all_reduce = all_reduce
"""


def lines(record: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in record)


def test_a_good_run_on_four_ranks(ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A4_SERIES_FILE", str(tmp_path / "series"))
    done = ranks("ddp.py", 4, "--steps", "3")
    assert done.code == 0, done.err
    curves = [json.loads(line) for line in (tmp_path / "series").read_text().splitlines()]
    assert {(one["name"], one["rank"], one["step"]) for one in curves} == {
        ("loss", rank, step) for rank in range(4) for step in (1, 2, 3)
    }
    record = read_record(lines(done.record), DdpRecord())
    assert record.judge(PlannedRanks(4, ["pod-0"], [TOKEN])).code == 0
    reference = done.step("reference")
    assert reference["within"] and 0 <= reference["difference"] < reference["tolerance"] / 10
    assert [one["rank"] for one in done.step("measured")["ranks"]] == [0, 1, 2, 3]
    assert all(one[name] > 0 for one in done.step("measured")["ranks"] for name in one if name != "rank")
    assert 900_000 < done.step("measured")["parameters"] < 1_200_000
    steps = [line["step"] for line in done.record if line["step"] != "doing"]
    assert steps == ["start", "ranks", "sum", "parameters", "reference", "measured", "end"]
    assert len(own_lines(done.out)) == 4 and "parameters: the same on all ranks" in done.out
    assert len(record.table(PlannedRanks(4, ["pod-0"])).splitlines()) == 5


def test_by_hand_on_one_rank(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs it no more than the curve."""
    monkeypatch.setenv("A4_SERIES_FILE", "/dev/full")
    done = ranks("ddp.py", 1, *SMALL, record=False)
    assert done.code == 0, done.err
    assert "no curve of the loss: [Errno 28]" in done.out
    assert done.record == [] and "the largest difference is 0.0e+00;" in done.out


def test_a_rank_with_wrong_sums_and_other_parameters_is_named(ranks: Ranks) -> None:
    ranks.spoil(FAULTY, 1)
    done = ranks("ddp.py", 3, *SMALL)
    assert done.code == 65
    assert done.step("sum")["wrong"] == [{"rank": 1, "expected": 3.0, "found": 4.0, "elements": 1}]
    assert done.step("parameters")["different"] == [1]
    assert done.step("reference")["within"], "rank 0 is right"
    assert done.errors == {}
    assert "WRONG on ranks [1]" in done.out
    verdict = read_record(lines(done.record), DdpRecord()).judge(PlannedRanks(3, ["pod-0"], [TOKEN]))
    assert verdict.code == 65 and len(verdict.reasons) == 2


def test_a_gradient_that_is_not_the_mean_is_seen_beside_one_process(ranks: Ranks) -> None:
    ranks.spoil(LOSING, 0)
    done = ranks("ddp.py", 2, *SMALL)
    assert done.code == 65
    assert done.step("parameters")["different"] == [] and not done.step("reference")["within"]
    assert read_record(lines(done.record), DdpRecord()).judge(PlannedRanks(2, ["pod-0"], [TOKEN])).code == 65


def test_a_rank_that_fails_waits_for_nobody(ranks: Ranks) -> None:
    ranks.spoil(DYING, 1)
    done = ranks("ddp.py", 2, *SMALL)
    assert done.code == 1
    assert done.errors[1]["message"]["message"] == "OSError: the network card is on fire"
    assert "[rank1]: OSError: the network card is on fire" in done.err
    record = read_record(lines(done.record), DdpRecord())
    assert record.ranks and record.sums is None and record.finished is None
    assert record.judge(PlannedRanks(2, ["pod-0"], [TOKEN])).code is None


@pytest.mark.parametrize("program", ["ddp.py", "collectives.py"])
def test_wrong_usage_is_said_once(ranks: Ranks, program: str) -> None:
    done = ranks(program, 2, "--timeout-seconds", "0")
    assert done.code == 2
    assert done.err.count("usage:") == 1
    assert done.err.count("'0' is not a whole number (at least 1)") == 1
