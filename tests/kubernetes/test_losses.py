"""Pods that are lost, never come or cannot start, and a node that dies: who says so, how it ends, what starts again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import pytest

from tests.kubernetes.bed import Bed, terminated
from tests.kubernetes.control_plane import MASTER
from tests.kubernetes.controllers import Object
from tests.kubernetes.nodes import IMAGE, places

WAITS = "#!/bin/bash\nexec sleep 1000\n"
GREEDY = """\
#!/bin/bash
[ "$A4_NODE_RANK" = 0 ] && exec sleep 1000
exec python3 -c 'print(len(bytearray(2 << 30)))'
"""
INSTALLER = "nccl-plugin-installer"
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


def test_memory_that_runs_out_ends_the_job_with_137(bed: Bed, namespace: str) -> None:
    """The kernel kills a script by the limit of its container: that is final, also where restarts are allowed."""
    if not bed.limits_memory:
        assert "CI" not in os.environ, "memory limits must be tried in CI: no cgroup with a memory controller is here"
        pytest.skip("no cgroup with a memory controller can be written here: memory cannot be limited")
    bed.plane.cluster.write(MASTER, "/run/greedy.sh", GREEDY)
    settings = {
        "workload.gpus": "4",
        "workload.max_workload_restarts": "2",
        "workload.resources.limits.memory": "500Mi",
    }
    smaller = {"workload.resources.requests.memory": "100Mi", "volumes.sharedMemory": "64Mi"}
    bed.install("job", namespace, {**settings, **smaller}, "--set-file", "task_script=/run/greedy.sh")
    assert bed.ended("job", namespace) == "Failed"
    (jobset,) = bed.get("jobsets", namespace)
    assert jobset["status"]["restarts"] == 0
    (job,) = bed.get("jobs", namespace)
    assert "failed with exit code 137 matching FailJob rule" in str(job["status"]["conditions"])
    ends = [end for end in map(terminated, bed.pods("job", namespace)) if end]
    assert ends and {end["exitCode"] for end in ends} == {137}
    messages = [json.loads(end["message"]) for end in ends]
    assert any("pod 1, job-workload-0-1" in message["where"] for message in messages)
    assert any("raise the memory limit" in message["why"] for message in messages), messages


def dead(bed: Bed, namespace: str) -> Object:
    return bed.pods("job", namespace)[1]


def conditions(bed: Bed, namespace: str) -> list[str]:
    """The types of the only Job's conditions."""
    (job,) = bed.get("jobs", namespace)
    return [each["type"] for each in job["status"].get("conditions") or ()]


def test_an_image_that_never_comes_is_shown_by_both_sides(bed: Bed, namespace: str) -> None:
    """Kubernetes tries for ever, on all pods: the words are in the pods' status."""
    bed.install("job", namespace, {"workload.gpus": "4", "workload.image": "registry.example/none:1"})

    def reasons() -> list[str]:
        found = [pod["status"].get("containerStatuses") or [{}] for pod in bed.pods("job", namespace)]
        return [each[0].get("state", {}).get("waiting", {}).get("reason", "") for each in found]

    bed.until("back-off", lambda: reasons() == ["ImagePullBackOff"] * 2)


def test_an_init_container_that_fails_starts_the_job_again_and_then_ends_it(bed: Bed, namespace: str) -> None:
    """The image that is to bring gIB is another one. No rule of the chart knows the code of an init container."""
    settings = {"workload.gpus": "4", "workload.max_workload_restarts": "1", "network.gibVersion": IMAGE}
    bed.install("job", namespace, settings)
    assert bed.ended("job", namespace) == "Failed"
    (jobset,) = bed.get("jobsets", namespace)
    assert jobset["status"]["restarts"] == 1
    pods = bed.pods("job", namespace)
    ends = {pod["metadata"]["name"]: terminated(pod, INSTALLER, "initContainerStatuses") for pod in pods}
    failed = [name for name, end in ends.items() if end.get("exitCode") == 1]
    said = bed.plane.kubectl("logs", "--namespace", namespace, failed[0], f"--container={INSTALLER}")
    assert "gIB installer: container_entry.sh has ended with 127" in said


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
