"""The Pai-Megatron pipelines on pods, from nothing to a checkpoint, with what goes wrong on the way.

What they fetch and start are stand-ins (tests/pai). The scripts' positions are those of the real ones.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.decide.completeness import newest_checkpoint
from agent.machine.stored import StoredFiles
from agent.workbench.local.spec import BRIDGE_ADDRESS
from tests.cluster.conftest import END_SECONDS, Trial, all_codes
from tests.cluster.work import agent, following, result, result_of, until_phase
from tests.pai import stand_in
from tests.pai.hub import Fault
from tests.pai.workplace import TOKEN, WORKSPACE, Steering, Workplace
from tests.torch_environment import TORCH_PYTHON
from tests.workbench.local.helpers import eventually

QWEN3, NEXT = "pai-megatron-qwen3", "pai-megatron-qwen3-next"
TRACKER = "latest_checkpointed_iteration.txt"
ITERATION = re.compile(r"iteration +(\d+)/ *(\d+) \|")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with Workplace(tmp_path) as place:
        yield place


def trained(place: Workplace, step: str) -> list[int]:
    """The iterations of which a training's directory has checkpoints, when its tracker names the last."""
    (saved,) = place.path.glob(f"logs/output_mcore_{step}/*/checkpoint/*")
    found = sorted(int(path.name.removeprefix("iter_")) for path in saved.glob("iter_*"))
    assert int((saved / TRACKER).read_text()) == found[-1]
    return found


def stages(found: dict[str, Any]) -> dict[str, str]:
    """Why each stage of a result was passed over; empty where it was carried out."""
    return {stage["name"]: stage.get("passed_over", "") for stage in found["record"]["stages"]}


def printed(trial: Trial, index: int) -> list[int]:
    """Iterations of which a pod has printed the line."""
    return [int(number) for number, _ in ITERATION.findall(trial.cluster.logs(index, "out"))]


def test_pretraining_from_nothing_and_again_when_all_is_there(place: Workplace) -> None:
    """With the defaults, on as many GPUs as the recipe has, converted by all pods."""
    env = {"A4_CONVERT_ON": "all", "SLEEP_INFINITY": "true"}
    with place.cluster(QWEN3, gpus_per_pod=8, env=env) as trial:
        until_phase(trial, "sleeping", 0, 1)
        found = result(trial)
        assert found["verdict"]["code"] == 0, trial.log()
        assert not any(why for name, why in stages(found).items() if name != "environment")
        iterations = list(range(1, found["trainings"][0]["count"] + 1))
        assert (printed(trial, 0), printed(trial, 1)) == ([], iterations)
        assert "made iterations 1 to 9 of 9, loss 2.9" in trial.cluster.logs(0, "err"), "of the last rank's pod"
        assert (place.path / f"sync_flags_{place.job}/download_complete_flag").exists()
        assert (place.path / "qwen-ckpts/Qwen3-30B-A3B-to-mcore" / TRACKER).read_text() == "release"
        assert not [seen for seen in place.hub.seen if TOKEN in seen.path]
        assert not list(place.path.glob(".a4-agent/seen/*"))
        made = trained(place, "qwen3_pretrain")
        place.hub.seen.clear()
        again = agent(trial, 1, "run", QWEN3)
        assert (again.returncode, "A4_TRAIN_AGAIN" in again.stderr) == (0, True), again
        assert all(stages(result_of(trial, again)).values()) and printed(trial, 1) == iterations
        trial.cluster.terminate()
        all_codes(trial, 143)
        assert TOKEN not in trial.log() and TOKEN not in json.dumps(found)
    assert (place.hub.seen, trained(place, "qwen3_pretrain")) == ([], made)


def test_fine_tuning_with_a_dataset_that_is_built_and_then_with_json(place: Workplace) -> None:
    env = {"TRAINING_MODE": "sft", "USE_JSON_SFT": "true", "MP_TRAIN_ITERS": "6", "MP_WARMUP_ITERS": "1"}
    with place.cluster(NEXT, gpus_per_pod=8, env=env) as trial:
        all_codes(trial, 0)
        done = [name for name, why in stages(result(trial)).items() if not why]
        assert done[-4:] == ["prepare", "convert", "train", "json-sft"]
        assert printed(trial, 1) == [*range(1, 7), *range(1, 7)]
    assert trained(place, "qwen3_next_finetune") == trained(place, "qwen3_next_sft_json") == [6]
    assert (place.path / "datasets/mmap_qwen3_datasets_sft_text_document.idx").exists()


