"""`a4-agent get`, beside an agent that does what a test says."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from agent.commands.fetched_files import MOST_IN_MEMORY
from agent.decide.pod_state import STATE_VERSION
from tests.commands.conftest import Call, Type
from tests.commands.server import FakeAgent, FakeRun, Refused
from tests.terminal import Terminal

EVERY_BYTE = bytes(range(256))
LONG = b"line\n" * 100_000
RESULTS = {"result.json": b'{"run": "nccl-7"}\n', "report.html": LONG}
NAMES = ("coordinator", "worker-1", "worker-2", "worker-3")


@pytest.fixture
def going_on(agent: FakeAgent) -> FakeRun:
    """A run of four pods that goes on and has printed."""
    run = FakeRun(agent, "nccl-7", {}, [0, 1, 2, 3])
    agent.runs = [FakeRun(agent, "old-1", {}, [0, 1, 2, 3]), run]
    for pod in run.pods:
        run.say(pod, b"hello from %d\n" % pod)
        run.say(pod, b"\x1b[31magent %d\n" % pod, stream=3)
    run.say(2, EVERY_BYTE, stream=2)
    return run


def over(run: FakeRun, code: int = 0, **more: Any) -> FakeRun:
    run.files = {(0, name): content for name, content in RESULTS.items()}
    run.end(code, "done", **more)
    return run


@pytest.fixture
def run(going_on: FakeRun) -> FakeRun:
    """One that is over."""
    return over(going_on)


def logs(*pods: int) -> dict[str, bytes]:
    said = {pod: b"hello from %d\n\x1b[31magent %d\n" % (pod, pod) for pod in pods}
    return {f"pod-logs/{NAMES[pod]}.log": said[pod] + (EVERY_BYTE if pod == 2 else b"") for pod in pods}


ALL = {**RESULTS, **logs(0, 1, 2, 3)}


def files_in(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def files_of(archive: bytes) -> dict[str, bytes]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            found[member.name] = content.read()
    return found


def test_the_newest_run_into_a_directory_of_its_name(run: FakeRun, tmp_path: Path, call_command: Call) -> None:
    where = tmp_path / "a4-results" / "nccl-7"
    said = f"a4-agent: nccl-7: result.json, report.html and 4 logs in {where}\n"
    for _ in range(2):  # what is there is replaced
        assert call_command("get", cwd=tmp_path) == (0, "", said)
        assert files_in(where) == ALL


def test_a_run_that_has_a_name_has_a_directory_of_it(going_on: FakeRun, tmp_path: Path, call_command: Call) -> None:
    going_on.spec = {"name": "night-1"}
    over(going_on)
    where = tmp_path / "a4-results" / "night-1"
    said = f"a4-agent: nccl-7 (night-1): result.json, report.html and 4 logs in {where}\n"
    assert call_command("get", cwd=tmp_path) == (0, "", said)


def test_all_runs(agent: FakeAgent, going_on: FakeRun, tmp_path: Path, call_command: Call) -> None:
    """The one that has left nothing is named, and the others are fetched."""
    agent.write("state.json", {"runs": [{"id": "old-1"}, {"id": "nccl-7"}], "version": STATE_VERSION})
    going_on.spec = {"name": "night-1"}
    over(agent.runs[0]).files.clear()
    over(going_on)
    code, _, err = call_command("get", "--all", "-o", "got", cwd=tmp_path)
    assert (code, err.splitlines()[0][:26]) == (0, "a4-agent: old-1 has left n"), err
    assert files_in(tmp_path / "got") == {f"night-1/{name}": content for name, content in ALL.items()}
    assert call_command("get", "--all", "nccl-7")[0] == 2
    agent.runs[1].files.clear()
    agent.runs = agent.runs[:1]
    code, _, err = call_command("get", "--all", "-o", "got", cwd=tmp_path)
    assert (code, err.splitlines()[-2]) == (66, "a4-agent: no run has left anything that is still kept"), err


SSH = """\
#!/bin/sh
test $3 != job-3.local || exit 255
shift 3
exec sh -c "$*"
"""
"""Four pods share one file system, and one of them cannot be reached."""


@pytest.fixture
def with_ssh(tmp_path: Path) -> dict[str, str]:
    """A shell whose ssh is that."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(SSH)
    (tmp_path / "bin" / "ssh").chmod(0o755)
    return {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}


def test_files_of_the_workload(run: FakeRun, tmp_path: Path, call_command: Call, with_ssh: dict[str, str]) -> None:
    here = tmp_path / "it's $HOME"
    (here / "out" / "deep").mkdir(parents=True)
    (here / "out" / "[1] $(touch ran).csv").write_bytes(EVERY_BYTE)
    (here / "out" / "deep" / "empty").touch()
    (here / "out" / "deep" / "b").write_text("b")
    (here / "out" / "deep" / "b.partial").write_text("partial")
    (here / "out" / "link").symlink_to("deep/b")
    os.mkfifo(here / "out" / "deep" / "fifo")
    wanted = ["--files", "out/[1] $(*).csv", "--files", "o?t/deep", "--files", f"{here}/out/link", "--files", "none*"]
    code, _, err = call_command("get", *wanted, "-o", "got", cwd=here, env=with_ssh)
    assert "a4-agent: files of pod 3: ssh cannot reach it\n" in err
    assert (code, "4 logs and 15 files of the workload in" in err) == (0, True), err
    got = {"out/[1] $(touch ran).csv": EVERY_BYTE, f"{str(here)[1:]}/out/link": b"b"}
    got |= {"out/deep/b": b"b", "out/deep/b.partial": b"partial", "out/deep/empty": b""}
    found = {f"files/{pod}/{name}": content for pod in NAMES[:3] for name, content in got.items()}
    assert files_in(here / "got") == {**ALL, **found}
    assert not (here / "ran").exists()


