"""The dump file of torch's watchdog: a pickle, read without ever running what one may hold.

torch writes dictionaries, lists, texts and numbers alone. Every other instruction of a pickle is refused: there is
nothing to import, to call or to build, and nothing that takes more memory than the file itself.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from agent.clinic.sources.recorder import Recorded, from_dump
from agent.clinic.sources.source import Job, WhySource

DUMP_PREFIX = "dump-"
"""Names of dumps begin so; torch adds the rank."""
MOST_DUMP = 64 * 1024 * 1024
ALLOWED = [
    "PROTO",
    "FRAME",
    "STOP",
    "MARK",
    "MEMOIZE",
    "BINPUT",
    "LONG_BINPUT",
    "BINGET",
    "LONG_BINGET",
    "NONE",
    "NEWTRUE",
    "NEWFALSE",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "EMPTY_DICT",
    "EMPTY_LIST",
    "EMPTY_TUPLE",
    "TUPLE",
    "TUPLE1",
    "TUPLE2",
    "TUPLE3",
    "APPEND",
    "APPENDS",
    "SETITEM",
    "SETITEMS",
]


class DumpSource(WhySource):
    name = "dump"

    def jobs(self) -> Iterator[Job]:
        for name in dumps_in(self.look.question.why_dir):
            yield partial(self._read, name)

    def _read(self, name: str) -> None:
        try:
            with open(f"{self.look.question.why_dir}/{name}", "rb") as file:
                found = read_dump(file.read(MOST_DUMP + 1))
        except OSError as error:
            found = Recorded((), f"it cannot be read: {error.strerror}")
        if not found.groups:
            self.says("unavailable", f"{name}: {found.why}")
            return
        for pid, rank in self.look.gone.items():
            if rank == int(name.removeprefix(DUMP_PREFIX)):
                self.gives(pid, groups=found.groups)
                self.says("found", "", pid)  # groups do not say where they are from


def dumps_in(directory: str) -> list[str]:
    """Names of the dumps in it, but for those of ranks that torchrun has started anew since."""
    written = dict[str, float]()
    with suppress(OSError):
        for entry in os.scandir(directory):
            with suppress(OSError):  # it is gone
                written[entry.name] = entry.stat().st_mtime
    newest = max((at for name, at in written.items() if name.isdecimal()), default=0.0)
    return sorted(name for name, at in written.items() if is_dump(name) and at >= newest)


def is_dump(name: str) -> bool:
    """Is that the name of a whole dump, in the directory that torch was told?"""
    return name.startswith(DUMP_PREFIX) and name.removeprefix(DUMP_PREFIX).isdecimal()


def read_dump(data: bytes) -> Recorded:
    """How far the process came; without groups and with the reason when this is no dump."""
    if len(data) > MOST_DUMP:
        return Recorded((), f"the dump has more than {MOST_DUMP // 1024**2} MiB")
    try:
        found = _Unpickler(io.BytesIO(data)).load()
    except Exception as error:  # whatever a broken or hostile file leads to
        return Recorded((), f"the dump cannot be read: {error}")
    return from_dump(found) if isinstance(found, dict) else Recorded((), "the dump holds no dictionary")


def _refuse(unpickler: Any) -> None:
    raise pickle.UnpicklingError("it holds more than texts, numbers, lists and dictionaries")


class _Unpickler(pickle._Unpickler):  # the one in Python: its table can be replaced
    """Knows the instructions of ALLOWED."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: known if code in {getattr(pickle, name)[0] for name in ALLOWED} else _refuse
        for code, known in pickle._Unpickler.dispatch.items()
    }

    def find_class(self, module: str, name: str) -> Any:
        _refuse(self)
