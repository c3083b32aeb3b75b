"""What a pod is told to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agent import wire
from agent.decide.runspec import RunSpec
from agent.settings import Settings


class Job(NamedTuple):
    """What the command line and the environment ask of this pod."""

    settings: Settings
    environ: Mapping[str, str]
    secret: bytes
    """Empty for a job of one pod."""
    python: str
    spec: RunSpec
    """The first run."""
    topology: bool = True
    started: float = 0.0
    """When the process started, on the machine's clock."""
    warnings: tuple[str, ...] = ()
    """About the settings; `serve` says them."""

    def __repr__(self) -> str:
        return wire.shown(self, "environ", "secret")
