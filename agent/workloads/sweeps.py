"""Bandwidth over message size as programs print it: what result.json has of it, and what tells whether it counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from agent import wire
from agent.decide import result
from agent.decide.result import Measured as Measured
from agent.decide.result import Row as Row
from agent.wire import finite

PLACEMENTS = ("out-of-place", "in-place")
Kind = tuple[str, str, int]
"""Type, operation and root of a row. "none" and -1 where the collective has none, and in the tables of old releases
that do not say."""


@dataclass(frozen=True)
class MeasuredSweep(result.Sweep):
    """One table as it was read. `collective` is empty when the text does not say it, `ranks` 0 when there are no lines
    of devices, and `rows` empty when the text ends before the first."""

    groups: int = 1
    """Communicators of `ranks` ranks each, side by side (NCCL_TESTS_SPLIT)."""
    copies: int = 1
    """Processes that call themselves rank 0 in this table. A build without MPI makes every process a world of its
    own: then this is more than 1, or there are many sweeps, and `ranks` is 1 (or the GPUs of one process)."""
    models: tuple[str, ...] = ()
    """The GPU models, each once, as CUDA calls them: "NVIDIA B200"."""

    def wrong(self) -> Iterator[tuple[Row, str, int]]:
        """Row, placement and number of wrong elements, where there are any."""
        for row in self.rows:
            for placement, cell in zip(PLACEMENTS, (row.out_of_place, row.in_place), strict=True):
                if cell and cell.wrong:
                    yield row, placement, cell.wrong

    def told(self, baseline: result.Baseline | None = None) -> result.Sweep:
        """One of the `sweeps` of result.json, beside the baseline of its sizes."""
        known = {name: getattr(self, name) for name in wire.field_names(result.Sweep)}
        return result.Sweep(**{**known, "baseline": baseline})


UNKNOWN = MeasuredSweep("", 0, "nccl", "", "none", -1, None, None, (), None, None, None)
"""What stands where a text does not say it."""


def measured(figures: Iterable[object], wrong: object) -> Measured | None:
    """One placement: time, algbw and busbw; None where one of these is no number. Of `wrong`, old releases make the
    largest difference: only 0 says something."""
    time, algbw, busbw = map(finite, figures)
    if time is None or algbw is None or busbw is None:
        return None
    count = finite(wrong)
    return Measured(time, algbw, busbw, int(count) if count is not None and count.is_integer() else None)


def of_kinds(whole: MeasuredSweep, rows: Iterable[tuple[Kind, Row]]) -> tuple[MeasuredSweep, ...]:
    """The sweep of each kind of rows (`-d all`, `-o all`, `-r all` measure several in one table); `whole`: what is
    known of all of them."""
    kinds: dict[Kind, list[Row]] = {}
    for kind, row in rows:
        kinds.setdefault(kind, []).append(row)
    several = len(kinds) > 1 and whole.average_busbw is not None  # without one, the table ended early
    return tuple(
        replace(
            whole,
            type=kind[0],
            redop=kind[1],
            root=kind[2],
            rows=tuple(of_kind),
            average_busbw=_average(of_kind) if several else whole.average_busbw,
        )
        for kind, of_kind in kinds.items()
    ) or (whole,)


def _average(rows: Iterable[Row]) -> float | None:
    """The mean over all sizes and both placements."""
    values = [found.busbw for row in rows for found in row.placements()]
    return sum(values) / len(values) if values else None