def test_files_that_no_pod_has(run: FakeRun, tmp_path: Path, call_command: Call, with_ssh: dict[str, str]) -> None:
    code, _, err = call_command("get", "--files", "no/such", "--files", "x*", cwd=tmp_path, env=with_ssh)
    assert (code, "no pod of nccl-7 has a file no/such or x*" in err) == (66, True), err
    assert files_in(tmp_path / "a4-results" / "nccl-7") == ALL, "the rest was fetched"


def test_an_archive_on_stdout(run: FakeRun, tmp_path: Path, type_command: Type) -> None:
    with open(tmp_path / "tar", "w+b") as file:
        code, _, err = type_command("get", "-o", "-", stdout=file).end()
    assert (code, err) == (0, "a4-agent: nccl-7: result.json, report.html and 4 logs in the archive\n")
    assert files_of((tmp_path / "tar").read_bytes()) == {f"nccl-7/{name}": content for name, content in ALL.items()}


def test_a_terminal_cannot_show_an_archive(run: FakeRun, type_command: Type) -> None:
    with Terminal() as terminal:
        code, _, err = type_command("get", "-o", "-", stdout=terminal.streams["stdout"]).end()
    assert (code, "a4-agent get -o - | tar x (kubectl exec without -t)" in err) == (2, True), err


@pytest.mark.parametrize("report", [b"", LONG])
def test_a_reader_of_the_archive_that_goes(report: bytes, run: FakeRun, type_command: Type) -> None:
    """A short archive is written when it is whole."""
    run.files[0, "report.html"] = report
    typed = type_command("get", "-o", "-")
    typed.stdout.close()
    assert typed.process.wait() == 141
    assert typed.stderr.read() == b""


def test_a_run_that_goes_on(going_on: FakeRun, tmp_path: Path, call_command: Call) -> None:
    code, _, err = call_command("get", "-o", str(tmp_path / "now"))
    assert code == 0
    assert err.splitlines() == [
        "a4-agent: nccl-7 is still running: this is what there is so far",
        f"a4-agent: nccl-7: 4 logs in {tmp_path / 'now'}",
    ]
    assert files_in(tmp_path / "now") == logs(0, 1, 2, 3)


def test_what_processes_did_at_a_time_limit(going_on: FakeRun, tmp_path: Path, call_command: Call) -> None:
    run = over(going_on, 124, lost={3: "not heard for 30 s"})
    run.files |= {(pod, "evidence.txt"): b"stacks of %d\n" % pod for pod in (0, 2)}
    run.unread[1] = Refused(75, "pod 1 is lost: not heard for 31 s")
    code, _, err = call_command("get", "-o", str(tmp_path / "got"))
    assert code == 0
    assert err.splitlines() == [
        "a4-agent: what pod 3 printed cannot be read any further: pod 3 is lost: not heard for 30 s",
        "a4-agent: evidence.txt of pod 1 cannot be read: pod 1 is lost: not heard for 31 s",
        f"a4-agent: nccl-7: result.json, report.html, 4 logs and evidence of 2 pods in {tmp_path / 'got'}",
    ]
    evidence = {f"evidence/{NAMES[pod]}.txt": b"stacks of %d\n" % pod for pod in (0, 2)}
    assert files_in(tmp_path / "got") == {**ALL, **evidence}


@pytest.mark.parametrize("whole", [True, False])
def test_the_log_of_a_lost_pod_is_what_was_stored(
    whole: bool, going_on: FakeRun, tmp_path: Path, call_command: Call
) -> None:
    results, got = tmp_path / "results", tmp_path / "got"
    (results / "pod-logs").mkdir(parents=True)
    for end, text in {".0002": b"two\n", ".0001": b"one\n", ".0101": b"three\n", ".0102.2.new": b"half"}.items():
        (results / f"pod-logs/worker-3.log{end}").write_bytes(text)
    if whole:
        (results / "pod-logs/worker-3.log").write_bytes(EVERY_BYTE)
    (results / "pod-logs/worker-2.log").symlink_to("/etc/passwd")
    for pod in (2, 3):
        going_on.frames[pod] = []
    over(going_on, 75, lost=dict.fromkeys((2, 3), "not heard for 30 s"), results=str(results))
    code, _, err = call_command("get", "-o", str(got))
    assert code == 0
    assert err.splitlines() == [
        "a4-agent: what pod 2 printed cannot be read any further: pod 2 is lost: not heard for 30 s",
        f"a4-agent: {results}/pod-logs/worker-2.log cannot be read: Too many levels of symbolic links",
        "a4-agent: what pod 3 printed cannot be read any further: pod 3 is lost: not heard for 30 s",
        f"a4-agent: the log of pod 3 is what {results} has of it",
        f"a4-agent: nccl-7: result.json, report.html and 3 logs in {got}",
    ]
    stored = {"pod-logs/worker-3.log": EVERY_BYTE if whole else b"one\ntwo\nthree\n"}
    assert files_in(got) == {**RESULTS, **logs(0, 1), **stored}


