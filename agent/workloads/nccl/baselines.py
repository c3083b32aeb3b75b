"""Published and own baselines of bus bandwidth, and the gate that compares with them (the file: docs/nccl.md)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Literal, NamedTuple

from agent.workloads.sweeps import MeasuredSweep

LEAST_ITERATIONS = 5
"""Timed ones. What fewer say is chance, on either side of a comparison."""
SAVED_SHARE = 0.8
"""Sizes below this share of the best bandwidth only show latency: they vary too much between runs to be a baseline."""
FILE_VERSION = 1

Status = Literal["passed", "failed", "not judged"]


class Key(NamedTuple):
    """What must agree before two bandwidths can be compared."""

    profile: str
    collective: str
    nodes: int
    gpus: int
    """Per node."""
    type: str = "float"
    operation: str = "sum"
    """The reduction; "sum" for tests without one."""
    root: int = 0
    """Also 0 for tests without one."""
    model: str = ""
    """The GPU model, as CUDA calls it. Empty: the table does not say it, or a baseline is not about one model."""

    @property
    def name(self) -> str:
        """The test, with what differs from its defaults."""
        kind = [self.type] if self.type != "float" else []
        operation = [self.operation] if self.operation != "sum" else []
        root = [f"root {self.root}"] if self.root else []
        return " ".join([self.collective, *kind, *operation, *root])

    def __str__(self) -> str:
        nodes = f"{self.nodes} nodes of " if self.nodes > 1 else "1 node of "
        gpus = f"{self.gpus} × {self.model}" if self.model else f"{self.gpus} GPUs of an unknown model"
        return f"{self.name} on {nodes}{gpus} with profile {self.profile or 'none'}"


class KnownBaseline(NamedTuple):
    """One entry of a file of baselines."""

    name: str
    source: str
    keys: tuple[Key, ...]
    iterations: int | None
    """Timed ones; None: the source does not say."""
    warmup: int | None
    busbw: Mapping[int, float]
    """Bytes → GB/s."""

    def to_json(self) -> dict[str, Any]:
        key = self.keys[0]
        profiles = [each.profile for each in self.keys]
        return {
            "name": self.name,
            "profile": profiles if len(profiles) > 1 else profiles[0],
            "collective": key.collective,
            "nodes": key.nodes,
            "gpus_per_node": key.gpus,
            "gpu_model": key.model,
            "type": key.type,
            "operation": key.operation,
            "root": key.root,
            "iterations": self.iterations,
            "warmup": self.warmup,
            "source": self.source,
            "busbw": {str(size): speed for size, speed in self.busbw.items()},
        }


def parse_file(text: str) -> list[KnownBaseline]:
    """Raises ValueError that says in words what is wrong."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("version") != FILE_VERSION or not isinstance(data.get("baselines"), list):
        raise ValueError(f'an object with "version": {FILE_VERSION} and a list "baselines" is wanted')
    return _first_of_each([_entry(entry, number) for number, entry in enumerate(data["baselines"], 1)])


def _first_of_each(entries: Sequence[KnownBaseline]) -> list[KnownBaseline]:
    """The entries without repetitions: older releases saved all operations and roots of a run under one key, those that
    the key without them means, sum and root 0, first."""
    first: dict[tuple[str, str, tuple[Key, ...]], KnownBaseline] = {}
    for entry in entries:
        first.setdefault((entry.name, entry.source, entry.keys), entry)
    return list(first.values())


def file_text(entries: Sequence[KnownBaseline]) -> str:
    return json.dumps({"version": FILE_VERSION, "baselines": [entry.to_json() for entry in entries]}, indent=1) + "\n"


