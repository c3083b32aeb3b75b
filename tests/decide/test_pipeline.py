"""Pipelines as values."""

from __future__ import annotations

import pytest

from agent.decide.pipeline import (
    Files,
    GitCheckout,
    Model,
    Packages,
    Pipeline,
    Stage,
    StageCommand,
    StageOutput,
)
from agent.launch import packed, unpacked

TRAIN = StageCommand(["bash", "run.sh"], [("ENV", "dlc"), ("SIZE", "A3B")], {"RANK": "1"}, "/mnt/x", resumes="SIZE")
WORK = [
    TRAIN,
    GitCheckout("https://example.org/x.git", "0" * 40),
    Model("huggingface", "Qwen/Qwen3-0.6B", "main"),
    Files(("https://example.org/a.bin", "https://example.org/a.idx")),
    Packages("python3", {"datasets": "datasets==3.6.0"}),
]


@pytest.mark.parametrize("work", WORK, ids=lambda work: type(work).__name__)
def test_a_pipeline_is_a_word_and_back(work: StageCommand | GitCheckout | Model | Files | Packages) -> None:
    outputs = (StageOutput("mmap", "/mnt/data/x", "3"),)
    stage = Stage("download", "lead", work, outputs, "/mnt/data", needs=outputs, inputs={"commit": "1"}, anew=True)
    back = unpacked(Pipeline, packed(Pipeline("run-1", 2, (1, 2), [stage])))
    assert (back.run, back.pod, back.pods, back.leads) == ("run-1", 2, (1, 2), False)
    assert packed(back) == packed(Pipeline("run-1", 2, (1, 2), [stage]))
    assert type(back.stages[0].work) is type(work)


def test_a_command_has_its_arguments_after_its_program() -> None:
    assert TRAIN.words == ["bash", "run.sh", "dlc", "A3B"]
