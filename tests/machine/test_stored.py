"""What git says of files on shared storage, and when it says nothing."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from agent.decide.completeness import is_damaged
from agent.errors import MissingProgram
from agent.machine.stored import SILENT_SECONDS, StoredFiles, git_settings


def test_without_git_it_is_git_that_is_missing_and_not_the_storage(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with pytest.raises(MissingProgram, match="git is not installed"):
        StoredFiles({"PATH": "/nowhere"}).checkout(str(tmp_path))


def test_git_gives_up_a_server_that_is_silent(tmp_path: Path) -> None:
    settings = {name: "1" if text == str(SILENT_SECONDS) else text for name, text in git_settings().items()}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x.git"
        env = {**os.environ, **settings, "no_proxy": "*", "HOME": str(tmp_path)}
        done = subprocess.run(["git", "ls-remote", url], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "too slow" in done.stderr


def test_what_is_damaged_in_a_checkout_and_what_is_edited(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=x", "-c", "user.email=x@y"]
        subprocess.run(["git", *who, "-C", str(tmp_path), *words], check=True, capture_output=True)

    files = {".gitattributes": "*.txt eol=crlf\n", "a*b": "glob", "a1b": "one", "ü x": "text", "s.txt": "a\nb\n"}
    files |= {"was_file": "file", "run.sh": "#!/bin/sh\n", "longer": "x", "staged": "one", "empty": "", "gone": "x"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to("run.sh")
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message=x")
    git("checkout", "HEAD", "--", "s.txt")
    stored = StoredFiles(os.environ)
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "empty").touch()
    assert stored.checkout(str(tmp_path)).changed == [], "neither modes nor times"

    for name, data in {
        "a*b": b"",
        "ü x": b"te",
        "s.txt": b"a\r\n",
        "longer": b"xy",
        "a1b": b"n",
        "staged": b"1",
    }.items():
        (tmp_path / name).write_bytes(data)
    for name in ("gone", "link", "was_file"):
        (tmp_path / name).unlink()
    (tmp_path / "was_file").mkdir()
    (tmp_path / "was_file" / "mine").touch()
    (tmp_path / "new").touch()
    git("add", "staged", "new")
    found = stored.checkout(str(tmp_path)).changed
    damaged = [file[1] for file in found if is_damaged(file)]
    edited = {file[1] for file in found} - set(damaged)
    assert (set(damaged), edited) == ({"a*b", "ü x", "s.txt", "gone", "link"}, {"longer", "a1b", "staged", "was_file"})
    stored.restore(str(tmp_path), "", damaged)
    assert {file[1] for file in stored.checkout(str(tmp_path)).changed} == edited
    assert (tmp_path / "s.txt").read_bytes() == b"a\r\nb\r\n" and (tmp_path / "was_file" / "mine").exists()
