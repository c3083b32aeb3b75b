"""What the chart says to those who place and prepare its pods: Kueue, the scheduler, and GKE with its sidecars."""

from __future__ import annotations

import json
from typing import Any

from tests.chart.helm import Engines, Rendered
from tests.chart.rules import pods

TAS = "kueue.x-k8s.io/podset-preferred-topology"
BUCKET = "volumes.gcsMounts[0].bucketName=a"
PARALLELSTORE = "volumes.psVolumes=true,volumes.pvcMounts[0].claimName=ps,volumes.pvcMounts[0].mountPath=/ps"
DWS = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"


def annotations_of(rendered: Rendered) -> tuple[dict[str, str], dict[str, str]]:
    """The annotations of the JobSet itself and of its pods; its Job has none."""
    job: dict[str, Any] = rendered.jobset["spec"]["replicatedJobs"][0]["template"]
    assert "metadata" not in job
    own = rendered.jobset["metadata"].get("annotations") or {}
    return own, job["spec"]["template"]["metadata"].get("annotations") or {}


def test_kueue_reads_the_duration_from_the_jobset_and_the_topology_from_pods(engines: Engines) -> None:
    jobset, pods = annotations_of(engines.with_settings("queue=a4", "dwsSettings.maxRunDurationSeconds=3600"))
    assert jobset == {DWS: "3600"}
    assert (pods[TAS], DWS in pods) == ("cloud.google.com/gce-topology-block", False)
    without_queue = annotations_of(engines.with_values())
    assert not [key for each in without_queue for key in each if "kueue" in key]
    # One of the user's own replaces the chart's.
    for kind in ("required", "preferred", "unconstrained"):
        own = rf"podAnnotations.kueue\.x-k8s\.io/podset-{kind}-topology"
        _, pods = annotations_of(engines.with_settings("queue=a4", f"{own}=mine"))
        found = {key: value for key, value in pods.items() if "kueue" in key}
        assert found == {f"kueue.x-k8s.io/podset-{kind}-topology": "mine"}


def test_pods_claim_as_many_nics_as_they_have_gpus(engines: Engines) -> None:
    for settings, count in {"": 8, "workload.gpus=4": 4, "network.dranet.count=2": 2}.items():
        rendered = engines.with_settings("network.hostNetwork=false", "network.dranet.enabled=true", settings)
        (request,) = rendered.one("ResourceClaimTemplate", "-rdma")["spec"]["spec"]["devices"]["requests"]
        nics = {"deviceClassName": "mrdma.google.com", "allocationMode": "ExactCount", "count": count}
        assert request["exactly"] == nics
        # GKE would put the same NICs into the pod once more.
        _, annotations = annotations_of(rendered)
        assert [key for key in annotations if "networking.gke.io" in key] == []


def test_buckets_are_opened_as_the_pods_account(engines: Engines) -> None:
    """Where one is named. A pod in its node's network gets it only if it is asked for. The default is noted."""
    by_default, asked, not_asked = (None, None, True), ("true", "true", False), (None, None, False)
    wanted = {
        "": by_default,
        "serviceAccountName=reader": asked,
        "volumes.gcsPodIdentity=true": asked,
        "network.hostNetwork=false": not_asked,
        "serviceAccountName=reader,volumes.gcsPodIdentity=false": not_asked,
        "serviceAccountName=reader,volumes.gcsPodIdentity=null": asked,
        "network.hostNetwork=false,volumes.gcsPodIdentity=true": not_asked,
    }

    def opened(rendered: Rendered) -> tuple[str | None, str | None, bool]:
        first, second = (rendered.mounts[path]["csi"]["volumeAttributes"] for path in ("/gcs", "/b"))
        noted = "buckets are opened as the nodes' service account" in rendered.notes
        return first.get("hostNetworkPodKSA"), second.get("hostNetworkPodKSA"), noted

    buckets = f"{BUCKET},volumes.gcsMounts[1].bucketName=b,volumes.gcsMounts[1].mountPath=/b"
    assert engines.facts(opened, wanted, buckets) == wanted


