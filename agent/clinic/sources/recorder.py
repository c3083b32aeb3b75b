"""What torch's flight recorder says of one process: its JSON over the rank's socket, or the dump of torch's watchdog.

Both have the same shape, which torch calls version 2.10 since 2.8: `entries`, `pg_config` and `pg_status`. Numbers are
texts in one and numbers in the other. gloo gives no ranks in `pg_config`, and a name for a group only in its entries.

From torch 2.15 on NCCL is by default a backend that does not record itself, `nccl2`: a hook of torch's does, which
sees no operation start, learns once a second which are over, and over the socket shows none that is. It and gloo count
operations in `pg_status` with sends and receives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from agent.clinic.sources.question import NoAnswer
from agent.clinic.sources.source import Job, Look, WhySource
from agent.clinic.sources.torch_server import HOOKED, HOOKED_SINCE, RECORDERS, ask_rank
from agent.clinic.why.members import GroupMember
from agent.clinic.why.records import DEFAULT_GROUP, NO_ENTRIES, GroupProgress, Operation, with_before
from agent.wire import json_object

ANSWER_SHARE = 0.3
"""Part of the time that one rank's server may take."""
NO_SOCKET = "no socket in {}: torch older than 2.10 or none, a Python that reads no PYTHONPATH (-I, -E, -S)"
NO_SERVER = "torch {}.{} has no server in ranks that could be asked: the first is torch 2.10"
SERVED_SINCE = (2, 10)
MOST_NOTED = 16 << 20
"""Bytes of a file of the hook that are read."""
MOST_RECENT = 6
"""Operations of each rank in each group that are kept, the last ones."""
NEWEST = 2
"""How many of the operations that are kept are the newest; the others are the first that are not over."""


class Recorded(NamedTuple):
    """How far a process came in each of its groups."""

    groups: tuple[GroupProgress, ...]
    why: str = ""
    """Why there are none; empty: there are."""


class RecorderSource(WhySource):
    name = "recorder"

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self._directory = look.question.why_dir
        self._release = torch_release(self._directory)
        self._is_hooked = self._release is not None and self._release >= HOOKED_SINCE
        self._recorders = {**RECORDERS, **HOOKED} if self._is_hooked else RECORDERS

    def jobs(self) -> Iterator[Job]:
        for one in self.look.ranks:
            if path := self.look.sockets.get(one.pid):
                yield partial(self.ask, one.pid, path)
            else:
                self.says("unavailable", self._why_no_socket(), one.pid)

    def _why_no_socket(self) -> str:
        if not self.look.question.prepared:
            return "A4_WHY=false"
        if self._release and self._release < SERVED_SINCE:
            return NO_SERVER.format(*self._release)
        return NO_SOCKET.format(self._directory)

    def ask(self, pid: int, path: str) -> None:
        """Twice, to see whether the numbers move."""
        try:
            first = self._recorded(path, pid)
            self.look.wait_between_looks()
            second = self._recorded(path, pid)
            if self._is_hooked and only_ended(second.groups, first.groups):
                # nccl2 looks once a second what is over: it may have been over before the first look.
                self.look.wait_between_looks()
                first, second = second, self._recorded(path, pid)
        except NoAnswer as error:
            self.says("unavailable", str(error), pid)
            return
        groups = since(second.groups, first.groups)
        if any(not group.ranks and group.group != DEFAULT_GROUP for group in groups):
            ranks = groups_of(self._directory, pid)
            groups = tuple(group._replace(ranks=group.ranks or ranks.get(group.group, ())) for group in groups)
        self.gives(pid, groups=groups)
        if not second.groups:
            self.says("unavailable", second.why, pid)

    def _recorded(self, path: str, pid: int) -> Recorded:
        found = Recorded((), "")
        # The hook notes groups in the order in which the rank has made them.
        made = list(groups_of(self._directory, pid))
        for backend, handler in self._recorders.items():
            try:
                raw = ask_rank(path, handler, self.look.at_most(ANSWER_SHARE))
            except NoAnswer as error:
                if "HTTP" in str(error) and backend != "gloo":
                    continue  # a torch without NCCL
                raise
            self.look.keep(f"{pid}.{backend}.json", raw)
            found = both(found, read_hooked(raw, made) if backend in HOOKED else read_recorder(raw))
        return found

    @classmethod
    def shows(cls, member: GroupMember) -> bool:
        """Groups may be those of a dump."""
        return bool(member.groups) and not any(one.state == "found" for one in member.told("dump"))


