"""Where real processes are found: hanging, sleeping, stopped, stuck in the kernel, gone."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.clinic.sources.look import look as look_at_run
from agent.clinic.sources.question import LookAnswer, NoAnswer, Question
from agent.clinic.sources.stacks import NO_PY_SPY, dump_json
from agent.clinic.why.records import PodRecords
from agent.machine import evidence
from agent.machine.api import RunMarks
from agent.machine.evidence import look, main_first
from agent.machine.evidence_text import (
    MOST_SUMMARY,
    MOST_TEXT,
    ProcessSeen,
    ThreadSeen,
    in_order,
    innermost,
    is_stuck,
    render,
    shortened,
)
from agent.machine.run_processes import Marked
from agent.machine.syscall_names import syscall_name
from tests.clinic.test_answers import answering
from tests.machine.waiting import DEADLINE_SECONDS, wait_until

PATH = os.environ["PATH"]
POD = PodRecords(0, "pod-0", "")

HANG = """
import threading

def wait_for_a_peer_that_never_comes(tell):
    tell()
    threading.Event().wait()

there = threading.Event()
threading.Thread(target=wait_for_a_peer_that_never_comes, args=(there.set,), name="helper", daemon=True).start()
there.wait()
wait_for_a_peer_that_never_comes(lambda: print("up", flush=True))
"""
FUNCTION = "wait_for_a_peer_that_never_comes (<string>:6)"

# Until its child has opened the FIFO and runs its program, the kernel holds the parent where nothing but
# SIGKILL ends it.
UNINTERRUPTIBLE = """
import os, sys
print("up", flush=True)
opens = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)
os.posix_spawn("/bin/true", ["true"], dict(os.environ), file_actions=[opens])
"""


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@dataclass
class Run:
    """A run on this machine."""

    id: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex[:8]}")
    group: int = field(default_factory=lambda: (1 << 30) + (uuid.uuid4().int & 0xFFFFFF))
    """By it the kernel tells its processes: to read the environment of each takes long on a busy machine."""
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def marks(self) -> RunMarks:
        return RunMarks(self.id, self.group)

    def start(self, argv: list[str], env: Mapping[str, str] | None = None) -> int:
        child = subprocess.Popen(
            argv,
            env={"PATH": PATH, "A4_RUN": self.id, **(env or {})},
            stdout=subprocess.PIPE,
            start_new_session=True,
            extra_groups=[self.group],
        )
        self.children.append(child)
        return child.pid

    def python(self, code: str, *args: str, env: Mapping[str, str] | None = None) -> int:
        """It waits when this returns, after it has printed `up`."""
        pid = self.start([sys.executable, "-c", code, *args], env)
        assert self.children[-1].stdout is not None
        assert self.children[-1].stdout.readline() == b"up\n"
        wait_until(lambda: state(pid) in "SD")
        return pid


@pytest.fixture
def hanging() -> Iterator[Run]:
    run = Run()
    yield run
    for child in run.children:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def gather(marks: RunMarks, path: str = PATH) -> LookAnswer:
    return look_at_run(Question(POD, marks, path=path, seconds=DEADLINE_SECONDS))


@pytest.mark.parametrize("is_own", [True, False])
def test_an_answer_of_nccl_is_of_the_run_if_its_port_is(is_own: bool, hanging: Run) -> None:
    """It is in text, which names no rank while all are alike."""
    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"
    hanging.python(HANG, env={"OMPI_COMM_WORLD_RANK": "0", "NCCL_RAS_ADDR": address})
    text = b"NCCL version 2.26.2\nCommunicators... (0.00s)\n"
    with answering(server, text, text):
        found = look_at_run(Question(POD, hanging.marks, seconds=DEADLINE_SECONDS, ras=address if is_own else ""))
    assert found.records.ras is not None and found.records.ras.is_of_run == is_own


def line_of(text: str, start: str) -> str:
    found = [line for line in text.splitlines() if line.startswith(start)]
    assert len(found) == 1, text
    return found[0]


def test_a_python_rank_that_hangs_is_found_in_its_function(hanging: Run) -> None:
    pid = hanging.python(HANG, env={"OMPI_COMM_WORLD_RANK": "12", "OMPI_COMM_WORLD_LOCAL_RANK": "4"})
    found = gather(hanging.marks)
    assert line_of(found.text, "rank 12 (4 here): ").startswith(
        f"rank 12 (4 here): pid {pid}, parent {os.getpid()}, state S (sleeping), for "
    )
    assert f"\n  {os.path.basename(sys.executable)} " in found.text.replace(os.path.dirname(sys.executable) + "/", "")
    assert f"\n  {sys.executable} -c import threading def wait_for" in found.text
    assert '"MainThread"' in found.text
    assert '"helper"' in found.text
    assert found.text.count(FUNCTION) == 2
    assert FUNCTION in line_of(found.summary, f"rank 12: pid {pid} ")
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state(pid) == "T")
    stopped = gather(hanging.marks)
    assert f"rank 12 (4 here): pid {pid}, parent {os.getpid()}, state T (stopped)" in stopped.text
    assert FUNCTION in stopped.summary


def test_a_program_that_is_not_python(hanging: Run) -> None:
    pid = hanging.start(["sleep", "1000"], {"RANK": "3", "LOCAL_RANK": "x"})
    wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n" and state(pid) == "S")
    found = gather(hanging.marks)
    assert f"rank 3: pid {pid}, parent {os.getpid()}, state S (sleeping)" in found.text
    assert "\n  sleep 1000\n" in found.text
    assert f"\n  thread {pid} sleep: S clock_nanosleep" in found.text
    assert "py-spy" not in found.text
    assert line_of(found.summary, "rank 3: ").startswith(f"rank 3: pid {pid} sleep 1000: S clock_nanosleep")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_process_that_nothing_can_interrupt(hanging: Run, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    pid = hanging.python(UNINTERRUPTIBLE, str(fifo))
    wait_until(lambda: state(pid) == "D" and [state(child) for child in children_of(pid)] == ["S"])
    (child,) = children_of(pid)
    found = gather(hanging.marks)
    assert f"\npid {pid}, parent {os.getpid()}, state D (waiting in the kernel, cannot be interrupted)" in found.text
    assert f"\npid {child}, parent {pid}, state S" in found.text
    assert line_of(found.summary, f"pid {pid} ")


def test_a_run_without_processes(hanging: Run) -> None:
    found = gather(hanging.marks)
    assert (found.text, found.summary, found.records.processes) == (f"{hanging.id} has no processes\n", "", ())


@pytest.mark.parametrize(("group", "notes"), [(0, 1), (1 << 30, 0)])
def test_processes_that_could_not_be_judged_are_told(group: int, notes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the kernel tells which are of the run."""
    monkeypatch.setattr(evidence, "marked", lambda run: Marked(set(), unsure=True))
    assert len(evidence.processes_of(RunMarks("test-none", group), time.monotonic() + 5)[1]) == notes


