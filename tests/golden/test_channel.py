"""What pods say to each other: all messages of the control channel, with what they carry, and their version."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from agent.decide.messages import CHANNEL_VERSION, COORDINATOR_SAYS, WORKER_SAYS
from agent.wire import field_names, is_record, needed_fields
from tests.golden.golden import FILES, command, expect_golden

RAISE = (
    "Raise CHANNEL_VERSION in agent/decide/messages.py, and the version in docs/maintainers/control-channel.md. Then:"
)


def test_messages_change_only_with_the_version_of_the_channel() -> None:
    """A pod that speaks another version is turned away with a sentence; one that only means something else by the same
    version breaks the job later. So the file is not renewed either while the version stays."""
    sides = {"coordinator": COORDINATOR_SAYS, "worker": WORKER_SAYS}
    found = {f"{side}: {name}": carried(kind) for side, says in sides.items() for name, kind in says.items()}
    path = FILES / "channel.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"version": 0, "messages": {}}
    if kept["version"] >= CHANNEL_VERSION:
        known = kept["messages"]
        other = sorted(name for name in {**known, **found} if known.get(name) != found.get(name))
        assert other == [], f"these are not as in version {kept['version']} of the channel. {RAISE} {command()}"
    expect_golden("channel", {"version": CHANNEL_VERSION, "messages": found})


def carried(kind: Any) -> Any:
    """A type as JSON: records with the names of their fields, and "?" behind those that may be missing."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_record(kind):
        hints, needed = get_type_hints(kind, include_extras=True), needed_fields(kind)
        return {name if name in needed else f"{name}?": carried(hints[name]) for name in field_names(kind)}
    if origin is Annotated:
        return carried(arguments[0])
    if origin is Literal:
        return {"one of": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"one of": [carried(one) for one in arguments]}
    if origin is not None and issubclass(origin, Mapping):
        return {f"each {carried(arguments[0])}": carried(arguments[1])}
    if origin is not None:
        return ["…" if one is ... else carried(one) for one in arguments]
    return "anything" if kind is Any else "null" if kind is type(None) else kind.__name__
