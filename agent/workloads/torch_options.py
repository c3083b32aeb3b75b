"""Options of the rank programs `ddp` and `collectives`, as far as a run can be refused for them before torch starts.

The programs themselves, which people also start by hand, read them again; tests hold that both take the same.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from agent.errors import UsageError
from agent.workloads.option import Option


class Options(argparse.ArgumentParser):
    """Those of one program. Raises UsageError for what is wrong, and for --help."""

    def __init__(self, program: str, options: Iterable[Option]) -> None:
        super().__init__(prog=program)
        self._where = f"a4-agent run {program} --help lists its options"
        for one in options:
            self.add_argument(*one.names, type=one.type or str, choices=one.choices or None)

    def print_help(self, file: Any = None) -> None:
        raise UsageError(self._where)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", self._where)


def at_least(least: int) -> Callable[[str], int]:
    """A type of options: whole numbers."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return number


COMMON = (
    Option(("--backend",), "NAME", "nccl or gloo", "nccl where there are GPUs", choices=("nccl", "gloo")),
    Option(("--timeout-seconds",), "N", "limit of one collective, in seconds", "600", type=at_least(1)),
)
"""Options that both programs have."""
