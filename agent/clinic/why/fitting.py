"""Cuts a pod's records to what travels: first what says least."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from agent import wire
from agent.clinic.why.records import DEFAULT_GROUP, MOST_BYTES, GroupProgress, PodRecords, Process


def fit(records: PodRecords, most: int = MOST_BYTES) -> PodRecords:
    """The records in at most `most` bytes of JSON; `left_out` says what went."""
    left_out: list[str] = []
    for words, cut in CUTS:
        if size_of(records) <= most:
            break
        left_out.append(words)
        records = records._replace(processes=tuple(map(cut, records.processes)), left_out=", ".join(left_out))
    while size_of(records) > most and records.processes:
        kept = sorted(records.processes, key=lambda one: one.role != "rank")[: len(records.processes) * 3 // 4]
        records = records._replace(
            processes=tuple(kept), left_out=", ".join([*left_out, f"all but {len(kept)} processes"])
        )
    return records


def size_of(records: PodRecords) -> int:
    """Bytes as the control channel writes them."""
    return len(json.dumps(compact(records)))


def compact(value: Any) -> Any:
    """A record as JSON without the fields that have their default: `wire.from_json` puts them back."""
    if not wire.is_record(value):
        return [compact(one) for one in value] if isinstance(value, tuple) else wire.to_json(value)
    defaults = type(value)._field_defaults
    fields = {name: getattr(value, name) for name in wire.field_names(value)}
    return {name: compact(one) for name, one in fields.items() if name not in defaults or one != defaults[name]}


def _other_threads(process: Process) -> Process:
    return process._replace(threads=process.threads[:1], waiting=process.waiting[:2])


def _outer_frames(process: Process, most: int) -> Process:
    return process._replace(threads=tuple(one._replace(frames=one.frames[:most]) for one in process.threads[:1]))


def _idle_groups(process: Process) -> Process:
    def cut(group: GroupProgress) -> GroupProgress:
        if group.completed is None or group.completed < group.entered or group.sends:
            return group
        return group._replace(recent=(), ranks=() if group.group == DEFAULT_GROUP else group.ranks)

    return process._replace(groups=tuple(map(cut, process.groups)))


def _old_operations(process: Process) -> Process:
    """Keeps the first operation of each group that is not over, and the newest."""
    return process._replace(
        groups=tuple(
            one._replace(recent=tuple(dict.fromkeys((*one.recent[:1], *one.recent[-1:]))), sends=one.sends[:2])
            for one in process.groups
        )
    )


def _no_ranks(process: Process) -> Process:
    return process._replace(groups=tuple(one._replace(ranks=()) for one in process.groups))


CUTS: tuple[tuple[str, Callable[[Process], Process]], ...] = (
    ("threads that are not the main one", _other_threads),
    ("the last operations of groups that wait for nothing", _idle_groups),
    ("operations between the first open one and the newest", _old_operations),
    ("outer frames of stacks", partial(_outer_frames, most=5)),
    ("all but two frames of each stack", partial(_outer_frames, most=2)),
    ("the ranks of groups", _no_ranks),
)
