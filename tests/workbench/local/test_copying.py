"""How `a4-agent local cp` takes what tar and a pod do."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import SystemFault
from agent.workbench.local import copying
from agent.workbench.local.client import LocalCluster
from tests.workbench.local.helpers import needs_root, up


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with up(2) as cluster:
        yield cluster


@pytest.fixture
def tar_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tar of this machine, to be written."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tar").touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path / "bin" / "tar"


@needs_root
def test_a_file_that_changes_is_copied(
    cluster: LocalCluster, tar_here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tar_here.write_text(f'#!/bin/sh\n{shutil.which("tar", path=os.defpath)} "$@"\necho it changed >&2; exit 1\n')
    copying.copy(cluster, str(tar_here), "1:/tmp/copied")
    assert capfd.readouterr().err == "it changed\n"
    assert cluster.read(1, "/tmp/copied") == tar_here.read_text()


@needs_root
def test_a_side_that_is_silent(cluster: LocalCluster, tar_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "ANSWER_SECONDS", 0.1)
    tar_here.write_text("#!/bin/sh\nexec sleep infinity\n")
    with pytest.raises(SystemFault, match=r"tar on this machine has not answered for 0\.1 s"):
        copying.copy(cluster, "/etc/hosts", "1:/tmp")
    supervisor = cluster.supervisor_pid()
    os.kill(supervisor, signal.SIGSTOP)
    try:
        with pytest.raises(SystemFault, match=r"test in pod 1 has not answered for 0\.1 s"):
            copying.copy(cluster, "1:/etc/hosts", "/tmp")
    finally:
        os.kill(supervisor, signal.SIGCONT)
