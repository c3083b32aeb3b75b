"""Runs that people submit to a sleeping cluster from a shell in one of its pods."""

from __future__ import annotations

import json
import re
import signal

import pytest

from tests.cluster.conftest import END_SECONDS, RUN_DIR, Start, Trial, all_codes
from tests.cluster.work import (
    AGENT,
    GATE,
    SHELL,
    agent,
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

ALL = range(4)
GONE = 128 + signal.SIGKILL
"""The code of a command whose own pod has ended before it could."""


def peak_rss(trial: Trial, index: int) -> int:
    """The most memory that a pod's agent ever had, in MiB."""
    pid = trial.cluster.read(index, f"{RUN_DIR}/lock").split()[1]
    status = trial.cluster.exec(index, ["cat", f"/proc/{pid}/status"]).stdout
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


@pytest.mark.faults
def test_a_gigabyte(start: Start) -> None:
    """900 MB from the pod in which they are read, 100 MB from the coordinator."""
    quiet = ("tini", "--", "bash", "-c", 'exec "$@" >/dev/null', "sh", *AGENT, "run", "none")
    trial = sleeping(start, 2, entrypoint=quiet)
    size = "$((JOB_COMPLETION_INDEX ? 900000000 : 100000000))"
    script = f"yes {'x' * 99} | head -c {size}"
    client = " ".join([*AGENT, "run", "script", "--", "bash", "-c", f"'{script}'"])
    done = trial.cluster.exec(1, ["bash", "-c", f"set -o pipefail; {client} | wc -c"], timeout=END_SECONDS)
    assert (done.returncode, done.stdout.strip()) == (0, "1000000000"), done
    assert max(peak_rss(trial, 0), peak_rss(trial, 1)) < 100


def test_exec(start: Start) -> None:
    trial = sleeping(start)
    nodes = "".join(f"{index}: {node}\n" for index, node in enumerate(hostnames(trial, *ALL)))
    for index in (0, 2):
        shown = agent(trial, index, "exec", "--", "hostname")
        assert (shown.returncode, shown.stdout, shown.stderr) == (0, nodes, "")
    same = agent(
        trial, 1, "exec", "--", "bash", "-c", "echo out; echo err >&2; test $JOB_COMPLETION_INDEX != 2 || exit 5"
    )
    assert (same.returncode, same.stdout) == (5, "0-3: out\n")
    assert same.stderr.splitlines() == ["0-3: err", "a4-agent: pod 2: exit code 5"]
    folded = agent(trial, 0, "exec", "--", "bash", "-c", "echo 1; echo $((JOB_COMPLETION_INDEX / 3))")
    assert folded.stdout == "== pods 0-2 ==\n1\n0\n== pod 3 ==\n1\n1\n"
    trial.cluster.write(1, "/tmp/only-here", "#!/bin/sh\necho done")
    trial.cluster.exec(1, ["chmod", "+x", "/tmp/only-here"])
    absent = agent(trial, 3, "exec", "--", "/tmp/only-here")
    assert (absent.returncode, absent.stdout) == (66, "1: done\n"), absent
    why, code = absent.stderr.splitlines()
    assert why == "0,2-3: /tmp/only-here cannot be started: No such file or directory"
    assert code == "a4-agent: pods 0,2-3: exit code 66"
    data = json.loads(agent(trial, 3, "exec", "--json", "--hosts", "1,3", "--", "pwd").stdout)
    assert [(item["pod"], item["code"], item["stdout"]) for item in data] == [(1, 0, "/\n"), (3, 0, "/\n")]
    # Beside a run.
    with following(trial, 1, "run", *SHELL, f"echo here; {GATE}") as (run, run_id):
        for _ in ALL:
            read_until(run.stdout, b"here\n")
        look = f"grep -qsz ^A4_RUN={run_id} /proc/[0-9]*/environ && echo beside it"
        shown = agent(trial, 2, "exec", "--", "bash", "-c", look)
        assert (shown.returncode, shown.stdout) == (0, "0-3: beside it\n"), shown
        assert state(trial, 3)["run"]["id"] == run_id
        open_gate(trial)
        assert run.communicate()[0] == ""
        assert run.code == 0
    assert "run" not in state(trial, 0)


def test_one_run_after_another(start: Start) -> None:
    trial = sleeping(start, gpus_per_pod=1)
    wanted = sorted(hostnames(trial, *ALL))
    for index in (0, 2):
        for _ in range(3):
            script = agent(trial, index, "run", "script", "--", "hostname")
            assert (script.returncode, sorted(script.stdout.splitlines())) == (0, wanted), script
    ranks = agent(trial, 2, "run", "connectivity")
    assert (ranks.returncode, "connectivity of 4 ranks on 4 pods" in ranks.stdout) == (0, True), ranks
    failed = agent(trial, 3, "run", *SHELL, "exit $((JOB_COMPLETION_INDEX == 1 ? 9 : 0))")
    assert failed.returncode == 9
    assert "pod 1, " in failed.stderr
    until_phase(trial, "sleeping", 1)
    runs = state(trial, 1)["runs"]
    assert [run["workload"] for run in runs] == ["none", *["script"] * 6, "connectivity", "script"]
    assert [run["code"] for run in runs] == [0] * 8 + [9]
    for run in runs:
        result = json.loads(trial.cluster.read(0, f"{run['results']}/result.json"))
        assert (result["run"], result["verdict"]["code"]) == (run["id"], run["code"])
    trial.cluster.terminate()
    all_codes(trial, 143)


EVERY_BYTE = "".join(f"\\{byte:03o}" for byte in range(256))


def test_output_comes_at_once_and_unchanged(start: Start) -> None:
    trial = sleeping(start)
    script = f"printf '{EVERY_BYTE}'; {GATE}; printf error >&2; printf '\\0\\377no end'"
    with following(trial, 1, "run", "--hosts", "3", *SHELL, script) as (run, _):
        assert read_until(run.stdout, b"\xff") == bytes(range(256))
        open_gate(trial)
        assert read_until(run.stderr, b"error") == b"error"
        assert read_until(run.stdout, b"end") == b"\x00\xffno end"
        assert run.stdout.read() == b""
        assert run.wait() == 0
    many = agent(trial, 2, "run", "--label", *SHELL, "echo out; echo err >&2; printf end")
    assert sorted(many.stdout.splitlines()) == sorted(f"[{index}] {word}" for index in ALL for word in ("out", "end"))
    assert sorted(many.stderr.splitlines()[1:-1]) == [f"[{index}] err" for index in ALL]


def test_ctrl_c(start: Start) -> None:
    trial = sleeping(start)
    with following(trial, 2, "run", *SHELL, "(setsid sleep 600 &); echo here; sleep 600") as (run, run_id):
        for _ in ALL:
            read_until(run.stdout, b"here\n")
        assert set(marked(trial, *ALL)) == set(ALL)
        run.signal(signal.SIGINT)
        assert run.wait() == 130
        assert marked(trial, *ALL) == {}
    until_phase(trial, "sleeping", 3)
    ended = state(trial, 3)["runs"][-1]
    assert (ended["id"], ended["code"]) == (run_id, 130)
    stubborn = "trap 'echo no' TERM; echo here; while :; do sleep 0.1; done"
    with following(trial, 0, "run", *SHELL, stubborn) as (run, _):
        for _ in ALL:
            read_until(run.stdout, b"here\n")
        run.signal(signal.SIGINT)
        for _ in ALL:
            read_until(run.stdout, b"no\n")
        run.signal(signal.SIGINT)
        assert run.wait() == 130
        assert b"hurrying" in run.stderr.read()
        assert marked(trial, *ALL) == {}
    with trial.cluster.popen(1, ["env", "-C", "/", *AGENT, "exec", "--", "sleep", "600"]) as command:
        for index in ALL:
            trial.until(index, "pgrep -x sleep >/dev/null")
        command.signal(signal.SIGINT)
        assert command.wait() == 130
        assert marked(trial, *ALL) == {}


def test_a_terminal_that_goes_ends_nothing(start: Start) -> None:
    trial = sleeping(start)
    for number in (signal.SIGKILL, signal.SIGHUP):
        script = f"echo before; {GATE}; rm /tmp/go; echo after"
        with following(trial, 2, "run", *SHELL, script) as (run, run_id):
            for _ in ALL:
                read_until(run.stdout, b"before\n")
            run.signal(number)
            assert run.wait() == 128 + number
        with trial.cluster.popen(1, [*AGENT, "logs", run_id]) as logs:
            for _ in ALL:
                read_until(logs.stdout, b"before\n")
            open_gate(trial)
            out, err = logs.communicate()
        assert (logs.code, out) == (0, "after\n" * 4)
        assert f"{run_id} ended with exit code 0" in err
        assert sorted(agent(trial, 3, "logs").stdout.split()) == ["after"] * 4 + ["before"] * 4
        until_phase(trial, "sleeping", 3)
        assert state(trial, 3)["runs"][-1]["id"] == run_id


@pytest.mark.faults
def test_a_killed_worker_agent(start: Start) -> None:
    trial = sleeping(start)
    with following(trial, 1, "run", *SHELL, "echo here; sleep 600") as (run, run_id):
        for _ in ALL:
            read_until(run.stdout, b"here\n")
        trial.kill_agent(3)
        assert run.wait() == 75
        said = run.stderr.read().decode()
    assert f"{run_id} ended with exit code 75: a pod was lost during the run (pod 3, " in said
    assert marked(trial, 0, 1, 2) == {}
    until_phase(trial, "sleeping", 0, 2)
    for index in (0, 2):
        assert list(state(trial, index)["lost"]) == ["3"]
        refused = agent(trial, index, "run", "script", "--", "true")
        assert refused.returncode == 75
        assert "pod 3 is needed and lost (pod 3, " in refused.stderr
        assert "--exclude 3" in refused.stderr
        without = agent(trial, index, "run", "--exclude", "3", "script", "--", "hostname")
        assert (without.returncode, sorted(without.stdout.split())) == (0, sorted(hostnames(trial, 0, 1, 2))), without
    assert agent(trial, 2, "exec", "--exclude", "3", "--", "echo", "here").stdout == "0-2: here\n"
    assert agent(trial, 1, "logs", run_id, "--pod", "0-2").stdout == "here\n" * 3
    assert agent(trial, 2, "release").returncode in (0, GONE)
    assert trial.codes() == {0: 0, 1: 0, 2: 0, 3: 137}


@pytest.mark.faults
def test_a_killed_coordinator_agent(start: Start) -> None:
    trial = sleeping(start)
    with following(trial, 2, "run", *SHELL, "echo here; sleep 600") as (run, _):
        for _ in ALL:
            read_until(run.stdout, b"here\n")
        trial.kill_agent(0)
        _, said = run.communicate()
    assert run.code in (75, GONE), said
    if run.code == 75:
        silent = r"the coordinator has been silent for \d+ s, last heard \S+Z \(pod 0, .*\)"
        assert re.fullmatch(rf"a4-agent: {silent}: .*\n", said), said
    # The job's end was known before: with the coordinator only the cluster is gone.
    assert trial.codes() == {0: 137, 1: 0, 2: 0, 3: 0}, trial.log()


PLACE = 'echo "$(hostname) $A4_NODE_RANK $MASTER_ADDR $(tr "\\n" " " < $A4_HOSTFILE)"'


def test_some_pods_only(start: Start) -> None:
    trial = sleeping(start)
    assert order(trial) == [0, 2, 1, 3]
    for options, pods in ((["--nodes", "2"], [0, 2]), (["--hosts", "1,3"], [1, 3]), (["--exclude", "0"], [2, 1, 3])):
        nodes, names = hostnames(trial, *pods), [trial.cluster.spec.pod_name(index) for index in pods]
        file = "".join(f"{name} slots=1\n" for name in names)
        assert agent(trial, 3, "hostfile", *options).stdout == file
        script = agent(trial, 1, "run", *options, *SHELL, PLACE)
        places = [f"{node} {rank} {names[0]} {file}".replace("\n", " ") for rank, node in enumerate(nodes)]
        assert (script.returncode, sorted(script.stdout.splitlines())) == (0, sorted(places)), script
        command = agent(trial, 0, "exec", *options, "--", "hostname")
        found = [line.partition(": ")[2] for line in command.stdout.splitlines()]
        assert (command.returncode, sorted(found)) == (0, sorted(nodes)), command
        # mpirun itself is on the first of them, and on no other.
        ranks = agent(trial, 3, "mpirun", *options, "--", "bash", "-c", "echo $(hostname) $(pgrep -cx mpirun)")
        leads = [f"{node} {int(node == nodes[0])}" for node in nodes]
        assert (ranks.returncode, sorted(ranks.stdout.splitlines())) == (0, sorted(leads)), ranks


def test_release_ends_with_the_recorded_code(start: Start) -> None:
    trial = sleeping(start, script='[ $# = 0 ] && exit 7; exec "$@"', arguments=("script",))
    with following(trial, 3, "run", *SHELL, GATE) as (run, run_id):
        refused = agent(trial, 2, "release")
        assert (refused.returncode, f"has been running {run_id} for" in refused.stderr) == (75, True), refused
        open_gate(trial)
        assert run.wait() == 0
    assert agent(trial, 2, "release").returncode in (0, GONE)
    all_codes(trial, 7)


def test_pods_that_differ(start: Start) -> None:
    trial = sleeping(start, env={"A4_PODS_DIFFER": "refuse"}, pod_env={2: {"GPUS_PER_NODE": "3"}})
    done = agent(trial, 1, "run", "script", "--", "true")
    assert done.returncode == 78, done
    assert "pods differ where they must not: pod 2 in GPUS_PER_NODE" in done.stderr
    assert re.search(r"GPUS_PER_NODE +1 +3 on pod 2\n", done.stderr), done
    assert agent(trial, 1, "run", "--exclude", "2", "script", "--", "true").returncode == 0


def test_status_answers_while_the_coordinator_hangs(start: Start) -> None:
    trial = sleeping(start, env={"A4_LEASE_SECONDS": "600"})
    with following(trial, 1, "run", *SHELL, GATE) as (run, run_id):
        pid = int(trial.cluster.read(0, f"{RUN_DIR}/lock").split()[1])
        until_phase(trial, "running", *ALL)
        trial.cluster.signal(0, signal.SIGSTOP, pid)
        for index in ALL:
            shown = agent(trial, index, "status")
            assert (shown.returncode, f"run {run_id} by pod 1 (pid " in shown.stdout) == (0, True), shown
            data = state(trial, index)
            assert (data["phase"], data["index"], data["pods"], data["gpus"]) == ("running", index, 4, 1)
            assert {"version", "since", "epoch", "agent", "formed", "runs", "end"} <= set(data)
            assert data["run"]["pods"] == order(trial)
        trial.cluster.signal(0, signal.SIGCONT, pid)
        open_gate(trial)
        assert run.wait() == 0


def test_a_pod_alone(start: Start) -> None:
    trial = sleeping(start, 1, gpus_per_pod=2)
    node = trial.cluster.spec.node_name(0)
    for words in (["run", "script", "--"], ["exec", "--"], ["mpirun", "-np", "1", "--"]):
        done = agent(trial, 0, *words, "hostname")
        assert (done.returncode, done.stdout) == (0, f"{node}\n"), done
    assert agent(trial, 0, "mpirun", "--", "hostname").stdout == f"{node}\n" * 2
    assert agent(trial, 0, "mpirun", "--", "bash", "-c", "exit $((OMPI_COMM_WORLD_RANK * 5))").returncode == 5
    with following(trial, 0, "run", *SHELL, "echo here; sleep 600") as (run, _):
        read_until(run.stdout, b"here\n")
        run.signal(signal.SIGINT)
        assert run.wait() == 130
    assert marked(trial, 0) == {}
    with following(trial, 0, "run", *SHELL, "sleep 600") as (run, _):
        assert agent(trial, 0, "release", "--force").returncode in (0, GONE)
        assert run.wait() in (130, GONE)
    all_codes(trial, 0)