def _entry(data: Any, number: int) -> KnownBaseline:
    try:
        profiles = data["profile"] if isinstance(data["profile"], list) else [data["profile"]]
        operation = str(data.get("operation", "sum"))
        key = Key(
            "",
            str(data["collective"]),
            _count(data["nodes"]),
            _count(data["gpus_per_node"]),
            str(data.get("type", "float")),
            # nccl-tests write none, and root -1, for tests that have neither.
            "sum" if operation == "none" else operation,
            max(0, _count(data.get("root", 0), least=-1)),
            str(data.get("gpu_model") or ""),
        )
        found = KnownBaseline(
            name=str(data["name"]),
            source=str(data["source"]),
            keys=tuple(key._replace(profile=str(profile)) for profile in profiles),
            iterations=None if data["iterations"] is None else _count(data["iterations"]),
            warmup=data["warmup"],
            busbw={size_of(size): float(speed) for size, speed in data["busbw"].items()},
        )
    except KeyError as error:
        raise ValueError(f"entry {number} has no {error}") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"entry {number} is not as it should be: {error}") from None
    if not found.keys or not found.busbw or not all(speed > 0 for speed in found.busbw.values()):
        raise ValueError(f"entry {number} ({found.name}) needs a profile and bandwidths above 0")
    if found.iterations is not None and found.iterations < LEAST_ITERATIONS:
        raise ValueError(f"entry {number} ({found.name}): fewer than {LEAST_ITERATIONS} iterations are no baseline")
    return found


def _count(value: Any, least: int = 1) -> int:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{value!r} is not a whole number (at least {least})")
    return value


def size_of(text: str) -> int:
    """Bytes: 1048576, 1M, 8G. Raises ValueError."""
    found = re.fullmatch(r"([0-9]{1,15})([KMG]?)", text, re.IGNORECASE)
    if not found:
        raise ValueError(f"{text!r} is not a size such as 512M")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2].upper()]


class Runs(NamedTuple):
    """The runs of one test that measured the same."""

    key: Key
    sweeps: Sequence[MeasuredSweep]
    """One for each run."""

    @property
    def iterations(self) -> int | None:
        counts = [sweep.iterations for sweep in self.sweeps]
        return None if None in counts else min((count for count in counts if count is not None), default=None)

    def speeds(self) -> dict[int, list[float]]:
        """Size → GB/s of each run."""
        found: dict[int, list[float]] = {}
        for sweep in self.sweeps:
            for size, cycles in _cycles(sweep).items():
                found.setdefault(size, []).append(median(cycles))
        return found

    def medians(self) -> dict[int, float]:
        return {size: median(speeds) for size, speeds in self.speeds().items()}


def _cycles(sweep: MeasuredSweep) -> dict[int, list[float]]:
    """Size → GB/s of each of its rows: with -N, one run has several."""
    found: dict[int, list[float]] = {}
    for row in sweep.rows:
        if row.busbw is not None:
            found.setdefault(row.size, []).append(row.busbw)
    return found


class Compared(NamedTuple):
    """One size of one test beside its baseline."""

    test: str
    size: int
    measured: float
    expected: float
    baseline: KnownBaseline

    @property
    def percent(self) -> float:
        return 100 * self.measured / self.expected

    def __str__(self) -> str:
        percent = math.floor(10 * self.percent) / 10  # never shown as what is wanted
        beside = f"{percent} % of {self.expected:.2f} GB/s ({self.baseline.name})"
        return f"{self.test} of {size_text(self.size)}: {self.measured:.2f} GB/s are {beside}"


class SpeedGate(NamedTuple):
    """What became of the comparison."""

    status: Status
    reason: str
    failures: Sequence[str] = ()
    """A sentence each."""
    rows: Sequence[Compared] = ()
    unjudged: Mapping[str, str] = {}
    """Test → why it was not judged."""

    def to_json(self) -> dict[str, Any]:
        rows = [
            {
                "collective": row.test,
                "size": row.size,
                "measured": row.measured,
                "expected": row.expected,
                "percent": round(row.percent, 1),
                "baseline": row.baseline.name,
                "source": row.baseline.source,
            }
            for row in self.rows
        ]
        return {"status": self.status, "reason": self.reason, "rows": rows, "not_judged": dict(self.unjudged)}


