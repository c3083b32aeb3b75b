"""Jobs that Kueue admits: when there is quota, where the nodes are close, and until another one goes first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from unittest.mock import ANY

import pytest
import yaml

from tests.chart.helm import CHART
from tests.kubernetes.bed import Bed
from tests.kubernetes.control_plane import values
from tests.kubernetes.controllers import Object
from tests.kubernetes.nodes import TOPOLOGY, places

API = "kueue.x-k8s.io/v1beta2"
WAITS = "#!/bin/bash\nexec sleep 1000\n"
BUCKET = ("--set", "volumes.gcsMounts[0].bucketName=results")
FOUR = {
    "workload.gpus": "32",
    "workload.gpusPerNode": "8",
    "workload.terminationGracePeriodSeconds": "60",
    "task_script": WAITS,
    "tasSettings.mode": "required",
    "tasSettings.level": "block",
}
"""Pods that take whole nodes, all in one block. Kueue counts no ports: it would put smaller ones onto one node."""


EIGHT = {**FOUR, "workload.gpus": "64", "tasSettings.mode": "preferred"}
SIXTEEN = {
    "workload.gpus": "64",
    "workload.gpusPerNode": "4",
    "network.hostNetwork": "false",
    "network.subnetworks": "{default}",
    "tasSettings.level": "sub-block",
}
"""Two to a node, on all eight nodes."""


def objects(namespace: str) -> list[Object]:
    """A queue with quota for eight nodes, whose places are known."""
    levels = [f"{TOPOLOGY}-{level}" for level in ("block", "subblock", "host")]
    flavor = {
        "nodeLabels": {"cloud.google.com/gke-nodepool": "a4"},
        "topologyName": namespace,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
    quota = [{"name": "nvidia.com/gpu", "nominalQuota": 64}, {"name": "cpu", "nominalQuota": 1000}]
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


@pytest.mark.parametrize(("job", "lives"), [("low", "0"), ("low-with-lives", "2")])
def test_quota_places_preemption_and_the_way_back(bed: Bed, namespace: str, queue: str, job: str, lives: str) -> None:
    """The first job is placed in one block, gives way to an urgent one, and is admitted again when that is gone: as all
    its pods have ended with 143, also those that slept after a run that was good, the Job makes each of them again.
    What came of the first admission stays."""
    bed.install(job, namespace, {**FOUR, "task_script": "", "queue": queue, "workload.lives": lives}, *BUCKET)
    pods = bed.formed(job, namespace, 4)
    stand = places()
    assert len({stand[pod["spec"]["nodeName"]][1] for pod in pods}) == 1
    told = json.loads(bed.execute(namespace, pods[0]["metadata"]["name"], "a4-agent", "topology", "--json").stdout)
    assert {peer["index"]: tuple(peer["place"]) for peer in told["peers"]} == {
        index: stand[pod["spec"]["nodeName"]] for index, pod in enumerate(pods)
    }

    bed.until_asleep(namespace, pods)
    epoch, (first,) = results(bed, namespace, pods[0], job)
    with bed.codes(namespace) as codes:
        bed.install("high", namespace, {**EIGHT, "queue": queue, "priorityClassName": f"urgent-{namespace}"})
        old = {pod["metadata"]["uid"]: 143 for pod in pods}
        bed.until("it is preempted", lambda: old.keys() <= codes().keys())
        assert codes() == old
    (jobset,) = bed.get("jobsets", namespace, f"--field-selector=metadata.name={job}")
    assert jobset["spec"]["suspend"] is True
    bed.formed("high", namespace, 8)
    bed.helm("uninstall", "high", "--namespace", namespace)
    back = bed.formed(job, namespace, 4)
    assert not {pod["metadata"]["uid"] for pod in back} & old.keys()
    (jobset,) = bed.get("jobsets", namespace, f"--field-selector=metadata.name={job}")
    assert jobset["status"]["restarts"] == 0
    bed.until_asleep(namespace, back)
    assert results(bed, namespace, back[0], job) == (epoch, [first, ANY])


def test_a_pod_of_an_earlier_admission_does_not_join_a_later_one(bed: Bed, namespace: str, queue: str) -> None:
    """Its node stands still while Kueue takes the quota back and gives it again, and then goes on: the pod has the
    secret, the epoch and the DNS name of the pod for which the new ones wait."""
    bed.install("low", namespace, {**FOUR, "queue": queue})
    pods = bed.formed("low", namespace, 4)
    late, others = pods[2], {pod["metadata"]["uid"] for at, pod in enumerate(pods) if at != 2}
    name, node = late["metadata"]["name"], late["spec"]["nodeName"]
    bed.order("freeze", node)
    try:
        with bed.codes(namespace) as codes:
            activate(bed, namespace, False)
            bed.until("its other pods have ended", lambda: others <= codes().keys())
            assert {codes()[uid] for uid in others} == {143}
        taints = ("get", "node", node, "--output=jsonpath={.spec.taints[*].key}")
        bed.until("the node is given up", lambda: "unreachable" in bed.plane.kubectl(*taints))
        activate(bed, namespace, True)
        waiting = bed.until("its new peers wait for pod 2", lambda: waits_for(bed, namespace, pods))
        assert bed.order("look", node)["running"] == 1
        bed.order("thaw", node)
        bed.until("it ends", lambda: not bed.order("look", node)["running"])
        assert waits_for(bed, namespace, pods) == waiting
        bed.plane.kubectl("delete", "pod", name, "--namespace", namespace, "--force", "--grace-period=0")
        new = bed.formed("low", namespace, 4)
    finally:
        bed.order("reboot", node)
    told = json.loads(bed.execute(namespace, new[0]["metadata"]["name"], "a4-agent", "topology", "--json").stdout)
    assert {peer["pod_name"] for peer in told["peers"]} == {pod["metadata"]["name"] for pod in new}
    assert set(waiting) < {pod["metadata"]["name"] for pod in new}


def activate(bed: Bed, namespace: str, active: bool) -> None:
    """Let Kueue admit the only job, or end its admission."""
    (workload,) = bed.get("workloads.kueue.x-k8s.io", namespace)
    patch = json.dumps({"spec": {"active": active}})
    name = workload["metadata"]["name"]
    bed.plane.kubectl(
        "patch", "workloads.kueue.x-k8s.io", name, "--namespace", namespace, "--type=merge", f"--patch={patch}"
    )


def waits_for(bed: Bed, namespace: str, before: list[Object]) -> list[str]:
    """The pods of the new admission, when they run and miss pod 2 alone."""
    known = {pod["metadata"]["name"] for pod in before}
    pods = [pod["metadata"]["name"] for pod in bed.pods("low", namespace)]
    new = [name for name in pods if name not in known]
    told = bed.execute(namespace, new[0], "a4-agent", "peers", "--json").stdout if len(new) == 3 else ""
    return new if told and list(json.loads(told)["missing"]) == ["2"] else []


def results(bed: Bed, namespace: str, pod: Object, job: str) -> tuple[str, list[str]]:
    """The epoch of the job, and the runs of which there are results, those at the top first."""
    below = f"find /gcs/testbed-logs/{job} -name result.json | sort | xargs cat"
    text = bed.execute(namespace, pod["metadata"]["name"], "sh", "-c", below).stdout
    found = [(each["epoch"], each["run"]) for each in values(text)]
    (epoch,) = {epoch for epoch, _ in found}
    return epoch, [run for _, run in found]


def test_sixteen_pods_stand_where_the_agent_says(bed: Bed, namespace: str, queue: str) -> None:
    """Ranks follow each other in a sub-block, and in a block, wherever Kueue has put pods."""
    bed.install("wide", namespace, {**SIXTEEN, "queue": queue})
    pods = bed.formed("wide", namespace, 16)
    stand = places()
    told = json.loads(bed.execute(namespace, pods[0]["metadata"]["name"], "a4-agent", "topology", "--json").stdout)
    assert {peer["index"]: tuple(peer["place"]) for peer in told["peers"]} == {
        index: stand[pod["spec"]["nodeName"]] for index, pod in enumerate(pods)
    }
    ordered = [tuple(peer["place"]) for peer in told["peers"]]
    for depth in (2, 3, 4):
        runs = [place for place, _ in groupby(one[:depth] for one in ordered)]
        assert len(runs) == len(set(runs)) == 2 ** (depth - 1)


TEAMS_VALUES = CHART / "cluster/ci/teams-values.yaml"
TEAMS = yaml.safe_load(TEAMS_VALUES.read_text())["kueue"]["teams"]


@pytest.fixture
def teams(bed: Bed) -> Iterator[None]:
    """The queues of docs/deployments/teams.md, in its namespaces."""
    for team in TEAMS:
        bed.plane.make_namespace(team["name"])
    given = (f"--values={TEAMS_VALUES}", "--set=nodes=8,networks.enabled=false,kueue.quotas.cpu=1000")
    bed.helm("install", "teams", str(CHART / "cluster"), "--namespace=kube-system", *given)
    yield
    for team in TEAMS:
        bed.clear(team["name"])
    bed.helm("uninstall", "teams", "--namespace=kube-system")


def test_a_team_borrows_and_another_gets_its_own_back(bed: Bed, teams: None) -> None:
    """Whose job is evicted has none of its own; it goes on when there is room again."""
    for team in ("product", "students"):
        bed.install("job", team, {**FOUR, "queue": "a4-high"})
        bed.formed("job", team, 4)
    bed.install("job", "research", {**FOUR, "queue": "a4"})
    bed.formed("job", "research", 4)
    assert suspended(bed) == {"research": False, "product": False, "students": True}
    assert "Borrowed:  16" in bed.plane.kubectl("describe", "clusterqueue", "a4-product")
    bed.helm("uninstall", "job", "--namespace=product")
    bed.formed("job", "students", 4)
    assert suspended(bed) == {"research": False, "students": False}

    bed.install("job", "product", {**FOUR, "workload.gpus": "40", "queue": "a4"})
    limit = "maximum capacity (32)"  # maxGpus
    bed.until("Kueue says that it is too large", lambda: any(limit in one for one in why_it_waits(bed, "product")))


def suspended(bed: Bed) -> dict[str, bool]:
    """By team that has a job."""
    jobsets = {team["name"]: bed.get("jobsets", team["name"]) for team in TEAMS}
    return {team: found[0]["spec"]["suspend"] for team, found in jobsets.items() if found}


def why_it_waits(bed: Bed, namespace: str) -> list[str]:
    workloads = bed.get("workloads.kueue.x-k8s.io", namespace)
    found = [one for each in workloads for one in (each.get("status") or {}).get("conditions") or ()]
    return [one["message"] for one in found if (one["type"], one["status"]) == ("QuotaReserved", "False")]


def test_a_job_waits_in_words_while_there_is_no_quota(bed: Bed, namespace: str, queue: str) -> None:
    bed.install("big", namespace, {**FOUR, "workload.gpus": "72", "queue": queue})
    words = "insufficient quota for nvidia.com/gpu"
    # Before, it may say that the queue is not active yet.
    bed.until("Kueue says why", lambda: any(words in each for each in why_it_waits(bed, namespace)))
    assert not bed.pods("big", namespace)
