"""One module per fabric: what marks a pod that has it, what it needs, and what is wrong with it."""

from __future__ import annotations

from agent.decide.inventory import NCCL, Inventory
from agent.fabrics import a3_tcpx, a4_deepep, a4_gib
from agent.fabrics.checks import arm_nodes
from agent.fabrics.fabric import Needs, Variables, plugin

FABRICS = {module.FABRIC.name: module.FABRIC for module in (a3_tcpx, a4_deepep, a4_gib)}
"""By name, in the order in which their marks are looked for: DeepEP's image holds gIB as well."""


def needs(profile: str, environ: Variables) -> Needs:
    """What to look for in a pod with this profile, which may be "none"."""
    own = FABRICS[profile].needs(environ) if profile in FABRICS else Needs()
    return own._replace(libraries=[NCCL, plugin(environ), *own.libraries])


def problems(profile: str, inventory: Inventory, pods: int) -> list[str]:
    """Why this pod cannot use the fabric of its profile in a job of so many pods; each sentence stands alone."""
    fabric = FABRICS.get(profile)
    if fabric is None or pods == 1:  # nothing goes between pods
        return []
    return list(arm_nodes(inventory)) or list(fabric.problems(inventory))