def find(entries: Sequence[KnownBaseline], key: Key) -> dict[int, KnownBaseline]:
    """The baseline of each size, of these GPUs or of no certain ones; of several that have it the last."""
    fitting = {key, key._replace(model="")}
    return {size: entry for entry in entries if fitting & set(entry.keys) for size in entry.busbw}


def judge(
    tests: Sequence[Runs],
    entries: Sequence[KnownBaseline],
    *,
    min_percent: float,
    min_busbw: float | None,
    why_not: str = "",
) -> SpeedGate:
    """Compare every test with its baselines and with the floor. `why_not`: why nothing can be judged at all."""
    rows: list[Compared] = []
    failures: list[str] = []
    unjudged: dict[str, str] = {}
    floor = ""
    for test in tests:
        reason = why_not or _not_comparable(test)
        if reason:
            unjudged[test.key.name] = reason
            continue
        known, medians = find(entries, test.key), test.medians()
        compared = [
            Compared(test.key.name, size, speed, known[size].busbw[size], known[size])
            for size, speed in medians.items()
            if size in known
        ]
        rows += compared
        failures += [f"{row}, {min_percent:g} % are wanted" for row in compared if row.percent < min_percent]
        if min_busbw is not None:
            floor = f"every test reaches {min_busbw:g} GB/s"
            best = max(medians.values(), default=0.0)  # small sizes never reach the floor
            if best < min_busbw:
                failures.append(f"{test.key.name}: at best {best:.2f} GB/s, --min-busbw {min_busbw:g} is wanted")
        elif known and not compared:
            unjudged[test.key.name] = f"the baseline has other sizes: {', '.join(map(size_text, sorted(known)))}"
        elif not known:
            unjudged[test.key.name] = f"there is no baseline for {test.key}"
    good = [*_least(rows, min_percent), *filter(None, [floor])]
    anyone = dict.fromkeys(row.baseline.name for row in rows if not row.baseline.keys[0].model)
    general = [f"the baseline {name} names no GPU model and counts for every one" for name in anyone]
    left = [f"{test} not judged: {why}" for test, why in unjudged.items()]
    status: Status = "failed" if failures else "passed" if good else "not judged"
    reason = "; ".join([*(failures or good), *general, *left]) or "nothing was measured"
    return SpeedGate(status, reason, failures, rows, unjudged)


def _least(rows: Sequence[Compared], min_percent: float) -> list[str]:
    """The row that came nearest to failing, if there are any."""
    if not rows:
        return []
    least = min(rows, key=lambda row: row.percent)
    where = f"{least.test} {size_text(least.size)}"
    return [f"at least {least.percent:.1f} % of the baseline ({where}); {min_percent:g} % are wanted"]


def _not_comparable(test: Runs) -> str:
    count = test.iterations
    if count is None:
        return "the number of timed iterations is not known"
    if count < LEAST_ITERATIONS:
        return f"{count} timed iterations, {LEAST_ITERATIONS} are needed"
    if any(sweep.groups > 1 for sweep in test.sweeps):
        return "several groups of ranks ran side by side (NCCL_TESTS_SPLIT)"
    return ""


def saved(tests: Sequence[Runs], name: str, source: str) -> list[KnownBaseline]:
    """Entries for what these tests have measured, of those that a baseline can be made of."""
    entries = []
    for test in tests:
        speeds = test.medians()
        best = max(speeds.values(), default=0.0)
        kept = {size: round(speed, 4) for size, speed in speeds.items() if speed >= SAVED_SHARE * best and speed > 0}
        if kept and not _not_comparable(test):
            warmup = test.sweeps[0].warmup
            entries.append(KnownBaseline(name, source, (test.key,), test.iterations, warmup, kept))
    return entries


def merged(old: Sequence[KnownBaseline], new: Sequence[KnownBaseline]) -> list[KnownBaseline]:
    """The old entries but for those of the same name and keys, and the new ones."""
    replaced = {(entry.name, entry.keys) for entry in new}
    return [*(entry for entry in old if (entry.name, entry.keys) not in replaced), *new]


def size_text(size: int) -> str:
    """As nccl-tests takes it: 512M, 8G."""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)
