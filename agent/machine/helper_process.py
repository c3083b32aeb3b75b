"""Starts processes of the agent's own that touch files where they may hang.

A thread would not do: one that waits for a dead server in the kernel keeps its whole process from ending.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from agent.paths import own_program

KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
"""What a Python may need to start at all."""


def helper_environment() -> dict[str, str]:
    """That of processes that touch such directories: all other variables stay away, the mark A4_RUN among them."""
    return {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}


def start_helper(
    program: str, *arguments: str, stdin: int = subprocess.PIPE, stderr: int = subprocess.DEVNULL, **options: Any
) -> subprocess.Popen[bytes]:
    """A program of entrypoints/ in a session of its own, with pipes to it. Raises OSError."""
    return subprocess.Popen(
        own_program(program, *arguments),
        bufsize=0,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=helper_environment(),
        cwd="/",
        start_new_session=True,
        **options,
    )
