"""One resident agent per pod."""

from __future__ import annotations

import fcntl
import os
import time

from agent.machine.files import unusable

_held: list[int] = []
"""Descriptors of our locks: open for as long as the process lives."""


def take_lock(path: str) -> str:
    """Take the lock for the life of this process; returns who holds it instead, empty when we do. Raises SystemFault
    where nothing can be written."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with open(fd, encoding="utf-8", errors="replace") as file:
                return file.read().strip() or "it has just started"
        os.ftruncate(fd, 0)
        os.write(fd, f"pid {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
    except OSError as error:
        raise unusable(path, error) from error
    _held.append(fd)
    return ""
