"""The environment of workloads as far as it is known without running anything: the pod's own, and the profile's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from agent.decide.environment import Environment, Layer, of_pod
from agent.fabrics.profiles import MARKS, NONE, Profile, choose, parse
from agent.paths import shipped_text
from agent.settings import Settings

LIBRARY_PATH = "LD_LIBRARY_PATH"


class FirstEnvironment(NamedTuple):
    """What was chosen, and what came of it."""

    profile: Profile
    prepared: Environment
    words: tuple[str, ...]
    """What was not done, and why."""


def first_environment(
    settings: Settings, environ: Mapping[str, str], exists: Callable[[str], bool], read: Callable[[str], str | None]
) -> FirstEnvironment:
    """Choose the profile and apply it. `exists` and `read` look at the pod's files."""
    profile = choose(settings.profile, [mark for mark in MARKS if exists(mark)])
    prepared, words = of_pod(environ, settings.user_env.split()), []
    plugin = environ.get("NCCL_PLUGIN_PATH", "")
    if plugin and exists(plugin):
        prepared = prepared.with_layer(Layer("NCCL_PLUGIN_PATH", {LIBRARY_PATH: plugin}))
    elif plugin:
        words.append(f"NCCL_PLUGIN_PATH={plugin} is not there")
    if profile.name != NONE:
        profile = parse(profile, shipped_text(read, "env", f"{profile.name}.env"))
        prepared = prepared.with_layer(Layer(f"profile {profile.name}", profile.values, profile.unset))
    return FirstEnvironment(profile, prepared, tuple(words))
