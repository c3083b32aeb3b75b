"""What others depend on and needs no cluster: names of the library, options, exit codes, installed data."""

from __future__ import annotations

import configparser
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import agent
import agent.testing
from agent import errors
from agent.commands import VERBS
from agent.decide.mpirun import MpiVersion
from agent.decide.mpirun_end import mpirun_end
from agent.decide.torchrun import torchrun_end
from agent.wire import field_names, is_record, needed_fields
from tests.golden.golden import expect_golden

ADDED = {
    "check-packages.py",
    "copy-newer.py",
    "download-model.py",
    "enter-cgroup.py",
    "record.py",
    "share-files.py",
} | {
    "collective_options.py",
    "folders.py",
    "shared_directory.py",
    "stored_files.py",
}
"""Installed data that came later: what was there stays."""
ROOT = Path(__file__).parents[2]
LOCAL_VERBS = ("up", "run", "exec", "cp", "logs", "down", "list", "status")
SYNC_VERBS = ("set", "wait", "fail", "list", "clean")


def public(thing: Any) -> list[str]:
    return [name for name in vars(thing) if not name.startswith("_") or name == "__init__"]


def signature(thing: Any) -> str:
    return str(inspect.signature(thing))


def described(thing: Any) -> Any:
    """What a caller can see of a public name."""
    if isinstance(thing, type) and issubclass(thing, Enum):
        return {"members": {member.name: member.value for member in thing}}
    if isinstance(thing, type):
        names = sorted({name for one in thing.__mro__ if one.__module__.startswith("agent") for name in public(one)})
        found: dict[str, Any] = {"bases": [base.__name__ for base in thing.__bases__], "methods": {}}
        if is_record(thing):
            types, needed = inspect.get_annotations(thing), needed_fields(thing)
            found["fields"] = {
                name: {"type": getattr(types[name], "__forward_arg__", types[name]), "needed": name in needed}
                for name in field_names(thing)
            }
        for name in names:
            member = inspect.getattr_static(thing, name)
            bound = getattr(thing, name)
            if isinstance(member, property):
                found["methods"][name] = "property"
            elif callable(bound):
                found["methods"][name] = f"{type(member).__name__} {signature(bound)}"
        return found
    return signature(thing) if callable(thing) else type(thing).__name__


def test_the_library() -> None:
    names = {name: getattr(agent, name) for name in agent.__all__}
    names |= {f"testing.{name}": getattr(agent.testing, name) for name in agent.testing.__all__}
    expect_golden("library", {name: described(value) for name, value in names.items()})


COMMANDS = [
    (),
    *((verb,) for verb in VERBS),
    *(("local", verb) for verb in LOCAL_VERBS),
    *(("sync", verb) for verb in SYNC_VERBS),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_options_of_each_command(words: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", "agent", *words, "--help"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done
    shown = done.stdout.partition("\nexamples:\n")[0]  # these have options of programs and workloads, too
    options = sorted(set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", shown)))
    expect_golden(f"options/{'-'.join(words) or 'a4-agent'}", options)


def test_every_command_is_looked_at() -> None:
    names = {path.stem for path in (ROOT / "tests/golden/files/options").glob("*.json")}
    assert names == {"-".join(words) or "a4-agent" for words in COMMANDS}


def test_the_exit_codes_of_errors() -> None:
    classes = {name: thing for name, thing in vars(errors).items() if isinstance(thing, type)}
    codes = {name: int(thing.code) for name, thing in classes.items() if issubclass(thing, errors.AgentError)}
    expect_golden("exit-codes/errors", codes)
    expect_golden("exit-codes/meanings", {code.name: int(code) for code in errors.Exit})


STATUSES = (*range(256), -9, -15)


def codes(found: Iterable[int]) -> str:
    """One line for the codes of all statuses."""
    return " ".join(str(int(code)) for code in found)


OUTPUTS = {
    "silent": "",
    "a rank's code": "Primary job terminated normally, but 1 process returned\na non-zero exit code.",
    "no slots": "There are not enough slots available in the system to satisfy the 9 slots",
    "no program": "mpirun was unable to find the specified executable file",
    "no daemon": "ORTE was unable to reliably start one or more daemons.",
}


@pytest.mark.parametrize("version", [MpiVersion(4, 1, 4), MpiVersion(5, 0, 11)], ids=str)
def test_the_exit_codes_of_mpirun(version: MpiVersion) -> None:
    matrix = {
        f"{name}, {'started' if started else 'not started'}": codes(
            mpirun_end(version, status, output, started=started)[0] for status in STATUSES
        )
        for name, output in OUTPUTS.items()
        for started in (False, True)
    }
    expect_golden(f"exit-codes/mpirun-{version}", matrix)


def test_the_exit_codes_of_torchrun() -> None:
    outputs = {
        "silent": "",
        "no torch": "/usr/bin/python3: Error while finding module specification for 'torch.distributed.run'",
        "port": "DistNetworkError: failed to listen on any local network address. port: 6002, name: EADDRINUSE",
        "usage": "torchrun: error: unrecognized arguments: --x",
        "killed": "Root Cause (first observed failure):\n  rank      : 3 (local_rank: 1)\n  exitcode  : -9 (pid: 7)",
    }
    matrix = {
        name: codes(torchrun_end(status, output, python="python3", port=6002)[0] for status in STATUSES)
        for name, output in outputs.items()
    }
    expect_golden("exit-codes/torchrun", matrix)


def test_what_is_installed_as_data() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    found = {
        place: sorted({path.name for pattern in patterns.split() for path in ROOT.glob(pattern)} - ADDED)
        for place, patterns in setup["options.data_files"].items()
    }
    expect_golden("installed-data", found)
