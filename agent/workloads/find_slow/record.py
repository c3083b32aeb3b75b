"""The record of entrypoints/find-slow.py, which describes its lines."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from agent.workloads.find_slow.fitting import PairSpeed


class PairRecord(NamedTuple):
    measured: tuple[PairSpeed, ...] = ()
    rounds: int = 0
    ended: bool = False
    """All rounds were measured."""


def read_pairs(text: str) -> PairRecord:
    """As far as it can be read: its last line may be cut."""
    measured: list[PairSpeed] = []
    rounds, ended = 0, False
    for line in text.splitlines():
        try:
            values = json.loads(line)
            if values["step"] == "round":
                number = int(values["number"])
                measured += [pair_speed(number, *row) for row in values["pairs"]]
                rounds = number + 1
            ended = values["step"] == "end"
        except (ValueError, KeyError, TypeError):
            break
    return PairRecord(tuple(measured), rounds, ended)


def pair_speed(number: int, one: Any, other: Any, speed: Any, rail: Any = 0) -> PairSpeed:
    """A row of JSON, with a rail or without. Raises ValueError or TypeError."""
    return PairSpeed(number, (int(one), int(other)), float(speed), int(rail))
