"""A pod's directory on the disk: its volumes, its files in /etc, its containers' logs."""

from __future__ import annotations

import os
from pathlib import Path

from agent.workbench.local.dns_server import resolv_conf
from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.files_of_volumes import replace
from tests.kubernetes.kubelet.machine import Host, Machine
from tests.kubernetes.kubelet.plan import bucket_of, host_name, hosts, volume_problem
from tests.kubernetes.kubelet.quantity import number
from tests.kubernetes.kubelet.sources import Missing, Sources
from tests.kubernetes.kubelet.volumes import KINDS, files
from tests.kubernetes.runtime import Sandbox


def home(machine: Machine, pod: Object) -> Path:
    return machine.pods / str(pod["metadata"]["uid"])


def log_of(machine: Machine, pod: Object, container: str) -> Path:
    return home(machine, pod) / "logs" / f"{container}.log"


def write_system_files(machine: Machine, pod: Object, address: str) -> None:
    etc = home(machine, pod) / "etc"
    etc.mkdir(parents=True, exist_ok=True)
    (etc / "hostname").write_text(f"{host_name(pod)}\n")
    (etc / "hosts").write_text(hosts(pod, address))
    (etc / "resolv.conf").write_text(resolv_conf(pod["metadata"]["namespace"], machine.dns))


def mount(machine: Machine, host: Host, pod: Object, sources: Sources) -> None:
    """Make every volume. Raises Missing, which names the volume."""
    (home(machine, pod) / "logs").mkdir(parents=True, exist_ok=True)
    for volume in pod["spec"].get("volumes") or ():
        try:
            _mount(machine, home(machine, pod) / "volumes" / volume["name"], host, pod, volume, sources)
        except Missing as missing:
            raise Missing(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {missing}') from missing
    _make_sub_paths(home(machine, pod) / "volumes", pod)


def mount_memory(machine: Machine, pod: Object, sandbox: Sandbox) -> None:
    """Volumes in memory, which the sandbox has."""
    for volume in pod["spec"].get("volumes") or ():
        if _in_memory(volume):
            limit = volume["emptyDir"].get("sizeLimit")
            made = sandbox.volume(volume["name"], int(number(limit)) if limit else None)
            place = home(machine, pod) / "volumes" / volume["name"]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(made)


def _in_memory(volume: Object) -> bool:
    return (volume.get("emptyDir") or {}).get("medium") == "Memory"


def refresh(machine: Machine, host: Host, pod: Object, sources: Sources) -> None:
    """Files of Secrets and ConfigMaps that have changed; one that is gone stays as it was."""
    for volume in pod["spec"].get("volumes") or ():
        if KINDS & set(volume):
            directory = home(machine, pod) / "volumes" / volume["name"]
            try:
                replace(directory, files(volume, sources))
            except Missing:
                continue


def _mount(machine: Machine, directory: Path, host: Host, pod: Object, volume: Object, sources: Sources) -> None:
    if problem := volume_problem(volume):
        raise Missing(problem)
    if KINDS & set(volume):
        replace(directory, files(volume, sources))
    elif "hostPath" in volume:
        _link(directory, _host_path(host, volume["hostPath"]))
    elif bucket := bucket_of(volume):
        _link(directory, _made(machine.pods.with_name("buckets") / bucket))
    elif not _in_memory(volume) and not directory.exists():
        directory.mkdir(parents=True)
        directory.chmod(0o777)


def _host_path(host: Host, given: Object) -> Path:
    there: Path = host.directory / given["path"].lstrip("/")
    kind = given.get("type") or ""
    if kind in ("", "DirectoryOrCreate"):
        there.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        there.parent.mkdir(parents=True, exist_ok=True)
        there.touch()
    elif not there.exists() or (kind == "Directory" and not there.is_dir()):
        raise Missing(f"hostPath type check failed: {given['path']} is not a {kind.lower()}")
    return there


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _link(directory: Path, there: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    if not directory.is_symlink():
        os.symlink(there, directory)


def _make_sub_paths(volumes: Path, pod: Object) -> None:
    every = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    disk = {volume["name"] for volume in pod["spec"].get("volumes") or () if not _in_memory(volume)}
    mounts = [mounted for container in every for mounted in container.get("volumeMounts") or ()]
    for mounted in [mounted for mounted in mounts if mounted["name"] in disk]:
        below = volumes / mounted["name"] / mounted.get("subPath", "")
        if not below.exists():
            below.mkdir(parents=True)