SMALL = {
    "MP_TP": "1",
    "MP_PP": "1",
    "MODEL_PARALLEL_ARGS": "--tensor-model-parallel-size 1",
    "MP_GLOBAL_BATCH_SIZE": "2",
}
BY_TORCH = {**SMALL, "MP_MODEL_SIZE": "0.6B", "MP_EP": "1", "MP_TRAIN_TOKENS": "1024", "MP_WARMUP_TOKENS": "256"}


def test_ranks_of_torchrun(place: Workplace) -> None:
    """One rank on each of two pods: the iterations are of the last, the coordinator knows them."""
    env = {**BY_TORCH, "A4_PYTHON": str(TORCH_PYTHON), "MP_SAVE_INTERVAL": "2"}
    with place.cluster(QWEN3, gpus_per_pod=1, env=env) as trial:
        all_codes(trial, 0)
        assert (printed(trial, 0), printed(trial, 1)) == ([], [1, 2, 3, 4])
        (training,) = result(trial)["trainings"]
        assert training["count"] == 4 and training["iterations"][0]["loss"] > 2
    assert trained(place, "qwen3_pretrain") == [2, 4]
    (saved,) = place.path.glob("logs/*/*/checkpoint/*")
    files = StoredFiles({})
    assert newest_checkpoint(str(saved), files) == (4, str(saved))
    shard = saved / "iter_0000004/__1_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert newest_checkpoint(str(saved), files) == (2, str(saved)), "torch's metadata say how large it is"


SAVING = {"MP_SAVE_INTERVAL": "2", "A4_LEASE_SECONDS": "30"}


FETCHED = ("Pai-Megatron-Patch.git/git-upload-pack", "model-00002", "valid-general")
POINTS = ("prepared-bin", "convert", "convert-tracker", "iteration-1", "iteration-4", "trained")
"""Where a kill finds each stage: at a part of the path of what it fetches, or at a point of the stand-in."""
KILLS = [(0, where) for where in (*FETCHED, *POINTS)] + [(1, where) for where in (FETCHED[1], *POINTS[1:])]
SOME = [(0, "convert-tracker"), (1, "iteration-4")]


@pytest.mark.faults
@pytest.mark.parametrize(
    ("victim", "where"), [pytest.param(*kill, marks=[] if kill in SOME else pytest.mark.long) for kill in KILLS]
)
def test_a_pod_is_killed_in_every_stage_and_the_next_attempt_ends_well(
    place: Workplace, victim: int, where: str
) -> None:
    env = {**SAVING, "TRAINING_MODE": "sft", "MP_TRAIN_ITERS": "5", "MP_WARMUP_ITERS": "1"}
    release = held(place, place.steering, where)
    with place.cluster(NEXT, gpus_per_pod=8, env=env) as trial:
        until_there(place, place.steering, where)
        trial.kill_agent(victim)
        assert trial.codes() == {victim: 137, 1 - victim: 75}, trial.log()
        release()
    with place.cluster(NEXT, gpus_per_pod=8, env=env, attempt=1) as trial:
        all_codes(trial, 0)
        assert where != "iteration-4" or "iter_0000002; the optimizer starts afresh" in trial.cluster.logs(0, "err")
    assert trained(place, "qwen3_next_finetune") == [2, 4, 5]
    left = [path.name for path in place.path.rglob("*.partial")]
    assert not left and not list(place.path.rglob("iter_0000001")), left


@pytest.mark.faults
def test_a_lost_pod_costs_a_life_and_nothing_that_was_saved(place: Workplace) -> None:
    """Also where the training is to be made anew: that was done in the first life."""
    env = {**SAVING, "TRAINING_MODE": "sft", "MP_TRAIN_ITERS": "5", "MP_WARMUP_ITERS": "1", "A4_TRAIN_AGAIN": "true"}
    steering = place.steering
    steering.hold("iteration-4")
    steering.hold("iteration-5")
    with place.cluster(NEXT, gpus_per_pod=8, env=env, lives=2, replace_after=0.1) as trial:
        steering.until_reached("iteration-4")
        trial.cluster.kill_pod(1)
        steering.release("iteration-4")
        steering.until_reached("iteration-5")
        assert trial.cluster.exec(0, ["pkill", "-KILL", "-f", "pretrain"]).returncode == 0
        steering.release("iteration-5")
        all_codes(trial, 0)
        for saved in (2, 4):
            assert f"iter_{saved:07d}; the optimizer starts afresh" in trial.cluster.logs(0, "err")
        found = result(trial)
        assert [life["lost"] for life in found["lives"]] == [[1], []], trial.log()
        (training,) = found["trainings"]
        made = [one["iteration"] for one in training["iterations"]]
        assert (made, training["count"]) == ([3, 4, 5], 3), "those of the pod that was lost are gone with it"
    assert trained(place, "qwen3_next_finetune") == [2, 4, 5]


