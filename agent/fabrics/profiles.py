"""Fabric profiles: what env/*.env says, which of them fits a pod, and vendors' scripts and files that go with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from agent.errors import MissingProgram
from agent.fabrics import FABRICS

NONE = "none"
AUTO = "auto"
PROFILES = tuple(reversed(FABRICS))
CHOICES = (AUTO, *PROFILES, NONE)
MARKS = tuple(fabric.mark for fabric in FABRICS.values())
LEFT_IN = "/dev/shm"
LEFT_BEHIND = ("scripts", "diagnostic", "third_party")
"""What the container that installs gIB copies to LEFT_IN, for this one to place at /."""
Copying = tuple[list[str], str]
"""Files and directories to copy into a directory, all of them or none."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Profile(NamedTuple):
    """The profile of a pod: why it is this one, and what its env file says."""

    name: str
    why: str
    values: Mapping[str, str] = {}
    unset: Sequence[str] = ()
    """Variables that the workload must not have, whatever the image presets."""
    asked: bool = False
    """A4_PROFILE names it."""


def choose(wanted: str, there: Collection[str]) -> Profile:
    """The profile for a pod in which those marks of FABRICS are `there`; its env file is not read yet."""
    if wanted != AUTO:
        return Profile(wanted, f"A4_PROFILE={wanted}", asked=True)
    for fabric in FABRICS.values():
        if fabric.mark in there:
            return Profile(fabric.name, f"{fabric.mark} is in this pod")
    return Profile(NONE, f"none of {', '.join(MARKS)} is in this pod")


def parse(chosen: Profile, text: str) -> Profile:
    """Add what its env file says. Raises ValueError that names the line.

    A line is NAME=VALUE, `unset NAME`, a comment that begins with `#`, or empty. A value is what follows the first
    `=`, to the end of the line: nothing in it is quoted, expanded or taken away.
    """
    values: dict[str, str] = {}
    unset: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, is_value, value = line.partition("=")
        removed = None if is_value else re.fullmatch(r"unset +(\S+) *", line)
        if not _NAME.fullmatch(removed[1] if removed else name) or not (is_value or removed):
            raise ValueError(f"{chosen.name}.env, line {number} is neither NAME=VALUE nor unset NAME: {line!r}")
        if removed:
            unset.append(removed[1])
        else:
            values[name] = value
    return chosen._replace(values=values, unset=tuple(unset))


def vendor_scripts(profile: Profile, init_script: str, there: Collection[str]) -> tuple[list[str], list[str]]:
    """Scripts to run, in order, and what to say of those that are not. `init_script`: NCCL_INIT_SCRIPT.

    `there`: which of all these files and directories the pod has. Raises MissingProgram for a script that is not
    there though it should: its directory is, or somebody asked for it.
    """
    if profile.name == NONE and profile.asked:
        return [], [f"A4_PROFILE={NONE}: no vendor's script is run"]
    run, notes = [], []
    for path in FABRICS[profile.name].scripts if profile.name in FABRICS else ():
        home = next(mark for mark in MARKS if path.startswith(f"{mark}/"))
        if path in there:
            run.append(path)
        elif home in there or profile.asked:
            hint = "did its init container run to the end? A4_PROFILE=none does not need it"
            raise MissingProgram(f"the profile {profile.name} ({profile.why}) needs {path}, which does not exist", hint)
        else:
            notes.append(f"{path} is not run: there is no {home}")
    if init_script and init_script not in run:
        if init_script not in there:
            hint = "did the init container run to the end? A4_PROFILE=none does not need it"
            raise MissingProgram(f"NCCL_INIT_SCRIPT={init_script} does not exist", hint)
        run.append(init_script)
    return run, notes


def placing(left: Mapping[str, Sequence[str]], present: Collection[str]) -> tuple[list[Copying], list[str]]:
    """What to copy, and in words what need not be. `left`: the directories of LEFT_BEHIND that are in LEFT_IN, with
    the names in them; `present`: which of those paths, below /, the image has itself."""
    if not left:
        return [], [f"no files to place: no gIB installer left any in {LEFT_IN}"]
    places, words = [], []
    for name, inner in left.items():
        missing = [f"{LEFT_IN}/{name}/{one}" for one in sorted(inner) if f"/{name}/{one}" not in present]
        if f"/{name}" not in present:
            places.append(([f"{LEFT_IN}/{name}"], "/"))
        elif missing:  # the image has some of it: what else there is goes beside that
            places.append((missing, f"/{name}/"))
        else:
            words.append(f"/{name} is there already")
    return places, words
