"""A launch: what would be started, as a value that can be printed before it is run."""

from __future__ import annotations

import json
import re
import shlex
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from agent import wire

Kind = TypeVar("Kind")
MOST_UNPACKED = 16 << 20
"""A program's own argument may be such a word, too, and unpack to anything."""


class Launch(NamedTuple):
    """One process to start. `str` is the shell text that would start the same by hand."""

    argv: Sequence[str]
    """Program and arguments."""
    env: Mapping[str, str] = {}
    """Its whole environment."""
    cwd: str = "/"
    """Directory in which it starts."""
    added: Sequence[str] = ()
    """Variables that the agent put in or changed; the rest of `env` is the pod's own."""
    removed: Sequence[str] = ()
    """Variables of the pod's own that the process does not get."""
    port: int = 0
    """TCP port that the process will listen on, which must be free before; 0: none."""
    notes: Sequence[str] = ()
    """What the user should be warned of, a sentence each."""
    steps: Sequence[tuple[Sequence[str], Sequence[str]]] = ()
    """What the process starts one after the other: (names, argv), once for each name. Empty: it is what `argv` says."""
    text: str = ""
    """What it does, for people; empty: it is what `argv` or `steps` say."""

    def __repr__(self) -> str:
        return wire.shown(self, "env")

    def __str__(self) -> str:
        """Shell text that would start the same process by hand."""
        changes = [f"{name}={shlex.quote(self.env[name])}" for name in sorted(self.added)]
        without = [f"env {' '.join(f'-u {name}' for name in self.removed)}"] if self.removed else []
        lines = [f"cd {shlex.quote(self.cwd)}", *without, *changes]
        if self.text:
            return "\n".join([*changes, self.text])
        shown = []
        for names, argv in self.steps or [((), self.argv)]:
            times = f"# {len(names)} times: {names[0]} to {names[-1]}\n" if len(names) > 1 else ""
            shown.append(times + " \\\n  ".join([lines[0] + " &&", *lines[1:], shlex.join(argv)]))
        return "\n".join(shown)


def packed(value: Any) -> str:
    """What agent.wire makes of the value, in one argument: Linux takes none of more than 128 KiB, and each command line
    of mpirun names every variable."""
    data = json.dumps(wire.to_json(value)).encode()
    return b2a_base64(zlib.compress(data, 9), newline=False).decode()


def unpacked(kind: type[Kind], word: str) -> Kind:
    """The value that `packed` made the word of. Raises ValueError, or zlib.error for a damaged word."""
    return wire.from_json(kind, json.loads(zlib.decompress(a2b_base64(word))))


def repacked(word: str, change: Callable[[Any], Any]) -> str:
    """The word of what `change` makes of the JSON in it; any other word as it is."""
    try:
        value = json.loads(zlib.decompressobj().decompress(a2b_base64(word), MOST_UNPACKED))
    except (ValueError, zlib.error, RecursionError):
        return word
    changed = change(value)
    return packed(changed) if changed != value else word


class Started(NamedTuple):
    """What was started, for result.json."""

    argv: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    """what a4-agent set, and of the rest what holds no secrets by its name, such as NCCL_*"""
    added: tuple[str, ...]
    """names that a4-agent set"""


def is_python(program: str) -> bool:
    """Whether a command that begins with this word starts Python: python3, /opt/conda/bin/python3.12."""
    return re.fullmatch(r"(?:.*/)?python[\d.]*", program) is not None
