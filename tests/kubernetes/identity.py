"""Who a container's processes are, and what they may do."""

from __future__ import annotations

import ctypes
import errno
import os

from tests.kubernetes.runtime_requests import Identity

_PR_CAPBSET_DROP = 24
_KNOWN = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
"""
"""In the order of their numbers, linux/capability.h."""
_NAMES = _KNOWN.split()


def take_identity(identity: Identity) -> None:
    """Give up all other rights for what this process becomes. Raises OSError, also for a name that is unknown."""
    if identity.capabilities is not None:
        _bound({_number(name) for name in identity.capabilities})
    os.setgroups(identity.groups)
    os.setgid(identity.group)
    os.setuid(identity.user)


def _bound(kept: set[int]) -> None:
    """A program that root starts gets what is in the bounding set, and no more."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    for number in set(range(last + 1)) - kept:
        if libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_CAPBSET_DROP)")


def _number(name: str) -> int:
    if name not in _NAMES:
        raise OSError(errno.EINVAL, f"there is no capability {name}")
    return _NAMES.index(name)
