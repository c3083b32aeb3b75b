"""Files that are whole or not there, the private directory, the lock and the secret."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.errors import SystemFault
from agent.machine import files
from agent.machine.lock import take_lock
from agent.machine.secret import read_secret


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("wanted", [0o600, 0o644, 0o700])
def test_a_file_is_written_with_its_mode_and_nothing_beside_it(wanted: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in ("first", "second\r\nwith é and \udcff\n"):
        files.write(str(path), text, wanted)
        assert files.read(str(path)) == text
        assert mode(path) == wanted
    assert os.listdir(tmp_path) == ["file"]


def test_readers_see_the_old_text_or_the_new_one(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    texts = {letter * 300_000 for letter in "ab"}
    files.write(path, "a" * 300_000)
    stop = threading.Event()
    seen: list[str | None] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(files.read(path))

    reader = threading.Thread(target=read)
    reader.start()
    for text in list(texts) * 50:
        files.write(path, text)
    stop.set()
    reader.join()
    assert set(seen) <= texts
    assert seen


@pytest.mark.parametrize("text", ["x", "\ud800"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(text: str, tmp_path: Path) -> None:
    """Either the target cannot be replaced, or the text cannot be encoded."""
    path = tmp_path / "target"
    if text == "x":
        path.mkdir()
    else:
        path.write_text("old")
    with pytest.raises((OSError, UnicodeEncodeError)):
        files.write(str(path), text)
    assert os.listdir(tmp_path) == ["target"]
    assert path.is_dir() or path.read_text() == "old"


def test_a_link_laid_where_the_new_file_is_prepared_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"file.{os.getpid()}.new").symlink_to(victim)
    with pytest.raises(OSError):
        files.write(str(tmp_path / "file"), "text")
    assert victim.read_text() == "precious"


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert files.read(str(tmp_path / "none")) is None
    assert files.read(str(tmp_path / "file" / "below")) is None


def test_append_refresh_and_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.overwrite(str(path), "not made")
    assert not path.exists()
    files.refresh(str(path))
    assert path.read_bytes() == b""
    os.utime(path, (1, 1))
    files.refresh(str(path))
    assert path.stat().st_mtime > 1
    files.append(str(path), b"one\n")
    files.append(str(path), b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"
    inode = path.stat().st_ino
    files.overwrite(str(path), "x")
    assert (path.read_text(), path.stat().st_ino) == ("x", inode)


def test_a_private_directory_is_made_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "run"
    files.make_private_dir(str(path))
    assert mode(path) == 0o700
    path.chmod(0o777)
    files.make_private_dir(f"{path}/")
    assert mode(path) == 0o700


@pytest.mark.parametrize("what", ["link", "link/", "file", "foreign"])
def test_a_private_directory_of_somebody_else_is_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o755)
    if what.startswith("link"):
        path.symlink_to(elsewhere)
    elif what == "file":
        path.write_text("x")
    else:
        path.mkdir()
        os.chown(path, 12345, 12345)
    with pytest.raises(SystemFault, match="A4_RUN_DIR"):
        files.make_private_dir(f"{path}/" if what == "link/" else str(path))
    assert mode(elsewhere) == 0o755


LOCK = """
import sys
from agent.machine.lock import take_lock
print(repr(take_lock(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def test_one_process_has_the_lock_for_as_long_as_it_lives(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    argv = [sys.executable, "-c", LOCK, path]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "''\n"
        assert take_lock(path).startswith(f"pid {holder.pid} since ")
        holder.kill()
        holder.wait()
        assert take_lock(path) == ""
        assert Path(path).read_text().startswith(f"pid {os.getpid()} since ")
        assert take_lock(path).startswith(f"pid {os.getpid()} since ")


@pytest.mark.parametrize("content", [b"x" * 32, b"0123456789abcdef0123456789abcdef\n", bytes(range(64)), b" " * 32])
def test_the_secret_is_read_as_it_is(content: bytes, tmp_path: Path) -> None:
    """All pods mount the same bytes, and a random one may be a space."""
    path = tmp_path / "secret"
    path.write_bytes(content)
    assert read_secret(str(path)) == content


@pytest.mark.parametrize(
    ("content", "why"), [(None, "cannot be read"), (b"", "0 bytes"), (b"x" * 30 + b"\n", "31 bytes")]
)
def test_a_bad_secret_is_told_with_how_to_make_one(content: bytes | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=why) as caught:
        read_secret(str(path))
    assert str(path) in str(caught.value)
    assert "openssl rand" in str(caught.value)
