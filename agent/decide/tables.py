"""Plain text tables: columns aligned with spaces, readable in a log and through a pipe."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

Cell = str | float | None


LEAST_WIDTH = 8
"""A cell that is cut keeps so many columns of the terminal."""


def render(
    header: Sequence[str], rows: Sequence[Sequence[Cell]], right: Collection[int] = (), *, columns: int = 0
) -> str:
    """Align `rows` under `header`; columns of numbers, and those numbered in `right` (from 0), are flushed right. A
    float gets two decimals, and "-" stands for None.

    Columns are two spaces apart. Lines have no trailing spaces and the text ends with a newline. Control
    characters in a cell become spaces, so that a table always has one line per row. ValueError when a
    row's length is not the header's.

    `columns`: how many the terminal has; cells of the widest columns but the first are cut until lines fit. 0: none is.
    """
    lines = [[_text(cell) for cell in row] for row in (header, *rows)]
    for row in lines:
        if len(row) != len(header):
            raise ValueError(f"a row has {len(row)} cells, the header {len(header)}: {row}")
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    if columns:
        widths = _fitted(widths, columns)
        lines = [[_cut(cell, width) for cell, width in zip(row, widths, strict=True)] for row in lines]
    numbers = {n for n, column in enumerate(zip(*rows, strict=True)) if not any(isinstance(c, str) for c in column)}
    right = {*right, *numbers}
    return "".join(_line(row, widths, right) + "\n" for row in lines)


def _fitted(widths: Sequence[int], columns: int) -> list[int]:
    first, *others = widths
    room = columns - first - 2 * len(others)
    while others and sum(others) > room and max(others) > LEAST_WIDTH:
        others[others.index(max(others))] -= 1
    return [first, *others]


def _cut(text: str, width: int) -> str:
    """The beginning of a sentence; both ends of a name, which may differ from others in its last letters."""
    if _width(text) <= width:
        return text
    head, tail = text, "" if " " in text else text[-((width - 1) // 2) :]
    while _width(head) + _width(tail) >= width:
        head = head[:-1]
    return f"{head}…{tail}"


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    text = f"{cell:.2f}" if isinstance(cell, float) else str(cell)
    return "".join(c if c.isprintable() else " " for c in text)


def _width(text: str) -> int:
    """Columns of a terminal that `text` fills: wide characters fill two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _line(row: Sequence[str], widths: Sequence[int], right: Collection[int]) -> str:
    cells = []
    for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
        padding = " " * (width - _width(cell))
        cells.append(padding + cell if number in right else cell + padding)
    return "  ".join(cells).rstrip()
