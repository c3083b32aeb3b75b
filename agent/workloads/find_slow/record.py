"""The record of entrypoints/find-slow.py, which describes its lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

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
                pairs = values["pairs"]
                measured += slowest_rails(PairSpeed(number, (int(a), int(b)), float(mb)) for a, b, mb, *_ in pairs)
                rounds = number + 1
            ended = values["step"] == "end"
        except (ValueError, KeyError, TypeError):
            break
    return PairRecord(tuple(measured), rounds, ended)


def slowest_rails(measured: Iterable[PairSpeed]) -> list[PairSpeed]:
    """One for each pair and round."""
    found: dict[tuple[object, ...], PairSpeed] = {}
    for one in measured:
        known = found.get(one[:2])
        found[one[:2]] = one if known is None or one.speed < known.speed else known
    return list(found.values())
