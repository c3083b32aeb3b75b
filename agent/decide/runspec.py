"""What somebody wants to have run: the value that travels from a command to the coordinator and to every pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agent import wire
from agent.decide.setting_values import MOST_LIVES

MOST_PER_NODE = 1024
"""Ranks of a pod. Each one is a line of tables and records in pod 0."""
GATES = ("", "on", "strict")


class MpirunOptions(NamedTuple):
    """What users of mpirun set by its own options.

    bind_to: such as `core` or `none`
    map_by: within a pod, such as `core` or `slot:PE=4`; which pod a rank is on says the plan
    mca: parameters of MPI: name and value
    tag: mpirun puts the rank before each line
    oversubscribe: a pod may have more ranks than slots
    """

    bind_to: str = ""
    map_by: str = ""
    mca: tuple[tuple[str, str], ...] = ()
    tag: bool = False
    oversubscribe: bool = False


class RunSpec(NamedTuple):
    """What to run, and how. `submit` raises UsageError for one that is invalid.

    workload: the name of a workload (docs/workloads.md); `exec`, `mpirun` and `torchrun` are among them
    args: arguments of the workload; of `exec`, `mpirun` and `torchrun` the command
    nodes: only the first so many pods of the plan; 0: all
    hosts: only these pods, as typed: index, range of indices, name; empty: all
    exclude: the pods to leave out, as typed
    ranks: MPI ranks (-np); 0: every slot
    per_node: processes per pod (torchrun --nproc-per-node, mpirun -N); 0: GPUs per pod
    env: variables on top of each pod's own
    cwd: directory in which the programs start, on every pod
    timeout: wall limit in seconds, 0 for none; None: the setting
    stall: limit of silence in seconds, 0 for none; None: the setting
    by: who asks for the run, in words, for others who find the cluster busy
    name: what people type in place of the run's id: a-z, 0-9, `.` and `-`, 40 at most; empty: none. If another run has
        it, `-2` or the like is added
    note: a line for people about the run, 200 characters at most
    mpi: mpirun's own options
    without: the rank that the launcher does not start: somebody does, in a terminal of its pod
        (docs/runs.md#debug-one-rank); None: none (`mpirun` and `torchrun` only)
    gate: `on`: its pods are looked at before it, and one with a fatal finding refuses it; `strict`: also one where a
        check could not run (docs/doctor.md#a-gate-before-the-first-run)
    lives: how often it may start again after a pod or rank is lost (docs/lives.md), 0 for never; None: the setting
    """

    workload: str
    args: tuple[str, ...] = ()
    nodes: int = 0
    hosts: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ranks: int = 0
    per_node: int = 0
    env: Mapping[str, str] = {}
    cwd: str = "/"
    timeout: float | None = None
    stall: float | None = None
    by: str = ""
    name: str = ""
    note: str = ""
    mpi: MpirunOptions | None = None
    without: int | None = None
    gate: str = ""
    lives: int | None = None

    def __repr__(self) -> str:
        return wire.shown(self, "env")

    def to_json(self) -> dict[str, Any]:
        return dict(wire.to_json(self))

    @classmethod
    def from_json(cls, data: Any) -> RunSpec:
        """Inverse of `to_json`; fields that are not known are ignored."""
        spec = wire.from_json(cls, data)
        for name in ("nodes", "ranks", "per_node", "without", "lives"):
            if (getattr(spec, name) or 0) < 0:
                raise ValueError(f"{name} is not a whole number (at least 0)")
        if spec.per_node > MOST_PER_NODE:
            raise ValueError(f"{spec.per_node} processes on a pod (-N) are too many: the limit is {MOST_PER_NODE}")
        if (spec.lives or 0) > MOST_LIVES:
            raise ValueError(f"lives is more than {MOST_LIVES}")
        if spec.gate not in GATES:
            raise ValueError(f"gate is {spec.gate!r}, not one of {', '.join(map(repr, GATES))}")
        for name, seconds in (("timeout", spec.timeout), ("stall", spec.stall)):
            if seconds is not None and not 0 <= seconds < 1e9:
                raise ValueError(f"{name} is not a number of seconds")
        texts = [*spec.args, spec.cwd, *spec.env, *spec.env.values()]
        if any("\0" in text for text in texts) or any(not name or "=" in name for name in spec.env):
            raise ValueError(
                "arguments and variables cannot contain NUL, and the name of a variable cannot be empty or contain '='"
            )
        return spec
