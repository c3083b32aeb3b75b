"""All that is rendered and judged by the rules: defaults, every file of chart/ci, the old guides' lines, odd values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.chart import seeds
from tests.chart.helm import CHART, IMAGE, ROOT, Words, sets

Case = Callable[[Path], Words]
"""The words of a case, which may put files into the directory."""

REFUSED = {("s000-testbed", "old values"), ("s003-pai", "our values")}
"""The values file of the one mounts an NFS whose address its reader has to fill in, which the line does not do; the
storage of the other is in its own values file alone."""


ALL_STORAGE = (
    "volumes.nfs.ip=10.0.0.2,volumes.ssdMountPath=/ssd,task_script=echo,workload.env.HF_TOKEN=1,"
    "volumes.lustre.ip=10.0.0.3,volumes.lustre.filesystem=123,volumes.lustre.instanceName=45,"
    "volumes.lustre.projectId=678,volumes.lustre.location=us-central1-a,"
    "volumes.gcsMounts[0].bucketName=9876,"
    "volumes.gcsMounts[2].bucketName=a.b_c,volumes.gcsMounts[2].mountPath=/b/,"
    "volumes.pvcMounts[1].claimName=mine,volumes.pvcMounts[1].mountPath=/data,volumes.pvcMounts[1].readOnly=true,"
    "volumes.pvcMounts[2].claimName=nfs-pvc,volumes.pvcMounts[2].mountPath=/own,volumes.pvcMounts[2].own=true"
)
SETTABLE = {
    "A4_LOG_FORMAT": "text",
    "A4_RUN_DIR": "/run/mine",
    "NCCL_INIT_SCRIPT": "/own/nccl.sh",
    "NCCL_PLUGIN_PATH": "/own/lib",
    "PAI_WORKSPACE_ROOT": "/data",
    "SLEEP_INFINITY": "false",
}
RELEASES = {
    # What YAML takes for something else when it stands without quotes.
    "a release that is a truth": ("true", "0x1f", ALL_STORAGE),
    "a release that is nothing": ("null", "123", ALL_STORAGE),
    "a release that is off": ("off", "1e3", ALL_STORAGE),
    "a release with dots": ("a.b.c", "null", ALL_STORAGE),
    "the longest release": ("a" * 41, "team-a", "workload.gpus=8000"),
}
"""Release, namespace and settings."""
ODD = {
    "numbers as words": "queue=123,targetNodes={1,2,3,4},nodeSelector.a=1,podLabels.b=2,podAnnotations.c=3",
    "truths as words": "avoidNodes={node-1},nodeSelector.a=true,podLabels.b=true,podAnnotations.c=true",
    "arguments of all kinds": "workload.run=nccl,workload.arguments={--size,8388608,true,0.5,a b}",
    "every restart": "workload.restartOn={any},workload.max_workload_restarts=2",
    "restarts and a zero": "workload.max_workload_restarts=3,workload.ttlSecondsAfterFinished=0",
    "lives": "workload.lives=3,workload.max_workload_restarts=1,workload.restartOn={1,137},queue=a4",
    "lives that are said twice, and every restart": (
        "workload.lives=012,workload.env.A4_LIVES=12,workload.restartOn={any},workload.sleepInfinity=true"
    ),
    "requests": "workload.resources.requests.cpu=200,workload.resources.limits.memory=3000Gi",
    "one variable three times": (
        "workload.env.A=1,workload.envs[9].name=A,workload.envs[9].value=1,workload.envs[10].name=A"
    ),
    "a variable from a field": ("workload.envs[9].name=A,workload.envs[9].valueFrom.fieldRef.fieldPath=status.podIP"),
    "a token from a Secret, and an empty one": (
        "workload.envFromSecrets.HF_TOKEN.secret=hf,workload.envFromSecrets.HF_TOKEN.key=t,workload.envs[2].value="
    ),
    # The chart sets each of these itself, and they may be set.
    "variables that are the chart's by default": ",".join(
        [
            *(f"workload.{key}.{name}={value}" for key in ("defaultEnv", "env") for name, value in SETTABLE.items()),
            "workload.envs[1].value=true,workload.envs[7].value=/data",
        ]
    ),
    "the same as defaults alone": ",".join(f"workload.defaultEnv.{name}={value}" for name, value in SETTABLE.items()),
    "DeepEP by a default": "workload.defaultEnv.RUN_DEEPEP_TEST=true",
    "variables of NCCL by their numbers": (
        "network.ncclSettings[0].value=WARN,network.ncclSettings[1].value=eth2,workload.env.NCCL_DEBUG=TRACE"
    ),
    "Secrets for images, some twice": r"imagePullSecrets=a\,b\,a\,",
    "a cluster with another domain": "network.clusterDomain=k8s.example",
    "networks of one's own": "network.hostNetwork=false,network.subnetworks={a,b,c}",
    "claims of a class and number of one's own, in a queue": (
        "network.hostNetwork=false,network.dranet.enabled=true,network.dranet.deviceClass=netdev.google.com,"
        "network.dranet.count=4,queue=a4"
    ),
    "claims of part of a node": (
        "network.hostNetwork=false,network.dranet.enabled=true,network.dranet.deviceClass=,workload.gpus=4"
    ),
    "TCPX in one pod": ("network.tcpx.enabled=true,network.tcpx.nativeSidecar=false,workload.gpus=8,workload.run=nccl"),
    "a volume of one's own": (
        "volumes.extra[0].name=x,volumes.extra[0].persistentVolumeClaim.claimName=x,"
        "volumes.extraMounts[0].name=x,volumes.extraMounts[0].mountPath=/x"
    ),
    "two parts of one volume, and mounts in mounts": (
        "volumes.extra[0].name=x,volumes.extra[0].persistentVolumeClaim.claimName=x,"
        "volumes.extra[1].name=s,volumes.extra[1].secret.secretName=mine,volumes.nfs.ip=10.0.0.2,"
        "volumes.extraMounts[0].name=x,volumes.extraMounts[0].mountPath=/x/a,volumes.extraMounts[0].subPath=a,"
        "volumes.extraMounts[1].name=x,volumes.extraMounts[1].mountPath=/x/b,volumes.extraMounts[1].subPath=b,"
        "volumes.extraMounts[2].name=s,volumes.extraMounts[2].mountPath=/mnt/x/"
    ),
    "security, accelerator, token and a configuration of one's own": (
        "workload.securityContext.capabilities.add={IPC_LOCK},accelerator=nvidia-l4,workload.gpusPerNode=4,"
        "automountServiceAccountToken=true,workload_config=a: 1,network.gibVersion=v1.1.1@sha256:" + 64 * "0"
    ),
    "Parallelstore": (
        "volumes.psVolumes=true,volumes.pvcMounts[0].claimName=ps,volumes.pvcMounts[0].mountPath=/ps,"
        "workload.psSidecarImage=registry.example/sidecar:1"
    ),
    "no groups at all": "network=null,volumes=null,secret=null,tasSettings=null,dwsSettings=null",
}


def of_file(path: Path) -> Case:
    return lambda directory: Words(("-f", str(path)))


def of_seed(seed: str, values: str) -> Case:
    return lambda directory: seeds.words(seed, values, directory)


def of_settings(release: str, namespace: str, *settings: str) -> Case:
    flags = sets(f"workload.image={IMAGE}", *settings)
    return lambda directory: Words(tuple(flags), release, namespace=namespace)


CI_FILES = sorted((CHART / "ci").glob("*-values.yaml"))
CASES: dict[str, Case] = {
    "defaults": of_settings("demo", "team-a"),
    **{path.name.removesuffix("-values.yaml"): of_file(path) for path in CI_FILES},
    "example": of_file(ROOT / "examples/nccl-values.yaml"),
    **{
        f"{seed} {values}": of_seed(seed, values)
        for seed in seeds.SEEDS
        for values in seeds.VALUES
        if (seed, values) not in REFUSED
    },
    **{name: of_settings(*odd) for name, odd in RELEASES.items()},
    **{name: of_settings("demo", "ns", settings) for name, settings in ODD.items()},
}
