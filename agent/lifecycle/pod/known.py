"""What a pod comes to know of itself and of its cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent import wire
from agent.decide.facts import Facts
from agent.decide.plan import Plan
from agent.errors import SettingsError
from agent.fabrics.profiles import NONE, Profile
from agent.machine.api import Interface
from agent.settings import Settings

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What holds until it is known better: a pod that is alone has no other interface, and no fabric.
NO_PROFILE = Profile(NONE, "not chosen yet")
LOOPBACK = Interface("lo", "127.0.0.1")


class Known(NamedTuple):
    """`Pod.learn` makes the next one; nothing else changes what a pod knows."""

    environ: Mapping[str, str]
    """What workloads get; complete when the surroundings are ready."""
    profile: Profile = NO_PROFILE
    interface: Interface = LOOPBACK
    facts: Facts | None = None
    inventory: Mapping[str, str] | None = None
    """The inventory in the few words that other pods get."""
    plan: Plan | None = None
    baselines: Mapping[str, str] = {}
    """Files of baselines, path → text; see Preparations."""

    def __repr__(self) -> str:
        return wire.shown(self, "environ")

    @property
    def search_path(self) -> str:
        return self.environ.get("PATH") or DEFAULT_PATH


def choose_interface(settings: Settings, interfaces: Sequence[Interface]) -> Interface:
    """The interface that A4_INTERFACE names, or the first. Raises SettingsError."""
    wanted = settings.interface
    fitting = [interface for interface in interfaces if wanted in ("", interface.name)]
    if fitting:
        return fitting[0]
    if wanted:
        have = ", ".join(f"{i.name} ({i.address})" for i in interfaces) or "none"
        raise SettingsError([f"A4_INTERFACE={wanted} (environment) has no IPv4 address here; there are: {have}"])
    if settings.nnodes == 1:
        return LOOPBACK
    raise SettingsError(["no network interface of this pod has an IPv4 address"])
