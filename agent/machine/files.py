"""Files of the agent: written whole or not at all, its private directory, its lock, and the job's secret."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from contextlib import suppress
from typing import BinaryIO

from agent.errors import SystemFault


def read(path: str) -> str | None:
    """Text of a file, its line ends as they are; None when there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def read_value(path: str) -> str:
    """What stands in a file of /proc or /sys, without its newline; empty when it cannot be read.

    This is normal there: a link that is down has no speed, another's process shows nothing, and it may just be gone.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_ends(path: str, most: int) -> dict[str, str]:
    """Name → text of the files in a directory, of long ones the first and the last `most` bytes, in whole lines.

    Links and FIFOs are passed over: they are somebody's trap, or hang.
    """
    texts = {}
    for entry in _entries(path):
        with suppress(OSError):  # it has just gone
            if entry.is_file(follow_symlinks=False):
                with _opened(entry.path) as file:
                    data = file.read(2 * most)
                    if len(data) == 2 * most:
                        file.seek(-most, os.SEEK_END)
                        tail = file.read().partition(b"\n")[2]
                        data = data[:most].rpartition(b"\n")[0] + b"\n" + tail
                texts[entry.name] = data.decode("utf-8", "replace")
    return texts


def read_tails(path: str, most: int) -> dict[str, str]:
    """Relative name → text of the last `most` bytes of every file below a directory, from the start of a line on."""
    texts = {}
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            with suppress(OSError):  # it has just gone
                if stat.S_ISREG(os.lstat(full).st_mode):
                    with _opened(full) as file:
                        # One byte more says whether the first line is whole.
                        file.seek(max(0, os.fstat(file.fileno()).st_size - most - 1))
                        data = file.read(most + 1)
                    whole = data if len(data) <= most else data.partition(b"\n")[2] or data[1:]
                    texts[os.path.relpath(full, path)] = whole.decode("utf-8", "replace")
    return texts


def read_part(path: str, offset: int, most: int) -> bytes:
    """At most so many bytes of a file from `offset` on; none where it ends, or cannot be read."""
    with suppress(OSError), _opened(path) as file:
        file.seek(offset)
        return file.read(most)
    return b""


def _opened(path: str) -> BinaryIO:
    # What was a file a moment ago may be a link or a FIFO now: neither is followed or waited for.
    return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def list_dir(path: str) -> list[str]:
    """Names in a directory by the time of their last change, the oldest first."""
    times = {}
    for entry in _entries(path):
        with suppress(FileNotFoundError):
            times[entry.name] = entry.stat(follow_symlinks=False).st_mtime_ns
    return sorted(times, key=lambda name: (times[name], name))


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def write(path: str, text: str, mode: int = 0o644) -> None:
    """Replace `path` as a whole: readers see the old text or the new one. Raises OSError."""
    aside = f"{path}.{os.getpid()}.new"
    remove(aside)  # of an earlier process with our number, or laid there by somebody
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            # Again, because the umask has cut the mode that `open` was given.
            os.fchmod(fd, mode)
            file.write(text)
        os.rename(aside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise


def check_writable(path: str) -> None:
    """See whether `write` could replace `path`, which stays as it is. Raises OSError."""
    aside = f"{path}.{os.getpid()}.check"
    write(aside, "x")
    os.unlink(aside)


def append(path: str, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def overwrite(path: str, text: str) -> None:
    """Write a file in place, because it is a mount of its own; nothing happens when it is not there."""
    with suppress(FileNotFoundError):
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)


def refresh(path: str) -> None:
    """Set the time of `path` to now, making it when needed."""
    with open(path, "ab"):
        os.utime(path)


def make_private_dir(path: str) -> None:
    """Make `path` ours: a real directory, owned by us, mode 0700. Its parents' modes do not matter.

    Raises SystemFault when something else is there.
    """
    path = path.rstrip("/")  # lstat would look through a link otherwise
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        seen = os.lstat(path)
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
            other_use = "remove it, or set A4_RUN_DIR to another path"
            raise SystemFault(f"{path} is not a directory of this user's own", other_use)
        if seen.st_mode & stat.S_ISVTX:
            raise SystemFault(f"{path} is shared with others", "set A4_RUN_DIR to a directory of root's own")
        os.chmod(path, 0o700)
    except OSError as error:
        raise unusable(path, error) from error


def unusable(path: str, error: OSError) -> SystemFault:
    """The run directory, or what the agent needs in it, cannot be written."""
    hint = "mount a volume with room (emptyDir) there, or set A4_RUN_DIR to another path"
    return SystemFault(f"{path} cannot be written: {error.strerror}", hint)


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def dir_size(path: str) -> int:
    """Bytes of the files below a directory; 0 when it is not there."""
    found = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    size = 0
    for one in found:
        with suppress(OSError):  # it has just gone
            size += os.lstat(one).st_size
    return size


def remove_dir(path: str) -> None:
    """Take a directory away as far as that is possible; links in it are removed, not followed."""
    shutil.rmtree(path, ignore_errors=True)


SECRET_BYTES = 32
"""The least; HKDF needs no more."""

HOW_TO_MAKE_ONE = (
    "make one and mount it: kubectl create secret generic NAME "
    "--from-literal=job-secret=$(openssl rand -hex 32), then mount NAME at /etc/a4-agent/secret"
)


def read_secret(path: str) -> bytes:
    """The secret. Raises ValueError with a sentence that says what is wrong and how to make one."""
    try:
        with open(path, "rb") as file:
            secret = file.read()  # as it is: all pods mount the same bytes, a newline at the end included
    except OSError as error:
        raise ValueError(f"A4_SECRET_FILE={path} cannot be read ({error.strerror}); {HOW_TO_MAKE_ONE}") from error
    if len(secret) < SECRET_BYTES:
        raise ValueError(
            f"A4_SECRET_FILE={path} holds {len(secret)} bytes; {SECRET_BYTES} are the least; {HOW_TO_MAKE_ONE}"
        )
    return secret


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
        os.write(fd, f"pid {os.getpid()} since {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n".encode())
    except OSError as error:
        raise unusable(path, error) from error
    _held.append(fd)
    return ""
