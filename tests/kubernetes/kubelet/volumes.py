"""The files of volumes that are made of objects. Pure functions over the pod's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.sources import Missing, Sources, keys_of

FILE_MODE = 0o644
KINDS = {"secret", "configMap"}


class File(NamedTuple):
    content: bytes
    mode: int


def files(volume: Object, sources: Sources) -> dict[str, File]:
    """Path in the volume → file. Raises Missing for what is not there."""
    (kind,) = KINDS & set(volume)
    given = volume[kind]
    return dict(_keys(kind, given, given.get("defaultMode", FILE_MODE), sources))


def _keys(kind: str, given: Object, mode: int, sources: Sources) -> Iterator[tuple[str, File]]:
    found = keys_of(sources, kind, given)
    if not given.get("items"):
        yield from ((key, File(content, mode)) for key, content in found.items())
    for item in given.get("items") or ():
        if item["key"] in found:
            yield item["path"], File(found[item["key"]], item.get("mode", mode))
        elif not given.get("optional"):
            raise Missing(f"references non-existent {kind.lower()} key: {item['key']}")
