"""What the steps of an nccl run were, and what their tables show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agent.cutting import cut_at_word
from agent.decide import result
from agent.decide.tables import render
from agent.workloads.nccl.baselines import Key, Runs, SpeedGate, size_text
from agent.workloads.nccl.json_file import version_text
from agent.workloads.nccl_tests import parse
from agent.workloads.sweeps import MeasuredSweep

MARKER = "# a4-agent: step "
"""With this, entrypoints/steps.py begins the output of each step."""
COLUMNS = {
    "test": "",
    "size": "bytes",
    "busbw": "GB/s",
    "spread": "%",
    "worst": "GB/s",
    "worst run": "",
    "baseline": "GB/s",
    "of baseline": "%",
}
HEADS = ["test", "size", "busbw (GB/s)", "spread", "worst (GB/s)", "worst run", "baseline (GB/s)", "of it"]


def split_output(output: str) -> dict[str, str]:
    """Step → what was printed in it. What comes before the first step is left out: it belongs to nobody known."""
    found: dict[str, str] = {}
    for part in output.split(MARKER)[1:]:
        name, _, text = part.partition("\n")
        found[name] = text
    return found


class Measurement(NamedTuple):
    """One run of one test."""

    step: str
    test: str
    sweeps: tuple[MeasuredSweep, ...]
    wrong: tuple[str, ...] = ()
    """What is certainly not as it should be, a sentence each."""
    incomplete: tuple[str, ...] = ()
    """What is missing."""
    without_mpi: bool = False

    @property
    def complete(self) -> bool:
        return not self.incomplete and not self.without_mpi


def measurement(
    step: str, test: str, text: str, sweeps: Sequence[MeasuredSweep], expected: int, width: int
) -> Measurement:
    """From the output of a step and, if there is one, its JSON (`sweeps`). `expected`: ranks of NCCL in all, `width`
    of them in one process."""
    printed = parse(text)
    found = tuple(replace(one, collective=one.collective or test) for one in sweeps or printed)
    # Does a process take itself for the only one?
    alone = [one for one in (*printed, *found) if one.copies > 1 or 0 < one.ranks * one.groups <= width]
    if alone and expected > width:
        return Measurement(step, test, found, without_mpi=True)
    whole = all(one.rows and one.average_busbw is not None and _ranks_fit(one, expected) for one in sweeps)
    missing = [] if sweeps and whole else _missing(step, text, found, expected)
    if missing:  # with what nccl-tests itself says of its end
        failures = re.findall(r"^.*\bTest (?:CUDA|NCCL) failure .*$", text, re.MULTILINE)
        missing += list(dict.fromkeys(cut_at_word(line.strip(), 500) for line in failures))[:5]
    return Measurement(step, test, found, tuple(_wrong(step, text, found)), tuple(missing))


def _ranks_fit(sweep: MeasuredSweep, expected: int) -> bool:
    """Groups need not be equal, and old releases do not list the ranks."""
    return sweep.ranks in (0, expected) or (sweep.groups > 1 and sweep.ranks < expected)


def _missing(step: str, text: str, sweeps: Sequence[MeasuredSweep], expected: int) -> list[str]:
    if not any(one.rows for one in sweeps):
        usage = "USAGE:" in text
        invalid = re.search(r"^.*invalid option.*$", text, re.MULTILINE)
        hint = f": it printed its usage{f' ({invalid[0].strip()})' if invalid else ''}" if usage else ""
        return [f"{step} measured nothing{hint}"]
    lines = [] if all(one.average_busbw is not None for one in sweeps) else [f"the table of {step} ends early"]
    odd = [one for one in sweeps if not _ranks_fit(one, expected)]
    return lines + [f"{step} had {one.ranks} ranks, {expected} were planned" for one in odd[:1]]


def _wrong(step: str, text: str, sweeps: Sequence[MeasuredSweep]) -> list[str]:
    found = [
        f"{step}: {count} wrong elements at {size_text(row.size)} of {one.type}, {placement}"
        for one in sweeps
        for row, placement, count in one.wrong()
    ]
    bounds = max((one.out_of_bounds or 0 for one in sweeps), default=0)
    if bounds:
        found.append(f"{step}: {bounds} values are out of bounds")
    if re.search(r"^# Avg bus bandwidth *: .*\bFAILED\b", text, re.MULTILINE):
        found.append(f"{step}: the average is below NCCL_TESTS_MIN_BW")
    return found


def comparable(found: Sequence[Measurement], profile: str, nodes: int, gpus: int) -> list[Runs]:
    """The runs of each test together, per type, operation, root and model of the GPUs, for the gate."""
    tests: dict[Key, list[MeasuredSweep]] = {}
    for sweep in (sweep for one in found for sweep in one.sweeps if sweep.rows):
        operation = "sum" if sweep.redop == "none" else sweep.redop
        model = " and ".join(sorted(sweep.models))
        key = Key(profile, sweep.collective, nodes, gpus, sweep.type, operation, max(0, sweep.root), model)
        tests.setdefault(key, []).append(sweep)
    return [Runs(key, sweeps) for key, sweeps in tests.items()]


def rows(tests: Sequence[Runs], gate: SpeedGate) -> list[list[Any]]:
    """One of COLUMNS per test and size, with None for what is not known."""
    compared = {(row.test, row.size): row for row in gate.rows}
    found: list[list[Any]] = []
    for test in tests:
        medians = test.medians()
        for size, speeds in test.speeds().items():
            middle, worst = medians[size], min(speeds)
            spread = 100 * (max(speeds) - worst) / middle if middle and len(speeds) > 1 else None
            beside = compared.get((test.key.name, size))
            run = speeds.index(worst) + 1 if len(speeds) > 1 else None
            expected, percent = (beside.expected, round(beside.percent, 1)) if beside else (None, None)
            rounded = None if spread is None else round(spread, 2)
            found.append([test.key.name, size, middle, rounded, worst, run, expected, percent])
    return found


def tables(found: Sequence[Sequence[Any]]) -> list[result.Table]:
    return [result.table("nccl", "Bus bandwidth, the median of all runs", COLUMNS, found)] if found else []


def text_table(found: Sequence[Sequence[Any]]) -> str:
    """The table for people, without empty columns."""
    used = [number for number in range(len(HEADS)) if any(row[number] is not None for row in found)]
    # The worst of a single run is that run.
    if all(row[5] is None for row in found):
        used = [number for number in used if number != 4]
    shown = {1: size_text, 3: "{:.1f} %".format, 7: "{:.1f} %".format}
    texts = [[shown[n](row[n]) if n in shown and row[n] is not None else row[n] for n in used] for row in found]
    right = {place for place, number in enumerate(used) if number}
    return render([HEADS[number] for number in used], texts, right=right) if found else ""


def told(sweep: MeasuredSweep, gate: SpeedGate, name: str) -> result.Sweep:
    """A sweep for result.json, with the baseline of its sizes."""
    beside = [row for row in gate.rows if row.test == name]
    if not beside:
        return sweep.told()
    return sweep.told(
        result.Baseline(
            name="; ".join(dict.fromkeys(row.baseline.name for row in beside)),
            source="; ".join(dict.fromkeys(row.baseline.source for row in beside)),
            rows=tuple(result.Expected(row.size, row.expected) for row in beside),
        )
    )


def versions(outputs: Mapping[str, str]) -> dict[str, str]:
    """The versions of nccl-tests and of NCCL, as far as the tables give them."""
    text = "\n".join(outputs.values())
    found = re.search(r"^# nccl-tests version (\S+) nccl-headers=\d+ nccl-library=(\d+)", text, re.MULTILINE)
    return {"nccl-tests": found[1], "nccl": version_text(int(found[2]))} if found else {}
