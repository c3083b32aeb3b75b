"""Says whom to pair next: python -Es -m agent.workloads.find_slow PLACES, for entrypoints/find-slow.py."""

from __future__ import annotations

import json
import sys

from agent.decide.location import Place
from agent.launch import unpacked
from agent.workloads.find_slow.record import pair_speed
from agent.workloads.find_slow.verdict import next_rounds

if __name__ == "__main__":
    measured = [pair_speed(*row) for row in json.load(sys.stdin)["measured"]]
    sys.stdout.write(json.dumps(next_rounds(unpacked(tuple[Place, ...], sys.argv[1]), measured)))
