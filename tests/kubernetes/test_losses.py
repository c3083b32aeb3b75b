"""Pods that are lost, never come or cannot start, and a node that dies: who says so, how it ends, what starts again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.kubernetes.bed import Bed, terminated
from tests.kubernetes.controllers import Object
from tests.kubernetes.nodes import places

WAITS = "#!/bin/bash\nexec sleep 1000\n"
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


def delete(bed: Bed, namespace: str, pod: str) -> None:
    bed.plane.kubectl("delete", "pod", pod, "--namespace", namespace, "--wait=false")


def evict(bed: Bed, namespace: str, pod: str) -> None:
    body = json.dumps({**EVICTION, "metadata": {"name": pod, "namespace": namespace}})
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    bed.plane.kubectl("create", "--raw", path, "--filename=-", input=body)


def drain(bed: Bed, namespace: str, pod: str) -> None:
    """Its node, as before an upgrade of that."""
    node = ("get", "pod", pod, "--namespace", namespace, "--output=jsonpath={.spec.nodeName}")
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app.kubernetes.io/instance=job")
    bed.plane.kubectl("drain", bed.plane.kubectl(*node), *flags, "--timeout=250s")


@pytest.fixture
def nodes_come_back(bed: Bed) -> Iterator[None]:
    yield
    bed.plane.kubectl("uncordon", *places())


@pytest.mark.usefixtures("nodes_come_back")
@pytest.mark.parametrize(
    ("lose", "index", "task"),
    [(delete, 1, WAITS), (evict, 0, WAITS), (drain, 1, ""), (delete, 0, "")],
    ids=["deleted worker", "evicted coordinator", "drained worker asleep", "deleted coordinator asleep"],
)
def test_a_lost_pod_restarts_the_job_once(
    bed: Bed, namespace: str, lose: Callable[[Bed, str, str], None], index: int, task: str
) -> None:
    """All pods are new, of one epoch, and none of the attempt before is among them."""
    bed.install("job", namespace, {"workload.gpus": "4", "workload.max_workload_restarts": "1", "task_script": task})
    old = bed.formed("job", namespace, 2)
    if not task:
        bed.until_asleep(namespace, old)
    lose(bed, namespace, old[index]["metadata"]["name"])
    bed.until("attempt 1", lambda: attempts(bed.pods("job", namespace)) == {"1"})
    new = bed.formed("job", namespace, 2)
    assert attempts(new) == {"1"} and not uids(old) & uids(new)
    epochs = [epoch(bed, namespace, pod) for pod in new]
    assert len(set(epochs)) == 1 and epochs[0].split(".")[1] == "1"
    (jobset,) = bed.get("jobsets", namespace)
    assert jobset["status"]["restarts"] == 1


def test_a_dead_node_holds_the_job_until_its_pod_is_deleted_by_force(bed: Bed, namespace: str) -> None:
    """As docs/troubleshooting.md says: the other pods end, and nothing starts while the pod object is there."""
    settings = {"workload.gpus": "4", "workload.max_workload_restarts": "1", "task_script": WAITS}
    bed.install("job", namespace, {**settings, "workload.terminationGracePeriodSeconds": "20"})
    _, second = bed.formed("job", namespace, 2)
    node, taints = second["spec"]["nodeName"], "--output=jsonpath={.spec.taints[*].key}"
    bed.order("die", node)
    try:
        bed.until("pod 0 has ended", lambda: terminated(bed.pods("job", namespace)[0]))
        assert terminated(bed.pods("job", namespace)[0])["exitCode"] == 75
        # The Job's controller does both, in an order of its own.
        bed.until("the job is to fail", lambda: conditions(bed, namespace))
        bed.until("the dead pod is to be deleted", lambda: "deletionTimestamp" in dead(bed, namespace)["metadata"])
        assert conditions(bed, namespace) == ["FailureTarget"]
        assert attempts(bed.pods("job", namespace)) == {"0"}
        # Else a pod of attempt 1 may be put there.
        bed.until("its node is given up", lambda: "unreachable" in bed.plane.kubectl("get", "node", node, taints))
        name = second["metadata"]["name"]
        bed.plane.kubectl("delete", "pod", name, "--namespace", namespace, "--force", "--grace-period=0")
        bed.until("attempt 1", lambda: attempts(bed.pods("job", namespace)) == {"1"})
        assert node not in {pod["spec"]["nodeName"] for pod in bed.formed("job", namespace, 2)}
    finally:
        bed.order("reboot", node)


def test_a_dead_node_of_a_job_of_one_pod_is_given_up_by_a_taint(bed: Bed, namespace: str) -> None:
    """No pod has ended that the Job's controller could count, and a deletion by force would wait for that."""
    settings = {"workload.gpus": "2", "workload.max_workload_restarts": "1", "task_script": WAITS}
    bed.install("job", namespace, {**settings, "workload.terminationGracePeriodSeconds": "20"})
    (pod,) = bed.formed("job", namespace, 1)
    node, taint = pod["spec"]["nodeName"], "node.kubernetes.io/out-of-service"
    bed.order("die", node)
    try:
        bed.until("it is to be deleted", lambda: "deletionTimestamp" in bed.pods("job", namespace)[0]["metadata"])
        bed.plane.kubectl("taint", "nodes", node, f"{taint}=nodeshutdown:NoExecute")
        bed.until("attempt 1", lambda: attempts(bed.pods("job", namespace)) == {"1"})
        assert node not in {pod["spec"]["nodeName"] for pod in bed.formed("job", namespace, 1)}
    finally:
        bed.order("reboot", node)
        bed.plane.kubectl("taint", "nodes", node, f"{taint}-")


def dead(bed: Bed, namespace: str) -> Object:
    return bed.pods("job", namespace)[1]


def conditions(bed: Bed, namespace: str) -> list[str]:
    """The types of the only Job's conditions."""
    (job,) = bed.get("jobs", namespace)
    return [each["type"] for each in job["status"].get("conditions") or ()]


def test_a_pod_without_a_node_is_named_by_the_others(bed: Bed, namespace: str) -> None:
    """Nine nodes are asked for, and there are eight."""
    settings = {"workload.gpus": "18", "workload.env.A4_PEER_TIMEOUT_SECONDS": "20"}
    bed.install("job", namespace, settings)
    assert bed.ended("job", namespace) == "Failed"
    (job,) = bed.get("jobs", namespace)
    assert "failed with exit code 69 matching FailJob rule" in str(job["status"]["conditions"])


def attempts(pods: list[Object]) -> set[str]:
    return {pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] for pod in pods}


def uids(pods: list[Object]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def epoch(bed: Bed, namespace: str, pod: Object) -> str:
    plan = bed.execute(namespace, pod["metadata"]["name"], "cat", "/run/a4-agent/plan.json")
    return str(json.loads(plan.stdout)["epoch"])
