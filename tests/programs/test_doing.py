"""Whatever may hang: the record says before it what is being done."""

from __future__ import annotations

import pytest

from tests.programs.conftest import Ranks

WATCHING = """
import json
import torch.distributed as dist

def watched(name, genuine):
    def call(*args, **kwargs):
        with open(os.environ["A4_RECORD"]) as file:
            last = json.loads(file.readlines()[-1])
        print("CALL", name, last["step"], last.get("what"), flush=True)
        return genuine(*args, **kwargs)

    return call

for name in ("init_process_group", "all_gather", "all_reduce", "broadcast", "batch_isend_irecv", "barrier"):
    setattr(dist, name, watched(name, getattr(dist, name)))
"""
FEW = {
    "ddp.py": ("--steps", "1", "--timed", "1", "--width", "64", "--layers", "1", "--batch", "8"),
    "collectives.py": ("-b", "1K", "-e", "1K", "-n", "1"),
}


@pytest.mark.parametrize("program", FEW)
def test_what_is_done_is_said_before(ranks: Ranks, program: str) -> None:
    ranks.spoil(WATCHING, 0)
    done = ranks(program, 2, *FEW[program])
    assert done.code == 0, done.err
    calls = [line.split(" ", 3)[1:] for line in done.out.splitlines() if line.startswith("CALL ")]
    assert calls[0] == ["init_process_group", "doing", "ranks look for each other"]
    assert calls[-1][:2] == ["all_gather", "end"], "only the last wait comes after the end"
    assert {step for _, step, _ in calls[:-1]} == {"doing"}
    assert len({what for _, _, what in calls}) > 7
