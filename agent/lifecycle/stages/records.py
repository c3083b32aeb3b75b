"""What is to be done in a stage, from what is there and what is recorded of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from agent import wire
from agent.decide.pipeline import Files, Model, Stage, StageOutput
from agent.decide.run_names import life_parts
from agent.decide.sync_facts import TOP, unseal

RECORDS = f"{TOP}/complete"
"""Directory of the records, in the one that all pods share."""


class StageRecord(NamedTuple):
    """What is stored of a stage: before its outputs get their names or, of a training, before it begins."""

    inputs: Mapping[str, str]
    time: float
    """Unix time, for people only."""
    run: str
    epoch: str
    done: bool = True
    """False: a training that has begun."""
    began_at: int = -1
    """The iteration of the checkpoint with which its newest attempt began; -1: none of its own."""
    wrong: str = ""
    """Why what was trained cannot be used, though the program ended with 0: nobody may go on with it."""


class StageVerdict(NamedTuple):
    """Whether a stage is carried out, and why."""

    needed: bool
    why: str
    aside: bool = False
    """What is there is of other inputs, or to be made anew: it is kept under another name."""


def record_name(stage: Stage, base: str) -> str:
    """Name of its record and of its claim. `base`: the directory that all pods share."""
    return f"{stage.name}@{stage.target.removeprefix(base).strip('/')}"


def read_record(text: str) -> StageRecord | None:
    """None where it is damaged: then there is none."""
    try:
        return wire.from_json(StageRecord, unseal(text))
    except ValueError:
        return None


def judge(stage: Stage, problem: str, record: StageRecord | None, run: str, epoch: str) -> StageVerdict:
    """`problem`: why its outputs are not complete; empty when they are. `run`: its id in this life; `epoch`: of this
    attempt of the job."""
    trains = is_training(stage)
    if stage.anew and (record is None or not is_earlier_try(record, run, epoch)):
        return StageVerdict(True, f"{stage.again} is set", aside=True)
    if problem and not (trains and record is not None):
        return StageVerdict(True, problem, aside=trains)
    if record is None:
        if trains:
            return StageVerdict(True, "it is not known what it was trained on", aside=True)
        return StageVerdict(False, "complete, by its content")
    if changed := differences(record.inputs, stage.inputs):
        return StageVerdict(True, f"made from other inputs: {changed}", aside=True)
    if record.wrong:
        return StageVerdict(True, f"what was made cannot be used: {record.wrong}", aside=True)
    if problem:
        return StageVerdict(True, problem)
    again = f" ({stage.again} makes it anew)" if stage.again else ""
    since = datetime.fromtimestamp(record.time, timezone.utc)
    # A training that was killed when all was saved would, started again, make no iteration.
    what = f"complete since {since:%Y-%m-%d %H:%M} UTC" if record.done else "its last iteration is saved"
    return StageVerdict(False, f"{what}, nothing to do{again}")


def is_training(stage: Stage) -> bool:
    return any(output.kind == "trained" for output in stage.outputs)


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """What has changed, in words; empty for nothing."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return "; ".join(f"{name} {old.get(name, '(none)')}, now {new.get(name, '(none)')}" for name in names)


def is_earlier_try(record: StageRecord, run: str, epoch: str) -> bool:
    """Whether the record is of an earlier attempt of this job, or of an earlier life of this run."""
    (earlier, life), (this, now) = life_parts(record.run), life_parts(run)
    return _is_earlier_attempt(record.epoch, epoch) or (earlier == this and life < now)


def _is_earlier_attempt(one: str, other: str) -> bool:
    """Whether both epochs, UID.RESTART.RESTART, are of one job, and not the same."""
    return one != other and one.split(".")[:-2] == other.split(".")[:-2] and one.count(".") >= 2


def repeats_at(record: StageRecord | None, run: str, epoch: str) -> int | None:
    """The iteration with which an earlier attempt of this job, or an earlier life of this run, began its training,
    which has not come to its end; None: there was none. One that fails now and has saved nothing newer would fail again
    and again."""
    if record is None or record.done or not is_earlier_try(record, run, epoch):
        return None
    return record.began_at


def staged(output: StageOutput, stage: Stage) -> StageOutput:
    """The output as it is while it is made."""
    place = stage.staging or stage.target
    return output._replace(path=place + output.path.removeprefix(stage.target))


def published(stage: Stage, names: Sequence[str]) -> list[tuple[str, str]]:
    """What is renamed to what when its outputs are complete. `names`: what is in its staging directory.

    A directory that it has for itself is renamed as one. Files go one by one into a directory with other files, an
    index last, by which the others are found.
    """
    if not stage.staging:
        return []
    if any(output.kind not in ("mmap", "json") for output in stage.outputs):
        return [(stage.staging, stage.target)]
    visible = sorted((name for name in names if not name.startswith(".")), key=lambda name: name.endswith(".idx"))
    return [(f"{stage.staging}/{name}", f"{stage.target}/{name}") for name in visible]


def aside_name(path: str, now: float) -> str:
    """The name under which something is kept that is not what is needed."""
    return f"{path}.before-{datetime.fromtimestamp(now, timezone.utc):%Y%m%dT%H%M%S}"


def flag_of(stage: Stage, later: Sequence[Stage]) -> str:
    """The fact that is true when this stage is over, for which old scripts look (agent.decide.sync_facts.OLD_FLAGS);
    empty for none."""
    if isinstance(stage.work, (Files, Model)) and not any(isinstance(each.work, (Files, Model)) for each in later):
        return "download_complete"
    return "conversion_complete" if any(output.kind == "torch_dist" for output in stage.outputs) else ""
