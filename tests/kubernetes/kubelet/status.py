"""The status that a pod's containers give it, as the API server keeps it. Pure functions."""

from __future__ import annotations

import datetime
import re

from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.states import End, Kind, State, States, containers


def rfc3339(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def container_status(name: str, image: str, kind: Kind, state: State, identity: str) -> Object:
    found: Object = {
        "name": name,
        "image": image,
        "imageID": image if state.began else "",
        "ready": state.ready or (kind is Kind.INIT and state.end is not None and state.end.code == 0),
        "restartCount": state.restarts,
        "started": state.started,
        "state": {state.condition: _state(state, identity)},
        "lastState": {"terminated": _terminated(state.last, identity)} if state.last else {},
    }
    if state.began:
        found["containerID"] = f"testbed://{identity}"
    return found


def _state(state: State, identity: str) -> Object:
    if state.condition == "waiting":
        return {"reason": state.reason, **({"message": state.message} if state.message else {})}
    if state.condition == "running":
        return {"startedAt": rfc3339(state.began)}
    assert state.end
    return _terminated(state.end, identity)


def _terminated(end: End, identity: str) -> Object:
    found: Object = {
        "exitCode": end.code,
        "reason": end.reason,
        "startedAt": rfc3339(end.started),
        "finishedAt": rfc3339(end.finished),
        "containerID": f"testbed://{identity}",
    }
    return {
        **found,
        **({"signal": end.signal} if end.signal else {}),
        **({"message": end.message} if end.message else {}),
    }


def pod_status(
    pod: Object, states: States, *, phase: str, addresses: tuple[str, str], began: float, now: float, sandboxed: bool
) -> Object:
    """Phase, conditions, addresses and what each container does. `addresses` are the node's and the pod's."""
    every = containers(pod)
    shown = {
        name: container_status(name, each["image"], kind, states[name], f"{pod['metadata']['uid']}.{name}")
        for name, (kind, each) in every.items()
    }
    early = [shown[name] for name, (kind, _) in every.items() if kind is not Kind.MAIN]
    main = [shown[name] for name, (kind, _) in every.items() if kind is Kind.MAIN]
    host, own = addresses
    status: Object = {
        "phase": phase or _phase(pod, states),
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "startTime": rfc3339(began),
        "conditions": _conditions(pod, states, phase, now, sandboxed),
        "containerStatuses": main,
        "qosClass": (pod.get("status") or {}).get("qosClass", "BestEffort"),
    }
    if early:
        status["initContainerStatuses"] = early
    if own:
        status |= {"podIP": own, "podIPs": [{"ip": own}]}
    return status


def _phase(pod: Object, states: States) -> str:
    """Before its end: Running as soon as its init containers are through."""
    mains = [states[name] for name, (kind, _) in containers(pod).items() if kind is Kind.MAIN]
    return "Running" if any(state.condition != "waiting" or state.last for state in mains) else "Pending"


def _conditions(pod: Object, states: States, phase: str, now: float, sandboxed: bool) -> list[Object]:
    every = containers(pod)
    over = phase in ("Succeeded", "Failed")
    waiting = [name for name, (kind, _) in every.items() if kind is not Kind.MAIN and not _through(kind, states[name])]
    unready = [name for name, (kind, _) in every.items() if kind is not Kind.INIT and not states[name].ready]
    words = f"containers with unready status: [{' '.join(unready)}]"
    ready = not unready and not over
    why = ("PodCompleted", "") if phase == "Succeeded" else ("PodFailed", "") if over else ("ContainersNotReady", words)
    initialized = not waiting or phase == "Succeeded"
    held = ("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(waiting)}]")
    return [
        _condition(pod, "PodReadyToStartContainers", sandboxed and not over, now, ("", "")),
        _condition(pod, "Initialized", initialized, now, held),
        _condition(pod, "ContainersReady", ready, now, why),
        _condition(pod, "Ready", ready, now, why),
    ]


def _through(kind: Kind, state: State) -> bool:
    if kind is Kind.SIDECAR:
        return state.started or state.end is not None
    return state.end is not None and state.end.code == 0


def _condition(pod: Object, kind: str, holds: bool, now: float, why: tuple[str, str]) -> Object:
    """Since when it is so is kept from what the pod has had."""
    value = str(holds)
    past = [each for each in (pod.get("status") or {}).get("conditions") or () if each["type"] == kind]
    since = past[0].get("lastTransitionTime") if past and past[0]["status"] == value else None
    found: Object = {"type": kind, "status": value, "lastTransitionTime": since or rfc3339(now)}
    reason, message = ("", "") if holds else why
    return {**found, "reason": reason or None, "message": message or None}


def undated(status: Object) -> str:
    """What is worth a report: everything but when a condition changed, which changes with it."""
    return re.sub(r"'lastTransitionTime': '[^']*'", "", repr(status))
