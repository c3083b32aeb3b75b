"""What has to be done in a pod before workloads find everything around them: decided from what is there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

LEFT_IN = "/dev/shm"
LEFT_BEHIND = ("scripts", "diagnostic", "third_party")
"""What the container that installs gIB copies to LEFT_IN, for this one to place at /."""


class PlaceFiles(NamedTuple):
    """Copy files and directories into a directory, all of them or none."""

    sources: Sequence[str]
    target: str


class RunScript(NamedTuple):
    """Run a vendor's script and take over what it does to the environment."""

    path: str


class CacheLibraries(NamedTuple):
    """Tell the loader of the library paths, for programs that no shell starts."""


Step = PlaceFiles | RunScript | CacheLibraries


class Steps(NamedTuple):
    """What to do, in order, and in words what need not be done."""

    steps: Sequence[Step]
    words: Sequence[str]


def steps(left: Mapping[str, Sequence[str]], present: Collection[str], scripts: Sequence[str]) -> Steps:
    """`left`: the directories of LEFT_BEHIND that are in LEFT_IN, with the names in them; `present`: which of those
    paths, below /, the image has itself; `scripts`: the vendors' scripts to run."""
    words = [] if left else [f"no files to place: no gIB installer left any in {LEFT_IN}"]
    places = list(_places(left, present))
    sources = [f"{source}/" for place in places for source in place.sources]
    words += [
        f"/{name} is there already" for name in left if not any(one.startswith(f"{LEFT_IN}/{name}/") for one in sources)
    ]
    return Steps([*places, *map(RunScript, scripts), CacheLibraries()], words)


def _places(left: Mapping[str, Sequence[str]], present: Collection[str]) -> Iterator[PlaceFiles]:
    for name, inner in left.items():
        missing = [f"{LEFT_IN}/{name}/{one}" for one in sorted(inner) if f"/{name}/{one}" not in present]
        if f"/{name}" not in present:
            yield PlaceFiles([f"{LEFT_IN}/{name}"], "/")
        elif missing:  # the image has some of it: what else there is goes beside that
            yield PlaceFiles(missing, f"/{name}/")
