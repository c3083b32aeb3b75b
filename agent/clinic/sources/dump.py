"""The dump file of torch's watchdog: a pickle, read without ever running what one may hold.

torch writes dictionaries, lists, texts and numbers alone. Every other instruction of a pickle is refused: there is
nothing to import, to call or to build, and nothing that takes more memory than the file itself.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

from agent.clinic.sources.recorder import Recorded, from_dump

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


def is_dump(name: str) -> bool:
    """Is that the name of a whole dump, in the directory that torch was told?"""
    return name.startswith(DUMP_PREFIX) and name.removeprefix(DUMP_PREFIX).isdigit()


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
