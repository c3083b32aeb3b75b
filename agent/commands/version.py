"""`a4-agent version`: what to put into a bug report."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib import metadata

from agent import __version__
from agent.commands.printing import print_json
from agent.machine.asking import PROGRAM_SECONDS, run_to_end, text_of
from agent.machine.process import find_program

DESCRIPTION = "Shows the versions of the agent and of the programs it calls."
EXAMPLES = "a4-agent version --json"
LIBRARIES = ("paramiko", "cryptography", "dnspython", "tenacity", "psutil", "mpi4py")
PROGRAMS = {"sshd": ("-V",), "mpirun": ("--version",), "tini": ("--version",)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same as JSON")


def run(args: argparse.Namespace) -> int:
    """Print versions; what is missing or does not start is said in its place."""
    versions = {"a4-agent": __version__, "python": platform.python_version()}
    versions |= {name: _library(name) for name in LIBRARIES}
    versions |= {name: _program(name, flags) for name, flags in PROGRAMS.items()}
    if args.json:
        print_json(versions)
    else:
        sys.stdout.write("".join(f"{name} {version}\n" for name, version in versions.items()))
    return 0


def _library(name: str) -> str:
    """Its version, or that it is not installed."""
    try:
        return metadata.version(name)  # reads the installed metadata, imports nothing
    except metadata.PackageNotFoundError:
        return "not installed"


def _program(name: str, flags: tuple[str, ...]) -> str:
    """What it says of its version, and where it lies: several may be on PATH."""
    path = find_program(name, os.environ.get("PATH", ""))
    if path is None:
        return "not found"
    try:
        done = run_to_end([path, *flags], os.environ, PROGRAM_SECONDS)
    except OSError as error:
        return f"{path} failed: {error}"
    lines = [line for line in text_of(done.output + done.errors).splitlines() if line.strip()]
    # sshd before 9.3 knows no -V and answers with its usage, the version in the second line.
    line = next((line for line in lines if any(c.isdigit() for c in line) and "option" not in line), "unknown")
    return f"{line.strip()} ({path})"
