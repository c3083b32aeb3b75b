"""The `mpirun` workload for real, on both versions: entrypoints/rank.sh, and who judges what it recorded."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.decide.ranks import RankEnd, parse_rank
from tests.mpi.conftest import ONE_VERSION, Mpi, open_mpi_4, open_mpi_5
from tests.mpi.pods import Pods
from tests.mpi.runs import GROUP, Run

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


def heard(mpi: Mpi) -> str:
    """What ranks do after their last line: Open MPI 5 loses what they print just before their end, the more the busier
    the machine is."""
    return "sleep 1" if mpi.version.major == 5 else "true"


def test_all_is_well(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, ["sh", "-c", f"hostname; {heard(mpi)}; test $A = 1"], env={"A": "1"})
    judgement = run.whole()
    assert run.end and judgement.end.code == 0, judgement
    assert (judgement.end.what, judgement.end.origin) == ("sh done", "workload")
    assert sorted(run.end.stdout.split()) == sorted(["node-0", "node-1", "node-2"] * 2)
    assert judgement.measurements.record == {"ranks": 6, "ended": {"0": "0-5"}}
    # Open MPI 5 sometimes says this of its own race with ssh, which harms nothing.
    assert [line for line in run.end.stderr.splitlines() if "setpgid" not in line] == []


@pytest.mark.parametrize(
    "mpi",
    [pytest.param(open_mpi_4, id="ompi4", marks=pytest.mark.faults), pytest.param(open_mpi_5, id="ompi5")],
    indirect=True,
)
@pytest.mark.parametrize("code", [0, pytest.param(3, marks=pytest.mark.faults)])
def test_a_rank_that_leaves_a_process_with_its_output(mpi: Mpi, pods: Pods, code: int) -> None:
    """mpirun waits for that process, unless it ends all for a rank that failed: it has to be ended."""
    run = Run(mpi, pods, ["bash", "-c", f"echo here; setsid sleep 600 & {heard(mpi)}; exit {code}"])
    with run.started() as process:
        run.end = pods.finish(process, run.ranks_over)
    assert run.end.stuck or code, "mpirun ended by itself"
    assert run.judged(run.end).end.code == code
    assert run.end.stdout.split() == ["here"] * 6


def who(mpi: Mpi) -> list[str]:
    """A program whose ranks say which they are, and where."""
    return ["sh", "-c", f'echo "$OMPI_COMM_WORLD_RANK $(hostname) $PWD"; {heard(mpi)}']


def test_some_ranks_on_some_pods(mpi: Mpi, pods: Pods) -> None:
    """The lead is not the coordinator."""
    run = Run(mpi, pods, who(mpi), exclude=("0",), ranks=3, cwd="/usr")
    assert run.whole().end.code == 0
    assert run.end and sorted(run.end.stdout.splitlines()) == ["0 node-1 /usr", "1 node-1 /usr", "2 node-2 /usr"]


@ONE_VERSION
def test_one_rank_per_pod(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, who(mpi), per_node=1)
    assert run.whole().end.code == 0
    assert run.end and sorted(run.end.stdout.splitlines()) == ["0 node-0 /", "1 node-1 /", "2 node-2 /"]


@ONE_VERSION
def test_one_pod(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, who(mpi), hosts=("2",))
    assert run.whole().end.code == 0
    assert run.end and sorted(run.end.stdout.splitlines()) == ["0 node-2 /", "1 node-2 /"]


def test_output_is_unchanged(mpi: Mpi, pods: Pods) -> None:
    text = "tab\there \033[31mred\033[0m \0 ü\n  no end"
    escaped = text.replace("\0", r"\0").replace("\033", r"\033")
    run = Run(mpi, pods, ["sh", "-c", f'printf %b "$1"; {heard(mpi)}', "sh", escaped], ranks=1)
    assert run.whole().end.code == 0
    assert run.end and run.end.stdout == text


@pytest.mark.parametrize("code", [205, *(pytest.param(code, marks=pytest.mark.faults) for code in (75, 127))])
def test_a_ranks_own_code(mpi: Mpi, pods: Pods, code: int) -> None:
    """Also one by which the agent or mpirun tells of something else."""
    program = f"[ $OMPI_COMM_WORLD_RANK = 3 ] && exit {code}; sleep 600"
    run = Run(mpi, pods, ["sh", "-c", program])
    end = run.whole().end
    assert (end.code, end.origin) == (code, "workload"), end
    assert end.what.endswith("rank 3 failed")
    assert end.where == f"pod 1, {pods.names[1]}, pod name not known, node {pods.pods[1].node}"


@pytest.mark.parametrize(
    "signal", ["KILL", *(pytest.param(name, marks=pytest.mark.faults) for name in ("SEGV", "TERM"))]
)
def test_a_killed_rank_is_named(mpi: Mpi, pods: Pods, signal: str) -> None:
    run = Run(mpi, pods, WAITS)
    with run.started() as process:
        started(run)
        pods.pods[2].run(f"kill -{signal} {pid(run, 4)}")
        end = run.finish(process).end
    assert end.code > 128 and end.origin == "workload", end
    assert end.what.endswith(f"rank 4 was killed by SIG{signal}") and end.where.startswith("pod 2, "), end


def test_a_killed_daemon_is_a_lost_pod(mpi: Mpi, pods: Pods) -> None:
    """Open MPI 5.0.11 ends 0 after that."""
    run = Run(mpi, pods, WAITS)
    with run.started() as process:
        started(run)
        pods.pods[1].run("pkill -KILL '^(orted|prted)$'")
        end = run.finish(process).end
    assert (end.code, end.origin, end.where) == (
        75,
        "agent",
        f"pod 1, {pods.names[1]}, pod name not known, node {pods.pods[1].node}",
    ), end
    assert "started and never ended" in end.why, "the orphans of the daemon, until they are swept"


@pytest.mark.faults
def test_a_killed_mpirun_is_named(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, WAITS)
    with run.started() as process:
        started(run)
        pods.pods[0].run("pkill -KILL '^(mpirun|orterun|prterun)$'")
        end = run.finish(process).end
    assert (end.code, end.origin, end.what) == (137, "agent", "mpirun was killed by SIGKILL"), end


def test_ranks_may_print_the_words_of_mpirun(mpi: Mpi, pods: Pods) -> None:
    says = "There are not enough slots available; process rank 3 with PID 9 on node x exited on signal 9"
    assert Run(mpi, pods, ["echo", says]).whole().end.code == 0


def test_words_of_mpirun_hide_no_rank_that_was_killed_with_its_shell(mpi: Mpi, pods: Pods) -> None:
    says = "echo There are not enough slots available; echo has lost communication with a remote daemon"
    program = f"[ $OMPI_COMM_WORLD_RANK = 3 ] || exec sleep 600; {says}; {heard(mpi)}; kill -KILL $PPID $$"
    run = Run(mpi, pods, ["sh", "-c", program])
    end = run.whole().end
    assert (end.code, end.origin) == (137, "workload"), end
    assert run.end and "has lost communication with a remote daemon" in run.end.stdout


def test_a_program_that_one_pod_lacks(mpi: Mpi, pods: Pods) -> None:
    for pod in pods.pods[:2]:
        pod.run("printf '#!/bin/sh\nexec sleep 600\n' > /run/program; chmod +x /run/program")
    run = Run(mpi, pods, ["/run/program"])
    end = run.whole().end
    assert (end.code, end.origin) == (66, "agent"), end
    assert end.what == "/run/program cannot be started"
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


def test_ranks_can_clean_up_on_a_signal_that_mpirun_passes_on(mpi: Mpi, pods: Pods) -> None:
    """Not on SIGTERM: Open MPI 4 kills within a second, Open MPI 5 tells only the ranks of its own pod."""
    run = Run(mpi, pods, ["sh", "-c", CLEANS_UP.format(home=pods.home)])
    with run.started() as process:
        started(run)
        pods.pods[0].run("pkill -USR1 '^(mpirun|orterun|prterun)$'")
        end = run.finish(process).end
    assert (end.code, end.origin) == (5, "workload"), end
    assert len(list(pods.home.glob("clean-*"))) == 6
    assert {rank_end.code for rank_end in run.ranks().values()} <= {5, None}, "None: mpirun was faster than rank.sh"


@ONE_VERSION
def test_an_mpirun_that_is_told_to_end_is_no_success(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, WAITS)
    with run.started() as process:
        started(run)
        pods.pods[0].run("pkill -TERM '^(mpirun|orterun|prterun)$'")
        end = run.finish(process).end
    assert end.code != 0, end


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


def test_last_words_are_kept_on_each_pod(mpi: Mpi, pods: Pods) -> None:
    program = f"seq -f %08g 20000; test -t 1 && echo terminal; echo to stderr >&2; {heard(mpi)}; {heard(mpi)}"
    run = Run(mpi, pods, ["sh", "-c", program], per_node=1).keeping()
    assert run.whole().end.code == 0
    assert run.end
    # mpirun cuts lines of several ranks into one another.
    whole = [*(f"{number:08}\n" for number in range(1, 20001)), "terminal\n"]
    assert Counter(run.end.stdout) == Counter("".join(whole) * 3)
    assert run.end.stderr.count("to stderr") == 3
    for rank, pod in enumerate(pods.pods):
        kept = pod.run(f"cat {run.context.ranks_output}/{rank}")
        assert {"00020000", "terminal"} <= set(kept.splitlines()[-3:]) and "to stderr\n" in kept
        assert "00019000\n" in kept and len(kept) <= 128 * 1024


@ONE_VERSION
def test_last_words_change_no_code(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, ["sh", "-c", "[ $OMPI_COMM_WORLD_RANK = 3 ] && kill -KILL $$; sleep 600"]).keeping()
    end = run.whole().end
    assert end.code == 137 and "rank 3 was killed by SIGKILL" in end.what and end.where.startswith("pod 1,"), end
    assert Run(mpi, pods, ["no-such-program"]).keeping().whole().end.code == 66


# rank.sh without mpirun


def rank(
    directory: Path, *argv: str, data: str = "", step: str = "", path: str = ""
) -> tuple[subprocess.CompletedProcess[str], str]:
    script = Path(__file__).resolve().parents[2] / "entrypoints" / "rank.sh"
    given = {"A4_RANKS_DIR": str(directory), "A4_RANKS_PATH": path, "OMPI_COMM_WORLD_RANK": "12", "A4_STEP": step}
    done = subprocess.run(
        ["sh", str(script), *argv],
        env={"PATH": "/usr/bin:/bin", **given},
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


@pytest.mark.parametrize(
    ("path", "found"), [("/opt/bin:/usr/bin:/bin", "/opt/bin:/usr/bin:/bin\n"), ("", "/usr/bin:/bin\n")]
)
def test_a_rank_has_the_search_path_that_the_user_has(path: str, found: str, tmp_path: Path) -> None:
    done, _ = rank(tmp_path, "sh", "-c", 'echo "$PATH"', path=path)
    assert done.stdout == found


def missing_name(directory: Path) -> str:
    return "no-such-program"


def missing_path(directory: Path) -> str:
    return "/no/program"


def not_executable(directory: Path) -> str:
    (directory / "program").touch(0o644)
    return str(directory / "program")


def missing_interpreter(directory: Path) -> str:
    (directory / "program").write_text("#!/no/interpreter\n")
    (directory / "program").chmod(0o755)
    return str(directory / "program")


@pytest.mark.parametrize(
    ("cause", "code"), [(missing_name, 127), (missing_path, 127), (not_executable, 126), (missing_interpreter, 127)]
)
def test_a_program_that_cannot_be_started(tmp_path: Path, cause: Callable[[Path], str], code: int) -> None:
    program = cause(tmp_path)
    done, record = rank(tmp_path, program)
    assert (done.returncode, parse_rank(record).code, parse_rank(record).refused) == (code, code, True)
    assert program in done.stderr


def test_a_rank_of_a_step_says_so(tmp_path: Path) -> None:
    rank(tmp_path, "true", step="all_reduce")
    _, record = rank(tmp_path, "sh", "-c", "exit 5", step="all_reduce-2")
    assert re.fullmatch(r"started \d+ of all_reduce-2\nended 5 \d+\.\d+ of all_reduce-2\n", record)
    assert parse_rank(record).code == 5 and parse_rank(record).step == "all_reduce-2"


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
    assert parse_rank(rank(tmp_path, "true")[1]) == RankEnd(0)
    assert parse_rank(rank(tmp_path, "no-such-program")[1]).refused
    end = parse_rank(rank(tmp_path, "false")[1])
    assert end.code == 1 and end.when > 1e9 and not end.refused
