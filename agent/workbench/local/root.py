"""The file system of a container. Built by its first process, before its program.

Everything is mounted in the mount namespace of that process, so it all ends with the namespace.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.workbench.local.dealt_gpus import guarded_parameters
from agent.workbench.local.spec import Mount
from agent.workbench.local.syscalls import (
    CLONE_NEWNS,
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
    setns,
    unshare,
)

STATE = "/sys"
"""Where the supervisor's own tmpfs lies, in its own mount namespace: in /sys nothing else of use can."""
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


class Bind(NamedTuple):
    """A file or directory from outside as a container has it."""

    source: str
    target: str
    read_only: bool = False


class Root(NamedTuple):
    """A container's file system as it shall be. Mounts come in their order."""

    file_systems: Sequence[str] = ()
    """File systems of this machine, beside its root, that show through where the container has written nothing."""
    files: Mapping[str, tuple[int, bytes]] = {}
    """Laid over this machine's root before anything is mounted: path → mode and content."""
    emptied: Mapping[str, int] = {}
    """Directories of which nothing of this machine shows: path → mode."""
    devices: Sequence[str] = ()
    """Device files of this machine."""
    mounts: Sequence[Bind | Mount] = ()
    late_files: Mapping[str, bytes] = {}
    """Written when all is mounted, by paths that may lead into mounts (mode 0755)."""
    cgroups: bool = False
    """As a privileged pod, it sees the machine's whole tree of cgroups."""


def make_state() -> None:
    """The supervisor's part: private mounts, and a tmpfs in which containers find what they bind."""
    unshare(CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("a4-local", STATE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    os.mkdir(_POD)


def enter_root(root: Root) -> list[int]:
    """Build it around this process; returns descriptors of its mount namespace and of its root directory."""
    os.umask(0o022)
    unshare(CLONE_NEWNS)
    mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    _build(root)
    inside = os.open(_ROOT, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    # In a chroot, "/" is not the root of the namespace, which is where setns leads whoever joins it later.
    setns(mounts, CLONE_NEWNS)
    change_root(inside)
    return [mounts, inside]


def _build(root: Root) -> None:
    mount("a4-pod", _POD, "tmpfs", MS_NODEV, "mode=0755")
    for path in (_UPPER, f"{_POD}/work", _ROOT):
        os.mkdir(path)
    _fill_upper(root)
    _overlay("/", "", _UPPER, f"{_POD}/work")
    for number, path in enumerate(root.file_systems):
        upper, work = f"{_POD}/upper{number}", f"{_POD}/work{number}"
        os.mkdir(upper)
        os.mkdir(work)
        shutil.copymode(path, upper)
        _overlay(path, path, upper, work)
    # What comes from outside is opened before, and the rest is done inside, where links and `..` lead to what is the
    # container's: this machine's root shows through, and with it links that lead anywhere.
    devices = {path: os.stat(path) for path in root.devices}
    binds = (one for one in root.mounts if isinstance(one, Bind))
    sources = {one: os.open(one.source, os.O_PATH | os.O_CLOEXEC) for one in binds}
    parameters = _guarded_gpu_parameters()
    outside = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.chroot(_ROOT)
    os.chdir("/")
    _mount_system()
    if root.cgroups:
        mount("cgroup", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _make_devices(devices)
    if parameters >= 0:
        mount(_by_number(parameters), _GPU_PARAMETERS, flags=MS_BIND)
    for one in root.mounts:
        if isinstance(one, Bind):
            _bind(one, sources[one])
        else:
            _mount_directory(one)
    for path, content in root.late_files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(path, content, 0o755)
    os.fchdir(outside)
    os.chroot(".")
    os.close(outside)


def _overlay(lower: str, path: str, upper: str, work: str) -> None:
    lower = lower.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
    mount("a4-root", _ROOT + path, "overlay", 0, f"lowerdir={lower},upperdir={upper},workdir={work}")


def _fill_upper(root: Root) -> None:
    """Lay files into the upper layer: cheaper than to have overlayfs copy their directories up."""
    for path, (mode, content) in root.files.items():
        _make_upper_directory(os.path.dirname(path))
        _write(_UPPER + path, content, mode)
    for path, mode in root.emptied.items():
        _make_upper_directory(os.path.dirname(path))
        os.mkdir(_UPPER + path, mode)
        # By this overlayfs shows nothing of the directory below.
        os.setxattr(_UPPER + path, "trusted.overlay.opaque", b"y")


def _make_upper_directory(path: str) -> None:
    if path == "/" or os.path.isdir(_UPPER + path):
        return
    _make_upper_directory(os.path.dirname(path))
    os.mkdir(_UPPER + path)
    # The upper directory's mode is the one that counts: keep that of this machine's.
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


# Inside: every path from here on is the container's


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


def _mount_directory(one: Mount) -> None:
    os.makedirs(one.path, exist_ok=True)
    mount("a4-volume", one.path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for name, content in one.files.items():
        _write(f"{one.path}/{name}", content, one.mode)
    if one.read_only:
        mount("none", one.path, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _bind(one: Bind, source: int) -> None:
    if stat.S_ISDIR(os.fstat(source).st_mode):
        os.makedirs(one.target, exist_ok=True)
    elif not os.path.exists(one.target):
        os.makedirs(os.path.dirname(one.target), exist_ok=True)
        _write(one.target, b"")
    mount(_by_number(source), one.target, flags=MS_BIND | MS_REC)
    if one.read_only:
        mount("none", one.target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def _by_number(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _write(path: str, content: bytes, mode: int = 0o644) -> None:
    with open(path, "wb") as file:
        file.write(content)
    if mode != 0o644:
        os.chmod(path, mode)
