"""A real kubelet with containerd runs what the chart renders, with the CPU image: what ours only pretends.

Its pods have images, cgroups and limits as on any node; the same control plane, JobSet and Kueue are above it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.image.archive import present
from tests.image.images import BY_THE_DOCS, CPU, FOREIGN, foreign
from tests.kubernetes.bed import Bed, terminated
from tests.kubernetes.control_plane import MASTER
from tests.kubernetes.real_node import DAEMON, NAME, RealNode, joined
from tests.kubernetes.test_losses import attempts

REAL = {
    "workload.image": CPU,
    "workload.imagePullPolicy": "IfNotPresent",
    "workload.resources.requests.cpu": "100m",
    "workload.resources.requests.memory": "100Mi",
    "volumes.sharedMemory": "64Mi",
    "network.hostNetwork": "false",
    "network.subnetworks": "{default}",
    "accelerator": "",
    r"nodeSelector.kubernetes\.io/hostname": NAME,
    "tolerations[0].operator": "Exists",
}
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
INSTALLER = "nccl-plugin-installer"
GREEDY = """\
#!/bin/bash
[ "$A4_NODE_RANK" = 0 ] && exec sleep 1000
exec python3 -c 'print(len(bytearray(2 << 30)))'
"""
FILLS = """\
#!/bin/bash
[ "$A4_NODE_RANK" = 1 ] && [ "$A4_RESTART_ATTEMPT" = 0 ] && head -c 20M /dev/zero >/scratch/much
exec sleep 1000
"""
SCRATCH = {
    "volumes.extra[0].name": "scratch",
    "volumes.extra[0].emptyDir.sizeLimit": "10Mi",
    "volumes.extraMounts[0].name": "scratch",
    "volumes.extraMounts[0].mountPath": "/scratch",
}


@pytest.fixture(scope="module", autouse=True)
def node(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    with joined(bed.plane, tmp_path_factory.mktemp("node")) as node:
        node.load(present())
        yield node


def test_connectivity_completes_on_four_pods(bed: Bed, namespace: str) -> None:
    bed.install("job", namespace, {**REAL, "workload.gpus": "8", "workload.run": "connectivity"})
    assert bed.ended("job", namespace) == "Completed"
    pods = bed.pods("job", namespace)
    assert [terminated(pod)["exitCode"] for pod in pods] == [0, 0, 0, 0]
    assert {pod["spec"]["nodeName"] for pod in pods} == {NAME}
    message = json.loads(terminated(pods[0])["message"])
    said = bed.log_of(namespace, pods[0]["metadata"]["name"])
    assert message["code"] == 0 and "connectivity is good: 8 ranks on 4 pods" in said


@pytest.mark.parametrize(
    ("image", "brought_by", "mpi"),
    [(BY_THE_DOCS, "", FOREIGN["bookworm"]), *((foreign(release), CPU, mpi) for release, mpi in FOREIGN.items())],
    ids=["lines-of-the-docs", *FOREIGN],
)
def test_connectivity_completes_in_other_images(
    bed: Bed, namespace: str, image: str, brought_by: str, mpi: str
) -> None:
    """One that the lines of the docs have made, and three without the agent, which an init container brings."""
    images = {"workload.image": image, "workload.agentImage": brought_by}
    bed.install("job", namespace, {**REAL, **images, "workload.gpus": "4", "workload.run": "connectivity"})
    assert bed.ended("job", namespace) == "Completed"
    said = bed.log_of(namespace, bed.pods("job", namespace)[0]["metadata"]["name"])
    assert "connectivity is good: 4 ranks on 2 pods" in said and f"(Open MPI {mpi})" in said


def test_a_program_that_the_image_lacks_ends_the_job(bed: Bed, namespace: str) -> None:
    bed.install("job", namespace, {**REAL, "workload.gpus": "2", "workload.run": "nccl"})
    assert bed.ended("job", namespace) == "Failed"
    end = terminated(bed.pods("job", namespace)[0])
    message = json.loads(end["message"])
    assert (end["exitCode"], message["code"]) == (66, 66) and "all_reduce" in message["what"], message


def test_pods_that_stay_pass_their_probes_and_obey_kubectl(bed: Bed, namespace: str) -> None:
    bed.install("job", namespace, {**REAL, "workload.gpus": "4", "workload.terminationGracePeriodSeconds": "60"})
    pods = bed.formed("job", namespace, 2)
    assert all(pod["status"]["containerStatuses"][0]["started"] for pod in pods)
    first = pods[0]["metadata"]["name"]
    bed.until_asleep(namespace, pods)
    spoken = bed.execute(namespace, first, "a4-agent", "status")
    assert spoken.returncode == 0 and "pods: 2 x 2 slots" in spoken.stdout
    assert bed.execute(namespace, first, "sh", "-c", "exit 7").returncode == 7
    # Nothing of Kubernetes' API is in the pod.
    assert bed.execute(namespace, first, "ls", "/var/run/secrets").returncode == 2
    gracefully = {pod["metadata"]["uid"]: 143 for pod in pods}
    with bed.codes(namespace) as codes:
        bed.helm("uninstall", "job", "--namespace", namespace)
        # Within their grace: a pod that was killed at the end of it would have 137.
        bed.until("all pods have ended", lambda: gracefully.keys() <= codes().keys())
        assert codes() == gracefully


def test_a_token_is_mounted_only_if_it_was_asked_for(bed: Bed, namespace: str) -> None:
    bed.install("job", namespace, {**REAL, "workload.gpus": "2", "automountServiceAccountToken": "true"})
    (pod,) = bed.ready("job", namespace, 1)
    show = f"cut -d. -f2 {ACCOUNT}/token; cat {ACCOUNT}/namespace"
    found = bed.execute(namespace, pod["metadata"]["name"], "sh", "-c", show)
    assert found.returncode == 0 and found.stdout.endswith(namespace)


def test_a_native_sidecar_ends_after_the_job(bed: Bed, namespace: str) -> None:
    tcpx = {"enabled": "true", "daemonImage": DAEMON, "librariesPath": "/mnt"}
    settings = {**REAL, **{f"network.tcpx.{name}": value for name, value in tcpx.items()}}
    sizes = {"workload.gpus": "8", "workload.gpusPerNode": "8"}
    bed.install("job", namespace, {**settings, **sizes, "workload.run": "connectivity"})
    assert bed.ended("job", namespace) == "Completed"
    (pod,) = bed.pods("job", namespace)
    daemon = terminated(pod, "tcpx-daemon", "initContainerStatuses")
    assert terminated(pod)["exitCode"] == 0 and pod["status"]["phase"] == "Succeeded"
    assert daemon["exitCode"] == 0 and daemon["finishedAt"] >= terminated(pod)["finishedAt"]


def test_memory_that_runs_out_ends_the_job_with_137(bed: Bed, namespace: str) -> None:
    """The kernel kills a script by the limit of its container: that is final, also where restarts are allowed."""
    bed.plane.cluster.write(MASTER, "/run/greedy.sh", GREEDY)
    settings = {
        "workload.gpus": "4",
        "workload.max_workload_restarts": "2",
        "workload.resources.limits.memory": "500Mi",
    }
    bed.install("job", namespace, {**REAL, **settings}, "--set-file", "task_script=/run/greedy.sh")
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


def test_a_pod_that_its_node_evicts_restarts_the_job(bed: Bed, namespace: str) -> None:
    """It has filled a volume beyond its limit, which the kubelet sees, and has one second to end.

    On a busy machine that is too little: then it is killed, and its code is 137 in place of 143.
    """
    bed.plane.cluster.write(MASTER, "/run/fills.sh", FILLS)
    restarts = {"workload.max_workload_restarts": "1", "workload.restartOn": "{137}"}
    settings = {**REAL, **SCRATCH, **restarts, "workload.gpus": "4"}
    bed.install("job", namespace, settings, "--set-file", "task_script=/run/fills.sh")
    reasons = ("events", namespace, "--field-selector=reason=Evicted")
    evicted = bed.until("a pod is evicted", lambda: bed.get(*reasons))
    assert "scratch" in evicted[0]["message"] and "job-workload-0-1" in evicted[0]["involvedObject"]["name"]
    bed.until("attempt 1", lambda: attempts(bed.pods("job", namespace)) == {"1"})
    bed.formed("job", namespace, 2)


def test_an_image_that_never_comes_is_shown(bed: Bed, namespace: str) -> None:
    """Kubernetes tries for ever: the words are in the pods' status."""
    bed.install("job", namespace, {**REAL, "workload.gpus": "4", "workload.image": "localhost/none:1"})

    def reasons() -> list[str]:
        found = [pod["status"].get("containerStatuses") or [{}] for pod in bed.pods("job", namespace)]
        return [each[0].get("state", {}).get("waiting", {}).get("reason", "") for each in found]

    bed.until("back-off", lambda: reasons() == ["ImagePullBackOff"] * 2)


def test_an_init_container_that_fails_starts_the_job_again_and_then_ends_it(bed: Bed, namespace: str) -> None:
    """The image that is to bring gIB is another one. No rule of the chart knows the code of an init container."""
    settings = {"workload.gpus": "4", "workload.max_workload_restarts": "1", "network.gibVersion": CPU}
    bed.install("job", namespace, {**REAL, **settings})
    assert bed.ended("job", namespace) == "Failed"
    (jobset,) = bed.get("jobsets", namespace)
    assert jobset["status"]["restarts"] == 1
    pods = bed.pods("job", namespace)
    ends = {pod["metadata"]["name"]: terminated(pod, INSTALLER, "initContainerStatuses") for pod in pods}
    failed = [name for name, end in ends.items() if end.get("exitCode") == 1]
    said = bed.plane.kubectl("logs", "--namespace", namespace, failed[0], f"--container={INSTALLER}")
    assert "gIB installer: container_entry.sh has ended with 127" in said
