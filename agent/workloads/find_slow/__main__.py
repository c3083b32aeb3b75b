"""Says whom to pair next: python -Es -m agent.workloads.find_slow PLACES, for entrypoints/find-slow.py."""

from __future__ import annotations

import json
import sys

from agent.decide.location import Place
from agent.launch import unpacked
from agent.workloads.find_slow.fitting import PairSpeed
from agent.workloads.find_slow.verdict import next_rounds

if __name__ == "__main__":
    rows = json.load(sys.stdin)["measured"]
    measured = [PairSpeed(number, (one, other), speed) for number, one, other, speed in rows]
    sys.stdout.write(json.dumps(next_rounds(unpacked(tuple[Place, ...], sys.argv[1]), measured)))