def groups_of(directory: str, pid: int) -> dict[str, tuple[int, ...]]:
    """Name → ranks of the groups that a rank has made, as the hook noted them; empty when it has not."""
    try:
        with open(f"{directory}/{pid}.groups", "rb") as file:
            told = json.loads(file.read(MOST_NOTED))
        return {str(name): tuple(map(int, ranks)) for name, ranks in told.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def torch_release(directory: str) -> tuple[int, int] | None:
    """2, 15: the torch that ranks have loaded, as the hook noted it; None when it has not."""
    try:
        with open(f"{directory}/versions.json", "rb") as file:
            major, minor = str(json.loads(file.read(MOST_NOTED))["torch"]).split(".")[:2]
        return int(major), int(minor)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_recorder(text: str | bytes) -> Recorded:
    """The answer of `fr_trace_json` (gloo) or `dump_nccl_trace_json`."""
    data = json_object(text)
    if not isinstance(data.get("entries", []), list) or "version" not in data:
        return Recorded((), "the answer is not a recorder's")
    return from_dump(data)


def read_hooked(text: str | bytes, made: Sequence[str]) -> Recorded:
    """The answer of `fr_trace_json` for one of HOOKED. `made`: names of the process's groups, in the order in
    which it made them."""
    found = read_recorder(text)
    data = json_object(text)
    groups = found.groups + tuple(_without_entries(data, made))
    return Recorded(groups, "" if groups else found.why)


def _without_entries(data: Mapping[str, Any], made: Sequence[str]) -> Iterator[GroupProgress]:
    """Groups in which the process waits for nothing. `entered` is never too low: it counts sends and receives, and is
    the highest that the process has where it is not clear which group of torch's numbers has which name."""
    entries = [entry for entry in _list(data.get("entries")) if isinstance(entry, Mapping)]
    config, statuses = _mapping(data.get("pg_config")), _mapping(data.get("pg_status"))
    shown, numbers = {_group(entry)[0] for entry in entries}, {str(entry.get("pg_id")) for entry in entries}
    order = {name: at for at, name in enumerate(made)}
    names = sorted(config.keys() - shown, key=lambda name: order.get(name, len(order)))
    # torch numbers the groups of a process as it makes them; one that has entered nothing has no status.
    entered = [
        _count(statuses[number]) for number in sorted(statuses.keys() - numbers, key=lambda one: _number(one) or 0)
    ]
    if len(names) != len(entered) or (len(names) > 1 and not order.keys() >= {*names}):
        entered = [max(entered, default=0)] * len(names)
    for name, count in zip(names, entered, strict=True):
        yield _with_config(GroupProgress(name, "nccl", count, completed=count), config)


def _count(status: Any) -> int:
    """How many operations were entered, by a number that begins with 0."""
    last = _number(_mapping(status).get("last_enqueued_collective"))
    return 0 if last is None else last + 1


def from_dump(data: Mapping[str, Any]) -> Recorded:
    """The same from a dump that was read already."""
    entries = [entry for entry in _list(data.get("entries")) if isinstance(entry, Mapping)]
    by_group: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in entries:
        by_group.setdefault((_group(entry)[0], _backend(entry)), []).append(entry)
    groups = tuple(_progress(data, name, found) for (name, _), found in by_group.items())
    return Recorded(groups, "" if groups else NO_ENTRIES)


def both(first: Recorded, second: Recorded) -> Recorded:
    """The answers of gloo's and of NCCL's recorder as one: where a process has both, both count."""
    groups = first.groups + second.groups
    return Recorded(groups, "" if groups else first.why or second.why)


def since(groups: Sequence[GroupProgress], before: Sequence[GroupProgress]) -> tuple[GroupProgress, ...]:
    """The groups with the numbers that they had at a first look. One that was not there then had entered nothing."""
    known = with_before(groups, before)
    return tuple(one if one.entered_before is not None else one._replace(entered_before=0) for one in known)


def only_ended(groups: Sequence[GroupProgress], before: Sequence[GroupProgress]) -> bool:
    """Since a first look, only those numbers of NCCL's groups moved that say what is over. Where a rank waits in
    nothing any more, sends count as entered, too: that number is another one, and says nothing."""
    first = {one.group: one for one in before if one.backend == "nccl"}
    pairs = [(first[one.group], one) for one in groups if one.backend == "nccl" and one.group in first]
    has_ended = any(old.completed != now.completed for old, now in pairs)
    return has_ended and all(old.entered == now.entered or (_waits(old) and not _waits(now)) for old, now in pairs)


def _waits(group: GroupProgress) -> bool:
    return bool(group.recent or group.sends)


def _progress(data: Mapping[str, Any], name: str, entries: Sequence[Mapping[str, Any]]) -> GroupProgress:
    # It has torch's number of the group in this process, not its name.
    by_number = {str(key): one for key, one in _mapping(data.get("pg_status")).items()}
    status = _mapping(by_number.get(str(entries[-1].get("pg_id"))))
    collectives = [entry for entry in entries if not entry.get("is_p2p") and _number(entry.get("collective_seq_id"))]
    sends = [one for one in entries if one.get("is_p2p") and not one.get("retired") and one.get("state") != "completed"]
    timed = any(entry.get("time_discovered_started_ns") or entry.get("state") == "started" for entry in entries)
    started = _number(status.get("last_started_collective"))
    entered, over = _entered_and_completed(status, collectives, hooked=_is_hooked(entries[-1]))
    completed = over if status else None
    found = GroupProgress(
        group=name,
        backend=_backend(entries[-1]),
        entered=entered,
        completed=completed,
        started=None if _is_hooked(entries[-1]) else started if started is not None else 0 if timed else None,
        recent=_recent([_operation(entry, "collective_seq_id") for entry in collectives], completed),
        sends=tuple(_operation(entry, "p2p_seq_id") for entry in sends)[:MOST_RECENT],
        # torch's word for a group that was given no description.
        description=_group(entries[-1])[1].replace("undefined", ""),
    )
    return _with_config(found, _mapping(data.get("pg_config")))


def _with_config(group: GroupProgress, configs: Mapping[str, Any]) -> GroupProgress:
    config = _mapping(configs.get(group.group))
    ranks = tuple(int(number) for number in re.findall(r"\d+", str(config.get("ranks", ""))))
    description = str(config.get("desc") or group.description).replace("undefined", "")
    return group._replace(ranks=ranks, description=description)


def _entered_and_completed(
    status: Mapping[str, Any], collectives: Sequence[Mapping[str, Any]], *, hooked: bool
) -> tuple[int, int]:
    """How many collectives a process entered, and how many are over, by `pg_status` and the entries."""
    if hooked and not collectives:  # it waits in sends and receives alone
        return _count(status), _count(status)
    enqueued, over = (_number(status.get(f"last_{name}_collective")) for name in ("enqueued", "completed"))
    numbers = [_number(entry.get("collective_seq_id")) or 0 for entry in collectives]
    if not collectives or not (hooked or _backend(collectives[-1]) == "gloo"):
        return max([enqueued or 0, *numbers]), over or 0
    # `pg_status` counts sends and receives, too; `op_id` of an entry has that count. The hook's begins with 0.
    least = 0 if hooked else 1
    counted = [_number(entry.get("op_id")) for entry in collectives]
    ended = [
        number
        for number, count in zip(numbers, counted, strict=True)
        if over is not None and (number if count is None or count < least else count) <= over
    ]
    return max(numbers), max(ended, default=min(numbers) - 1)


def _recent(operations: Sequence[Operation], completed: int | None) -> tuple[Operation, ...]:
    """The first that are not over, and the newest. One that is recorded for both its kernels counts once."""
    unique = list({operation.number: operation for operation in operations}.values())
    still_open = [one for one in unique if completed is None or one.number > completed]
    chosen = still_open if completed is not None and still_open else unique
    if len(chosen) <= MOST_RECENT or completed is None:
        return tuple(chosen[-MOST_RECENT:])
    return (*chosen[: MOST_RECENT - NEWEST], *chosen[-NEWEST:])


def _operation(entry: Mapping[str, Any], number: str) -> Operation:
    return Operation(
        number=_number(entry.get(number)) or 0,
        name=str(entry.get("profiling_name", "")).partition(":")[2] or str(entry.get("profiling_name", "")),
        size=_sizes(entry.get("input_sizes"), entry.get("input_dtypes")),
    )


def _sizes(sizes: Any, types: Any) -> str:
    """[1024, 2] float32; of several tensors of one shape that shape, and how often."""
    names = [str(name).lower() for name in _list(types)]
    shapes = [str(list(_list(size))).replace("'", "") for size in _list(sizes)]
    texts = [f"{shape} {name}".strip() for shape, name in zip(shapes, names + [""] * len(shapes), strict=False)]
    unique = dict.fromkeys(texts)
    if len(unique) == 1 and len(texts) > 1:
        return f"{len(texts)} x {texts[0]}"
    return ", ".join(texts[:4]) + (f", and {len(texts) - 4} more" if len(texts) > 4 else "")


def _group(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Name and description."""
    found = [*_list(entry.get("process_group")), "", ""]
    return str(found[0]), str(found[1])


def _backend(entry: Mapping[str, Any]) -> Literal["nccl", "gloo", "other"]:
    name = str(entry.get("profiling_name", "")).partition(":")[0]
    return "nccl" if name in ("nccl", *HOOKED) else "gloo" if name == "gloo" else "other"


def _is_hooked(entry: Mapping[str, Any]) -> bool:
    return str(entry.get("profiling_name", "")).startswith(tuple(f"{name}:" for name in HOOKED))


def _number(value: Any) -> int | None:
    """A number, which may be written as text; -1 is torch's word for none."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if number >= 0 else None


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
