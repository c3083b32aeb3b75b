"""Tables that several runs have in common, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from agent.decide.result import Result, Table
from agent.report.grid import Cell, Grid, GridColumn, grid, number, numbers_of
from agent.report.model import BYTES, cell, shown_unit
from agent.report.number_words import NONE, decimals, number_text, ratio_text

STAGES = "stages"
"""The table whose rows are different things: a median over them says nothing."""
Key = tuple[object, ...]


def compared_tables(labels: Sequence[str], results: Sequence[Result]) -> Iterable[Grid]:
    """What stands side by side for every table that two runs or more have with the same columns.

    First its columns in short; then, where the same rows are in all, row by row.
    """
    found = [{(table.name, table.columns): table for table in result.tables} for result in results]
    for name in dict.fromkeys(name for one in found for name in one):
        having = [(label, one[name]) for label, one in zip(labels, found, strict=True) if name in one]
        tables = [table for _, table in having]
        if len(having) < 2:
            continue
        keys = _keys(tables)
        measured = [
            at
            for at, column in enumerate(tables[0].columns)
            if at >= keys and column.unit != BYTES and any(_numbers(table, at) for table in tables)
        ]
        if measured:
            those = [label for label, _ in having]
            if name[0] == STAGES:
                yield _row_by_row(those, tables, 1, measured)
                continue
            yield _short(tables[0].title, those, tables, measured)
            if keys and len(tables[0].rows) > 1:
                yield _row_by_row(those, tables, keys, measured)


def _keys(tables: Sequence[Table]) -> int:
    """How many of the first columns tell the rows apart and are the same in all tables; 0: none do."""
    for count in range(1, len(tables[0].columns)):
        found = [[row[:count] for row in table.rows] for table in tables]
        if all(len(set(keys)) == len(keys) for keys in found):
            return count if all(set(keys) == set(found[0]) for keys in found) else 0
    return 0


def _numbers(table: Table, at: int) -> list[float]:
    """What is a number in that column; rows may say nothing there."""
    return numbers_of([row[at] for row in table.rows])


def _short(title: str, labels: Sequence[str], tables: Sequence[Table], measured: Sequence[int]) -> Grid:
    """Least, median and greatest of each measured column in every run, beside the median of the first."""
    columns = [GridColumn("what"), GridColumn("run"), number("least"), number("median"), number("greatest")]
    columns.append(number(f"median / {labels[0]}"))
    rows: list[list[Cell | str]] = []
    for at in measured:
        name, unit = tables[0].columns[at].name, tables[0].columns[at].unit
        every = [_numbers(table, at) for table in tables]
        places = decimals(value for values in every for value in values)
        for label, values in zip(labels, every, strict=True):
            sums, ratio = [NONE] * 3, Cell(NONE, "soft")
            if values:
                sums = [number_text(one, places) for one in (min(values), median(values), max(values))]
            if values and every[0] and median(every[0]):
                ratio = Cell(ratio_text(median(values) / median(every[0]), unit))
            rows.append([f"{name} ({unit})" if unit else name, label, *sums, ratio])
    return grid(f"{title}, in short", columns, rows)


def _row_by_row(labels: Sequence[str], tables: Sequence[Table], keys: int, measured: Sequence[int]) -> Grid:
    """The measured columns of all runs side by side, with a dash for a row that a run has not."""
    names = tables[0].columns
    columns = [GridColumn(column.name, shown_unit(column)) for column in names[:keys]]
    columns += [number(f"{names[at].name} {label}", names[at].unit) for at in measured for label in labels]
    rows = [{row[:keys]: row for row in table.rows} for table in tables]
    places = {at: decimals(value for table in tables for value in _numbers(table, at)) for at in measured}
    return grid(
        f"{tables[0].title}, row by row",
        columns,
        (
            [
                *map(cell, key, names),
                *(cell(one[key][at] if key in one else None, names[at], places[at]) for at in measured for one in rows),
            ]
            for key in dict.fromkeys(key for one in rows for key in one)
        ),
    )
