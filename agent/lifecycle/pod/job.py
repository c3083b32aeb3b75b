"""What a pod is told to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.decide.runspec import RunSpec
from agent.settings import Settings


@dataclass(frozen=True)
class Job:
    """What the command line and the environment ask of this pod."""

    settings: Settings
    environ: Mapping[str, str] = field(repr=False)
    secret: bytes = field(repr=False)
    """Empty for a job of one pod."""
    python: str
    spec: RunSpec
    """The first run."""
    topology: bool = True
    started: float = 0.0
    """When the process started, on the machine's clock."""
    warnings: tuple[str, ...] = ()
    """About the settings; `serve` says them."""
