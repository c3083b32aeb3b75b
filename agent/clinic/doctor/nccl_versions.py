"""Releases of NCCL that are known to hang a run without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

Release = tuple[int, int, int]


class KnownHang(NamedTuple):
    """One, and who says so."""

    first: Release
    last: Release
    what: str
    source: str


HANGS = (
    # The flag that gets lost came with 2.24.3 (src/device/prims_simple.h). NVIDIA announced the fix for the first
    # update of 2.32 when 2.32.3 was about to come.
    KnownHang(
        (2, 24, 3),
        (2, 32, 3),
        "a transfer between nodes of a buffer that is registered with the network can stand still",
        "NVIDIA/nccl#2389",
    ),
)


def hangs_of(version: str) -> Iterator[KnownHang]:
    """Those that a version such as 2.28.9 has. Raises ValueError for what is none."""
    major, minor, patch = map(int, version.split("."))
    return (one for one in HANGS if one.first <= (major, minor, patch) <= one.last)
