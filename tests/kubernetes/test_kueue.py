"""Jobs that Kueue admits: when there is quota, where the nodes are close, and until another one goes first."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.kubernetes.bed import Bed
from tests.kubernetes.control_plane import Object
from tests.kubernetes.nodes import TOPOLOGY, places

API = "kueue.x-k8s.io/v1beta2"
WAITS = "#!/bin/bash\nexec sleep 1000\n"
FOUR = {
    "workload.gpus": "32",
    "workload.gpusPerNode": "8",
    "workload.terminationGracePeriodSeconds": "60",
    "task_script": WAITS,
    "tasSettings.mode": "required",
    "tasSettings.level": "block",
}
"""Pods that take whole nodes, all in one block. Kueue counts no ports: it would put smaller ones onto one node."""


def objects(namespace: str) -> list[Object]:
    """A queue with quota for four nodes, whose places are known."""
    levels = [f"{TOPOLOGY}-{level}" for level in ("block", "subblock", "host")]
    flavor = {
        "nodeLabels": {"cloud.google.com/gke-nodepool": "a4"},
        "topologyName": namespace,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
    quota = [{"name": "nvidia.com/gpu", "nominalQuota": 32}, {"name": "cpu", "nominalQuota": 1000}]
    group = {
        "coveredResources": ["nvidia.com/gpu", "cpu"],
        "flavors": [{"name": namespace, "resources": quota}],
    }
    queue = {
        "namespaceSelector": {},
        "resourceGroups": [group],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    return [
        named("Topology", namespace, {"levels": [{"nodeLabel": level} for level in levels]}),
        named("ResourceFlavor", namespace, flavor),
        named("ClusterQueue", namespace, queue),
        {
            **named("LocalQueue", "team", {"clusterQueue": namespace}),
            "metadata": {"name": "team", "namespace": namespace},
        },
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"urgent-{namespace}"},
            "value": 1000,
        },
    ]


def named(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def queue(bed: Bed, namespace: str) -> Iterator[str]:
    bed.plane.create(objects(namespace), namespace)
    yield "team"
    bed.clear(namespace)
    for kind in ("clusterqueue", "resourceflavor", "topology"):
        bed.plane.kubectl("delete", f"{kind}.kueue.x-k8s.io", namespace, "--wait=false")
    bed.plane.kubectl("delete", "priorityclass", f"urgent-{namespace}")


def test_quota_places_preemption_and_the_way_back(bed: Bed, namespace: str, queue: str) -> None:
    """The first job is placed in one block, gives way to an urgent one, and is admitted again when that is gone: as all
    its pods have ended with 143, also those that slept after a run that was good, the Job makes each of them again."""
    bed.install("low", namespace, {**FOUR, "task_script": "", "queue": queue})
    pods = bed.formed("low", namespace, 4)
    stand = places()
    assert len({stand[pod["spec"]["nodeName"]][1] for pod in pods}) == 1
    told = json.loads(bed.execute(namespace, pods[0]["metadata"]["name"], "a4-agent", "topology", "--json").stdout)
    assert {peer["index"]: tuple(peer["place"]) for peer in told["peers"]} == {
        index: stand[pod["spec"]["nodeName"]] for index, pod in enumerate(pods)
    }

    bed.until_asleep(namespace, pods)
    with bed.codes(namespace) as codes:
        bed.install("high", namespace, {**FOUR, "queue": queue, "priorityClassName": f"urgent-{namespace}"})
        old = {pod["metadata"]["uid"]: 143 for pod in pods}
        bed.until("low is preempted", lambda: old.keys() <= codes().keys())
        assert codes() == old
    (jobset,) = bed.get("jobsets", namespace, "--field-selector=metadata.name=low")
    assert jobset["spec"]["suspend"] is True
    bed.formed("high", namespace, 4)
    bed.helm("uninstall", "high", "--namespace", namespace)
    back = bed.formed("low", namespace, 4)
    assert not {pod["metadata"]["uid"] for pod in back} & old.keys()
    (jobset,) = bed.get("jobsets", namespace, "--field-selector=metadata.name=low")
    assert jobset["status"]["restarts"] == 0


def test_a_job_waits_in_words_while_there_is_no_quota(bed: Bed, namespace: str, queue: str) -> None:
    bed.install("big", namespace, {**FOUR, "workload.gpus": "40", "queue": queue})

    def words() -> list[str]:
        workloads = bed.get("workloads.kueue.x-k8s.io", namespace)
        found = [one for each in workloads for one in (each.get("status") or {}).get("conditions") or ()]
        return [one["message"] for one in found if (one["type"], one["status"]) == ("QuotaReserved", "False")]

    # Before, it may say that the queue is not active yet.
    bed.until("Kueue says why", lambda: any("insufficient quota for nvidia.com/gpu" in each for each in words()))
    assert not bed.pods("big", namespace)
