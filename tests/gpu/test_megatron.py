"""The real Megatron-LM in a Pai-Megatron pipeline: it trains, is looked at, is killed, and goes on.

A4_TEST_MEGATRON names directories with the package `megatron` (core_v0.15.3 of Megatron-LM, say, or what pip installs
as megatron-core), separated by colons. Without it, it is that of the Python with torch, if it has one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest

from agent.clinic.interface import diagnose
from agent.decide.completeness import TRACKER, newest_checkpoint
from agent.machine.stored import StoredFiles
from agent.workbench.local.running_command import Running
from tests.clinic.cluster.test_why import blamed, why
from tests.cluster.conftest import Trial
from tests.cluster.work import following
from tests.gpu.conftest import RUN_SECONDS, Cluster, agent
from tests.gpu.test_torch_workloads import kept
from tests.pai import stand_in

NAMED = [path for path in os.environ.get("A4_TEST_MEGATRON", "").split(":") if path]
LAUNCHER = Path(__file__).with_name("programs") / "pretrain.py"
SCRIPTS = Path(__file__).parents[1] / "pai/repository/patch/examples"
"""In place of Pai's: they take its 27 positions, and start torchrun as it does."""
PIPELINE = "pai-megatron-qwen3"
WORKSPACE, BASE, SLOW = "/workspace", "/workspace/base", "/workspace/slow"
ITERATIONS, EVERY, TOKENS = 60, 20, 128
"""TOKENS: in a sample, of which each rank has one in an iteration."""
TRACKERS = f"logs/*/*/checkpoint/*/{TRACKER}"
Training = Callable[..., tuple[Trial, Path]]
RANK = "[-]u pretrain_qwen.py"
"""In the command line of a rank, and not in torchrun's."""
ENV = {
    "PAI_WORKSPACE_ROOT": WORKSPACE,
    "SKIP_ENV_SETUP": "true",
    "SKIP_CLONE_REPO": "true",
    "MP_PRETRAIN_CHECKPOINT_PATH": BASE,
    "MP_DATASET_PATH": f"{WORKSPACE}/{stand_in.DATASETS}/qwen-datasets/mmap_qwen3_datasets_text_document",
    "MP_MODEL_SIZE": "0.6B",
    "MP_TP": "1",
    "MP_PP": "1",
    "MP_EP": "1",
    "MP_SEQ_LEN": str(TOKENS),
    "MP_SAVE_INTERVAL": str(EVERY),
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "A4_TEST_SLOW": SLOW,
}
FIRST = [
    *("--micro-batch-size", "1", "--seq-length", str(TOKENS), "--lr", "1e-4"),
    *("--train-iters", "1", "--save-interval", "1", "--save", BASE),
]


@pytest.fixture(params=NAMED or [""], ids=lambda path: Path(path).name)
def megatron(request: pytest.FixtureRequest) -> str:
    if not request.param and not importlib.util.find_spec("megatron"):
        pytest.skip("there is no Megatron: name its directory by A4_TEST_MEGATRON")
    return str(request.param)


def workspace(place: Path) -> Path:
    """What the stages before the training would have left."""
    shutil.copytree(SCRIPTS, place / "Pai-Megatron-Patch/examples")
    shutil.copy(LAUNCHER, place / "Pai-Megatron-Patch/examples/qwen3/pretrain_qwen.py")
    stand_in.datasets(place)
    (place / "base").mkdir()
    for name in ("tokenizer.json", "merges.txt"):
        (place / "base" / name).write_text("{}")
    return place


