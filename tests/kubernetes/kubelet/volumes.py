"""The files of volumes that are made of objects. Pure functions over the pod's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.kubernetes.kubelet.fields import Object, field, resource
from tests.kubernetes.kubelet.sources import Missing, Sources, keys_of

FILE_MODE = 0o644
KINDS = {"secret", "configMap", "downwardAPI", "projected"}


class File(NamedTuple):
    content: bytes
    mode: int


def files(volume: Object, pod: Object, sources: Sources, allocatable: Mapping[str, str]) -> dict[str, File]:
    """Path in the volume → file. Raises Missing for what is not there."""
    (kind,) = KINDS & set(volume)
    given = volume[kind]
    mode = given.get("defaultMode", FILE_MODE)
    parts = given.get("sources") or () if kind == "projected" else [{kind: given}]
    return {path: file for part in parts for path, file in _part(part, mode, pod, sources, allocatable)}


def _part(
    part: Object, mode: int, pod: Object, sources: Sources, allocatable: Mapping[str, str]
) -> Iterator[tuple[str, File]]:
    ((kind, given),) = part.items()
    if kind == "serviceAccountToken":
        token = keys_of(sources, "token", {"name": given.get("audience", "")})
        yield given["path"], File(token["token"], mode)
    elif kind == "downwardAPI":
        for item in given.get("items") or ():
            yield item["path"], File(_downward(item, pod, allocatable).encode(), item.get("mode", mode))
    else:
        yield from _keys(kind, given, mode, sources)


def _downward(item: Object, pod: Object, allocatable: Mapping[str, str]) -> str:
    if "fieldRef" in item:
        return field(pod, item["fieldRef"]["fieldPath"])
    reference = item["resourceFieldRef"]
    (one,) = [each for each in pod["spec"]["containers"] if each["name"] == reference["containerName"]]
    return resource(one, reference, allocatable)


def _keys(kind: str, given: Object, mode: int, sources: Sources) -> Iterator[tuple[str, File]]:
    found = keys_of(sources, kind, given)
    if not given.get("items"):
        yield from ((key, File(content, mode)) for key, content in found.items())
    for item in given.get("items") or ():
        if item["key"] in found:
            yield item["path"], File(found[item["key"]], item.get("mode", mode))
        elif not given.get("optional"):
            raise Missing(f"references non-existent {kind.lower()} key: {item['key']}")
