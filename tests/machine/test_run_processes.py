"""The end of what a run leaves behind, by each of its marks with the others off."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, count, product, repeat
from pathlib import Path

import pytest

from agent.decide.grace import USUAL
from agent.launch import Launch
from agent.machine import run_processes
from agent.machine.api import RunMarks
from agent.machine.host import Host
from agent.machine.loop import Loop
from agent.machine.run_processes import Marked
from agent.paths import shipped
from tests.machine.waiting import DEADLINE_SECONDS, run, wait_until

PATH = os.environ["PATH"]
TERM_SECONDS = 0.3

# What is overwritten, as programs do that set their title: where the kernel finds the environment.
TITLE = """
import ctypes, time
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, 120, end - start)
open("{ready}", "w").close()
time.sleep(1000)
"""
LEFTOVERS = {
    "in its group": ("sleep 1000 &", 1),
    "deaf": (
        "sh -c 'trap \"\" TERM HUP; touch {ready}; while :; do sleep 1000; done' & until test -e {ready}; do :; done",
        2,
    ),
    "in a session of its own": ("setsid sleep 1000 &", 1),
    "an orphan of an orphan": ("(setsid sh -c 'setsid sleep 1000 & sleep 1000' &)", 3),
    "stopped": ("setsid sleep 1000 & kill -STOP $!", 1),
    "forking": ("python=$0; $python -c 'import os, time; os.fork() or os.setsid(); os.fork(); time.sleep(1000)' &", 4),
}
UNMARKED = {
    "without environment": ("env -i setsid sleep 1000 &", 1),
    "with a title": ("$0 -c '{title}' & until test -e {ready}; do :; done", 1),
}
"""They lose A4_RUN."""


def marks_by(mark: str, run_id: str, request: pytest.FixtureRequest) -> RunMarks:
    """This mark, and no other."""
    if mark == "A4_RUN":
        return RunMarks(run_id)
    return RunMarks("nobody", **{mark: request.getfixturevalue(mark)})


def leave(marks: RunMarks, script: str, directory: Path, env: dict[str, str] | None = None) -> None:
    """Start a process of a run that leaves something behind, as the agent does; returns when it has ended."""
    loop = Loop()
    values = {"title": TITLE.format(ready=directory / "ready"), "ready": directory / "ready"}
    for name, value in values.items():
        script = script.replace(f"{{{name}}}", str(value))
    launch = Launch(["sh", "-c", script, sys.executable], {"PATH": PATH, **(env or {})})
    Host(loop).start(launch, lambda status: loop.stop(), lambda stream, data: None, marks=marks)
    run(loop)


def swept(marks: RunMarks) -> int:
    ended, left = swept_and_left(marks)
    assert not left
    return ended


def swept_and_left(
    marks: RunMarks, term_seconds: float = TERM_SECONDS, now: Callable[[], float] = time.monotonic
) -> tuple[int, Sequence[int]]:
    loop, ends = Loop(), list[tuple[int, Sequence[int]]]()

    def done(count: int, left: Sequence[int]) -> None:
        ends.append((count, left))
        loop.stop()

    run_processes.RunSweep(loop, marks, USUAL.kill, done, term_seconds, now)
    run(loop)
    assert len(ends) == 1
    return ends[0]


@pytest.mark.parametrize(
    ("mark", "kind"), [*product(["cgroup", "group"], LEFTOVERS | UNMARKED), *product(["A4_RUN"], LEFTOVERS)]
)
def test_each_mark_finds_all(mark: str, kind: str, run_id: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    marks, (script, count) = marks_by(mark, run_id, request), (LEFTOVERS | UNMARKED)[kind]

    def found() -> set[int]:
        return run_processes.known(marks) | run_processes.marked(marks.run).pids

    leave(marks, script, tmp_path, {"A4_RUN": run_id} if mark == "A4_RUN" else {})
    wait_until(lambda: len(found()) == count)
    assert swept(marks) >= count
    assert found() == set()
    assert not marks.cgroup or not os.path.exists(marks.cgroup)


# What begins in a cgroup


def started(argv: Sequence[str], cgroup: str, env: dict[str, str]) -> tuple[int, bytes]:
    loop, printed, statuses = Loop(), list[bytes](), list[int]()

    def ended(status: int) -> None:
        statuses.append(status)
        loop.stop()

    launch = Launch(argv, env)
    Host(loop).start(launch, ended, lambda stream, data: printed.append(data), marks=RunMarks("nobody", cgroup=cgroup))
    run(loop)
    return statuses[0], b"".join(printed)


def test_a_program_begins_in_its_cgroup(cgroup: str) -> None:
    status, printed = started(["cat", "/proc/self/cgroup"], cgroup, {"PATH": PATH})
    assert (status, f"/{os.path.basename(cgroup)}\n" in printed.decode()) == (0, True)


STATE = """
import os
print(sorted(os.environb.items()), sorted(os.listdir("/proc/self/fd")), os.getcwd(), os.getsid(0) == os.getpid())
print([line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn", "SigCgt", "Groups"))])
"""


def test_a_program_in_a_cgroup_sees_nothing_of_how_it_got_there(cgroup: str) -> None:
    env = {"PATH": PATH, "odd.name": "1", "BASH_FUNC_a%%": "() { :; }", "LINES": "a\nb", "E": "", "BYTE": "\udcff"}
    argv = [sys.executable, "-X", "utf8", "-IS", "-c", STATE, "", "an argument", "\udcff"]
    assert started(argv, cgroup, env) == started(argv, "", env)


@pytest.mark.parametrize("script", ["kill -PIPE $$", "kill -XFSZ $$", "exit 7"])
def test_a_program_in_a_cgroup_ends_as_elsewhere(cgroup: str, script: str) -> None:
    argv = ["sh", "-c", script]
    assert started(argv, cgroup, {"PATH": PATH}) == started(argv, "", {"PATH": PATH})


def test_a_program_that_cannot_be_started_is_named_with_and_without_a_cgroup(cgroup: str, tmp_path: Path) -> None:
    (tmp_path / "no-program").write_text("text")
    (tmp_path / "no-program").chmod(0o755)
    for argv in (["/no/such"], ["no-such"], ["/etc"], [f"{tmp_path}/no-program"], ["true", "long" * (1 << 20)]):
        refusals = []
        for place in (cgroup, ""):
            with pytest.raises(OSError) as caught:
                started(argv, place, {"PATH": PATH})
            refusals.append((caught.value.errno, caught.value.filename))
        assert refusals[0] == refusals[1]
        assert refusals[0][1] == argv[0]


def test_a_cgroup_that_is_gone_keeps_nobody_from_starting(cgroup: str) -> None:
    run_processes.remove_cgroup(cgroup)
    assert started(["echo", "here"], cgroup, {"PATH": PATH}) == (0, b"here\n")


def test_all_marks_together(run_id: str, group: int, cgroup: str, tmp_path: Path) -> None:
    """One in the cgroup only, one in the group only, one that the environment alone tells."""
    marks = RunMarks(run_id, group, cgroup)
    for number, only in enumerate((RunMarks("nobody", cgroup=cgroup), RunMarks("nobody", group), RunMarks("nobody"))):
        (tmp_path / str(number)).mkdir()
        env = {} if only != RunMarks("nobody") else {"A4_RUN": run_id}
        leave(only, "setsid sleep 1000 &", tmp_path / str(number), env)
    wait_until(lambda: len(run_processes.known(marks)) == 2 and len(run_processes.marked(run_id).pids) == 1)
    assert swept(marks) == 3
    assert run_processes.marked(run_id).pids == set()


def test_a_cgroup_that_the_run_has_made_is_emptied_and_removed(cgroup: str, tmp_path: Path) -> None:
    marks = RunMarks("nobody", cgroup=cgroup)
    inner = f"mkdir -p {cgroup}/a/b; setsid sh -c 'echo 0 >{cgroup}/a/b/cgroup.procs; exec sleep 1000' &"
    leave(marks, inner, tmp_path)
    wait_until(lambda: Path(f"{cgroup}/a/b/cgroup.procs").read_text() != "")
    assert swept(marks) == 1
    assert not os.path.exists(cgroup)


def test_others_are_left_alone(run_id: str, group: int, tmp_path: Path) -> None:
    """A longer mark, the mark in an argument or another variable, no mark, and the group of another run."""
    mark = f"A4_RUN={run_id}"
    environments = [{"A4_RUN": f"{run_id}1"}, {"OTHER": mark}, {"MY_A4_RUN": run_id}, {}]
    others = [subprocess.Popen(["sleep", "1000"], env={"PATH": PATH, **env}) for env in environments]
    others.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", mark], env={"PATH": PATH}))
    others.append(subprocess.Popen(["sleep", "1000"], env={"PATH": PATH}, extra_groups=[group + 1, group // 10]))
    leave(RunMarks(run_id, group), "setsid sleep 1000 &", tmp_path, {"A4_RUN": run_id})
    try:
        assert swept(RunMarks(run_id, group)) == 1
        assert [other.poll() for other in others] == [None] * 6
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_what_is_left_when_time_is_up(tmp_path: Path) -> None:
    pid = (1 << 22) + 1  # above all that Linux gives: no signal ends it
    (tmp_path / "cgroup.procs").write_text(f"{pid}\n")
    every_look_is_late = partial(next, count(step=100.0))
    assert swept_and_left(RunMarks("nobody", cgroup=str(tmp_path)), now=every_look_is_late) == (0, [pid])


def test_an_agent_that_was_held_up_after_sigterm_kills_all_the_same(group: int, tmp_path: Path) -> None:
    marks = RunMarks("nobody", group)
    leave(marks, LEFTOVERS["deaf"][0], tmp_path)
    wait_until(lambda: len(run_processes.known(marks)) == 2)
    later = chain(repeat(0.0, 2), repeat(100.0))  # the second look comes late
    count_ended, left = swept_and_left(marks, now=partial(next, later))
    assert (count_ended >= 2, left) == (True, ())


def test_nothing_to_sweep(run_id: str, group: int, cgroup: str) -> None:
    assert swept(RunMarks(run_id, group, cgroup)) == 0
    assert swept(RunMarks(run_id)) == 0


def test_what_cannot_be_made(tmp_path: Path) -> None:
    assert not run_processes.make_cgroup(f"{tmp_path}/none/run")
    assert not run_processes.make_cgroup("/proc/self/run")
    assert not run_processes.make_cgroup(f"{tmp_path}/run"), "a directory of another file system"
    assert os.listdir(tmp_path) == []


# A process whose environment cannot be read now


@pytest.fixture
def proc(tmp_path: Path) -> Iterator[Path]:
    """A /proc with a process whose environment never comes, and one of a run. Afterwards it comes."""
    for pid in ("1000001", "1000002"):
        (tmp_path / pid).mkdir()
    os.mkfifo(tmp_path / "1000001" / "environ")
    (tmp_path / "1000002" / "environ").write_text("A=b\0A4_RUN=hangs-1\0")
    yield tmp_path
    os.close(os.open(tmp_path / "1000001" / "environ", os.O_RDWR))


def test_a_process_that_cannot_be_read_holds_up_nothing(proc: Path) -> None:
    hanging: set[int] = set()
    found: list[run_processes.Marked] = []

    def look() -> None:
        for _ in range(2):
            found.append(run_processes.marked("hangs-1", hanging, str(proc)))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(DEADLINE_SECONDS)
    assert found == [({1000002}, True), ({1000002}, False)]
    assert hanging == {1000001}


def test_a_process_without_environment_may_be_in_an_exec(tmp_path: Path) -> None:
    """Not a kernel thread, a zombie, and one that is gone. The agent itself does not count."""
    stats = {
        1000001: b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 2 0 0 20 0 1 0 24 0 0",
        1000002: b"6192 (python) Z 6191 6190 17718 0 -1 4227340 1187 0 0 0 1 0 0 0 20 0 2 0 6876195",
        1000003: None,
        1000004: b"31 (a) Z (\xff) S 7 31 31 0 -1 4194304 120 0 0 0 0 0 0 0 20 0 1 0 900",
    }
    for pid in (os.getpid(), *stats):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_bytes(b"A4_RUN=run-1" if pid == os.getpid() else b"")
        assert run_processes.marked("run-1", proc=str(tmp_path)) == (set(), False)
        if stat := stats.get(pid):
            (tmp_path / str(pid) / "stat").write_bytes(stat)
    assert run_processes.marked("run-1", proc=str(tmp_path)) == (set(), True)


def test_what_is_in_an_exec_or_could_not_be_looked_at_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as left:
        looks = iter([Marked(set(), unsure=True), None, Marked({left.pid}), Marked(set())])

        def marked(run: str, hanging: set[int]) -> Marked:
            if (look := next(looks)) is None:
                raise RuntimeError("can't start new thread")
            return look

        monkeypatch.setattr(run_processes, "marked", marked)
        assert swept(RunMarks("nobody")) == 1
    assert left.returncode == -15


# What the kernel says of a process, and of one that has just ended


def status(state: bytes = b"S (sleeping)", threads: int = 1, groups: bytes = b"7 1234567890 ") -> bytes:
    """Recorded of Linux 6.18: it handles SIGINT and SIGUSR1, has blocked signal 37, and ignores SIGUSR2."""
    return (
        b"Name:\ta 1234567890\nState:\t%s\nTgid:\t6192\nGroups:\t%s\nThreads:\t%d\nSigBlk:\t0000001000000000\n"
        b"SigIgn:\t0000000001001800\nSigCgt:\t0000000100000202\nCapInh:\t0000000000000000\n" % (state, groups, threads)
    )


def test_the_group_of_a_run() -> None:
    """Also of a process whose main thread alone has ended; that of another run, and a name, are none."""
    of_run = [status(), status(b"Z (zombie)", threads=2)]
    others = [status(b"Z (zombie)"), status(b"X (dead)"), status(groups=b"7 "), status(groups=b"12345678901 ")]
    assert [run_processes.has_group(said, 1234567890) for said in of_run + others] == [True] * 2 + [False] * 4


def test_the_signals_that_a_process_handles_or_awaits() -> None:
    assert [number for number in range(1, 65) if run_processes.awaits_signal(status(), number)] == [2, 10, 33, 37]


def test_a_process_that_has_ended_since_it_was_seen_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    run_processes.send_signal(gone.pid, 15)
    assert not run_processes.handles(gone.pid, 15)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, extra_groups=[1234567890]) as lives:
        monkeypatch.setattr(run_processes, "all_pids", lambda: iter([gone.pid, lives.pid]))
        assert run_processes.known(RunMarks("nobody", 1234567890)) == {lives.pid}


def test_a_rank_that_cannot_be_read_is_told_as_one(tmp_path: Path) -> None:
    """The number 0 stands for processes that this pod does not have: told of the end, its own group would be."""
    (tmp_path / "cgroup.procs").write_text("0\n1000001\n1000002\n")
    marks, hanging = RunMarks("nobody", cgroup=str(tmp_path)), {1000001, 1000003}
    assert run_processes.processes(marks, "RANK", hanging).pids == {1000001}
    assert run_processes.processes(marks, "", hanging).pids == {1000001, 1000002}


# entrypoints/enter-run.sh, as mpirun starts its daemons


def entered(directory: Path, text: str | None) -> dict[str, str]:
    """What /proc says of a program that is started so: its groups and its cgroup."""
    if text is not None:
        (directory / "marks").write_text(text)
    program = "sed -n 's/^Groups:[[:space:]]*/groups /p' /proc/self/status; sed -n 's/^0::/cgroup /p' /proc/self/cgroup"
    argv = ["sh", shipped("entrypoints", "enter-run.sh"), str(directory), "sh", "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, env={"PATH": PATH}, extra_groups=[7, 8])
    assert done.returncode == 0, done
    return {line.partition(" ")[0]: line.partition(" ")[2].strip() for line in done.stdout.splitlines()}


def test_a_daemon_enters_its_run(cgroup: str, tmp_path: Path) -> None:
    before = entered(tmp_path, None)
    assert before["groups"] == "7 8"
    name = cgroup.rpartition("/")[2]
    for text, groups, inside in (
        ("0 \n", "7 8", False),
        ("1234567890 \n", "7 8 1234567890", False),
        (f"0 {cgroup}\n", "7 8", True),
        (f"1234567890 {cgroup}\n", "7 8 1234567890", True),
    ):
        found = entered(tmp_path, text)
        assert (found["groups"], found["cgroup"].endswith(f"/{name}")) == (groups, inside), text


def test_a_daemon_that_cannot_be_started_is_told_as_by_a_shell(tmp_path: Path) -> None:
    for text in ("0 \n", "1234567890 \n"):
        (tmp_path / "marks").write_text(text)
        argv = ["sh", shipped("entrypoints", "enter-run.sh"), str(tmp_path), "no-such-program"]
        assert subprocess.run(argv, capture_output=True, env={"PATH": PATH}).returncode == 127
