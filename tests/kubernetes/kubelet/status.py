"""The status that a pod's containers give it, as the API server keeps it. Pure functions."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping

from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.states import End, State, containers


def rfc3339(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def container_status(name: str, image: str, state: State, identity: str) -> Object:
    found: Object = {
        "name": name,
        "image": image,
        "imageID": image if state.began else "",
        "ready": state.ready,
        "restartCount": 0,
        "started": state.started,
        "state": {state.condition: _state(state, identity)},
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
    pod: Object,
    states: Mapping[str, State],
    *,
    phase: str,
    addresses: tuple[str, str],
    began: float,
    now: float,
    sandboxed: bool,
) -> Object:
    """Phase, conditions, addresses and what each container does. `addresses` are the node's and the pod's."""
    shown = [
        container_status(name, each["image"], states[name], f"{pod['metadata']['uid']}.{name}")
        for name, each in containers(pod).items()
    ]
    host, own = addresses
    status: Object = {
        "phase": phase or _phase(states),
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "startTime": rfc3339(began),
        "conditions": _conditions(pod, states, phase, now, sandboxed),
        "containerStatuses": shown,
        "qosClass": (pod.get("status") or {}).get("qosClass", "BestEffort"),
    }
    if own:
        status |= {"podIP": own, "podIPs": [{"ip": own}]}
    return status


def _phase(states: Mapping[str, State]) -> str:
    """Before its end."""
    return "Pending" if all(state.condition == "waiting" for state in states.values()) else "Running"


def _conditions(pod: Object, states: Mapping[str, State], phase: str, now: float, sandboxed: bool) -> list[Object]:
    over = phase in ("Succeeded", "Failed")
    unready = [name for name, state in states.items() if not state.ready]
    words = f"containers with unready status: [{' '.join(unready)}]"
    ready = not unready and not over
    why = ("PodCompleted", "") if phase == "Succeeded" else ("PodFailed", "") if over else ("ContainersNotReady", words)
    return [
        _condition(pod, "PodReadyToStartContainers", sandboxed and not over, now, ("", "")),
        _condition(pod, "Initialized", True, now, ("", "")),
        _condition(pod, "ContainersReady", ready, now, why),
        _condition(pod, "Ready", ready, now, why),
    ]


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
