"""Runs that people submit to a sleeping cluster from a shell in one of its pods."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import END_SECONDS, RUN_DIR, Start, Trial, all_codes
from tests.cluster.work import (
    AGENT,
    GATE,
    SHELL,
    agent,
    asleep,
    following,
    hostnames,
    marked,
    open_gate,
    order,
    read_until,
    sleeping,
    state,
    until_phase,
)

ALL = range(3)
GONE = 128 + signal.SIGKILL
"""The code of a command whose own pod has ended before it could."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "task-script.sh"


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    """Three pods; nobody is lost because an agent stands still for a while."""
    with asleep(len(ALL), env={"A4_LEASE_SECONDS": "600"}) as trial:
        assert order(trial) == [0, 2, 1]
        yield trial


@pytest.fixture
def gate(trial: Trial) -> Iterator[None]:
    """It is closed until the test opens it, and runs that still wait at it go on when the test is over."""
    for index in ALL:
        trial.cluster.exec(index, ["rm", "-f", "/tmp/go"])
    yield
    open_gate(trial)


def peak_rss(trial: Trial, index: int) -> int:
    """The most memory that a pod's agent ever had, in MiB."""
    pid = trial.cluster.read(index, f"{RUN_DIR}/lock").split()[1]
    status = trial.cluster.exec(index, ["cat", f"/proc/{pid}/status"]).stdout
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


@pytest.mark.faults
def test_much_output_costs_no_memory(start: Start) -> None:
    """200 MB from the pod in which they are read, 50 MB from the coordinator. Ends of lines do not count: on a busy
    machine a line may come in two pieces, so late that each is shown as one."""
    quiet = ("tini", "--", "bash", "-c", 'exec "$@" >/dev/null', "sh", *AGENT, "run", "none")
    trial = sleeping(start, 2, entrypoint=quiet)
    size = "$((JOB_COMPLETION_INDEX ? 200000000 : 50000000))"
    script = f"yes {'x' * 99} | head -c {size}"
    client = " ".join([*AGENT, "run", "script", "--", "bash", "-c", f"'{script}'"])
    count = "tr -d '\\n' | wc -c"
    done = trial.cluster.exec(1, ["bash", "-c", f"set -o pipefail; {client} | {count}"], timeout=END_SECONDS)
    assert (done.returncode, done.stdout.strip()) == (0, "247500000"), done
    assert max(peak_rss(trial, 0), peak_rss(trial, 1)) < 100


def test_exec(trial: Trial, gate: None) -> None:
    """On every pod, beside a run."""
    trial.cluster.write(1, "/tmp/only-here", "#!/bin/sh\necho done")
    trial.cluster.exec(1, ["chmod", "+x", "/tmp/only-here"])
    absent = agent(trial, 2, "exec", "--", "/tmp/only-here")
    assert (absent.returncode, absent.stdout) == (66, "1: done\n"), absent
    why, code = absent.stderr.splitlines()
    assert why == "0,2: /tmp/only-here cannot be started: No such file or directory"
    assert code == "a4-agent: pods 0,2: exit code 66"
    with following(trial, 1, "run", *SHELL, f"echo here; {GATE}") as (run, run_id):
        for _ in ALL:
            read_until(run.stdout, b"here\n")
        look = f"grep -qsz ^A4_RUN={run_id} /proc/[0-9]*/environ && echo beside it"
        shown = agent(trial, 2, "exec", "--", "bash", "-c", look)
        assert (shown.returncode, shown.stdout) == (0, "0-2: beside it\n"), shown
        open_gate(trial)
        assert run.communicate()[0] == ""
        assert run.code == 0


EVERY_BYTE = "".join(f"\\{byte:03o}" for byte in range(256))


