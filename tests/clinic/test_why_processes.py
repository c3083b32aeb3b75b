"""What `why` takes from the processes of a pod, and what it may do to them: real processes of the test's own, and a
py-spy that writes down how it was called and prints recorded stacks."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.clinic.sources import dump, source, stacks
from agent.clinic.sources.dump import DumpSource
from agent.clinic.sources.processes import ProcessSource, known_ranks
from agent.clinic.sources.question import Question, look_argv, read_look
from agent.clinic.sources.source import Look
from agent.clinic.sources.stacks import StackSource, read_py_spy
from agent.clinic.why.records import PodRecords, Role
from agent.machine.api import RunMarks
from agent.machine.evidence import thread_states
from agent.machine.evidence_text import ProcessSeen
from agent.paths import package_home
from tests.clinic.recordings import recorded
from tests.machine.waiting import DEADLINE_SECONDS, wait_until

POD = PodRecords(0, "pod-0", "")
PATH = os.environ["PATH"]


def question(directory: Path, run: str = "nobody", seconds: float = 30.0) -> Question:
    why_dir, ranks_dir = (str(directory / name) for name in ("why_dir", "ranks_dir"))
    return Question(POD, RunMarks(run), why_dir, ranks_dir, f"{directory}:{PATH}", seconds)


def lay(directory: Path, files: Mapping[str, bytes]) -> None:
    directory.mkdir(exist_ok=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)


# Who is a rank


@pytest.mark.parametrize(
    ("notes", "records", "known"),
    [
        ({"20": b"1\n"}, {}, {20: 1}),
        ({}, {"1": b"started 20\n", "2": b"started 30 of 4\n"}, {20: 1, 30: 2}),
        ({}, {"1": b"started 20\nended 0\n", "2": b"started 30 of 4\nended 143 1790000000.5 of 4\n"}, {}),
        ({"25": b"1"}, {"1": b"started 20\n", "2": b"started 30\n"}, {25: 1, 30: 2}),
        ({"20": b"", "21": b"\xff1", "22": b"x", "x": b"3", "20.sock": b"4", "versions.json": b"{}"}, {}, {}),
        ({}, {"1": b"", "2": b"started", "3": b"started \xe9", "4": b"started x", "told": b"started 20"}, {}),
        (None, None, {}),
    ],
    ids=["hook", "record", "ended", "a shell starts it", "notes that are none", "records that are none", "neither"],
)
def test_the_ranks_that_are_noted(
    notes: Mapping[str, bytes] | None, records: Mapping[str, bytes] | None, known: dict[int, int], tmp_path: Path
) -> None:
    for name, files in (("why_dir", notes), ("ranks_dir", records)):
        if files is not None:
            lay(tmp_path / name, files)
    assert known_ranks(question(tmp_path)) == known


LAUNCHER = """
import os, subprocess, sys, threading

def start(rank, code):
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "RANK": rank}, stdout=subprocess.PIPE)

ends = [start(rank, "") for rank in "123"]
for process in ends:
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
for process in ends[1:]:
    process.wait()
alive = start("0", sys.argv[1])
alive.stdout.readline()
print(alive.pid, *[process.pid for process in ends], flush=True)
threading.Event().wait()
"""
ALIVE = """
import ctypes, os, threading
named = threading.Event()
def serve():
    ctypes.CDLL(None).prctl(15, b"pt_workerserver")
    named.set()
    threading.Event().wait()
