"""Where `a4-agent get` writes: into a directory, or into a tar archive on stdout."""

from __future__ import annotations

import os
import secrets
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import BinaryIO, Protocol, TypeAlias

from agent.errors import DirectoryUnusable
from agent.output import STDOUT, write_all

MOST_IN_MEMORY = 8 * 1024 * 1024
"""Bytes of a file for an archive; larger ones wait in a temporary file, since an archive has their size first."""


class Open(Protocol):
    """Opens a file of that name to be written. It is kept when the block ends in order and, without `empty`,
    something is in it."""

    def __call__(self, name: str, *, empty: bool = False) -> AbstractContextManager[BinaryIO]: ...


OpenIn: TypeAlias = Callable[..., AbstractContextManager[BinaryIO]]
"""The same, with a directory before the name."""


def in_directory(directory: str) -> Open:
    @contextmanager
    def opened(name: str, *, empty: bool = False) -> Iterator[BinaryIO]:
        path = f"{directory}/{name}"
        folder = os.path.dirname(path)
        aside = f"{folder}/.a4-get-{secrets.token_hex(8)}"
        try:
            os.makedirs(folder, exist_ok=True)
            try:
                with open(aside, "xb") as file:
                    yield file
                if empty or os.path.getsize(aside):
                    os.replace(aside, path)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(aside)
        except OSError as error:
            remedy = "put it elsewhere with -o DIR, or take it from stdout with -o -"
            raise DirectoryUnusable(f"{path} cannot be written: {error.strerror}", remedy) from error

    return opened


@contextmanager
def in_archive() -> Iterator[OpenIn]:
    output = SimpleNamespace(write=partial(write_all, STDOUT))
    with tarfile.open(mode="w|", fileobj=output) as archive:

        @contextmanager
        def opened(directory: str, name: str, *, empty: bool = False) -> Iterator[BinaryIO]:
            try:
                with tempfile.SpooledTemporaryFile(MOST_IN_MEMORY) as file:
                    yield file  # type: ignore[misc]
                    member = tarfile.TarInfo(f"{directory}/{name}")
                    member.size, member.mtime = file.tell(), int(time.time())
                    file.seek(0)
                    if empty or member.size:
                        archive.addfile(member, file)
            except BrokenPipeError:
                raise  # of stdout
            except OSError as error:
                what = f"{tempfile.tempdir or 'a temporary file'} cannot be written: {error.strerror}"
                raise DirectoryUnusable(what, "set TMPDIR to a directory with room") from error

        yield opened
