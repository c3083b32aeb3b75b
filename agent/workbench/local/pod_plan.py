"""What the sandbox and the container of a local cluster's pod shall be: values, by its spec."""

from __future__ import annotations

from collections.abc import Iterator

from agent.paths import SECRET_FILE
from agent.workbench.local.dealt_gpus import devices_of
from agent.workbench.local.dns_server import resolv_conf
from agent.workbench.local.podenv import Surroundings
from agent.workbench.local.root import STATE, Bind, Root
from agent.workbench.local.spec import BRIDGE_ADDRESS, METADATA_NAME, ClusterSpec, Mount, address

SHARED = f"{STATE}/shared"
"""What all pods have as /mnt."""


def pod_root(
    spec: ClusterSpec, surroundings: Surroundings, index: int, machine: int, *, secret: bytes, cgroups: bool
) -> Root:
    """That of pod `index` on a machine. `secret` is the job's, as this pod has it; empty: none."""
    return Root(
        file_systems=surroundings.file_systems,
        files=_system_files(spec, machine, surroundings.command, secret),
        emptied={"/root/.ssh": 0o700},  # this machine's own keys do not show through
        devices=(*spec.devices, *devices_of(spec, index, surroundings.gpus)),
        mounts=tuple(_mounts(spec, surroundings)),
        late_files=spec.files,
        cgroups=cgroups,
    )


def _mounts(spec: ClusterSpec, surroundings: Surroundings) -> Iterator[Bind | Mount]:
    yield Bind(SHARED, "/mnt")
    yield from (Bind(path, path, read_only=True) for path in surroundings.installation)
    yield from sorted(spec.mounts, key=lambda one: one.path)  # a directory before those in it
    yield from (Bind(source, path) for path, source in spec.directories.items())


def host_files(hostname: str, own_address: str, names: str = "") -> dict[str, tuple[int, bytes]]:
    """What the kubelet writes about a host: path → mode and content. `names` are those of its address."""
    hosts = f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{own_address} {names or hostname}\n"
    return {
        "/etc/hosts": (0o644, f"{hosts}{BRIDGE_ADDRESS} {METADATA_NAME} metadata\n".encode()),
        "/etc/hostname": (0o644, f"{hostname}\n".encode()),
    }


def _system_files(spec: ClusterSpec, machine: int, command: str, secret: bytes) -> dict[str, tuple[int, bytes]]:
    """The files that the kubelet, the Secret and the image would give to a pod: path → mode and content."""
    files = host_files(spec.node_name(machine), address(machine))
    files["/etc/resolv.conf"] = (0o644, resolv_conf().encode())
    files["/usr/local/bin/a4-agent"] = (0o755, command.encode())
    if secret:
        files[SECRET_FILE] = (0o400, secret)
    if spec.slow_bashrc:
        slow = f"sleep {spec.slow_bashrc}\necho 'this .bashrc took {spec.slow_bashrc} seconds'\n"
        files["/root/.bashrc"] = (0o644, slow.encode())
    return files
