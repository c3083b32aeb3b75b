"""Clusters that form, and clusters that do not."""

from __future__ import annotations

import json
import sys

import pytest

from agent.local.client import running_clusters
from tests.cluster.conftest import RUN_DIR, Start, all_codes


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
    seen = trial.cluster.exec(3, ["ssh", names[1], "echo", "hello"], timeout=30)
    assert (seen.returncode, seen.stdout) == (0, "hello\n"), seen.stderr
    trial.cluster.terminate()
    all_codes(trial, 0)


def test_a_single_pod_needs_no_secret_and_no_dns(start: Start) -> None:
    trial = start(1, arguments=("none",), env={"A4_SECRET_FILE": "/nowhere"})
    all_codes(trial, 0)
    assert "sshd-listening" not in trial.events(0)


@pytest.mark.parametrize("port", [222, 2222])
def test_ports(start: Start, port: int) -> None:
    trial = start(3, ssh_port=port, arguments=("none",))
    all_codes(trial, 0)


def test_a_late_pod_is_waited_for(start: Start) -> None:
    trial = start(4, late={2: 10.0}, arguments=("none",))
    trial.until(0, f'grep -qs \'"2": "DNS does not know its name yet\' {RUN_DIR}/state.json')
    all_codes(trial, 0)


def test_a_name_that_appears_late(start: Start) -> None:
    trial = start(3, late_names={1: 4.0}, neg_ttl=1, arguments=("none",))
    all_codes(trial, 0)


def test_a_pod_that_never_comes_is_named(start: Start) -> None:
    trial = start(4, missing=frozenset({2}), env={"A4_PEER_TIMEOUT_SECONDS": "4"}, arguments=("none",))
    all_codes(trial, 69)
    for index in (0, 1, 3):
        end = trial.said(index)
        assert "1 of 4 pods did not come within 4 s" in end["what"]
        assert "pod 2, " in end["why"]
        assert "DNS does not know its name" in end["why"]


def test_an_address_that_does_not_answer_is_named(start: Start) -> None:
    trial = start(3, dead=frozenset({1}), env={"A4_PEER_TIMEOUT_SECONDS": "7"}, arguments=("none",))
    all_codes(trial, 69)
    assert "pod 1, " in trial.said(2)["why"]


@pytest.mark.parametrize("mode", ["404", "503", "html", "no-header"])
def test_without_a_place_the_order_is_by_index(start: Start, mode: str) -> None:
    trial = start(3, metadata=mode, arguments=("none",))
    all_codes(trial, 0)
    hosts = trial.cluster.read(0, "/tmp/job-worker-rank-order.txt").splitlines()
    assert [line.split()[0] for line in hosts] == ["-", "-", "-"]
    assert "no place from the metadata server" in trial.log()


def test_a_metadata_server_that_stalls_costs_one_pod_its_place(start: Start) -> None:
    trial = start(3, pod_metadata={1: "stall"}, arguments=("none",))
    all_codes(trial, 0)
    order = trial.cluster.read(0, "/tmp/job-worker-rank-order.txt").splitlines()
    assert order[-1].startswith("- ")
    assert "0-1." in order[-1]


def test_a_slow_bashrc_that_prints_changes_nothing(start: Start) -> None:
    trial = start(3, slow_bashrc=3.0, arguments=("none",))
    all_codes(trial, 0)


def test_a_pod_of_another_epoch_is_refused_both_ways(start: Start) -> None:
    other = {1: {"A4_RESTART_ATTEMPT": "1"}}
    trial = start(3, pod_env=other, env={"A4_PEER_TIMEOUT_SECONDS": "5", "SLEEP_INFINITY": "false"})
    trial.until(1, f"test -e {RUN_DIR}/ssh/client_key")
    trial.until_event(1, "sshd-listening")
    trial.until_event(0, "sshd-listening")
    names = [trial.cluster.spec.pod_name(index) for index in range(2)]
    out = trial.cluster.exec(0, ["ssh", names[1], "true"], timeout=30)
    back = trial.cluster.exec(1, ["ssh", names[0], "true"], timeout=30)
    assert (out.returncode, back.returncode) == (255, 255)
    assert "Host key verification failed" in out.stderr + back.stderr
    codes = trial.codes()
    assert (codes[0], codes[2]) == (77, 77), trial.log()
    assert codes[1] == 69
    assert "shows a host key that is not pod 1's" in trial.said(0)["why"]


def test_another_secret_is_refused(start: Start) -> None:
    trial = start(2, pod_secret={1: b"x" * 32}, env={"A4_PEER_TIMEOUT_SECONDS": "3"}, arguments=("none",))
    assert trial.codes() == {0: 77, 1: 69}


BUSY = """
if [ "$JOB_COMPLETION_INDEX" = "$1" ]; then
    "$2" -c 'import socket, time; s = socket.create_server(("0.0.0.0", 2222)); time.sleep(600)' &
    until ss -ltn | grep -q :2222; do sleep 0.02; done
fi
exec "$2" -m agent run none
"""


@pytest.mark.parametrize("index", [0, 1])
def test_a_busy_port_names_its_holder(start: Start, index: int) -> None:
    program = ("tini", "--", "bash", "-c", BUSY, "sh", str(index), sys.executable)
    trial = start(3, entrypoint=program, env={"A4_PEER_TIMEOUT_SECONDS": "5"})
    codes = trial.codes()
    assert codes[index] == 71, trial.log()
    assert trial.said(index)["what"].startswith("port 2222 on ")
    assert "import socket, time" in trial.said(index)["what"]
    # The coordinator can still tell the others; a worker without sshd can tell nobody.
    assert {codes[i] for i in range(3) if i != index} == ({71} if index == 0 else {69})


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
