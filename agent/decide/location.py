"""Reading a place out of what the metadata server or the user says."""

from __future__ import annotations

import re

from agent.wire import json_object

Place = tuple[str, ...]
"""Where a node stands, coarsest first: (cluster, block, sub-block, host); fewer parts are fine."""

LEVELS = ("cluster", "block", "sub-block", "host")
_PATH = re.compile(r"/[\w./-]{1,255}", re.ASCII)
_PART = re.compile(r"[\w.-]{1,128}", re.ASCII)


def levels(depth: int) -> tuple[str, ...]:
    """What the parts of such deep places are. GCE's older attribute has three: cluster, rack, host."""
    return ("cluster", "rack", "host") if depth == 3 else LEVELS[:depth]


def parse_location(text: str) -> Place | None:
    """The place that a path such as `/cluster/block/sub-block/host` names; None for any other path.

    GCE's `physical_host` has three parts (cluster, rack, host); one to four are taken.
    """
    if not _PATH.fullmatch(text):
        return None
    parts = tuple(part for part in text.split("/") if part)
    return parts if 1 <= len(parts) <= len(LEVELS) else None


def parse_topology(text: str) -> Place | None:
    """The place in GCE's `physical_host_topology` JSON; None when it is malformed.

    The metadata server spells the third key `subBlock`, the API reference `subblock`; both are taken.
    Parts are taken from the coarsest down to the first that is missing.
    """
    data, parts = json_object(text), []
    for names in (("cluster",), ("block",), ("subBlock", "subblock"), ("host",)):
        value = next((data[name] for name in names if data.get(name)), None)
        if value is None:
            break
        if not isinstance(value, str) or not _PART.fullmatch(value):
            return None
        parts.append(value)
    return tuple(parts) or None


def short_part(part: str) -> str:
    """The first eight digits of a hash; anything else as it is."""
    return part[:8] if re.fullmatch(r"[0-9a-f]{16,}", part) else part


def location_text(place: Place) -> str:
    """`/cluster/block/…`, or `-` when there is no place."""
    return "/" + "/".join(place) if place else "-"
