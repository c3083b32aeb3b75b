"""Reads what nccl-tests prints, in the format of any release since 2.0, and what entrypoints/collectives.py prints.

The text may be a whole log: several tables, lines of NCCL between the rows and glued onto them, mpirun's tags.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from agent.wire import finite
from agent.workloads.sweeps import UNKNOWN, Kind, Measured, MeasuredSweep, Row, measured, of_kinds

SUFFIX = re.compile(r"_perf.*")
"""all_reduce_perf_mpi → all_reduce"""

# mpirun's tags, "[1,0]<stdout>:" and "[prterun-pod-0-7@1,0]<stdout>:", and torchrun's, "[default0]:".
TAG = re.compile(r"(\[[^][\s<>]*[0-9],[0-9]+\]<std(?:out|err|diag)>: ?|^\[[a-z_]*[0-9]+\]: ?)")
BACKEND = re.compile(r"# a4-agent collectives\b.*, ([a-z]+)\s*$")
STARTING = re.compile(r"# nccl-tests version |# Collective test starting: *(\S*)")
CONCLUDED = re.compile(r"# Collective test concluded: *(\S+)")
PARAMETERS = re.compile(r"# nThread .*warmup iters: *([0-9]{1,9}) +iters: *([0-9]{1,9})")
RANK = re.compile(
    r"# +Rank +(?P<rank>[0-9]{1,9}) +(?:Group +(?P<group>[0-9]{1,9}) +)?(?:Pid|on)\b"
    r"(?:.*? device +[0-9]+ \[[^]]*\] +(?P<model>\S.*?)\s*$)?"
)
HEADER = re.compile(r"# +size +count +type +(.*)")
BOUNDS = re.compile(r"# Out of bounds values *: *([0-9]{1,18})")
AVERAGE = re.compile(r"# Avg bus bandwidth *: *(\S+)")

TYPE = r"u?int(?:8|32|64)|half|float|double|bfloat16|f8e4m3|f8e5m2"
FIRST_ROW = re.compile(rf"^ *[0-9]+ +[0-9]+ +(?:{TYPE}) .*\n".encode(), re.MULTILINE)
"""A whole row of a table, as far as one need know to wait for it."""
NUMBER = r"-?(?:[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|inf|nan)"
# A host's name may follow without a blank, as in "0" and "10-0-0-1:77 [0] NCCL INFO": no zero before other digits.
COUNT = r"N/A|(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
IDENTITY = {
    "redop": r"(?:\s+(?P<redop>sum|prod|min|max|avg|mulsum|none))?",  # hypercube_perf prints an empty operation
    "root": r"\s+(?P<root>-1|0|[1-9][0-9]{0,8})",
}
EMPTY_GROUP = 30
"""Blanks in place of the out-of-place group, which nccl-tests leaves out when it replays a trace."""


def parse(text: str) -> tuple[MeasuredSweep, ...]:
    """The tables of a text, those without rows too, in their order; rows cut off in their second half are kept
    without it. Never raises: what is not understood is left out."""
    found: list[MeasuredSweep] = []
    for lines in streams(text):
        reader = TableReader()
        for line in lines:
            reader.read(line)
        for table in reader.tables:
            found.extend(table.sweeps())
    return tuple(found)


def streams(text: str) -> list[list[str]]:
    """The lines of each process where mpirun or torchrun has tagged them; all others are one process's."""
    by_tag: dict[str, list[str]] = {}
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        first, *tagged = TAG.split(line)
        if first or not tagged:
            by_tag.setdefault("", []).append(first)
        for tag, rest in zip(tagged[::2], tagged[1::2], strict=True):
            by_tag.setdefault(tag.strip(), []).append(rest)
    return list(by_tag.values())


