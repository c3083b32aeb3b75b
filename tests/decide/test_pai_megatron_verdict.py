"""What a pipeline's pods say of its end, and what becomes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from agent import wire
from agent.decide.ending import JobEnd
from agent.decide.result import Iteration, Training
from agent.decide.trainings import MOST_KEPT
from agent.workloads import find_workload
from agent.workloads.base import FailedPart, Judgement, Outcome
from agent.workloads.pai_megatron.printed import StageNotes, noted, read_trainings
from agent.workloads.step_record import read_steps
from tests.decide.test_torch_failures import OOM, entry, summary
from tests.test_workloads import context

NAME = "pai-megatron-qwen3"
LAST = 1
"""Completion index of the pod with the last rank."""


def line(iteration: int, of: int = 9, **changes: str) -> str:
    fields = {
        "consumed samples": f"{8 * iteration:12}",
        "elapsed time per iteration (ms)": "123.4",
        "throughput per GPU (TFLOP/s/GPU)": "45.6",
        "learning rate": "9.000000E-06",
        "global batch size": "    8",
        "lm loss": f"{12 - iteration / 2:.6E}",
        "loss scale": "1.0",
        "grad norm": "1.500",
        "number of skipped iterations": "  0",
        "number of nan iterations": "  0",
    } | changes
    told = "".join(f" {name}: {value} |" for name, value in fields.items() if value)
    return f" [2026-01-10 12:00:00] iteration {iteration:8}/{of:8} |{told}"


def lines(count: int, stage: str = "train", **changes: str) -> str:
    return "".join(f"{stage}\t{line(at, count, **changes)}\n" for at in range(1, count + 1))


def done(*names: str, **passed_over: str) -> str:
    """The record of the lead. Those of `passed_over` have no dash in their names."""
    ends = dict.fromkeys(names, "") | passed_over
    told: list[dict[str, Any]] = []
    for number, (name, why) in enumerate(ends.items(), 1):
        told.append({"step": "begin", "name": name, "number": number, "of": len(ends), "time": 0.0})
        told.append({"step": "done", "name": name, "status": 0, "seconds": 2.5, "stuck": False, "passed_over": why})
    return "".join(json.dumps(one) + "\n" for one in told)


def notes(files: dict[str, str]) -> dict[str, Any]:
    found = find_workload(NAME).inspect(context(NAME), files)
    return json.loads(json.dumps(wire.to_json(found) or {}))  # type: ignore[no-any-return]


def judged(record: str, iterations: str = "", **changes: Any) -> Judgement:
    told = {LAST: notes({"iterations": iterations})} if iterations else {}
    some: dict[str, Any] = {"statuses": {2: 0, 0: 0, 1: 0}, "notes": told}
    outcome = Outcome(0, record=record, **(some | changes))
    return find_workload(NAME).judge(context(NAME), outcome)


def test_lines_of_megatron() -> None:
    others = [line(1), "train\titeration", f"train\t{line(1)[:30]}", "x\t", "", "train\tloading iteration 3"]
    training, more = read_trainings([*others, *(lines(9) + lines(3, "json-sft")).splitlines()])
    assert (training.stage, training.planned, training.count, len(training.iterations)) == ("train", 9, 9, 9)
    assert training.iterations[2] == Iteration(3, 10.5, 123.4, 45.6, 1.5, 0, 0)
    assert (more.stage, more.count) == ("json-sft", 3)


@pytest.mark.parametrize(
    ("changes", "loss", "skipped", "nans"),
    [
        ({"lm loss": "", "number of skipped iterations": "1", "grad norm": ""}, None, 1, 0),
        ({"lm loss": "nan"}, None, 0, 1),
        ({"lm loss": "INF"}, None, 0, 1),
        ({"number of nan iterations": "2"}, 11.5, 0, 2),
    ],
)
def test_losses_that_are_no_numbers(changes: dict[str, str], loss: float | None, skipped: int, nans: int) -> None:
    (training,) = read_trainings([f"train\t{line(1, 9, **changes)}"])
    (one,) = training.iterations
    assert (one.loss, one.skipped, one.nans) == (loss, skipped, nans)
    assert (training.skipped, training.nans) == (skipped, nans)


def test_long_trainings_are_thinned_with_their_ends() -> None:
    (training,) = read_trainings(lines(12_345).splitlines())
    shown = [one.iteration for one in training.iterations]
    assert (training.count, len(shown), shown[0], shown[-1]) == (12_345, MOST_KEPT, 1, 12_345)
    assert shown == sorted(set(shown)) and max(b - a for a, b in pairwise(shown)) <= 13
    assert len(json.dumps(wire.to_json(training))) < 200_000


def test_what_a_pod_noted_travels() -> None:
    end = {"stage": "train", "code": 1, "what": "w", "hint": "h", "origin": "workload"}
    found = wire.from_json(StageNotes, notes({"iterations": lines(2), "end.json": json.dumps(end)}))
    assert found.failure is not None and found.failure.stage == "train"
    assert isinstance(found.trainings[0], Training) and found.trainings[0].count == 2
    assert notes({}) == {}
    for nothing in ("", "{", "[]", '{"code": "x"}', "null"):
        assert noted({"end.json": nothing}) == StageNotes()


def test_stages_as_the_lead_recorded_them() -> None:
    record = done("environment", clone="complete, by its content") + '{"step": "begin", "name": "train"}\n{"step": "do'
    assert [(one.name, one.seconds, one.passed_over, one.done) for one in read_steps(record)] == [
        ("environment", 2.5, "", True),
        ("clone", 2.5, "complete, by its content", False),
        ("train", None, "", False),
    ]
    assert find_workload(NAME).progress(record) == "train"
    assert find_workload(NAME).progress(done("train")) == ""


# The verdict


def test_a_training_that_went_well() -> None:
    found = judged(done("train", clone="complete, by its content"), lines(9))
    assert (found.end.code, found.end.origin) == (0, "workload")
    said = "train made iterations 1 to 9 of 9, loss 11.5 to 7.5, 0.123 s each, 45.6 TFLOP/s per GPU"
    assert said in found.end.what
    assert "clone  2.5      complete, by its content" in found.text
    assert [one.count for one in found.measurements.trainings] == [9]
    (stages,) = found.measurements.tables
    assert stages.rows == (("train", 2.5, "done"), ("clone", 2.5, "complete, by its content"))


SMALL = {"MP_TP": "1", "MP_PP": "1", "MP_EP": "1", "SKIP_CHECKPOINT_CONVERSION": "true"}


@pytest.mark.parametrize(
    ("variables", "sizes"),
    [
        (SMALL, ("Qwen/Qwen3-30B-A3B", 128, 12)),
        (
            {**SMALL, "MP_SEQ_LEN": "4096", "MP_GLOBAL_BATCH_SIZE": "60", "MP_TRAIN_TOKENS": "245760"},
            ("Qwen/Qwen3-30B-A3B", 4096, 60),
        ),
        (SMALL | {"MP_SEQ_LEN": "many"}, ("", None, None)),  # no launch came of these
    ],
)
def test_what_was_trained(variables: dict[str, str], sizes: tuple[str, int | None, int | None]) -> None:
    told = {LAST: notes({"iterations": lines(2)})}
    outcome = Outcome(0, record=done("train"), statuses={2: 0, 0: 0, 1: 0}, notes=told)
    plain = context(NAME)
    own = replace(plain, environ={**plain.environ, **variables})
    (training,) = find_workload(NAME).judge(own, outcome).measurements.trainings
    assert (training.model, training.sequence, training.batch) == sizes


NAN = lines(3, **{"lm loss": "nan"})
COMPLETE = {"clone": "complete, by its content", "train": "complete since 2026-01-10, nothing to do"}


@pytest.mark.parametrize(
    ("record", "iterations", "code", "what"),
    [
        (done(**COMPLETE), "", 0, f"{NAME}: nothing to do, every stage is complete or left out"),
        (done("model", "convert", train="SKIP_TRAINING=true"), "", 0, f"{NAME}: done: model, convert"),
        (done("train"), "", 65, "train ended with 0, but the last rank has printed no iteration"),
        (done("train"), NAN, 65, "train: the loss of 3 of 3 iterations is not a number"),
    ],
)
def test_ends_without_a_good_training(record: str, iterations: str, code: int, what: str) -> None:
    found = judged(record, iterations)
    assert (found.end.code, found.end.what, found.end.origin) == (code, what, "workload")
    assert list(found.measurements.reasons) == ([what] if code else [])
    assert ("complete since 2026-01-10" in found.text) == ("nothing to do" in what)


def failed(status: int, end: dict[str, Any] | None, output: str = "", **changes: Any) -> JobEnd:
    told = {0: notes({"end.json": json.dumps(end)})} if end else {}
    some: dict[str, Any] = {"first": 0, "statuses": {0: status}, "notes": told, "failures": {0: FailedPart(output)}}
    return judged(done("clone"), "", **(some | changes)).end


TRAIN = {"stage": "train", "code": 3, "what": "train: bash run_mcore_qwen3.sh ended with exit code 3", "hint": "",
         "origin": "workload"}  # fmt: skip


def test_a_stage_that_failed_is_not_shown_as_done() -> None:
    """Nor is it said to have ended with 0."""
    record = done("convert") + done("train").replace('"status": 0', '"status": 3')
    told = {0: notes({"end.json": json.dumps(TRAIN)})}
    found = judged(record, first=0, statuses={0: 3}, notes=told, failures={0: FailedPart("")})
    (stages,) = found.measurements.tables
    assert stages.rows == (("convert", 2.5, "done"), ("train", 2.5, "failed with exit code 3"))
    assert not found.measurements.reasons and "ended with 0" not in found.text


def test_torch_says_which_rank_it_was() -> None:
    found = failed(3, TRAIN, summary(entry(0, 5, 3, OOM)))
    assert found.what == TRAIN["what"] and found.why.startswith("train: rank 5")
    assert "CUDA out of memory" in found.why


@pytest.mark.parametrize("words", ["found NaN in local forward loss calculation", "found Inf in local grad norm"])
def test_megatrons_own_end_at_a_nan_is_65(words: str) -> None:
    found = failed(1, TRAIN | {"code": 1}, f"RuntimeError: {words}")
    assert (found.code, found.origin) == (65, "workload") and "the loss is not a number" in found.what


@pytest.mark.parametrize(
    "end",
    [TRAIN, *(TRAIN | {"stage": "model", "code": code, "hint": "do this", "origin": "agent"} for code in (66, 75))],
)
def test_a_stage_that_ends_keeps_its_code_and_words(end: dict[str, Any]) -> None:
    found = failed(end["code"], end)
    assert (found.code, found.what, found.origin) == (end["code"], end["what"], end["origin"])
    assert found.where.startswith("pod 0, ")
    assert found.why == (end["hint"] or "train: torchrun ended with exit code 3")


def test_stages_that_were_killed_left_nothing() -> None:
    found = failed(-9, None)
    assert (found.code, found.what) == (137, "the stages of pod 0 ended with 137")


def test_lost_pods_and_ends_from_outside() -> None:
    assert judged(done("clone"), lost={1: "not heard for 30 s"}).end.code == 75
    cause = JobEnd(143, "told to end")
    assert judged(done("clone"), cause=cause).end == cause
