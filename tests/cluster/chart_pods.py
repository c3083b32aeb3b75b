"""What Kubernetes makes of the objects that the chart renders, as a local cluster. A pure translation.

JobSet's, Job's and the kubelet's part is played here: labels and annotations, variables, volumes, names. What this
module does not know it refuses, so that nothing in the chart is passed over.

tests/kubernetes has the real controllers. This is for `make test`, which needs no Go and no control plane.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.workbench.local.spec import Mount

Object = dict[str, Any]

NAMESPACE = "default"
SHM = "/dev/shm"
SHARED = "/mnt"
"""Where pods of a local cluster have one directory in common: it stands in for a claim that is mounted there."""
UID = "0f8e1c5a-6f0b-4a0e-9d55-1c3f5f0a7b21"
"""The JobSet's,"""
JOB_UID = "5b0c2f0e-93d1-4f7e-8a34-6d1c1d0f2a90"
"""and of the Job."""
_JOBSET = "jobset.sigs.k8s.io"
_BATCH = "batch.kubernetes.io"


@dataclass(frozen=True)
class Attempt:
    """Which attempt of a JobSet its controller has started."""

    restarts: int = 0
    job_restarts: int | None = None
    """None: a controller that does not count them."""


@dataclass(frozen=True)
class ChartPods:
    """The pods of one Indexed Job in a release."""

    objects: Sequence[Object]
    job: str
    """Name of the Job."""
    subdomain: str
    spec: Object
    """Spec of the Job."""
    secrets: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    """Secrets that exist beside those of the release."""

    @property
    def template(self) -> Object:
        template: Object = self.spec["template"]
        return template

    @property
    def count(self) -> int:
        assert self.spec["completionMode"] == "Indexed" and self.spec["completions"] == self.spec["parallelism"]
        return int(self.spec["completions"])

    def container(self, name: str) -> Object:
        pod = self.template["spec"]
        found = [one for kind in ("containers", "initContainers") for one in pod.get(kind, ()) if one["name"] == name]
        assert len(found) == 1, f"{len(found)} containers {name}"
        container: Object = found[0]
        return container

    def volume(self, name: str) -> Object:
        (found,) = (volume for volume in self.template["spec"]["volumes"] if volume["name"] == name)
        volume: Object = found
        return volume

    def metadata(self, index: int, attempt: Attempt) -> Object:
        """Metadata of pod `index`: the template's, and what the controllers add."""
        own = self.template.get("metadata") or {}
        labels = {f"{_BATCH}/job-name": self.job, f"{_BATCH}/controller-uid": JOB_UID, f"{_JOBSET}/jobset-uid": UID}
        both = {f"{_BATCH}/job-completion-index": str(index), f"{_JOBSET}/restart-attempt": str(attempt.restarts)}
        if attempt.job_restarts is not None:
            both[f"{_JOBSET}/job-restart-attempt"] = str(attempt.job_restarts)
        return {
            "name": f"{self.job}-{index}-x7k2p",
            "namespace": NAMESPACE,
            "labels": {**(own.get("labels") or {}), **labels, **both},
            "annotations": {**(own.get("annotations") or {}), **both},
        }

    def environment(self, name: str, index: int = 0, attempt: Attempt | None = None) -> dict[str, str]:
        """Environment of a container, as the kubelet makes it: nothing but what the chart says."""
        pod = {"metadata": self.metadata(index, attempt or Attempt()), "spec": {"nodeName": f"gke-node-{index}"}}
        env: dict[str, str] = {}
        container = self.container(name)
        assert not container.get("envFrom"), "envFrom"
        for entry in container.get("env", ()):
            value = self._value_from(entry["valueFrom"], pod) if "valueFrom" in entry else None
            env[entry["name"]] = expand(str(entry.get("value", "")), env) if value is None else value
        # The Job's controller adds it where the container has none.
        return {"JOB_COMPLETION_INDEX": str(index), **env}

    def _value_from(self, source: Object, pod: Object) -> str:
        ((kind, where),) = source.items()
        if kind == "secretKeyRef":
            return self.secret(where["name"])[where["key"]].decode()
        assert kind == "fieldRef", kind
        return field_of(pod, where["fieldPath"])

    def secret(self, name: str) -> dict[str, bytes]:
        """Content of a Secret, rendered or existing."""
        if name in self.secrets:
            return dict(self.secrets[name])
        data = find(self.objects, "Secret", name)
        plain = {key: str(value).encode() for key, value in (data.get("stringData") or {}).items()}
        return {**{key: base64.b64decode(value) for key, value in (data.get("data") or {}).items()}, **plain}

    def config_map(self, name: str) -> dict[str, bytes]:
        return {key: str(value).encode() for key, value in find(self.objects, "ConfigMap", name)["data"].items()}

    def command(self, name: str) -> tuple[str, ...]:
        """Command and arguments of a container, as the kubelet expands them."""
        container = self.container(name)
        env = self.environment(name)
        return tuple(expand(str(word), env) for word in (*container["command"], *container.get("args", ())))

    def mounted(self, name: str) -> dict[str, str]:
        """Path in a container → name of the volume there."""
        mounts = self.container(name).get("volumeMounts", ())
        assert not any("subPath" in mount or "subPathExpr" in mount for mount in mounts), "subPath"
        found = {mount["mountPath"]: mount["name"] for mount in mounts}
        assert len(found) == len(mounts), f"two volumes at one path: {mounts}"
        return found

    def mounts(self, name: str) -> tuple[Mount, ...]:
        """The same for a local pod. /dev/shm and /mnt it has by itself."""
        read_only = {mount["mountPath"] for mount in self.container(name)["volumeMounts"] if mount.get("readOnly")}
        found = [self._mount(path, volume, path in read_only) for path, volume in self.mounted(name).items()]
        return tuple(mount for mount in found if mount is not None)

    def _mount(self, path: str, name: str, read_only: bool) -> Mount | None:
        volume = {key: value for key, value in self.volume(name).items() if key != "name"}
        ((kind, source),) = volume.items()
        if path == SHM:
            assert source["medium"] == "Memory", "/dev/shm is not in memory"
            return None
        if kind in ("emptyDir", "hostPath", "csi"):  # nothing of a node or a bucket is here
            return Mount(path, read_only=read_only)
        if kind == "persistentVolumeClaim" and path == SHARED:
            return None
        content = {
            "secret": lambda: self.secret(source["secretName"]),
            "configMap": lambda: self.config_map(source["name"]),
        }[kind]()
        names = {item["key"]: item["path"] for item in source.get("items", ())} or {key: key for key in content}
        files = {path: content[key] for key, path in names.items()}
        # The kubelet mounts both read-only, whatever the mount says.
        return Mount(path, files, source.get("defaultMode", 0o644), read_only=True)

    def cluster(self, *, container: str = "workload", attempt: Attempt | None = None) -> dict[str, Any]:
        """Arguments of a ClusterSpec whose pods have what the chart gives them, and nothing else."""
        assert self.job.endswith("-0"), self.job
        name, _, kind = self.job[: -len("-0")].rpartition("-")
        gpus = (self.container(container).get("resources") or {}).get("limits", {}).get("nvidia.com/gpu", 1)
        return {
            "pods": self.count,
            "gpus_per_pod": int(gpus),
            "name": name,
            "replicated_job": kind,
            "subdomain": self.subdomain,
            "contract": False,
            "entrypoint": self.command(container),
            "pod_env": {index: self.environment(container, index, attempt) for index in range(self.count)},
            "mounts": self.mounts(container),
        }


