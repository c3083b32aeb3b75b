"""The process that works in a shared directory: what it does there, and what it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from agent.errors import SystemFault
from agent.lifecycle.sharing.claim import Claim
from agent.machine.beating import Beating, BeatPlan, is_beating, keep_beating
from agent.machine.shared_files import SharedAnswer, SharedCommand, SharedFiles, carry_out, look
from tests.machine.waiting import wait_until

LATE, EVER = 0.0, float("1e12")


class Asking:
    """Processes of one test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[SharedFiles] = []

    def files(self, seconds: float = 60.0) -> SharedFiles:
        self.all.append(SharedFiles(str(self.path), seconds))
        return self.all[-1]

    def pid(self, number: int = -1) -> int:
        process = self.all[number]._process
        assert process is not None
        return process.pid

    def close(self) -> None:
        for files in self.all:
            files.close()


def put(files: SharedFiles, folder: str, name: str, text: str, until: float = EVER) -> SharedAnswer:
    return files.ask(SharedCommand(("put", folder, name, text, until)))


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    asking = Asking(tmp_path)
    yield asking
    asking.close()


def tree(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if not each.is_dir())


def test_a_file_is_there_whole_and_alone(asking: Asking, tmp_path: Path) -> None:
    files = asking.files()
    assert put(files, "a/b", "name", "ä\n") == SharedAnswer("ä\n")
    assert put(files, "a/b", "name", "other") == SharedAnswer("other")
    assert (tmp_path / "a" / "b" / "name").read_text() == "other"
    assert tree(tmp_path) == ["a/b/name"]


def test_what_comes_too_late_is_not_shown(asking: Asking, tmp_path: Path) -> None:
    files = asking.files()
    put(files, "a", "beat.1", "")
    late = SharedAnswer(why="it is too late: others may act instead")
    assert put(files, "a", "name", "text", LATE) == late
    assert files.ask(SharedCommand(("link", "a", "name", "text", LATE))) == late
    assert files.ask(SharedCommand(("move", "a", "beat.1", "beat.2", LATE))) == late
    assert tree(tmp_path) == ["a/beat.1"]


def test_one_of_many_makes_a_link(asking: Asking, tmp_path: Path) -> None:
    files = [asking.files() for _ in range(4)]
    answers = [
        each.ask(SharedCommand(("link", "claims/x", "term.1", f"by {number}", EVER)))
        for number, each in enumerate(files)
    ]
    assert answers == [SharedAnswer("by 0")] * 4
    assert tree(tmp_path) == ["claims/x/term.1"]


def test_a_rename_that_the_server_has_done_twice(asking: Asking, tmp_path: Path) -> None:
    files = asking.files()
    put(files, "a", "new", "")
    assert files.ask(SharedCommand(("move", "a", "old", "new", EVER))) == SharedAnswer()
    assert files.ask(SharedCommand(("move", "a", "old", "other", EVER))) == SharedAnswer(why="it is not there")


def test_looks(asking: Asking, tmp_path: Path) -> None:
    files = asking.files()
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


def test_a_process_that_was_killed_is_replaced(asking: Asking) -> None:
    files = asking.files()
    assert put(files, "a", "x", "") == SharedAnswer("")
    os.kill(asking.pid(), signal.SIGSTOP)
    os.kill(asking.pid(), signal.SIGKILL)
    why = put(files, "a", "y", "").why
    assert why in ("", "the process that does it was killed")  # as the kernel was first
    assert put(files, "a", "z", "") == SharedAnswer("")


def test_a_process_that_does_not_answer_is_given_up(asking: Asking) -> None:
    files = asking.files(0.5)
    files.answer_seconds = 60.0
    files.ask(SharedCommand(("survey",)))
    stopped = asking.pid()
    os.kill(stopped, signal.SIGSTOP)
    files.answer_seconds = 0.5
    assert put(files, "a", "y", "") == SharedAnswer(why="no answer for 0.5 s")
    files.answer_seconds = 60.0
    assert put(files, "a", "z", "") == SharedAnswer("")
    assert asking.pid() != stopped


def test_a_command_that_a_signal_interrupts_leaves_no_answer_for_the_next(asking: Asking) -> None:
    files = asking.files()
    assert files._process is None, "a process for nothing"
    files.ask(SharedCommand(("survey",)))
    stopped = asking.pid()
    os.kill(stopped, signal.SIGSTOP)

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


def test_a_thread_waits_for_another_s_command_only_until_its_time(asking: Asking) -> None:
    files = asking.files()
    files.ask(SharedCommand(("survey",)))
    os.kill(asking.pid(), signal.SIGSTOP)
    answers: list[SharedAnswer] = []
    other = threading.Thread(target=lambda: answers.append(put(files, "a", "x", "x")))
    other.start()
    wait_until(files._asking.locked)
    assert files.ask(look("a", by=time.monotonic() + 0.1)) == SharedAnswer(why="no answer in time")
    os.kill(asking.pid(), signal.SIGCONT)
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


def test_pod_0_takes_away_what_old_jobs_left(tmp_path: Path, life: subprocess.Popen[bytes]) -> None:
    jobs = tmp_path / "shared" / "jobs"
    for name, days in (("old", 8), ("young", 6)):
        start = jobs / name / ("0" * 32)
        start.mkdir(parents=True)
        for path in (start / "done.x.0", jobs / name / f"pod.0.{'0' * 32}.7"):
            path.touch()
        os.utime(jobs / name, (time.time() - days * 86400,) * 2)
    beat(tmp_path, life)
    wait_until(lambda: not (jobs / "old").exists())
    assert len(tree(jobs / "young")) == 2


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


# Claims


def test_a_claim_whose_holder_hangs_is_taken_over_by_one_other(asking: Asking) -> None:
    """For real: each with a process of its own, one of which stands still."""
    held: SimpleQueue[int] = SimpleQueue()
    lost: SimpleQueue[str] = SimpleQueue()
    over = threading.Event()

    def writer(number: int) -> Claim:
        return Claim(
            "x", nonce=f"{number:032x}", by=f"writer {number}", lease=6.0, lost=lost.put, say=lambda text: None
        )

    def write(number: int) -> None:
        carry_out(claims[number].acquire(), asking.all[number].ask, over.wait)
        held.put(number)
        carry_out(claims[number].hold(), asking.all[number].ask, over.wait)

    claims = [writer(number) for number in range(3)]
    threads = [threading.Thread(target=write, args=[number]) for number in range(3) if asking.files()]
    for thread in threads:
        thread.start()
    first = held.get(timeout=60.0)
    os.kill(asking.pid(first), signal.SIGSTOP)
    second = held.get(timeout=60.0)
    assert second != first
    assert lost.get(timeout=60.0).rpartition(" for ")[0] == "the claim x could not be renewed"
    assert claims[first].until == 0.0 < claims[second].until
    (third,) = {0, 1, 2} - {first, second}
    carry_out(claims[second].release(), asking.all[second].ask)
    assert held.get(timeout=60.0) == third
    carry_out(claims[third].release(), asking.all[third].ask)
    over.set()
    for thread in threads:
        thread.join()
    assert lost.empty()
