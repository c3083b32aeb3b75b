"""The directory that all pods share, as share-files.py works in it.

Standard library only. Methods raise OSError, and ValueError for what is not a small text file.
"""

from __future__ import annotations

import os
from errno import ENOENT, ENOSYS, ENOTSUP, EPERM, ESTALE
from time import monotonic, time

from folders import Folder
from stored_files import fill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

MOST_BYTES = 16 * 1024


class NotListed(FileNotFoundError):
    """A part of a path was not listed by the part before."""


class Shared:
    """The directory, and what has been seen in it. Links that lead to it are followed, links in it are refused."""

    def __init__(self, path: str) -> None:
        self.path = path
        with Folder(path) as root:
            self._mount = mount_id(root)
        self._seen: set[str] = set()
        """Folders that were listed by the one they are in."""
        self._made = 0

    def survey(self) -> dict[str, Any]:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            fields = next(line.split() for line in table if line.startswith(f"{self._mount} "))
        kind, source = fields[fields.index("-") + 1 :][:2]
        return {"point": fields[4], "kind": kind, "source": source}

    def try_(self) -> bool:
        with self._root() as root:
            aside = self._aside(root, "a trial")
            try:
                root.link(aside, f"{aside}.link")
                root.unlink(f"{aside}.link")
            except OSError as error:
                if error.errno not in (EPERM, ENOSYS, ENOTSUP):
                    raise
                return False
            finally:
                root.clear_away(aside)
        return True

    def look(self, folder: str, beginnings: Sequence[str], known: Sequence[str]) -> dict[str, Any]:
        names, texts, problems, passed = [], {}, {}, set(known)
        try:
            with self.walk(folder) as where:
                names = [name for name in where.names() if not name.startswith(".")]
                for name in names:
                    if name.startswith(tuple(beginnings)) and name not in passed:
                        try:
                            texts[name] = read_small(where, name)
                        except FileNotFoundError:
                            pass  # it has just gone
                        except (OSError, ValueError) as error:
                            problems[name] = getattr(error, "strerror", None) or str(error)
        except NotListed:
            pass
        except OSError as error:
            if error.errno not in (ENOENT, ESTALE):
                raise
            self._seen.clear()
        return {"names": names, "texts": texts, "problems": problems}

    def put(self, folder: str, name: str, text: str, until: float) -> str:
        return self._show(folder, name, text, until, lambda where, aside: where.rename(aside, name))

    def link(self, folder: str, name: str, text: str, until: float) -> str:
        def act(where: Folder, aside: str) -> None:
            try:
                where.link(aside, name)
            except FileExistsError:
                pass  # another's, or ours by a request that a server has got twice
            where.unlink(aside)

        return self._show(folder, name, text, until, act)

    def move(self, folder: str, old: str, new: str, until: float) -> None:
        """Rename; a server that got the request twice says that the old name is not there."""
        check_time(until)
        with self.walk(folder) as where:
            try:
                where.rename(old, new)
            except FileNotFoundError:
                if new not in where.names():
                    raise

    def remove(self, folder: str, *names: str) -> None:
        for name in set(self.look(folder, [], [])["names"]).intersection(names):
            try:
                with self.walk(folder) as where:
                    where.remove(name)
            except FileNotFoundError:
                pass  # another has done it

    def flags(self, folders: Sequence[str]) -> dict[str, str]:
        found = {}
        for folder in folders:
            try:
                with self.walk(folder) as where:
                    for name in where.names():
                        if name.endswith("_flag"):
                            made = where.stat(name)
                            found[f"{folder}/{name}"] = f"{made.st_ino}:{made.st_mtime_ns}"
            except FileNotFoundError:
                pass  # nobody has made it
        return found

    def walk(self, folder: str, *, make: bool = False) -> Folder:
        """A folder of which each part was listed by the part before, or is made; raises NotListed for one that was not.

        One that is made is there from now on, but may stay hidden in this pod for a while, when another has made it
        just before.
        """
        at, path = self._root(), ""
        for part in folder.split("/"):
            path = f"{path}/{part}"
            with at:
                if path not in self._seen:
                    if part not in at.names():
                        if not make:
                            raise NotListed
                        at.make(part)
                    self._seen.add(path)
                at = at.enter(part)
        return at

    def _root(self) -> Folder:
        """The directory, on the mount on which it was."""
        try:
            root = Folder(self.path)
        except FileNotFoundError:
            raise OSError(f"{self.path} is not mounted any more") from None
        if mount_id(root) != self._mount:
            os.close(root.fd)
            raise OSError(f"{self.path} is not mounted any more")
        return root

    def _aside(self, where: Folder, text: str) -> str:
        """A file with that text under a name that readers pass over."""
        self._made += 1
        name = f".{os.uname().nodename}.{os.getpid()}.{self._made}.{time():.6f}"
        fill(where, name, [text.encode("utf-8", "surrogateescape")])
        return name

    def _show(self, folder: str, name: str, text: str, until: float, act: Callable[[Folder, str], None]) -> str:
        """Make a file of that text, to which `act` gives its name if there is still time; else it goes away. What
        stands there then."""
        with self.walk(folder, make=True) as where:
            aside = self._aside(where, text)
            try:
                check_time(until)
                act(where, aside)
            except OSError:
                where.clear_away(aside)
                raise
            where.sync()
            return read_small(where, name)


def mount_id(folder: Folder) -> str:
    """That of the mount on which an open directory lies."""
    with open(f"/proc/self/fdinfo/{folder.fd}", encoding="ascii") as info:
        return next(line.split()[1] for line in info if line.startswith("mnt_id:"))


def read_small(folder: Folder, name: str) -> str:
    """Raises ValueError for what is not a small text file, FileNotFoundError."""
    try:
        data = folder.read(name, MOST_BYTES + 1)
    except OSError as error:
        if error.errno == ESTALE:
            raise FileNotFoundError from error
        raise
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return data.decode("utf-8", "surrogateescape")


def check_time(until: float) -> None:
    if monotonic() > until:
        raise OSError("it is too late: others may act instead")