def test_images_of_sidecars_are_for_their_storage_alone(engines: Engines) -> None:
    image = "registry.example/sidecar:1"
    for value, storage, sidecars in (
        ("gcsSidecarImage", BUCKET, ["gke-gcsfuse-metadata-prefetch", "gke-gcsfuse-sidecar"]),
        ("psSidecarImage", PARALLELSTORE, ["gke-parallelstore-sidecar"]),
    ):
        without, with_ = (engines.with_settings(f"workload.{value}={image}", each) for each in ("", storage))
        assert [container["name"] for container in without.pod["containers"]] == ["workload"]
        assert f"workload.{value} does nothing without" in without.notes
        assert f"workload.{value} does nothing" not in with_.notes
        workload, *others = with_.pod["containers"]
        assert workload["name"] == "workload"
        assert others == [{"name": name, "image": image} for name in sidecars]


def test_names_are_a_list_or_words_with_commas(engines: Engines) -> None:
    wanted = {
        r"targetNodes=a\, b\,c\,d\,": ["a", "b", "c", "d"],
        "targetNodes={a,b,,c,d,a}": ["a", "b", "c", "d"],
        r"avoidNodes=a\,b": ["a", "b"],
        "avoidNodes={}": [],
        r"imagePullSecrets=a\,b": ["a", "b"],
        "imagePullSecrets={a,}": ["a"],
        "imagePullSecrets={}": [],
    }

    def names(rendered: Rendered) -> list[str]:
        affinity = rendered.pod.get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        found = [name for term in terms for each in term["matchExpressions"] for name in each["values"]]
        return [*found, *(each["name"] for each in rendered.pod.get("imagePullSecrets", []))]

    assert engines.facts(names, wanted) == wanted


def test_a_job_lands_on_the_nodes_that_it_is_for(engines: Engines) -> None:
    b200, h200 = "nvidia-b200", "nvidia-h200-141gb"
    wanted = {
        "": b200,
        "network.gibVersion=,network.profile=a4-deepep": b200,
        "network.gibVersion=": None,
        "network.tcpx.enabled=true": "nvidia-h100-80gb",
        f"accelerator={h200}": h200,
        "accelerator=": None,
        "accelerator=null": None,
        rf"nodeSelector.cloud\.google\.com/gke-accelerator={h200}": h200,
        "targetNodes={a,b,c,d}": None,
        f"targetNodes={{a,b,c,d}},accelerator={b200}": b200,
    }

    def accelerator(rendered: Rendered) -> str | None:
        named = rendered.env.get("A4_ACCELERATOR")
        labels = [pod.get("nodeSelector", {}).get("cloud.google.com/gke-accelerator") for pod in pods(rendered)]
        assert labels == [named] * 2
        return named

    assert engines.facts(accelerator, wanted) == wanted


def test_empty_words_and_holes_in_lists_are_left_out(engines: Engines) -> None:
    rendered = engines.with_settings(
        "network.hostNetwork=false,network.subnetworks={default,,rdma-0}",
        "volumes.nfs.ip=10.0.0.2,volumes.nfs.mountOptions={}",
        "workload.arguments={},workload.defaultArguments={}",
        "workload.envs[11].name=ELEVEN,workload.envs[11].value=11",
        "volumes.pvcMounts[2].claimName=mine,volumes.pvcMounts[2].mountPath=/data",
        "volumes.gcsMounts[1].bucketName=b,volumes.gcsMounts[1].mountPath=/b",
        "network.ncclSettings[3].name=NCCL_DEBUG,network.ncclSettings[3].value=INFO",
        "workload.gpus=8,targetNodes[1]=node-1",
    )
    networks = annotations_of(rendered)[1]["networking.gke.io/interfaces"]
    assert [each["network"] for each in json.loads(networks)] == ["default", "rdma-0"]
    (nfs,) = rendered.kind("PersistentVolume")
    assert "mountOptions" not in nfs["spec"]
    assert "args" not in rendered.workload
    assert (rendered.env["ELEVEN"], rendered.env["NCCL_DEBUG"]) == ("11", "INFO")
    assert {"/data", "/b"} <= rendered.mounts.keys()
    assert "node-1" in str(rendered.pod["affinity"])
