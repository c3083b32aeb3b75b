"""A pod's containers as the runtime takes them. Pure: paths and values in, specs out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.kubernetes.kubelet.environment import command, environment, expand
from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.sources import Sources
from tests.kubernetes.runtime import Bind, ContainerSpec

BUCKETS = "gcsfuse.csi.storage.gke.io"
"""GKE's driver. Here a bucket is a directory that all nodes share, and there without being made."""
SYSTEM_FILES = ("hosts", "hostname", "resolv.conf")
"""In /etc of every container, from the kubelet."""


def host_name(pod: Object) -> str:
    """What `hostname` prints: with hostNetwork the node's name."""
    spec = pod["spec"]
    return str(spec["nodeName"] if spec.get("hostNetwork") else spec.get("hostname") or pod["metadata"]["name"])[:63]


def hosts(pod: Object, address: str) -> str:
    name = host_name(pod)
    where = pod["spec"].get("subdomain")
    whole = f"{name}.{where}.{pod['metadata']['namespace']}.svc.cluster.local\t" if where else ""
    own = "" if pod["spec"].get("hostNetwork") else f"{address}\t{whole}{name}\n"
    return f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n{own}"


def container_spec(
    pod: Object,
    container: Object,
    image: Mapping[str, str],
    sources: Sources,
    directory: Path,
    log: Path,
    server: tuple[str, int],
) -> ContainerSpec:
    """`image` is its environment, `directory` the pod's, with `volumes` and `etc`, `server` the API server. Raises
    Missing."""
    standard = {
        "HOSTNAME": host_name(pod),
        "KUBERNETES_SERVICE_HOST": server[0],
        "KUBERNETES_SERVICE_PORT": str(server[1]),
        "HOME": "/root",
        **image,
    }
    env = environment(pod, container, standard, sources)
    return ContainerSpec(
        name=container["name"],
        argv=command(container, env),
        env=env,
        cwd=container.get("workingDir") or "/",
        binds=(*_system_files(directory), *_volume_mounts(pod, container, env, directory)),
        privileged=bool((container.get("securityContext") or {}).get("privileged")),
        termination_path=container.get("terminationMessagePath") or "/dev/termination-log",
        log=log,
    )


def _system_files(directory: Path) -> list[Bind]:
    return [Bind(directory / "etc" / name, f"/etc/{name}") for name in SYSTEM_FILES]


def _volume_mounts(pod: Object, container: Object, env: Mapping[str, str], directory: Path) -> list[Bind]:
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    found = list[Bind]()
    for mount in container.get("volumeMounts") or ():
        below = mount.get("subPath") or expand(mount.get("subPathExpr", ""), env)
        source = directory / "volumes" / mount["name"] / below
        made_of_objects = {"secret", "configMap"} & set(volumes[mount["name"]])
        found.append(Bind(source, mount["mountPath"], bool(mount.get("readOnly") or made_of_objects)))
    # A directory before those in it.
    return sorted(found, key=lambda bind: bind.target)


def volume_problem(volume: Object) -> str:
    """Why a volume cannot be had on a node here; empty: it can. A projected one, for a token, is an empty directory."""
    kinds = {"emptyDir", "hostPath", "secret", "configMap", "projected"}
    (kind,) = set(volume) - {"name"}
    return "" if kind in kinds or bucket_of(volume) else f"no driver for volumes of kind {kind} on this node"


def bucket_of(volume: Object) -> str:
    """The bucket that a volume is; empty for any other."""
    given = volume.get("csi") or {}
    return str(given["volumeAttributes"]["bucketName"]) if given.get("driver") == BUCKETS else ""
