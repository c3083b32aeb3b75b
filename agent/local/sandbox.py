"""The inside of a pod: its network, its file system. Runs in the pod's first process, before its program.

Everything is mounted in the mount namespace of that process, so it all ends with the namespace.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
from collections.abc import Mapping
from typing import NamedTuple

from agent.local.dealt_gpus import devices_of, guarded_parameters
from agent.local.dns_server import resolv_conf
from agent.local.netlink import Netlink
from agent.local.network import cable
from agent.local.podenv import Surroundings
from agent.local.spec import BRIDGE_ADDRESS, METADATA_NAME, ClusterSpec, Mount, address
from agent.local.syscalls import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUTS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    change_root,
    mount,
    unshare,
)
from agent.paths import SECRET_FILE

STATE = "/sys"
"""Where the supervisor's own tmpfs lies, in its own mount namespace: in /sys nothing else of use can."""
SHARED = f"{STATE}/shared"
_POD = f"{STATE}/pod"
_ROOT = f"{_POD}/root"
_UPPER = f"{_POD}/upper"
_GPU_PARAMETERS = "/proc/driver/nvidia/params"
_NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}


class Sandbox(NamedTuple):
    """What the pod's first process has to build around itself."""

    spec: ClusterSpec
    surroundings: Surroundings
    pod: int
    """Its index."""
    bridge: int
    secret: bytes
    """The job's, as this pod has it; empty: none."""
    cgroups: bool
    """As a privileged pod, it sees the machine's whole tree of cgroups."""


