"""What a pod may ask of itself: fields of its own object. Pure functions."""

from __future__ import annotations

import re
from typing import Any

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
    first, second = _PLAIN[path]
    return str(pod[first].get(second, ""))
