"""Does what is done in a directory that all pods share: when that hangs, only this process does.

    python -I -S share-files.py DIRECTORY
    python -I -S share-files.py DIRECTORY beat JOB PREFIX MADE SECONDS LEASE OWNER STATE

The first takes commands on stdin, a JSON array on each line, and answers each with {"value": …} or {"why": text}:

  ["survey"]                                 the mount that DIRECTORY lies on
  ["try"]                                    write, link and remove a file; the value is whether there are links
  ["look", FOLDER, [BEGINNING, …], [KNOWN, …]]   the names in a folder; of those with such a beginning, KNOWN excepted,
                                             the contents, or why there is none
  ["put", FOLDER, NAME, TEXT, UNTIL]         a whole file, read again when it is there
  ["link", FOLDER, NAME, TEXT, UNTIL]        the same where there is none; the value is what stands there then
  ["move", FOLDER, NAME, NAME, UNTIL]        rename
  ["remove", FOLDER, NAME, …]                take files, links and folders away

FOLDER is relative to DIRECTORY. UNTIL is a time of the monotonic clock: when it has passed nothing is shown to others
any more. No name is opened that has not been seen in a listing, for that would make the kernel remember for a while
that it is not there.

The second renames the file PREFIX0 in the folder JOB to PREFIX1, PREFIX2 and so on, every SECONDS, until the process
OWNER ends. MADE is a folder to make in JOB before, or empty: then JOB is waited for. When it could not do so for LEASE
seconds others may have given it up: it adds a line with the seconds to the file open as STATE, and ends. Where MADE is
given it says "begun" on stdout, or on stderr why not.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import stat
import sys
from errno import EINVAL, ELOOP, ENOSYS, ENOTSUP, EPERM, ESTALE
from math import inf
from time import monotonic, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

MOST_BYTES = 16 * 1024
OLD_DAYS = 7
GONE = "it is not there"


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
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            try:
                data = text.encode("utf-8", "surrogateescape")
                while data:
                    data = data[os.write(fd, data) :]
                sync(fd)
            finally:
                os.close(fd)  # full disks and lost servers show here, too
        except OSError:
            clear_away(path)
            raise
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


def sync(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (EINVAL, ENOSYS, ENOTSUP):  # there is nothing to sync on such a file system
            raise


def clear_away(path: str) -> None:
    """As far as that is possible: what failed before is what counts."""
    try:
        os.unlink(path)
    except OSError:
        pass


def answer(shared: Shared, verb: str, *args: Any) -> dict[str, Any]:
    commands: dict[str, Callable[..., Any]] = {
        "survey": shared.survey,
        "try": shared.try_,
        "look": shared.look,
        "put": shared.put,
        "link": shared.link,
        "move": shared.move,
        "remove": shared.remove,
    }
    try:
        return {"value": commands[verb](*args)}
    except FileNotFoundError:
        return {"why": GONE}
    except (OSError, ValueError) as error:
        return {"why": getattr(error, "strerror", None) or str(error)}


def serve(directory: str) -> None:
    shared: Shared | None = None
    for line in sys.stdin.buffer:
        try:
            shared = shared or Shared(directory)
            told = answer(shared, *json.loads(line))
        except OSError as error:
            told = {"why": error.strerror or str(error)}
        data = json.dumps(told).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]


class Beat:
    """One pod's beats in the folder of a job."""

    def __init__(self, directory: str, job: str, prefix: str) -> None:
        self._shared = Shared(directory)
        self._job = job
        self._prefix = prefix
        self._count = -1

    def begin(self, made: str) -> bool:
        """Make the first file; False while the job's folder is not there."""
        if made:
            self._shared.make(f"{self._job}/{made}")
        elif not self._shared.reach(self._job):
            return False
        self._shared.put(self._job, f"{self._prefix}0", "", inf)
        self._count = 0
        return True

    def go_on(self) -> None:
        where = f"{self._shared.path}/{self._job}"
        move(where, f"{self._prefix}{self._count}", f"{self._prefix}{self._count + 1}")
        self._count += 1

    def clear_old(self) -> None:
        """Take away folders of jobs in which nothing has happened for days, by the server's own clock."""
        where = f"{self._shared.path}/{os.path.dirname(self._job)}"
        now = os.lstat(f"{self._shared.path}/{self._job}").st_mtime
        for name in os.listdir(where):
            try:
                if now - os.lstat(f"{where}/{name}").st_mtime > OLD_DAYS * 86400:
                    shutil.rmtree(f"{where}/{name}", ignore_errors=True)
            except OSError:
                pass  # another pod 0 does the same


def beat(directory: str, job: str, prefix: str, made: str, *numbers: str) -> None:
    seconds, lease, owner, state = float(numbers[0]), float(numbers[1]), int(numbers[2]), int(numbers[3])
    ended = os.pidfd_open(owner)
    beats = Beat(directory, job, prefix)
    while not begun(beats, made):
        if select.select([ended], [], [], seconds)[0]:
            return
    last = monotonic()
    while not select.select([ended], [], [], seconds)[0]:
        now = monotonic()
        if now - last > lease:
            os.write(state, f"{now - last:.0f}\n".encode())
            return
        try:
            beats.go_on()
            last = now
        except OSError:
            pass  # the next one may do; who waits for this one sees that it is missing


def begun(beats: Beat, made: str) -> bool:
    """Try to begin; pod 0, which has to make something, says how that went. Ends this process when it cannot be."""
    try:
        if not beats.begin(made):
            return False
    except FileNotFoundError:
        return False  # it was made by another just before, and is hidden here for a while
    except OSError as error:
        if made:
            sys.exit(f"{error.strerror or error}")
        return False
    if made:
        os.write(1, b"begun\n")
        beats.clear_old()
    return True


if __name__ == "__main__":
    if sys.argv[2:3] == ["beat"]:
        beat(sys.argv[1], *sys.argv[3:])
        os._exit(0)  # at once: the agent counts what a run leaves behind
    else:
        serve(sys.argv[1])
