"""What workloads start, and what they make of how it ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent import wire
from agent.catalogue import RUNNABLE, WORKLOADS
from agent.decide.ending import JobEnd
from agent.decide.mpirun import Mpi, MpiVersion
from agent.decide.plan import Plan, PlannedPeer
from agent.decide.ranks import RankEnd
from agent.decide.runspec import RunSpec
from agent.decide.subset import subset
from agent.errors import AgentError, Exit, MissingProgram, UsageError
from agent.launch import Launch
from agent.settings import Found, examine, read_settings
from agent.workloads import find_workload
from agent.workloads.base import FailedPart, Judgement, Outcome, RunContext, Workload
from agent.workloads.held_rank import invitation
from tests.cluster.programs.deepep import NEWEST, RELEASES, measured
from tests.decide.rank_records import TOKENS, common, end, text
from tests.decide.test_torch_failures import entry, summary

PEERS = tuple(
    PlannedPeer(i, f"job-workload-0-{i}.job", f"10.0.0.{i}", f"node-{i}", (), f"job-workload-0-{i}-x7k2p")
    for i in (2, 0, 1)
)
WHERE = "pod 1, job-workload-0-1-x7k2p, node node-1"
FOUR, FIVE = MpiVersion(4, 1, 4), MpiVersion(5, 0, 11)
TIMED_OUT = JobEnd(Exit.TIME_LIMIT, "hit the time limit", why="pod 0: in the all-reduce")


def context(
    workload: str, *args: str, index: int = 2, wish: Mapping[str, Any] | None = None, **changes: Any
) -> RunContext:
    """Pods 2, 0 and 1 in this order, two slots each; pod 2 is the lead."""
    values: dict[str, Any] = {
        "run_id": f"{workload}-1a2b",
        "spec": RunSpec(workload, args, **(wish or {})),
        "plan": Plan("epoch", 2, PEERS),
        "index": index,
        "environ": {"PATH": "/bin", "HF_TOKEN": "canary"},
        "master_port": 6002,
        "run_dir": "/run/a4-agent/runs/x",
        "token_file": "/run/a4-agent/token",
        "ssh_config": "/run/a4-agent/ssh/ssh_config",
        "interface": "eth0",
        "python": "/opt/a4-agent/bin/python",
        "workload_python": "python3",
        "cores": 8,
        "rank_script": "/run/a4-agent/rank.sh",
        "enter_script": "/run/a4-agent/enter-run.sh",
        "script": "/workload/task/task-script.sh",
        "mpi": Mpi("/usr/bin/mpirun", FOUR),
    }
    return RunContext(**{**values, **changes})


def launched(some: RunContext) -> Launch:
    made = find_workload(some.spec.workload).launch(some)
    assert made is not None
    return made


def judged(some: RunContext, outcome: Outcome) -> Judgement:
    return find_workload(some.spec.workload).judge(some, outcome)


def options(made: Launch, name: str) -> list[str]:
    return [after for word, after in zip(made.argv, made.argv[1:], strict=False) if word == name]


@pytest.mark.parametrize("name", ["torchrun", "mpirun", "script"])
def test_what_users_programs_are_given_is_no_unknown_setting_where_they_call_the_agent(name: str) -> None:
    made = launched(context(name, "program", why=True, keep_ranks=True))
    assert made.env["A4_SERIES_FILE"].endswith("/series.jsonl")
    assert examine({**made.env, "A4_JOBSET_UID": "11-22"}, Found()).warnings == ()


def test_all_are_known_by_their_names() -> None:
    for name in WORKLOADS:
        workload: Workload = find_workload(name)
        assert workload.name == name
        assert workload.exclusive == workload.fail_fast == (name != "exec"), name


def test_another_is_refused() -> None:
    with pytest.raises(UsageError, match="no workload 'deepep-2'"):
        find_workload("deepep-2")


@pytest.mark.parametrize("name", ["exec", "mpirun", "torchrun"])
@pytest.mark.parametrize("index", [2, 0])
def test_a_command_is_needed(name: str, index: int) -> None:
    with pytest.raises(UsageError, match=f"{name} needs a"):
        find_workload(name).check(context(name, index=index))


@pytest.mark.parametrize("name", ["connectivity", "mpirun", "torchrun", "exec", "script"])
@pytest.mark.parametrize("keep", [False, True])
def test_processes_are_marked_and_no_value_stands_on_a_command_line(name: str, keep: bool) -> None:
    made = launched(context(name, "program", "argument", keep_ranks=keep))
    assert made.env["A4_RUN"] == f"{name}-1a2b" and "A4_RUN" in made.added
    assert made.env["HF_TOKEN"] == "canary"
    assert not any("canary" in word for word in made.argv)
    assert set(made.added) <= set(made.env)
    assert made.argv[-1] == "argument"


# mpirun


@pytest.mark.parametrize("name", ["mpirun", "connectivity"])
def test_mpirun_is_started_on_the_lead_alone(name: str) -> None:
    assert [find_workload(name).launch(context(name, "a.out", index=i)) is None for i in (2, 0, 1)] == [0, 1, 1]


@pytest.mark.parametrize("name", ["mpirun", "connectivity"])
@pytest.mark.parametrize("mpi", [None, Mpi("mpirun", problem="mpirun is not on PATH (/bin)")])
def test_without_mpirun_nothing_is_started(name: str, mpi: Mpi | None) -> None:
    some = context(name, "a.out", mpi=mpi)
    with pytest.raises(MissingProgram, match="mpirun"):
        find_workload(name).launch(some)
    cause = JobEnd(66, "mpirun is not on PATH")
    assert judged(some, Outcome(0, cause=cause)).end == cause
    assert judged(some, Outcome(0)).end.code == 66


def test_every_slot_has_a_rank() -> None:
    made = launched(context("mpirun", "./a.out", "-x", wish={"cwd": "/work"}))
    assert list(made.argv[-4:]) == ["sh", "/run/a4-agent/rank.sh", "./a.out", "-x"]
    assert options(made, "-np") == ["6"]
    assert options(made, "--hostfile") == ["/run/a4-agent/runs/x/hostfile"]
    assert options(made, "--wdir") == ["/work"]
    assert made.env["A4_RANKS_DIR"] == "/run/a4-agent/runs/x/ranks"
    assert made.env["A4_RANKS_PATH"] == made.env["PATH"]
    assert {"A4_RUN", "A4_RANKS_DIR", "A4_RANKS_PATH", "HF_TOKEN"} <= set(options(made, "-x"))


def test_fewer_ranks_than_slots() -> None:
    wishes = [{"ranks": 4}, {"ranks": 6}, {"per_node": 1}, {"per_node": 2}, {"per_node": 1, "ranks": 2}]
    made = [launched(context("mpirun", "./a.out", wish=wish)) for wish in wishes]
    assert [options(one, "-np") for one in made] == [["4"], ["6"], ["3"], ["6"], ["2"]]


@pytest.mark.parametrize(
    ("wish", "what"),
    [
        ({"ranks": 7}, "-np 7: there are 6 slots (3 pods of 2)"),
        ({"ranks": 4, "per_node": 1}, "-np 4: there are 3 slots (3 pods of 1)"),
        ({"per_node": 3}, "-N 3: a pod has 2 slots"),
    ],
)
def test_more_ranks_than_slots_are_refused(wish: dict[str, int], what: str) -> None:
    some = context("mpirun", "./a.out", wish=wish)
    with pytest.raises(UsageError) as caught:
        find_workload("mpirun").check(some)
    assert what in caught.value.what
    assert judged(some, Outcome(0)).end.code == 2, "if it comes to that"


def test_arguments_that_mpirun_cannot_give_a_rank_are_refused() -> None:
    made = launched(context("mpirun", "./a.out", "a" * 100_000, "b" * 30_000))
    assert made.argv[-1] == "b" * 30_000
    too_long = "a" * 100_000, "b" * 31_100
    for name in ("mpirun", "nccl", "deepep", "connectivity"):
        with pytest.raises(UsageError, match=r"arguments take 1[34]\d{4} bytes: mpirun can give a rank 131061"):
            find_workload(name).check(context(name, *too_long))
    with pytest.raises(UsageError, match="arguments take"):
        launched(context("mpirun", *too_long))


def test_one_pod_needs_no_hostfile() -> None:
    made = launched(context("mpirun", "./a.out", plan=Plan("epoch", 2, PEERS[:1])))
    assert options(made, "--host") == ["localhost:2"] and not options(made, "--hostfile")


@pytest.mark.parametrize(("cores", "yields"), [(2, False), (1, True)])
def test_ranks_yield_where_they_share_cores(cores: int, yields: bool) -> None:
    assert ("mpi_yield_when_idle" in launched(context("mpirun", "./a.out", cores=cores)).argv) == yields
    assert "mpi_yield_when_idle" not in launched(context("mpirun", "./a.out", cores=cores, wish={"ranks": 1})).argv


def test_what_ranks_print_is_kept_where_a_limit_may_be_hit() -> None:
    made = launched(context("mpirun", "./a.out", keep_ranks=True))
    _, option, keep, directory, *program = made.argv[list(made.argv).index("/opt/a4-agent/bin/python") :]
    assert option == "-IS" and keep.endswith("/entrypoints/last-words.py")
    assert directory == "/run/a4-agent/runs/x/ranks-output"
    assert program == ["sh", "/run/a4-agent/rank.sh", "./a.out"]
    assert not any("last-words" in word for word in launched(context("mpirun", "./a.out")).argv)


def test_only_open_mpi_5_needs_patience_at_the_end() -> None:
    assert "A4_RANKS_LINGER" not in launched(context("mpirun", "./a.out")).env
    made = launched(context("mpirun", "./a.out", mpi=Mpi("/usr/bin/mpirun", FIVE)))
    assert float(made.env["A4_RANKS_LINGER"]) > 0


WELL = dict.fromkeys(range(6), RankEnd(0))
TOLD = JobEnd(143, "told to end by SIGTERM", "pod 0")
KILLED, OPEN = RankEnd(143, 2.0), RankEnd(None)
LOST = "ORTE has lost communication with a remote daemon."
ENDED = "The first process to do so was:\n\n  Process name: [prterun-node-0-12@1,3]\n   Exit code:    9"
SIGNALLED = "mpirun noticed that process rank 2 with PID 34 on node node-1 exited on signal 9 (Killed)."


@pytest.mark.parametrize(
    ("outcome", "code", "origin", "text"),
    [
        (Outcome(0, ranks=WELL), 0, "workload", "a.out done"),
        (Outcome(-15, ranks=WELL, stuck=True), 0, "workload", "a.out done"),
        # Every rank ended well, and that is all there is to know.
        (Outcome(0, ranks=WELL, cause=TIMED_OUT), 0, "workload", "a.out done"),
        (Outcome(1, ranks=WELL), 1, "workload", "a rank ended with exit code 1"),
        (Outcome(1, ranks=WELL, cause=TIMED_OUT), 124, "agent", "hit the time limit"),
        # Told to end, ranks save their state, and end as they like.
        (Outcome(0, ranks=WELL, cause=TOLD, told=True), 143, "agent", "told to end by SIGTERM"),
        (Outcome(1, ranks={**WELL, 3: RankEnd(7, 1.0)}, cause=TOLD, told=True), 143, "agent", "told to end by SIGTERM"),
        # mpirun alone proves nothing.
        (Outcome(0), 65, "agent", "ranks are missing"),
        (Outcome(0, ranks={**WELL, 5: RankEnd(None)}), 65, "agent", "rank 5 (pod 1)"),
        (Outcome(0, ranks={i: WELL[i] for i in range(5)}), 65, "agent", "never started: rank 5 (pod 1)"),
        (Outcome(0, ranks={**WELL, 5: RankEnd(None)}, output=LOST), 75, "agent", "daemon was lost"),
        (Outcome(205, ranks={**WELL, 5: RankEnd(None)}), 75, "agent", "daemon was lost"),
        (Outcome(205, ranks={**WELL, 5: RankEnd(143, 1.0)}), 75, "agent", "daemon was lost"),
        # Ranks print what they like.
        (Outcome(14, ranks={**WELL, 5: RankEnd(7, 1.0)}, output=LOST), 7, "workload", "rank 5 failed (pod 1, "),
        (Outcome(0, ranks={**WELL, 5: RankEnd(14, 1.0)}, output=LOST), 75, "agent", "daemon was lost"),
        (Outcome(0, ranks={}, lost={0: "not heard for 30 s"}), 75, "agent", "node node-0: not heard for 30 s"),
        # A rank's own end.
        (Outcome(7, ranks={**WELL, 3: RankEnd(7, 1.0)}), 7, "workload", "a.out: rank 3 failed (pod 0, "),
        (Outcome(1, ranks={**WELL, 3: RankEnd(205, 1.0)}), 205, "workload", "rank 3 failed (pod 0, "),
        (Outcome(205, ranks={**WELL, 3: RankEnd(205, 1.0)}), 205, "workload", "rank 3 failed (pod 0, "),
        (Outcome(0, ranks={**WELL, 3: RankEnd(75, 1.0)}), 75, "workload", "rank 3 failed (pod 0, "),
        (Outcome(7, ranks={**WELL, 3: RankEnd(7, 1.0)}, cause=TIMED_OUT), 124, "agent", "rank 3 on pod 0 ended with"),
        (Outcome(127, ranks={**WELL, 3: RankEnd(127, 1.0)}), 127, "workload", "127 is its own code"),
        (Outcome(137, ranks={0: RankEnd(143), 2: OPEN}, output=SIGNALLED), 137, "workload", "rank 2 on node-1"),
        (Outcome(137, ranks={**WELL, 3: RankEnd(137, 1.0)}), 137, "workload", "was killed by SIGKILL (pod 0, "),
        (Outcome(137, ranks={}, output=SIGNALLED), 137, "workload", "rank 2 on node-1 was killed by signal 9"),
        # It did not come to ranks.
        (Outcome(127, ranks={0: RankEnd(127, 1.0, refused=True)}), 66, "agent", "a.out cannot be started"),
        (Outcome(135, ranks={}), 66, "agent", "working directory"),
        (Outcome(255, ranks={}), 71, "agent", "daemon did not start"),
        (Outcome(-9, ranks={**WELL, 0: RankEnd(None)}), 137, "agent", "mpirun was killed by SIGKILL"),
        # Its ranks are ended by the clean-up after it.
        (Outcome(-9, ranks=dict.fromkeys(range(6), RankEnd(143, 1.0))), 137, "agent", "mpirun was killed by SIGKILL"),
        (Outcome(-9, ranks={**WELL, 3: RankEnd(7, 1.0)}), 7, "workload", "rank 3 failed (pod 0, "),
    ],
)
def test_ends_of_mpirun(outcome: Outcome, code: int, origin: str, text: str) -> None:
    end = judged(context("mpirun", "a.out"), outcome).end
    assert (end.code, end.origin) == (code, origin), end
    assert text in str(end)


# What ranks print is not what mpirun says. Each of these, printed by a rank, meets each way in which a run can end.

SAYINGS = (
    LOST,
    SIGNALLED,
    ENDED,
    "mpirun was unable to find the specified executable file, and therefore did not launch the job",
    "A daemon failed to report back after being spawned",
    "There are not enough slots available in the system",
    "The user-provided time limit for job execution has been reached",
    'mpirun: Error: unknown option "--no"',
)
ENDS = {
    "all well": (0, WELL),
    "all well, and mpirun hangs": (-15, WELL),
    "without MPI_Finalize": (1, WELL),
    "a rank ends 1, the others are ended": (1, {**dict.fromkeys(range(6), KILLED), 4: RankEnd(1, 1.0)}),
    "a rank ends 1, the others are killed": (1, {**dict.fromkeys(range(6), OPEN), 4: RankEnd(1, 1.0)}),
    "a rank ends with mpirun's code for a lost daemon": (205, {**dict.fromkeys(range(6), OPEN), 4: RankEnd(205, 1.0)}),
    "a rank ends 66, and one has not begun": (66, {0: OPEN, 4: RankEnd(66, 1.0)}),
    "two ranks fail": (7, {**dict.fromkeys(range(6), OPEN), 1: RankEnd(7, 9.0), 4: RankEnd(8, 1.0)}),
    "a rank ends 7, and mpirun hangs": (-15, {**dict.fromkeys(range(6), KILLED), 4: RankEnd(7, 1.0)}),
    "a rank loses its connection": (14, {**dict.fromkeys(range(6), KILLED), 4: RankEnd(7, 1.0)}),
    "a rank is killed with its shell": (137, {**WELL, 2: OPEN}),
    "a rank is killed with its shell, the others are ended": (137, {**dict.fromkeys(range(6), KILLED), 2: OPEN}),
    "a daemon is killed": (205, {**WELL, 4: OPEN, 5: KILLED}),
    "mpirun is killed": (-9, {**WELL, 4: KILLED, 5: OPEN}),
    "a daemon of Open MPI 5 is killed": (0, {**WELL, 4: OPEN, 5: KILLED}),
}
BELIEVED = {
    (situation, said)
    for situation in ("a daemon is killed", "a daemon of Open MPI 5 is killed")
    for said in (LOST, "A daemon failed to report back after being spawned")
}
"""mpirun says it itself then, and nothing else shows it: without these words the code is that of a rank."""


@pytest.mark.parametrize("version", [FOUR, FIVE], ids=str)
def test_words_of_mpirun_that_a_rank_prints_change_no_code(version: MpiVersion) -> None:
    some = context("mpirun", "a.out", mpi=Mpi("/usr/bin/mpirun", version))
    for situation, (status, ranks) in ENDS.items():
        outcome = Outcome(status, ranks=ranks, stuck="hangs" in situation)
        silent = judged(some, outcome).end
        for saying in SAYINGS:
            end = judged(some, replace(outcome, output=f"{saying}\n")).end
            expected = (75, "agent") if (situation, saying) in BELIEVED else (silent.code, silent.origin)
            assert (end.code, end.origin) == expected, (situation, saying, end)


def test_a_lost_daemon_is_named_with_its_pod() -> None:
    for version, said in (
        (FOUR, "[[10584,0],1] on node job-workload-0-1.job.default.svc.cluster.local"),
        (FIVE, "[prterun-node-0-70@0,1] on node node-1"),
    ):
        text = f"{LOST}\n\n  HNP daemon   : [[10584,0],0] on node node-0\n  Remote daemon: {said}\n"
        some = context("mpirun", "a.out", mpi=Mpi("/usr/bin/mpirun", version))
        status = 205 if version == FOUR else 0
        end = judged(some, Outcome(status, ranks={**WELL, 2: OPEN}, output=text)).end
        assert (end.code, end.where) == (75, "pod 0, job-workload-0-0-x7k2p, node node-0")
        assert judged(some, Outcome(205, ranks={**WELL, 2: OPEN})).end.where == ""
    failed = "A daemon failed to report back after being spawned.\n\n  Local host:    node-2\n  Remote host:   node-0\n"
    end = judged(some, Outcome(255, ranks={**WELL, 2: OPEN}, output=failed)).end
    assert (end.code, end.where) == (75, "pod 0, job-workload-0-0-x7k2p, node node-0")


def test_a_limit_tells_what_ranks_did_as_well() -> None:
    outcome = Outcome(1, ranks={**WELL, 1: RankEnd(None)}, cause=TIMED_OUT)
    end = judged(context("mpirun", "a.out"), outcome).end
    assert end.why.splitlines() == ["pod 0: in the all-reduce", "started and never ended: rank 1 (pod 2)"]


def test_the_pod_of_the_first_rank_that_failed_is_named() -> None:
    judgement = judged(context("mpirun", "a.out"), Outcome(7, ranks={**WELL, 2: RankEnd(7, 1.0)}))
    assert judgement.end.where == "pod 0, job-workload-0-0-x7k2p, node node-0"
    assert judgement.measurements.record == {"ranks": 6, "ended": {"0": "0-1,3-5", "7": "2"}}


def test_the_last_lines_of_a_program_that_failed_are_told_without_those_of_mpirun() -> None:
    frame = "-" * 74 + "\n"
    printed = f"Traceback:\nValueError: 'x'\n{frame}Primary job terminated\n{frame}{frame}mpirun detected that\n{frame}"
    end = judged(context("mpirun", "a.out"), Outcome(7, ranks={**WELL, 2: RankEnd(7, 1.0)}, output=printed)).end
    assert end.why.splitlines() == ["last lines of its output:", "  Traceback:", "  ValueError: 'x'"]
    failed = FailedPart("rank 1 begins\nKilled")
    end = judged(context("script"), Outcome(0, statuses={0: 0, 1: 9}, first=1, failures={1: failed})).end
    assert (end.code, end.why) == (9, "last lines of its output:\n  rank 1 begins\n  Killed")


def test_ranks_of_a_part_of_the_slots() -> None:
    some = context("mpirun", "a.out", wish={"per_node": 1, "ranks": 2})
    assert judged(some, Outcome(0, ranks={0: RankEnd(0), 1: RankEnd(0)})).end.code == 0
    assert "rank 1 failed (pod 0, " in str(judged(some, Outcome(3, ranks={0: RankEnd(0), 1: RankEnd(3, 1.0)})).end)


@pytest.mark.parametrize("name", ["mpirun", "connectivity"])
def test_an_mpirun_that_tells_of_an_end_is_ending(name: str) -> None:
    workload = find_workload(name)
    assert workload.is_ending(SIGNALLED, "", {2: RankEnd(137)})
    assert not workload.is_ending("step 100", "", {})
    assert not workload.is_ending(SIGNALLED, "", {2: RankEnd(0)}), "a rank's own words: rank 2 has ended otherwise"
    assert workload.is_ending(SIGNALLED + ENDED, "", {2: RankEnd(0)})


def test_connectivity_says_why_it_ended_not_that_no_rank_reported() -> None:
    said = judged(context("connectivity"), Outcome(0, cause=TIMED_OUT)).text
    assert said == "connectivity of 6 ranks on 3 pods (Open MPI 4.1.4): failed: hit the time limit\n"


def test_connectivity_is_judged_on_every_slot_and_so_has_a_rank_there_whatever_was_wished() -> None:
    made = launched(context("connectivity", wish={"ranks": 2, "per_node": 1}))
    assert (options(made, "-np"), options(made, "--hostfile")) == (["6"], ["/run/a4-agent/runs/x/hostfile"])


# torchrun


def test_torchrun_by_the_plan() -> None:
    """Each option by itself: tests/decide/test_torchrun.py."""
    made = launched(context("torchrun", "train.py", index=0, wish={"cwd": "/work"}))
    assert list(made.argv[:3]) == ["python3", "-m", "torch.distributed.run"]
    names = ("--nnodes", "--node-rank", "--nproc-per-node", "--master-addr", "--master-port")
    assert [options(made, name) for name in names] == [["3"], ["1"], ["2"], ["job-workload-0-2.job"], ["6002"]]
    assert (made.argv[-1], made.cwd, made.port) == ("train.py", "/work", 0)
    assert made.env["GLOO_SOCKET_IFNAME"] == "eth0"
    assert launched(context("torchrun", "train.py")).port == 6002
    alone = launched(context("torchrun", "train.py", plan=Plan("epoch", 2, PEERS[:1]), wish={"per_node": 1}))
    assert [options(alone, name) for name in names[2:4]] == [["1"], ["127.0.0.1"]]


def test_torchruns_workers_keep_their_last_words() -> None:
    made = launched(context("torchrun", "train.py", keep_ranks=True))
    assert made.env["PYTHON_EXEC"].endswith("/entrypoints/last-words-python.sh")
    assert made.env["A4_WORKLOAD_PYTHON"] == "python3"
    assert made.env["A4_LAST_WORDS"] == "/run/a4-agent/runs/x/ranks-output"
    users = launched(context("torchrun", "train.py", keep_ranks=True, environ={"PYTHON_EXEC": "/my/python"}))
    assert users.env["A4_WORKLOAD_PYTHON"] == "/my/python"
    assert "PYTHON_EXEC" not in launched(context("torchrun", "train.py")).env


def test_a_python_without_torch() -> None:
    output = "Error while finding module specification for 'torch.distributed.run' (ModuleNotFoundError: …)"
    outcome = Outcome(0, statuses={1: 1}, first=1, failures={1: FailedPart(output)})
    end = judged(context("torchrun", "train.py"), outcome).end
    assert (end.code, end.origin, end.where) == (66, "agent", WHERE)


LAST_LINES = "[rank4]: no space left\n[rank5]: Connection closed by peer\n" + summary(entry(0, 4, -9))


def test_a_rank_of_torchrun_without_an_error_file_is_told_with_its_last_lines() -> None:
    outcome = Outcome(0, statuses={0: -15, 1: 1}, first=1, failures={1: FailedPart(LAST_LINES)})
    end = judged(context("torchrun", "train.py"), outcome).end
    assert (end.code, end.what, end.where) == (1, "rank 4 was killed by SIGKILL", WHERE)
    assert end.why.splitlines()[:2] == ["last lines of its output:", "  [rank4]: no space left"]
    assert "rank5" not in end.why


# Without a rank, which somebody starts in a terminal


@pytest.mark.parametrize(
    ("name", "wish", "have"),
    [
        ("torchrun", {"without": 6}, "ranks 0 to 5"),
        ("torchrun", {"without": 3, "per_node": 1}, "ranks 0 to 2"),
        ("mpirun", {"without": 6}, "ranks 0 to 5"),
        ("mpirun", {"without": 1, "ranks": 1}, "rank 0 alone"),
    ],
)
def test_a_run_without_a_rank_that_it_has_not(name: str, wish: dict[str, int], have: str) -> None:
    with pytest.raises(UsageError, match=f"--without {wish['without']}: this run has {have}"):
        find_workload(name).check(context(name, "a.out", wish=wish))
    find_workload(name).check(context(name, "a.out", wish={**wish, "without": 0}))


@pytest.mark.parametrize("args", [("--run-path", "train.py"), ("--of-a-later-release", "train.py")])
def test_a_rank_whose_command_is_not_known_cannot_be_held(args: tuple[str, ...]) -> None:
    find_workload("torchrun").check(context("torchrun", *args))
    with pytest.raises(UsageError, match="with --without, torchrun takes a script"):
        find_workload("torchrun").check(context("torchrun", *args, wish={"without": 1}))


def test_only_the_pod_of_the_rank_holds_one() -> None:
    """Rank 3 is the second of pod 0, which has the second place in the plan."""
    start = "/run/a4-agent/runs/x/start-rank-3"
    for index in (2, 0, 1):
        made = launched(context("torchrun", "train.py", "x", index=index, wish={"without": 3}))
        assert made.env == launched(context("torchrun", "train.py", "x", index=index)).env
        assert (start in made.argv) == (index == 0)
    held = launched(context("torchrun", "train.py", "x", index=0, wish={"without": 3}))
    assert list(held.argv[-6:]) == [start, "600", "python3", "-u", "train.py", "x"]
    users = context("torchrun", "train.py", index=0, wish={"without": 3}, environ={"PYTHON_EXEC": "/my/python"})
    assert list(launched(users).argv[-3:]) == ["/my/python", "-u", "train.py"]
    ranks = launched(context("mpirun", "./a.out", "x", wish={"without": 3}))
    assert list(ranks.argv[-4:]) == [start, "600", "./a.out", "x"]
    assert ranks.env == launched(context("mpirun", "./a.out", "x")).env


@pytest.mark.parametrize(
    ("environ", "shell"),
    [
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": "job-0-0-x7k2p"},
            "kubectl exec -it job-0-0-x7k2p -- bash",
        ),
        ({"JOB_ID": "local"}, "a4-agent local exec 0 -- bash"),
        ({"JOB_ID": "other"}, "a4-agent local exec 0 --name other -- bash"),
    ],
)
def test_who_starts_a_rank_is_told_where(environ: dict[str, str], shell: str) -> None:
    said = invitation(context("torchrun", "train.py", index=0, wish={"without": 3}, environ=environ))
    assert "rank 3 waits for you to start it on pod 0, job-workload-0-0-x7k2p, node node-0\n" in said
    assert f" {shell}\n" in said and " /run/a4-agent/runs/x/start-rank-3\n" in said


@pytest.mark.parametrize("name", ["torchrun", "mpirun"])
def test_nobody_starts_the_rank(name: str) -> None:
    some = context(name, "a.out", wish={"without": 3})
    outcome = Outcome(1, statuses={0: 1}, ranks={3: RankEnd(69, 1.0, unclaimed=True)}, first=0)
    end = judged(some, outcome).end
    told = (69, "nobody has started rank 3 within 600 s", "pod 0, job-workload-0-0-x7k2p, node node-0")
    assert (end.code, end.what, end.where) == told
    assert end.why.endswith(" /run/a4-agent/runs/x/start-rank-3")
    assert judged(some, replace(outcome, cause=TIMED_OUT, first=None)).end.code == 124
    assert judged(some, replace(outcome, ranks={3: RankEnd(69, 1.0)})).end.what.endswith(
        ("rank 3 failed", "torchrun failed")
    )


QUIT = "Traceback (most recent call last):\n    if self.quitting: raise BdbQuit\nbdb.BdbQuit\n"


@pytest.mark.parametrize(("without", "said"), [(None, "run again with --without 3"), (3, "is in the terminal")])
def test_a_debugger_without_a_terminal(without: int | None, said: str) -> None:
    marked = "".join(f"[rank3]: {line}\n" for line in QUIT.splitlines())
    outcome = Outcome(0, statuses={0: 1}, first=0, failures={0: FailedPart(marked + summary(entry(0, 3, 1)))})
    assert said in judged(context("torchrun", "train.py", wish={"without": without}), outcome).end.why.splitlines()[0]
    tagged = "".join(f"[1,3]<stderr>: {line}\n" for line in QUIT.splitlines())
    outcome = Outcome(1, output=tagged, ranks={**WELL, 3: RankEnd(1, 1.0)})
    assert said in judged(context("mpirun", "a.out", wish={"without": without}), outcome).end.why.splitlines()[0]


# On every pod


LOST_1 = {1: "not heard for 30 s"}


@pytest.mark.parametrize("name", ["script", "torchrun", "exec"])
def test_ends_of_all_pods(name: str) -> None:
    some, well = context(name, "hostname"), {0: 0, 1: 0, 2: 0}
    good, late, lost = (
        judged(some, outcome).end
        for outcome in (
            Outcome(0, statuses=well),
            Outcome(0, statuses=well, cause=TIMED_OUT),
            Outcome(0, statuses={0: 0, 2: 0}, lost=LOST_1),
        )
    )
    assert (good.code, good.origin) == (0, "workload") and late == TIMED_OUT
    assert lost.code == 75 and f"{WHERE}: not heard for 30 s" in lost.why


@pytest.mark.parametrize("name", ["script", "torchrun"])
def test_the_pod_that_failed_first_is_the_cause_and_not_those_that_were_ended_for_it(name: str) -> None:
    outcome = Outcome(0, statuses={0: -15, 1: -11, 2: 0}, first=1, lost={0: "not heard for 30 s"})
    end = judged(context(name, "train.py"), outcome).end
    assert (end.code, end.origin, end.where) == (139, "workload", WHERE)


@pytest.mark.parametrize("name", RUNNABLE)
def test_what_torchrun_starts_may_fail_only_because_it_missed_a_peer(name: str) -> None:
    by_torchrun = name in ("torchrun", "ddp", "collectives") or name.startswith("pai-megatron")
    missed, own = (FailedPart(f"RuntimeError: {said}\n") for said in ("Connection closed by peer", "no data"))
    assert [find_workload(name).is_victim(1, left) for left in (missed, own)] == [by_torchrun, False]


def test_a_script_gets_its_place_in_the_plan() -> None:
    made = launched(context("script", "argument", index=0))
    assert list(made.argv) == ["bash", "/workload/task/task-script.sh", "argument"]
    assert made.env["NODE_RANK"] == made.env["A4_NODE_RANK"] == "1"
    assert made.env["MASTER_ADDR"] == "job-workload-0-2.job"
    assert made.env["A4_HOSTFILE"] == "/run/a4-agent/runs/x/hostfile"
    assert made.env["A4_HOSTFILE_1PERNODE"] == "/run/a4-agent/runs/x/hostfile-1pernode"


@pytest.mark.parametrize("name", ["script", "exec", "torchrun", "mpirun"])
@pytest.mark.parametrize(
    ("wish", "pods", "nodes", "world"),
    [({"nodes": 2}, "2,0", "2", "4"), ({"exclude": ("2",)}, "0,1", "2", "4"), ({"hosts": ("1",)}, "1", "1", "2")],
)
def test_the_sizes_of_a_run_are_its_own(name: str, wish: dict[str, Any], pods: str, nodes: str, world: str) -> None:
    """Not those of the job, which the pod has; but what the shell says stays, and what the pod has not is not made."""
    taking_part = subset(Plan("epoch", 2, PEERS), **wish, lost={})
    of_pod = {"NNODES": "3", "WORLD_SIZE": "6"}
    pod: dict[str, Any] = {"index": taking_part.peers[0].index, "plan": taking_part, "job_pods": 3}
    env = launched(context(name, "true", wish=wish, environ=of_pod, **pod)).env
    assert (env["A4_RUN_PODS"], env["NNODES"], env["WORLD_SIZE"]) == (pods, nodes, world)
    pod_of_all = {"JOB_COMPLETION_INDEX": "2", "HOSTNAME_PREFIX": "job-workload-", "DOMAIN_NAME": "job"}
    settings, _ = read_settings({**pod_of_all, "A4_EPOCH": "e", "GPUS_PER_NODE": "2", **env}, Found())
    assert (settings.nnodes, settings.index) == (3, 2), "commands in the run know the job"
    own = launched(context(name, "true", wish={**wish, "env": {"WORLD_SIZE": "9"}}, environ={"WORLD_SIZE": "9"}, **pod))
    assert own.env["WORLD_SIZE"] == "9" and "NNODES" not in own.env


def test_nothing_is_started_for_none() -> None:
    some = context("none")
    assert find_workload("none").launch(some) is None
    assert judged(some, Outcome(0)).end.what == "the cluster of 3 pods is formed"
    assert judged(replace(some, plan=Plan("e", 2, PEERS[:1])), Outcome(0)).end.what.endswith("1 pod is formed")


def test_exec_is_the_command_as_it_is() -> None:
    made = launched(context("exec", "df", "-h", index=1, wish={"cwd": "/mnt"}))
    assert (list(made.argv), made.cwd, made.env["A4_NODE_RANK"]) == (["df", "-h"], "/mnt", "2")


@pytest.mark.parametrize(
    ("statuses", "lost", "code", "what"),
    [
        ({0: 0, 1: 7, 2: 0}, {}, 7, "df ended with exit code 7 on pod 1"),
        ({0: 7, 1: 7, 2: 0}, {}, 7, "df ended with exit code 7 on pods 0-1"),
        ({0: 1, 1: -9, 2: 1}, {}, 137, "df ended with exit code 1 on pods 0,2; 137 on pod 1"),
        ({0: 7, 2: 0}, LOST_1, 75, f"{WHERE}: not heard for 30 s\ndf ended with exit code 7 on pod 0"),
    ],
)
def test_the_code_of_exec(statuses: dict[int, int], lost: dict[int, str], code: int, what: str) -> None:
    end = judged(context("exec", "df"), Outcome(0, statuses=statuses, lost=lost)).end
    assert end.code == code and what in str(end), str(end)
    assert (end.origin == "workload") == (code != 75)


# deepep

EIGHT = Plan("epoch", 8, PEERS)
CASE = "[testing] Running with FP8, with top-k (async=True, previous=False) ... passed\n"
BESTS = "\n".join(measured(RELEASES[NEWEST]))
TESTED = {"about": "script /d/tests/test_internode.py\nversion 1.2.1\n", "output": CASE * 32 + BESTS, "errors": ""}
THREE = dict.fromkeys(range(3), RankEnd(0))
ASSERTION = "Traceback …\nAssertionError: 511 != 512\n"


def deepep(*args: str, **changes: Any) -> RunContext:
    return context("deepep", *args, **{"plan": EIGHT, **changes})


def noted(**odd: Mapping[str, str] | None) -> dict[int, Mapping[str, Any]]:
    """What the three pods say; `pod1` and so on for one that printed something else, or nothing."""
    files = {index: odd.get(f"pod{index}", {}) for index in (2, 0, 1)}
    some = deepep()
    inspect = find_workload("deepep").inspect
    return {
        i: wire.to_json(inspect(some, {**TESTED, **changed})) for i, changed in files.items() if changed is not None
    }


def test_deepep_has_one_rank_per_pod() -> None:
    made = launched(deepep("--num-tokens", "2048", "--min-percent", "80"))
    program = ["sh", "/run/a4-agent/rank.sh", "sh"]
    assert list(made.argv[-6:-3]) == program and made.argv[-3].endswith("/entrypoints/deepep-node.sh")
    assert list(made.argv[-2:]) == ["--num-tokens", "2048"]
    assert options(made, "-np") == ["3"]
    assert options(made, "--hostfile") == ["/run/a4-agent/runs/x/hostfile-1pernode"]
    wanted = {"WORLD_SIZE": "3", "MASTER_ADDR": "job-workload-0-2.job", "MASTER_PORT": "29500"}
    assert wanted.items() <= made.env.items() and made.port == 29500
    assert made.env["A4_DEEPEP_DIR"] == "/opt/deepep/DeepEP"
    assert {*wanted, "A4_DEEPEP_DIR", "A4_NOTES_DIR", "A4_RANKS_DIR"} <= set(options(made, "-x"))
    assert find_workload("deepep").launch(deepep(index=0)) is None
    assert "A4_DEEPEP_TEST" not in made.env
    elastic = launched(deepep("--test", "elastic", "--num-topk", "8"))
    assert elastic.env["A4_DEEPEP_TEST"] == "elastic" and list(elastic.argv[-2:]) == ["--num-topk", "8"]
    assert "A4_DEEPEP_TEST" in options(elastic, "-x")


def test_deepeps_port_is_not_torchruns_but_that_of_the_shell() -> None:
    assert launched(deepep(environ={"MASTER_PORT": "6002"})).port == 29500
    assert launched(deepep(environ={"MASTER_PORT": "7000"}, wish={"env": {"MASTER_PORT": "7000"}})).port == 7000


def test_a_library_is_preloaded_into_the_test_alone() -> None:
    made = launched(deepep(environ={"LD_PRELOAD": "/opt/libnvshmem_host.so.3"}))
    assert "LD_PRELOAD" not in made.env and made.removed == ("LD_PRELOAD",)
    assert made.env["A4_DEEPEP_PRELOAD"] == "/opt/libnvshmem_host.so.3"
    assert "A4_DEEPEP_PRELOAD" in options(made, "-x") and "LD_PRELOAD" not in options(made, "-x")


@pytest.mark.parametrize("index", [2, 0])
@pytest.mark.parametrize(
    ("plan", "args", "code", "what"),
    [
        (Plan("epoch", 8, (PEERS[0],)), [], 78, "what goes between pods: it needs 2 or more, and this run has 1"),
        (Plan("epoch", 4, PEERS), [], 78, "needs 8 GPUs in every pod; GPUS_PER_NODE is 4"),
        (EIGHT, ["--min-rdma", "fast"], 2, "deepep: argument --min-rdma: 'fast' is not a number"),
        (EIGHT, ["--test", "ep"], 2, "deepep: argument --test: invalid choice: 'ep'"),
    ],
)
def test_what_deepep_cannot_run_on(plan: Plan, args: list[str], code: int, what: str, index: int) -> None:
    some = deepep(*args, plan=plan, index=index)
    with pytest.raises(AgentError, match=what):
        find_workload("deepep").launch(some)
    assert judged(some, Outcome(0)).end.code == code


def test_the_endless_test_is_warned_of() -> None:
    words = ("--pressure-test-mode 1", "--pressure-test-mode=2", "--do-pressure-test", "--pressure-test-mode 0", "")
    assert [len(launched(deepep(*args.split())).notes) for args in words] == [1, 1, 1, 0, 0]


def ended(
    status: int = 0, ranks: Mapping[int, RankEnd] = THREE, cause: JobEnd | None = None, **odd: Mapping[str, str] | None
) -> Outcome:
    return Outcome(status, ranks=ranks, notes=noted(**odd), cause=cause)


FELL = {**THREE, 2: RankEnd(1, 1.0)}
CUT = {"output": CASE.replace(" passed", ""), "errors": ASSERTION}


@pytest.mark.parametrize(
    ("outcome", "code", "origin", "text"),
    [
        (ended(), 0, "workload", "32 of 32 cases passed on each of 3 nodes"),
        (replace(ended(-15), stuck=True), 0, "workload", "DeepEP is good"),
        # Neither mpirun's status nor the ranks' prove anything.
        (ended(ranks={}), 65, "agent", "ranks are missing"),
        (Outcome(0, ranks=THREE), 65, "workload", "pod 0 has left no output"),
        (ended(pod1=None), 65, "workload", "pod 1 has left no output"),
        (ended(pod1={"output": CASE * 31 + BESTS}), 65, "workload", "pod 1: 31 of 32 cases passed"),
        (ended(pod0={"output": TESTED["output"].replace("75.00", "6.50")}), 65, "workload", "DEVICE_TO_HCA_MAPPING"),
        # Ends of ranks, and what is known besides.
        (ended(1, FELL, pod1={"errors": "x\nRuntimeError: CUDA\n"}), 1, "workload", "pod 1: RuntimeError: CUDA"),
        (ended(1, FELL, pod1=CUT), 65, "workload", "a check failed in case 1 (FP8, with top-k (async=True, previous="),
        (ended(1, FELL, pod1=CUT), 65, "workload", "previous=False)) (pod 1, job-workload-0-1-x7k2p, "),
        (
            ended(66, {**THREE, 2: RankEnd(66, 1.0)}, pod1={"about": "missing no script in /d\n"}),
            66,
            "agent",
            "no script in /d (pod 1, ",
        ),
        (ended(cause=TIMED_OUT, pod1=None), 124, "agent", "pod 1 has left no output"),
        (replace(ended(ranks={}), lost={0: "not heard for 30 s"}), 75, "agent", "not heard for 30 s"),
        (ended(205, {**THREE, 1: RankEnd(None)}), 75, "agent", "daemon was lost"),
    ],
)
def test_ends_of_deepep(outcome: Outcome, code: int, origin: str, text: str) -> None:
    end = judged(deepep(), outcome).end
    assert (end.code, end.origin) == (code, origin), end
    assert text in str(end)


def test_what_deepep_leaves() -> None:
    judgement = judged(deepep(), ended())
    findings = judgement.measurements
    assert findings.versions == {"Open MPI": "4.1.4", "DeepEP": "1.2.1"}
    assert findings.gate is not None and findings.gate["status"] == "not judged"
    assert [row[:3] for row in findings.tables[0].rows] == [(2, 32, 70.5), (0, 32, 70.5), (1, 32, 70.5)]
    assert "speed not judged: there is no telling which GPUs these are" in judgement.text
    assert "  75.00 / 245.00" in judgement.text
    bad = judged(deepep(), ended(pod1={"output": CASE * 31}))
    assert bad.measurements.gate is None and len(bad.measurements.reasons) == 2
    known = {"about": f"{TESTED['about']}nvshmem 3.7.2\nwarning this pair hangs\n"}
    warned = judged(deepep(), ended(pod0=known, pod1=known))
    assert (warned.end.code, warned.measurements.warnings) == (0, ["pods 0-1: this pair hangs"])
    assert "  pods 0-1: this pair hangs\n" in warned.text and warned.measurements.versions["NVSHMEM"] == "3.7.2"


@pytest.mark.parametrize(
    ("program", "before", "after"),
    [
        ("/usr/bin/mpirun", "/opt/nccl/lib", "/opt/nccl/lib"),
        ("/opt/hpcx/ompi/bin/mpirun", "/opt/nccl/lib", "/opt/hpcx/ompi/lib:/opt/nccl/lib"),
        ("/opt/hpcx/ompi/bin/mpirun", "", "/opt/hpcx/ompi/lib"),
    ],
)
def test_ranks_of_all_pods_find_the_libraries_of_their_mpirun_first(program: str, before: str, after: str) -> None:
    environ = {"PATH": "/bin", **({"LD_LIBRARY_PATH": before} if before else {})}
    made = launched(context("mpirun", "./a.out", environ=environ, mpi=Mpi(program, FIVE)))
    assert made.env["LD_LIBRARY_PATH"] == after and "LD_LIBRARY_PATH" in options(made, "-x")


@pytest.mark.parametrize(
    ("name", "word", "what"),
    [
        ("none", "--foo", "none takes no arguments: --foo"),
        ("pai-megatron-qwen3", "--tp", "pai-megatron-qwen3 takes no arguments"),
        *((name, "--help", "lists its options") for name in ("connectivity", "ddp", "collectives", "nccl", "deepep")),
        *(
            (name, "--stepps", f"{name}: unrecognized arguments: --stepps")
            for name in ("connectivity", "ddp", "collectives")
        ),
        ("connectivity", "--sizes=8,0", "--sizes: '8,0' is not a list of sizes in bytes"),
        ("nccl", "all_gather", "nccl: unexpected argument 'all_gather'"),
        ("nccl", "-g4", "a process has 1 GPU or all 2 of its pod, not 4"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(name: str, word: str, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        find_workload(name).check(context(name, word))


def test_a_run_needs_no_arguments_and_a_script_has_options_of_its_own() -> None:
    for name in RUNNABLE:
        find_workload(name).check(context(name))
    find_workload("script").check(context("script", "--help", "--", "-x"))


def test_a_collective_that_is_left_out_is_a_warning_in_result_json() -> None:
    left_out = {"step": "left-out", "collective": "alltoall", "why": "gloo has none"}
    record = text([*common("collectives"), left_out, end()])
    found = judged(context("collectives"), Outcome(0, record=record, tokens=TOKENS))
    assert found.measurements.warnings == ["alltoall is left out: gloo has none"]
