"""A job that is restarted again and again: each attempt consists of its own pods, and keeps its own results."""

from __future__ import annotations

import json

import pytest

from tests.kubernetes.bed import Bed
from tests.kubernetes.control_plane import MASTER, values
from tests.kubernetes.controllers import Object

FAILS_UNTIL = """\
#!/bin/bash
attempt=$A4_RESTART_ATTEMPT
[ "$A4_NODE_RANK" != $((attempt % 2)) ] || [ "$attempt" -ge {last} ] || exit 75
exec sleep 1000
"""
"""Now pod 0 fails, now pod 1, until the last attempt, which goes on."""
SETTINGS = {
    "workload.gpus": "4",
    "network.hostNetwork": "false",
    "network.subnetworks": "{default}",
}
"""Each pod has an address that no other pod ever had."""


@pytest.mark.parametrize("restarts", [5, pytest.param(100, marks=pytest.mark.long)])
def test_no_pod_of_an_old_attempt_joins_the_new_one(bed: Bed, namespace: str, restarts: int) -> None:
    bed.plane.cluster.write(MASTER, "/run/fails-until.sh", FAILS_UNTIL.format(last=restarts))
    settings = {**SETTINGS, "workload.max_workload_restarts": str(restarts)}
    words = ("--set-file", "task_script=/run/fails-until.sh", "--set", f"volumes.gcsMounts[0].bucketName={namespace}")
    with bed.addresses(namespace) as addresses:
        bed.install("job", namespace, settings, *words)
        bed.until("the last attempt", lambda: _attempt(bed, namespace) == restarts, 60.0 * restarts)
        pods = bed.formed("job", namespace, 2)
        made = addresses()
    first = pods[0]["metadata"]["name"]
    plan = json.loads(bed.execute(namespace, first, "cat", "/run/a4-agent/plan.json").stdout)
    assert {peer["address"] for peer in plan["peers"]} == made.pop(restarts)
    found = bed.execute(namespace, first, "sh", "-c", "cat /gcs/testbed-logs/job/*/result.json")
    results = {result["epoch"]: result for result in values(found.stdout)}
    attempts = {int(epoch.split(".")[1]): {pod["address"] for pod in of["pods"]} for epoch, of in results.items()}
    assert attempts == {attempt: made[attempt] for attempt in range(restarts)}
    assert {of["verdict"]["code"] for of in results.values()} == {75}


def _attempt(bed: Bed, namespace: str) -> int:
    pods: list[Object] = bed.pods("job", namespace)
    found = {int(pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"]) for pod in pods}
    return max(found, default=0)
