"""The `mpirun` workload for real, on both versions: entrypoints/rank.sh, and who judges what it recorded."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.decide.ranks import parse_rank
from agent.lifecycle.runs.hanging import AFTER_RANKS_SECONDS
from agent.paths import shipped
from tests.mpi.conftest import WITH_4, WITH_5, Mpi
from tests.mpi.pods import Pods
from tests.mpi.runs import GATE, GROUP, WAITS, Run

MPIRUN = "'^(mpirun|orterun|prterun)$'"


def heard(mpi: Mpi) -> str:
    """What ranks do after their last line: Open MPI 5 loses what they print just before their end, the more the busier
    the machine is."""
    return "sleep 1" if mpi.version.major == 5 else "true"


def where(pods: Pods, index: int) -> str:
    return f"pod {index}, {pods.names[index]}, pod name not known, node {pods.pods[index].node}"


def test_all_is_well(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, ["sh", "-c", f"hostname; {heard(mpi)}; test $A = 1"], env={"A": "1"})
    judgement = run.whole()
    assert run.end and judgement.end.code == 0, judgement
    assert (judgement.end.what, judgement.end.origin) == ("sh done", "workload")
    assert sorted(run.end.stdout.split()) == sorted(["node-0", "node-1", "node-2"] * 2)
    assert judgement.measurements.record == {"ranks": 6, "ended": {"0": "0-5"}}
    # Open MPI 5 sometimes says this of its own race with ssh, which harms nothing.
    assert [line for line in run.end.stderr.splitlines() if "setpgid" not in line] == []


@WITH_5
@pytest.mark.parametrize("code", [0, pytest.param(3, marks=pytest.mark.faults)])
def test_a_rank_that_leaves_a_process_with_its_output(mpi: Mpi, pods: Pods, code: int) -> None:
    """mpirun waits for that process, unless it ends all for a rank that failed: it has to be ended."""
    leaves = f"echo here; setsid sleep 600 & mkfifo {GATE}; read -r line <{GATE}; {heard(mpi)}; exit {code}"
    run = Run(mpi, pods, ["bash", "-c", leaves])
    with run.started() as process:
        run.until_there()
        assert process.stdout
        assert [process.stdout.readline() for _ in range(6)] == ["here\n"] * 6
        run.let_go(*([3] if code else range(6)))  # one that fails is the end of all
        end = run.finish(process, AFTER_RANKS_SECONDS).end
    assert run.end and (run.end.stuck or code), "mpirun ended by itself"
    assert (end.code, run.end.stdout) == (code, "")


def who(mpi: Mpi) -> list[str]:
    """A program whose ranks say which they are, and where."""
    return ["sh", "-c", f'echo "$OMPI_COMM_WORLD_RANK $(hostname) $PWD"; {heard(mpi)}']


@WITH_4
@pytest.mark.parametrize(
    ("wish", "given", "shown"),
    [
        # The lead is not the coordinator.
        ({"exclude": ("0",), "ranks": 3, "cwd": "/usr"}, {}, ["0 node-1 /usr", "1 node-1 /usr", "2 node-2 /usr"]),
        ({"per_node": 1}, {}, ["0 node-0 /", "1 node-1 /", "2 node-2 /"]),
        ({"hosts": ("2",)}, {"ssh_config": "/no/config"}, ["0 node-2 /", "1 node-2 /"]),  # without SSH
    ],
    ids=["some ranks", "one per pod", "one pod"],
)
def test_some_ranks_on_some_pods(
    mpi: Mpi, pods: Pods, wish: dict[str, Any], given: dict[str, str], shown: list[str]
) -> None:
    run = Run(mpi, pods, who(mpi), given=given, **wish)
    assert run.whole().end.code == 0
    assert run.end and sorted(run.end.stdout.splitlines()) == shown


def test_output_is_unchanged(mpi: Mpi, pods: Pods) -> None:
    text = "tab\there \033[31mred\033[0m \0 ü\n  no end"
    escaped = text.replace("\0", r"\0").replace("\033", r"\033")
    run = Run(mpi, pods, ["sh", "-c", f'printf %b "$1"; {heard(mpi)}', "sh", escaped], ranks=1)
    assert run.whole().end.code == 0
    assert run.end and run.end.stdout == text


@WITH_4
@pytest.mark.parametrize("code", [205, *(pytest.param(code, marks=pytest.mark.faults) for code in (75, 127))])
def test_a_ranks_own_code(mpi: Mpi, pods: Pods, code: int) -> None:
    """Also one by which the agent or mpirun tells of something else."""
    program = f"[ $OMPI_COMM_WORLD_RANK = 3 ] && exit {code}; sleep 600"
    end = Run(mpi, pods, ["sh", "-c", program]).whole().end
    assert (end.code, end.origin, end.where) == (code, "workload", where(pods, 1)), end
    assert end.what.endswith("rank 3 failed")


@WITH_5
@pytest.mark.parametrize(
    "signal", ["KILL", *(pytest.param(name, marks=pytest.mark.faults) for name in ("SEGV", "TERM"))]
)
def test_a_killed_rank_is_named(mpi: Mpi, pods: Pods, signal: str) -> None:
    run = Run(mpi, pods, WAITS)
    end = run.ended_by(2, lambda: f"kill -{signal} {run.pid(4)}")
    assert end.code > 128 and end.origin == "workload", end
    assert end.what.endswith(f"rank 4 was killed by SIG{signal}") and end.where.startswith("pod 2, "), end


@WITH_5
def test_a_killed_daemon_is_a_lost_pod(mpi: Mpi, pods: Pods) -> None:
    """Open MPI 5.0.11 ends 0 after that."""
    end = Run(mpi, pods, WAITS).ended_by(1, lambda: "pkill -KILL '^(orted|prted)$'")
    assert (end.code, end.origin, end.where) == (75, "agent", where(pods, 1)), end
    assert "started and never ended" in end.why, "the orphans of the daemon, until they are swept"


@pytest.mark.faults
def test_a_killed_mpirun_is_named(mpi: Mpi, pods: Pods) -> None:
    end = Run(mpi, pods, WAITS).ended_by(0, lambda: f"pkill -KILL {MPIRUN}")
    assert (end.code, end.origin, end.what) == (137, "agent", "mpirun was killed by SIGKILL"), end


@WITH_4
def test_an_mpirun_that_is_told_to_end_is_no_success(mpi: Mpi, pods: Pods) -> None:
    end = Run(mpi, pods, WAITS).ended_by(0, lambda: f"pkill -TERM {MPIRUN}")
    assert end.code != 0, end


@WITH_5
def test_words_of_mpirun_hide_no_rank_that_was_killed_with_its_shell(mpi: Mpi, pods: Pods) -> None:
    says = "echo There are not enough slots available; echo has lost communication with a remote daemon"
    program = f"[ $OMPI_COMM_WORLD_RANK = 3 ] || exec sleep 600; {says}; {heard(mpi)}; kill -KILL $PPID $$"
    run = Run(mpi, pods, ["sh", "-c", program])
    end = run.whole().end
    assert (end.code, end.origin) == (137, "workload"), end
    assert run.end and "has lost communication with a remote daemon" in run.end.stdout


@WITH_5
def test_a_program_that_one_pod_lacks(mpi: Mpi, pods: Pods) -> None:
    for pod in pods.pods[:2]:
        pod.run("printf '#!/bin/sh\nexec sleep 600\n' > /run/program; chmod +x /run/program")
    run = Run(mpi, pods, ["/run/program"])
    end = run.whole().end
    assert (end.code, end.origin, end.what) == (66, "agent", "/run/program cannot be started"), end
    assert re.search(r"rank [45] on pod 2 could not start its program", end.why)
    assert run.end and "/run/program" in run.end.stderr, "what the shell says of it"


@pytest.mark.faults
def test_a_working_directory_that_is_missing(mpi: Mpi, pods: Pods) -> None:
    assert Run(mpi, pods, ["true"], cwd="/no/directory").whole().end.code == 66


CLEANS_UP = """
clean_up() {{
    touch {home}/clean-$OMPI_COMM_WORLD_RANK
    until [ $(ls {home} | grep -c clean-) = 6 ]; do sleep 0.1; done # the first end is the others'
    exit 5
}}
trap clean_up TERM USR1
mkfifo /run/gate-$OMPI_COMM_WORLD_RANK
while :; do sleep 0.05; done
"""


@WITH_5
def test_ranks_can_clean_up_on_a_signal_that_mpirun_passes_on(mpi: Mpi, pods: Pods) -> None:
    """Not on SIGTERM: Open MPI 4 kills within a second, Open MPI 5 tells only the ranks of its own pod."""
    run = Run(mpi, pods, ["sh", "-c", CLEANS_UP.format(home=pods.home)])
    end = run.ended_by(0, lambda: f"pkill -USR1 {MPIRUN}")
    assert (end.code, end.origin) == (5, "workload"), end
    assert len(list(pods.home.glob("clean-*"))) == 6
    assert {rank_end.code for rank_end in run.ranks().values()} <= {5, None}, "None: mpirun was faster than rank.sh"


def test_a_run_s_processes_are_marked_on_each_pod(mpi: Mpi, pods: Pods) -> None:
    """Daemons on other pods start by entrypoints/enter-run.sh. What a rank leaves behind inherits the mark."""
    leaves = "env -i setsid sleep 600 >/dev/null 2>&1 &"
    run = Run(mpi, pods, ["sh", "-c", leaves], per_node=1)
    assert run.whole().end.code == 0
    for index, pod in enumerate(pods.pods):
        pids = "$(until pgrep -fx 'sleep 600'; do sleep 0.1; done)"  # the rank ends before its child is this program
        found = pod.run(f"for pid in {pids}; do grep ^Groups: /proc/$pid/status; done")
        # That of the lead inherits it from mpirun, which the agent starts.
        assert found.startswith("Groups:") and (str(GROUP) in found.split()) is (index > 0)


KEPT = {"keep_ranks": True}


def test_last_words_are_kept_on_each_pod(mpi: Mpi, pods: Pods) -> None:
    program = f"seq -f %08g 20000; test -t 1 && echo terminal; echo to stderr >&2; {heard(mpi)}; {heard(mpi)}"
    run = Run(mpi, pods, ["sh", "-c", program], per_node=1, given=KEPT)
    assert run.whole().end.code == 0
    assert run.end
    # mpirun cuts lines of several ranks into one another.
    whole = [*(f"{number:08}\n" for number in range(1, 20001)), "terminal\n"]
    assert Counter(run.end.stdout) == Counter("".join(whole) * 3)
    assert run.end.stderr.count("to stderr") == 3
    for rank, pod in enumerate(pods.pods):
        kept = pod.path(f"{run.context.ranks_output}/{rank}").read_text()
        assert {"00020000", "terminal"} <= set(kept.splitlines()[-3:]) and "to stderr\n" in kept
        assert "00019000\n" in kept and len(kept) <= 128 * 1024


@WITH_4
def test_last_words_change_no_code(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, ["sh", "-c", "[ $OMPI_COMM_WORLD_RANK = 3 ] && kill -KILL $$; sleep 600"], given=KEPT)
    end = run.whole().end
    assert end.code == 137 and "rank 3 was killed by SIGKILL" in end.what and end.where.startswith("pod 1,"), end
    assert Run(mpi, pods, ["no-such-program"], given=KEPT).whole().end.code == 66


# rank.sh without mpirun


def rank(
    directory: Path, *argv: str, data: str = "", step: str = "", path: str = ""
) -> subprocess.CompletedProcess[str]:
    """What it records is in the file 12 of the directory."""
    given = {"A4_RANKS_DIR": str(directory), "A4_RANKS_PATH": path, "OMPI_COMM_WORLD_RANK": "12", "A4_STEP": step}
    return subprocess.run(
        ["sh", shipped("entrypoints", "rank.sh"), *argv],
        env={"PATH": "/usr/bin:/bin", **given},
        input=data,
        capture_output=True,
        text=True,
        start_new_session=True,
    )


def test_a_rank_keeps_its_streams_and_its_arguments(tmp_path: Path) -> None:
    done = rank(tmp_path, "sh", "-c", 'cat; printf "<%s>" "$@" >&2', "x", "a b", "", "$HOME", data="in\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "in\n", "<a b><><$HOME>")
    assert re.fullmatch(r"started \d+\nended 0 \n", (tmp_path / "12").read_text())


@pytest.mark.parametrize(
    ("path", "found"), [("/opt/bin:/usr/bin:/bin", "/opt/bin:/usr/bin:/bin"), ("", "/usr/bin:/bin")]
)
def test_a_rank_has_the_search_path_that_the_user_has(path: str, found: str, tmp_path: Path) -> None:
    assert rank(tmp_path, "sh", "-c", 'echo "$PATH"', path=path).stdout == f"{found}\n"


@pytest.mark.parametrize(
    ("program", "code"),
    [
        *(("no-such-program", 127), ("/no/program", 127), ("{here}/plain", 126), ("{here}/script", 127)),
        *((builtin, 127) for builtin in ("exit", "cd", "trap", "-n", "exec")),  # words of the shell are no programs
    ],
)
def test_a_program_that_cannot_be_started(tmp_path: Path, program: str, code: int) -> None:
    (tmp_path / "plain").touch(0o644)
    (tmp_path / "script").write_text("#!/no/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    program = program.format(here=tmp_path)
    done, end = rank(tmp_path, program, "3"), parse_rank((tmp_path / "12").read_text())
    assert (done.returncode, end.code, end.refused) == (code, code, True)
    assert program in done.stderr


def test_a_rank_of_a_step_says_so(tmp_path: Path) -> None:
    rank(tmp_path, "true", step="all_reduce")
    rank(tmp_path, "sh", "-c", "exit 5", step="all_reduce-2")
    record = (tmp_path / "12").read_text()
    assert re.fullmatch(r"started \d+ of all_reduce-2\nended 5 \d{10}\.\d+ of all_reduce-2\n", record)
    end = parse_rank(record)
    assert (end.code, end.step, end.when > 1e9, end.refused) == (5, "all_reduce-2", True, False)


def test_a_killed_rank_says_nothing_of_its_own(tmp_path: Path) -> None:
    done = rank(tmp_path, "sh", "-c", "kill -KILL $$")
    assert (done.returncode, done.stdout, done.stderr) == (137, "", "")
    assert re.search(r"^ended 137 \d{10}\.\d+$", (tmp_path / "12").read_text(), re.MULTILINE)


def test_a_rank_may_take_its_time_when_all_of_its_group_are_told_to_end(tmp_path: Path) -> None:
    cleans_up = "trap 'echo told; sleep 0.2; echo clean; exit 5' TERM; kill -TERM 0; while :; do sleep 0.05; done"
    done = rank(tmp_path, "sh", "-c", cleans_up)
    assert (done.returncode, done.stdout) == (5, "told\nclean\n")
    assert "\nended 5 " in (tmp_path / "12").read_text()


def test_a_record_that_cannot_be_written_is_no_reason_not_to_run(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    done = rank(tmp_path, "sh", "-c", "echo here; exit 4")
    assert (done.returncode, done.stdout) == (4, "here\n")
