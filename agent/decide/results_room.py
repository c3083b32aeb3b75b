"""Which results of earlier runs make room for newer ones, where they lie in the pod itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

KEPT_RUNS = 200
"""So many of the newest runs keep their result.json and report.html, however large their logs are."""


class StoredRun(NamedTuple):
    """What a run has in the results directory."""

    run: str
    size: int
    """Bytes of all its files."""
    logs: int
    """Bytes of pods' logs among these."""


class Removal(NamedTuple):
    """What is to be removed."""

    runs: Sequence[str] = ()
    """Runs of which nothing stays."""
    logs: Sequence[str] = ()
    """Runs that lose their logs."""


def surplus(runs: Sequence[StoredRun], most: int) -> Removal:
    """What to remove, so that the rest has at most `most` bytes, as far as removing logs can do that. The oldest run
    comes first."""
    kept = runs[-KEPT_RUNS:]
    over = sum(one.size for one in kept) - most
    logs = []
    for one in kept:
        if over > 0 and one.logs:
            logs.append(one.run)
            over -= one.logs
    return Removal([one.run for one in runs[:-KEPT_RUNS]], logs)
