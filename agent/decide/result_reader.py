"""Reads result.json: what is in it is checked, names that are not known are passed over."""

from __future__ import annotations

from dataclasses import replace

from agent.decide.result import VERSION, Result
from agent.wire import WireError, from_json


class NotAResult(ValueError):
    """Why this version cannot read a JSON value as result.json."""


def read_result(data: object) -> Result:
    """The result in parsed JSON, the rows of each sweep by size. Raises NotAResult, which says what is wrong where."""
    _check_version(data)
    try:
        result = from_json(Result, data)
    except WireError as error:
        raise NotAResult(str(error)) from error
    _check_tables(result)
    by_size = [replace(one, rows=tuple(sorted(one.rows, key=lambda row: row.size))) for one in result.sweeps]
    return result._replace(sweeps=tuple(by_size))


def _check_version(data: object) -> None:
    """Raises NotAResult for another kind of JSON and for a version that has other meanings."""
    if not isinstance(data, dict) or not {"version", "run"} <= data.keys():
        raise NotAResult("it is JSON, but no result of a run of a4-agent")
    version = data["version"]
    if version != VERSION or isinstance(version, bool):
        remedy = (
            "a newer a4-agent is needed" if isinstance(version, int) and version > VERSION else "too old to be read"
        )
        raise NotAResult(f"it has version {version!r} of result.json, this a4-agent reads version {VERSION}: {remedy}")


def _check_tables(result: Result) -> None:
    """Raises NotAResult for a row that does not fit its columns: types alone do not say that."""
    for at, table in enumerate(result.tables):
        for number, row in enumerate(table.rows):
            if len(row) != len(table.columns):
                cells = f"{len(row)} cells, the table has {len(table.columns)} columns"
                raise NotAResult(f"tables[{at}].rows[{number}] has {cells}")
