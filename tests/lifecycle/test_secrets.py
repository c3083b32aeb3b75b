"""Secrets on their way through a cluster: judged as they are, masked wherever they come out, on every pod."""

from __future__ import annotations

import json

import pytest

from agent.decide.pipeline import Pipeline
from agent.launch import unpacked
from tests.fake.pod import INVENTORY
from tests.fake.process import FOREVER, Life
from tests.fake.world import FakeWorld
from tests.lifecycle.test_results import RESULTS, result
from tests.lifecycle.test_submitted import ends, printed, sleeping

CANARY = "canary-0123456789"
ENV = {"A4_RESULTS_DIR": RESULTS}


def all_that_is_left(world: FakeWorld) -> str:
    """Everything that the pods have written, stored and logged."""
    texts = [text for pod in world.pods for text in (*pod.files_now.values(), *pod.stored.values())]
    return "".join([*texts, *(pod.log.getvalue() for pod in world.pods)])


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize(
    "secret",
    [
        {"HF_TOKEN": CANARY},
        {"A4_SECRET_ENV": "QUIET", "QUIET": CANARY},
        {"PIP_INDEX_URL": f"https://user:{CANARY}@host/simple"},
    ],
)
def test_a_secret_of_one_pod_comes_out_of_none(index: int, secret: dict[str, str]) -> None:
    """Its error tells the secret; the end of the job quotes it, and reaches pods that do not know it."""
    world = FakeWorld(3, "collectives", ENV)
    world.pod(index).env = secret
    world.pod(index).life = Life(1, 5, output=f"RuntimeError: no access with {CANARY}\n".encode())
    assert set(world.run().values()) == {1}, world.dump()
    for pod in world.pods:
        assert "RuntimeError: no access with ***" in json.dumps(pod.said())
    assert "RuntimeError: no access with ***" in result(world)["verdict"]["what"]
    assert CANARY not in all_that_is_left(world)


def test_a_secret_that_only_a_workers_script_sets() -> None:
    world = FakeWorld(3, "collectives", {**ENV, "NCCL_INIT_SCRIPT": "/init.sh"})
    for pod in world.pods:
        pod.scripts = {"/init.sh": {"HF_TOKEN": CANARY} if pod.index == 2 else {}}
    world.pod(2).tools["/init.sh"] = Life(0, 5)  # the coordinator has come and has the facts before it ends
    world.pod(2).life = Life(1, 5, output=f"RuntimeError: no access with {CANARY}\n".encode())
    assert set(world.run().values()) == {1}, world.dump()
    assert "RuntimeError: no access with ***" in result(world)["verdict"]["what"]
    assert CANARY not in all_that_is_left(world)


@pytest.mark.parametrize("index", [0, 1])
def test_a_secret_in_the_error_of_a_pod_that_cannot_be_prepared(index: int) -> None:
    world = FakeWorld(3, "script", ENV)
    world.pod(index).env = {"A4_SECRET_ENV": "NCCL_INIT_SCRIPT", "NCCL_INIT_SCRIPT": f"/{CANARY}"}
    assert set(world.run().values()) == {66}, world.dump()
    for pod in world.pods:
        assert pod.said()["what"].startswith("NCCL_INIT_SCRIPT=*** "), pod.said()
    assert CANARY not in all_that_is_left(world)


def test_what_a_pod_says_of_itself_is_read_before_it_is_masked() -> None:
    """Without the words of mpirun there would be no run."""
    world = sleeping(3, {"A4_SECRET_ENV": "QUIET", "QUIET": "Open MPI"})
    told = ends(world, 1, world.submit(1, "mpirun", args=["true"]))
    assert told["end"]["code"] != 66, told
    assert "Open MPI" in INVENTORY["mpirun_version_text"]
    assert "Open MPI" not in all_that_is_left(world)


def test_the_launch_is_stored_without_what_may_be_secret() -> None:
    world = FakeWorld(2, "script", {**ENV, "HF_TOKEN": CANARY, "MY_RATE": "0.1", "NCCL_DEBUG": "INFO", "RANK_KEY": "x"})
    assert set(world.run().values()) == {0}, world.dump()
    environment = result(world)["launch"]["environment"]
    assert environment["NCCL_DEBUG"] == "INFO" and "A4_RUN" in environment
    assert not environment.keys() & {"HF_TOKEN", "MY_RATE", "RANK_KEY"}
    assert CANARY not in all_that_is_left(world)


def test_the_packed_pipeline_of_a_launch_is_stored_without_secrets() -> None:
    options = {"PAI_WORKSPACE_ROOT": "/mnt", "A4_DATASET_URL": f"https://host/{CANARY}", "MY_TOKEN": CANARY}
    world = FakeWorld(2, "pai-megatron-qwen3", {**ENV, **options})
    assert set(world.run().values()) == {0}, world.dump()
    pipeline = str(unpacked(Pipeline, result(world)["launch"]["argv"][-1]))
    assert "https://host/***" in pipeline and CANARY not in pipeline


def test_secrets_of_a_run_are_masked_in_it() -> None:
    """Those of the shell, and passwords in arguments."""
    world = sleeping(2, ENV, life=Life(output=f"{CANARY} and {CANARY[::-1]} {CANARY[:-1]}".encode()))
    words = [f"https://user:{CANARY[::-1]}@host/x"]
    run = world.submit(1, "script", args=words, env={"QUIET": "8", "MY_TOKEN": CANARY})
    assert ends(world, 1, run)["end"]["code"] == 0, world.dump()
    assert [printed(world, 1, run, pod) for pod in (0, 1)] == [f"*** and *** {CANARY[:-1]}".encode()] * 2
    left = all_that_is_left(world)
    assert CANARY not in left and CANARY[::-1] not in left
    assert f"{RESULTS}/runs/{run}/result.json" in world.pod(0).stored


def note_doing(world: FakeWorld, run: str, what: str) -> str:
    """A run of `collectives` has noted what it is doing; the file."""
    doing = {"step": "doing", "what": what, "number": 31, "of": 120}
    start = {"step": "start", "version": 1, "program": "collectives", "ranks": 16, "backend": "nccl", "versions": {}}
    record = f"/run/a4-agent/runs/{run}/record.jsonl"
    world.pod(0).agent.files[record] = "".join(json.dumps(line) + "\n" for line in (start, doing))
    return record


def test_a_long_run_says_what_it_does_masked_and_is_still_silent() -> None:
    world = sleeping(2, {"A4_STALL_TIMEOUT_SECONDS": "24", "HF_TOKEN": CANARY}, life=FOREVER)
    run = world.submit(1, "collectives")
    world.wait(3)
    record = note_doing(world, run, f"reading {CANARY}, 1 GiB")
    assert ends(world, 1, run)["end"]["code"] == 124, world.dump()
    said = printed(world, 1, run, 0).decode()
    assert f"a4-agent: {run}, 20 s: reading ***, 1 GiB (31 of 120)\n" in said
    assert said.count(run) >= 2, said
    del world.pod(0).agent.files[record]
    assert CANARY not in all_that_is_left(world)
