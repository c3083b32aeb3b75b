"""Programs that are run for what they say, and given up when that takes too long."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from agent.cutting import cut_at_word

MOST_REASON = 300
PROGRAM_SECONDS = 20.0
"""How long one may take that says what it is: seconds, where its libraries lie on a slow disk."""


class ProgramEnd(NamedTuple):
    """How a program ended: its exit status, -n when signal n killed it, and what it wrote."""

    status: int
    output: bytes
    errors: bytes


class Late(TimeoutError):
    """A program was given up; `output` is what it had written on stdout until then. `left`: the process that even
    SIGKILL did not end."""

    def __init__(self, seconds: float, output: str, left: int = 0) -> None:
        hangs = f"; its process {left} hangs in the kernel (state D) and stays" if left else ""
        super().__init__(f"did not answer within {seconds:g} s{hangs}")
        self.output = output


class ProgramAnswer(NamedTuple):
    """What a program wrote on stdout, all of it or until it was given up, and why that may not be all."""

    output: str
    problem: str = ""


def run_to_end(argv: Sequence[str], environ: Mapping[str, str], seconds: float, cwd: str = "/") -> ProgramEnd:
    """Run a program in a session of its own. Raises OSError or ValueError when it cannot be started, Late."""
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        cwd=cwd,
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as late:
        left = 0 if _give_up(child) else child.pid
        raise Late(seconds, text_of(late.output or b""), left) from None
    except BaseException:
        _give_up(child)
        raise
    return ProgramEnd(child.returncode, output, errors)


def ask(what: str, argv: Sequence[str], environ: Mapping[str, str], seconds: float, cwd: str = "/") -> ProgramAnswer:
    """What a program says; `what` is its name in a problem. Never raises for what the program does."""
    try:
        done = run_to_end(argv, environ, seconds, cwd)
    except Late as late:
        return ProgramAnswer(late.output, f"{what} {late}")
    except (OSError, ValueError) as error:
        return ProgramAnswer("", f"{argv[0]} cannot be started: {getattr(error, 'strerror', None) or error}")
    output = text_of(done.output)
    if not done.status:
        return ProgramAnswer(output)
    how = f"ended with {done.status}" if done.status > 0 else f"was killed by signal {-done.status}"
    last = next((line for line in reversed(text_of(done.errors).splitlines()) if line.strip()), "")
    why = f": {cut_at_word(last.strip(), MOST_REASON)}" if last else ""
    return ProgramAnswer(output, f"{what} {how}{why}")


def _give_up(child: subprocess.Popen[bytes]) -> bool:
    """Kill a program with its session; False when it is still there. Its end is not waited for longer than a moment:
    in a system call that hangs it does not even take SIGKILL."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        child.wait(1.0)
    return child.returncode is not None


def text_of(data: bytes) -> str:
    return data.decode(errors="replace")
