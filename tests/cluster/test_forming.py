"""Clusters that form, and clusters that do not."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.cluster.conftest import END_SECONDS, RUN_DIR, Start, all_codes
from tests.cluster.work import AGENT, until_phase


def test_every_pod_has_the_plan_and_its_files(start: Start) -> None:
    """Though every shell of root begins slowly and prints."""
    trial = start(4, gpus_per_pod=2, env={"SLEEP_INFINITY": "true"}, slow_bashrc=3.0)
    trial.cluster.wait_for_file("/etc/job-worker-services-1pernode.txt", 60)
    until_phase(trial, "sleeping", *range(4))
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
    # The pod's own environment is not there; the state in the run directory is.
    far = trial.cluster.exec(0, ["ssh", names[2].split(".")[0], *AGENT, "status"], timeout=END_SECONDS)
    assert "sleeping between runs" in far.stdout, far
    trial.cluster.terminate()
    all_codes(trial, 143)


def test_a_single_pod_needs_no_secret_and_no_dns(start: Start) -> None:
    trial = start(1, arguments=("none",), env={"A4_SECRET_FILE": "/nowhere"})
    all_codes(trial, 0)
    assert "sshd-listening" not in trial.events(0)


def test_pods_and_names_that_come_late_are_waited_for(start: Start) -> None:
    """Nor do they need places."""
    trial = start(3, missing=frozenset({2}), late_names={1: 4.0}, neg_ttl=1, metadata="404", arguments=("none",))
    trial.until(0, f'grep -qs \'"2": "DNS does not know its name yet\' {RUN_DIR}/state.json')
    trial.cluster.start_pod(2)
    assert [end.code for end in trial.cluster.wait(END_SECONDS)] == [0] * 3, trial.log()
    hosts = trial.cluster.read(0, "/tmp/job-worker-rank-order.txt").splitlines()
    assert [line.split()[0] for line in hosts] == ["-", "-", "-"]
    assert "no place from the metadata server" in trial.log()


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
    trial = start(2, **with_a_busy_port(0))
    all_codes(trial, 71)
    assert trial.said(0)["what"].startswith("port 2222 on ")
    assert "import socket, time" in trial.said(0)["what"]


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
