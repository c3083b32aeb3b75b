"""Says what to measure next: python -Es -m agent.clinic.find_slow PLACES, for entrypoints/find-slow.py."""

from __future__ import annotations

import json
import sys
from typing import Any

from agent.clinic.find_slow.fitting import PairSpeed
from agent.clinic.find_slow.gathering import Gathered, next_groups
from agent.clinic.find_slow.verdict import judge, next_rounds
from agent.decide.location import Place
from agent.launch import unpacked


def wanted(places: tuple[Place, ...], said: dict[str, Any]) -> dict[str, Any]:
    """Rounds of pairs, or groups that gather; nothing: that was all."""
    measured = [PairSpeed(number, (a, b), speed, rail) for number, a, b, speed, rail in said["measured"]]
    if rounds := next_rounds(places, measured):
        return {"rounds": rounds}
    if len(places) == 2 and not any(one.speed or one.round for one in measured):
        return {"rounds": [[(0, 1)]]}  # nobody is blamed for one time-out
    gathered = [Gathered(tuple(nodes), speed) for nodes, speed in said["gathered"]]
    groups = next_groups(places, judge(places, measured), gathered) if said["over"] != "tcp" else []
    return {"groups": groups} if groups else {}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(wanted(unpacked(tuple[Place, ...], sys.argv[1]), json.load(sys.stdin))))