def test_output_comes_at_once_and_unchanged(trial: Trial, gate: None) -> None:
    script = f"printf '{EVERY_BYTE}'; {GATE}; printf error >&2; printf '\\0\\377no end'"
    with following(trial, 1, "run", "--hosts", "2", *SHELL, script) as (run, _):
        assert read_until(run.stdout, b"\xff") == bytes(range(256))
        open_gate(trial)
        assert read_until(run.stderr, b"error") == b"error"
        assert read_until(run.stdout, b"end") == b"\x00\xffno end"
        assert run.stdout.read() == b""
        assert run.wait() == 0


def test_ctrl_c(trial: Trial) -> None:
    stubborn = "(setsid sleep 600 &); trap 'echo no' TERM; echo here; while :; do sleep 0.1; done"
    with following(trial, 1, "run", *SHELL, stubborn) as (run, run_id):
        for _ in ALL:
            read_until(run.stdout, b"here\n")
        assert set(marked(trial, *ALL)) == set(ALL)
        run.signal(signal.SIGINT)
        for _ in ALL:
            read_until(run.stdout, b"no\n")
        run.signal(signal.SIGINT)
        assert run.wait() == 130
        assert b"killing the run" in run.stderr.read()
        assert marked(trial, *ALL) == {}
    until_phase(trial, "sleeping", 2)
    ended = state(trial, 2)["runs"][-1]
    assert (ended["id"], ended["code"]) == (run_id, 130)


def test_a_terminal_that_goes_ends_nothing(trial: Trial, gate: None) -> None:
    with following(trial, 1, "run", *SHELL, f"echo before; {GATE}; echo after") as (run, run_id):
        for _ in ALL:
            read_until(run.stdout, b"before\n")
        run.signal(signal.SIGHUP)
        assert run.wait() == 128 + signal.SIGHUP
    with trial.cluster.popen(2, [*AGENT, "logs", run_id]) as logs:
        for _ in ALL:
            read_until(logs.stdout, b"before\n")
        open_gate(trial)
        out, err = logs.communicate()
    assert (logs.code, out) == (0, "after\n" * 3)
    assert f"{run_id} ended with exit code 0" in err
    assert sorted(agent(trial, 0, "logs").stdout.split()) == ["after"] * 3 + ["before"] * 3


def test_status_answers_while_the_coordinator_hangs(trial: Trial, gate: None) -> None:
    with following(trial, 1, "run", *SHELL, GATE) as (run, run_id):
        pid = int(trial.cluster.read(0, f"{RUN_DIR}/lock").split()[1])
        until_phase(trial, "running", *ALL)
        trial.cluster.signal(0, signal.SIGSTOP, pid)
        try:
            for index in (0, 2):
                shown = agent(trial, index, "status")
                assert (shown.returncode, f"run {run_id} by pod 1 (pid " in shown.stdout) == (0, True), shown
                data = state(trial, index)
                assert (data["phase"], data["index"], data["run"]["pods"]) == ("running", index, order(trial))
        finally:
            trial.cluster.signal(0, signal.SIGCONT, pid)
        open_gate(trial)
        assert run.wait() == 0


HOSTILE = "a b'c\"d$(touch /tmp/owned)`x`\\;|&\n\t=é \x01"
PLACE = """
echo "$(hostname) $A4_NODE_RANK $NODE_RANK $MASTER_ADDR:$MASTER_PORT $(tr "\n" " " <$A4_HOSTFILE)"
[ "$HOSTILE" = "$1" ] || exit 9
"""


def test_some_pods_only(trial: Trial) -> None:
    """They get what the plan says, and what has been typed."""
    nodes, names = hostnames(trial, 2, 1), [trial.cluster.spec.pod_name(index) for index in (2, 1)]
    file = "".join(f"{name} slots=1\n" for name in names)
    assert agent(trial, 2, "hostfile", "--exclude", "0").stdout == file
    words = ("run", "--exclude", "0", *SHELL, PLACE, "bash", HOSTILE)
    script = agent(trial, 1, *words, env={"HOSTILE": HOSTILE})
    places = [f"{node} {rank} {rank} {names[0]}:6002 {file}".replace("\n", " ") for rank, node in enumerate(nodes)]
    assert (script.returncode, sorted(script.stdout.splitlines())) == (0, sorted(places)), script
    # mpirun itself is on the first of them, and on no other.
    ranks = agent(trial, 0, "mpirun", "--exclude", "0", "--", "bash", "-c", "echo $(hostname) $(pgrep -cx mpirun)")
    leads = [f"{node} {int(node == nodes[0])}" for node in nodes]
    assert (ranks.returncode, sorted(ranks.stdout.splitlines())) == (0, sorted(leads)), ranks


