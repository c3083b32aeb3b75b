"""What goes wrong in whole clusters and no other test here brings about: docs/maintainers/faults.md has the list."""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from agent.decide.mpirun import PORTS
from agent.workbench.local.spec import address
from tests.cluster.conftest import END_SECONDS, RUN_DIR, Start, all_codes, ends
from tests.cluster.test_own_programs import with_mpi
from tests.cluster.work import AGENT, GATE, agent, following, marked, open_gate, read_until, sleeping
from tests.workbench.local.helpers import eventually

GOES_ON = "touch /tmp/here; while :; do sleep 1; done"
FAULTS = pytest.mark.faults
STAYS = ("bash", "-c", "echo here; exec sleep 600")
RANKS_LEFT = "pgrep -x sleep"


def test_nothing_is_left_of_an_mpirun_that_is_killed_or_loses_a_daemon(start: Start, ompi5: Path) -> None:
    """mpirun itself leaves ranks behind in both cases, with the memory of their GPUs."""
    trial = sleeping(start, 2, gpus_per_pod=2, **with_mpi("5", ompi5))
    for index, victim, code in ((1, "orted|prted", 75), (0, "mpirun|orterun|prterun", 137)):
        with following(trial, 1, "mpirun", "--", *STAYS) as (run, _):
            for _ in range(4):
                read_until(run.stdout, b"here\n")
            killed = trial.cluster.exec(index, ["pkill", "-KILL", "-x", victim])
            assert killed.returncode == 0, victim
            assert run.wait() == code, run.stderr.read()
        assert marked(trial, 0, 1) == {}, victim
        assert [trial.cluster.exec(pod, ["sh", "-c", RANKS_LEFT]).stdout for pod in (0, 1)] == ["", ""], victim


@FAULTS
def test_a_coordinator_that_is_stopped_for_longer_than_a_lease_is_lost_to_all(start: Start) -> None:
    """When it goes on, it finds that the others have gone, and ends as they did."""
    trial = start(2, script=GOES_ON)
    for index in range(2):
        trial.until(index, "test -e /tmp/here")  # before, it would be lost as a pod that does not get ready
    pid = int(trial.cluster.read(0, f"{RUN_DIR}/lock").split()[1])
    trial.cluster.signal(0, signal.SIGSTOP, pid)
    assert ends(trial.cluster.wait(END_SECONDS, [1])) == {1: 75, 0: None}, trial.log()
    assert "the coordinator has been silent for" in trial.said(1)["what"], trial.log()
    trial.cluster.signal(0, signal.SIGCONT, pid)
    all_codes(trial, 75)
    assert trial.said(0)["origin"] == "agent"


@FAULTS
def test_an_agent_that_is_stopped_has_a_guard_that_ends_its_part_of_a_run_with_lives(start: Start) -> None:
    trial = start(2, script=GOES_ON, env={"A4_LIVES": "1"})
    for index in range(2):
        trial.until(index, "test -e /tmp/here")
    assert marked(trial, 1)
    pid = int(trial.cluster.read(1, f"{RUN_DIR}/lock").split()[1])
    trial.cluster.signal(1, signal.SIGSTOP, pid)
    eventually(lambda: not marked(trial, 1), "the guard kills all that is left of the run")
    assert trial.cluster.exec(1, ["grep", "-c", "^State:.T", f"/proc/{pid}/status"]).stdout == "1\n"
    trial.cluster.signal(1, signal.SIGCONT, pid)
    eventually(lambda: "this pod ends its part of script-" in trial.log(), "its agent says so")


def test_two_coordinators_at_once(start: Start) -> None:
    """Pod 2 takes itself for pod 0, as when a lost node still runs the old one. The run ends; nobody begins another."""
    twin = {"JOB_COMPLETION_INDEX": "0"}
    trial = start(3, script=GOES_ON, env={"NNODES": "2"}, missing=frozenset({2}), pod_env={2: twin})
    trial.until_event(1, "run-started")
    trial.cluster.start_pod(2)
    assert ends(trial.cluster.wait(END_SECONDS, [0, 1])) == {0: 75, 1: 75, 2: None}, trial.log()
    assert "another coordinator" in trial.said(0)["what"] and "another coordinator" in trial.said(1)["what"]
    trial.cluster.signal(2, signal.SIGTERM)
    assert ends(trial.cluster.wait(END_SECONDS)) == {0: 75, 1: 75, 2: 143}, trial.log()
    assert "run-started" not in trial.events(2)


