"""The stand-in by itself: two nodes on this machine, its scripts by hand, from what the hub serves."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.pai import stand_in
from tests.pai.hub import Fault, Hub, Serving

PRETRAINED = ("dlc", "A3B", "1", "2", "1e-5", "1e-6", "8", "8", "bf16", *("1",) * 5, "true", "true", "true", "false")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Hub, str]]:
    hub, _, _ = stand_in.hub(tmp_path)
    listening = socket.create_server(("127.0.0.1", 0))
    with Serving(hub, listening):
        yield hub, f"http://127.0.0.1:{listening.getsockname()[1]}"


def get(url: str, headers: Mapping[str, str] | None = None) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers or {})), timeout=30) as answer:
        content: bytes = answer.read()
        return content


def test_the_hub_serves_parts_and_fails_as_often_as_it_shall(served: tuple[Hub, str]) -> None:
    hub, address = served
    url = f"{address}/files/{stand_in.DATASETS}/datasets/alpaca_zh-valid-general.json"
    whole = get(url)
    assert get(url, {"Range": "bytes=5-9"}) == whole[5:10] and get(url, {"Range": "bytes=7-"}) == whole[7:]
    hub.faults += [Fault("alpaca", status=503), Fault("alpaca", cut=9)]
    for what in (urllib.error.HTTPError, Exception):
        with pytest.raises(what):
            get(url)
    assert get(url) == whole
    assert [seen.status for seen in hub.seen] == [200, 206, 206, 503, 200, 200]


def on_nodes(count: int, place: Path, directory: str, script: str, *words: str) -> list[int]:
    """How a script ends that is started on all of them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {
        "PATH": f"{place}/bin:{os.environ['PATH']}",
        "PAI_WORKSPACE_ROOT": str(place),
        "WORLD_SIZE": str(count),
        "KUBERNETES_CONTAINER_RESOURCE_GPU": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    argv = ["bash", script, *words]
    nodes = [
        subprocess.Popen(argv, cwd=place / "patch" / directory, env={**env, "RANK": str(rank)}) for rank in range(count)
    ]
    return [node.wait(100) for node in nodes]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace with the repository, a model and datasets."""
    shutil.copytree(stand_in.HERE / "repository/patch", tmp_path / "patch")
    for name in stand_in.BACKENDS:
        shutil.copytree(stand_in.HERE / "repository/megatron_lm", tmp_path / "patch/backends/megatron" / name)
    (tmp_path / "bin").mkdir()
    for name in ("python", "torchrun"):
        program = tmp_path / "bin" / name
        program.write_bytes(stand_in.PROGRAMS[f"{stand_in.BIN}/{name}"])
        program.chmod(0o755)
    stand_in.model(tmp_path / "model")
    stand_in.datasets(tmp_path)
    return tmp_path


CONVERTOR = ("toolkits/distributed_checkpoints_convertor", "scripts/qwen3/run_8xH20.sh")
TRAINING = ("examples/qwen3", "run_mcore_qwen3.sh")


def copy_tokenizer(model: Path, place: Path) -> None:
    """Nodes that copy it into one directory at the same time fail now and then: it must be there before."""
    place.mkdir(parents=True)
    for file in (*model.glob("*.json"), model / "merges.txt"):
        shutil.copy(file, place)


def test_what_the_stages_make_is_what_the_next_ones_read(place: Path) -> None:
    model, converted, out = (str(place / name) for name in ("model", "converted", "out"))
    copy_tokenizer(place / "model", place / "converted")
    assert on_nodes(2, place, *CONVERTOR, "A3B", model, converted, "false", "true", "bf16", model) == [0, 0]
    assert {path.name for path in (place / "converted/release").iterdir()} == {
        *("__0_0.distcp", "__1_0.distcp", ".metadata", "common.pt", "metadata.json")
    }
    name = "pretrain-mcore-qwen3-moe-megatron-A3B-lr-1e-5-minlr-1e-6-bs-1-gbs-2-seqlen-8-pr-bf16-tp-1-pp-1-cp-1"
    saved = place / "out/checkpoint" / f"{name}-ac-sel-do-true-sp-true-ti-6-wi-0"
    copy_tokenizer(place / "model", saved)
    data = str(place / stand_in.DATASETS / "qwen-datasets/mmap_qwen3_datasets_text_document")
    last = ("sel", "false", "2", data, data, converted, "96", "0", out)
    assert on_nodes(2, place, *TRAINING, *PRETRAINED, *last) == [0, 0]
    tracked = (saved / "latest_checkpointed_iteration.txt").read_text()
    assert tracked == "6" and (saved / "iter_0000002").is_dir()


def test_the_bad_habits_of_the_real_scripts(place: Path) -> None:
    (place / "empty").mkdir()
    first = (str(place / "model"), str(place / "converted"), "false", "true", "bf16", "")
    assert on_nodes(1, place, *CONVERTOR, "A22B", *first) == [0], "another script is for this size"
    habits = place / "stand-in/habits"
    habits.mkdir(parents=True)
    (habits / "dies at convert-tracker").touch()
    assert on_nodes(1, place, *CONVERTOR, "A3B", *first) == [1]
    assert (place / "converted/latest_checkpointed_iteration.txt").read_text() == "release"
    assert not (place / "converted/release").exists()
    words = ("/no.json", "Qwen3Tokenizer", "8", str(place / "sft"), str(place / "model"), "false")
    script = "run_build_idxmap_sft_dataset.sh"
    assert on_nodes(1, place, "toolkits/sft_data_preprocessing", script, *words) == [0], "it had no input"
    last = ("sel", "false", "2", "/data", "/data", str(place / "empty"), "96", "0", str(place / "out"))
    assert on_nodes(1, place, *TRAINING, *PRETRAINED, *last) == [123]
