"""Reads and judges the record of the collectives test and its tables (the schema: entrypoints/collectives.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent import wire
from agent.decide.tables import render
from agent.decide.words import at_most, size_text
from agent.workloads.rank_record import PlannedRanks
from agent.workloads.sweeps import PLACEMENTS, MeasuredSweep
from agent.workloads.torch_program import TorchRecord

Place = tuple[str, int, str]
"""Collective, size in bytes, placement."""


@dataclass
class CollectivesRecord(TorchRecord):
    """What the rank program wrote, as far as it came."""

    OF = "collectives"
    begun: list[str] = field(default_factory=list)
    """Collectives whose table was begun."""
    elements: dict[Place, dict[int, int]] = field(default_factory=dict)
    """Where elements were wrong: rank → how many."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Collective → why the backend does not have it."""

    def read_sweep(self, values: Mapping[str, Any]) -> None:
        self.begun.append(str(values["collective"]))
        self.note_collective(values)

    def read_wrong(self, values: Mapping[str, Any]) -> None:
        place = str(values["collective"]), int(values["size"]), str(values["placement"])
        self.elements[place] = wire.from_json(dict[int, int], values["ranks"])

    def read_left_out(self, values: Mapping[str, Any]) -> None:
        self.left_out[str(values["collective"])] = str(values["why"])

    def wrong(self, planned: PlannedRanks) -> list[str]:
        # The record names ranks; the tables have what the record has lost.
        found: dict[Place, dict[int, int]] = {
            (sweep.collective, row.size, placement): {} for sweep in self.sweeps for row, placement, _ in sweep.wrong()
        }
        found |= self.elements
        elements = [_wrong_elements(place, ranks, planned) for place, ranks in found.items()]
        nothing = self.warnings() if self.finished is not None and not self.begun else []
        return [
            *super().wrong(planned),
            *at_most(elements),
            *(f"nothing was tested: {warning}" for warning in nothing),
        ]

    def incomplete(self, planned: PlannedRanks) -> list[str]:
        """Also collectives without a whole table, though the ranks came to their end."""
        whole = {sweep.collective for sweep in self.sweeps if sweep.rows and sweep.average_busbw is not None}
        begun = dict.fromkeys(self.begun)
        missing = [name for name in begun if name not in whole and name not in self.left_out]
        untold = [f"the table of {name} is missing or incomplete" for name in missing]
        nothing = [] if begun or whole else ["nothing was measured"]
        return [*super().incomplete(planned), *untold, *nothing]

    def warnings(self) -> list[str]:
        return [f"{collective} is left out: {why}" for collective, why in self.left_out.items()]

    def summary(self) -> str:
        """The best bandwidths."""
        parts = [f"{sweep.collective} {max(_speeds(sweep)):.2f} GB/s" for sweep in self.sweeps if _speeds(sweep)]
        return "best busbw: " + ", ".join(parts) if parts else "nothing was measured"

    def table(self, planned: PlannedRanks) -> str:
        """A line per collective. Out of place counts where it was measured."""
        heads = ["collective", "largest size", "busbw there (GB/s)", "best (GB/s)"]
        heads += ["placement", "average (GB/s)", "wrong"]
        rows = [_row(sweep) for sweep in self.sweeps if sweep.rows]
        return render(heads, rows, right={1, 2, 3, 5, 6}) if rows else ""

    def as_json(self, planned: PlannedRanks) -> dict[str, Any]:
        """What was measured is in `sweeps`."""
        wrong = [
            {"collective": collective, "size": size, "placement": placement, "ranks": wire.to_json(ranks)}
            for (collective, size, placement), ranks in self.elements.items()
        ]
        return {**super().as_json(planned), "wrong": wrong, "left_out": self.left_out}


def _wrong_elements(place: Place, ranks: Mapping[int, int], planned: PlannedRanks) -> str:
    collective, size, placement = place
    where = [f"{planned.on(rank)}: {ranks[rank]}" for rank in sorted(ranks)]
    return f"{collective} of {size_text(size)}, {placement}, gave wrong elements" + (
        f" ({'; '.join(at_most(where))})" if where else ", nobody said on which rank"
    )


def _row(sweep: MeasuredSweep) -> list[str | float | None]:
    last = max(sweep.rows, key=lambda row: row.size)
    counts = [cell.wrong for row in sweep.rows for cell in row.placements() if cell.wrong is not None]
    return [
        sweep.collective,
        size_text(last.size),
        last.busbw,
        max(_speeds(sweep), default=None),
        PLACEMENTS[0 if last.out_of_place else 1],
        sweep.average_busbw,
        str(sum(counts)) if counts else "not checked",
    ]


def _speeds(sweep: MeasuredSweep) -> list[float]:
    return [row.busbw for row in sweep.rows if row.busbw is not None]