def test_a_pod_of_another_attempt_under_a_name_is_waited_out(start: Start) -> None:
    trial = start(2, pod_env={1: {"A4_RESTART_ATTEMPT": "1"}}, arguments=("none",))
    trial.until(0, f'grep -qs "shows a host key that is not pod 1\'s" {RUN_DIR}/state.json')
    trial.cluster.kill_pod(1)
    trial.cluster.wait(END_SECONDS, [1])
    trial.cluster.start_pod(1, env={"A4_RESTART_ATTEMPT": "0"})
    all_codes(trial, 0)


NEEDS_THE_OTHER = """
[ "$JOB_COMPLETION_INDEX" = 1 ] && { touch /mnt/done; exit 0; }
peer=$(sed -n 2p /tmp/job-worker-hostnames-order.txt)
until test -e /mnt/done && ssh $peer "! pgrep -f '[t]ask-script'"; do sleep 0.1; done
ssh $peer echo still there
"""


def test_a_pod_whose_part_is_done_stays_for_the_others(start: Start) -> None:
    trial = start(2, script=NEEDS_THE_OTHER)
    all_codes(trial, 0)
    assert "still there\n" in trial.cluster.logs(0, "out")


def test_what_listens_is_sshd_and_open_mpi_in_its_range_of_ports(start: Start) -> None:
    trial = sleeping(start, 2, gpus_per_pod=2)
    with following(trial, 1, "run", "connectivity", "--", "--repeats", "100000000") as (run, run_id):
        trial.until(0, f'grep -qs \'"step": "sum"\' {RUN_DIR}/runs/{run_id}/record.jsonl')
        for index in range(2):
            shown = [line.split() for line in trial.cluster.exec(index, ["ss", "-Hltn"]).stdout.splitlines()]
            reached = {line[3] for line in shown if not line[3].startswith("127.")}
            sshd = f"{address(index)}:2222"
            assert sshd in reached and len(reached) > 3, shown
            assert {int(place.rpartition(":")[2]) for place in reached - {sshd}} <= set(PORTS), shown
        run.signal(signal.SIGINT)
        assert run.wait() == 130


IDLERS = f"""
import socket, time
idle, said = [], False
while True:
    one = socket.socket(socket.AF_UNIX)
    one.connect("{RUN_DIR}/agent.sock")
    one.settimeout(0.05)
    try:
        one.recv(1)
    except TimeoutError:
        idle.append(one)
    else:
        one.close()
        if not said: print("here", flush=True)
        said = True
        time.sleep(0.05)
"""
"""Takes every descriptor that commands may have, and each that the agent gives back meanwhile."""


def test_commands_that_use_up_the_agent_s_descriptors_end_nothing(start: Start) -> None:
    program = ("sh", "-c", 'ulimit -n 128; exec "$@"', "sh", "tini", "--", *AGENT, "run", "none")
    trial = sleeping(start, 1, entrypoint=program)
    with trial.cluster.popen(0, [sys.executable, "-c", IDLERS]) as idlers:
        read_until(idlers.stdout, b"here\n")

        def refused() -> bool:
            done = agent(trial, 0, "exec", "--", "true")
            assert done.returncode == 0 or (done.returncode, "too many commands" in done.stderr) == (71, True), done
            return done.returncode == 71

        eventually(refused)
        idlers.signal(signal.SIGTERM)
    eventually(lambda: agent(trial, 0, "exec", "--", "true").returncode == 0)
    trial.cluster.terminate()
    all_codes(trial, 143)


