"""The directory that all pods share, for code that asks it one thing after the other and waits for each answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from agent.errors import DirectoryUnusable
from agent.lifecycle.sharing.mounts import DirectoryMount, check_mount
from agent.lifecycle.waits import PROBE_SECONDS
from agent.machine.api import SERVER_SECONDS
from agent.machine.shared_files import SharedCommand, SharedFiles


class SharedDirectory:
    """Works through a process of its own, which may hang with the file server and is given up then.

    `called` is what messages call the directory.
    """

    def __init__(self, directory: str, called: str) -> None:
        self.directory = directory
        self._called = called
        self._files = SharedFiles(directory, PROBE_SECONDS)

    def close(self) -> None:
        """End the process."""
        self._files.close()

    def open(self) -> None:
        """Raises DirectoryUnusable for a directory that cannot hold what pods tell each other.

        What is mounted is judged first, and only then something is written: a bucket is refused untouched.
        """
        mount = DirectoryMount(**self._ask("survey"))
        check_mount(self.directory, mount)
        check_mount(self.directory, mount._replace(links=self._ask("try")))
        self._files.answer_seconds = SERVER_SECONDS

    def put(self, folder: str, name: str, text: str, until: float | None = None) -> None:
        """Write a whole file, unless `until`, a time of the monotonic clock, is over before that is done."""
        until = time.monotonic() + SERVER_SECONDS if until is None else until
        if self._ask("put", folder, name, text, until) != text:
            raise self._unusable(f"{folder}/{name} reads differently from what was written")

    def remove(self, folder: str, name: str) -> None:
        """Take a file away, if it is there."""
        self._ask("remove", folder, name)

    def remove_flags(self, stale: Mapping[str, str]) -> None:
        """Take away flags that are still what they were: path → which file that is."""
        folders = sorted({path.rpartition("/")[0] for path in stale})
        for path, made in self._ask("flags", folders).items():
            if stale.get(path) == made:
                self.remove(*path.rsplit("/", 1))

    def _unusable(self, why: str) -> DirectoryUnusable:
        what = f"{self._called} cannot be used: {why}"
        return DirectoryUnusable(what, "it must exist and be writable in every pod of the job")

    def _ask(self, *words: Any) -> Any:
        """The value of one command. Raises DirectoryUnusable."""
        answer = self._files.ask(SharedCommand(words))
        if answer.why:
            raise self._unusable(answer.why)
        return answer.value