def test_an_older_run_whose_output_pods_have_dropped(going_on: FakeRun, tmp_path: Path, call_command: Call) -> None:
    run = over(going_on)
    for pod in run.pods:
        run.frames[pod] = []
        run.broken[pod] = Refused(66, f"no run named 'nccl-7' on pod {pod}")
        run.files[pod, "pod.log"] = b"kept of %d\n" % pod if pod < 2 else b""  # the others had printed nothing
    code, _, err = call_command("get", "-o", str(tmp_path / "got"))
    assert code == 0
    assert err.splitlines() == [
        "a4-agent: pods no longer keep what nccl-7 printed: its logs are those among its results",
        f"a4-agent: nccl-7: result.json, report.html and 2 logs in {tmp_path / 'got'}",
    ]
    assert files_in(tmp_path / "got") == {
        **RESULTS,
        **{f"pod-logs/{NAMES[pod]}.log": b"kept of %d\n" % pod for pod in (0, 1)},
    }


NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Python cuts off what it compiles where a file may not be so large, and every later start fails by that."""


def test_a_full_disk(run: FakeRun, tmp_path: Path, type_command: Type) -> None:
    """What was whole stays, and nothing of the file that had no room."""
    where = tmp_path / "got"
    code, _, err = type_command("get", "-o", str(where), through=["prlimit", "--fsize=1000"], env=NO_BYTECODE).end()
    assert code == 73
    assert err.splitlines() == [
        f"a4-agent: {where}/report.html cannot be written: File too large",
        "  put it elsewhere with -o DIR, or take it from stdout with -o -",
    ]
    assert files_in(where) == {"result.json": RESULTS["result.json"]}


ALMOST = 65536 * (MOST_IN_MEMORY // 65536 + 1)
"""The last byte after so many waits in a buffer."""


@pytest.mark.parametrize(
    ("room", "named"), [(0, "a temporary file"), (1000, tempfile.gettempdir()), (ALMOST, tempfile.gettempdir())]
)
def test_no_room_for_what_goes_into_the_archive(room: int, named: str, run: FakeRun, type_command: Type) -> None:
    run.files[0, "report.html"] = bytes(ALMOST + 1)
    through, out = ["prlimit", f"--fsize={room}"], subprocess.DEVNULL
    code, _, err = type_command("get", "-o", "-", stdout=out, through=through, env=NO_BYTECODE).end()
    assert (code, err.startswith(f"a4-agent: {named} cannot be written: ")) == (73, True), err
    assert err.endswith("\n  set TMPDIR to a directory with room\n")


@pytest.mark.parametrize(("results", "code"), [("", 0), ("/results/runs/nccl-7", 66)])
def test_a_run_without_its_result_has_left_too_little_unless_it_keeps_none(
    results: str, code: int, run: FakeRun, tmp_path: Path, call_command: Call
) -> None:
    """Those beside others, as of exec, keep none."""
    run.files = {}
    run.ended = {**(run.ended or {}), "results": results}
    ended, _, err = call_command("get", "-o", str(tmp_path / "got"))
    assert (ended, "result.json of nccl-7 is no longer kept" in err) == (code, code == 66), err
    assert len(files_in(tmp_path / "got")) == 4


def test_a_run_that_has_left_nothing(going_on: FakeRun, agent: FakeAgent, tmp_path: Path, call_command: Call) -> None:
    code, _, err = call_command("get", "old-1", "-o", str(tmp_path / "now"))
    assert (code, err.splitlines()[-1]) == (0, "a4-agent: old-1: it has printed nothing yet")
    agent.runs[0].end()
    code, _, err = call_command("get", "old-1", cwd=tmp_path)
    assert (code, err.splitlines()[0]) == (66, "a4-agent: old-1 has left nothing, or it is no longer kept")


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        ("get no-such", 66, "there is no run 'no-such'\n  a4-agent status lists the runs"),
        ("get -o /dev/null/a", 73, "/dev/null/a/pod-logs/coordinator.log cannot be written: Not a directory"),
    ],
)
def test_what_cannot_be_had(argv: str, code: int, words: str, going_on: FakeRun, call_command: Call) -> None:
    ended, out, err = call_command(*argv.split())
    assert (ended, out, words in err) == (code, "", True), err


def test_without_an_agent(call_command: Call) -> None:
    code, _, err = call_command("get")
    assert (code, err.splitlines()[0]) == (69, "a4-agent: no a4-agent runs in this pod")
