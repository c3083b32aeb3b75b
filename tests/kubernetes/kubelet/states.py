"""What becomes of a pod's containers: which may start, which have to end, and how the pod ends. Pure functions."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tests.kubernetes.kubelet.fields import Object

FIRST_BACK_OFF = 10.0
LONGEST_BACK_OFF = 300.0
CALM = 600.0
"""A container that has run this long begins with the first back-off again."""

Condition = Literal["waiting", "running", "terminated"]


class Kind(enum.Enum):
    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


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

    condition: Condition = "waiting"
    reason: str = "ContainerCreating"
    message: str = ""
    end: End | None = None
    """If it has ended."""
    last: End | None = None
    """How it ended before it was started again."""
    began: float = 0.0
    restarts: int = 0
    failures: int = 0
    """Ends or failed pulls in a row, for the back-off."""
    retry: float = 0.0
    """When it may be tried again."""
    started: bool = False
    ready: bool = False
    ending: bool = False
    """It was told to end."""


States = Mapping[str, State]


class Start(NamedTuple):
    name: str


class Stop(NamedTuple):
    names: tuple[str, ...]
    """All at once."""


class Wait(NamedTuple):
    until: float


class Finish(NamedTuple):
    phase: Literal["Succeeded", "Failed"]


Step = Start | Stop | Wait | Finish


def back_off(failures: int) -> float:
    """Seconds until the next try after so many failures in a row."""
    return min(FIRST_BACK_OFF * 2 ** max(failures - 1, 0), LONGEST_BACK_OFF) if failures else 0.0


def containers(pod: Object) -> dict[str, tuple[Kind, Object]]:
    """By name, in the order in which they start."""
    spec = pod["spec"]
    found = dict[str, tuple[Kind, Object]]()
    for each in spec.get("initContainers") or ():
        found[each["name"]] = (Kind.SIDECAR if each.get("restartPolicy") == "Always" else Kind.INIT, each)
    for each in spec["containers"]:
        found[each["name"]] = (Kind.MAIN, each)
    return found


def next_steps(pod: Object, states: States, now: float, deleting: bool = False) -> list[Step]:
    """What follows from how the containers are now."""
    if deleting or _over(pod, states):
        return list(_ending(pod, states, deleting))
    steps = list[Step]()
    for name, (kind, _) in containers(pod).items():
        state = states[name]
        if (state.condition == "terminated" and again(pod, kind, state)) or state.condition == "waiting":
            steps.append(Start(name) if now >= state.retry else Wait(state.retry))
        if kind is Kind.INIT and not _succeeded(state):
            break
        if kind is Kind.SIDECAR and not (state.condition == "running" and state.started):
            break
    return steps


def again(pod: Object, kind: Kind, state: State) -> bool:
    """Whether a container that has ended is started again."""
    policy = pod["spec"].get("restartPolicy", "Always")
    failed = not _succeeded(state)
    if kind is Kind.SIDECAR:
        return True
    if kind is Kind.INIT:
        return failed and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and failed)


def ended(state: State, end: End) -> State:
    """A running container, after its end."""
    failures = 1 if end.finished - end.started >= CALM else state.failures + 1
    return replace(
        state,
        condition="terminated",
        reason=end.reason,
        message="",
        end=end,
        started=False,
        ready=False,
        ending=False,
        failures=failures,
        # The first restart follows at once.
        retry=end.finished + back_off(failures - 1),
    )


def held(state: State, reason: str, message: str, now: float, pause: float | None = None) -> State:
    """A container that cannot start, and is tried again after the back-off or `pause`."""
    failures = state.failures + (pause is None)
    return replace(
        state,
        condition="waiting",
        reason=reason,
        message=message,
        last=state.end or state.last,
        end=None,
        failures=failures,
        retry=now + (back_off(failures) if pause is None else pause),
    )


def pausing(pod: Object, states: States, now: float) -> dict[str, State]:
    """As they are shown while they wait for the end of a back-off."""
    shown = dict(states)
    for name, (kind, container) in containers(pod).items():
        state = states[name]
        wait = f"back-off {back_off(state.failures - 1):.0f}s restarting failed container={name}"
        if state.condition == "terminated" and again(pod, kind, state) and now < state.retry:
            shown[name] = replace(
                state, condition="waiting", reason="CrashLoopBackOff", message=wait, end=None, last=state.end
            )
        elif state.reason == "ErrImagePull" and now > state.retry - back_off(state.failures) + 1:
            words = f'Back-off pulling image "{container["image"]}": ErrImagePull: {state.message}'
            shown[name] = replace(state, reason="ImagePullBackOff", message=words)
    return shown


def _succeeded(state: State) -> bool:
    return state.end is not None and state.condition == "terminated" and state.end.code == 0


def _over(pod: Object, states: States) -> bool:
    """An init container has failed for good, or every main container has ended for good."""
    kinds = {name: kind for name, (kind, _) in containers(pod).items()}
    done = {
        name for name, state in states.items() if state.condition == "terminated" and not again(pod, kinds[name], state)
    }
    failed = any(kinds[name] is Kind.INIT and not _succeeded(states[name]) for name in done)
    return failed or all(name in done for name, kind in kinds.items() if kind is Kind.MAIN)


def _ending(pod: Object, states: States, deleting: bool) -> Iterator[Step]:
    """Main containers first, then sidecars from the last to the first; then the pod is over."""
    running = {name: states[name] for name, _ in containers(pod).items() if states[name].condition == "running"}
    kinds = {name: kind for name, (kind, _) in containers(pod).items()}
    first = [name for name in running if kinds[name] is not Kind.SIDECAR]
    last = [name for name in reversed(running) if kinds[name] is Kind.SIDECAR][:1]
    if now := [name for name in first or last if not running[name].ending]:
        yield Stop(tuple(now))
    elif not running:
        yield Finish("Succeeded" if _well(pod, states, kinds) else "Failed")


def _well(pod: Object, states: States, kinds: Mapping[str, Kind]) -> bool:
    return all(_succeeded(states[name]) for name, kind in kinds.items() if kind is Kind.MAIN)
