"""What stands for Pai-Megatron-Patch, its model and its datasets, made in a directory of the test.

The scripts take their positions as those of the real repository do. What they start reads what the stages before have
made, and refuses what Megatron refuses.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

from agent.workbench.local.spec import BRIDGE_ADDRESS
from tests.pai.hub import Hub

HERE = Path(__file__).parent
BACKENDS = ("Megatron-LM-250624", "Megatron-LM-250908")
MODELS = ("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-Next-80B-A3B-Instruct")
DATASETS = "release/models/pai-megatron-patch"
PORT = 8080
ADDRESS = f"http://{BRIDGE_ADDRESS}:{PORT}"
BIN = "/stand-in/bin"
DOWNLOADERS = "/stand-in/downloaders"
_PYTHON = f'#!/bin/sh\nexec {sys.executable} "$@"\n'.encode()
PROGRAMS = {
    f"{BIN}/torchrun": f"#!{sys.executable}\n{(HERE / 'torchrun.py').read_text()}".encode(),
    f"{BIN}/python": _PYTHON,
    f"{DOWNLOADERS}/huggingface/bin/python": _PYTHON,
}
"""Files of every pod."""
_WHO = {f"GIT_{who}_{what}": "stand-in" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
_WHEN = {f"GIT_{who}_DATE": "2025-12-15T00:00:00Z" for who in ("AUTHOR", "COMMITTER")}


def git(directory: Path, *words: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(directory), **_WHO, **_WHEN}
    return subprocess.run(
        ["git", "-C", str(directory), *words], env=env, check=True, capture_output=True, text=True
    ).stdout.strip()


def _commit(directory: Path, message: str) -> str:
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(directory, "rev-parse", "HEAD")


def repositories(place: Path) -> tuple[str, str]:
    """Make Pai-Megatron-Patch.git and Megatron-LM.git below `place`; the commit to take, and a newer one."""
    for source, name in (("megatron_lm", "Megatron-LM"), ("patch", "Pai-Megatron-Patch")):
        shutil.copytree(HERE / "repository" / source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        git(place / name, "init", "--quiet", "--initial-branch", "main")
    backend = _commit(place / "Megatron-LM", "Megatron")
    patch = place / "Pai-Megatron-Patch"
    modules = [f'[submodule "{name}"]\n\tpath = backends/megatron/{name}\n' for name in BACKENDS]
    (patch / ".gitmodules").write_text("".join(f"{module}\turl = ../Megatron-LM.git\n" for module in modules))
    for name in BACKENDS:
        git(patch, "update-index", "--add", "--cacheinfo", f"160000,{backend},backends/megatron/{name}")
        (patch / "backends/megatron" / name).mkdir(parents=True)
    commit = _commit(patch, "Patch")
    newer = _commit(patch, "Something newer")
    for name in ("Megatron-LM", "Pai-Megatron-Patch"):
        bare = place / f"{name}.git"
        git(place, "clone", "--quiet", "--bare", str(place / name), str(bare))
        git(bare, "config", "uploadpack.allowAnySHA1InWant", "true")
        shutil.rmtree(place / name)
    return commit, newer


def model(place: Path, shards: int = 2, size: int = 50_000) -> None:
    """A model of Hugging Face with its tokenizer."""
    place.mkdir(parents=True)
    weights = {}
    for at in range(shards):
        name = f"model-{at + 1:05d}-of-{shards:05d}.safetensors"
        (place / name).write_bytes(safetensors(f"layer.{at}", size))
        weights[f"layer.{at}"] = name
    index = {"metadata": {"total_size": shards * size}, "weight_map": weights}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json"):
        (place / name).write_text(json.dumps({"of": name}))
    (place / "merges.txt").write_text("a b\n")


def safetensors(name: str, size: int) -> bytes:
    head = json.dumps({name: {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(size)


def datasets(place: Path) -> None:
    """The files of the datasets, where their URLs have them."""
    spec = importlib.util.spec_from_file_location("datasets", HERE / "repository/megatron_lm/megatron/datasets.py")
    assert spec and spec.loader
    formats = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(formats)
    mmap, alpaca = place / DATASETS / "qwen-datasets", place / DATASETS / "datasets"
    mmap.mkdir(parents=True)
    alpaca.mkdir()
    tokens = range(4000)
    (mmap / "mmap_qwen3_datasets_text_document.bin").write_bytes(struct.pack(f"<{len(tokens)}i", *tokens))
    (mmap / "mmap_qwen3_datasets_text_document.idx").write_bytes(formats.index([1000] * 4))
    for part in ("train", "valid"):
        samples = [{"instruction": f"{part} {at}", "input": "", "output": "yes"} for at in range(20)]
        (alpaca / f"alpaca_zh-{part}-general.json").write_text(json.dumps(samples))


def wheels(place: Path, *packages: str) -> None:
    """NAME==VERSION as wheels with nothing in them, and a page of links to them."""
    place.mkdir(parents=True)
    for package in packages:
        name, _, version = package.partition("==")
        with zipfile.ZipFile(place / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            info = f"{name}-{version}.dist-info"
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    links = "".join(f'<a href="{path.name}">{path.name}</a>' for path in place.iterdir())
    (place / "links.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")


def hub(place: Path) -> tuple[Hub, str, str]:
    """Everything to be fetched; the commit of the patch, and a newer one."""
    for name in MODELS:
        model(place / "models" / name)
    datasets(place / "files")
    (place / "git").mkdir()
    commits = repositories(place / "git")
    return Hub({name: place / "models" / name for name in MODELS}, place / "files", place / "git"), *commits
