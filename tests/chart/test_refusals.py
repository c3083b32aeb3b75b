"""What the chart refuses by looking at several values together, and in which words."""

from __future__ import annotations

import re
from collections import Counter

from tests.chart.cases import SETTABLE
from tests.chart.helm import CHART, ENGINES, Engines

DISK = "volumes.extra[0].name=x,volumes.extra[0].emptyDir.medium=Memory"
MOUNTED = f"{DISK},volumes.extraMounts[0].name=x,volumes.extraMounts[0].mountPath=/x"
AGAIN = "volumes.extraMounts[1].name=x,volumes.extraMounts[1].mountPath=/x"
NFS = "volumes.nfs.ip=10.0.0.2"
BUCKET = "volumes.gcsMounts[0].bucketName=b,volumes.gcsMounts[0]"
CLAIM = "volumes.pvcMounts[0].claimName=c,volumes.pvcMounts[0]"
BESIDE = "sidecars[0].image=i,sidecars[0]"
OBJECT = "extraObjects[0].apiVersion=v1,extraObjects[0].kind"
BOTH = "both to be mounted at"
GOOGLES = "us-central1-docker.pkg.dev/deeplearning-images/reproducibility/pytorch-gpu-nemo-nccl:nemo25.04-gib1.0.6-A4"
REFUSED = {
    "workload.image=": "workload.image is not set",
    "workload.gpus=12": "workload.gpus=12: .*such as 8 or 16",
    "targetNodes={a},avoidNodes={b}": "targetNodes and avoidNodes are both set",
    "volumes.nfs.enabled=true": "set volumes.nfs.ip",
    "volumes.nfs.ip=10.0.0.2,volumes.nfs.instance=f": "volumes.nfs.region",
    "volumes.lustre.ip=10.0.0.3": "set volumes.lustre.filesystem",
    "task_script=echo,workload.run=nccl": "task_script, workload.run=nccl",
    "task_script=echo,workload.env.RUN_DEEPEP_TEST=true": "RUN_DEEPEP_TEST=true",
    "task_script=echo,workload_launcher=echo": "workload_launcher, task_script",
    "workload.run=script": "--set-file task_script=FILE",
    "workload_launcher=exec a4-agent run nccl": "set workload.run=nccl",
    "workload.run=pai-megatron-qwen3": "storage that all pods share",
    "workload.run=deepep,workload.gpus=8": "workload.gpus to 16",
    "dwsSettings.maxRunDurationSeconds=3600": "set queue",
    "queue=q,tasSettings.topologyRequest.a=b": "exactly one",
    "workload.env.NNODES=2": "NNODES is the chart's to set: use workload.gpus",
    "workload.env.A4_LIVES=3": "A4_LIVES=3 beside workload.lives=0: set workload.lives, by which lost pods are",
    "workload.lives=3,workload.env.A4_LIVES=4": "A4_LIVES=4 beside workload.lives=3",
    "workload.lives=3,workload.env.A4_LIVES=": "A4_LIVES=0 beside workload.lives=3",
    "workload.lives=3,workload.envFromSecrets.A4_LIVES.secret=s,workload.envFromSecrets.A4_LIVES.key=k": (
        "A4_LIVES has a valueFrom: set workload.lives in its place"
    ),
    "workload.envs[9].name=A4_SSH_PORT,workload.envs[9].value=22": "use network.sshPort",
    "volumes.nfs.ip=10.0.0.2,volumes.nfs.region=REGION_NAME,volumes.nfs.instance=my-filestore": (
        "volumes.nfs.region is REGION_NAME, as the old values file has it: write your own"
    ),
    f"{NFS},volumes.nfs.volume=<YOUR_VOLUME_NAME>": "nfs.volume is <YOUR_VOLUME_NAME>, as the old values file has it",
    "workload.env.A=1,workload.envs[9].name=A,workload.envs[9].value=2": (
        "A is in workload.env and in workload.envs, with different values: drop one of them"
    ),
    "workload.env.A=1,workload.envFromSecrets.A.secret=s,workload.envFromSecrets.A.key=k": (
        "A is in workload.env and in workload.envFromSecrets, with different values"
    ),
    "workload.env.SLEEP_INFINITY=true,workload.envs[1].value=false": (
        "SLEEP_INFINITY is in workload.env and in workload.envs"
    ),
    "workload.envs[9].value=2": r"workload.envs\[9\] has no name",
    "volumes.gcsMounts[1].bucketName=b": r"volumes.gcsMounts\[1\] has no mountPath",
    f"{NFS},{CLAIM}.mountPath=/mnt": f"{BOTH} /mnt",
    "network.tcpx.enabled=true,workload.gpus=4": "workload.gpus to 8",
    "volumes.nfs.ip=10.0.0.2,volumes.nfs.volume=": "volumes.nfs.volume is not set",
    "volumes.gcsMounts[0].bucketName=gs://b": "without gs://",
    "volumes.pvcMounts[0].claimName=c": "both claimName and mountPath",
    "network.ncclSettings[5].value=1": r"ncclSettings\[5\] has no name",
    "network.tcpx.enabled=true,network.tcpx.daemonImage=": "daemonImage is not set",
    "network.dranet.enabled=true": "set network.hostNetwork=false",
    "network.dranet.enabled=true,network.hostNetwork=false,network.tcpx.enabled=true": "without network.tcpx",
    "network.dranet.enabled=true,network.hostNetwork=false,network.subnetworks={default,rdma-0}": (
        "two ways to the same NICs"
    ),
    "workload.run=none,task_script=echo": "workload.run=none beside task_script",
    "queue=q,tasSettings.mode=required,tasSettings.level=host": "all pods are asked to be on one host",
    "workload.gpus=many": "workload.gpus is not a number above 0",
    "workload.gpus=-8": "workload.gpus is not a number above 0",
    "workload.image=<REPO>/image:1": "workload.image=<REPO>/image:1 is not an image",
    "workload.image=$REPO/image:1": "is not an image: name one with a4-agent in it",
    "workload.image=repo/image 1": "workload.image=repo/image 1 is not an image",
    "metrics.podMonitor=true": r"metrics.podMonitor needs metrics.port: set it too, such as 9440",
    "metrics.podMonitoring=true,metrics.port=": "metrics.podMonitoring needs metrics.port",
    "metrics.port=2223": "metrics.port=2223 is taken: it is the port of sshd in helm test",
    "metrics.port=6002": "metrics.port=6002 is taken: it is the port of network.masterPort",
    "workload.env.A4_METRICS_PORT=9440": "A4_METRICS_PORT is the chart's to set: use metrics.port",
    "metrics.port=9440,sidecars[0].name=a,sidecars[0].image=i,sidecars[0].ports[0].containerPort=9440": (
        r"sidecars\[0\] has the port of metrics.port: choose another"
    ),
    "network.masterPort=2222": "network.masterPort=2222 is taken",
    "network.sshPort=6001": "network.masterPort=6002 is taken: 6001 .* 6002",
    f"{NFS},volumes.nfs.mountPath=/etc/a4-agent/secret": f"chart's own and volumes.nfs are {BOTH} /etc/a4-agent/secret",
    f"{CLAIM}.mountPath=/dev/shm/": rf"the chart's own and volumes.pvcMounts\[0\] are {BOTH} /dev/shm:",
    f"{BUCKET}.mountPath=/usr//local/./gib": f"{BOTH} /usr/local/gib",
    "volumes.ssdMountPath=/third_party": "both to be mounted at /third_party",
    "network.tcpx.enabled=true,volumes.ssdMountPath=/run/tcpx": "both to be mounted at /run/tcpx",
    "workload.agentImage=a:1,volumes.ssdMountPath=/opt/a4-agent": "both to be mounted at /opt/a4-agent",
    "accelerator=nvidia-gb200": r"nodes with nvidia-gb200 \(A4X\) are not supported: ",
    r"nodeSelector.cloud\.google\.com/gke-accelerator=nvidia-gb300": (
        r"nodes with nvidia-gb300 \(A4X\) are not supported: "
    ),
    **{
        f"workload.image={image}": f"workload.image={image} is an image of the old testbeds, which has no a4-agent: "
        "build the one .* or add workload.agentImage="
        for image in (
            "us-docker.pkg.dev/p/r/unified-testbed-pytorch:25.06-py3",
            "us-docker.pkg.dev/p/r/unified-testbed-pytorch:25.12",
            "testbed:nemo25.04-gib1.0.6-A4",
            "r/nemo-deepep:25.11",
            "r/pai_megatron_patch_a4:25.04",
            "dsw-registry.cn-wulanchabu.cr.aliyuncs.com/pai/pai-megatron-patch:25.04",
        )
    },
    "workload.image=nvcr.io/nvidia/nemo:25.11": "nemo:25.11 is an image of NVIDIA, which has no a4-agent: ",
    f"workload.image={GOOGLES}": f"{GOOGLES} is an image of Google, which has no a4-agent: ",
    "task_script=echo,volumes.ssdMountPath=/workload/task": "mounted at /workload/task",
    f"{MOUNTED},{AGAIN}/": r"volumes.extraMounts\[0\] and volumes.extraMounts\[1\] are both to be mounted at /x",
    f"{MOUNTED},volumes.extraMounts[0].subPath=a,{AGAIN},volumes.extraMounts[1].subPath=b": "both to be mounted at /x",
    "volumes.extra[0].name=shared-memory,volumes.extra[0].emptyDir.medium=Memory": (
        r"volumes.extra\[0\] is named shared-memory"
    ),
    "volumes.gcsMounts[0].bucketName=b,volumes.extra[0].name=gcs-0,volumes.extra[0].emptyDir.medium=Memory": (
        r"volumes.extra\[0\] is named gcs-0"
    ),
    f"{DISK},volumes.extra[1].name=x": r"volumes.extra\[1\] is named x",
    "volumes.extraMounts[0].name=x,volumes.extraMounts[0].mountPath=/x": (
        r"volumes.extraMounts\[0\] mounts x, and there is no such volume"
    ),
    "volumes.nfs.ip=10.0.0.2,volumes.extraMounts[0].name=nfs": r"\n- volumes.extraMounts\[0\]",
    "volumes.extra[0].emptyDir.medium=Memory": r"\n- volumes.extra\[0\]",
    "workload.gpusPerNode=4,workload.gpus=10": "workload.gpus=10: write up to 4 for one pod, .* such as 8 or 12",
    "workload.gpusPerNode=4,network.tcpx.enabled=true": "GPUDirect-TCPX wants all 8 GPUs of each node",
    "workload.gpusPerNode=4,workload.gpus=4,workload.run=deepep": "set workload.gpus to 8 or more",
    "workload.gpusPerNode=4,workload.gpus=8,targetNodes={a}": "targetNodes names 1 of the 2 nodes",
    "targetNodes={a,b}": "targetNodes names 2 of the 4 nodes that workload.gpus=32 needs",
    r"targetNodes=a\,a\,b": "targetNodes names 2 of the 4 nodes",
    "workload.run=none,workload.env.RUN_DEEPEP_TEST=true": "workload.run=none beside RUN_DEEPEP_TEST=true",
    "workload.arguments={--steps,20}": "arguments without anything to run: set workload.run",
    "workload.defaultArguments={-b,1G}": "arguments without anything to run",
    "workload.run=nccl,workload.arguments=--end 8G": (
        "workload.arguments is not a list: write --set 'workload.arguments={"
    ),
    "volumes.gcsMounts[0].bucketName=b/logs": "the bucket's name alone; .*only-dir=",
    "volumes.nfs.ip=": "volumes.nfs.ip is empty: if it came from a variable",
    "volumes.lustre.ip=": "volumes.lustre.ip is empty: if it came from a variable",
    "volumes.nfs.ip=10.0.0.2:/vol1": "volumes.nfs.ip=10.0.0.2:/vol1 is no addr",
    "volumes.lustre.ip=10.0.0.3@tcp:/lustrefs,volumes.lustre.enabled=true": (
        "volumes.lustre.ip=10.0.0.3@tcp:/lustrefs is no address"
    ),
    "workload.envs[9].name=A,workload.envs[9].value=1,workload.envs[9].valueFrom.fieldRef.fieldPath=status.podIP": (
        r"workload.envs\[9\], A, has a value and a valueFrom"
    ),
    "workload.envFromSecrets.A.secret=s": "workload.envFromSecrets.A needs both",
    "workload.envFromSecrets.A.key=k": "workload.envFromSecrets.A needs both",
    "workload.env.A4_RUN_DIR=run/mine": "A4_RUN_DIR=run/mine: write an absolute",
    "workload.env.A4_PEER_TIMEOUT_SECONDS=10m": (
        r"A4_PEER_TIMEOUT_SECONDS=10m should be a number of seconds \(at least 1\), such as 600"
    ),
    "workload.defaultEnv.A4_LEASE_SECONDS=1": r"A4_LEASE_SECONDS=1 should be a number of seconds \(at least 3\)",
    "workload.maxRestarts=3": "did you mean workload.max_workload_restarts?",
    "workload.env.A4_LEASE_SECOND=60": "A4_LEASE_SECOND is none of a4-agent's settings: did you mean A4_LEASE_SECONDS",
    "workload.defaultEnv.A4_RUN_DIR=/run/$(id)": "A4_RUN_DIR=.*: write an absolute path",
    "workload.envFromSecrets.SLEEP_INFINITY.secret=s,workload.envFromSecrets.SLEEP_INFINITY.key=k": (
        "SLEEP_INFINITY has a valueFrom: write its value"
    ),
    "volumes.ssdMountPath=ssd": "volumes.ssdMountPath has the mountPath ssd: write",
    "volumes.nfs.ip=10.0.0.2,volumes.nfs.mountPath=/": "the chart's own and volumes.nfs are both to be mounted at /",
    "queue=<KUEUE_NAME>": "queue=<KUEUE_NAME> is not the name of a LocalQueue: write",
    "volumes.gcsMounts[0].bucketName=<YOUR_GCS_BUCKET>": (
        r"volumes.gcsMounts\[0\].bucketName=<YOUR_GCS_BUCKET> is not the name of a bucket: write"
    ),
    r"jobLabels.kueue\.x-k8s\.io/queue-name=q": r"jobLabels has kueue\.x-k8s\.io/queue-name: use queue",
    r"jobLabels.helm\.sh/chart=c": r"jobLabels has helm\.sh/chart: leave it out, for the chart sets it",
    r"jobAnnotations.provreq\.kueue\.x-k8s\.io/maxRunDurationSeconds=60": "use dwsSettings.maxRunDurationSeconds",
    r"podLabels.app\.kubernetes\.io/instance=i": r"podLabels has app\.kubernetes\.io/instance: leave it out",
    r"podLabels.kueue\.x-k8s\.io/priority-class=low": r"podLabels has kueue\.x-k8s\.io/priority-class: use jobLabels",
    r"podLabels.jobset\.sigs\.k8s\.io/jobset-name=other": "for the controllers of JobSet and Job set it",
    r"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"
    r".key=cloud\.google\.com/gke-accelerator": "beside accelerator, which stands for nvidia-b200",
    "dnsPolicy=None": "dnsPolicy=None without dnsConfig.nameservers",
    "initContainers[0].name=a": r"initContainers\[0\] needs both name and image",
    f"{BESIDE}.name=workload": r"sidecars\[0\] is named workload, as one of the chart's or of GKE's",
    f"{BESIDE}.name=a,initContainers[0].name=a,initContainers[0].image=i": (
        r"sidecars\[0\] is named a, as initContainers\[0\]: give it another name"
    ),
    f"{BESIDE}.name=a,sidecars[0].volumeMounts[0].name=x,sidecars[0].volumeMounts[0].mountPath=/x": (
        r"sidecars\[0\] mounts x, and there is no such volume: add it to volumes.extra"
    ),
    **{
        f"{BESIDE}.name=a,sidecars[0].ports[0].containerPort={port},network.sshPort=222": (
            rf"sidecars\[0\] has the port of {of}: choose another"
        )
        for port, of in {222: "network.sshPort", 223: "the sshd of helm test", 6002: "network.masterPort"}.items()
    },
    f"{BESIDE}.name=a,sidecars[0].restartPolicy=OnFailure": r"sidecars\[0\] has the restartPolicy OnFailure: leave it",
    f"{OBJECT}=ConfigMap": r"extraObjects\[0\] is not an object of Kubernetes: write one with apiVersion",
    "extraObjects[0]=a: b: c": r"extraObjects\[0\] is not an object of Kubernetes: write one with apiVersion",
    rf"{OBJECT}=Secret,extraObjects[0].metadata.name=\{{\{{ .Release.Name \}}\}}-env": (
        r"extraObjects\[0\] is Secret demo-env, which the chart or JobSet makes itself"
    ),
    "workload.env.SLEEP_INFINITY=perhaps": "neither true nor false: write one of them",
}
"""Settings, and what is said of them."""


