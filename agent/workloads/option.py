"""The arguments of a workload: rows, as `a4-agent run WORKLOAD --help`, completion and the docs show them, and the one
parser that reads by these rows what is given."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from agent.errors import UsageError


class Option(NamedTuple):
    """One option. All of them take a value."""

    names: tuple[str, ...]
    value: str
    """What stands for the value in help."""
    help: str
    default: str = ""
    """In words; empty for none, or one that `help` tells."""
    on_gloo: str = ""
    """The default over gloo, where it differs."""
    choices: tuple[str, ...] = ()
    several: tuple[str, ...] = ()
    """What a value may list, with commas between."""
    type: Callable[[str], Any] | None = None
    """Reads the value; raises ArgumentTypeError for a wrong one. None: any text will do."""

    @property
    def defaults(self) -> str:
        return f"{self.default}; over gloo {self.on_gloo}" if self.on_gloo else self.default


class OptionParser(argparse.ArgumentParser):
    """Reads the arguments of a workload by its rows. Raises UsageError for what is wrong, and for --help."""

    def __init__(self, workload: str, options: Iterable[Option]) -> None:
        super().__init__(prog=workload)
        self._hint = f"a4-agent run {workload} --help lists its options"
        for one in options:
            self.add_argument(*one.names, type=one.type or str, choices=one.choices or None)

    def print_help(self, file: Any = None) -> None:
        raise UsageError(self._hint)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", self._hint)


def between(least: float, most: float, wanted: str) -> Callable[[str], float]:
    """A type of options: numbers; `wanted`: which, in words."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
        return value

    return number


def at_least(least: int, most: float = math.inf) -> Callable[[str], int]:
    """A type of options: whole numbers of at most nine digits."""
    wanted = f"(at least {least})" if most == math.inf else f"from {least} to {most}"

    def number(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {wanted}")
        return int(text)

    return number
