"""The process that works in a shared directory: what it does there, and what it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.errors import SystemFault
from agent.machine.beating import Beating, BeatPlan, is_beating, keep_beating
from agent.machine.shared_files import SharedAnswer, SharedCommand, SharedFiles, look
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


# Beats


@pytest.fixture
def life() -> Iterator[subprocess.Popen[bytes]]:
    """A process that a pod beats as long as."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process
        process.communicate()


def beat(path: Path, life: subprocess.Popen[bytes], pod: int = 0) -> Beating:
    plan = BeatPlan(str(path / "shared"), "jobs/e", pod, 0.05, 300.0, life.pid)
    return keep_beating(str(path / f"run-{pod}"), "e", plan)


def count(path: Path, nonce: str) -> int:
    """The number of the newest beat; -1 for none."""
    try:
        names = os.listdir(path / "shared" / "jobs" / "e")
    except FileNotFoundError:
        return -1
    return max((int(name.rpartition(".")[2]) for name in names if nonce in name and name != nonce), default=-1)


def test_beats_go_on_until_the_process_that_they_stand_for_ends(tmp_path: Path, life: subprocess.Popen[bytes]) -> None:
    (tmp_path / "shared").mkdir()
    first = beat(tmp_path, life)
    assert (first.new, first.lost) == (True, 0.0)
    wait_until(lambda: count(tmp_path, first.nonce) > 3)
    assert beat(tmp_path, life) == Beating(first.nonce)  # it goes on
    life.communicate()
    wait_until(lambda: not is_beating(str(tmp_path / "run-0" / "e")))
    assert (tmp_path / "shared" / "jobs" / "e" / first.nonce).is_dir()


def test_no_process_beats_that_cannot_leave_the_run_it_is_to_outlive(
    tmp_path: Path, life: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "shared").mkdir()
    plan = BeatPlan(str(tmp_path / "shared"), "jobs/e", 1, 0.05, 300.0, life.pid, cgroup=str(tmp_path / "none"))
    with pytest.raises(SystemFault, match="cannot be started"):
        keep_beating(str(tmp_path / "run"), "e", plan)
    assert not is_beating(str(tmp_path / "run" / "e"))


def test_a_worker_waits_for_the_folder_that_pod_0_makes(tmp_path: Path, life: subprocess.Popen[bytes]) -> None:
    (tmp_path / "shared").mkdir()
    worker = beat(tmp_path, life, pod=1)
    assert count(tmp_path, worker.nonce) == -1
    assert tree(tmp_path / "shared") == []
    beat(tmp_path, life)
    wait_until(lambda: count(tmp_path, worker.nonce) > 3)


@pytest.mark.parametrize("mark", ["exec-1", "exec-2", ""])
def test_the_first_process_of_a_run_whatever_sessions_it_makes(mark: str) -> None:
    code = (
        "import os, subprocess, sys; from agent.machine.beating import first_of_run; print(os.getpid(), flush=True); "
    )
    inner = "print(first_of_run('exec-1'), os.getpid(), flush=True)"
    middle = f"{code}subprocess.run([sys.executable, '-c', {code + inner!r}], start_new_session=True)"
    env = {**os.environ, **({"A4_RUN": mark} if mark else {})}
    done = subprocess.run([sys.executable, "-c", middle], env=env, capture_output=True, text=True, check=True)
    outer, _, found, own = done.stdout.split()
    assert found == (outer if mark == "exec-1" else own)
