"""What git says of files on shared storage, and when it says nothing."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from agent.errors import MissingProgram
from agent.machine.stored import SILENT_SECONDS, StoredFiles, git_settings


def test_without_git_it_is_git_that_is_missing_and_not_the_storage(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with pytest.raises(MissingProgram, match="git is not there"):
        StoredFiles({"PATH": "/nowhere"}).checkout(str(tmp_path))


def test_git_gives_up_a_server_that_is_silent(tmp_path: Path) -> None:
    settings = {name: "1" if text == str(SILENT_SECONDS) else text for name, text in git_settings().items()}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x.git"
        env = {**os.environ, **settings, "no_proxy": "*", "HOME": str(tmp_path)}
        done = subprocess.run(["git", "ls-remote", url], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "too slow" in done.stderr
