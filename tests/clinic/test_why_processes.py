"""What `why` takes from the processes of a pod, and what it may do to them: real processes of the test's own, and a
py-spy that writes down how it was called and prints recorded stacks."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.clinic.sources import dump, source, stacks
from agent.clinic.sources.dump import DumpSource, dumps_in
from agent.clinic.sources.processes import ProcessSource, known_ranks, roles
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


def test_launchers_are_known_by_their_command_line() -> None:
    launchers = ["mpirun -n 4 a", "/opt/ompi/bin/prted -x", "orted -mca x", "python /usr/bin/torchrun a.py"]
    others = ["my-mpirun a.out", "python a.py --log=mpirun.log", "python torchrun.py"]
    seen = [ProcessSeen(pid, 1, program, "S", 1.0, 1.0) for pid, program in enumerate([*launchers, *others])]
    assert list(roles(seen, {}).values()) == ["launcher"] * 4 + ["other"] * 3


LAUNCHER = """
import os, subprocess, sys, threading

def start(rank, code="import time; time.sleep(1000)", *arguments):
    return subprocess.Popen([sys.executable, "-c", code, *arguments], env={**os.environ, "RANK": rank})

ends = [start("1", ""), start("2", ""), start("3", "")]
for process in ends:
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
for process in ends[1:]:
    process.wait()
alive = start("0", sys.argv[1])
print(alive.pid, *[process.pid for process in ends], flush=True)
threading.Event().wait()
"""
ASKED = """
import ctypes, os, threading
names = threading.Event()
def serve():
    ctypes.CDLL(None).prctl(15, b"pt_workerserver", 0, 0, 0)
    names.set()
    threading.Event().wait()
threading.Thread(target=serve, daemon=True).start()
names.wait()
os.read(os.open(os.environ["A4_FIFO"].encode("latin-1"), os.O_RDWR), 1)
"""


def test_ranks_that_live_have_ended_and_are_gone(tmp_path: Path) -> None:
    """Rank 1 has ended and nobody has asked how, rank 2 is gone, and what is gone with rank 3's number is not rank 0,
    which lives. Torch's own thread in it is ours, and the name of its file is no UTF-8."""
    run, fifo = f"test-{os.getpid()}-ranks", os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkfifo(fifo)
    env = {"PATH": PATH, "A4_RUN": run, "A4_FIFO": fifo.decode("latin-1")}
    (tmp_path / "mpirun").write_text(LAUNCHER)
    argv = [sys.executable, str(tmp_path / "mpirun"), ASKED]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout
        alive, zombie, gone, again = map(int, launcher.stdout.readline().split())
        try:
            noted = {alive: 0, zombie: 1, gone: 2, again: 0}
            lay(tmp_path / "why_dir", {str(pid): b"%d" % rank for pid, rank in noted.items()} | {f"{alive}.sock": b""})
            wait_until(lambda: len(thread_states(alive)) == 1 and len(os.listdir(f"/proc/{alive}/task")) == 2)
            wait_until(lambda: os.fsencode(fifo) in open_files(alive))
            look = Look(question(tmp_path, run))
            processes = ProcessSource(look)
            processes.jobs()
            found = {one.pid: one for one in processes.add_to(POD).processes if one.state != "Z"}
        finally:
            os.kill(alive, 9)
            launcher.kill()
    assert {pid: (one.role, one.rank, one.state) for pid, one in found.items()} == {
        launcher.pid: ("launcher", None, "S"),
        alive: ("rank", 0, "S"),
        zombie: ("rank", 1, "gone"),
        gone: ("rank", 2, "gone"),
    }
    assert look.sockets == {alive: f"{tmp_path}/why_dir/{alive}.sock"}
    (waiting,) = found[alive].waiting
    assert (waiting.syscall, waiting.file) == ("read", f"{tmp_path}/caf?")


def open_files(pid: int) -> list[bytes]:
    return [os.readlink(os.fsencode(entry.path)) for entry in os.scandir(f"/proc/{pid}/fd")]


# Whose stacks are taken, and how

