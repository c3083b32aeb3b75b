"""What tests of the records of ranks share: six planned ranks on three pods, and what may be wrong in a record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agent.workloads.rank_record import PlannedRanks

TOKENS = ["aa", "bb", "cc"]
NAMES = [f"job-workload-0-{index}.job.default.svc.cluster.local" for index in (0, 2, 1)]
SLOTS = 2
POD = "pod job-workload-0-"
PLANNED = PlannedRanks(SLOTS, NAMES, TOKENS)
Line = dict[str, Any]
Harm = Callable[[list[Line]], Any]


def common(program: str, pods: int = 3, slots: int = SLOTS) -> list[Line]:
    """The first two lines of a run of a torch program in which all is right."""
    versions = {"python": "3.11.7", "torch": "2.13.0+cpu"}
    ranks = [
        {"rank": r, "local_rank": r % slots, "token": TOKENS[r // slots], "node": f"node-{r // slots}", "pid": 10 + r}
        | {"device": "cpu", "error": ""}
        for r in range(pods * slots)
    ]
    start = {"step": "start", "version": 1, "program": program, "ranks": len(ranks), "backend": "gloo", "time": 100.0}
    return [{**start, "versions": versions}, {"step": "ranks", "time": 102.5, "ranks": ranks}]


def end(pods: int = 3, slots: int = SLOTS) -> Line:
    return {"step": "end", "time": 110.0, "finished": list(range(pods * slots))}


def text(record: list[Line]) -> str:
    return "".join(json.dumps(line) + "\n" for line in record)


def with_line(at: int, **changes: Any) -> Harm:
    """That line of the record has these values."""
    return lambda record: record[at].update(changes)


def with_rank(rank: int, **changes: Any) -> Harm:
    """That rank has told this of itself."""
    return lambda record: record[1]["ranks"][rank].update(changes)
