"""Reads result.json: what is used is checked, names that are not known are passed over."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from agent.report.result import Baseline, Difference, Measured, Pod, Result, Row, Started, Sweep, Table, Verdict

VERSION = 2
STATUSES = ("passed", "failed", "ended")
Value = TypeVar("Value")


class NotAResult(ValueError):
    """Why a JSON value is no result.json that this version reads."""


class _At:
    """A JSON value and the path that leads to it, for messages."""

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def __getitem__(self, name: str) -> _At:
        members = self._of(dict, "an object")
        if name not in members:
            raise NotAResult(f"{self._name(name)} is missing")
        return _At(members[name], self._name(name))

    def text(self) -> str:
        return str(self._of(str, "a text"))

    def texts(self, *names: str) -> dict[str, Any]:
        """Members that are texts, to be passed on by their names."""
        return {name: self[name].text() for name in names}

    def whole(self) -> int:
        return int(self._of(int, "a whole number"))

    def number(self) -> float:
        value = self._of((int, float), "a number")
        try:
            return float(value)
        except OverflowError:
            return math.inf

    def cell(self) -> str | float | bool | None:
        if isinstance(self.value, (list, dict)):
            self._wrong("a text, a number, true, false or null")
        value: str | float | bool | None = self.value
        return value

    def maybe(self, read: Callable[[_At], Value]) -> Value | None:
        return None if self.value is None else read(self)

    def each(self, read: Callable[[_At], Value]) -> tuple[Value, ...]:
        items = self._of(list, "a list")
        return tuple(read(_At(item, f"{self.path}[{number}]")) for number, item in enumerate(items))

    def members(self, read: Callable[[_At], Value]) -> dict[str, Value]:
        return {str(name): read(self[name]) for name in self._of(dict, "an object")}

    def _of(self, kind: Any, words: str) -> Any:
        if not isinstance(self.value, kind) or isinstance(self.value, bool):
            self._wrong(words)
        return self.value

    def _wrong(self, words: str) -> None:
        raise NotAResult(f"{self.path or 'it'} is not {words}")

    def _name(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def read_result(data: object) -> Result:
    """The result in parsed JSON. Raises NotAResult, which says what is wrong and where."""
    at = _At(data, "")
    _check_version(at)
    order, limits = at["order"], at["limits"]
    return Result(
        **at.texts("agent", "job", "epoch", "run", "workload", "by"),
        args=at["args"].each(_At.text),
        since=at["since"].number(),
        until=at["until"].number(),
        verdict=_verdict(at["verdict"]),
        slots=at["slots"].whole(),
        source=order["source"].text(),
        warnings=order["warnings"].each(_At.text),
        pods=at["pods"].each(_pod),
        differences=at["differences"].each(_difference),
        launch=at["launch"].maybe(_started),
        versions=at["versions"].members(_At.text),
        timeout=limits["timeout"].number(),
        stall=limits["stall"].number(),
        tables=at["tables"].each(_table),
        sweeps=at["sweeps"].each(_sweep),
        profile=at["profile"].maybe(lambda it: (it["name"].text(), it["why"].text())),
        gate=at["gate"].maybe(lambda it: (it["status"].text(), it["reason"].text())),
    )


def _check_version(at: _At) -> None:
    if not isinstance(at.value, dict) or not {"version", "run"} <= at.value.keys():
        raise NotAResult("it is JSON, but no result of a run of a4-agent")
    version = at.value["version"]
    if version != VERSION or isinstance(version, bool):
        remedy = (
            "a newer a4-agent is needed" if isinstance(version, int) and version > VERSION else "too old to be read"
        )
        raise NotAResult(f"it has version {version!r} of result.json, this a4-agent reads version {VERSION}: {remedy}")


def _verdict(at: _At) -> Verdict:
    status = at["status"].text()
    if status not in STATUSES:
        raise NotAResult(f"verdict.status is {status!r}, not one of {', '.join(STATUSES)}")
    return Verdict(
        status,
        at["code"].whole(),
        **at.texts("what", "where", "why", "origin"),
        reasons=at["reasons"].each(_At.text),
    )


def _pod(at: _At) -> Pod:
    return Pod(
        at["index"].whole(),
        **at.texts("name", "node", "address"),
        place=at["place"].each(_At.text),
        status=at["status"].maybe(_At.whole),
        lost=at["lost"].text(),
        phases=at["phases"].members(_At.number),
        inventory=at["inventory"].members(_At.text),
    )


def _difference(at: _At) -> Difference:
    return Difference(at["what"].text(), at["usual"].text(), at["odd"].members(lambda it: it.each(_At.whole)))


def _started(at: _At) -> Started:
    environment = at["environment"].members(_At.text)
    return Started(at["argv"].each(_At.text), at["cwd"].text(), environment, frozenset(at["added"].each(_At.text)))


def _table(at: _At) -> Table:
    columns = at["columns"].each(lambda it: (it["name"].text(), it["unit"].text()))
    rows = at["rows"].each(lambda it: it.each(_At.cell))
    for number, row in enumerate(rows):
        if len(row) != len(columns):
            raise NotAResult(f"{at.path}.rows[{number}] has {len(row)} cells, the table has {len(columns)} columns")
    return Table(at["name"].text(), at["title"].text(), columns, rows)


def _sweep(at: _At) -> Sweep:
    return Sweep(
        **at.texts("collective", "backend", "type", "redop"),
        ranks=at["ranks"].whole(),
        iterations=at["iterations"].maybe(_At.whole),
        warmup=at["warmup"].maybe(_At.whole),
        rows=tuple(sorted(at["rows"].each(_row), key=lambda row: row.size)),
        average_busbw=at["average_busbw"].maybe(_At.number),
        out_of_bounds=at["out_of_bounds"].maybe(_At.whole),
        baseline=at["baseline"].maybe(_baseline),
    )


def _row(at: _At) -> Row:
    out_of_place, in_place = (at[name].maybe(_measured) for name in ("out_of_place", "in_place"))
    return Row(at["size"].whole(), at["count"].whole(), out_of_place, in_place)


def _measured(at: _At) -> Measured:
    time, algbw, busbw = (at[name].number() for name in ("time", "algbw", "busbw"))
    return Measured(time, algbw, busbw, at["wrong"].maybe(_At.whole))


def _baseline(at: _At) -> Baseline:
    busbw = dict(at["rows"].each(lambda it: (it["size"].whole(), it["busbw"].number())))
    return Baseline(at["name"].text(), at["source"].text(), busbw)