SPY = """#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >>calls
cat "answer-$(wc -l <calls)"
"""
"""It fails where there is no answer for that call."""
NATIVE, READ = "--native", "--nonblocking"
"""The process is paused for native frames alone."""
IN_MPI, IN_RECV = recorded("mpi4py")["0"]["stacks"], recorded("pipeline")["3"]["stacks"]


@pytest.fixture
def waits() -> Iterator[Callable[..., int]]:
    """The id of a process that has come to this state."""
    started: list[subprocess.Popen[bytes]] = []

    def start(states: set[str], *argv: str) -> int:
        started.append(subprocess.Popen(argv, env={"PATH": PATH}))
        wait_until(lambda: thread_states(started[-1].pid) == states)
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


# While its child opens a FIFO, the kernel holds the thread that has started it where nothing but SIGKILL ends it. (The
# child has its own end: a FIFO that is opened for writing, or the end of its group.)
IN_KERNEL = """
import os, sys, threading
opens = [(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)]
threading.Thread(target=os.posix_spawn, args=("/bin/true", ["true"], {}), kwargs={"file_actions": opens}).start()
threading.Event().wait()
"""


def looking(directory: Path, pid: int, role: Role = "rank", *, has_socket: bool = False, **fields: Any) -> StackSource:
    """What takes the stacks of one Python process with rank 3."""
    (directory / "py-spy").write_text(SPY)
    (directory / "py-spy").chmod(0o755)
    look = Look(question(directory))
    seen = {"program": "python a.py", "state": "S", "seconds": 1.0, "cpu_seconds": 1.0, "rank": 3, "is_python": True}
    look.processes = [ProcessSeen(pid, os.getpid(), **{**seen, **fields})]
    look.roles = {pid: role}
    look.sockets = {pid: "socket"} if has_socket else {}
    return StackSource(look)