def test_what_cannot_be_is_refused_and_what_to_write_is_said(engines: Engines) -> None:
    """By the templates, and not by the schema, which cannot say what to write."""
    said = {settings: engines.refusal(settings) for settings in REFUSED}
    assert [one for one, words in REFUSED.items() if not re.search(words, said[one])] == []
    assert [one for one in REFUSED if "a4-agent: " not in said[one]] == []


def test_everything_that_is_wrong_is_said_at_once(engines: Engines) -> None:
    for engine in ENGINES:
        said = engines.refusal("workload.image=", "workload.gpus=12", "queue=", engine=engine, release="9-lives")
        assert "\na4-agent: these values cannot be used:\n- " in said, "after what Helm says, on a line of its own"
        assert all(part in said for part in ("workload.image", "workload.gpus=12", "9-lives"))


def test_a_release_has_as_long_a_name_as_its_pods_leave_room_for(engines: Engines) -> None:
    # <name>-helm-test-0-3-xxxxx, which is longer than that of the release's own pods
    fits = 63 - len("-helm-test-0-3-xxxxx")
    engines.with_values(release="a" * fits)
    assert f"at most {fits}" in engines.refusal(release="a" * (fits + 1))


TOKENS = {
    "beside what is wrong": "workload.gpus=12,workload.env.HF_TOKEN=canary",
    "at the number of another": "workload.envs[1].value=canary",
    "beside a source": (
        "workload.envs[2].value=canary,workload.envs[2].valueFrom.secretKeyRef.name=s,"
        "workload.envs[2].valueFrom.secretKeyRef.key=k"
    ),
    "without a name": "workload.envs[9].value=canary",
    "as a setting of NCCL without a name": "network.ncclSettings[9].value=canary",
    "in a variable of the chart": "workload.env.JOB_ID=canary",
    "as whether the cluster stays": "workload.env.SLEEP_INFINITY=canary",
}


