"""One's own programs in a sleeping cluster: MPI programs under mpirun, PyTorch programs under torchrun."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.decide.tail import rank_of
from tests.cluster.conftest import RUN_DIR, Start, Trial, starting
from tests.cluster.work import (
    AGENT,
    GATE,
    agent,
    following,
    hostnames,
    marked,
    open_gate,
    order,
    read_until,
    result_of,
    sleeping,
)
from tests.golden.golden import expect_result

PROGRAMS = Path(__file__).with_name("programs")
EXAMPLES = Path(__file__).parents[2] / "examples"
ALL = range(3)
HOSTILE = 'it\'s a "value"; $HOME `x` \\ = é'
RANK = "$OMPI_COMM_WORLD_RANK"

TOLD_TO_RANKS = r"""
for environ in $(grep -lsz ^OMPI_COMM_WORLD_RANK= /proc/[0-9]*/environ); do tr '\0' '\n' < $environ | grep ^TOLD=; done
"""


def program(name: str, python: object = sys.executable) -> bytes:
    """A program of the tests as an executable file for pods."""
    return f"#!{python}\n".encode() + (PROGRAMS / name).read_bytes()


def with_mpi(kind: str, ompi5: Path) -> dict[str, Any]:
    """A cluster with the Open MPI of that major version, and an MPI program for it."""
    files = {"/job/sum": program("sum_of_ranks.py", f"{ompi5}/bin/python" if kind == "5" else sys.executable)}
    if kind == "4":
        return {"files": files}
    python = f"{ompi5}/bin/python"
    return {
        "files": files,
        "entrypoint": ("tini", "--", python, "-m", "agent", "run", "none"),
        "env": {"PATH": f"{ompi5}/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    }


def still_there_after_ten_more_runs(trial: Trial, run: str) -> None:
    """Each pod has made room for others then; the results directory has it all."""
    for index in ALL:
        assert trial.cluster.exec(index, ["rm", "-r", f"{RUN_DIR}/runs/{run}"]).returncode == 0
    kept = agent(trial, 2, "get", run, "-o", "/tmp/kept")
    assert (kept.returncode, "result.json and 1 log in /tmp/kept\n" in kept.stderr) == (0, True), kept
    assert agent(trial, 0, "report", run, "-o", "/tmp/report.html").returncode == 0
    trial.cluster.exec(0, ["rm", f"{RUN_DIR}/results/runs/{run}/result.json"])
    gone = agent(trial, 2, "get", run, "-o", "/tmp/gone")
    assert (gone.returncode, f"result.json of {run} is no longer kept" in gone.stderr) == (66, True), gone


@pytest.mark.parametrize("kind", ["4", "5"])
def test_mpirun(start: Start, ompi5: Path, kind: str) -> None:
    """A good run; how else runs end is in tests/mpi for both versions."""
    trial = sleeping(start, 3, gpus_per_pod=2, **with_mpi(kind, ompi5))
    assert order(trial) == [0, 2, 1]
    few = agent(trial, 1, "mpirun", "-np", "3", "--", "./sum", cwd="/job", env={"TOLD": HOSTILE})
    nodes = hostnames(trial, 0, 0, 2)
    wanted = [f"{rank} of 3 on {node} in /job: {HOSTILE}" for rank, node in enumerate(nodes)]
    assert (few.returncode, sorted(few.stdout.splitlines())) == (0, wanted), few
    given = ["--label", "-x", "TOLD=1", "-N", "3", "--oversubscribe", "--map-by", "slot", "--mca", "btl", "self,tcp"]
    tagged = agent(trial, 2, "mpirun", *given, "--", "sh", "-c", "echo $TOLD").stdout.encode().splitlines()
    assert sorted(rank_of(line, 0) or 0 for line in tagged) == [*range(9)], tagged
    assert all(line.endswith(b"1") for line in tagged)
    if kind == "4":
        left = agent(trial, 1, "mpirun", "-N", "1", "--", "sh", "-c", "mkdir out; hostname >out/name", cwd="/tmp")
        got = agent(trial, 1, "get", "-o", "/tmp/got", "--files", "out/*", cwd="/tmp")
        assert (left.returncode, got.returncode, "3 files of the workload" in got.stderr) == (0, 0, True), got
        told = trial.cluster.exec(1, ["sh", "-c", "cat $(ls /tmp/got/files/*/out/name)"])
        assert told.stdout.split() == hostnames(trial, 0, 1, 2)
        still_there_after_ten_more_runs(trial, left.stderr.split()[1])
        return
    # Its libraries are not the system's, and it drops what a full pipe does not take.
    given = ["bash", "-c", "echo ${LD_LIBRARY_PATH%%:*}; exec head -c 300000 /dev/zero"]
    much = agent(trial, 1, "mpirun", "-N", "1", "--", *given, env={"LD_LIBRARY_PATH": "/opt/nccl/lib"})
    assert (much.returncode, much.stdout.count("\0")) == (0, 900_000)
    assert much.stdout.replace("\0", "").split() == [f"{ompi5}/lib"] * 3


@pytest.fixture(scope="module")
def asleep(no_pod_around_fixtures: None, torch: Path) -> Iterator[Trial]:
    files = {"/job/place.py": program("place.py"), "/job/fails.py": program("one_fails.py")}
    with starting() as start:
        trial = sleeping(start, 3, gpus_per_pod=2, env={"A4_PYTHON": str(torch)}, files=files)
        assert order(trial) == [0, 2, 1]
        yield trial


def test_ends_of_mpirun(asleep: Trial) -> None:
    own = agent(asleep, 2, "mpirun", "--", "bash", "-c", f"exit $(({RANK} == 5 ? 23 : 0))")
    assert own.returncode == 23, own
    assert "rank 5 failed (pod 1, " in own.stderr
    absent = agent(asleep, 0, "mpirun", "-np", "2", "--", "./no-such-program")
    assert absent.returncode == 66, absent
    assert "./no-such-program cannot be started" in absent.stderr
    asleep.cluster.exec(0, ["install", "-D", "/bin/true", "/own/here"])
    elsewhere = agent(asleep, 0, "mpirun", "--", "./here", cwd="/own")
    assert elsewhere.returncode == 66, elsewhere
    assert "the directory /own, in which mpirun was asked for, is missing (pods 1-2)" in elsewhere.stderr
    elsewhere = agent(asleep, 0, "mpirun", "--", "/own/here")
    assert elsewhere.returncode == 66, elsewhere
    assert "/own/here cannot be started: No such file or directory (pods 1-2)" in elsewhere.stderr
    many = agent(asleep, 0, "mpirun", "-np", "7", "--", "true")
    assert (many.returncode, "there are 6 slots" in many.stderr) == (2, True), many

    # Ranks that go on, until they are let go, one is killed, or the command is interrupted.
    canary = "canary-5b0c"
    command = ("bash", "-c", f"echo here; {GATE}")
    with following(asleep, 1, "mpirun", "-N", "1", "--", *command, env={"TOLD": canary}) as (run, _):
        for _ in ALL:
            read_until(run.stdout, b"here\n")
        for index in ALL:
            told = asleep.cluster.exec(index, ["bash", "-c", TOLD_TO_RANKS]).stdout
            assert set(told.splitlines()) == {f"TOLD={canary}"}
            shown = asleep.cluster.exec(index, ["bash", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
            assert canary not in shown.stdout
        open_gate(asleep)
        assert run.wait() == 0
    with following(asleep, 2, "mpirun", "--", "bash", "-c", "echo here; exec sleep 600") as (run, _):
        for _ in range(6):
            read_until(run.stdout, b"here\n")
        asleep.until(1, "pkill -KILL -x sleep")
        assert run.wait() == 137, run.stderr.read()
        assert marked(asleep, *ALL) == {}
    with following(asleep, 1, "mpirun", "--exclude", "0", "--", "bash", "-c", "echo here; exec sleep 600") as (run, _):
        for _ in range(4):
            read_until(run.stdout, b"here\n")
        run.signal(signal.SIGINT)
        assert run.wait() == 130
        assert marked(asleep, *ALL) == {}


def test_an_agent_that_is_slow_to_hear_of_a_run(start: Start) -> None:
    """mpirun reaches pods through sshd, which needs no agent: it must not start before all agents are prepared."""
    trial = sleeping(start, 2, gpus_per_pod=1, env={"A4_LEASE_SECONDS": "600"})
    pid = int(trial.cluster.read(1, f"{RUN_DIR}/lock").split()[1])
    trial.cluster.signal(1, signal.SIGSTOP, pid)
    typed = [*AGENT, "mpirun", "--", "sh", "-c", "echo here"]
    with trial.cluster.popen(0, typed) as run:
        said = read_until(run.stderr, b"\n").split()
        trial.until(0, f"test -e {RUN_DIR}/runs/{said[1].decode()}/hostfile")
        trial.cluster.signal(1, signal.SIGCONT, pid)
        assert (run.wait(), run.stdout.read()) == (0, b"here\nhere\n"), run.stderr.read()


HOLDER = "import socket; s = socket.create_server(('0.0.0.0', 6002)); print('holds it', flush=True); input()"


def test_torchrun(asleep: Trial) -> None:
    """Programs without torch, whose import is most of the work: ranks that meet are in docs/journeys.md."""
    done = agent(asleep, 1, "torchrun", "--nodes", "2", "--", "place.py", cwd="/job")
    nodes = [node for node in hostnames(asleep, 0, 2) for _ in range(2)]
    wanted = [f"{rank} of 4, {rank // 2}.{rank % 2} on {node} in /job" for rank, node in enumerate(nodes)]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, wanted), done
    assert len(done.stderr.splitlines()) == 2, "how it begins, and how it ends"
    expect_result("torchrun", result_of(asleep, done))

    command = ["--no-python", "bash", "-c", "echo $RANK of $WORLD_SIZE on $(hostname)"]
    alone = agent(asleep, 0, "torchrun", "--hosts", "1", "--", *command)
    wanted = [f"{rank} of 2 on {node}" for rank, node in enumerate(hostnames(asleep, 1, 1))]
    assert (alone.returncode, sorted(alone.stdout.splitlines())) == (0, wanted), alone

    asleep.cluster.exec(1, ["touch", "/job/absent.py"])
    for words, name, pods in ((["absent.py"], "/job/absent.py", "0,2"), (["--no-python", "./a.sh"], "./a.sh", "0-2")):
        absent = agent(asleep, 1, "torchrun", "--", *words, cwd="/job")
        said = absent.stderr.splitlines()
        assert (absent.returncode, len(said)) == (66, 3), absent
        assert f"{name} cannot be started" in said[1] and said[1].endswith(f" (pods {pods})"), absent


def test_ends_of_torchrun(asleep: Trial) -> None:
    with asleep.cluster.popen(0, [sys.executable, "-c", HOLDER]) as holder:
        assert read_until(holder.stdout, b"\n") == b"holds it\n"
        busy = agent(asleep, 1, "torchrun", "--nodes", "2", "--", "/job/place.py")
        assert (busy.returncode, busy.stdout) == (71, ""), busy
        assert "MASTER_PORT 6002 on pod 0, " in busy.stderr
        assert "import socket; s = " in busy.stderr
        assert marked(asleep, *ALL) == {}
        # Without pod 0 another is the first, whose port is free.
        failed = agent(asleep, 0, "torchrun", "--exclude", "0", "--", "/job/fails.py")
    lead, nodes = asleep.cluster.spec.pod_name(2), [node for node in hostnames(asleep, 2, 1) for _ in range(2)]
    wanted = [f"{rank} of 4 on {node}, {lead}" for rank, node in enumerate(nodes)]
    assert (failed.returncode, sorted(failed.stdout.splitlines())) == (1, wanted), failed
    assert "rank 2 has had enough" in failed.stderr
    said = failed.stderr.partition(" ended with exit code 1: rank 2 failed")[2]
    assert "(pod 1, " in said.partition("\n")[0], failed
    assert "  last lines of its output:\n" in said and "rank 2 has had enough" in said, failed
    assert said.splitlines()[-2] == "  3 ranks on 2 pods ended because of it: a4-agent logs RUN --rank N"
    assert marked(asleep, *ALL) == {}


def test_what_a_program_writes_of_itself(start: Start) -> None:
    """Whatever stands in the place of the file, the run ends as it ends."""
    trial = sleeping(start, 4, files={"/job/series.py": (EXAMPLES / "series.py").read_bytes()})
    instead = {1: "mkfifo $file", 2: "ln -s /etc/passwd $file", 3: "printf '\\377\\n' >$file; truncate -s 1G $file"}
    cases = " ".join(f"{rank}) {act};;" for rank, act in instead.items())
    script = f"file=$A4_SERIES_FILE; case {RANK} in 0) exec {sys.executable} series.py;; {cases} esac"
    done = agent(trial, 1, "mpirun", "--", "sh", "-c", script, cwd="/job")
    assert done.returncode == 0, done
    found = result_of(trial, done)
    assert [(one["name"], one["records"], one["last_step"]) for one in found["series"]] == [
        ("loss", 200, 200),
        ("samples", 200, 200),
    ]
    no_record, too_long, empty = found["warnings"]
    assert no_record.startswith(
        "2 lines of A4_SERIES_FILE on pod 3 cannot be read as a record, the first on pod 3: \\xff"
    )
    assert (too_long, empty) == (
        "A4_SERIES_FILE on pod 3 has more than 64 MiB: the rest was not read",
        "A4_SERIES_FILE on pods 1-2 is empty, or no regular file",
    )