def taken(spied: StackSource, *answers: object) -> list[str]:
    """How py-spy was told to look, each time, at the process."""
    directory = Path(spied.look.question.path.partition(":")[0])
    for number, answer in enumerate(answers, 1):
        (directory / f"answer-{number}").write_text(answer if isinstance(answer, str) else json.dumps(answer))
    for job in spied.jobs():
        job()
    calls = (directory / "calls").read_text().splitlines() if (directory / "calls").exists() else []
    (seen,) = spied.look.processes
    assert all(f"--pid {seen.pid} " in call for call in calls)
    return [mode for call in calls for mode in (NATIVE, READ) if mode in call.split()]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look comes right after the first."""
    for module in (source, stacks):
        monkeypatch.setattr(module, "APART_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("role", "has_socket", "fields", "modes"),
    [
        ("rank", False, {}, [NATIVE, NATIVE]),
        ("rank", True, {}, [READ]),
        ("child", False, {}, [READ]),
        ("child", True, {}, [READ]),
        ("other", False, {"rank": None}, [READ]),
        ("launcher", False, {"rank": None}, []),
        ("other", False, {"program": "python3 -IS /x/last-words.py /run/x sh"}, []),
        ("rank", False, {"is_python": False}, []),
    ],
)
def test_no_rank_of_torch_and_nobody_elses_process_is_paused(
    role: Role, has_socket: bool, fields: dict[str, Any], modes: list[str], waits: Callable[..., int], tmp_path: Path
) -> None:
    answers = [IN_MPI if mode == NATIVE else IN_RECV for mode in modes]
    spied = looking(tmp_path, waits({"S"}, "sleep", "1000"), role, has_socket=has_socket, **fields)
    assert taken(spied, *answers) == modes
    assert spied.look.said() == []


def test_what_is_stopped_or_waits_in_the_kernel_is_not_paused(waits: Callable[..., int], tmp_path: Path) -> None:
    """py-spy would wait for the thread in state D, and keep the others stopped meanwhile."""
    os.mkfifo(tmp_path / "fifo")
    stopped = waits({"T"}, "sh", "-c", "kill -STOP $$")
    in_kernel = waits({"S", "D"}, sys.executable, "-c", IN_KERNEL, str(tmp_path / "fifo"))
    for pid in (stopped, in_kernel, os.getpid() + (1 << 22)):
        assert taken(looking(tmp_path, pid), IN_RECV) == [READ]
        (tmp_path / "calls").unlink()
    assert taken(looking(tmp_path, stopped, has_socket=True, state="T"), IN_MPI) == [READ], "it stays where it is"
    os.close(os.open(tmp_path / "fifo", os.O_RDWR))  # its child may end


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
        (True, [[stack(5)]], {"stays": False}),
        (False, [[stack(5, "MPI_Barrier")], [stack(5, "MPI_Barrier")]], {"stays": True}),
        (False, [[stack(5, "MPI_Barrier")], [stack(9, "MPI_Barrier")]], {"stays": False}),
        (False, [[stack(5)], [stack(5, "MPI_Barrier")]], {"stays": False}),
        (False, [[stack(5)]], {}),
        (False, ["[{", [stack(5)]], {}),
        (False, ["", [stack(5)], [stack(5)]], {}),
    ],
)
def test_what_two_looks_tell(
    has_socket: bool, answers: list[Any], given: dict[str, bool], waits: Callable[..., int], tmp_path: Path
) -> None:
    """Where the second fails, nothing is known of it; where native frames cannot be had, the others are."""
    pid = waits({"S"}, "sleep", "1000")
    spied = looking(tmp_path, pid, has_socket=has_socket)
    taken(spied, *answers)
    found = spied.given[pid]
    assert [frame.line for frame in found.pop("threads")[0].frames][-1] == 5
    assert found == given


def test_no_stack_is_taken_when_time_is_over(tmp_path: Path) -> None:
    spied = looking(tmp_path, os.getpid(), has_socket=True)
    spied.look.question = spied.look.question._replace(seconds=0.0)
    assert taken(spied, IN_RECV) == []
    (said,) = spied.look.said()
    assert (said.why, said.pids) == ("py-spy did not finish within 0.0 s", (os.getpid(),))


def local(name: str, value: str, arg: bool = True) -> dict[str, Any]:
    return {"name": name, "arg": arg, "repr": value}


def test_what_is_kept_of_a_dump() -> None:
    """Of the arguments those that say whom a rank waits for, of the frames the innermost and that of the user's code.
    Some dumps are cut, or hold nothing."""
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


def test_the_dumps_of_the_last_start_of_a_rank(tmp_path: Path) -> None:
    """torchrun has started it anew since `dump-0`. One name leads nowhere, as of a file that is moved meanwhile."""
    for name, at in {"20": 100, "21": 200, "dump-0": 150, "dump-1": 200, "dump-2": 300, "dump-2.tmp": 300}.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    (tmp_path / "dump-3").symlink_to("nowhere")
    assert dumps_in(str(tmp_path)) == ["dump-1", "dump-2"]
    assert dumps_in(str(tmp_path / "none")) == []


def test_a_dump_is_of_the_rank_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pickle.dumps(recorded("sleep")["0"]["recorder"], 2)
    monkeypatch.setattr(dump, "MOST_DUMP", len(whole))
    lay(tmp_path / "why_dir", {"dump-0": whole, "dump-1": whole + b"x", "dump-2": whole[:-9]})
    (tmp_path / "why_dir" / "dump-3").mkdir()
    look = Look(question(tmp_path))
    look.gone = {20 + rank: rank for rank in range(5)}
    dumps = DumpSource(look)
    for job in dumps.jobs():
        job()
    assert {pid: [group.entered for group in fields["groups"]] for pid, fields in dumps.given.items()} == {20: [5]}
    (found,) = (one for one in look.said() if one.state == "found")
    assert found.pids == (20,)
    whys = sorted(one.why for one in look.said() if one.state == "unavailable")
    assert [why.partition(": ")[0] for why in whys] == ["dump-1", "dump-2", "dump-3"]
    assert "has more than" in whys[0] and "cannot be read" in whys[1] and "Is a directory" in whys[2]


def test_a_look_is_over_in_time_whatever_hangs(tmp_path: Path) -> None:
    """The dump is a FIFO, which nobody writes to."""
    lay(tmp_path / "why_dir", {})
    os.mkfifo(tmp_path / "why_dir" / "dump-0")
    asked = question(tmp_path, seconds=2.0)
    argv = look_argv(sys.executable, asked)
    done = subprocess.run(argv, cwd=package_home(), capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert read_look(asked, done.stdout).records == POD
