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
from agent.local.spec import BRIDGE_ADDRESS
from agent.machine.stored import StoredFiles
from tests.cluster.conftest import END_SECONDS, RUN_DIR, Trial, all_codes
from tests.cluster.work import agent, following, result, result_of
from tests.local.helpers import eventually
from tests.pai import stand_in
from tests.pai.hub import Fault
from tests.pai.workplace import TOKEN, WORKSPACE, Steering, Workplace

QWEN3, NEXT = "pai-megatron-qwen3", "pai-megatron-qwen3-next"
TORCH = Path(__file__).parents[2] / ".venv-torch" / "bin" / "python"
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
    with place.cluster(QWEN3, gpus_per_pod=8, env={"A4_CONVERT_ON": "all"}) as trial:
        all_codes(trial, 0)
        found = result(trial)
        assert not any(why for name, why in stages(found).items() if name != "environment")
        assert printed(trial, 1) == list(range(1, found["trainings"][0]["count"] + 1)) and not printed(trial, 0)
        assert "made iterations 1 to 9 of 9, loss 2.9" in trial.cluster.logs(0, "err"), "of the last rank's pod"
        assert TOKEN not in trial.log() and TOKEN not in json.dumps(found)
    assert (place.path / f"sync_flags_{place.job}/download_complete_flag").exists()
    assert (place.path / "qwen-ckpts/Qwen3-30B-A3B-to-mcore" / TRACKER).read_text() == "release"
    assert not [seen for seen in place.hub.seen if TOKEN in seen.path]
    assert not list(place.path.glob(".a4-agent/seen/*"))
    made = trained(place, "qwen3_pretrain")
    place.hub.seen.clear()
    with place.cluster(QWEN3, gpus_per_pod=8) as trial:
        all_codes(trial, 0)
        assert all(stages(result(trial)).values()) and not printed(trial, 1)
        assert "A4_TRAIN_AGAIN" in trial.cluster.logs(0, "err")
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
BY_TORCH = {
    QWEN3: {**SMALL, "MP_MODEL_SIZE": "0.6B", "MP_EP": "1", "MP_TRAIN_TOKENS": "1024", "MP_WARMUP_TOKENS": "256"},
    NEXT: {**SMALL, "MP_EP": "2", "MP_TRAIN_TOKENS": "8192", "MP_WARMUP_TOKENS": "2048"},
}


@pytest.mark.parametrize("model", [QWEN3, pytest.param(NEXT, marks=pytest.mark.faults)])
def test_ranks_of_torchrun(place: Workplace, model: str) -> None:
    """One rank on each of two pods: the iterations are of the last, the coordinator knows them."""
    env = {**BY_TORCH[model], "A4_PYTHON": str(TORCH), "MP_SAVE_INTERVAL": "2"}
    with place.cluster(model, gpus_per_pod=1, env=env) as trial:
        all_codes(trial, 0)
        assert (printed(trial, 0), printed(trial, 1)) == ([], [1, 2, 3, 4])
        (training,) = result(trial)["trainings"]
        assert training["count"] == 4 and training["iterations"][0]["loss"] > 2
    assert trained(place, f"{'qwen3' if model == QWEN3 else 'qwen3_next'}_pretrain") == [2, 4]
    (saved,) = place.path.glob("logs/*/*/checkpoint/*")
    files = StoredFiles({})
    assert newest_checkpoint(str(saved), files) == (4, str(saved))
    shard = saved / "iter_0000004/__1_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert newest_checkpoint(str(saved), files) == (2, str(saved)), "torch's metadata say how large it is"


SAVING = {"MP_SAVE_INTERVAL": "2", "A4_LEASE_SECONDS": "30"}


@pytest.mark.faults  # it waits for a lease; make test kills a training that then goes on in its fake world
def test_a_worker_is_lost_in_training_and_the_next_attempt_goes_on(place: Workplace) -> None:
    place.steering.hold("iteration-4")
    with place.cluster(QWEN3, gpus_per_pod=8, env=SAVING) as trial:
        place.steering.until_reached("iteration-4", nodes=2)
        trial.kill_agent(1)
        assert trial.codes() == {0: 75, 1: 137}
    place.steering.release("iteration-4")
    place.hub.seen.clear()
    with place.cluster(QWEN3, gpus_per_pod=8, env=SAVING, attempt=1) as trial:
        all_codes(trial, 0)
        assert place.hub.seen == [], "what the first attempt has made is there"
        assert printed(trial, 1)[0] == 3
        assert "iter_0000002; the optimizer starts afresh" in trial.cluster.logs(0, "err")


@pytest.mark.faults  # make test has it on one pod: tests/lifecycle/test_stage_process.py
def test_a_training_that_fails_again_with_nothing_saved_ends_the_job(place: Workplace) -> None:
    place.steering.habit("dies at iteration-2")
    for attempt, code in ((0, 1), (1, 65)):
        with place.cluster(QWEN3, gpus_per_pod=8, env=SAVING, attempt=attempt) as trial:
            all_codes(trial, code)
            assert trial.said(0)["origin"] == "workload"


