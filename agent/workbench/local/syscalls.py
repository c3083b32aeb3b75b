"""The Linux calls that Python's standard library (3.10) lacks, each raising OSError when it fails."""

from __future__ import annotations

import ctypes
import os
import signal
import struct

from agent.machine.process import stat_of

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

_OPENAT2 = 437
_RESOLVE_IN_ROOT = 16
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move this process (for CLONE_NEWPID: its future children) into new namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(fd: int, kind: int) -> None:
    """Join the namespace behind `fd`, or with a pidfd all the namespaces in `kind` of that process."""
    _check(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2) without the program and its helpers."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        os.fsencode(kind),
        ctypes.c_ulong(flags),
        os.fsencode(data) or None,
    )
    _check(result, f"mount {kind or source} on {target}")


def unmount(target: str) -> None:
    """Take a mount away at once, whoever still uses it."""
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(_MNT_DETACH)), f"umount of {target}")


def change_root(new_root: int) -> None:
    """Make the open directory `new_root`, a mount point, the root of this mount namespace and drop the old one."""
    os.fchdir(new_root)
    # With "." twice the old root is stacked over the new one, so no directory is needed to put it in.
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", ctypes.c_int(_MNT_DETACH)), "umount of the old root")
    os.chdir("/")


def open_within(root: int, path: str, flags: int) -> int:
    """A descriptor of `path` as a process sees it that has the directory `root` for its root."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)
    size = ctypes.c_size_t(len(how))
    found = int(_libc.syscall(ctypes.c_long(_OPENAT2), ctypes.c_int(root), os.fsencode(path), how, size))
    _check(min(found, 0), f"openat2 of {path}")
    return found


def pid_outside() -> int:
    """Number of this process in the PID namespace that /proc was mounted for."""
    return int(os.readlink("/proc/self"))


def parent_outside() -> int:
    """Number of this process's parent there, where getppid says 0 to the first process of a namespace."""
    return int(stat_of("/proc/self")[1][1])


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, which has that number in /proc, ends or has ended."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "prctl")
    if parent_outside() != parent:
        os._exit(1)
