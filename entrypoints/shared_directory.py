"""The directory that all pods share, as share-files.py works in it.

Standard library only. Methods raise OSError, and ValueError for what is no small text file.
"""

from __future__ import annotations

import os
import shutil
import stat
from errno import ELOOP, ENOSYS, ENOTSUP, EPERM, ESTALE
from time import monotonic, time

from stored_files import clear_away, fill, opened, sync

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

MOST_BYTES = 16 * 1024


class Shared:
    """The directory, and what has been seen in it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._mount = mount_id(path)
        self._seen = {""}
        """Folders that were listed by the one they are in."""
        self._made = 0

    def survey(self) -> dict[str, Any]:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            fields = next(line.split() for line in table if line.startswith(f"{self._mount} "))
        kind, source = fields[fields.index("-") + 1 :][:2]
        return {"point": fields[4], "kind": kind, "source": source}

    def try_(self) -> bool:
        self._check_mount()
        aside = self._aside(self.path, "a trial")
        try:
            os.link(aside, f"{aside}.link")
            os.unlink(f"{aside}.link")
        except OSError as error:
            if error.errno not in (EPERM, ENOSYS, ENOTSUP):
                raise
            return False
        finally:
            clear_away(aside)
        return True

    def look(self, folder: str, beginnings: Sequence[str], known: Sequence[str]) -> dict[str, Any]:
        names = self._list(folder)
        texts, problems, passed = {}, {}, set(known)
        for name in names:
            if name.startswith(tuple(beginnings)) and name not in passed:
                try:
                    texts[name] = read_small(f"{self.path}/{folder}/{name}")
                except FileNotFoundError:
                    pass  # it has just gone
                except (OSError, ValueError) as error:
                    problems[name] = getattr(error, "strerror", None) or str(error)
        return {"names": names, "texts": texts, "problems": problems}

    def put(self, folder: str, name: str, text: str, until: float) -> None:
        where = self.make(folder)
        aside = self._aside(where, text)
        self._show(aside, lambda: os.rename(aside, f"{where}/{name}"), until)
        if read_small(f"{where}/{name}") != text:
            raise OSError("what was written reads differently")

    def link(self, folder: str, name: str, text: str, until: float) -> str:
        where = self.make(folder)
        aside = self._aside(where, text)

        def link() -> None:
            try:
                os.link(aside, f"{where}/{name}")
            except FileExistsError:
                pass  # another's, or ours by a request that a server has got twice
            os.unlink(aside)

        self._show(aside, link, until)
        return read_small(f"{where}/{name}")

    def move(self, folder: str, old: str, new: str, until: float) -> None:
        check_time(until)
        move(f"{self.path}/{folder}", old, new)

    def remove(self, folder: str, *names: str) -> None:
        for name in self._list(folder):
            if name in names:
                path = f"{self.path}/{folder}/{name}"
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)

    def _list(self, folder: str) -> list[str]:
        """The names in a folder, hidden ones excepted; none when it is not there, or not seen yet."""
        try:
            if self.reach(folder):
                return [name for name in os.listdir(f"{self.path}/{folder}") if not name.startswith(".")]
        except OSError as error:
            if not isinstance(error, (FileNotFoundError, NotADirectoryError)) and error.errno != ESTALE:
                raise
            self._seen = {""}
        return []

    def reach(self, folder: str) -> bool:
        """Whether each part of the path has been listed by the part before."""
        self._check_mount()
        above = ""
        for part in folder.split("/"):
            path = f"{above}/{part}".lstrip("/")
            if path not in self._seen:
                if part not in os.listdir(f"{self.path}/{above}"):
                    return False
                self._seen.add(path)
            above = path
        return True

    def make(self, folder: str) -> str:
        """The path of a folder that is there from now on. In this pod it may stay hidden for a while all the same, when
        another has made it just before."""
        parts = folder.split("/")
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            if not self.reach(path):
                try:
                    os.mkdir(f"{self.path}/{path}")
                except FileExistsError:
                    pass
                self._seen.add(path)
        return f"{self.path}/{folder}"

    def _check_mount(self) -> None:
        try:
            mount = mount_id(self.path)
        except FileNotFoundError:
            mount = ""
        if mount != self._mount:
            raise OSError(f"{self.path} is not mounted any more")

    def _aside(self, where: str, text: str) -> str:
        """A file with that text under a name that readers pass over."""
        self._made += 1
        path = f"{where}/.{os.uname().nodename}.{os.getpid()}.{self._made}.{time():.6f}"
        fill(opened(path, os.O_EXCL), path, [text.encode("utf-8", "surrogateescape")], lambda written: None)
        return path

    def _show(self, aside: str, act: Callable[[], None], until: float) -> None:
        """Give the file its name, if there is still time; else it goes away."""
        try:
            check_time(until)
            act()
        except OSError:
            clear_away(aside)
            raise
        fd = os.open(os.path.dirname(aside), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(fd)
        finally:
            os.close(fd)


def mount_id(path: str) -> str:
    """That of the mount on which a directory lies. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as info:
            return next(line.split()[1] for line in info if line.startswith("mnt_id:"))
    finally:
        os.close(fd)


def read_small(path: str) -> str:
    """Raises ValueError for what is no small text file, FileNotFoundError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == ESTALE:
            raise FileNotFoundError from error
        if error.errno == ELOOP:
            raise ValueError("it is a symbolic link") from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ValueError("it is no file")
    with open(fd, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return data.decode("utf-8", "surrogateescape")


def move(where: str, old: str, new: str) -> None:
    """Rename; a server that got the request twice says that the old name is not there."""
    try:
        os.rename(f"{where}/{old}", f"{where}/{new}")
    except FileNotFoundError:
        if new not in os.listdir(where):
            raise


def check_time(until: float) -> None:
    if monotonic() > until:
        raise OSError("it is too late: others may act instead")
