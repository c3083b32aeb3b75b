"""The process that works in a shared directory: what it does there, and what it leaves alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.machine.shared_files import SharedAnswer, SharedCommand, SharedFiles, look
from agent.paths import own_program
from tests.machine.waiting import wait_until

LATE, EVER = 0.0, float("1e12")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SharedFiles]:
    """A process and its directory."""
    with closing(SharedFiles(str(tmp_path), 60.0)) as files:
        yield files


def process_of(files: SharedFiles) -> int:
    """The present one; it is started for that if need be."""
    files.ask(SharedCommand(("survey",)))
    assert files._process is not None
    return files._process.pid


def put(files: SharedFiles, folder: str, name: str, text: str, until: float = EVER) -> SharedAnswer:
    return files.ask(SharedCommand(("put", folder, name, text, until)))


def tree(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if not each.is_dir())


def test_a_file_is_there_whole_and_alone(files: SharedFiles, tmp_path: Path) -> None:
    """What comes too late is not shown."""
    assert put(files, "a/b", "name", "ä\n") == SharedAnswer("ä\n")
    assert put(files, "a/b", "name", "other") == SharedAnswer("other")
    late = SharedAnswer(why="it is too late: others may act instead")
    assert put(files, "a/b", "new", "text", LATE) == late
    assert files.ask(SharedCommand(("link", "a/b", "new", "text", LATE))) == late
    assert files.ask(SharedCommand(("move", "a/b", "name", "new", LATE))) == late
    assert (tmp_path / "a" / "b" / "name").read_text() == "other"
    assert tree(tmp_path) == ["a/b/name"]


def test_a_rename_that_the_server_has_done_twice(files: SharedFiles) -> None:
    put(files, "a", "new", "")
    assert files.ask(SharedCommand(("move", "a", "old", "new", EVER))) == SharedAnswer()
    assert files.ask(SharedCommand(("move", "a", "old", "other", EVER))) == SharedAnswer(why="it is not there")


def test_one_of_many_makes_a_link(tmp_path: Path) -> None:
    for number in range(3):
        command = SharedCommand(("link", "claims/x", "term.1", f"by {number}", EVER))
        with closing(SharedFiles(str(tmp_path), 60.0)) as other:
            assert other.ask(command) == SharedAnswer("by 0")
    assert tree(tmp_path) == ["claims/x/term.1"]


def test_looks(files: SharedFiles, tmp_path: Path) -> None:
    nothing = SharedAnswer({"names": [], "texts": {}, "problems": {}})
    assert files.ask(look("a/b", ["x"], [])) == nothing
    for name in ("x1", "x2", "y"):
        put(files, "a/b", name, name)
    (tmp_path / "a/b/.hidden").touch()
    (tmp_path / "a/b/x3").symlink_to("x1")
    (tmp_path / "a/b/x4").mkdir()
    (tmp_path / "a/b/x5").write_bytes(b"x" * 20_000)
    found = files.ask(look("a/b", ["x"], ["x2"])).value
    assert sorted(found["names"]) == ["x1", "x2", "x3", "x4", "x5", "y"]
    assert found["texts"] == {"x1": "x1"}
    assert found["problems"] == {
        "x3": "it is a symbolic link",
        "x4": "it is not a file",
        "x5": "it has more than 16384 bytes",
    }
    assert files.ask(SharedCommand(("remove", "a/b", "x3", "x4", "x5", "none"))) == SharedAnswer()
    assert tree(tmp_path) == ["a/b/.hidden", "a/b/x1", "a/b/x2", "a/b/y"]
    (tmp_path / "a").rename(tmp_path / "elsewhere")
    assert files.ask(look("a/b", ["x"], [])) == nothing


def test_a_process_that_was_killed_is_replaced(files: SharedFiles) -> None:
    killed = process_of(files)
    os.kill(killed, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    why = put(files, "a", "y", "").why
    assert why in ("", "the process that does it was killed")  # as the kernel was first
    assert put(files, "a", "z", "") == SharedAnswer("")


def test_a_process_that_does_not_answer_is_given_up(files: SharedFiles) -> None:
    stopped = process_of(files)
    os.kill(stopped, signal.SIGSTOP)
    files.answer_seconds = 0.5
    assert put(files, "a", "y", "") == SharedAnswer(why="no answer for 0.5 s")
    files.answer_seconds = 60.0
    assert put(files, "a", "z", "") == SharedAnswer("")
    assert process_of(files) != stopped


def test_a_command_that_a_signal_interrupts_leaves_no_answer_for_the_next(files: SharedFiles) -> None:
    assert files._process is None, "a process for nothing"
    os.kill(process_of(files), signal.SIGSTOP)

    def interrupt(number: int, frame: object) -> None:
        raise ZeroDivisionError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(ZeroDivisionError):
            signal.setitimer(signal.ITIMER_REAL, 0.05)  # once: it would end this process where nobody expects it
            files.ask(look("a"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert put(files, "a", "x", "x") == SharedAnswer("x")


def test_a_thread_waits_for_another_s_command_only_until_its_time(files: SharedFiles) -> None:
    stopped = process_of(files)
    os.kill(stopped, signal.SIGSTOP)
    answers: list[SharedAnswer] = []
    other = threading.Thread(target=lambda: answers.append(put(files, "a", "x", "x")))
    other.start()
    wait_until(files._asking.locked)
    assert files.ask(look("a", by=time.monotonic() + 0.1)) == SharedAnswer(why="no answer in time")
    os.kill(stopped, signal.SIGCONT)
    other.join()
    assert answers == [SharedAnswer("x")]


# Flags of old scripts


def flags(path: Path, *folders: str) -> dict[str, str]:
    argv = own_program("share-files.py", str(path), "flags", *folders)
    found: dict[str, str] = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    return found


def test_flags_are_listed_and_told_apart(tmp_path: Path) -> None:
    """One that is made again, or touched, is another one. A link in the directory is not followed."""
    assert flags(tmp_path, "sync_flags_a") == {}
    flag = tmp_path / "sync_flags_a" / "download_complete_flag"
    flag.parent.mkdir()
    flag.touch()
    (flag.parent / "other").touch()
    first = flags(tmp_path, "sync_flags_a", "sync_flags_b")
    assert list(first) == ["sync_flags_a/download_complete_flag"]
    assert flags(tmp_path, "sync_flags_a") == first
    os.utime(flag, ns=(7, 7))
    assert flags(tmp_path, "sync_flags_a") != first
    (tmp_path / "sync_flags_c").symlink_to(flag.parent)
    argv = own_program("share-files.py", str(tmp_path), "flags", "sync_flags_c")
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.stdout == "" and "is a symbolic link, and not followed" in done.stderr
