"""Starts processes of the agent's own that touch files where they may hang.

A thread would not do: one that waits for a dead server in the kernel keeps its whole process from ending.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from agent.paths import own_program, package_home

KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
"""What a Python may need to start at all."""


def helper_environment() -> dict[str, str]:
    """That of processes that touch such directories: all other variables stay away, the mark A4_RUN among them."""
    return {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}


def start_helper(
    program: str, *arguments: str, stdin: int = subprocess.PIPE, stderr: int = subprocess.DEVNULL, **options: Any
) -> subprocess.Popen[bytes]:
    """A program of entrypoints/ in a session of its own, with pipes to it. Raises OSError."""
    return _start(own_program(program, *arguments), "/", stdin=stdin, stderr=stderr, **options)


def start_module(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """The same of a module of this package. Raises OSError."""
    argv = [sys.executable, "-Es", "-m", module, *arguments]
    return _start(argv, package_home(), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _start(argv: Sequence[str], cwd: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        bufsize=0,
        stdout=subprocess.PIPE,
        env=helper_environment(),
        cwd=cwd,
        start_new_session=True,
        **options,
    )
