"""The control plane goes away for a while: jobs that run do not notice."""

from __future__ import annotations

from agent.workbench.local.spec import address
from tests.kubernetes.bed import Bed, terminated
from tests.kubernetes.control_plane import MASTER, NODE_SECONDS
from tests.kubernetes.server_faults import slow_storage, stop_servers

AWAY_SECONDS = 20.0
BETWEEN_SECONDS = 10.0
"""Between two words of a node, at most, and two looks of the controller for them."""
SCRIPT = f"""\
#!/bin/bash
while (: </dev/tcp/{address(MASTER)}/6443) 2>/dev/null; do sleep 0.2; done
echo the server is away
"""


def test_a_job_ends_while_the_api_server_and_all_controllers_are_away(bed: Bed, namespace: str) -> None:
    """It was made while etcd was slow, too. Its end is told afterwards, and no node was given up meanwhile, unless the
    server needed that long to come back."""
    with slow_storage(bed.plane):
        bed.install("job", namespace, {"workload.gpus": "4", "task_script": SCRIPT})
        names = [pod["metadata"]["name"] for pod in bed.formed("job", namespace, 2)]
    before = given_up(bed)
    away = stop_servers(bed.plane, AWAY_SECONDS)
    assert bed.ended("job", namespace) == "Completed"
    ends = bed.pods("job", namespace)
    assert [pod["metadata"]["name"] for pod in ends] == names
    assert [terminated(pod)["exitCode"] for pod in ends] == [0, 0]
    assert "the server is away" in bed.log_of(namespace, names[0])
    assert given_up(bed) == before or away > NODE_SECONDS - BETWEEN_SECONDS


def given_up(bed: Bed) -> int:
    """How often a node was not ready."""
    events = bed.get("events", "default", "--field-selector=reason=NodeNotReady")
    return sum(event.get("count", 1) for event in events)
