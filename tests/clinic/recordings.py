"""What real programs answered, read as the agent reads it: torch 2.13 with gloo and mpi4py 4.1, four ranks each, asked
over torch's socket and by py-spy 0.4. Each file has one run: rank → its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent import wire
from agent.clinic.sources.recorder import both, read_recorder, since
from agent.clinic.sources.stacks import read_py_spy
from agent.clinic.why.records import Collected, PodRecords, Process, Source, Waiting
from agent.machine.syscall_names import syscall_name

DIRECTORY = Path(__file__).parent / "recorded"
HANGS_DIRECTORY = DIRECTORY / "hangs"
PODS = 2
Change = Callable[[Process], Process]


def recorded(name: str) -> dict[str, Any]:
    """The raw answers of one run."""
    found: dict[str, Any] = json.loads((DIRECTORY / f"{name}.json").read_text())
    return found


def collected(name: str, change: Change = lambda process: process) -> Collected:
    """A recorded run, two of its ranks on each pod; `change` makes another run of it, process by process."""
    ranks = {int(rank): answers for rank, answers in recorded(name).items()}
    by_pod: dict[int, list[Process]] = {}
    sources: dict[int, list[Source]] = {}
    for rank, answers in ranks.items():
        pod = rank // PODS
        by_pod.setdefault(pod, []).append(change(process_of(rank, answers)))
        sources.setdefault(pod, []).extend(source_of(answers))
        for child in answers.get("children", ()):
            by_pod[pod].append(_process(child, rank)._replace(role="child"))
    pods = [
        PodRecords(pod, f"train-{pod}", f"gke-{pod}", (f"198.18.0.{pod}",), tuple(found), sources=tuple(sources[pod]))
        for pod, found in by_pod.items()
    ]
    return Collected("r1", pods=tuple(pods), ranks=len(ranks), apart=1.0)


def process_of(rank: int, answers: Mapping[str, Any]) -> Process:
    """A rank, from the raw answers."""
    process = _process(answers, rank)
    if "recorder" not in answers:
        return process._replace(stays=True)  # it was recorded once, of a program that stood still
    gloo, nccl = (read_recorder(_text(answers[name])) for name in ("recorder", "nccl"))
    first = answers["recorder"] if answers["before"] == "same" else answers["before"]
    groups = since(both(gloo, nccl).groups, read_recorder(_text(first)).groups)
    deaf = answers["traceback"].startswith("ERROR") and bool(gloo.groups)
    return process._replace(groups=groups, holds_gil=deaf or None)


def source_of(answers: Mapping[str, Any]) -> list[Source]:
    if not str(answers.get("recorder", "")).startswith("ERROR"):
        return []
    return [Source("recorder", "unavailable", "its socket accepts and never answers", (answers["proc"]["pid"],))]


def _process(answers: Mapping[str, Any], rank: int) -> Process:
    proc = answers["proc"]
    stacks = answers["stacks"]
    threads = read_py_spy(_text(stacks))
    call = syscall_name(proc["syscall"], "x86_64")
    waiting = Waiting(proc["state"], "" if proc["wchan"] == "0" else proc["wchan"], call)
    return Process(
        pid=proc["pid"],
        parent=proc["parent"],
        state=proc["state"],
        role="rank",
        rank=rank,
        waiting=(waiting,),
        threads=threads,
    )


def _text(answer: Any) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer)


def pods_said(name: str) -> Collected:
    """What the pods of a run on two H100 had found: torch 2.11 with NCCL 2.28.9 and nccl-tests 2.19, a rank on each.
    `nccl2-…`: torch 2.15 with NCCL 2.30.7, on an H200 that two pods shared."""
    found: dict[str, Any] = json.loads((DIRECTORY.with_name("collected") / f"{name}.json").read_text())
    return wire.from_json(Collected, found)


def hang_seen(name: str) -> Collected:
    """What the pods of a local cluster had found of four ranks: torch 2.13 with gloo, or mpi4py 4.1."""
    found: dict[str, Any] = json.loads((HANGS_DIRECTORY / f"{name}.json").read_text())
    return wire.from_json(Collected, found)
