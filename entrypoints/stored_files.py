"""Files in a directory that may hang or fail: written whole, beside their place, and made durable.

Standard library only; keep-results.py and shared_directory.py import it. What is imported is chosen by its cost.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CHUNK = 1024 * 1024
MOST_LITTER = 10


class Directory:
    """Where things are stored. Every method raises OSError, or ValueError for a name that leaves it."""

    def __init__(self, mount: str, path: str, number: int, got_on: Callable[[int], None]) -> None:
        self._mount = mount
        self._path = path
        self._number = number
        self._got_on = got_on

    def probe(self, name: str) -> None:
        self._check_mount()
        path = self._inside(name)
        self._fill(path, [b"a4-agent\n"])
        os.unlink(path)

    def store(self, name: str, chunks: Callable[[], Iterable[bytes]], *, new: bool = False) -> None:
        """Make a file of what `chunks` gives: readers see nothing of it, or all."""
        self._check_mount()
        path = self._inside(name)
        for earlier in range(max(1, self._number - MOST_LITTER), self._number):
            clear_away(f"{path}.{earlier}.new")
        aside = f"{path}.{self._number}.new"
        self._fill(aside, chunks())
        if new and os.path.lexists(path) and read(path) != read(aside):  # an earlier try may have got through
            clear_away(aside)
            raise OSError(errno.EEXIST, "it is there already, and left as it is")
        try:
            os.rename(aside, path)
        except OSError:  # some mounts of buckets cannot; or the directory has just gone
            clear_away(aside)
            self._fill(path, chunks())

    def remove(self, prefix: str) -> None:
        """Take away all files whose names begin so."""
        self._check_mount()
        folder, _, start = self._inside(prefix).rpartition("/")
        for name in os.listdir(folder):
            if name.startswith(start):
                os.unlink(f"{folder}/{name}")
                self._got_on(0)

    def _check_mount(self) -> None:
        """Ask the kernel only: a server that hangs is not looked at."""
        if self._mount != "/":
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
                if not any(line.split(" ", 5)[4] == self._mount for line in table):
                    raise OSError(errno.ENODEV, f"nothing is mounted at {self._mount} any more")

    def _inside(self, name: str) -> str:
        if not name or name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"{name!r} is not a name in this directory")
        return f"{self._path}/{name}"

    def _fill(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file, and the directories above it."""
        try:
            fd = opened(path, os.O_TRUNC)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            fd = opened(path, os.O_TRUNC)
        fill(fd, path, chunks, self._got_on)


def opened(path: str, how: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how, 0o644)


def fill(fd: int, path: str, chunks: Iterable[bytes], got_on: Callable[[int], None]) -> None:
    """Write all of a file that is open, and close it; nothing is left of it when that fails."""
    try:
        with open(fd, "wb", CHUNK) as file:  # each write is a request to a server
            written = 0
            for chunk in chunks:
                written += file.write(chunk)
                got_on(written)
            file.flush()
            sync(fd)
    except OSError:  # full disks and lost servers may show as late as when it is closed
        clear_away(path)
        raise


def sync(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):  # there is nothing to sync on such a mount
            raise


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def clear_away(path: str) -> None:
    """Remove a file as far as that is possible: what failed before is what counts."""
    try:
        os.unlink(path)
    except OSError:
        pass
