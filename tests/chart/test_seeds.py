"""The `helm install` lines of the old guides, as typed, mean what they meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from agent.workloads.network import users_logs
from tests.chart import seeds
from tests.chart.cases import REFUSED
from tests.chart.helm import Engines, HelmRefused, Rendered, Words
from tests.test_workloads import context

DROP_THE_FLAG = "the agent does this now; drop the flag"
IN_ITS_PLACE = "runs in its place"


@dataclass(frozen=True)
class Meant:
    """By a line, with whichever values file it is rendered."""

    release: str
    pods: int = 4
    sleeps: bool = False
    launcher: bool = False
    """It brings a bootstrap script, which is ignored."""
    port: str = "2222"
    workload: str = ""
    """What runs in the place of an old example."""
    queue: str = ""
    workspace: str = ""
    training: str = ""
    driver: str = ""
    """The file system's: nfs for plain NFS, or a CSI driver."""
    bucket: str = "my.bucket_1"
    image: str = "registry.example/testbed:1"


FILESTORE, LUSTRE = "filestore.csi.storage.gke.io", "lustre.csi.storage.gke.io"
PAI_IMAGE = "dsw-registry.cn-wulanchabu.cr.aliyuncs.com/pai/pai-megatron-patch:25.04"
QWEN3, NEXT = "pai-megatron-qwen3", "pai-megatron-qwen3-next"
MEANT = {
    "s000-testbed": Meant("alice-testbed", sleeps=True, launcher=True),
    "s001-testbed": Meant("alice-testbed", sleeps=True, launcher=True),
    "s001-nccl": Meant("alice-nccl-test", workload="nccl"),
    "s001-ddp": Meant("alice-ddp-test", workload="ddp"),
    "s001-qwen3": Meant("alice-qwen3-training", workload=QWEN3, workspace="/mnt", driver="nfs"),
    "s001-qwen3-next": Meant("alice-qwen3-next-training", workload=NEXT, workspace="/mnt", driver="nfs"),
    "s001-sft": Meant("alice-qwen3-next-sft", workload=NEXT, workspace="/mnt", driver="nfs", training="sft"),
    "s001-lustre": Meant("alice-qwen3-lustre", workload=NEXT, workspace="/lustre", driver=LUSTRE, bucket=""),
    "s002-deepep": Meant(
        "alice-deepep", pods=2, sleeps=True, launcher=True, port="222", queue="a4", workspace="/mnt", driver=FILESTORE
    ),
    "s003-pai": Meant(
        "alice-pai-megatron",
        pods=2,
        sleeps=True,
        launcher=True,
        workload=QWEN3,
        queue="a4",
        workspace="/mnt",
        driver=FILESTORE,
        image=PAI_IMAGE,
    ),
}


def test_every_line_has_its_meaning() -> None:
    lines = {path.stem for path in (seeds.OLD / "lines").glob("*.sh")}
    assert lines == set(MEANT) == set(seeds.SEEDS)


def test_lines_mean_what_they_meant(engines: Engines, words: Callable[[str], Words]) -> None:
    for seed, values in product(MEANT, seeds.VALUES):
        if (seed, values) not in REFUSED:
            means(engines.render(words(f"{seed} {values}")), MEANT[seed], values)


def means(line: Rendered, meant: Meant, values: str) -> None:
    claimed = [path for path, volume in line.mounts.items() if "persistentVolumeClaim" in volume]
    drivers = [volume["spec"].get("csi", {}).get("driver", "nfs") for volume in line.kind("PersistentVolume")]
    buckets = {path: one["csi"]["volumeAttributes"]["bucketName"] for path, one in line.mounts.items() if "csi" in one}
    preset = {"/artifacts": "cloud-samples-data"} if values == "old values" else {}
    assert buckets == preset | ({"/gcs": meant.bucket} if meant.bucket else {})
    assert meant == Meant(
        release=line.jobset["metadata"]["name"],
        pods=int(line.env["NNODES"]),
        sleeps=line.env["SLEEP_INFINITY"] == "true",
        launcher=DROP_THE_FLAG in line.notes,
        port=line.env["A4_SSH_PORT"],
        workload=line.env.get("A4_WORKLOAD", ""),
        queue=line.jobset["metadata"]["labels"].get("kueue.x-k8s.io/queue-name", ""),
        workspace=line.env.get("PAI_WORKSPACE_ROOT", ""),
        training=line.env.get("TRAINING_MODE", ""),
        driver="".join(drivers),
        bucket=buckets.get("/gcs", ""),
        image=line.workload["image"],
    )
    assert line.workload["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert line.kind("ConfigMap") == []
    assert (IN_ITS_PLACE in line.notes) == bool(meant.workload)
    assert not any("StrictHostKeyChecking" in text for text in line.sources.values())
    assert claimed == [meant.workspace] * bool(meant.driver)
    assert ("TRAINING_MODE" in line.env.get("A4_USER_ENV", "").split()) == bool(meant.training)
    assert "HF_TOKEN" not in line.env
    in_pods = context("torchrun", "train.py", profile="a4-gib", environ={**line.env, "A4_WRONG_NETWORK": "fail"})
    assert users_logs(in_pods)["NCCL_DEBUG"] == "INFO", "the network is checked, whatever the file presets"


def test_the_instance_of_the_line_is_the_one_that_is_mounted(engines: Engines, words: Callable[[str], Words]) -> None:
    for case, handle, ip, name in (
        ("s002-deepep", "modeInstance/us-central1-b/my-filestore/share1", "10.0.0.2", {"volume": "share1"}),
        ("s001-lustre", "my-project/us-central1-a/my-lustre", "172.27.48.5", {"filesystem": "lustrefs"}),
    ):
        (volume,) = engines.render(words(f"{case} old values")).kind("PersistentVolume")
        assert volume["spec"]["csi"]["volumeHandle"] == handle
        assert volume["spec"]["csi"]["volumeAttributes"] == {"ip": ip, **name}


def test_the_recipe_of_pai_megatron_is_refused_without_its_storage(engines: Engines, tmp_path: Path) -> None:
    with pytest.raises(HelmRefused, match="pai-megatron-qwen3 keeps code, models and data on storage"):
        engines.render(seeds.words("s003-pai", "our values", tmp_path))


def test_an_old_values_file_that_mounts_an_nfs_without_address_is_refused(engines: Engines, tmp_path: Path) -> None:
    """As the old testbed's does until its reader has filled it in; the old chart's pods then never started."""
    typed = seeds.words("s000-testbed", "old values", tmp_path)
    with pytest.raises(HelmRefused, match=r"volumes\.nfs\.ip"):
        engines.render(typed)

    def with_(setting: str) -> Rendered:
        return engines.render(replace(typed, flags=(*typed.flags, "--set", setting)))

    assert "persistentVolumeClaim" in with_("volumes.nfs.ip=10.0.0.2").mounts["/mnt"]
    without = with_("volumes.nfs.enabled=false")
    assert "/mnt" not in without.mounts
    assert "nfs-pvc" in without.notes
