"""Files of the workload's own, for `a4-agent get --files`: from each pod of a run, over the cluster's own SSH."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import IO, BinaryIO

from agent.output import say

SILENT_SECONDS = 60.0
"""How long a pod may send nothing: a file system that is gone never answers."""
# -h and --hard-dereference, because only files are taken: links arrive as what they lead to.
_SEND = """\
set -- {absolute}
if cd {directory} 2>/dev/null; then set -- "$@" {relative}; else echo {no_directory} >&2; fi
for each in "$@"; do
  shift
  if [ -e "$each" ]; then set -- "$@" "$each"; fi
done
if [ $# -gt 0 ]; then exec tar -c -h --hard-dereference -f - -- "$@" 2>/dev/null; fi
"""
_WHY = {1: "some changed while they were read", 127: "there is no tar", 255: "ssh cannot reach it"}
"""By the exit code of tar or ssh."""
Open = Callable[[str], AbstractContextManager[BinaryIO]]


def pattern(text: str) -> str:
    """A pattern for sh in which only * and ? have a meaning."""
    return "".join(part if part[0] in "*?" else shlex.quote(part) for part in re.findall(r"[*?]+|[^*?]+", text))


def fetch(pod: int, ssh: Sequence[str], patterns: Sequence[str], directory: str, opened: Open) -> int:
    """How many files there were; each is opened by its path there, and written. What cannot be read is said.

    `ssh`: how a command gets to the pod; empty: it is this one. `directory`: where relative patterns begin.
    """
    argv = [*(ssh or ["sh", "-c"]), _sending(pod, patterns, directory)]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    count = 0
    try:
        with process.stdout:
            for name, content in _contents(_Heard(process.stdout)):
                with opened(name) as file:
                    shutil.copyfileobj(content, file)
                count += 1
        code = process.wait(SILENT_SECONDS)
    except (_Silent, subprocess.TimeoutExpired):
        say(f"files of pod {pod} cannot be read: it has sent nothing for {SILENT_SECONDS:g} s")
        return count
    finally:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(2.0)  # one that waits for a file system may never end
    if code:
        say(f"files of pod {pod}: {_WHY.get(code, 'tar could not read all of them')}")
    return count


def _sending(pod: int, patterns: Sequence[str], directory: str) -> str:
    """A script that sends what is wanted."""
    absolute = [each for each in patterns if each.startswith("/")]
    relative = [each for each in patterns if not each.startswith("/")]
    return _SEND.format(
        absolute=" ".join(map(pattern, absolute)),
        relative=" ".join(map(pattern, relative)),
        directory=shlex.quote(directory if relative else "/"),
        no_directory=shlex.quote(f"a4-agent: files of pod {pod}: there is no directory {directory}"),
    )


def _contents(heard: _Heard) -> Iterator[tuple[str, IO[bytes]]]:
    """The files of an archive, each by its path. All that comes is read: its sender must not meet a closed pipe."""
    # A ReadError: nothing came, or not all.
    with suppress(tarfile.ReadError), tarfile.open(fileobj=heard, mode="r|") as archive:  # type: ignore[call-overload]
        for member in archive:
            # So that nothing that a pod sends is written outside of the directory.
            parts = [part for part in member.name.split("/") if part not in ("", ".", "..")]
            content = archive.extractfile(member) if member.isfile() and parts else None
            if content is not None:
                yield "/".join(parts), content
    while heard.read(1 << 16):
        pass


class _Silent(Exception):
    """A pod has sent nothing for too long. Not a TimeoutError: an OSError is one of the file that is written."""


class _Heard:
    """Reads a pipe that must not be silent for long."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def read(self, size: int) -> bytes:
        """Raises _Silent."""
        if not select.select([self._pipe], [], [], SILENT_SECONDS)[0]:
            raise _Silent
        return os.read(self._pipe.fileno(), size)