def test_the_script_of_the_examples(trial: Trial) -> None:
    done = agent(trial, 1, "run", "--label", *SHELL, EXAMPLE.read_text())
    names = [trial.cluster.spec.pod_name(index) for index in order(trial)]
    wanted = [
        f"[{pod}] pod {pod} is node rank {rank} of 3 and meets the others at {names[0]}:6002"
        for rank, pod in enumerate(order(trial))
    ]
    wanted += [f"[0] {line}" for line in ("the pods in order of their places:", *(f"{name} slots=1" for name in names))]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, sorted(wanted)), done


@pytest.mark.faults
def test_a_killed_worker_agent(start: Start) -> None:
    trial = sleeping(start, 3)
    with following(trial, 1, "run", *SHELL, "echo here; sleep 600") as (run, run_id):
        for _ in ALL:
            read_until(run.stdout, b"here\n")
        trial.kill_agent(2)
        assert run.wait() == 75
        said = run.stderr.read().decode()
    assert f"{run_id} ended with exit code 75: a pod was lost during the run (pod 2, " in said
    assert marked(trial, 0, 1) == {}
    until_phase(trial, "sleeping", 0, 1)
    # Pods lost within a moment are told together: their names may come after the end of the run.
    trial.until(1, f"grep -qs '\"lost\": {{' {RUN_DIR}/state.json")
    assert list(state(trial, 1)["lost"]) == ["2"]
    refused = agent(trial, 1, "run", "script", "--", "true")
    assert (refused.returncode, "--exclude 2" in refused.stderr) == (75, True), refused
    assert "pod 2 is needed but lost (pod 2, " in refused.stderr
    without = agent(trial, 1, "run", "--exclude", "2", "script", "--", "hostname")
    assert (without.returncode, sorted(without.stdout.split())) == (0, sorted(hostnames(trial, 0, 1))), without
    assert agent(trial, 1, "logs", run_id, "--pod", "0-1").stdout == "here\n" * 2
    assert agent(trial, 1, "release").returncode in (0, GONE)
    assert trial.codes() == {0: 0, 1: 0, 2: 137}


def test_release_ends_with_the_recorded_code(start: Start) -> None:
    trial = sleeping(start, 2, script='[ $# = 0 ] && exit 7; exec "$@"', arguments=("script",))
    with following(trial, 1, "run", *SHELL, GATE) as (run, run_id):
        refused = agent(trial, 1, "release")
        assert (refused.returncode, f"has been running {run_id} for" in refused.stderr) == (75, True), refused
        open_gate(trial)
        assert run.wait() == 0
    assert agent(trial, 1, "release").returncode in (0, GONE)
    all_codes(trial, 7)


def test_a_pod_alone(start: Start) -> None:
    trial = sleeping(start, 1, gpus_per_pod=2)
    node = trial.cluster.spec.node_name(0)
    for words in (["run", "script", "--"], ["exec", "--"], ["mpirun", "-np", "1", "--"]):
        done = agent(trial, 0, *words, "hostname")
        assert (done.returncode, done.stdout) == (0, f"{node}\n"), done
    with following(trial, 0, "run", *SHELL, "sleep 600") as (run, _):
        assert agent(trial, 0, "release", "--force").returncode in (0, GONE)
        assert run.wait() in (130, GONE)
    all_codes(trial, 0)
