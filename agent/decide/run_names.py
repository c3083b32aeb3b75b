"""What people call their runs: a name to type in place of the id, a note, and the command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container
from typing import TYPE_CHECKING

from agent.catalogue import WORKLOADS
from agent.cutting import first_of
from agent.errors import UsageError

if TYPE_CHECKING:
    from agent.decide.runspec import MpirunOptions, RunSpec

MOST_NAME = 40
MOST_NOTE = 200
MOST_COMMAND = 2000
"""Bytes of a command as JSON: every pod keeps 50 of them. result.json has all arguments."""
_NAME = rf"[a-z0-9][a-z0-9.-]{{0,{MOST_NAME - 1}}}"
_ID = rf"({'|'.join(WORKLOADS)})-[0-9a-f]{{8}}"


def run_name(text: str) -> str:
    """The name of a run. Raises ValueError with what it takes."""
    if re.fullmatch(_ID, run_of(text)):
        raise ValueError("a name: it looks like the id of a run")
    if not re.fullmatch(_NAME, text):
        raise ValueError(f"a name of a-z, 0-9, '.' and '-', {MOST_NAME} at most, with a letter or digit first")
    return text


def life_id(run_id: str, life: int) -> str:
    """What marks and messages call one life of a run that can have several."""
    return f"{run_id}.{life}"


def run_of(life: str) -> str:
    """The id of the run whose life this is; what is not the id of a life stays."""
    return life_parts(life)[0]


def life_parts(life: str) -> tuple[str, int]:
    """The id of the run, and which of its lives, counted from 1; a run that can have only one is called as its life."""
    found = re.fullmatch(rf"({_ID})\.([1-9][0-9]{{0,3}})", life)
    return (found[1], int(found[3])) if found else (life, 1)


def run_note(text: str) -> str:
    """The note of a run, one line. Raises ValueError with what it takes."""
    if len(text) > MOST_NOTE or not text.isprintable():
        raise ValueError(f"a note of one line, {MOST_NOTE} printable characters at most")
    return text


def check_labels(spec: RunSpec) -> None:
    """Raises UsageError for a name or a note that a run cannot have."""
    for field, text, parse in (("name", spec.name, run_name), ("note", spec.note, run_note)):
        try:
            text and parse(text)
        except ValueError as wanted:
            raise UsageError(f"the run's {field} {text!r} is not {wanted}") from None


def free_name(name: str, taken: Container[str]) -> str:
    """The name, or the first of NAME-2, NAME-3, … that is not taken."""
    free, number = name, 1
    while free in taken:
        number += 1
        end = f"-{number}"
        free = name[: MOST_NAME - len(end)].rstrip(".-") + end
    return free


def command_line(spec: RunSpec) -> str:
    """What tells a run from others: workload, ranks, mpirun's own options and arguments, secrets included."""
    ranks = ["-np", str(spec.ranks)] if spec.ranks else []
    per_node = ["-N" if spec.workload == "mpirun" else "--nproc-per-node", str(spec.per_node)] if spec.per_node else []
    without = [] if spec.without is None else ["--without", str(spec.without)]
    return shlex.join([spec.workload, *ranks, *per_node, *without, *_own_options(spec.mpi), *spec.args])


def _own_options(mpi: MpirunOptions | None) -> list[str]:
    if mpi is None:
        return []
    places = [("--bind-to", mpi.bind_to), ("--map-by", mpi.map_by)]
    words = [word for option, value in places if value for word in (option, value)]
    words += [word for name, value in mpi.mca for word in ("--mca", name, value)]
    return words + ["--oversubscribe"] * mpi.oversubscribe


def one_line(command: str) -> str:
    """A command, secrets masked, as status and logs show it."""
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in command)
    return first_of("".join(shown), MOST_COMMAND, " …")


def titled(run_id: str, name: str) -> str:
    """How messages speak of a run: its id, and its name if it has one."""
    return f"{run_id} ({name})" if name else run_id
