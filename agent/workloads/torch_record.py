"""What the records of `ddp` and `collectives` share beyond those of all rank programs (entrypoints/torch_ranks.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent import wire
from agent.workloads import rank_record
from agent.workloads.rank_record import VERSION, RankRecord, at_most, name_of, parse_lines


@dataclass
class TorchRecord(RankRecord):
    """What the program wrote, as far as it came. None: that step was not reached."""

    backend: str = ""
    started: float | None = None
    """Seconds since 1970, as is `ready`."""
    versions: dict[str, str] = field(default_factory=dict)
    """Name → version, for result.json: python, torch, cuda, nccl."""
    ready: float | None = None
    """When all ranks had found each other, "ranks-ready" in result.json."""

    def read_start(self, values: Mapping[str, Any]) -> None:
        self.version, self.program = int(values["version"]), str(values.get("program", ""))
        if self.version == VERSION:
            self.launched, self.backend = int(values["ranks"]), str(values["backend"])
            self.started = float(values["time"])
            self.versions = wire.from_json(dict[str, str], values["versions"])

    def read_ranks(self, values: Mapping[str, Any]) -> None:
        super().read_ranks(values)
        self.ready = float(values["time"])


def parse_record(text: str) -> TorchRecord:
    """What either program's record says of what is being done, and of its ranks: its own lines count as damaged."""
    return parse_lines(text, TorchRecord())


def phases(record: TorchRecord) -> dict[str, float]:
    """Moments of the run for result.json."""
    return {} if record.ready is None else {"ranks-ready": record.ready}


def as_json(record: TorchRecord, names: Sequence[str], slots: int) -> dict[str, Any]:
    """The common part for `record` in result.json. Tokens are left out."""
    return {
        "program": record.program,
        "ranks": record.launched,
        "backend": record.backend,
        "mapping": [
            {"rank": seen.rank, "planned_pod": name_of(seen.rank, slots, names), "node": seen.node}
            | {"device": seen.device}
            for seen in record.ranks or []
        ],
        "finished": record.finished,
        "doing": str(record.doing or ""),
    }


def wrong_places(record: TorchRecord, tokens: Sequence[str], slots: int, names: Sequence[str]) -> list[str]:
    """Ranks that are too many, too few, or not where the plan puts them."""
    if wrong := rank_record.wrong_count(record, slots, len(tokens)):
        return wrong
    return at_most(rank_record.wrong_places(record, tokens, slots, names))


def unfinished(record: TorchRecord, slots: int, names: Sequence[str]) -> list[str]:
    """Ranks that did not come to their end."""
    return at_most(rank_record.unfinished(record, slots, names))


def stopped(record: TorchRecord) -> str:
    """How far a record without an end came."""
    if record.ranks is None:
        return f"{record.launched} ranks were started, but not all of them found each other"
    return f"the ranks stopped during: {record.doing}" if record.doing else "the ranks stopped before their end"