MEMORY = Path("/sys/fs/cgroup/memory")
IN_LITTLE_MEMORY = """
if [ "$JOB_COMPLETION_INDEX" = 1 ]; then
    mkdir /memory && mount -t cgroup -o memory memory /memory && cd "/memory/$LITTLE" || exit 3
    echo 300M >memory.limit_in_bytes && echo $$ >cgroup.procs && cd / || exit 3
fi
exec "$@"
"""
EATS = """
import os, sys, time
eaten = [bytes(os.urandom(1 << 20)) for n in range(600) if os.environ["OMPI_COMM_WORLD_RANK"] == "1"]
sys.exit(9) if eaten else time.sleep(600)
"""


@pytest.mark.skipif(not MEMORY.is_dir(), reason="a local pod gets a memory limit by version 1 of cgroups alone")
def test_a_rank_that_the_kernel_kills_because_memory_ran_out(start: Start) -> None:
    little = Path(tempfile.mkdtemp(prefix="a4-test-", dir=MEMORY))
    try:
        program = ("sh", "-c", IN_LITTLE_MEMORY, "sh", "tini", "--", *AGENT, "run", "none")
        trial = sleeping(start, 2, entrypoint=program, env={"LITTLE": little.name}, files={"/eats.py": EATS.encode()})
        done = agent(trial, 0, "mpirun", "--", sys.executable, "/eats.py")
        assert done.returncode == 137 and "memory ran out in pod 1, " in done.stderr, done
        trial.cluster.close()
        eventually(lambda: not (little / "cgroup.procs").read_text())
    finally:
        little.rmdir()


CLOCKS = {0: "0", 1: "3600"}
"""Seconds by which the clocks of each pod are ahead: of the day, and since the boot of its node."""
AHEAD = """
import os, runpy, time
right, began = time.time, time.time()
def of_the_day():
    "It steps back by a day, for longer than a test may take, and then runs a hundred times as fast as it should."
    wrong = 100 * (right() - began) - 24 * 3600 if os.path.exists("/tmp/step") else 0
    return right() + float(os.environ["AHEAD"]) + wrong
time.time = of_the_day
runpy.run_module("agent", run_name="__main__", alter_sys=True)
"""
IN_ITS_TIME = 'exec unshare --time --monotonic "$AHEAD" --boottime "$AHEAD" --fork --kill-child "$@"'


def test_clocks_that_differ_and_step_change_nothing(start: Start) -> None:
    program = ("tini", "--", "sh", "-c", IN_ITS_TIME, "sh", sys.executable, "-c", AHEAD, "run", "script")
    ahead = {index: {"AHEAD": seconds} for index, seconds in CLOCKS.items()}
    trial = start(2, entrypoint=program, script=GATE, pod_env=ahead)
    for index in range(2):
        trial.until_event(index, "run-started")
        trial.cluster.exec(index, ["touch", "/tmp/step"])
    for _ in range(2):  # each hears and judges the others meanwhile
        for index in range(2):
            trial.cluster.exec(index, ["touch", "/tmp/now"])
        for index in range(2):
            trial.until(index, f"test {RUN_DIR}/alive -nt /tmp/now")
    open_gate(trial)
    all_codes(trial, 0)
    told = [json.loads(line) for line in trial.cluster.read(1, f"{RUN_DIR}/events.jsonl").splitlines()]
    assert told[-1]["time"] < told[0]["time"], "its clock did step"


MOMENTS = 12
FEW = 4


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=FAULTS if seed < FEW else pytest.mark.long) for seed in range(MOMENTS)]
)
def test_a_job_that_is_told_to_end_at_any_moment(start: Start, seed: int) -> None:
    draw = random.Random(seed)
    seconds, told = draw.uniform(0, 4), draw.choice([(0,), (2,), (0, 1, 2)])
    trial = start(3, arguments=("connectivity", "--", "--repeats", "100000000"), env={"A4_PEER_TIMEOUT_SECONDS": "30"})
    with pytest.raises(TimeoutError):
        trial.cluster.wait(seconds)
    for index in told:
        trial.cluster.signal(index, signal.SIGTERM)
    codes = trial.codes()
    assert {codes[index] for index in told} == {143}, trial.log()
    # 69: it was not met before.
    assert set(codes.values()) <= ({143, 69} if 0 in told else {143, 75, 69}), trial.log()
