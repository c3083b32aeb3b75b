"""One argument of a workload, as `a4-agent run WORKLOAD --help`, completion and the docs show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


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
    """How a rank program reads the value."""

    @property
    def defaults(self) -> str:
        return f"{self.default}; over gloo {self.on_gloo}" if self.on_gloo else self.default
