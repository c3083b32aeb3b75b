"""The program that copies what was trained into the bucket."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent.paths import own_program


def copy(source: Path, destination: Path) -> subprocess.CompletedProcess[str]:
    argv = own_program("copy-newer.py", str(source), str(destination.parent), destination.name)
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
    assert found.returncode != 0 and "bucket is not a directory" in found.stderr


@pytest.mark.parametrize("laid", ["checkpoint", "checkpoint/iter_9", "checkpoint/iter_9/file"])
def test_what_others_lay_into_the_bucket_leads_nowhere(tmp_path: Path, laid: str) -> None:
    source, bucket, victim = tmp_path / "out", tmp_path / "bucket", tmp_path / "victim"
    for place, text in ((source, "ours"), (victim, "another's")):
        for name in ("file", "iter_9/file"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
    (source / "link").symlink_to(victim)
    (bucket / laid).parent.mkdir(parents=True)
    (bucket / laid).symlink_to(victim / "file" if laid.endswith("file") else victim)
    found = copy(source, bucket / "checkpoint")
    assert [path.read_text() for path in (victim / "file", victim / "iter_9/file")] == ["another's"] * 2
    if laid.endswith("file"):
        assert found.returncode == 0 and (bucket / laid).read_text() == "ours"
    else:
        assert f"{laid} is a symbolic link, and not followed" in found.stderr
