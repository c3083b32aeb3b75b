"""The environment of workloads as far as it is known without running anything: the pod's own, and the profile's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from agent.decide.environment import Environment, Layer, of_interfaces, of_pod
from agent.fabrics.profiles import MARKS, NONE, Profile, choose, parse
from agent.paths import shipped_text
from agent.settings import Settings

LIBRARY_PATH = "LD_LIBRARY_PATH"
TRITON = "TRITON_LIBCUDA_PATH"
"""Where triton looks for the driver's library. Without it triton asks ldconfig; releases before 3.5 fail if the answer
is not UTF-8."""
DRIVER_IN = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


class FirstEnvironment(NamedTuple):
    """What was chosen, and what came of it."""

    profile: Profile
    prepared: Environment
    words: tuple[str, ...]
    """What was done that no profile says, and what was not done, and why."""


def first_environment(
    settings: Settings,
    environ: Mapping[str, str],
    interfaces: Sequence[str],
    exists: Callable[[str], bool],
    read: Callable[[str], str | None],
) -> FirstEnvironment:
    """Choose the profile and apply it. `interfaces`: the pod's, its own one first; `exists` and `read` look at its
    files."""
    profile = choose(settings.profile, [mark for mark in MARKS if exists(mark)])
    prepared, words = of_pod(environ, settings.user_env.split()), []
    prepared = prepared.with_layer(of_interfaces(environ, interfaces))
    plugin = environ.get("NCCL_PLUGIN_PATH", "")
    if plugin and exists(plugin):
        prepared = prepared.with_layer(Layer("NCCL_PLUGIN_PATH", {LIBRARY_PATH: plugin}))
    elif plugin:
        words.append(f"NCCL_PLUGIN_PATH={plugin} does not exist")
    if profile.name != NONE:
        profile = parse(profile, shipped_text(read, "env", f"{profile.name}.env"))
        prepared = prepared.with_layer(Layer(f"profile {profile.name}", profile.values, profile.unset))
    if TRITON not in environ and (driver := _driver(prepared.env, exists)):
        prepared = prepared.with_layer(Layer("the driver's libraries", {TRITON: driver}))
        words.append(f"{TRITON}={driver}: triton need not ask ldconfig")
    return FirstEnvironment(profile, prepared, tuple(words))


def _driver(env: Mapping[str, str], exists: Callable[[str], bool]) -> str:
    """The directory of libcuda.so.1, if possible one that also has the libcuda.so to link with; empty: not found."""
    places = [*env.get(LIBRARY_PATH, "").split(":"), *DRIVER_IN]
    there = [place for place in places if place.startswith("/") and exists(f"{place}/libcuda.so.1")]
    return next((place for place in there if exists(f"{place}/libcuda.so")), next(iter(there), ""))
