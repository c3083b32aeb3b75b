"""Secrets and ConfigMaps that a pod names: which they are, and what is said when one is missing."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.kubernetes.kubelet.fields import Object


class Source(NamedTuple):
    kind: str
    """`secret` or `configMap`."""
    name: str


Sources = Mapping[Source, Mapping[str, bytes] | None]
"""The keys of each that was looked up. None: it is not there."""


class Missing(Exception):
    """What a pod waits for, in the kubelet's words."""


def keys_of(sources: Sources, kind: str, reference: Object, key: str = "") -> Mapping[str, bytes]:
    """The keys of a source, or this one alone; none if it is optional and not there. Raises Missing."""
    name = reference.get("name") or reference.get("secretName", "")
    found = sources.get(Source(kind, name))
    if found is not None and (not key or key in found):
        return {key: found[key]} if key else found
    if reference.get("optional"):
        return {}
    if found is None:
        raise Missing(f'{kind.lower()} "{name}" not found')
    raise Missing(f"couldn't find key {key} in {kind} {name}")


def content(kind: str, found: Object) -> dict[str, bytes]:
    """The keys of a Secret or ConfigMap as the API server shows it."""
    coded = found.get("data" if kind == "secret" else "binaryData") or {}
    plain = {} if kind == "secret" else found.get("data") or {}
    return {
        **{key: text.encode() for key, text in plain.items()},
        **{key: base64.b64decode(text) for key, text in coded.items()},
    }


def named(pod: Object) -> set[Source]:
    """All that the pod's containers and volumes name."""
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    found = {each for container in containers for each in _of_environment(container)}
    return found | {each for volume in spec.get("volumes") or () for each in of_volume(volume)}


def _of_environment(container: Object) -> Iterator[Source]:
    for entry in container.get("env") or ():
        for kind in ("secret", "configMap"):
            if f"{kind}KeyRef" in (entry.get("valueFrom") or {}):
                yield Source(kind, entry["valueFrom"][f"{kind}KeyRef"]["name"])


def of_volume(volume: Object) -> Iterator[Source]:
    """What one volume is made of; nothing for those that are directories."""
    if "secret" in volume:
        yield Source("secret", volume["secret"]["secretName"])
    if "configMap" in volume:
        yield Source("configMap", volume["configMap"]["name"])