def test_a_process_that_has_ended_raises_what_is_passed_over() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with pytest.raises(OSError):
        list(look(ended.pid))


def test_of_many_threads_the_first_are_shown(hanging: Run) -> None:
    many = "import threading\nfor n in range(40):\n    threading.Thread(target=threading.Event().wait).start()\n"
    pid = hanging.python(many + HANG)
    process = list(look(pid))[-1]
    assert len(process.threads) == 32
    assert process.threads[0].tid == pid
    assert main_first(7, [3, 9, 7]) == [7, 3, 9], "its number may be above that of others"
    assert process.more_threads == 10
    assert "  and 10 more threads\n" in gather(hanging.marks).text


def fake_spy(directory: Path, text: str) -> str:
    """Search path with a py-spy of ours first."""
    path = directory / "py-spy"
    path.write_text(text)
    path.chmod(stat.S_IRWXU)
    return f"{directory}:{PATH}"


REFUSES = r"""#!/bin/sh
printf "Error: Failed to suspend\n\nCaused by:\n    0: No access\n    1: No access\n\nStack backtrace:\n  0: x\n" >&2
exit 1
"""


@pytest.mark.parametrize(
    ("program", "why"),
    [(REFUSES, "py-spy: Failed to suspend: No access\n"), ("#!/none\n", "py-spy: [Errno 2]")],
    ids=["refuses", "cannot be started"],
)
def test_py_spy_that_fails_says_why_in_one_line(program: str, why: str, hanging: Run, tmp_path: Path) -> None:
    pid = hanging.python(HANG)
    found = gather(hanging.marks, fake_spy(tmp_path, program))
    assert f"\n  no Python stacks: {why}" in found.text
    assert line_of(found.summary, f"pid {pid} ")


def test_py_spy_that_hangs_is_ended(tmp_path: Path) -> None:
    fake_spy(tmp_path, "#!/bin/sh\nexec sleep 1000\n")
    with pytest.raises(NoAnswer, match=r"py-spy did not finish within 0\.1 s"):
        dump_json(f"{tmp_path}/py-spy", os.getpid(), 0.1)


