"""Clusters that form, and clusters that do not."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from agent.local.client import running_clusters
from tests.cluster.conftest import END_SECONDS, RUN_DIR, Start, all_codes


def test_every_pod_has_the_plan_and_its_files(start: Start) -> None:
    trial = start(4, gpus_per_pod=2, env={"SLEEP_INFINITY": "true"})
    trial.cluster.wait_for_file("/etc/job-worker-services-1pernode.txt", 60)
    for index in range(4):
        trial.until_event(index, "result-known")
    plans = {trial.cluster.read(index, f"{RUN_DIR}/plan.json") for index in range(4)}
    assert len(plans) == 1
    plan = json.loads(plans.pop())
    assert [peer["index"] for peer in plan["peers"]] == [0, 2, 1, 3]  # two blocks, interleaved by index
    assert plan["source"] == "physical_host_topology"
    names = [peer["name"] for peer in plan["peers"]]
    for index in range(4):
        read = trial.cluster.read
        assert read(index, "/etc/job-worker-services.txt") == "".join(f"{name} slots=2\n" for name in names)
        one = read(index, "/etc/job-worker-services-1pernode.txt")
        assert one == "".join(f"{name} slots=1\n" for name in names)
        assert read(index, "/tmp/job-worker-hostnames-order.txt") == "".join(f"{name}\n" for name in names)
        order = read(index, "/tmp/job-worker-rank-order.txt").splitlines()
        assert [line.split()[1] for line in order] == names
    # A pod's host name is its node's: nothing may compare the two.
    assert trial.cluster.exec(1, ["hostname"]).stdout.strip() not in names
    # ssh to a peer works as it stands, without a question, from every pod.
    seen = trial.cluster.exec(3, ["ssh", names[1], "echo", "hello"], timeout=END_SECONDS)
    assert (seen.returncode, seen.stdout) == (0, "hello\n"), seen.stderr
    trial.cluster.terminate()
    all_codes(trial, 143)


def test_a_single_pod_needs_no_secret_and_no_dns(start: Start) -> None:
    trial = start(1, arguments=("none",), env={"A4_SECRET_FILE": "/nowhere"})
    all_codes(trial, 0)
    assert "sshd-listening" not in trial.events(0)


def test_another_port(start: Start) -> None:
    trial = start(3, ssh_port=222, arguments=("none",))
    all_codes(trial, 0)


def test_a_late_pod_is_waited_for(start: Start) -> None:
    trial = start(4, missing=frozenset({2}), arguments=("none",))
    trial.until(0, f'grep -qs \'"2": "DNS does not know its name yet\' {RUN_DIR}/state.json')
    trial.cluster.start_pod(2)
    assert [end.code for end in trial.cluster.wait(END_SECONDS)] == [0] * 4, trial.log()


def test_a_name_that_appears_late(start: Start) -> None:
    trial = start(3, late_names={1: 4.0}, neg_ttl=1, arguments=("none",))
    all_codes(trial, 0)


FAULTS = pytest.mark.faults
HOLDS_ITS_PORT = """
if [ "$JOB_COMPLETION_INDEX" = "$1" ]; then
    "$2" -c 'import socket, time; s = socket.create_server(("0.0.0.0", 2222)); time.sleep(600)' &
    until ss -ltn | grep -q :2222; do sleep 0.02; done
fi
exec "$2" -m agent run none
"""


def with_a_busy_port(index: int) -> dict[str, Any]:
    """A cluster in which another process has taken the port of this pod's sshd."""
    return {"entrypoint": ("tini", "--", "bash", "-c", HOLDS_ITS_PORT, "sh", str(index), sys.executable)}


def test_a_busy_port_of_the_coordinator_ends_all(start: Start) -> None:
    """It can still tell the others."""
    trial = start(3, **with_a_busy_port(0))
    all_codes(trial, 71)
    assert trial.said(0)["what"].startswith("port 2222 on ")
    assert "import socket, time" in trial.said(0)["what"]


@pytest.mark.parametrize("mode", ["404", *(pytest.param(mode, marks=FAULTS) for mode in ("503", "html", "no-header"))])
def test_without_a_place_the_order_is_by_index(start: Start, mode: str) -> None:
    trial = start(3, metadata=mode, arguments=("none",))
    all_codes(trial, 0)
    hosts = trial.cluster.read(0, "/tmp/job-worker-rank-order.txt").splitlines()
    assert [line.split()[0] for line in hosts] == ["-", "-", "-"]
    assert "no place from the metadata server" in trial.log()


@pytest.mark.faults
def test_a_metadata_server_that_stalls_costs_one_pod_its_place(start: Start) -> None:
    trial = start(3, pod_metadata={1: "stall"}, arguments=("none",))
    all_codes(trial, 0)
    order = trial.cluster.read(0, "/tmp/job-worker-rank-order.txt").splitlines()
    assert order[-1].startswith("- ")
    assert "0-1." in order[-1]


def test_a_slow_bashrc_that_prints_changes_nothing(start: Start) -> None:
    trial = start(3, slow_bashrc=3.0, arguments=("none",))
    all_codes(trial, 0)


STRANGERS: dict[str, Any] = {
    "pod_env": {1: {"A4_RESTART_ATTEMPT": "1"}},
    "pod_secret": {3: b"x" * 32},
    "arguments": ("none",),
}
"""Pod 1 is of another epoch, pod 3 has another secret."""


def test_strangers_are_refused_both_ways(start: Start) -> None:
    trial = start(4, **STRANGERS)
    trial.until(1, f"test -e {RUN_DIR}/ssh/client_key")
    trial.until_event(1, "sshd-listening")
    trial.until_event(0, "sshd-listening")
    names = [trial.cluster.spec.pod_name(index) for index in range(2)]
    out = trial.cluster.exec(0, ["ssh", names[1], "true"], timeout=END_SECONDS)
    back = trial.cluster.exec(1, ["ssh", names[0], "true"], timeout=END_SECONDS)
    assert (out.returncode, back.returncode) == (255, 255)
    assert "Host key verification failed" in out.stderr + back.stderr
    for index in (1, 3):
        trial.until(0, f'grep -qs "shows a host key that is not pod {index}\'s" {RUN_DIR}/state.json')
    trial.cluster.terminate()
    all_codes(trial, 143)


@FAULTS
def test_strangers_at_the_deadline_are_an_end_of_its_own(start: Start) -> None:
    trial = start(4, **STRANGERS, env={"A4_PEER_TIMEOUT_SECONDS": "30"})
    assert trial.codes() == {0: 77, 1: 69, 2: 77, 3: 69}, trial.log()
    for index in (1, 3):
        assert f"shows a host key that is not pod {index}'s" in trial.said(0)["why"]


def test_no_secret(start: Start) -> None:
    trial = start(2, env={"A4_SECRET_FILE": "/nowhere"}, arguments=("none",))
    all_codes(trial, 78)
    assert "kubectl create secret generic" in trial.log()


def test_nothing_is_left_of_a_cluster_that_has_ended(start: Start) -> None:
    trial = start(2, arguments=("none",))
    all_codes(trial, 0)
    name = trial.cluster.name
    trial.cluster.close()
    assert name not in running_clusters()
