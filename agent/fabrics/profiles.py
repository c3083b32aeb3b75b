"""Fabric profiles: what env/*.env says, which of them fits a pod, and the vendors' scripts that go with it."""

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

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Profile(NamedTuple):
    """What an env file says, and why it is the one for this pod."""

    name: str
    why: str = ""
    values: Mapping[str, str] = {}
    unset: Sequence[str] = ()
    """Variables that the workload must not have, whatever the image presets."""


class Choice(NamedTuple):
    """The name of a profile and why it was chosen; `asked`: A4_PROFILE names it."""

    name: str
    why: str
    asked: bool = False


def choose(wanted: str, there: Collection[str]) -> Choice:
    """The profile for a pod in which those marks of FABRICS are `there`."""
    if wanted != AUTO:
        return Choice(wanted, f"A4_PROFILE={wanted}", asked=True)
    for fabric in FABRICS.values():
        if fabric.mark in there:
            return Choice(fabric.name, f"{fabric.mark} is in this pod")
    return Choice(NONE, f"none of {', '.join(MARKS)} is in this pod")


def parse(choice: Choice, text: str) -> Profile:
    """Read an env file. Raises ValueError that names the line.

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
            raise ValueError(f"{choice.name}.env, line {number} is neither NAME=VALUE nor unset NAME: {line!r}")
        if removed:
            unset.append(removed[1])
        else:
            values[name] = value
    return Profile(choice.name, choice.why, values, tuple(unset))


def vendor_scripts(choice: Choice, init_script: str, there: Collection[str]) -> tuple[list[str], list[str]]:
    """Scripts to run, in order, and what to say of those that are not. `init_script`: NCCL_INIT_SCRIPT.

    `there`: which of all these files and directories the pod has. Raises MissingProgram for a script that is not
    there though it should: its directory is, or somebody asked for it.
    """
    if choice.name == NONE and choice.asked:
        return [], [f"A4_PROFILE={NONE}: no vendor's script is run"]
    run, notes = [], []
    for path in FABRICS[choice.name].scripts if choice.name in FABRICS else ():
        home = next(mark for mark in MARKS if path.startswith(f"{mark}/"))
        if path in there:
            run.append(path)
        elif home in there or choice.asked:
            hint = "did its init container run to the end? A4_PROFILE=none goes without"
            raise MissingProgram(f"the profile {choice.name} ({choice.why}) needs {path}, which is not there", hint)
        else:
            notes.append(f"{path} is not run: there is no {home}")
    if init_script and init_script not in run:
        if init_script not in there:
            hint = "did the init container run to the end? A4_PROFILE=none goes without"
            raise MissingProgram(f"NCCL_INIT_SCRIPT={init_script} is not there", hint)
        run.append(init_script)
    return run, notes
