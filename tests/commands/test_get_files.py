"""What a pod sends to `a4-agent get --files`, and what it does not."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from agent.commands import get_files
from agent.commands.fetched_files import in_directory
from agent.commands.get_files import fetch
from tests.commands.test_get import files_in


def archive(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def sends(script: str) -> tuple[int, list[str], list[str], str]:
    """A pod that runs this script in place of the one that it gets."""
    return 1, ["sh", "-c", script], ["*"], "/"


def test_a_pod_that_falls_silent_within_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sent").write_bytes(archive("a", bytes(100_000))[:50_000])

    @contextmanager
    def opened(name: str) -> Iterator[BinaryIO]:
        with in_directory(f"{tmp_path}/got")(name) as file:
            monkeypatch.setattr(get_files, "SILENT_SECONDS", 0)
            yield file

    assert fetch(*sends(f"cd {tmp_path}; echo $$ > pid; cat sent; exec sleep infinity"), opened) == 0
    assert capfd.readouterr().err == "a4-agent: files of pod 1 cannot be read: it has sent nothing for 0 s\n"
    assert files_in(tmp_path / "got") == {}
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_what_comes_after_the_end_of_the_archive(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its sender is not killed by a closed pipe."""
    (tmp_path / "sent").write_bytes(archive("a", b"content"))
    wish = sends(f"cat {tmp_path}/sent; exec head -c 1000000 /dev/zero")
    assert fetch(*wish, in_directory(f"{tmp_path}/got")) == 1
    assert capfd.readouterr().err == ""


def test_a_pod_without_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A relative pattern does not mean files of the directory in which SSH begins."""
    (tmp_path / "home").mkdir()
    for name in ("a", "home/b"):
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path / "home")
    assert fetch(1, [], ["b", f"{tmp_path}/a"], f"{tmp_path}/it's not", in_directory(f"{tmp_path}/got")) == 1
    assert list(files_in(tmp_path / "got").values()) == [b"a"]
    assert capfd.readouterr().err == f"a4-agent: files of pod 1: there is no directory {tmp_path}/it's not\n"


def test_a_pod_without_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fetch(1, ["/bin/sh", "-c"], ["a"], str(tmp_path), in_directory(f"{tmp_path}/got")) == 0
    assert capfd.readouterr().err == "a4-agent: files of pod 1: there is no tar\n"


@pytest.mark.parametrize(("code", "why"), [(1, "some changed while they were read"), (2, "tar could not read all")])
def test_how_tar_ends(code: int, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert fetch(*sends(f"exit {code}"), in_directory(str(tmp_path))) == 0
    assert capfd.readouterr().err.startswith(f"a4-agent: files of pod 1: {why}")