def find(objects: Iterable[Object], kind: str, name: str = "") -> Object:
    """The only object of a kind, or of a kind and name."""
    found = [one for one in objects if one["kind"] == kind and name in ("", one["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def pods_of_release(objects: Sequence[Object], secrets: Mapping[str, Mapping[str, bytes]] | None = None) -> ChartPods:
    """The pods of the release's JobSet."""
    jobset = find(objects, "JobSet")
    assert jobset["metadata"]["namespace"] == NAMESPACE
    (replicated,) = jobset["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1
    network = jobset["spec"]["network"]
    assert (network["enableDNSHostnames"], network["publishNotReadyAddresses"]) == (True, True)
    name = f"{jobset['metadata']['name']}-{replicated['name']}-0"
    subdomain = network.get("subdomain", jobset["metadata"]["name"])
    return ChartPods(objects, name, subdomain, replicated["template"]["spec"], secrets=secrets or {})


def expand(text: str, env: Mapping[str, str]) -> str:
    """The kubelet's expansion: $(NAME) of a variable that is there, $$ for a dollar sign."""

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return env.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^()\s]+)\)", replaced, text)


def field_of(pod: Object, path: str) -> str:
    """A field of the pod by the downward API; a label that is not there is empty."""
    if found := re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path):
        return str(pod["metadata"][found[1]].get(found[2], ""))
    parent, _, name = path.rpartition(".")
    assert parent in ("metadata", "spec"), path
    return str(pod[parent][name])


_CONTAINER = r"""
set -eu
image=$1 count=$2
shift 2
root=$(mktemp -d)
mount -t tmpfs container "$root"
for path in /*; do
    if [ -e "$image$path" ]; then continue
    elif [ -L "$path" ]; then cp -P "$path" "$root"
    elif [ -d "$path" ]; then mkdir "$root$path" && mount --rbind "$path" "$root$path"
    fi
done
[ ! -d "$image" ] || cp -a "$image/." "$root"
while [ "$count" -gt 0 ]; do
    mkdir -p "$root$2"
    mount --rbind "$1" "$root$2"
    shift 2
    count=$((count - 1))
done
mount -t proc proc "$root/proc"
exec chroot "$root" "$@"
"""


def beside(pods: ChartPods, name: str, *, image: str = "/image", of: str = "workload") -> list[str]:
    """A command line that runs container `name` within a local pod, which is itself container `of`.

    It has a PID namespace of its own, which ends with the command, the volumes that both share where it has them, what
    lies in directory `image` in place of what the pod has there, and only its own environment.
    """
    places = {volume: path for path, volume in pods.mounted(of).items()}
    mounts = [word for path, volume in pods.mounted(name).items() for word in (places[volume], path)]
    env = [f"{key}={value}" for key, value in pods.environment(name).items()]
    start = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _CONTAINER, "container", image]
    inside = ["env"] if name == of else ["env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"]
    return [*start, str(len(mounts) // 2), *mounts, *inside, *env, *pods.command(name)]


def after_init(pods: ChartPods, name: str, entrypoint: Sequence[str]) -> tuple[str, ...]:
    """An entrypoint that runs an init container first, and ends with it if it fails."""
    return ("sh", "-c", f"{shlex.join(beside(pods, name))} && exec {shlex.join(entrypoint)}")
