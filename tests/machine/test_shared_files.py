"""The process that works in a shared directory: what it does there, and what it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SystemFault
from agent.lifecycle.sharing.claim import Claim
from agent.machine.beating import Beating, BeatPlan, is_beating, keep_beating
from agent.machine.loop import Loop
from agent.machine.shared_files import ProcessFiles, SharedAnswer
from tests.machine.waiting import run, wait_until

LATE, EVER = 0.0, float("1e12")


class Asking:
    """Processes of one test and their loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.loop = Loop()
        self.all: list[ProcessFiles] = []
        self._pids: set[int] = set()

    def files(self, seconds: float = 60.0) -> ProcessFiles:
        self.all.append(ProcessFiles(self.loop, str(self.path), seconds))
        return self.all[-1]

    def ask(self, command: Callable[..., None], *arguments: Any) -> SharedAnswer:
        answers: list[SharedAnswer] = []

        def done(answer: SharedAnswer) -> None:
            answers.append(answer)
            self.loop.stop()

        command(*arguments, done)
        assert answers == [], "told from inside the call"
        self._note_processes()
        run(self.loop)
        return answers[0]

    def now(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, action: Callable[[], None]) -> Any:
        return self.loop.later(seconds, action)

    def pid(self, number: int = -1) -> int:
        process = self.all[number]._process
        assert process is not None
        return process.pid

    def _note_processes(self) -> None:
        self._pids |= {files._process.pid for files in self.all if files._process is not None}

    def close(self) -> None:
        self._note_processes()
        for files in self.all:
            files.close()

        def look() -> None:
            if any(os.path.exists(f"/proc/{pid}") for pid in self._pids):
                self.loop.later(0.01, look)
            else:
                self.loop.stop()

        self.loop.later(0, look)
        run(self.loop)


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    asking = Asking(tmp_path)
    yield asking
    asking.close()


def tree(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if not each.is_dir())


def test_a_file_is_there_whole_and_alone(asking: Asking, tmp_path: Path) -> None:
    files = asking.files()
    assert asking.ask(files.put, "a/b", "name", "ä\n", EVER) == SharedAnswer("ä\n")
    assert asking.ask(files.put, "a/b", "name", "other", EVER) == SharedAnswer("other")
    assert (tmp_path / "a" / "b" / "name").read_text() == "other"
    assert tree(tmp_path) == ["a/b/name"]


def test_what_comes_too_late_is_not_shown(asking: Asking, tmp_path: Path) -> None:
    files = asking.files()
    asking.ask(files.put, "a", "beat.1", "", EVER)
    late = SharedAnswer(why="it is too late: others may act instead")
    assert asking.ask(files.put, "a", "name", "text", LATE) == late
    assert asking.ask(files.link, "a", "name", "text", LATE) == late
    assert asking.ask(files.move, "a", "beat.1", "beat.2", LATE) == late
    assert tree(tmp_path) == ["a/beat.1"]


def test_one_of_many_makes_a_link(asking: Asking, tmp_path: Path) -> None:
    files = [asking.files() for _ in range(4)]
    answers = [asking.ask(each.link, "claims/x", "term.1", f"by {number}", EVER) for number, each in enumerate(files)]
    assert answers == [SharedAnswer("by 0")] * 4
    assert tree(tmp_path) == ["claims/x/term.1"]


def test_a_rename_that_the_server_has_done_twice(asking: Asking, tmp_path: Path) -> None:
    files = asking.files()
    asking.ask(files.put, "a", "new", "", EVER)
    assert asking.ask(files.move, "a", "old", "new", EVER) == SharedAnswer()
    assert asking.ask(files.move, "a", "old", "other", EVER) == SharedAnswer(why="it is not there")


def test_looks(asking: Asking, tmp_path: Path) -> None:
    files = asking.files()
    nothing = SharedAnswer({"names": [], "texts": {}, "problems": {}})
    assert asking.ask(files.look, "a/b", ["x"], []) == nothing
    for name in ("x1", "x2", "y"):
        asking.ask(files.put, "a/b", name, name, EVER)
    (tmp_path / "a/b/.hidden").touch()
    (tmp_path / "a/b/x3").symlink_to("x1")
    (tmp_path / "a/b/x4").mkdir()
    (tmp_path / "a/b/x5").write_bytes(b"x" * 20_000)
    found = asking.ask(files.look, "a/b", ["x"], ["x2"]).value
    assert sorted(found["names"]) == ["x1", "x2", "x3", "x4", "x5", "y"]
    assert found["texts"] == {"x1": "x1"}
    assert found["problems"] == {
        "x3": "it is a symbolic link",
        "x4": "it is not a file",
        "x5": "it has more than 16384 bytes",
    }
    assert asking.ask(files.remove, "a/b", ["x3", "x4", "x5", "none"]) == SharedAnswer()
    assert tree(tmp_path) == ["a/b/.hidden", "a/b/x1", "a/b/x2", "a/b/y"]
    (tmp_path / "a").rename(tmp_path / "elsewhere")
    assert asking.ask(files.look, "a/b", ["x"], []) == nothing


def test_a_process_that_was_killed_is_replaced(asking: Asking) -> None:
    files = asking.files()
    assert asking.ask(files.put, "a", "x", "", EVER) == SharedAnswer("")
    os.kill(asking.pid(), signal.SIGSTOP)
    os.kill(asking.pid(), signal.SIGKILL)
    why = asking.ask(files.put, "a", "y", "", EVER).why
    assert why in ("", "the process that does it was killed")  # as the kernel was first
    assert asking.ask(files.put, "a", "z", "", EVER) == SharedAnswer("")


def test_a_process_that_does_not_answer_is_given_up(asking: Asking) -> None:
    files = asking.files(0.5)
    files.answer_seconds = 60.0
    asking.ask(files.survey)
    stopped = asking.pid()
    os.kill(stopped, signal.SIGSTOP)
    files.answer_seconds = 0.5
    assert asking.ask(files.put, "a", "y", "", EVER) == SharedAnswer(why="no answer for 0.5 s")
    files.answer_seconds = 60.0
    assert asking.ask(files.put, "a", "z", "", EVER) == SharedAnswer("")
    assert asking.pid() != stopped


def test_no_process_for_nothing_and_no_answer_after_the_end(asking: Asking) -> None:
    files = asking.files()
    assert files._process is None
    asking.ask(files.survey)
    files.put("a", "x", "", EVER, lambda answer: pytest.fail("told after the end"))
    files.close()


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
    held: list[int] = []
    lost: list[str] = []
    claims: list[Claim] = []

    def got(number: int) -> None:
        held.append(number)
        asking.loop.stop()

    for number in range(3):
        claims.append(
            Claim(
                asking.files(),
                asking,
                "x",
                nonce=f"{number:032x}",
                by=f"writer {number}",
                lease=6.0,
                acquired=lambda number=number: got(number),  # type: ignore[misc]
                lost=lost.append,
                say=lambda text: None,
            )
        )
        claims[-1].acquire()
    run(asking.loop)
    assert len(held) == 1
    first = held[0]
    os.kill(asking.pid(first), signal.SIGSTOP)
    run(asking.loop)
    assert len(held) == 2 and held[1] != first
    assert [why.rpartition(" for ")[0] for why in lost] == ["the claim x could not be renewed"]
    assert claims[first].until == 0.0 < claims[held[1]].until
    claims[held[1]].release(asking.loop.stop)
    run(asking.loop)
    for claim in claims:
        claim.close()