threading.Thread(target=serve, daemon=True).start()
named.wait()
print("up", flush=True)
os.read(os.open(os.environb[b"FIFO"], os.O_RDWR), 1)
"""


def test_ranks_that_live_have_ended_and_are_gone(tmp_path: Path) -> None:
    """Rank 1 has ended and nobody has asked how, rank 2 is gone, and so is a process that was rank 0 before. The thread
    of torch's server is ours, and the name of the file that rank 0 reads is not UTF-8."""
    run, fifo = f"test-{os.getpid()}-ranks", f"{tmp_path}/caf\udce9"
    os.mkfifo(fifo)
    (tmp_path / "mpirun").write_text(LAUNCHER)
    argv, env = [sys.executable, str(tmp_path / "mpirun"), ALIVE], {"PATH": PATH, "A4_RUN": run, "FIFO": fifo}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout
        alive, zombie, gone, again = map(int, launcher.stdout.readline().split())
        try:
            noted = {alive: 0, zombie: 1, gone: 2, again: 0}
            lay(tmp_path / "why_dir", {str(pid): b"%d" % rank for pid, rank in noted.items()} | {f"{alive}.sock": b""})
            wait_until(lambda: thread_states(alive) == {"S"})
            look = Look(question(tmp_path, run))
            (processes := ProcessSource(look)).jobs()
        finally:
            os.kill(alive, 9)
            launcher.kill()
    found = processes.add_to(POD).processes
    assert {(one.pid, one.role, one.rank, one.state) for one in found} == {
        (launcher.pid, "launcher", None, "S"),
        (alive, "rank", 0, "S"),
        (zombie, "other", None, "Z"),
        (zombie, "rank", 1, "gone"),
        (gone, "rank", 2, "gone"),
    }
    assert look.sockets == {alive: f"{tmp_path}/why_dir/{alive}.sock"}
    (waiting,) = next(one.waiting for one in found if one.pid == alive)
    assert (waiting.syscall, waiting.file) == ("read", f"{tmp_path}/caf?")


# Whose stacks are taken, and how

SPY = """#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >>calls
cat "answer-$(wc -l <calls)"
"""
"""Answers by call; a call that has none fails."""
NATIVE, READ = "--native", "--nonblocking"
"""The process is paused for native frames alone."""
IN_RECV = recorded("pipeline")["3"]["stacks"]


# Until its child has opened the FIFO, the kernel holds the thread that started it where nothing but SIGKILL ends it.
IN_KERNEL = """
import os, threading
opens = [(os.POSIX_SPAWN_OPEN, 0, "fifo", os.O_RDONLY, 0)]
threading.Thread(target=os.posix_spawn, args=("/bin/true", ["true"], {}), kwargs={"file_actions": opens}).start()
threading.Event().wait()
"""
PROGRAMS = {"S": ["sleep", "1000"], "T": ["sh", "-c", "kill -STOP $$"], "SD": [sys.executable, "-c", IN_KERNEL]}
"""By the states of their threads."""


@contextmanager
def looking(
    directory: Path, states: str = "S", role: Role = "rank", *, has_socket: bool = False, **fields: Any
) -> Iterator[StackSource]:
    """What takes the stacks of one Python process with rank 3, whose threads are in these states."""
    (directory / "py-spy").write_text(SPY)
    (directory / "py-spy").chmod(0o755)
    os.mkfifo(directory / "fifo")
    seen = {"program": "python a.py", "state": "S", "seconds": 1.0, "cpu_seconds": 1.0, "rank": 3, "is_python": True}
    with subprocess.Popen(PROGRAMS[states], env={"PATH": PATH}, cwd=directory) as process:
        try:
            wait_until(lambda: thread_states(process.pid) == set(states))
            look = Look(question(directory))
            look.processes = [ProcessSeen(process.pid, os.getpid(), **{**seen, **fields})]
            look.roles = {process.pid: role}
            look.sockets = {process.pid: "socket"} if has_socket else {}
            yield StackSource(look)
        finally:
            process.kill()
            os.close(os.open(directory / "fifo", os.O_RDWR))  # who opens it, too, ends


