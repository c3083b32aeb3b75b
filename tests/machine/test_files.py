"""Files that are whole or not there, the private directory, the lock and the secret."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import SystemFault
from agent.machine import files
from agent.machine.files import read_secret, take_lock


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("wanted", [0o600, 0o644, 0o700])
def test_a_file_is_replaced_with_its_mode_and_nothing_beside_it(wanted: int, tmp_path: Path) -> None:
    """Who has opened the old one reads all of that."""
    path = tmp_path / "file"
    files.write(str(path), "first", wanted)
    with path.open() as reader:
        text = "second\r\nwith é and \udcff\n"
        files.write(str(path), text, wanted)
        assert (reader.read(), files.read(str(path)), mode(path)) == ("first", text, wanted)
    assert os.listdir(tmp_path) == ["file"]


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


@pytest.mark.parametrize("left", ["link", "file"])
def test_what_lies_where_the_new_file_is_prepared_is_not_written_to(left: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    aside = tmp_path / f"file.{os.getpid()}.new"
    aside.symlink_to(victim) if left == "link" else aside.hardlink_to(victim)
    files.write(str(tmp_path / "file"), "text")
    assert victim.read_text() == "precious"
    assert (tmp_path / "file").read_text() == "text"
    assert set(os.listdir(tmp_path)) == {"victim", "file"}


def test_parts_of_a_file(tmp_path: Path) -> None:
    """And reading what is not there."""
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"\xff123456789")
    assert files.read(str(tmp_path / "none")) is files.read(str(path / "below")) is None
    link.symlink_to(path)
    found = [files.read_part(str(path), offset, 4) for offset in (0, 4, 8, 10, 99)]
    assert found == [b"\xff123", b"4567", b"89", b"", b""]
    assert files.read_part(str(link), 0, 4) == files.read_part(str(tmp_path / "none"), 0, 4) == b""


def test_the_ends_of_all_files_below_a_directory(tmp_path: Path) -> None:
    for rank, data in enumerate((b"one\ntwo\nthree\n", b"short\n", b"x" * 50, b"123456\n890\n")):
        (tmp_path / "1" / f"rank.{rank}").mkdir(parents=True)
        (tmp_path / "1" / f"rank.{rank}" / "stdout").write_bytes(data)
    os.mkfifo(tmp_path / "1" / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert files.read_tails(str(tmp_path), 10) == {
        "1/rank.0/stdout": "two\nthree\n",
        "1/rank.1/stdout": "short\n",
        "1/rank.2/stdout": "x" * 10,
        "1/rank.3/stdout": "890\n",
    }
    assert files.read_tails(str(tmp_path / "none"), 10) == {}


def test_names_come_by_time_then_by_name(tmp_path: Path) -> None:
    for name, time in (("young", 30), ("b", 20), ("a", 20), ("old", 10)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time, time))
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    os.utime(tmp_path / "link", (25, 25), follow_symlinks=False)
    assert files.list_dir(str(tmp_path)) == ["old", "a", "b", "link", "young"]
    assert files.list_dir(str(tmp_path / "none")) == []


def test_the_size_of_a_directory_is_that_of_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    (tmp_path / "a/x").write_bytes(bytes(1000))
    (tmp_path / "a/b/y").write_bytes(bytes(24))
    (tmp_path / "a/link").symlink_to("../large")
    assert files.dir_size(str(tmp_path / "a")) == 1024 + len("../large")
    assert files.dir_size(str(tmp_path / "none")) == 0


def test_a_directory_goes_with_all_that_is_in_it_and_nothing_else(tmp_path: Path) -> None:
    kept, path = tmp_path / "kept", tmp_path / "run"
    kept.mkdir()
    (kept / "file").write_text("precious")
    (path / "deep" / "deeper").mkdir(parents=True)
    (path / "deep" / "link").symlink_to(kept)
    (path / "deep" / "file").write_text("x")
    (tmp_path / "link").symlink_to(kept)
    for name in ("run", "run", "link", "none"):
        files.remove_dir(str(tmp_path / name))
    assert not path.exists()
    assert (kept / "file").read_text() == "precious"


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


def test_what_cannot_be_written_is_found_before_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.check_writable(str(path))
    assert not path.exists()
    path.write_text("x")
    files.check_writable(str(path))
    assert path.read_text() == "x" and [*tmp_path.iterdir()] == [path]
    for broken in (path / "below", tmp_path / "no" / "such"):
        with pytest.raises(OSError, match="directory"):
            files.check_writable(str(broken))


def test_a_lock_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(SystemFault, match="No such file or directory") as caught:
        take_lock(f"{tmp_path}/no/such")
    assert f"{tmp_path}/no/such" in caught.value.what and "A4_RUN_DIR" in caught.value.hint


LOCK = """
import sys
from agent.machine.files import take_lock
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


def test_both_ends_of_the_files_in_a_directory(tmp_path: Path) -> None:
    long = b"first\nsecond\n" + b"x" * 100 + b"\nlast but one\nlast\n"
    for name, data in (("long", long), ("short", b"short\n"), ("exact", b"0123456789\n012345678\n")):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "bytes").write_bytes(b"start\r\n\xff\n")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "long")
    found = files.read_ends(str(tmp_path), 15)
    assert found == {
        "long": "first\nsecond\nlast\n",
        "short": "short\n",
        "exact": "0123456789\n012345678\n",
        "bytes": "start\r\n\ufffd\n",
    }
    assert files.read_ends(str(tmp_path / "none"), 10) == {}
    assert files.read_ends(str(tmp_path / "short"), 10) == {}
