"""What has to be done in a pod before workloads find everything around them: decided from what is there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

LEFT_IN = "/dev/shm"
LEFT_BEHIND = ("scripts", "diagnostic", "third_party")
"""What the container that installs gIB copies to LEFT_IN, for this one to place at /."""


class PlaceFiles(NamedTuple):
    """Copy files and directories into a directory, all of them or none."""

    sources: Sequence[str]
    target: str


def placing(left: Mapping[str, Sequence[str]], present: Collection[str]) -> tuple[list[PlaceFiles], list[str]]:
    """What to do, and in words what need not be done. `left`: the directories of LEFT_BEHIND that are in LEFT_IN, with
    the names in them; `present`: which of those paths, below /, the image has itself."""
    if not left:
        return [], [f"no files to place: no gIB installer left any in {LEFT_IN}"]
    places, words = [], []
    for name, inner in left.items():
        missing = [f"{LEFT_IN}/{name}/{one}" for one in sorted(inner) if f"/{name}/{one}" not in present]
        if f"/{name}" not in present:
            places.append(PlaceFiles([f"{LEFT_IN}/{name}"], "/"))
        elif missing:  # the image has some of it: what else there is goes beside that
            places.append(PlaceFiles(missing, f"/{name}/"))
        else:
            words.append(f"/{name} is there already")
    return places, words