def row_patterns(columns: Collection[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What stands before the figures of a row (other text may stand before that), and the figures of one placement, by
    the header's words after "type": releases before 2.13 have only those of operation and root that the collective
    needs, and -I adds i_* columns after each placement."""
    preamble = rf"(?<!\S)(?P<size>[0-9]{{1,18}})\s+(?P<count>[0-9]{{1,18}})\s+(?P<type>{TYPE})"
    preamble += "".join(words for name, words in IDENTITY.items() if name in columns)
    per_iteration = sum(name.startswith("i_") for name in columns) // 2
    figures = rf"({NUMBER})\s+({NUMBER})\s+({NUMBER})\s+({COUNT})" + rf"(?:\s+{NUMBER})" * per_iteration
    return re.compile(preamble), re.compile(rf"(\s*)(?<!\S)(?:{figures}|-\s+-\s+-\s+-(?!\S))")


@dataclass
class OpenRow:
    """A row whose figures have come as far as `groups`."""

    known: dict[str, str]
    groups: list[Measured | None] = field(default_factory=list)

    def row(self) -> tuple[Kind, Row]:
        out, inside = [*self.groups, None, None][:2]
        known = self.known
        kind = known["type"], known.get("redop") or UNKNOWN.redop, int(known.get("root", UNKNOWN.root))
        return kind, Row(int(known["size"]), int(known["count"]), out, inside)


@dataclass
class PrintedTable:
    """What has been read of one table."""

    known: MeasuredSweep = UNKNOWN
    """What the text has said so far, but for `ranks` and `rows`."""
    ranks: list[tuple[int, int]] = field(default_factory=list)
    """Rank and group, one per line of devices."""
    models: dict[str, None] = field(default_factory=dict)
    """The GPU models in those lines."""
    begun: bool = False
    """There was a header or a row: a banner after this is another table's."""
    rows: list[OpenRow] = field(default_factory=list)

    def tell(self, **known: Any) -> None:
        self.known = replace(self.known, **known)

    def sweeps(self) -> tuple[MeasuredSweep, ...]:
        """One sweep per type, operation and root."""
        lead_group = self.ranks[0][1] if self.ranks else 0
        whole = replace(
            self.known,
            ranks=len({rank for rank, group in self.ranks if group == lead_group}),
            groups=max(1, len({group for _, group in self.ranks})),
            copies=max(1, [rank for rank, _ in self.ranks].count(0)),
            models=tuple(self.models),
        )
        return of_kinds(whole, (opened.row() for opened in self.rows if opened.groups))


class TableReader:
    """Reads the lines of one process."""

    def __init__(self) -> None:
        self.tables: list[PrintedTable] = []
        self.row: OpenRow | None = None
        """The row whose figures have not all come; the lines of others may stand between them."""
        self.preamble, self.group = row_patterns(IDENTITY)

    def read(self, line: str) -> None:
        if "#" not in line or not (self.read_banner(line) or self.read_header(line) or self.read_footer(line)):
            self.read_figures(line)

    def table(self, begins: bool = False) -> PrintedTable:
        """The table that is being read; with `begins`, a new one once this one has come further."""
        if not self.tables or (begins and self.tables[-1].begun):
            self.tables.append(PrintedTable())
            self.row = None
        return self.tables[-1]

    def read_banner(self, line: str) -> bool:
        if backend := BACKEND.search(line):
            self.table(begins=True).tell(backend=backend[1])
        elif starting := STARTING.search(line):
            table = self.table(begins=True)
            table.tell(collective=SUFFIX.sub("", starting[1] or "") or table.known.collective)
        elif parameters := PARAMETERS.search(line):
            self.table(begins=True).tell(warmup=int(parameters[1]), iterations=int(parameters[2]))
        elif rank := RANK.search(line):
            table = self.table(begins=True)
            table.ranks.append((int(rank["rank"]), int(rank["group"] or 0)))
            table.models.update({rank["model"]: None} if rank["model"] else {})
        else:
            return False
        return True

    def read_header(self, line: str) -> bool:
        header = HEADER.search(line)
        if header:
            table = self.table()
            # Processes that do not know of each other print their headers one after the other.
            if table.rows or table.known.average_busbw is not None:
                table = self.table(begins=True)
            table.begun = True
            self.preamble, self.group = row_patterns(header[1].split())
        return bool(header)

    def read_footer(self, line: str) -> bool:
        """Figures after the footer are late ones of other processes: the table stays theirs."""
        if bounds := BOUNDS.search(line):
            self.table().tell(out_of_bounds=max(self.table().known.out_of_bounds or 0, int(bounds[1])))
        elif average := AVERAGE.search(line):
            self.table().tell(average_busbw=finite(average[1]))
        elif concluded := CONCLUDED.search(line):
            self.table().tell(collective=SUFFIX.sub("", concluded[1]))
        else:
            return False
        self.table().begun = True
        self.row = None
        return True

    def read_figures(self, line: str) -> None:
        """A row, or the rest of one that was interrupted."""
        at = 0
        if begin := self.preamble.search(line):
            table = self.table()
            table.begun = True
            self.row = OpenRow(begin.groupdict())
            table.rows.append(self.row)
            at = begin.end()
        while self.row and (match := self.group.match(line, at)):
            if not self.row.groups and len(match[1]) >= EMPTY_GROUP:
                self.row.groups.append(None)
            # No numbers, or four times "-", by which entrypoints/collectives.py marks what it has not measured.
            self.row.groups.append(measured(match.groups()[1:4], match[5]))
            at = match.end()
            if len(self.row.groups) >= 2:
                self.row = None
