"""The profiles that come with the agent."""

from __future__ import annotations

from pathlib import Path

from agent.fabrics.profiles import Profile, parse
from agent.paths import shipped


def text(name: str) -> str:
    return Path(shipped("env", f"{name}.env")).read_text()


def profile(name: str) -> Profile:
    return parse(Profile(name, "for a test"), text(name))