def held(place: Workplace, steering: Steering, where: str) -> Callable[[], None]:
    """Nobody gets further than to there; what ends that."""
    if where in POINTS:
        steering.hold(where)
        return lambda: steering.release(where)
    fault = Fault(where, held=threading.Event())
    place.hub.faults.append(fault)
    assert fault.held
    return fault.held.set


def until_there(place: Workplace, steering: Steering, where: str) -> None:
    if where in POINTS:
        steering.until_reached(where)
    else:
        eventually(lambda: any(where in seen.path and seen.method != "HEAD" for seen in place.hub.seen), where)


@pytest.fixture(scope="module")
def asleep(no_pod_around_fixtures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workplace, Trial]]:
    """Two pods that sleep beside a workspace; every test takes a directory in it for its own."""
    with ExitStack() as stack:
        place = stack.enter_context(Workplace(tmp_path_factory.mktemp("pipelines")))
        trial = stack.enter_context(place.cluster("none", gpus_per_pod=8, env={"SLEEP_INFINITY": "true"}))
        until_phase(trial, "sleeping", 0, 1)
        yield place, trial
        trial.cluster.terminate()
        all_codes(trial, 143)


@pytest.fixture(scope="module")
def downloaded(asleep: tuple[Workplace, Trial]) -> Path:
    """A workspace in which all is downloaded, for copies."""
    place, trial = asleep
    (place.path / "downloaded").mkdir()
    env = {"PAI_WORKSPACE_ROOT": f"{WORKSPACE}/downloaded", **dict.fromkeys(SKIPPED[2:], "true")}
    done = agent(trial, 0, "run", QWEN3, env=env)
    assert done.returncode == 0, done.stderr
    return place.path / "downloaded"


IMAGE = "/stand-in/image"
"""A Python that says that it has what no pod installs."""


def test_packages_that_are_missing_are_installed_into_the_pod(place: Workplace) -> None:
    wheels = place.hub.files / "wheels"
    stand_in.wheels(wheels, "datasets==3.6.0", "numpy==1.26.4", "packaging==24.2", "transformers==4.57.0")
    env = {
        **dict.fromkeys(SKIPPED, "true"),
        "SKIP_ENV_SETUP": "false",
        "PIP_NO_INDEX": "true",
        "PIP_FIND_LINKS": f"{stand_in.ADDRESS}/files/wheels/links.html",
        "PIP_TRUSTED_HOST": BRIDGE_ADDRESS,
        "PIP_TARGET": IMAGE,
        "A4_PYTHON": f"{IMAGE}/python",
    }
    python = f'#!/bin/sh\nPYTHONPATH={IMAGE} exec {sys.executable} "$@"\n'
    files = {f"{IMAGE}/python": python.encode()}
    for name in ("torch", "transformer_engine"):
        files[f"{IMAGE}/{name}-2.8.0.dist-info/METADATA"] = f"Name: {name}\nVersion: 2.8.0\n".encode()
    with place.cluster(QWEN3, pods=1, env=env, files=files) as trial:
        all_codes(trial, 0)
    asked = {seen.path.rpartition("/")[2] for seen in place.hub.seen}
    assert "datasets-3.6.0-py3-none-any.whl" in asked


SKIPPED = ("SKIP_CLONE_REPO", "SKIP_DOWNLOAD_DATA", "SKIP_CHECKPOINT_CONVERSION", "SKIP_TRAINING")
SKIPS = [  # what is skipped in one run after the other, and how each ends
    (SKIPPED[:1], 66),
    (SKIPPED[3:], 0),
    (SKIPPED[:3], 0),
]


def test_what_is_skipped_is_not_waited_for(asleep: tuple[Workplace, Trial], tmp_path: Path) -> None:
    """Each run is of a shell in a pod that sleeps."""
    place, trial = asleep
    Steering(place.path / tmp_path.name)
    workspace = {"PAI_WORKSPACE_ROOT": f"{WORKSPACE}/{tmp_path.name}"}
    for names, code in SKIPS:
        if names == SKIPPED[:3]:  # code that somebody has copied there
            shutil.rmtree(place.path / tmp_path.name / "Pai-Megatron-Patch" / ".git")
        done = agent(trial, 1, "run", QWEN3, env={**workspace, **dict.fromkeys(names, "true")})
        assert done.returncode == code, done.stderr
        if code == 0:
            passed = " ".join(stages(result_of(trial, done)).values())
            assert all(f"{name}=true" in passed for name in names), passed
            assert names != SKIPPED[:3] or "is used as it is: it is not a git repository" in passed


