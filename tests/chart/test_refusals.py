"""What the chart refuses by looking at several values together, and in which words."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.chart.cases import SETTABLE
from tests.chart.helm import CHART, ENGINES, Engines, HelmRefused, sets

REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "no image": (("workload.image=",), "workload.image is not set"),
    "part of a second node": (("workload.gpus=12",), "workload.gpus=12: .*such as 8 or 16"),
    "nodes to use and to avoid": (("targetNodes={a}", "avoidNodes={b}"), "targetNodes and avoidNodes are both set"),
    "NFS without an address": (("volumes.nfs.enabled=true",), "set volumes.nfs.ip"),
    "half a Filestore instance": (("volumes.nfs.ip=10.0.0.2", "volumes.nfs.instance=f"), "volumes.nfs.region"),
    "Lustre by its address alone": (("volumes.lustre.ip=10.0.0.3",), "set volumes.lustre.filesystem"),
    "two things to run": (("task_script=echo", "workload.run=nccl"), "task_script, workload.run=nccl"),
    "a script beside DeepEP": (("task_script=echo", "workload.env.RUN_DEEPEP_TEST=true"), "RUN_DEEPEP_TEST=true"),
    "two scripts": (("task_script=echo", "workload_launcher=echo"), "workload_launcher, task_script"),
    "script without one": (("workload.run=script",), "--set-file task_script=FILE"),
    "a workload as launcher": (("workload_launcher=exec a4-agent run nccl",), "set workload.run=nccl"),
    "Pai-Megatron without a place": (("workload.run=pai-megatron-qwen3",), "storage that all pods share"),
    "DeepEP on one node": (("workload.run=deepep", "workload.gpus=8"), "workload.gpus to 16"),
    "DWS without Kueue": (("dwsSettings.maxRunDurationSeconds=3600",), "set queue"),
    "a request that Kueue does not know": (("queue=q", "tasSettings.topologyRequest.a=b"), "exactly one"),
    "a variable of the pod contract": (("workload.env.NNODES=2",), "NNODES is the chart's to set: use workload.gpus"),
    "the same by number": (("workload.envs[9].name=A4_SSH_PORT", "workload.envs[9].value=22"), "use network.sshPort"),
    "a placeholder of an old values file": (
        ("volumes.nfs.ip=10.0.0.2,volumes.nfs.region=REGION_NAME,volumes.nfs.instance=my-filestore",),
        "volumes.nfs.region is REGION_NAME, as the old values file has it: write your own",
    ),
    "the same of the unified testbed": (
        ("volumes.nfs.ip=10.0.0.2,volumes.nfs.volume=<YOUR_VOLUME_NAME>",),
        "volumes.nfs.volume is <YOUR_VOLUME_NAME>, as the old values file has it",
    ),
    "a variable with two values": (
        ("workload.env.A=1", "workload.envs[9].name=A,workload.envs[9].value=2"),
        "A is in workload.env and in workload.envs, with different values: drop one of them",
    ),
    "the same, one from a Secret": (
        ("workload.env.A=1", "workload.envFromSecrets.A.secret=s,workload.envFromSecrets.A.key=k"),
        "A is in workload.env and in workload.envFromSecrets, with different values",
    ),
    "whether the cluster stays, twice": (
        ("workload.env.SLEEP_INFINITY=true", "workload.envs[1].value=false"),
        "SLEEP_INFINITY is in workload.env and in workload.envs",
    ),
    "a variable without a name": (("workload.envs[9].value=2",), r"workload.envs\[9\] has no name"),
    "a second bucket in no place": (("volumes.gcsMounts[1].bucketName=b",), r"volumes.gcsMounts\[1\] has no mountPath"),
    "two volumes in one place": (
        ("volumes.nfs.ip=10.0.0.2", "volumes.pvcMounts[0].claimName=c", "volumes.pvcMounts[0].mountPath=/mnt"),
        "both to be mounted at /mnt",
    ),
    "TCPX with part of a node": (("network.tcpx.enabled=true", "workload.gpus=4"), "workload.gpus to 8"),
    "NFS without a share": (("volumes.nfs.ip=10.0.0.2", "volumes.nfs.volume="), "volumes.nfs.volume is not set"),
    "a bucket with its scheme": (("volumes.gcsMounts[0].bucketName=gs://b",), "without gs://"),
    "a claim in no place": (("volumes.pvcMounts[0].claimName=c",), "both claimName and mountPath"),
    "a setting of NCCL without a name": (("network.ncclSettings[5].value=1",), r"ncclSettings\[5\] has no name"),
    "TCPX without a daemon": (("network.tcpx.enabled=true,network.tcpx.daemonImage=",), "daemonImage is not set"),
    "claims in the node's network": (("network.dranet.enabled=true",), "set network.hostNetwork=false"),
    "claims beside TCPX": (
        ("network.dranet.enabled=true", "network.hostNetwork=false", "network.tcpx.enabled=true"),
        "without network.tcpx",
    ),
    "claims beside networks": (
        ("network.dranet.enabled=true", "network.hostNetwork=false", "network.subnetworks={default,rdma-0}"),
        "two ways to the same NICs",
    ),
    "nothing to run and a script": (("workload.run=none", "task_script=echo"), "workload.run=none beside task_script"),
    "one host for many pods": (
        ("queue=q", "tasSettings.mode=required,tasSettings.level=host"),
        "all pods are asked to be on one host",
    ),
    "no number of GPUs": (("workload.gpus=many",), "workload.gpus is not a number above 0"),
    "no GPUs": (("workload.gpus=0",), "workload.gpus is not a number above 0"),
    "fewer GPUs than none": (("workload.gpus=-8",), "workload.gpus is not a number above 0"),
    "an image with a placeholder": (
        ("workload.image=<REPO>/image:1",),
        "workload.image=<REPO>/image:1 is not an image",
    ),
    "an image with a variable": (("workload.image=$REPO/image:1",), "is not an image: name one with a4-agent in it"),
    "an image with a space": (("workload.image=repo/image 1",), "is not an image"),
    "one port for torchrun and sshd": (("network.masterPort=2222",), "network.masterPort=2222 is taken"),
    "one port for torchrun and helm test": (
        ("network.sshPort=6001",),
        "network.masterPort=6002 is taken: 6001 .* 6002",
    ),
    "a mount over the secret": (
        ("volumes.nfs.ip=10.0.0.2", "volumes.nfs.mountPath=/etc/a4-agent/secret"),
        "the chart's own and volumes.nfs are both to be mounted at /etc/a4-agent/secret",
    ),
    "a mount over shared memory": (
        ("volumes.pvcMounts[0].claimName=c", "volumes.pvcMounts[0].mountPath=/dev/shm/"),
        r"the chart's own and volumes.pvcMounts\[0\] are both to be mounted at /dev/shm:",
    ),
    "a mount over gIB": (
        ("volumes.gcsMounts[0].bucketName=b", "volumes.gcsMounts[0].mountPath=/usr//local/./gib"),
        "both to be mounted at /usr/local/gib",
    ),
    "a mount over gIB's tests": (("volumes.ssdMountPath=/third_party",), "both to be mounted at /third_party"),
    "a mount over TCPX's socket": (
        ("network.tcpx.enabled=true", "volumes.ssdMountPath=/run/tcpx"),
        "both to be mounted at /run/tcpx",
    ),
    "a mount over the agent": (
        ("workload.agentImage=a:1", "volumes.ssdMountPath=/opt/a4-agent"),
        "both to be mounted at /opt/a4-agent",
    ),
    "nodes with GB200": (("accelerator=nvidia-gb200",), r"nodes with nvidia-gb200 \(A4X\) are not supported: "),
    "nodes with GB300 by their label": (
        (r"nodeSelector.cloud\.google\.com/gke-accelerator=nvidia-gb300",),
        r"nodes with nvidia-gb300 \(A4X\) are not supported: ",
    ),
    **{
        f"the old image {image}": (
            (f"workload.image={image}",),
            f"workload.image={image} is an image of the old testbeds, which has no a4-agent: build the one .* or add "
            "workload.agentImage=",
        )
        for image in (
            "us-docker.pkg.dev/p/r/unified-testbed-pytorch:25.06-py3",
            "us-docker.pkg.dev/p/r/unified-testbed-pytorch:25.12",
            "testbed:nemo25.04-gib1.0.6-A4",
            "r/nemo-deepep:25.11",
            "r/pai_megatron_patch_a4:25.04",
            "dsw-registry.cn-wulanchabu.cr.aliyuncs.com/pai/pai-megatron-patch:25.04",
        )
    },
    "a mount over the script": (
        ("task_script=echo", "volumes.ssdMountPath=/workload/task"),
        "mounted at /workload/task",
    ),
    "two mounts of one's own in one place": (
        (
            "volumes.extra[0].name=x,volumes.extra[0].emptyDir.medium=Memory",
            "volumes.extraMounts[0].name=x,volumes.extraMounts[0].mountPath=/x",
            "volumes.extraMounts[1].name=x,volumes.extraMounts[1].mountPath=/x/",
        ),
        r"volumes.extraMounts\[0\] and volumes.extraMounts\[1\] are both to be mounted at /x",
    ),
    "two parts of a volume in one place": (
        (
            "volumes.extra[0].name=x,volumes.extra[0].emptyDir.medium=Memory",
            "volumes.extraMounts[0].name=x,volumes.extraMounts[0].mountPath=/x,volumes.extraMounts[0].subPath=a",
            "volumes.extraMounts[1].name=x,volumes.extraMounts[1].mountPath=/x,volumes.extraMounts[1].subPath=b",
        ),
        "both to be mounted at /x",
    ),
    "a volume with the name of one of the chart's": (
        ("volumes.extra[0].name=shared-memory,volumes.extra[0].emptyDir.medium=Memory",),
        r"volumes.extra\[0\] is named shared-memory",
    ),
    "a volume with the name of a bucket's": (
        ("volumes.gcsMounts[0].bucketName=b", "volumes.extra[0].name=gcs-0,volumes.extra[0].emptyDir.medium=Memory"),
        r"volumes.extra\[0\] is named gcs-0",
    ),
    "two volumes of one name": (
        ("volumes.extra[0].name=x,volumes.extra[0].emptyDir.medium=Memory,volumes.extra[1].name=x",),
        r"volumes.extra\[1\] is named x",
    ),
    "a mount of no volume": (
        ("volumes.extraMounts[0].name=x,volumes.extraMounts[0].mountPath=/x",),
        r"volumes.extraMounts\[0\] mounts x, and there is no such volume",
    ),
    "a mount in no place": (
        ("volumes.nfs.ip=10.0.0.2", "volumes.extraMounts[0].name=nfs"),
        r"\n- volumes.extraMounts\[0\]",
    ),
    "a volume without a name": (("volumes.extra[0].emptyDir.medium=Memory",), r"\n- volumes.extra\[0\]"),
    "no whole nodes of four GPUs": (
        ("workload.gpusPerNode=4", "workload.gpus=10"),
        r"workload.gpus=10: write up to 4 for one pod, .* such as 8 or 12",
    ),
    "TCPX with four GPUs": (
        ("workload.gpusPerNode=4", "network.tcpx.enabled=true"),
        "GPUDirect-TCPX wants all 8 GPUs of each node",
    ),
    "DeepEP in one pod of four GPUs": (
        ("workload.gpusPerNode=4", "workload.gpus=4", "workload.run=deepep"),
        "set workload.gpus to 8 or more",
    ),
    "fewer nodes than pods of four GPUs": (
        ("workload.gpusPerNode=4", "workload.gpus=8", "targetNodes={a}"),
        "targetNodes names 1 of the 2 nodes",
    ),
    "fewer nodes than pods": (("targetNodes={a,b}",), "targetNodes names 2 of the 4 nodes that workload.gpus=32 needs"),
    "fewer nodes than pods, as one text": (("targetNodes=a\\,a\\,b",), "targetNodes names 2 of the 4 nodes"),
    "nothing to run beside DeepEP": (
        ("workload.run=none", "workload.env.RUN_DEEPEP_TEST=true"),
        "workload.run=none beside RUN_DEEPEP_TEST=true",
    ),
    "arguments of nothing": (
        ("workload.arguments={--steps,20}",),
        "arguments without anything to run: set workload.run",
    ),
    "default arguments of nothing": (("workload.defaultArguments={-b,1G}",), "arguments without anything to run"),
    "arguments that are no list": (
        ("workload.run=nccl", "workload.arguments=--end 8G"),
        "workload.arguments is not a list: write --set 'workload.arguments={",
    ),
    "a directory in a bucket": (("volumes.gcsMounts[0].bucketName=b/logs",), "the bucket's name alone; .*only-dir="),
    "NFS at an empty address": (("volumes.nfs.ip=",), "volumes.nfs.ip is empty: if it came from a variable"),
    "Lustre at an empty address": (("volumes.lustre.ip=",), "volumes.lustre.ip is empty: if it came from a variable"),
    "NFS at an address with its share": (
        ("volumes.nfs.ip=10.0.0.2:/vol1",),
        "volumes.nfs.ip=10.0.0.2:/vol1 is no addr",
    ),
    "Lustre at a whole mount point": (
        ("volumes.lustre.ip=10.0.0.3@tcp:/lustrefs", "volumes.lustre.enabled=true"),
        "volumes.lustre.ip=10.0.0.3@tcp:/lustrefs is no address",
    ),
    "a value beside a source": (
        (
            "workload.envs[9].name=A,workload.envs[9].value=1,workload.envs[9].valueFrom.fieldRef.fieldPath=status.podIP",
        ),
        r"workload.envs\[9\], A, has a value and a valueFrom",
    ),
    "half a reference to a Secret": (("workload.envFromSecrets.A.secret=s",), "workload.envFromSecrets.A needs both"),
    "the other half": (("workload.envFromSecrets.A.key=k",), "workload.envFromSecrets.A needs both"),
    "a place for the agent that is none": (
        ("workload.env.A4_RUN_DIR=run/mine",),
        "A4_RUN_DIR=run/mine: write an absolute",
    ),
    "the same as a default": (("workload.defaultEnv.A4_RUN_DIR=/run/$(id)",), "A4_RUN_DIR=.*: write an absolute path"),
    "what the chart must know, from a Secret": (
        ("workload.envFromSecrets.SLEEP_INFINITY.secret=s,workload.envFromSecrets.SLEEP_INFINITY.key=k",),
        "SLEEP_INFINITY has a valueFrom: write its value",
    ),
    "neither sleep nor not": (("workload.env.SLEEP_INFINITY=perhaps",), "neither true nor false: write one of them"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_what_to_write_is_said(engines: Engines, case: str) -> None:
    settings, said = REFUSED[case]
    with pytest.raises(HelmRefused, match=said):
        engines.with_values(*sets(*settings))


@pytest.mark.parametrize("engine", ENGINES)
def test_everything_that_is_wrong_is_said_at_once(engines: Engines, engine: str) -> None:
    with pytest.raises(HelmRefused) as refused:
        engines.with_values(*sets("workload.image=", "workload.gpus=12", "queue="), engine=engine, release="9-lives")
    said = str(refused.value)
    assert "a4-agent: these values cannot be used:\n- " in said
    assert all(part in said for part in ("workload.image", "workload.gpus=12", "9-lives"))


def test_a_release_has_as_long_a_name_as_its_pods_leave_room_for(engines: Engines) -> None:
    # <name>-helm-test-0-3-xxxxx, which is longer than that of the release's own pods
    fits = 63 - len("-helm-test-0-3-xxxxx")
    engines.with_values(release="a" * fits)
    with pytest.raises(HelmRefused, match=f"at most {fits}"):
        engines.with_values(release="a" * (fits + 1))


TOKENS = {
    "beside what is wrong": ("workload.gpus=12", "workload.env.HF_TOKEN=canary-0123456789"),
    "at the number of another": ("workload.envs[1].value=canary-0123456789",),
    "beside a source": (
        "workload.envs[2].value=canary-0123456789,workload.envs[2].valueFrom.secretKeyRef.name=s",
        "workload.envs[2].valueFrom.secretKeyRef.key=k",
    ),
    "without a name": ("workload.envs[9].value=canary-0123456789",),
    "as a setting of NCCL without a name": ("network.ncclSettings[9].value=canary-0123456789",),
    "in a variable of the chart": ("workload.env.JOB_ID=canary-0123456789",),
    "as whether the cluster stays": ("workload.env.SLEEP_INFINITY=canary-0123456789",),
}


@pytest.mark.parametrize(("case", "engine"), [*((case, "helm4") for case in TOKENS), ("beside what is wrong", "helm3")])
def test_a_refusal_shows_no_secret(engines: Engines, case: str, engine: str) -> None:
    with pytest.raises(HelmRefused) as refused:
        engines.with_values(*sets(*TOKENS[case]), engine=engine)
    assert "canary" not in str(refused.value)


ALL_OF_THE_CHART = (
    "workload.defaultEnv=null",
    "workload.run=nccl",
    "workload.env.A=b",
    "network.profile=a4-gib",
    "volumes.nfs.ip=10.0.0.2",
)
TEMPLATES = re.findall(
    r'^{{- define "a4\.(?:clusterEnv|env)" -}}$.*?^{{- end -}}$',
    (CHART / "templates/_env.tpl").read_text(),
    re.DOTALL | re.MULTILINE,
)
SET_BY_THE_CHART = sorted(set(re.findall(r"\b[A-Z][A-Z0-9_]{3,}\b", "".join(TEMPLATES))))
"""The names of all variables that the chart gives to the workload of itself, whatever else they depend on."""


def refused_names(engines: Engines, place: str) -> set[str]:
    """Those that are refused, if all of these names are set there."""
    with pytest.raises(HelmRefused) as refused:
        engines.with_values(*sets(*(place.format(name=name, at=at) for at, name in enumerate(SET_BY_THE_CHART, 10))))
    return set(re.findall(r"(\w+) is the chart's to set: use ", str(refused.value)))


def test_what_the_chart_sets_is_never_there_twice(engines: Engines) -> None:
    assert len(SET_BY_THE_CHART) > 25
    free = set(SET_BY_THE_CHART) - refused_names(engines, "workload.env.{name}=1")
    settings = [f"workload.env.{name}={SETTABLE.get(name, 1)}" for name in free]
    by_chart, by_both = (
        Counter(entry["name"] for entry in engines.with_values(*sets(*ALL_OF_THE_CHART, *more)).workload["env"])
        for more in ((), settings)
    )
    for name in free:
        assert (by_chart[name], by_both[name]) == (1, 1), (
            f"chart/templates/_env.tpl sets {name}, and so could a user: refuse that by a row in a4.contractNames "
            f"(_variables.tpl); or, if both are meant, make the template give way and ALL_OF_THE_CHART show it"
        )


@pytest.mark.parametrize(
    "place",
    [
        "workload.defaultEnv.{name}=1",
        "workload.envs[{at}].name={name},workload.envs[{at}].value=1",
        "network.ncclSettings[{at}].name={name},network.ncclSettings[{at}].value=1",
        "workload.envFromSecrets.{name}.secret=s,workload.envFromSecrets.{name}.key=k",
        "workload.env.{name}=",
    ],
)
def test_what_the_chart_sets_itself_is_its_own_wherever_it_is_set(engines: Engines, place: str) -> None:
    assert refused_names(engines, place) == refused_names(engines, "workload.env.{name}=1")
