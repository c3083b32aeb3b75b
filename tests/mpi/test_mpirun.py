"""The `mpirun` workload for real, on both versions: entrypoints/rank.sh, and who judges what it recorded."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.decide.ranks import RankEnd
from tests.mpi.conftest import Mpi
from tests.mpi.pods import Pods
from tests.mpi.runs import Run

WAITS = ["sh", "-c", "mkfifo /run/gate-$OMPI_COMM_WORLD_RANK; read -r line </run/gate-$OMPI_COMM_WORLD_RANK"]
"""A program whose ranks wait for their gates, which nobody opens. The shell that reads is the program itself."""


def started(run: Run, ranks: int = 6) -> None:
    """Wait until that many ranks are at their gates."""
    for rank in range(ranks):
        pod = run.pods.pods[run.context.plan.peers[rank // 2].index]
        pod.run(f"until test -p /run/gate-{rank}; do sleep 0.02; done")


def pid(run: Run, rank: int) -> int:
    """PID of a rank's program in its own pod."""
    pod = run.pods.pods[run.context.plan.peers[rank // 2].index]
    found = re.match(r"started (\d+)\n", pod.run(f"cat {run.context.ranks_dir}/{rank}"))
    assert found
    return int(found[1])


def test_all_is_well(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, ["sh", "-c", "hostname; test $A = 1"], env={"A": "1"})
    judgement = run.whole()
    assert run.end and judgement.end.code == 0, judgement
    assert (judgement.end.what, judgement.end.origin) == ("sh done", "workload")
    assert sorted(run.end.stdout.split()) == sorted(["node-0", "node-1", "node-2"] * 2)
    assert judgement.findings.record == {"ranks": 6, "ended": {"0": "0-5"}}
    # Open MPI 5 sometimes says this of its own race with ssh, which harms nothing.
    assert [line for line in run.end.stderr.splitlines() if "setpgid" not in line] == []


WHO = ["sh", "-c", 'echo "$OMPI_COMM_WORLD_RANK $(hostname) $PWD"']


def test_some_ranks_on_some_pods(mpi: Mpi, pods: Pods) -> None:
    """The lead is not the coordinator."""
    run = Run(mpi, pods, WHO, exclude=("0",), ranks=3, cwd="/usr")
    assert run.whole().end.code == 0
    assert run.end and sorted(run.end.stdout.splitlines()) == ["0 node-1 /usr", "1 node-1 /usr", "2 node-2 /usr"]


def test_one_rank_per_pod(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, WHO, per_node=1)
    assert run.whole().end.code == 0
    assert run.end and sorted(run.end.stdout.splitlines()) == ["0 node-0 /", "1 node-1 /", "2 node-2 /"]


def test_one_pod(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, WHO, hosts=("2",))
    assert run.whole().end.code == 0
    assert run.end and sorted(run.end.stdout.splitlines()) == ["0 node-2 /", "1 node-2 /"]


def test_output_is_unchanged(mpi: Mpi, pods: Pods) -> None:
    text = "tab\there \033[31mred\033[0m \0 ü\n  no end"
    run = Run(mpi, pods, ["printf", "%b", text.replace("\0", r"\0").replace("\033", r"\033")], ranks=1)
    assert run.whole().end.code == 0
    assert run.end and run.end.stdout == text


@pytest.mark.parametrize("code", [1, 7, 65, 75, 127, 205])
def test_a_ranks_own_code(mpi: Mpi, pods: Pods, code: int) -> None:
    program = f"[ $OMPI_COMM_WORLD_RANK = 3 ] && exit {code}; sleep 60"
    run = Run(mpi, pods, ["sh", "-c", program])
    end = run.whole().end
    assert (end.code, end.origin) == (code, "workload"), end
    assert f"rank 3 on pod 1 ended {code}" in end.what
    assert end.where == f"pod 1, {pods.names[1]}"


@pytest.mark.parametrize(("signal", "name"), [("KILL", "SIGKILL"), ("SEGV", "SIGSEGV"), ("TERM", "SIGTERM")])
def test_a_killed_rank_is_named(mpi: Mpi, pods: Pods, signal: str, name: str) -> None:
    run = Run(mpi, pods, WAITS)
    with run.started() as process:
        started(run)
        pods.pods[2].run(f"kill -{signal} {pid(run, 4)}")
        end = run.finish(process).end
    assert end.code > 128 and end.origin == "workload", end
    assert "rank 4 on pod 2 ended" in end.what and name in end.what, end


def test_a_killed_daemon_is_a_lost_pod(mpi: Mpi, pods: Pods) -> None:
    """Open MPI 5.0.11 ends 0 after that."""
    run = Run(mpi, pods, WAITS)
    with run.started() as process:
        started(run)
        pods.pods[1].run("pkill -KILL '^(orted|prted)$'")
        end = run.finish(process).end
    assert (end.code, end.origin) == (75, "agent"), end
    assert "started and never ended" in end.why, "the orphans of the daemon, until they are swept"


def test_a_killed_mpirun_is_no_success(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, WAITS)
    with run.started() as process:
        started(run)
        pods.pods[0].run("pkill -KILL '^(mpirun|orterun|prterun)$'")
        end = run.finish(process).end
    assert end.code != 0, end


def missing_name(pods: Pods) -> str:
    return "no-such-program"


def missing_path(pods: Pods) -> str:
    return "/no/program"


def missing_on_one_pod(pods: Pods) -> str:
    for pod in pods.pods[:2]:
        pod.run("printf '#!/bin/sh\nsleep 60\n' > /run/program; chmod +x /run/program")
    return "/run/program"


def not_executable(pods: Pods) -> str:
    return str(pods.home / "hosts")


def missing_interpreter(pods: Pods) -> str:
    program = pods.home / "program"
    program.write_text("#!/no/interpreter\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("cause", [missing_name, missing_path, missing_on_one_pod, not_executable, missing_interpreter])
def test_a_program_that_cannot_be_started(mpi: Mpi, pods: Pods, cause: Callable[[Pods], str]) -> None:
    program = cause(pods)
    run = Run(mpi, pods, [program])
    end = run.whole().end
    assert (end.code, end.origin) == (66, "agent"), end
    assert end.what == f"{program} cannot be started"
    assert "could not start its program" in end.why
    assert run.end and program in run.end.stderr, "what the shell says of it"
    if cause is missing_on_one_pod:
        assert re.search(r"rank [45] on pod 2", end.why)


def test_a_working_directory_that_is_missing(mpi: Mpi, pods: Pods) -> None:
    assert Run(mpi, pods, ["true"], cwd="/no/directory").whole().end.code == 66


CLEANS_UP = """
trap 'sleep 0.3; echo clean >/run/clean-$OMPI_COMM_WORLD_RANK; exit 5' TERM USR1
mkfifo /run/gate-$OMPI_COMM_WORLD_RANK
while :; do sleep 0.05; done
"""


def test_ranks_can_clean_up_on_a_signal_that_mpirun_passes_on(mpi: Mpi, pods: Pods) -> None:
    """Not on SIGTERM: Open MPI 4 kills within a second, Open MPI 5 tells only the ranks of its own pod."""
    run = Run(mpi, pods, ["sh", "-c", CLEANS_UP])
    with run.started() as process:
        started(run)
        pods.pods[0].run("pkill -USR1 '^(mpirun|orterun|prterun)$'")
        end = run.finish(process).end
    assert (end.code, end.origin) == (5, "workload"), end
    assert len(run.ranks()) == 6
    for number, rank_end in run.ranks().items():
        assert rank_end.code == 5
        pods.pods[number // 2].run(f"test -e /run/clean-{number}")


def test_an_mpirun_that_is_told_to_end_is_no_success(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, WAITS)
    with run.started() as process:
        started(run)
        pods.pods[0].run("pkill -TERM '^(mpirun|orterun|prterun)$'")
        end = run.finish(process).end
    assert end.code != 0, end


def test_last_words_are_kept_on_each_pod(mpi: Mpi, pods: Pods) -> None:
    program = "seq -f %08g 40000; test -t 1 && echo terminal; echo to stderr >&2"
    run = Run(mpi, pods, ["sh", "-c", program], per_node=1).keeping()
    plain = Run(mpi, pods, ["sh", "-c", program], per_node=1)
    assert run.whole().end.code == plain.whole().end.code == 0
    assert run.end and plain.end
    # mpirun cuts lines of several ranks into one another.
    assert Counter(run.end.stdout) == Counter(plain.end.stdout)
    assert Counter(run.end.stdout)["l"] == 3, "a terminal, as without"
    assert run.end.stderr.count("to stderr") == 3
    for rank, pod in enumerate(pods.pods):
        kept = pod.run(f"cat {run.context.ranks_output}/{rank}")
        assert {"00040000", "terminal"} <= set(kept.splitlines()[-3:]) and "to stderr\n" in kept
        assert "00039000\n" in kept and len(kept) <= 128 * 1024


def test_last_words_change_no_code(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, ["sh", "-c", "[ $OMPI_COMM_WORLD_RANK = 3 ] && kill -KILL $$; sleep 60"]).keeping()
    end = run.whole().end
    assert end.code == 137 and "rank 3 on pod 1" in end.what, end
    assert Run(mpi, pods, ["no-such-program"]).keeping().whole().end.code == 66


# rank.sh without mpirun


def rank(directory: Path, *argv: str, data: str = "") -> tuple[subprocess.CompletedProcess[str], str]:
    script = Path(__file__).resolve().parents[2] / "entrypoints" / "rank.sh"
    done = subprocess.run(
        ["sh", str(script), *argv],
        env={"PATH": "/usr/bin:/bin", "A4_RANKS_DIR": str(directory), "OMPI_COMM_WORLD_RANK": "12"},
        input=data,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    return done, (directory / "12").read_text()


def test_a_rank_keeps_its_streams_and_its_arguments(tmp_path: Path) -> None:
    done, record = rank(tmp_path, "sh", "-c", 'cat; printf "<%s>" "$@" >&2', "x", "a b", "", "$HOME", data="in\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "in\n", "<a b><><$HOME>")
    assert re.fullmatch(r"started \d+\nended 0 \n", record)


@pytest.mark.parametrize("builtin", ["exit", "cd", "trap", "-n", "exec"])
def test_words_of_the_shell_are_no_programs(tmp_path: Path, builtin: str) -> None:
    done, record = rank(tmp_path, builtin, "3")
    assert done.returncode == 127 and builtin in done.stderr
    assert "refused\nended 127 " in record


def test_a_killed_rank_says_nothing_of_its_own(tmp_path: Path) -> None:
    done, record = rank(tmp_path, "sh", "-c", "kill -KILL $$")
    assert (done.returncode, done.stdout, done.stderr) == (137, "", "")
    assert re.search(r"^ended 137 \d{10}\.\d+$", record, re.MULTILINE)


def test_a_rank_may_take_its_time_when_all_of_its_group_are_told_to_end(tmp_path: Path) -> None:
    cleans_up = "trap 'echo told; sleep 0.2; echo clean; exit 5' TERM; kill -TERM 0; while :; do sleep 0.05; done"
    done, record = rank(tmp_path, "sh", "-c", cleans_up)
    assert (done.returncode, done.stdout) == (5, "told\nclean\n")
    assert "\nended 5 " in record


def test_a_record_that_cannot_be_written_is_no_reason_not_to_run(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    script = Path(__file__).resolve().parents[2] / "entrypoints" / "rank.sh"
    env = {"PATH": "/usr/bin:/bin", "A4_RANKS_DIR": str(tmp_path), "OMPI_COMM_WORLD_RANK": "12"}
    done = subprocess.run(["sh", str(script), "sh", "-c", "echo here; exit 4"], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (4, "here\n")


def test_records_are_read_as_they_are_written(tmp_path: Path) -> None:
    from agent.decide.ranks import parse_rank

    assert parse_rank(rank(tmp_path, "true")[1]) == RankEnd(0)
    assert parse_rank(rank(tmp_path, "no-such-program")[1]).refused
    end = parse_rank(rank(tmp_path, "false")[1])
    assert end.code == 1 and end.when > 1e9 and not end.refused