@pytest.fixture
def training(cluster: Cluster, torch_python: Path, megatron: str, tmp_path: Path) -> Training:
    """`training(ranks, …)`: two pods with what the pipeline needs for its training, and their workspace."""
    programs = {
        "/job/bin/python": f'#!/bin/sh\nexec {torch_python} "$@"\n'.encode(),
        "/job/bin/torchrun": f'#!/bin/sh\nexec {torch_python} -m torch.distributed.run "$@"\n'.encode(),
        "/job/pretrain.py": LAUNCHER.read_bytes(),
    }
    given = {"A4_PYTHON": "/job/bin/python", **({"PYTHONPATH": megatron} if megatron else {})}

    def make(ranks: int, **more: Any) -> tuple[Trial, Path]:
        place = workspace(tmp_path / "workspace")
        tokens = {"MP_TRAIN_TOKENS": str(ITERATIONS * ranks * TOKENS), "MP_WARMUP_TOKENS": str(2 * ranks * TOKENS)}
        env = {**ENV, **given, **tokens, "MP_GLOBAL_BATCH_SIZE": str(ranks), **more.pop("env", {})}
        trial = cluster(2, ranks // 2, env=env, files=programs, directories={WORKSPACE: str(place)}, **more)
        make_base(trial, place / "base", ranks)
        return trial, place

    return make


def make_base(trial: Trial, base: Path, ranks: int) -> None:
    """A checkpoint as the convertor makes it."""
    done = agent(trial, 0, "torchrun", "--", "/job/pretrain.py", *FIRST, "--global-batch-size", str(ranks))
    assert done.returncode == 0, done
    (base / "iter_0000001").rename(base / "release")
    (base / TRACKER).write_text("release")


def reading(file: IO[bytes], pool: ThreadPoolExecutor) -> Future[bytes]:
    """Read all that comes from a command: Megatron prints more than a pipe holds."""

    def read(descriptor: int) -> bytes:
        with open(descriptor, "rb") as own:
            return own.read()

    return pool.submit(read, os.dup(file.fileno()))


def until_saved(place: Path, trial: Trial, client: Running, iteration: int = EVERY) -> None:
    """Wait for this checkpoint, or a later one, of the run that this command follows."""
    deadline = time.monotonic() + RUN_SECONDS
    while not any(int(path.read_text() or 0) >= iteration for path in place.glob(TRACKERS)):
        with contextlib.suppress(TimeoutError):
            pytest.fail(f"it ended with {client.wait(0.2)}: {trial.log()[-3000:]}")
        assert time.monotonic() < deadline, f"no checkpoint: {trial.log()[-3000:]}"


def test_a_training_is_looked_at_killed_and_goes_on(training: Training) -> None:
    trial, place = training(2)
    (place / "slow").touch()
    with ThreadPoolExecutor(2) as pool, following(trial, 1, "run", PIPELINE) as (client, run):
        said = [reading(file, pool) for file in (client.stdout, client.stderr)]
        until_saved(place, trial, client)
        healthy = diagnose(why(trial, run))
        trial.cluster.exec(1, ["pkill", "-STOP", "-f", RANK])
        stopped = diagnose(why(trial, run, pod=1))
        trial.cluster.exec(1, ["pkill", "-KILL", "-f", RANK])
        assert client.wait(RUN_SECONDS) == 1, [one.result()[-2000:] for one in said]
    assert healthy.status == "moves" and not healthy.culprits, healthy
    assert (stopped.status, blamed(stopped)) == ("hangs", {1: "stopped"}), stopped
    assert "rank 1 was killed by SIGKILL" in kept(trial, "megatron-killed")["verdict"]["why"]

    (saved,) = (path.parent for path in place.glob(TRACKERS))
    reached, _ = newest_checkpoint(str(saved), StoredFiles({})) or (0, "")
    assert reached >= EVERY
    (place / "slow").unlink()
    done = agent(trial, 0, "run", PIPELINE)
    assert done.returncode == 0, done
    assert f"continues from {saved.as_posix().replace(str(place), WORKSPACE)}" in done.stderr, done.stderr
    found = kept(trial, "megatron")
    iterations = [one["iteration"] for one in found["trainings"][0]["iterations"]]
    assert (iterations[0], iterations[-1]) == (reached + 1, ITERATIONS)
    assert newest_checkpoint(str(saved), StoredFiles({})) == (ITERATIONS, str(saved))


def test_a_training_that_loses_a_pod_twice_goes_on(training: Training) -> None:
    """Four ranks, each matrix on two GPUs. The pod is killed when a checkpoint is there; the next life takes it up."""
    trial, place = training(4, env={"MP_TP": "2"}, lives=2, replace_after=0.1)
    (place / "slow").touch()
    with ThreadPoolExecutor(2) as pool, following(trial, 0, "run", PIPELINE) as (client, _):
        said = [reading(file, pool) for file in (client.stdout, client.stderr)]
        for iteration in (EVERY, 2 * EVERY):
            until_saved(place, trial, client, iteration)
            trial.cluster.kill_pod(1)
        (place / "slow").unlink()
        assert client.wait(RUN_SECONDS) == 0, [one.result()[-2000:] for one in said]
    (saved,) = (path.parent for path in place.glob(TRACKERS))
    assert newest_checkpoint(str(saved), StoredFiles({})) == (ITERATIONS, str(saved))
    found = kept(trial, "megatron-lives")
    assert [life["lost"] for life in found["lives"]] == [[1], [1]], trial.log()
    assert (found["verdict"]["code"], found["trainings"][0]["iterations"][-1]["iteration"]) == (0, ITERATIONS)
    assert trial.log().count("; the optimizer starts afresh") >= 2 and "in use after" not in trial.log(), trial.log()
