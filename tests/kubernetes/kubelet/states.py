"""How a pod's containers are. All start at once, and none a second time: pods of jobs are not restarted in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tests.kubernetes.kubelet.fields import Object


class End(NamedTuple):
    """How a container ended."""

    code: int
    reason: str
    message: str = ""
    started: float = 0.0
    finished: float = 0.0
    signal: int = 0


@dataclass(frozen=True)
class State:
    """A container, now."""

    condition: Literal["waiting", "running", "terminated"] = "waiting"
    reason: str = "ContainerCreating"
    message: str = ""
    end: End | None = None
    """If it has ended."""
    began: float = 0.0
    started: bool = False
    ready: bool = False


def containers(pod: Object) -> dict[str, Object]:
    """By name."""
    return {each["name"]: each for each in pod["spec"]["containers"]}


def ended(state: State, end: End) -> State:
    return replace(state, condition="terminated", reason=end.reason, message="", end=end, started=False, ready=False)
