"""What Megatron prints of a training, on its last rank alone, and what the stages' process leaves on each pod."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from agent import wire
from agent.decide.result import Iteration, Training
from agent.decide.trainings import kept
from agent.wire import finite
from agent.workloads.nccl_logs import Logged, read_logs

ITERATIONS, END = "iterations", "end.json"
"""Files in the directory of notes: lines "STAGE<tab>…" of Megatron; how the stages ended, when they failed."""
LINE = re.compile(r"\biteration\s+([0-9]{1,12})/\s*([0-9]{1,12}) \|(.*)")
TRAIN, JSON_SFT = "train", "json-sft"
TRAININGS = (TRAIN, JSON_SFT)
"""Stages."""


class StageFailure(NamedTuple):
    """Why the stages ended on one pod."""

    stage: str = ""
    code: int = 0
    what: str = ""
    hint: str = ""
    origin: Literal["agent", "workload"] = "agent"


class StageNotes(NamedTuple):
    """What one pod found in its files; travels to the coordinator."""

    trainings: Sequence[Training] = ()
    failure: StageFailure | None = None
    logs: Logged = Logged()
    """What NCCL's logs say."""


def noted(files: Mapping[str, str]) -> StageNotes:
    trainings = read_trainings(files.get(ITERATIONS, "").splitlines())
    failure = None
    with suppress(ValueError):  # there is none, or it was cut off
        failure = wire.from_json(StageFailure, json.loads(files.get(END, "")))
    return StageNotes(trainings, failure, read_logs(files))


def read_trainings(lines: Iterable[str]) -> tuple[Training, ...]:
    """One for each stage that trained. A line that was cut off is left out."""
    found: dict[str, tuple[int, dict[int, Iteration]]] = {}
    for line in lines:
        stage, tab, text = line.partition("\t")
        if tab and (match := LINE.search(text)):
            number, of = int(match[1]), int(match[2])
            values = {name.strip(): value.strip() for name, _, value in (f.partition(":") for f in match[3].split("|"))}
            found.setdefault(stage, (of, {}))[1][number] = _iteration(number, values)
    return tuple(_training(stage, of, list(by_number.values())) for stage, (of, by_number) in found.items())


def _training(stage: str, planned: int, made: list[Iteration]) -> Training:
    skipped, nans = sum(one.skipped for one in made), sum(one.nans for one in made)
    return Training(stage, planned, len(made), skipped, nans, kept(made))


def _iteration(number: int, values: Mapping[str, str]) -> Iteration:
    no_number = values.get("lm loss", "").lower() in ("nan", "inf", "-inf", "-nan")
    return Iteration(
        iteration=number,
        loss=finite(values.get("lm loss")),
        milliseconds=finite(values.get("elapsed time per iteration (ms)")),
        tflops=finite(values.get("throughput per GPU (TFLOP/s/GPU)")),
        grad_norm=finite(values.get("grad norm")),
        skipped=int(finite(values.get("number of skipped iterations")) or 0),
        nans=int(finite(values.get("number of nan iterations")) or 0) or int(no_number),
    )
