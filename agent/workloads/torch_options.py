"""Options of the rank programs `ddp` and `collectives`, as far as a run can be refused for them before torch starts.

The programs themselves, which people also start by hand, read them again; tests hold that both take the same.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn

from agent.errors import UsageError
from agent.paths import shipped

WHERE = "its options are in docs/workloads.md"


class Options(argparse.ArgumentParser):
    """Those that both programs have. Raises UsageError for what is wrong, and for --help."""

    def __init__(self, program: str, python: str) -> None:
        super().__init__(prog=program)
        self._own_help = f"{python} {shipped('entrypoints', f'{program}.py')} --help"
        self.add_argument("--backend", choices=("nccl", "gloo"))
        self.add_argument("--timeout-seconds", type=at_least(1))

    def print_help(self, file: Any = None) -> None:
        raise UsageError(WHERE, f"its own words, where torch is: {self._own_help}")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", WHERE)


def at_least(least: int) -> Callable[[str], int]:
    """A type of options: whole numbers."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return number
