"""How often find-slow is right, on simulated clusters: .venv/bin/python -m scripts.find_slow_simulation [SEEDS]

Each repeat of a pair has 4 % of noise, each pair 1.5 %; 3 % of the pairs are slowed for once, as is one whole round;
pairs that are further apart are slower.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from agent.decide.location import Place
from agent.workloads.find_slow.fitting import PairSpeed
from agent.workloads.find_slow.matching import stratum
from agent.workloads.find_slow.verdict import PairVerdict, judge, next_rounds

REPEATS = 5
REPEAT_NOISE = 0.04
PAIR_NOISE = 0.015
TRANSIENTS = 0.03
BY_STRATUM = (50.0, 60.0, 80.0, 100.0)
SIZES = (5, 8, 9, 16, 33, 64, 127, 256, 1024)


class Simulated(NamedTuple):
    """A cluster and what is wrong with it."""

    places: Sequence[Place]
    shares: Mapping[int, float]
    """Node → what is left of its speed; 0: it hangs."""
    seed: int


def draw(nodes: int, faults: int, seed: int) -> Simulated:
    rng = random.Random(f"{nodes} {faults} {seed}")
    small, wide = rng.choice([(4, 2), (8, 4), (16, 4), (18, 8)])
    tree: list[Place] = [("c", f"b{at // small // wide}", f"s{at // small}", f"h{at}") for at in range(nodes)]
    scattered: list[Place] = [("c", f"b{(at := rng.randrange(nodes)) // 8}", f"s{at}", "h") for _ in range(nodes)]
    places: Sequence[Place] = rng.choice([tree, tree, [()] * nodes, rng.sample(tree, nodes), scattered])
    sick = rng.sample(range(nodes), faults)
    return Simulated(places, {node: rng.choice([0.0, rng.uniform(0.1, 0.75), 0.75]) for node in sick}, seed)


def measured(cluster: Simulated) -> list[PairSpeed]:
    """What find-slow would measure: who timed out twice is not asked again in the same rounds."""
    rng = random.Random(f"noise {cluster.seed} {len(cluster.places)}")
    found: list[PairSpeed] = []
    slow_round, slowed = rng.randrange(6), rng.uniform(0.7, 0.9)
    while rounds := next_rounds(cluster.places, found):
        before = len({one.round for one in found})
        timeouts: dict[int, int] = {}
        for number, pairs in enumerate(rounds, before):
            for pair in pairs:
                if max(timeouts.get(node, 0) for node in pair) > 1:
                    continue
                speed = _speed(cluster, pair, rng) * (slowed if number == slow_round else 1)
                if not speed:
                    timeouts.update({node: timeouts.get(node, 0) + 1 for node in pair})
                found.append(PairSpeed(number, pair, speed))
    return found


def _speed(cluster: Simulated, pair: tuple[int, int], rng: random.Random) -> float:
    usual = BY_STRATUM[stratum(cluster.places, pair)]
    capped = usual * min(cluster.shares.get(node, 1.0) for node in pair)
    repeats = statistics.median(rng.gauss(1, REPEAT_NOISE) for _ in range(REPEATS))
    transient = rng.uniform(0.4, 0.8) if rng.random() < TRANSIENTS else 1.0
    return capped * rng.gauss(1, PAIR_NOISE) * repeats * transient


class Score(NamedTuple):
    """What became of the faults and the healthy nodes of a run."""

    found: int
    sick: int
    unclear: int
    blamed: int
    """healthy ones"""
    others: int
    """links, borders and fabric: there are none"""


def score(cluster: Simulated, verdict: PairVerdict) -> Score:
    named = {one.node for one in verdict.slow}
    ways = verdict.ways
    return Score(
        found=len(named & set(cluster.shares)),
        sick=len(cluster.shares),
        unclear=len(verdict.unclear),
        blamed=len(named - set(cluster.shares)),
        others=len(ways.links) + len(ways.borders) + ways.fabric,
    )


def trial(nodes: int, faults: int, seed: int) -> Score:
    cluster = draw(nodes, faults, seed)
    return score(cluster, judge(cluster.places, measured(cluster)))


def least_share(found: int, of: int) -> float:
    """The lower end of Wilson's interval of 95 %."""
    if not of:
        return 0.0
    z, share = 1.96, found / of
    return (share + z * z / 2 / of - z * sqrt(share * (1 - share) / of + z * z / 4 / of / of)) / (1 + z * z / of)


def main(seeds: int) -> None:
    row = "{:>5} {:>6} {:>5} {:>13} {:>8} {:>7} {:>6} {:>4}"
    print(row.format("nodes", "faults", "seeds", "found", "at least", "unclear", "blamed", "ways"))
    for nodes in SIZES:
        for faults in sorted({0, 1, nodes // 5}):
            count = seeds * 64 // max(64, nodes)
            scores = [trial(nodes, faults, seed) for seed in range(count)]
            found, sick, unclear, blamed, others = map(sum, zip(*scores, strict=True))
            least = f"{least_share(found, sick):.2%}" if sick else "-"
            print(row.format(nodes, faults, count, f"{found}/{sick}", least, unclear, blamed, others), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