def test_without_py_spy_one_line_says_what_is_missing(hanging: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = hanging.python(HANG)
    monkeypatch.setattr(sys, "executable", "/none/python")  # none lies beside it
    text = gather(hanging.marks, "/none").text
    assert f"  no Python stacks: {NO_PY_SPY}" in text
    assert f"pid {pid}, parent" in text
    assert "futex" in text


# What is made of it


def seen(pid: int, rank: int | None = None, **more: object) -> ProcessSeen:
    process = ProcessSeen(pid=pid, ppid=1, program="prog", state="S", seconds=1.0, cpu_seconds=0.5, rank=rank)
    return ProcessSeen(**{**vars(process), **more})


def test_rank_programs_come_first_and_their_children_last() -> None:
    processes = [seen(1), seen(2, rank=10), seen(3, rank=2), seen(4, rank=2, ppid=3), seen(5, rank=0, ppid=3)]
    assert [process.pid for process in in_order(processes)] == [5, 3, 2, 1, 4]


def test_what_stands_before_a_rank_program_comes_last_and_is_in_no_summary() -> None:
    keep = seen(2, rank=0, program="/usr/bin/python3 -IS /opt/entrypoints/last-words.py /run/x sh /run/rank.sh ./a.out")
    record = seen(3, rank=0, ppid=2, program="sh /run/a4-agent/rank.sh ./a.out")
    processes = [seen(1), keep, record, seen(4, rank=0, ppid=3), seen(5, rank=0, ppid=4)]
    assert [process.pid for process in in_order(processes)] == [4, 1, 5, 2, 3]
    assert render("title", processes, []).summary == "rank 0: pid 4 prog: S\npid 1 prog: S\nrank 0: pid 5 prog: S\n"


@pytest.mark.parametrize("state", ["T", "t", "Z", "D"])
def test_what_is_stuck_comes_first_even_if_it_stands_before_a_rank_program(state: str) -> None:
    program = "/usr/bin/python3 -IS /opt/entrypoints/last-words.py /run/x sh /run/rank.sh ./a.out"
    processes = [
        seen(6, rank=0),
        seen(7, rank=1, program=program, state=state),
        seen(8, rank=2),
        seen(4, rank=9, state=state),
    ]
    assert [process.pid for process in in_order(processes)] == [4, 7, 6, 8]
    lines = render("title", processes, []).summary.splitlines()
    assert lines[0] == f"rank 9: pid 4 prog: {state}"
    assert re.fullmatch(rf"rank 1: pid 7 python3 .*: {state}", lines[1])
    assert [is_stuck(line) for line in lines] == [True, True, False, False]


def test_a_process_with_all_that_can_be_known_of_it() -> None:
    thread = ThreadSeen(8, "NCCL proxy", "D", "nfs_wait", "read", ("nfs_wait", "nfs_read"))
    dump = 'Python v3.11.7 (/usr/bin/python3)\n\nThread 7 (idle): "MainThread"\n    f (a.py:1)'
    program = "/usr/bin/prog -x"
    process = seen(
        7, 1, program=program, local_rank=0, threads=(ThreadSeen(7, "prog", "S"), thread), more_threads=3, dump=dump
    )
    assert render("title", [process], ["a note"]) == (
        "title\na note\n\nrank 1 (0 here): pid 7, parent 1, state S (sleeping), for 1.0 s, 0.5 s of CPU\n"
        "  /usr/bin/prog -x\n"
        '  Python v3.11.7 (/usr/bin/python3)\n  Thread 7 (idle): "MainThread"\n      f (a.py:1)\n'
        "  thread 7 prog: S\n"
        "  thread 8 NCCL proxy: D read in nfs_wait, kernel stack: nfs_wait < nfs_read\n"
        "  and 3 more threads\n",
        "rank 1: pid 7 prog -x: S f (a.py:1)\n",
    )


def test_many_large_processes_share_the_space() -> None:
    dump = 'Thread 7 (idle): "MainThread"\n' + "".join(f"    function_{n} (très_long.py:{n})\n" for n in range(3000))
    text, summary = render("title", [seen(pid, rank=pid, dump=dump) for pid in range(100)], [])
    assert len(text.encode()) <= MOST_TEXT
    assert len(summary.encode()) <= MOST_SUMMARY
    assert all(f"rank {rank}: pid {rank}," in text for rank in range(100))
    assert "more lines" in text
    assert summary.splitlines()[0].startswith("rank 0: pid 0 prog: S function_0 (très_long.py:0) < function_1")
    assert "more lines" in summary.splitlines()[-1]


def test_notes_are_the_summary_when_there_is_nothing_else() -> None:
    assert render("title", [], ["nothing was found"]) == ("title\nnothing was found\n", "nothing was found\n")


@given(st.text(), st.integers(40, 200))
def test_what_is_too_long_is_cut(text: str, most: int) -> None:
    cut = shortened(text, most)
    assert len(cut.encode()) <= most
    assert cut == text or "…" in cut


@pytest.mark.parametrize(
    ("dump", "expected"),
    [
        ("", []),
        ("Python v3\n\nThread 1 (idle)\n    f (a.py:1)\n    g (a.py:2)\n", ["f (a.py:1)", "g (a.py:2)"]),
        ('Thread 1 (idle): "x"\n    f (a:1)\nThread 2 (active): "MainThread"\n    g (a:2)\n', ["g (a:2)"]),
        ("no stacks", []),
    ],
)
def test_the_innermost_place_is_that_of_the_main_thread(dump: str, expected: list[str]) -> None:
    assert innermost(dump) == expected


@pytest.mark.parametrize(
    ("line", "machine", "expected"),
    [
        ("202 0x7f 0x0 0x0", "x86_64", "futex"),
        ("98 0x7f 0x0 0x0", "aarch64", "futex"),
        ("98 0x7f 0x0 0x0", "x86_64", "syscall 98"),
        ("202 0x7f", "riscv64", "syscall 202"),
        ("-1 0x7ffe 0x7f", "x86_64", ""),
        ("running", "x86_64", "running"),
        ("", "x86_64", ""),
    ],
)
def test_names_of_system_calls(line: str, machine: str, expected: str) -> None:
    assert syscall_name(line, machine) == expected
