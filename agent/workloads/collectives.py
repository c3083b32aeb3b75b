"""`collectives`: the sweep of nccl-tests by torch.distributed, for pods that have torch and no nccl-tests."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent import wire
from agent.decide.tables import render
from agent.decide.words import at_most, size_text
from agent.launch import Launch
from agent.workloads.base import Outcome, RunContext
from agent.workloads.nccl_tests import parse
from agent.workloads.option import Option, OptionParser, at_least
from agent.workloads.rank_record import PlannedRanks, read_record
from agent.workloads.sweeps import PLACEMENTS, MeasuredSweep
from agent.workloads.torch_program import COMMON, TorchProgram, TorchRecord, start_program

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
TYPES = ("int8", "uint8", "int32", "int64", "half", "float", "double", "bfloat16")
OPERATIONS = ("sum", "prod", "min", "max", "avg")


def byte_size(text: str) -> int:
    """Bytes; "1.5M" is 1572864."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)", text, re.IGNORECASE)
    # The index of the letter is the power of 1024.
    value = int(float(found[1]) * 1024 ** " KMG".index(found[2].upper() or " ")) if found else 0
    if not 0 < value < 1 << 50:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 64K, 1M or 8G")
    return value


OPTIONS = (
    Option(("--tests",), "A,B", f"which: {', '.join(COLLECTIVES)}", "all", several=COLLECTIVES),
    Option(("-b", "--minbytes"), "SIZE", "smallest size in bytes; K, M, G are ×1024", "1M", "64K", type=byte_size),
    Option(("-e", "--maxbytes"), "SIZE", "largest size", "1G", "16M", type=byte_size),
    Option(("-f", "--stepfactor"), "N", "factor from size to size", "2", "4", type=at_least(2)),
    Option(("-i", "--stepbytes"), "SIZE", "step in bytes from size to size, instead of a factor", type=byte_size),
    Option(("-n", "--iters"), "N", "timed runs", "20", "4", type=at_least(1)),
    Option(("-w", "--warmup_iters"), "N", "warm-up runs", "5", "1", type=at_least(0)),
    Option(("-c", "--check"), "N", "checked runs of each size; 0: none", "1", type=at_least(0)),
    Option(("-d", "--datatype"), "TYPE", ", ".join(TYPES), "float", choices=TYPES),
    Option(("-o", "--op"), "OP", f"reduction: {', '.join(OPERATIONS)}", "sum", choices=OPERATIONS),
    Option(("-r", "--root"), "RANK", "root of broadcast", "0", type=at_least(0)),
    Option(
        ("--budget-seconds",),
        "N",
        "most time for one measurement: on slow links fewer runs are timed, and a line says so",
        "10",
        type=float,
    ),
    *COMMON,
)


class Collectives(TorchProgram):
    name = "collectives"
    options = OPTIONS
    good = "collectives are right"
    bad = "collectives are wrong"
    before_summary = ";"
    output_bytes = 1 << 20
    """Six tables, each with a line for each of a thousand ranks."""

    def check(self, context: RunContext) -> None:
        parser = OptionParser(self.name, OPTIONS)
        parser.add_argument("collectives", nargs="*", metavar="TEST")
        options = parser.parse_args(context.args)
        tests = [*filter(None, (options.tests or "").split(",")), *options.collectives]
        if unknown := [name for name in tests if name not in COLLECTIVES]:
            parser.error(f"no test {', '.join(unknown)}: there are {', '.join(COLLECTIVES)}")
        if options.stepfactor and options.stepbytes:
            parser.error("argument -i/--stepbytes: not allowed with argument -f/--stepfactor")
        ranks = context.per_pod * len(context.names)
        if (options.root or 0) >= ranks:
            parser.error(f"no rank {options.root} for --root: there are {ranks} ranks")
        if options.minbytes and options.maxbytes and options.minbytes > options.maxbytes:
            parser.error(f"minbytes {options.minbytes} is more than maxbytes {options.maxbytes}")

    def launch(self, context: RunContext) -> Launch:
        return start_program(context, "collectives.py")

    def read(self, outcome: Outcome) -> CollectivesRecord:
        return read_record(outcome.record, CollectivesRecord(sweeps=parse(outcome.output)))


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
        self.note("first-collective", values)

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
