"""Files on storage that pods share: what is there, and names that change. All of it waits while the storage hangs."""

from __future__ import annotations

import glob
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from agent.errors import DirectoryUnusable, MissingProgram
from agent.machine.asking import Late, run_to_end, text_of

GIT_SECONDS = 300.0
"""How long git may take to say what is in a directory."""
READING = ("--no-optional-locks", "--literal-pathspecs", "-c", "core.fileMode=false")
"""Options of git. Some servers have modes of their own for all files."""
CHANGED = ("--name-only", "-z", "--no-renames", "--ignore-submodules=all", "--diff-filter=a")
"""What `git diff` calls files of the commit that are changed or missing. New files are not counted as damage."""
MOST_NAMES = 500
"""Files on one command line."""
SILENT_SECONDS = 120
"""How long a server may send nothing, until git gives up."""


class StoredCheckout(NamedTuple):
    """What git says of a directory: agent.decide.completeness.SeenCheckout."""

    head: str = ""
    submodules: Sequence[str] = ()
    locks: Sequence[str] = ()
    changed: Sequence[tuple[str, str, bytes | None, bytes]] = ()


class StoredFiles:
    """Implements agent.decide.completeness.Reader."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._git_env = {**environ, **git_settings()}

    def names(self, path: str) -> Sequence[str]:
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size if os.path.isfile(path) else None
        except FileNotFoundError:
            return None

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                return file.read(length)
        except (FileNotFoundError, NotADirectoryError):
            return b""

    def checkout(self, path: str) -> StoredCheckout:
        """Raises ValueError where git cannot say it all: what it does say of half a repository looks whole."""
        if not os.path.exists(f"{path}/.git"):
            return StoredCheckout()  # git would look above it
        index = self._git(path, "rev-parse", "--git-path", "index").strip()
        if not os.path.exists(os.path.join(path, index)):
            raise ValueError(f"it has no {index}")  # git would take it for a commit without files and submodules
        submodules = self._git(path, "submodule", "status", "--recursive").splitlines()
        there = [line[1:].split()[1] for line in submodules if not line.startswith("-")]
        return StoredCheckout(
            head=self._git(path, "rev-parse", "HEAD").strip(),
            submodules=submodules,
            locks=[
                *glob.glob(f"{glob.escape(path)}/.git/*.lock"),
                *(f"{at}/index.lock" for at, _, names in os.walk(f"{path}/.git/modules") if "index.lock" in names),
            ],
            changed=[file for place in ("", *there) for file in self._changed(path, place)],
        )

    def _changed(self, path: str, submodule: str) -> Iterator[tuple[str, str, bytes | None, bytes]]:
        """Files of the repository or a submodule that are not as they were committed."""
        place = f"{path}/{submodule}".rstrip("/")
        listed = self._git_bytes(place, "diff", *CHANGED, "HEAD").split(b"\0")
        for name in map(os.fsdecode, filter(None, listed)):
            committed = self._git_bytes(place, "cat-file", "--filters", f"HEAD:{name}")
            now = _content(f"{place}/{name}", len(committed) + 1)
            if now != committed:
                yield submodule, name, now, committed

    def restore(self, path: str, submodule: str, names: Sequence[str]) -> None:
        """Write files of the repository or a submodule as they were committed. Raises ValueError."""
        for begin in range(0, len(names), MOST_NAMES):
            some = names[begin : begin + MOST_NAMES]
            self._git(f"{path}/{submodule}".rstrip("/"), "checkout", "--quiet", "HEAD", "--", *some)

    def _git(self, path: str, *words: str) -> str:
        return text_of(self._git_bytes(path, *words))

    def _git_bytes(self, path: str, *words: str) -> bytes:
        argv = ["git", "-C", path, *READING, *words]
        try:
            status, output, errors = run_to_end(argv, self._git_env, GIT_SECONDS)
        except FileNotFoundError:
            raise MissingProgram(
                "git is not installed", f"it is needed to read {path}: use an image that has it"
            ) from None
        except Late:
            what = f"git {words[0]} has not said for {GIT_SECONDS:.0f} s what is in {path}"
            raise DirectoryUnusable(what, "check the file server and the node's mounts") from None
        if status:
            raise ValueError(f"git {words[0]}: {text_of(errors).strip()}")
        return output


def _content(path: str, most: int) -> bytes | None:
    """At most so much of it, as git sees it: a link contains its target. None: it is missing."""
    other = bytes(most)  # too long to be the beginning of the file
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return os.fsencode(os.readlink(path))
        if not stat.S_ISREG(mode):
            return other
        with open(path, "rb") as file:
            return file.read(most)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return other


def git_settings(*, local: bool = False) -> dict[str, str]:
    """Variables for git: it asks nobody for a password, waits for no server that is silent, and takes directories of
    other users. local: it takes submodules from this machine's files, too."""
    settings = {"safe.directory": "*", "advice.detachedHead": "false"}
    settings |= {"http.lowSpeedLimit": "1", "http.lowSpeedTime": str(SILENT_SECONDS)}
    if local:
        settings["protocol.file.allow"] = "always"
    variables = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def tree_bytes(path: str) -> int:
    """What the files below a directory take, as far as they can be seen."""
    total = 0
    for where, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):  # it was renamed just now
                total += os.lstat(f"{where}/{name}").st_size
    return total


def free_bytes(path: str) -> int:
    """Room that is left where a directory is, or will be."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def make_empty(path: str) -> None:
    """A new directory, in place of one that may be there."""
    remove(path)
    os.makedirs(path)


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def rename(old: str, new: str) -> None:
    """The directory of the new name is made where it is missing."""
    os.makedirs(os.path.dirname(new), exist_ok=True)
    os.rename(old, new)


def begin_from(directory: str, checkpoint: str, about: str) -> None:
    """Make a directory with a link to a checkpoint, and copies of the *.json and merges.txt of `about`."""
    make_empty(directory)
    copy_texts(about, directory)
    os.symlink(checkpoint, f"{directory}/{os.path.basename(checkpoint)}")


def copy_texts(source: str, directory: str) -> None:
    """Copy the *.json and merges.txt that are in a directory of a model or a checkpoint."""
    for path in [*glob.glob(f"{glob.escape(source)}/*.json"), f"{source}/merges.txt"]:
        if os.path.isfile(path):
            shutil.copyfile(path, f"{directory}/{os.path.basename(path)}")