def test_a_refusal_shows_no_secret(engines: Engines) -> None:
    said = {case: engines.refusal(settings) for case, settings in TOKENS.items()}
    assert [case for case in TOKENS if not said[case] or "canary" in said[case]] == []


ALL_OF_THE_CHART = (
    f"workload.defaultEnv=null,workload.run=nccl,workload.lives=1,workload.env.A=b,network.profile=a4-gib,{NFS}"
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
    said = engines.refusal(*(place.format(name=name, at=at) for at, name in enumerate(SET_BY_THE_CHART, 10)))
    assert said
    return set(re.findall(r"(\w+) is the chart's to set: use ", said))


def test_what_the_chart_sets_is_never_there_twice(engines: Engines) -> None:
    assert len(SET_BY_THE_CHART) > 25
    free = set(SET_BY_THE_CHART) - refused_names(engines, "workload.env.{name}=1")
    settings = [f"workload.env.{name}={SETTABLE.get(name, 1)}" for name in free]
    by_chart, by_both = (
        Counter(entry["name"] for entry in engines.with_settings(ALL_OF_THE_CHART, *more).workload["env"])
        for more in ((), settings)
    )
    for name in free:
        assert (by_chart[name], by_both[name]) == (1, 1), (
            f"chart/templates/_env.tpl sets {name}, and so could a user: refuse that by a row in a4.contractNames "
            f"(_variables.tpl); or, if both are meant, make the template give way and ALL_OF_THE_CHART show it"
        )


def test_what_the_chart_sets_itself_is_its_own_wherever_it_is_set(engines: Engines) -> None:
    anywhere = refused_names(engines, "workload.env.{name}=1")
    for place in (
        "workload.defaultEnv.{name}=1",
        "workload.envs[{at}].name={name},workload.envs[{at}].value=1",
        "network.ncclSettings[{at}].name={name},network.ncclSettings[{at}].value=1",
        "workload.envFromSecrets.{name}.secret=s,workload.envFromSecrets.{name}.key=k",
        "workload.env.{name}=",
    ):
        assert refused_names(engines, place) == anywhere
