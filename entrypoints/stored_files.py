"""Files in a directory that may hang or fail: written whole, beside their place, and made durable.

Standard library only, and what is imported is chosen by its cost: the process that stores a pod's results imports it.
"""

from __future__ import annotations

import errno
import os

from folders import Folder, sync

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CHUNK = 1024 * 1024
MOST_LITTER = 10


class Directory:
    """Where things are stored. Every method raises OSError, or ValueError for a name that leaves it.

    base: the beginning of `path` that somebody named. Links on the way to it are followed, behind it none.
    """

    def __init__(self, mount: str, base: str, path: str, number: int, got_on: Callable[[int], None]) -> None:
        self._mount = mount
        self._base = base
        self._folder = path.removeprefix(base).strip("/")
        self._number = number
        self._got_on = got_on

    def probe(self, name: str, earlier: str) -> str:
        """Try a file; returns `earlier` if something of that name is there, else nothing."""
        folder, name = self._reach(name)
        with folder:
            fill(folder, name, [b"a4-agent\n"], self._got_on)
            try:
                folder.unlink(name)
            except FileNotFoundError:
                pass  # a process that hung has done it late
            return earlier if earlier in folder.names() else ""

    def store(self, name: str, chunks: Callable[[], Iterable[bytes]], *, new: bool = False) -> None:
        """Make a file of what `chunks` gives: readers see nothing of it, or all."""
        folder, name = self._reach(name)
        with folder:
            for earlier in range(max(1, self._number - MOST_LITTER), self._number):
                folder.clear_away(f"{name}.{earlier}.new")
            aside = f"{name}.{self._number}.new"
            fill(folder, aside, chunks(), self._got_on)
            if new and is_other(folder, name, aside):
                folder.clear_away(aside)
                raise OSError(errno.EEXIST, "it is there already, and left as it is")
            try:
                folder.rename(aside, name)
            except OSError:  # some mounts of buckets cannot; or the directory has just gone
                folder.clear_away(aside)
                fill(folder, name, chunks(), self._got_on)

    def remove(self, prefix: str) -> None:
        """Take away all files whose names begin so."""
        folder, start = self._reach(prefix)
        with folder:
            for name in folder.names():
                if name.startswith(start):
                    folder.unlink(name)
                    self._got_on(0)

    def _reach(self, name: str) -> tuple[Folder, str]:
        """The folder that a file is in, which is made where it is missing, and the file's name there. The kernel is
        asked first whether the mount is there: a server that hangs is not looked at."""
        if self._mount != "/":
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
                if not any(line.split(" ", 5)[4] == self._mount for line in table):
                    raise OSError(errno.ENODEV, f"nothing is mounted at {self._mount} any more")
        if not name or name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"{name!r} is not a name in this directory")
        *above, last = f"{self._folder}/{name}".strip("/").split("/")
        try:
            at = Folder(self._base)
        except FileNotFoundError:
            os.makedirs(self._base, exist_ok=True)
            at = Folder(self._base)
        for part in above:
            with at:
                at = at.enter(part, make=True)
        return at, last


def is_other(folder: Folder, name: str, text: str) -> bool:
    """Whether something is there that has not the text of the other file: an earlier try may have got through."""
    try:
        return folder.read(name) != folder.read(text)
    except FileNotFoundError:
        return False
    except ValueError:
        return True


def fill(
    folder: Folder, name: str, chunks: Iterable[bytes], got_on: Callable[[int], None] = lambda written: None
) -> None:
    """Write all of a new file; nothing is left of it when that fails."""
    fd = folder.create(name)
    try:
        with open(fd, "wb", CHUNK) as file:  # each write is a request to a server
            written = 0
            for chunk in chunks:
                written += file.write(chunk)
                got_on(written)
            file.flush()
            sync(fd)
    except OSError:  # full disks and lost servers may show as late as when it is closed
        folder.clear_away(name)
        raise