DOWNLOADS = dict.fromkeys((SKIPPED[0], *SKIPPED[2:]), "true")
"""Nothing else is done."""
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "a model that is not there": ({**DOWNLOADS, "HF_ENDPOINT": f"{stand_in.ADDRESS}/files"}, "Qwen/Qwen3-30B-A3B"),
    "a wrong token": ({**DOWNLOADS, "HF_TOKEN": "hf_of_somebody_else"}, "HF_TOKEN"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_says_why(asleep: tuple[Workplace, Trial], tmp_path: Path, case: str) -> None:
    place, trial = asleep
    Steering(place.path / tmp_path.name)
    env, why = REFUSED[case]
    done = agent(trial, 1, "run", QWEN3, env={"PAI_WORKSPACE_ROOT": f"{WORKSPACE}/{tmp_path.name}", **env})
    assert (done.returncode, why in done.stderr) == (66, True), done.stderr


def test_a_training_that_is_no_good(asleep: tuple[Workplace, Trial], downloaded: Path, tmp_path: Path) -> None:
    place, trial = asleep
    shutil.copytree(downloaded, place.path / tmp_path.name, symlinks=True)
    steering = Steering(place.path / tmp_path.name)
    steering.habit("nan")
    env = {"PAI_WORKSPACE_ROOT": f"{WORKSPACE}/{tmp_path.name}"}
    done = agent(trial, 1, "run", QWEN3, env=env)
    assert (done.returncode, "is not a number" in done.stderr) == (65, True), done.stderr
    steering.better()
    again = agent(trial, 0, "run", QWEN3, env=env)
    assert (again.returncode, "what was made cannot be used" in again.stderr) == (0, True), again.stderr


def test_downloads_that_break_off_go_on_and_torn_records_are_none(
    asleep: tuple[Workplace, Trial], tmp_path: Path
) -> None:
    place, trial = asleep
    Steering(place.path / tmp_path.name)
    place.hub.faults += [Fault("text_document.bin", cut=5000), Fault("model-00001", cut=20_000)]
    place.hub.faults += [Fault(path, status=503) for path in ("train-general", "Megatron-LM.git", "config.json")]
    env = {"PAI_WORKSPACE_ROOT": f"{WORKSPACE}/{tmp_path.name}", "SKIP_TRAINING": "true"}
    place.hub.seen.clear()
    done = agent(trial, 1, "run", QWEN3, env=env)
    assert done.returncode == 0, done.stderr
    assert not [fault for fault in place.hub.faults if fault.times]
    ranges = {seen.path.rpartition("/")[2]: seen.range for seen in place.hub.seen if seen.range}
    assert ranges["mmap_qwen3_datasets_text_document.bin"] == "bytes=5000-"
    workspace = place.path / tmp_path.name
    torn = [*workspace.glob(".a4-agent/complete/*"), *workspace.glob("sync_flags_*/*")]
    assert len(torn) == 6
    for path in torn:
        path.write_bytes(path.read_bytes()[:-9])
    place.hub.seen.clear()
    again = agent(trial, 0, "run", QWEN3, env=env)
    assert (again.returncode, again.stderr.count("complete, by its content")) == (0, 2 * 4), again.stderr
    assert place.hub.seen == []


def test_a_disk_that_fills_up_midway(asleep: tuple[Workplace, Trial], tmp_path: Path) -> None:
    place, trial = asleep
    steering = Steering(place.path / tmp_path.name)
    env = {"PAI_WORKSPACE_ROOT": f"{WORKSPACE}/{tmp_path.name}"}
    place.hub.seen.clear()
    release = held(place, steering, "model-00002")
    with following(trial, 1, "run", QWEN3, env=env) as (client, _):
        until_there(place, steering, "model-00002")
        with place.full():
            release()
            _, said = client.communicate(timeout=END_SECONDS)
    assert (client.wait(), "make room in" in said.rpartition("\na4-agent: pai-megatron")[2]) == (73, True), said
    again = agent(trial, 0, "run", QWEN3, env={**env, **dict.fromkeys(SKIPPED[2:], "true")})
    assert again.returncode == 0, again.stderr
