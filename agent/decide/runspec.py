"""What somebody wants to have run: the value that travels from a command to the coordinator and to every pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class RunSpec:
    """One wish for a run. JSON-able; `from_json` refuses what is no such wish with ValueError."""

    workload: str
    """A name of `agent.catalogue`; `exec`, `mpirun` and `torchrun` are among them."""
    args: tuple[str, ...] = ()
    """Arguments of the workload; of `exec`, `mpirun` and `torchrun` the command."""
    nodes: int = 0
    """Only the first so many pods of the plan; 0: all."""
    hosts: tuple[str, ...] = ()
    """Only these pods, as typed: index, range of indices, name; empty: all."""
    exclude: tuple[str, ...] = ()
    """Not these pods, as typed."""
    ranks: int = 0
    """MPI ranks (-np); 0: every slot."""
    per_node: int = 0
    """Processes per pod (torchrun --nproc-per-node, mpirun -N); 0: GPUs per pod."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of the submitter's shell, on top of each pod's own."""
    cwd: str = "/"
    timeout: float | None = None
    """Wall limit in seconds, 0 for none; None: the setting."""
    stall: float | None = None
    """Limit of silence in seconds, 0 for none; None: the setting."""
    by: str = ""
    """Who wants it, in words."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> RunSpec:
        """Inverse of `to_json`; fields that are not known are ignored."""
        if not isinstance(data, Mapping) or not isinstance(data.get("workload"), str):
            raise ValueError("a run needs a workload")
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        for name in ("args", "hosts", "exclude"):
            known[name] = _texts(name, known.get(name, []))
        for name in ("nodes", "ranks", "per_node"):
            known[name] = _count(name, known.get(name, 0))
        for name in ("timeout", "stall"):
            known[name] = _seconds(name, known.get(name))
        env = known.get("env", {})
        if not isinstance(env, Mapping) or not all(isinstance(v, str) for pair in env.items() for v in pair):
            raise ValueError("env is no object of texts")
        if not all(isinstance(known.get(name, ""), str) for name in ("cwd", "by")):
            raise ValueError("cwd and by are texts")
        texts = [*known["args"], known.get("cwd", "/"), *env, *env.values()]
        if any("\0" in text for text in texts) or any(not name or "=" in name for name in env):
            raise ValueError("no process can be given a NUL, nor a variable without a name or with '=' in it")
        return cls(**known)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{name} is no list of texts")
    return tuple(value)


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is no whole number from 0 on")
    return value


def _seconds(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise ValueError(f"{name} is no number of seconds")
    return float(value)
