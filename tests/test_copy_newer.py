"""The program that copies what was trained into the bucket."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from agent.paths import shipped


def copy(source: Path, destination: Path) -> subprocess.CompletedProcess[str]:
    argv = ["bash", shipped("entrypoints", "copy-newer.sh"), str(source), str(destination)]
    return subprocess.run(argv, stderr=subprocess.PIPE, text=True, timeout=60)


def test_what_is_short_or_older_is_copied_again_and_the_rest_stays(tmp_path: Path) -> None:
    source, destination = tmp_path / "out", tmp_path / "bucket"
    destination.mkdir()
    names = ("iter_0000009/whole file", "iter_0000009/torn", ".metadata", "older")
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(f"that is {name}")
        os.utime(source / name, (1000, 1000))
    assert copy(source, destination).returncode == 0
    assert all((destination / name).read_text() == f"that is {name}" for name in names)

    (destination / names[0]).write_text(f"kept is {names[0]}"[: len(f"that is {names[0]}")])
    (destination / names[1]).write_text("tha")  # interrupted: short, and newer than its source
    (destination / "older").write_text("that is oldes")
    os.utime(destination / "older", (500, 500))
    assert copy(source, destination).returncode == 0
    assert (destination / names[0]).read_text().startswith("kept")
    assert [(destination / name).read_text() for name in names[1:]] == [f"that is {name}" for name in names[1:]]


def test_what_cannot_be_copied_is_a_failure(tmp_path: Path) -> None:
    assert copy(tmp_path / "nothing", tmp_path).returncode != 0
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    (tmp_path / "bucket").write_text("no directory")
    found = copy(tmp_path / "out", tmp_path / "bucket")
    assert found.returncode != 0 and found.stderr
