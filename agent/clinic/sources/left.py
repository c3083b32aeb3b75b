"""What ranks left in files: who they were, and what torch's watchdog wrote before it ended them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress

from agent.clinic.sources.dump import DUMP_PREFIX, MOST_DUMP, is_dump, read_dump
from agent.clinic.sources.recorder import Recorded

MOST_GROUPS = 16 << 20
"""Bytes of the file that says which ranks are in which group."""


def noted_ranks(directory: str) -> dict[int, int]:
    """Process → rank, as the hook noted it."""
    return {pid: int(text) for pid, text in _numbered(directory) if text.strip().isdecimal()}


def groups_of(directory: str, pid: int) -> dict[str, tuple[int, ...]]:
    """Name → ranks of the groups that a rank has made, as the hook noted them; empty when it has not."""
    try:
        with open(f"{directory}/{pid}.groups", "rb") as file:
            told = json.loads(file.read(MOST_GROUPS))
        return {str(name): tuple(map(int, ranks)) for name, ranks in told.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def torch_release(directory: str) -> tuple[int, int] | None:
    """2, 15: the torch that ranks have loaded, as the hook noted it; None when it has not."""
    try:
        with open(f"{directory}/versions.json", "rb") as file:
            major, minor = str(json.loads(file.read(MOST_GROUPS))["torch"]).split(".")[:2]
        return int(major), int(minor)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def started_ranks(directory: str) -> dict[int, int]:
    """Process → rank of those that entrypoints/rank.sh has started, and whose end it has not recorded."""
    found: dict[int, int] = {}
    for rank, text in _numbered(directory):
        match text.split():
            case ["started", pid, *rest] if pid.isdecimal() and "ended" not in rest:
                found[int(pid)] = rank
    return found


def _numbered(directory: str) -> Iterator[tuple[int, str]]:
    """The files whose names are numbers, with their texts."""
    with suppress(OSError):
        for name in filter(str.isdecimal, os.listdir(directory)):
            with suppress(OSError, ValueError), open(f"{directory}/{name}") as file:
                yield int(name), file.read()


def dumps_in(directory: str) -> list[str]:
    """Names of the dumps in it, but for those of ranks that torchrun has started anew since."""
    with suppress(OSError):
        written = {entry.name: entry.stat().st_mtime for entry in os.scandir(directory)}
        newest = max((at for name, at in written.items() if name.isdigit()), default=0.0)
        return sorted(name for name, at in written.items() if is_dump(name) and at >= newest)
    return []


def read_dump_of(directory: str, name: str) -> tuple[int, Recorded]:
    """The rank that left it, and how far that came."""
    rank = int(name.removeprefix(DUMP_PREFIX))
    try:
        with open(f"{directory}/{name}", "rb") as file:
            return rank, read_dump(file.read(MOST_DUMP + 1))
    except OSError as error:
        return rank, Recorded((), f"it cannot be read: {error.strerror}")
