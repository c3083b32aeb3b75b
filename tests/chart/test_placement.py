"""What the chart says to those who place and prepare its pods: Kueue, the scheduler, and GKE with its sidecars."""

from __future__ import annotations

import json
from typing import Any

import pytest

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


def test_a_topology_of_the_user_s_own_replaces_the_chart_s(engines: Engines) -> None:
    for kind in ("required", "preferred", "unconstrained"):
        own = rf"podAnnotations.kueue\.x-k8s\.io/podset-{kind}-topology"
        _, pods = annotations_of(engines.with_settings("queue=a4", f"{own}=mine"))
        found = {key: value for key, value in pods.items() if "kueue" in key}
        assert found == {f"kueue.x-k8s.io/podset-{kind}-topology": "mine"}


@pytest.mark.parametrize(("settings", "count"), [("", 8), ("workload.gpus=4", 4), ("network.dranet.count=2", 2)])
def test_pods_claim_as_many_nics_as_they_have_gpus(engines: Engines, settings: str, count: int) -> None:
    rendered = engines.with_settings("network.hostNetwork=false", "network.dranet.enabled=true", settings)
    (request,) = rendered.one("ResourceClaimTemplate", "-rdma")["spec"]["spec"]["devices"]["requests"]
    nics = {"deviceClassName": "mrdma.google.com", "allocationMode": "ExactCount", "count": count}
    assert request["exactly"] == nics
    # GKE would put the same NICs into the pod once more.
    _, annotations = annotations_of(rendered)
    assert [key for key in annotations if "networking.gke.io" in key] == []


@pytest.mark.parametrize(
    ("settings", "identity"),
    [
        ("", None),
        ("serviceAccountName=reader", "true"),
        ("volumes.gcsPodIdentity=true", "true"),
        ("network.hostNetwork=false", None),
        ("serviceAccountName=reader,volumes.gcsPodIdentity=false", None),
        ("serviceAccountName=reader,volumes.gcsPodIdentity=null", "true"),
        ("network.hostNetwork=false,volumes.gcsPodIdentity=true", None),
    ],
)
def test_buckets_are_opened_as_the_pods_account(engines: Engines, settings: str, identity: str | None) -> None:
    """Where one is named. A pod in its node's network gets it only if it is asked for."""
    buckets = f"{BUCKET},volumes.gcsMounts[1].bucketName=b,volumes.gcsMounts[1].mountPath=/b"
    rendered = engines.with_settings(buckets, settings)
    for path in ("/gcs", "/b"):
        assert rendered.mounts[path]["csi"]["volumeAttributes"].get("hostNetworkPodKSA") == identity
    assert ("buckets are opened as the nodes' service account" in rendered.notes) == (settings == "")


@pytest.mark.parametrize(
    ("value", "storage", "sidecars"),
    [
        ("gcsSidecarImage", BUCKET, ["gke-gcsfuse-metadata-prefetch", "gke-gcsfuse-sidecar"]),
        ("psSidecarImage", PARALLELSTORE, ["gke-parallelstore-sidecar"]),
    ],
)
def test_images_of_sidecars_are_for_their_storage_alone(
    engines: Engines, value: str, storage: str, sidecars: list[str]
) -> None:
    image = f"workload.{value}=registry.example/sidecar:1"
    without = engines.with_settings(image)
    assert [container["name"] for container in without.pod["containers"]] == ["workload"]
    assert f"workload.{value} does nothing without" in without.notes
    with_ = engines.with_settings(image, storage)
    assert f"workload.{value} does nothing" not in with_.notes
    workload, *others = with_.pod["containers"]
    assert workload["name"] == "workload"
    assert others == [{"name": name, "image": "registry.example/sidecar:1"} for name in sidecars]


@pytest.mark.parametrize(
    ("setting", "path", "is_now"),
    [
        ("targetNodes=a\\, b\\,c\\,d\\,", "nodes", ["a", "b", "c", "d"]),
        ("targetNodes={a,b,,c,d,a}", "nodes", ["a", "b", "c", "d"]),
        ("avoidNodes=a\\,b", "nodes", ["a", "b"]),
        ("avoidNodes={}", "nodes", []),
        ("imagePullSecrets=a\\,b", "imagePullSecrets", ["a", "b"]),
        ("imagePullSecrets={a,}", "imagePullSecrets", ["a"]),
        ("imagePullSecrets={}", "imagePullSecrets", []),
    ],
)
def test_names_are_a_list_or_words_with_commas(engines: Engines, setting: str, path: str, is_now: list[str]) -> None:
    pod = engines.with_settings(setting).pod
    if path == "imagePullSecrets":
        assert [each["name"] for each in pod.get(path, [])] == is_now
        return
    terms = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    found = [each for term in terms.get("nodeSelectorTerms", []) for each in term["matchExpressions"]]
    assert [name for each in found for name in each["values"]] == is_now


GKE_LABEL = "cloud.google.com/gke-accelerator"
OWN_LABEL = "nodeSelector.cloud\\.google\\.com/gke-accelerator"


@pytest.mark.parametrize(
    ("settings", "accelerator"),
    [
        ("", "nvidia-b200"),
        ("network.gibVersion=,network.profile=a4-deepep", "nvidia-b200"),
        ("network.gibVersion=", None),
        ("network.tcpx.enabled=true", "nvidia-h100-80gb"),
        ("accelerator=nvidia-h200-141gb", "nvidia-h200-141gb"),
        ("accelerator=", None),
        ("accelerator=null", None),
        (f"{OWN_LABEL}=nvidia-h200-141gb", "nvidia-h200-141gb"),
        ("targetNodes={a,b,c,d}", None),
        ("targetNodes={a,b,c,d},accelerator=nvidia-b200", "nvidia-b200"),
    ],
)
def test_a_job_lands_on_the_nodes_that_it_is_for(engines: Engines, settings: str, accelerator: str | None) -> None:
    rendered = engines.with_settings(settings)
    for pod in pods(rendered):
        assert pod.get("nodeSelector", {}).get(GKE_LABEL) == accelerator
    assert rendered.env.get("A4_ACCELERATOR") == accelerator


def test_empty_words_in_lists_are_left_out(engines: Engines) -> None:
    rendered = engines.with_settings(
        "network.hostNetwork=false,network.subnetworks={default,,rdma-0}",
        "volumes.nfs.ip=10.0.0.2,volumes.nfs.mountOptions={}",
        "workload.arguments={},workload.defaultArguments={}",
    )
    networks = annotations_of(rendered)[1]["networking.gke.io/interfaces"]
    assert [each["network"] for each in json.loads(networks)] == ["default", "rdma-0"]
    (nfs,) = rendered.kind("PersistentVolume")
    assert "mountOptions" not in nfs["spec"]
    assert "args" not in rendered.workload