def taken(spied: StackSource, answers: Sequence[object]) -> list[str]:
    """How py-spy was told to look, each time, at the process."""
    directory, (seen,) = Path(spied.look.question.path.partition(":")[0]), spied.look.processes
    for number, answer in enumerate(answers, 1):
        (directory / f"answer-{number}").write_text(answer if isinstance(answer, str) else json.dumps(answer))
    (directory / "calls").touch()
    for job in spied.jobs():
        job()
    calls = (directory / "calls").read_text().splitlines()
    assert all(f"--pid {seen.pid} " in call for call in calls)
    return [mode for call in calls for mode in (NATIVE, READ) if mode in call.split()]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look comes right after the first."""
    for module in (source, stacks):
        monkeypatch.setattr(module, "APART_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("states", "role", "has_socket", "fields", "modes"),
    [
        ("S", "rank", False, {}, [NATIVE, NATIVE]),
        ("T", "rank", False, {}, [READ]),
        ("SD", "rank", False, {}, [READ]),
        ("S", "rank", True, {}, [READ]),
        ("T", "rank", True, {"state": "T"}, [READ]),
        ("S", "child", False, {}, [READ]),
        ("S", "other", False, {"rank": None}, [READ]),
        ("S", "launcher", False, {"rank": None}, []),
        ("S", "other", False, {"program": "python3 -IS /x/last-words.py /run/x sh"}, []),
        ("S", "rank", False, {"is_python": False}, []),
    ],
)
def test_what_torch_records_what_ranks_start_and_what_waits_in_the_kernel_is_not_paused(
    states: str, role: Role, has_socket: bool, fields: dict[str, Any], modes: list[str], tmp_path: Path
) -> None:
    """py-spy would wait for the thread in state D, and keep the others stopped meanwhile. What is stopped stays there,
    whatever it was in."""
    with looking(tmp_path, states, role, has_socket=has_socket, **fields) as spied:
        assert taken(spied, [IN_RECV if has_socket and states == "S" else [stack(5)]] * len(modes)) == modes
    assert spied.look.said() == []


def stack(line: int, operation: str = "", *, holds_gil: bool = False, tid: int = 7) -> dict[str, Any]:
    frames = [{"name": operation, "module": "libmpi.so", "line": 0}] if operation else []
    frames.append({"name": "step", "filename": "/workload/train.py", "line": line})
    return {"thread_name": "MainThread", "os_thread_id": tid, "owns_gil": holds_gil, "active": True, "frames": frames}


@pytest.mark.parametrize(
    ("has_socket", "answers", "given"),
    [
        (True, [[stack(5)], [stack(5)]], {"stays": True}),
        (True, [[stack(5)], [stack(6)]], {"stays": True}),  # in no operation at both
        (True, [[stack(5, holds_gil=True)], [stack(5, holds_gil=True)]], {"stays": True, "holds_gil": True}),
        (True, [[stack(5, holds_gil=True)], [stack(6, holds_gil=True)]], {"stays": True, "holds_gil": False}),
        (True, [[stack(5, holds_gil=True)], [stack(5)]], {"stays": True, "holds_gil": False}),
        (True, [[stack(5, tid=8, holds_gil=True)], [stack(5, holds_gil=True)]], {"stays": True, "holds_gil": False}),
        (True, [[stack(5, holds_gil=True)]], {}),
        (False, [[stack(5, "MPI_Barrier")], [stack(5, "MPI_Barrier")]], {"stays": True}),
        (False, [[stack(5, "MPI_Barrier")], [stack(9, "MPI_Barrier")]], {"stays": False}),
        (False, [[stack(5)], [stack(5, "MPI_Barrier")]], {"stays": False}),
        (False, [[stack(5)]], {}),
        (False, ["[{", [stack(5)]], {}),
        (False, ["", [stack(5)], [stack(5)]], {}),
    ],
)
def test_what_two_looks_tell(has_socket: bool, answers: list[Any], given: dict[str, bool], tmp_path: Path) -> None:
    """Where the second fails, nothing is known of it; where native frames cannot be had, the others are."""
    with looking(tmp_path, has_socket=has_socket) as spied:
        taken(spied, answers)
    (found,) = spied.given.values()
    assert has_socket or not spied.look.said()
    assert [frame.line for frame in found.pop("threads")[0].frames][-1] == 5
    assert found == given


def test_py_spy_has_a_part_of_the_time(tmp_path: Path) -> None:
    with looking(tmp_path, has_socket=True) as spied:
        (tmp_path / "py-spy").write_text("#!/bin/sh\nexec sleep 1000\n")
        spied.look.question = spied.look.question._replace(seconds=0.2)
        taken(spied, [])
    assert [one.why for one in spied.look.said()] == ["py-spy did not finish within 0.1 s"]


def local(name: str, value: str, arg: bool = True) -> dict[str, Any]:
    return {"name": name, "arg": arg, "repr": value}


def test_what_is_kept_of_a_dump() -> None:
    """The arguments that say whom a rank waits for, the innermost frame, and that of the user's code. Some dumps are
    cut, or hold nothing."""
    arguments = [local("src", "2"), local("token", "'secret'"), local("dst", "3", arg=False), local("tag", "9" * 99)]
    recv = {"name": "recv", "filename": "/x/torch/distributed/distributed_c10d.py", "line": 9, "locals": arguments}
    inner = [{"name": f"f{n}", "filename": "/usr/lib/python3.11/a.py", "line": n} for n in range(1, 20)]
    nameless = {"name": "0x7fd9e704524a", "module": "/lib/libc.so.6", "line": 0}
    user = {"name": "main", "filename": "/workload/train.py", "line": 3}
    other = {"thread_name": "pt_main", "owns_gil": True, "active": True, "frames": [recv]}
    main = {"thread_name": "MainThread", "owns_gil": False, "active": True, "frames": [nameless, *inner, user]}
    first, second = read_py_spy(json.dumps([{**other, "frames": []}, other, 3, main]))
    assert [frame.function for frame in first.frames] == [*(f"f{n}" for n in range(1, 12)), "main"]
    assert (first.holds_gil, second.holds_gil) == (False, True)
    assert second.frames[0].arguments == {"src": "2", "tag": "9" * 40}
    whole = json.dumps([main])
    assert [read_py_spy(text) for text in ("", whole[:-1], whole[: len(whole) // 2], "[]", "py-spy")] == [()] * 5


# What torch's watchdog has left


def test_the_dumps_of_the_last_start_of_each_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun has started rank 0 anew since `dump-0`. One name leads nowhere, as of a file that is moved meanwhile."""
    whole, why_dir = pickle.dumps(recorded("sleep")["0"]["recorder"], 2), tmp_path / "why_dir"
    monkeypatch.setattr(dump, "MOST_DUMP", len(whole))
    dumps = {"dump-0": whole, "dump-1": whole, "dump-2": whole + b"x", "dump-3": whole[:-9], "dump-4.tmp": whole}
    lay(why_dir, {"20": b"0", **dumps})
    for name, at in (("dump-0", 100), ("20", 200)):
        os.utime(why_dir / name, (at, at))
    (why_dir / "dump-5").mkdir()
    (why_dir / "dump-6").symlink_to("nowhere")
    read = DumpSource(Look(question(tmp_path)))
    read.look.gone = {20 + rank: rank for rank in range(7)}
    for job in read.jobs():
        job()
    assert {pid: [group.entered for group in fields["groups"]] for pid, fields in read.given.items()} == {21: [5]}
    found, *others = sorted((one.state, one.pids, one.why) for one in read.look.said())
    assert found == ("found", (21,), "")
    for (_, _, why), words in zip(
        others, ("dump-2: the dump has more", "cannot be read", "Is a directory"), strict=True
    ):
        assert words in why


def test_a_look_is_over_in_time_whatever_hangs(tmp_path: Path) -> None:
    """The dump is a FIFO, which nobody writes to."""
    lay(tmp_path / "why_dir", {})
    os.mkfifo(tmp_path / "why_dir" / "dump-0")
    asked = question(tmp_path, seconds=2.0)
    argv = look_argv(sys.executable, asked)
    done = subprocess.run(argv, cwd=package_home(), capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert read_look(asked, done.stdout).records == POD
