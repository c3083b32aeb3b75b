"""result.json, as values: what every run leaves, whatever its workload. Writers and readers use these types.

docs/result.schema.json is made of them (scripts/result_schema.py), with the texts under the fields as its descriptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from agent.decide.diagnosis import Diagnosis
from agent.decide.differences import Difference
from agent.decide.ending import JobEnd, is_told
from agent.decide.facts import Finding
from agent.errors import Exit
from agent.launch import Started
from agent.wire import finite

VERSION = 2
Count = Annotated[int, ("minimum", 0)]
Cell = str | float | bool | None
CurveOf = Literal["rank", "median", "least", "greatest"]


class Verdict(NamedTuple):
    """How a run ended."""

    status: Literal["passed", "failed", "ended"]
    """passed: code 0; ended: somebody ended the run (130, 143); failed: all else"""
    code: Annotated[int, ("minimum", 0), ("maximum", 255)]
    """exit code, docs/exit-codes.md"""
    what: str
    """one sentence"""
    where: str
    """the pod that it is about, in words; empty: none"""
    why: str
    """details and what to do, any number of lines"""
    origin: Literal["agent", "workload"]
    """whose code it is"""
    reasons: tuple[str, ...]
    """every finding that counts against the run, one sentence each"""


class Order(NamedTuple):
    """Where the order of the pods came from."""

    source: str
    """where the places came from; empty: none known, order of the indices"""
    warnings: tuple[str, ...]


class Pod(NamedTuple):
    """One pod's share in a run."""

    index: Count  # type: ignore[assignment]  # nobody needs that of tuple
    """completion index"""
    name: str
    node: str
    address: str
    place: Annotated[tuple[str, ...], ("maxItems", 4)]
    """coarsest first: cluster, block, sub-block, host; fewer parts are fine"""
    status: int | None
    """exit status of the pod's process, negative for a signal; null: it had none or has not said"""
    lost: str
    """why the coordinator does not hear it any more; empty: it does"""
    phases: Mapping[str, float]
    """when the pod reached each phase: agent-started, sshd-listening, facts-ready, coordinator-connected, peers-ready,
    plan-ready, process-started, process-ended, for programs of a4-agent ranks-ready (all ranks have found each other)
    and, where it is known, first-collective (it was complete)"""
    inventory: Mapping[str, str]
    pod_name: str = ""
    """its name in Kubernetes; empty: not known"""


class Limits(NamedTuple):
    """The limits that the run had."""

    timeout: float
    """wall limit in seconds; 0: none"""
    stall: float
    """limit of silence in seconds; 0: none"""


class Column(NamedTuple):
    """One column of a table."""

    name: str
    unit: str


class Table(NamedTuple):
    """One of the `tables`."""

    name: Annotated[str, ("pattern", "^[a-z0-9-]+$")]
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Measured(NamedTuple):
    """One placement of one size."""

    time: float
    """µs per operation"""
    algbw: float
    busbw: float
    wrong: int | None
    """wrong elements; null: not checked"""


class Row(NamedTuple):
    """One size of a sweep."""

    size: Count
    """bytes"""
    count: Count  # type: ignore[assignment]
    out_of_place: Measured | None
    """null: this placement was not measured"""
    in_place: Measured | None
    """null: this placement was not measured"""

    def placements(self) -> tuple[Measured, ...]:
        """Those that were measured."""
        return tuple(one for one in (self.out_of_place, self.in_place) if one)

    @property
    def busbw(self) -> float | None:
        """GB/s of the placement that people quote: out of place, where it was measured."""
        return next((one.busbw for one in self.placements()), None)


class Expected(NamedTuple):
    """The baseline of one size."""

    size: int
    busbw: float


class Baseline(NamedTuple):
    """What a sweep was compared with."""

    name: str
    source: str
    rows: tuple[Expected, ...]

    @property
    def busbw(self) -> Mapping[int, float]:
        """Size in bytes → GB/s."""
        return {row.size: row.busbw for row in self.rows}


@dataclass(frozen=True)
class Sweep:
    """Bandwidth of one collective over message size, as nccl-tests measures it."""

    collective: str
    """as nccl-tests names it: all_reduce, all_gather, …"""
    ranks: Count
    backend: str
    """nccl or gloo"""
    type: str
    redop: str
    root: int
    iterations: int | None
    warmup: int | None
    rows: tuple[Row, ...]
    average_busbw: float | None
    """mean over all sizes and both placements, as nccl-tests prints it"""
    out_of_bounds: int | None
    baseline: Baseline | None


class Iteration(NamedTuple):
    """One iteration of a training."""

    iteration: Count
    loss: float | None
    """null: the iteration was skipped, or its loss is not a number"""
    milliseconds: float | None
    tflops: float | None
    """TFLOP/s of each GPU"""
    grad_norm: float | None
    skipped: Count
    nans: Count
    """how many losses were no numbers"""


class Training(NamedTuple):
    """One training, as Megatron's last rank printed it."""

    stage: str
    """stage of the pipeline: train or json-sft"""
    planned: Count
    """the iteration at which it ends"""
    count: Count  # type: ignore[assignment]
    """iterations that this run made, in all its lives"""
    skipped: Count
    nans: Count
    iterations: tuple[Iteration, ...]
    """the first, the last, and evenly chosen ones between them, 1000 at most"""
    model: str = ""
    """what is trained, by its name at Hugging Face; empty: not known"""
    sequence: int | None = None
    """tokens of each sequence, padding included; null: not known"""
    batch: int | None = None
    """sequences of each iteration, all ranks together; null: not known"""