FETCHED = ("Pai-Megatron-Patch.git/git-upload-pack", "model-00002", "valid-general")
POINTS = ("prepared-bin", "convert", "convert-tracker", "iteration-1", "iteration-4", "trained")
"""Where a kill finds each stage: at a part of the path of what it fetches, or at a point of the stand-in."""
KILLS = [(0, where) for where in (*FETCHED, *POINTS)] + [(1, where) for where in (FETCHED[1], *POINTS[1:])]
SOME = [(0, "model-00002"), (0, "convert-tracker"), (0, "iteration-4"), (1, "trained")]


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
    assert trained(place, "qwen3_next_finetune") == [2, 4, 5]
    left = [path.name for path in place.path.rglob("*.partial")]
    assert not left and not list(place.path.rglob("iter_0000001")), left


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


def test_what_an_older_launcher_left_is_taken_if_it_is_complete(place: Workplace) -> None:
    """A checkout under another name, at another commit; a model of which a shard is short; a conversion without end; a
    dataset of which the .bin is short; and flags of an earlier job of the same name."""
    old = place.path / "Pai-Megatron-Patch-GCP"
    clone = ("-c", "protocol.file.allow=always", "clone", "--quiet", "--recurse-submodules")
    place.do(stand_in.git, place.inside, *clone, str(place.git / "Pai-Megatron-Patch.git"), old.name)
    model = place.path / "qwen-ckpts/Qwen3-30B-A3B"
    stand_in.model(model)
    shard = next(model.glob("model-00002-*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    converted = place.path / "qwen-ckpts/Qwen3-30B-A3B-to-mcore"
    (converted / "iter_0000001").mkdir(parents=True)
    (converted / TRACKER).write_text("release")
    stand_in.datasets(place.path / "whole")
    (place.path / "whole" / stand_in.DATASETS / "qwen-datasets").rename(place.path / "qwen-datasets")
    (place.path / "qwen-datasets/mmap_qwen3_datasets_text_document.bin").write_bytes(b"half")
    flags = place.path / f"sync_flags_{place.job}"
    flags.mkdir()
    (flags / "download_complete_flag").touch()
    (flags / "conversion_complete_flag").touch()
    with place.cluster(QWEN3, gpus_per_pod=8) as trial:
        all_codes(trial, 0)
    assert len(list(model.glob("*.safetensors"))) == 2 and (converted / "release").is_dir()
    heads = [
        place.do(stand_in.git, place.inside / name, "rev-parse", "HEAD") for name in ("Pai-Megatron-Patch", old.name)
    ]
    assert heads == [place.commit, place.newer], "another's checkout is left as it is"
    asked = {seen.path.rpartition("/")[2] for seen in place.hub.seen if seen.method == "GET"}
    assert shard.name in asked and "mmap_qwen3_datasets_text_document.bin" in asked
    assert trained(place, "qwen3_pretrain")


@pytest.fixture(scope="module")
def asleep(no_pod_around_fixtures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workplace, Trial]]:
    """Two pods that sleep beside a workspace; every test takes a directory in it for its own."""
    with ExitStack() as stack:
        place = stack.enter_context(Workplace(tmp_path_factory.mktemp("pipelines")))
        trial = stack.enter_context(place.cluster("none", gpus_per_pod=8, env={"SLEEP_INFINITY": "true"}))
        for index in (0, 1):
            trial.until(index, f'grep -qs \'"phase": "sleeping"\' {RUN_DIR}/state.json')
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


@pytest.mark.parametrize(("missing", "code"), [("packages", 0), ("an image", 78)])
def test_packages_that_are_missing_are_installed_into_the_pod(place: Workplace, missing: str, code: int) -> None:
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
    for name in ("torch", "transformer_engine") if missing == "packages" else ():
        files[f"{IMAGE}/{name}-2.8.0.dist-info/METADATA"] = f"Name: {name}\nVersion: 2.8.0\n".encode()
    with place.cluster(QWEN3, pods=1, env=env, files=files) as trial:
        all_codes(trial, code)
        said = trial.cluster.logs(0, "err")
    asked = {seen.path.rpartition("/")[2] for seen in place.hub.seen}
    assert ("datasets-3.6.0-py3-none-any.whl" in asked) == (code == 0)
    assert ("transformer-engine" in said) == (code == 78)


SKIPPED = ("SKIP_CLONE_REPO", "SKIP_DOWNLOAD_DATA", "SKIP_CHECKPOINT_CONVERSION", "SKIP_TRAINING")
SKIPS = [  # what is skipped in one run after the other, and how each ends
    (SKIPPED[:1], 66),
    (SKIPPED[1:2], 66),
    (SKIPPED[2:], 0),
    (SKIPPED[2:3], 66),
    (SKIPPED[3:], 0),
    (SKIPPED[:3], 0),
    (SKIPPED[:1], 0),
    (SKIPPED, 0),
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
DATASET = {**DOWNLOADS, "MP_PRETRAIN_CHECKPOINT_PATH": "/mnt/own"}
"""No model either."""
PASSWORD = "canary-of-a-repository"
REFUSED: dict[str, tuple[dict[str, str], int, str]] = {
    "a workspace that is not there": ({"PAI_WORKSPACE_ROOT": "/nowhere"}, 73, "/nowhere"),
    "a commit that is not there": ({"A4_PAI_COMMIT": "0" * 40}, 66, "0" * 40),
    "a model that is not there": ({**DOWNLOADS, "HF_ENDPOINT": f"{stand_in.ADDRESS}/files"}, 66, "Qwen/Qwen3-30B-A3B"),
    "a wrong token": ({**DOWNLOADS, "HF_TOKEN": "hf_of_somebody_else"}, 66, "HF_TOKEN"),
    "a dataset that is not there": ({**DATASET, "A4_DATASET_URL": f"{stand_in.ADDRESS}/files/none"}, 66, "404"),
    "a password in a URL": ({"A4_PAI_REPOSITORY": f"https://me:{PASSWORD}@127.0.0.1/x.git"}, 78, "/root/.netrc"),
    "a batch that cannot be": ({"MP_GLOBAL_BATCH_SIZE": "7"}, 78, "MP_GLOBAL_BATCH_SIZE"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_says_why(asleep: tuple[Workplace, Trial], tmp_path: Path, case: str) -> None:
    place, trial = asleep
    Steering(place.path / tmp_path.name)
    env, code, why = REFUSED[case]
    done = agent(trial, 1, "run", QWEN3, env={"PAI_WORKSPACE_ROOT": f"{WORKSPACE}/{tmp_path.name}", **env})
    assert (done.returncode, why in done.stderr) == (code, True), done.stderr
    assert PASSWORD not in done.stderr + trial.log()


HABITS = {
    "nan": (65, "is not a number"),
    "skips weights": (65, "Never visit"),
    "dies at convert-tracker": (1, "convert"),
}


@pytest.mark.parametrize("habit", HABITS)
def test_scripts_that_fail_in_their_own_way(
    asleep: tuple[Workplace, Trial], downloaded: Path, tmp_path: Path, habit: str
) -> None:
    place, trial = asleep
    shutil.copytree(downloaded, place.path / tmp_path.name, symlinks=True)
    steering = Steering(place.path / tmp_path.name)
    steering.habit(habit)
    env = {"PAI_WORKSPACE_ROOT": f"{WORKSPACE}/{tmp_path.name}"}
    code, why = HABITS[habit]
    done = agent(trial, 1, "run", QWEN3, env=env)
    assert (done.returncode, why in done.stderr) == (code, True), done.stderr
    steering.better()
    again = agent(trial, 0, "run", QWEN3, env=env if habit == "nan" else {**env, "SKIP_TRAINING": "true"})
    said = "what was made cannot be used" if habit == "nan" else "convert begins"
    assert (again.returncode, said in again.stderr) == (0, True), again.stderr


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


FILLED = {"model-00002": (73, "make room in"), "convert": (1, "No space left"), "iteration-4": (1, "No space left")}


@pytest.mark.parametrize("where", [pytest.param(p, marks=[pytest.mark.faults] if p in POINTS else []) for p in FILLED])
def test_a_disk_that_fills_up_midway(asleep: tuple[Workplace, Trial], tmp_path: Path, where: str) -> None:
    """What a script cannot write, it says itself, and it ends with a code of its own."""
    place, trial = asleep
    steering = Steering(place.path / tmp_path.name)
    env = {"PAI_WORKSPACE_ROOT": f"{WORKSPACE}/{tmp_path.name}", "MP_SAVE_INTERVAL": "4"}
    place.hub.seen.clear()
    release = held(place, steering, where)
    code, why = FILLED[where]
    with following(trial, 1, "run", QWEN3, env=env) as (client, _):
        until_there(place, steering, where)
        with place.full():
            release()
            _, said = client.communicate(timeout=END_SECONDS)
    assert (client.wait(), why in said.rpartition("\na4-agent: pai-megatron")[2]) == (code, True), said
    rest = {} if where in POINTS else dict.fromkeys(SKIPPED[2:], "true")
    again = agent(trial, 0, "run", QWEN3, env={**env, **rest})
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("what", ["too small", "read-only"])
def test_a_workspace_that_cannot_hold_it_is_refused_before_anything_is_downloaded(
    asleep: tuple[Workplace, Trial], tmp_path: Path, what: str
) -> None:
    place, trial = asleep
    (place.path / tmp_path.name).mkdir()
    place.hub.seen.clear()
    with place.full(spare=64 << 20) if what == "too small" else place.read_only():
        done = agent(trial, 1, "run", QWEN3, env={"PAI_WORKSPACE_ROOT": f"{WORKSPACE}/{tmp_path.name}"})
    said = "are missing" if what == "too small" else "Read-only file system"
    assert (done.returncode, said in done.stderr, place.hub.seen) == (73, True, []), done.stderr
