"""Reads and judges the record of the collectives test and its tables (the schema: entrypoints/collectives.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent import wire
from agent.decide import words
from agent.decide.tables import render
from agent.workloads import rank_record, torch_record
from agent.workloads.rank_record import Verdict, at_most, rank_on
from agent.workloads.sweeps import Sweep
from agent.workloads.torch_record import TorchRecord

PLACEMENTS = ("out-of-place", "in-place")
Place = tuple[str, int, str]
"""Collective, size in bytes, placement."""


@dataclass
class CollectivesRecord(TorchRecord):
    """What the rank program wrote, as far as it came."""

    begun: list[str] = field(default_factory=list)
    """Collectives whose table was begun."""
    wrong: dict[Place, dict[int, int]] = field(default_factory=dict)
    """Where elements were wrong: rank → how many."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Collective → why the backend does not have it."""

    def read_sweep(self, values: Mapping[str, Any]) -> None:
        self.begun.append(str(values["collective"]))

    def read_wrong(self, values: Mapping[str, Any]) -> None:
        place = str(values["collective"]), int(values["size"]), str(values["placement"])
        self.wrong[place] = wire.from_json(dict[int, int], values["ranks"])

    def read_left_out(self, values: Mapping[str, Any]) -> None:
        self.left_out[str(values["collective"])] = str(values["why"])


def parse_record(text: str) -> CollectivesRecord:
    return rank_record.parse_lines(text, CollectivesRecord())


def judge(
    record: CollectivesRecord,
    sweeps: Sequence[Sweep],
    tokens: Sequence[str],
    slots: int,
    names: Sequence[str],
    planned: Sequence[str] = (),
) -> Verdict:
    """Compare record and tables with the plan: `tokens` and `names` of its pods in order, `slots` ranks on each.

    `planned`: the collectives that were asked for; empty: those that the record names. Those left out are no
    failure (`warnings`), unless all are.
    """
    if verdict := rank_record.unusable(record, "collectives"):
        return verdict
    wrong = [
        *torch_record.wrong_places(record, tokens, slots, names),
        *_wrong_elements(record, sweeps, slots, names),
        *_all_left_out(record, planned),
    ]
    incomplete = [*torch_record.unfinished(record, slots, names), *_untold(record, sweeps, planned)]
    return rank_record.verdict(record, wrong, incomplete, torch_record.stopped(record))


def warnings(record: CollectivesRecord) -> list[str]:
    """What was not tested, and why."""
    return [f"{collective} is left out: {why}" for collective, why in record.left_out.items()]


def summary(sweeps: Sequence[Sweep]) -> str:
    """The best bandwidths in one line."""
    parts = [f"{sweep.collective} {max(_speeds(sweep)):.2f} GB/s" for sweep in sweeps if _speeds(sweep)]
    return "best busbw: " + ", ".join(parts) if parts else "nothing was measured"


def table(sweeps: Sequence[Sweep]) -> str:
    """A line per collective, for people; empty when nothing was measured. Out of place counts where it was measured."""
    rows = [_summary_row(sweep) for sweep in sweeps if sweep.rows]
    heads = ["collective", "largest size", "busbw there (GB/s)", "best (GB/s)", "placement", "average (GB/s)", "wrong"]
    texts = [
        [name, size_text(size), _speed(there), _speed(best), placement, _speed(average), wrong]
        for name, size, there, best, placement, average, wrong in rows
    ]
    return render(heads, texts, right={1, 2, 3, 5, 6}) if rows else ""


def as_json(record: CollectivesRecord, names: Sequence[str], slots: int) -> dict[str, Any]:
    """The record for `result.json`; what was measured is in `sweeps`. Tokens are left out."""
    wrong = [
        {"collective": collective, "size": size, "placement": placement, "ranks": wire.to_json(ranks)}
        for (collective, size, placement), ranks in record.wrong.items()
    ]
    return {**torch_record.as_json(record, names, slots), "wrong": wrong, "left_out": record.left_out}


def size_text(size: int) -> str:
    """8 B, 64 KiB, 8192 GiB"""
    return words.size_text(size, words.UNITS[:4])


def _wrong_elements(record: CollectivesRecord, sweeps: Sequence[Sweep], slots: int, names: Sequence[str]) -> list[str]:
    """Wrong elements by the record, which names ranks, and by the tables where the record has lost some."""
    found: dict[Place, dict[int, int]] = {
        (sweep.collective, row.size, placement): {}
        for sweep in sweeps
        for row in sweep.rows
        for placement, cell in zip(PLACEMENTS, (row.out_of_place, row.in_place), strict=True)
        if cell and cell.wrong
    }
    found |= record.wrong
    return at_most([_wrong_sentence(place, ranks, slots, names) for place, ranks in found.items()])


def _wrong_sentence(place: Place, ranks: Mapping[int, int], slots: int, names: Sequence[str]) -> str:
    collective, size, placement = place
    where = [f"{rank_on(rank, slots, names)}: {ranks[rank]}" for rank in sorted(ranks)]
    return f"{collective} of {size_text(size)}, {placement}, gave wrong elements" + (
        f" ({'; '.join(at_most(where))})" if where else ", nobody said on which rank"
    )


def _all_left_out(record: CollectivesRecord, planned: Sequence[str]) -> list[str]:
    everything = set(planned) or (set(record.left_out) if record.finished is not None and not record.begun else set())
    if not everything or everything - set(record.left_out):
        return []
    return [f"nothing was tested: {warning}" for warning in warnings(record)]


def _untold(record: CollectivesRecord, sweeps: Sequence[Sweep], planned: Sequence[str]) -> list[str]:
    """Collectives without a whole table, though the ranks came to their end."""
    whole = {sweep.collective for sweep in sweeps if sweep.rows and sweep.average_busbw is not None}
    wanted = dict.fromkeys([*planned, *record.begun])
    missing = [name for name in wanted if name not in whole and name not in record.left_out]
    if missing or wanted:
        return [f"the table of {name} is missing or incomplete" for name in missing]
    return ["nothing was measured"] if not whole else []


def _summary_row(sweep: Sweep) -> list[Any]:
    """A row of the table, with None for speeds that are not known."""
    last = max(sweep.rows, key=lambda row: row.size)
    counts = [cell.wrong for row in sweep.rows for cell in row.placements() if cell.wrong is not None]
    best = max(_speeds(sweep), default=None)
    there = next((cell.busbw for cell in last.placements()), None)
    placement = PLACEMENTS[0 if last.out_of_place else 1]
    return [
        sweep.collective,
        last.size,
        there,
        best,
        placement,
        sweep.average_busbw,
        str(sum(counts)) if counts else "not checked",
    ]


def _speeds(sweep: Sweep) -> list[float]:
    """Bus bandwidth of each size, in the placement that people quote."""
    return [cell.busbw for row in sweep.rows for cell in row.placements()[:1]]


def _speed(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
