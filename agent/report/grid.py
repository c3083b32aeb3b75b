"""Tables as the page draws them: text in cells, and what the text means for its look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from agent.report.charts import Picture

MOST_ROWS = 2000
"""How many rows of one table are on the page; result.json has them all."""
T = TypeVar("T")


class Cell(NamedTuple):
    """`tone`: good, bad, warn or soft; always beside words or a sign that say the same."""

    text: str
    tone: str = ""


class GridColumn(NamedTuple):
    """`kind`: text, number (flushed right) or code."""

    name: str
    unit: str = ""
    kind: str = "text"


class RowGroup(NamedTuple):
    """Rows that belong together; the heading is empty where there is but one group."""

    heading: str
    rows: tuple[tuple[Cell, ...], ...]


class Grid(NamedTuple):
    """One table. `foot` are its last rows, set apart; `note` is a sentence below it."""

    caption: str
    columns: tuple[GridColumn, ...]
    groups: tuple[RowGroup, ...]
    foot: tuple[tuple[Cell, ...], ...] = ()
    note: str = ""

    @property
    def length(self) -> int:
        """Rows of all groups, without the foot."""
        return sum(len(group.rows) for group in self.groups)


class View(NamedTuple):
    """What was measured of one thing, as the page shows it: lines of text, curves, and every number in a table."""

    name: str
    about: tuple[str, ...]
    pictures: tuple[Picture, ...]
    grid: Grid


def number(name: str, unit: str = "") -> GridColumn:
    """A column whose cells are flushed right."""
    return GridColumn(name, unit, "number")


def code(name: str) -> GridColumn:
    """A column for names and addresses, which people copy."""
    return GridColumn(name, "", "code")


def side_by_side(found: Sequence[Mapping[str, T]]) -> dict[str, list[T | None]]:
    """Name → what each run has of it, in the order in which the names first come."""
    return {name: [one.get(name) for one in found] for name in dict.fromkeys(name for one in found for name in one)}


def numbers_of(values: Iterable[object]) -> list[float]:
    """The numbers among these; True and False are none."""
    return [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]


def grid(
    caption: str,
    columns: Sequence[GridColumn],
    rows: Iterable[Sequence[Cell | str]],
    foot: Iterable[Sequence[Cell | str]] = (),
    note: str = "",
) -> Grid:
    """A table of one group, cut at MOST_ROWS and saying so."""
    all_rows = cells(rows)
    if len(all_rows) > MOST_ROWS:
        cut = f"The first {MOST_ROWS} of {len(all_rows)} rows; result.json has them all."
        note = f"{note} {cut}".strip()
    return Grid(caption, tuple(columns), (RowGroup("", all_rows[:MOST_ROWS]),), cells(foot), note)


def cells(rows: Iterable[Sequence[Cell | str]]) -> tuple[tuple[Cell, ...], ...]:
    """Rows with every text made a cell."""
    return tuple(tuple(one if isinstance(one, Cell) else Cell(one) for one in row) for row in rows)