class SeriesCurve(NamedTuple):
    """How one of the `series` went."""

    of: CurveOf
    """rank: of one rank, or of a pod whose ranks did not say which they are; the others: of all ranks, which are more
    than 8"""
    steps: tuple[Count, ...]
    """the first, the last, those of the least and the greatest value, and evenly chosen ones; 1000 at most in all
    curves of a series"""
    values: tuple[float | None, ...]
    """at these steps; null: it is not a number, or not finite"""
    pod: int | None = None
    """completion index; null: of all ranks"""
    rank: int | None = None
    """as the program named it; null: it did not"""


class Series(NamedTuple):
    """What the program itself wrote under one name into A4_SERIES_FILE."""

    name: str
    unit: str
    ranks: Count
    """how many wrote it; the ranks of a pod count as one where they do not say which they are"""
    pods: Count
    records: Count
    first_step: Count
    last_step: Count
    first: float | None
    """of several ranks the median"""
    last: float | None
    """of several ranks the median"""
    least: float | None
    greatest: float | None
    nans: Count
    """records whose value is not a number, or not finite"""
    nan_at: int | None
    """step of the first of them"""
    curves: tuple[SeriesCurve, ...]


class FabricProfile(NamedTuple):
    """The fabric profile that was used."""

    name: str
    why: str


class Gate(NamedTuple):
    """How the speed was judged; each workload adds what it compared."""

    status: Literal["passed", "failed", "not judged"]
    reason: str


class Life(NamedTuple):
    """One life of a run that started again after it."""

    since: float
    """when it began, in seconds since 1970, as are `noticed`, `until`, `joined` and `next`"""
    noticed: float
    """when it was known that it ends"""
    until: float
    """when its last process was gone"""
    verdict: Verdict
    """why it ended"""
    lost: tuple[int, ...] = ()
    """completion indices of the pods that were lost in it"""
    joined: float | None = None
    """when all pods were there for the next life; null: they never were"""
    next: float | None = None
    """when that began; null: it never did"""


class Result(NamedTuple):
    """One run of one workload. Times are seconds since 1970 by the clock of the pod that they are about. Bandwidths are
    in GB/s, 1 GB = 1e9 bytes. Unknown names may be added within a version; a name that is here keeps its meaning."""

    version: Annotated[int, ("const", VERSION)]
    agent: str
    """version of a4-agent"""
    job: str
    """JOB_IDENTIFIER; may be empty"""
    epoch: str
    """one attempt of the job"""
    run: str
    """id of the run"""
    workload: str
    args: tuple[str, ...]
    """arguments of the workload, as typed after --"""
    by: str
    """who asked for the run, in words"""
    since: float
    until: float
    verdict: Verdict
    slots: Annotated[int, ("minimum", 1)]
    """GPUs, and so ranks, per pod"""
    order: Order
    pods: tuple[Pod, ...]
    """the pods that took part, in the order of the plan: the position is the node rank"""
    differences: tuple[Difference, ...]
    """what differed between pods where it should not"""
    launch: Started | None
    """what was started on the lead, the pod with rank 0; null: nothing"""
    versions: Mapping[str, str]
    """name → version, of what was really used: a4-agent, python, torch, cuda, nccl, cudnn, Open MPI, …"""
    limits: Limits
    tables: tuple[Table, ...]
    """what was measured besides the sweeps, for people and programs"""
    sweeps: tuple[Sweep, ...]
    """bandwidth over message size, as nccl-tests measures it: one object per collective"""
    profile: FabricProfile | None
    """the fabric profile that was used; null: none"""
    gate: Gate | None
    """speed judged against a baseline or a floor; null: not asked for"""
    record: Mapping[str, Any] = {}
    """what the workload's programs said of themselves; differs by workload"""
    trainings: tuple[Training, ...] = ()
    """loss and speed of what was trained; missing: nothing was"""
    warnings: tuple[str, ...] = ()
    """what is not as it should be and does not count against the run, one sentence each; missing: nothing"""
    diagnosis: Diagnosis | None = None
    """why it stood still when it was looked at, at a limit, in silence or before somebody ended it; null or missing: it
    was not"""
    name: str = ""
    """name of the run; empty or missing: it has none"""
    note: str = ""
    """a line of the user's about the run; empty or missing: none"""
    series: tuple[Series, ...] = ()
    """what the program wrote into A4_SERIES_FILE, by name, 64 names at most; missing: nothing"""
    findings: tuple[Finding, ...] = ()
    """what was found out about the health of the pods; empty or missing: nothing"""
    image: str = ""
    """the container image of the job's pods; empty or missing: not known"""
    lives: tuple[Life, ...] = ()
    """the lives of the run that were followed by another; missing: it did not start again"""

    def cells(self, table: str, column: str) -> list[Cell]:
        """All that stands in a column of a table; empty where there is none."""
        named = [one for one in self.tables if one.name == table]
        return [
            row[at] for one in named for at, head in enumerate(one.columns) if head.name == column for row in one.rows
        ]

    def numbers(self, table: str, column: str) -> list[float]:
        """The cells of a column that are finite numbers. Of a table or column that the result does not have there are
        none, so a check such as `all(…)` has to see first whether there are some."""
        return [one for cell in self.cells(table, column) if (one := finite(cell)) is not None]


def verdict(end: JobEnd, reasons: Sequence[str]) -> Verdict:
    """How a run ended, in the words of result.json."""
    status: Literal["passed", "failed", "ended"]
    status = "passed" if end.code == Exit.OK else "ended" if is_told(end) else "failed"
    return Verdict(status, end.code, end.what, end.where, end.why, end.origin, tuple(reasons))


def table(name: str, title: str, columns: Mapping[str, str], rows: Sequence[Sequence[Cell]]) -> Table:
    """One of the `tables`; `columns`: name → unit, empty for none."""
    heads = tuple(Column(column, unit) for column, unit in columns.items())
    return Table(name, title, heads, tuple(tuple(row) for row in rows))