def make_state() -> None:
    """The supervisor's part: private mounts, a tmpfs for what all pods share."""
    unshare(CLONE_NEWNS | CLONE_NEWNET)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("a4-local", STATE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    os.mkdir(_POD)
    os.mkdir(SHARED)
    mount("a4-shared", SHARED, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0777")


def enter(sandbox: Sandbox) -> int:
    """Build the sandbox around this process; returns a descriptor of its mount namespace."""
    os.umask(0o022)
    outside = Netlink()
    unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET)
    mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    _connect(sandbox, outside)
    socket.sethostname(sandbox.spec.node_name(sandbox.pod))
    _build_root(sandbox)
    change_root(_ROOT)
    return mounts


def _connect(sandbox: Sandbox, outside: Netlink) -> None:
    # No IPv6 on eth0: its address detection would flood the bridge with multicast from every pod.
    with contextlib.suppress(OSError):
        _write("/proc/sys/net/ipv6/conf/default/disable_ipv6", b"1")
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    outside.add_veth(cable(sandbox.pod), sandbox.bridge, "eth0", own)
    outside.close()
    os.close(own)
    inside = Netlink()
    eth0 = socket.if_nametoindex("eth0")
    inside.set_link(socket.if_nametoindex("lo"), up=True)
    # An address of its own and one gateway, as on a GCE node. With neighbours instead, all pods together
    # would need more ARP entries than the kernel has (1,024 for all namespaces): a ring of 70 pods hangs.
    inside.add_address(eth0, address(sandbox.pod), 32)
    inside.set_link(eth0, up=True)
    inside.add_default_route(BRIDGE_ADDRESS, eth0)
    inside.close()


def _build_root(sandbox: Sandbox) -> None:
    spec, surroundings = sandbox.spec, sandbox.surroundings
    mount("a4-pod", _POD, "tmpfs", MS_NODEV, "mode=0755")
    for path in (_UPPER, f"{_POD}/work", _ROOT):
        os.mkdir(path)
    _fill_upper(_system_files(sandbox))
    _overlay("/", _UPPER, f"{_POD}/work")
    for number, path in enumerate(surroundings.file_systems):
        upper, work = f"{_POD}/upper{number}", f"{_POD}/work{number}"
        os.mkdir(upper)
        os.mkdir(work)
        shutil.copymode(path, upper)
        _overlay(path, upper, work)
    # What comes from outside is opened before, and the rest is done inside, where links and `..` lead to what is the
    # pod's: this machine's root shows through, and with it links that lead anywhere.
    own = devices_of(spec, sandbox.pod, surroundings.gpus)
    devices = {path: os.stat(path) for path in (*spec.devices, *own)}
    sources = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in (SHARED, *surroundings.installation)}
    shared = {path: os.open(source, os.O_PATH | os.O_CLOEXEC) for path, source in spec.directories.items()}
    parameters = _guarded_gpu_parameters()
    outside = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.chroot(_ROOT)
    os.chdir("/")
    _mount_system()
    if sandbox.cgroups:
        mount("cgroup", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _bind(sources.pop(SHARED), "/mnt")
    _make_devices(devices)
    if parameters >= 0:
        _bind(parameters, _GPU_PARAMETERS)
    for path, source in sources.items():
        _bind_read_only(source, path)
    for one in sorted(spec.mounts, key=lambda one: one.path):  # a directory before those in it
        _mount_directory(one)
    for path, source in shared.items():
        os.makedirs(path, exist_ok=True)
        _bind(source, path)
    for path, content in spec.files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(path, content, 0o755)
    os.fchdir(outside)
    os.chroot(".")
    os.close(outside)


def _mount_directory(one: Mount) -> None:
    os.makedirs(one.path, exist_ok=True)
    mount("a4-volume", one.path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for name, content in one.files.items():
        _write(f"{one.path}/{name}", content, one.mode)
    if one.read_only:
        mount("none", one.path, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _overlay(path: str, upper: str, work: str) -> None:
    mount("a4-root", _ROOT + path.rstrip("/"), "overlay", 0, f"lowerdir={path},upperdir={upper},workdir={work}")


def _fill_upper(files: Mapping[str, tuple[int, bytes]]) -> None:
    """Lay files into the upper layer: cheaper than to have overlayfs copy their directories up."""
    for path, (mode, content) in files.items():
        _make_upper_directory(os.path.dirname(path))
        _write(_UPPER + path, content, mode)
    _make_upper_directory("/root")
    os.mkdir(f"{_UPPER}/root/.ssh", 0o700)
    # Opaque: this machine's own keys do not show through, while the rest of /root does.
    os.setxattr(f"{_UPPER}/root/.ssh", "trusted.overlay.opaque", b"y")


def _make_upper_directory(path: str) -> None:
    if path == "/" or os.path.isdir(_UPPER + path):
        return
    _make_upper_directory(os.path.dirname(path))
    os.mkdir(_UPPER + path)
    # The upper directory's mode is the one that counts: keep this machine's.
    with contextlib.suppress(FileNotFoundError):
        os.chmod(_UPPER + path, stat.S_IMODE(os.stat(path).st_mode))


def _guarded_gpu_parameters() -> int:
    """A file by which the driver's libraries find the pod's devices only: as root they would make the files of all
    others. -1 where there is no driver."""
    try:
        with open(_GPU_PARAMETERS, encoding="ascii") as file:
            text = guarded_parameters(file.read())
    except FileNotFoundError:
        return -1
    _write(f"{_POD}/nvidia-params", text.encode(), 0o444)
    return os.open(f"{_POD}/nvidia-params", os.O_PATH | os.O_CLOEXEC)


# Inside: every path from here on is the pod's


def _mount_system() -> None:
    quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC
    for name in ("proc", "sys", "dev", "run", "tmp", "mnt"):
        if not os.path.isdir(f"/{name}"):
            os.mkdir(f"/{name}")
    mount("proc", "/proc", "proc", quiet)
    mount("sysfs", "/sys", "sysfs", quiet | MS_RDONLY)
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=0755")
    mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def _make_devices(devices: Mapping[str, os.stat_result]) -> None:
    os.umask(0)
    for name, (major, minor) in _NODES.items():
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    for path, status in devices.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mknod(path, status.st_mode, status.st_rdev)
    os.umask(0o022)
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    os.mkdir("/dev/pts")
    os.mkdir("/dev/shm")
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "mode=620,ptmxmode=666,gid=5")
    mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    _write("/dev/termination-log", b"", 0o666)


def _bind(source: int, target: str) -> None:
    mount(f"/proc/self/fd/{source}", target, flags=MS_BIND | MS_REC)


def _bind_read_only(source: int, target: str) -> None:
    if stat.S_ISDIR(os.fstat(source).st_mode):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _write(target, b"")
    _bind(source, target)
    mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def _write(path: str, content: bytes, mode: int = 0o644) -> None:
    with open(path, "wb") as file:
        file.write(content)
    if mode != 0o644:
        os.chmod(path, mode)


def _system_files(sandbox: Sandbox) -> dict[str, tuple[int, bytes]]:
    """The files that the kubelet, the Secret and the image would give to a pod: path → mode and content."""
    node, seconds = sandbox.spec.node_name(sandbox.pod), sandbox.spec.slow_bashrc
    hosts = f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{address(sandbox.pod)} {node}\n"
    files = {
        "/etc/hosts": (0o644, f"{hosts}{BRIDGE_ADDRESS} {METADATA_NAME} metadata\n".encode()),
        "/etc/hostname": (0o644, f"{node}\n".encode()),
        "/etc/resolv.conf": (0o644, resolv_conf().encode()),
        "/usr/local/bin/a4-agent": (0o755, sandbox.surroundings.command.encode()),
    }
    if sandbox.secret:
        files[SECRET_FILE] = (0o400, sandbox.secret)
    if seconds:
        slow = f"sleep {seconds}\necho 'this .bashrc took {seconds} seconds'\n"
        files["/root/.bashrc"] = (0o644, slow.encode())
    return files
