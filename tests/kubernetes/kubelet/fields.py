"""What a pod may ask of itself: fields of its own object, and its containers' resources. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.kubernetes.kubelet.quantity import divided

Object = dict[str, Any]

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_PLAIN = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "metadata.uid": ("metadata", "uid"),
    "spec.nodeName": ("spec", "nodeName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
    "status.hostIP": ("status", "hostIP"),
    "status.podIP": ("status", "podIP"),
}


def field(pod: Object, path: str) -> str:
    """The value that `fieldRef` names; empty if there is no such label or annotation. Raises KeyError for what the API
    server would not have let in."""
    if subscript := _SUBSCRIPT.fullmatch(path):
        return str((pod["metadata"].get(subscript[1]) or {}).get(subscript[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = pod["metadata"].get(path.partition(".")[2]) or {}
        return "\n".join(f"{key}={json.dumps(value)}" for key, value in sorted(pairs.items()))
    if path in ("status.podIPs", "status.hostIPs"):
        return ",".join(each["ip"] for each in pod["status"].get(path.partition(".")[2], []))
    first, second = _PLAIN[path]
    return str(pod[first].get(second, ""))


def resource(container: Object, reference: Object, allocatable: Mapping[str, str]) -> str:
    """The value that `resourceFieldRef` names; a limit that the container does not have is the node's."""
    kind, _, name = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    given = (resources.get(kind) or {}).get(name) or (resources.get("limits") or {}).get(name)
    return divided(given or allocatable.get(name, "0"), reference.get("divisor") or "1")
