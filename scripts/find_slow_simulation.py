"""How often find-slow is right, on simulated clusters: .venv/bin/python -m scripts.find_slow_simulation [SEEDS]

Each repeat of a pair has 4 % of noise, each pair 1.5 %; 3 % of the pairs are slowed for once, as is one whole round;
pairs that are further apart are slower. A second table has other noise, a third one slow link between good nodes. The
rules were tuned with seeds from 10,000 to 350,000, the tests have those from 0 on, and the tables those from FIRST_SEED
on: tune with none of these. The last table has GPUs, each compared with all others.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import sqrt
from typing import NamedTuple

from agent.clinic.find_slow.fitting import PairSpeed
from agent.clinic.find_slow.matching import Pair, first_rounds, stratum
from agent.clinic.find_slow.stages import MEASURES, low_shares
from agent.clinic.find_slow.verdict import PairVerdict, judge, next_rounds
from agent.decide.location import Place

FIRST_SEED = 7_000_000
REPEATS = 5
SIZES = (5, 8, 9, 10, 16, 33, 64, 127, 256)
MOST_PODS_OF_ALL_SEEDS = 64


class Noise(NamedTuple):
    """What makes pairs of healthy nodes slower or faster."""

    repeat: float = 0.04
    pair: float = 0.015
    transients: float = 0.03
    """The share of pairs that are slowed for once"""
    slow_rounds: int = 1
    tails: bool = False
    """Repeats scatter as Student's t with three degrees of freedom, not as a normal distribution"""
    by_stratum: Sequence[float] = (50.0, 60.0, 80.0, 100.0)


USUAL = Noise()
OTHERS = {
    "as above": USUAL,
    "6 % per repeat": Noise(repeat=0.06),
    "10 % per repeat": Noise(repeat=0.1),
    "heavier tails": Noise(tails=True),
    "6 % of pairs slowed": Noise(transients=0.06),
    "two rounds slowed": Noise(slow_rounds=2),
    "three rounds slowed": Noise(slow_rounds=3),
    "distance does not matter": Noise(by_stratum=(100.0,) * 4),
    "half from one distance to the next": Noise(by_stratum=(12.5, 25.0, 50.0, 100.0)),
}


class Simulated(NamedTuple):
    """A cluster and what is wrong with it."""

    places: Sequence[Place]
    shares: Mapping[int, float]
    """Node → what is left of its speed; 0: it hangs."""
    seed: int
    noise: Noise = USUAL
    links: Mapping[Pair, float] = {}
    """Two nodes → what is left of the speed between them"""

    def compared(self) -> set[int]:
        """Faulty nodes that are as far from a healthy one as two other healthy ones are from each other."""
        healthy = [node for node in range(len(self.places)) if node not in self.shares]
        known = {stratum(self.places, pair) for pair in combinations(healthy, 2)}
        return {node for node in self.shares if any(stratum(self.places, (node, it)) in known for it in healthy)}


def draw(nodes: int, faults: int, seed: int, noise: Noise = USUAL) -> Simulated:
    rng = random.Random(f"{nodes} {faults} {seed}")
    small, wide = rng.choice([(4, 2), (8, 4), (16, 4), (18, 8)])
    tree: list[Place] = [("c", f"b{at // small // wide}", f"s{at // small}", f"h{at}") for at in range(nodes)]
    scattered: list[Place] = [("c", f"b{(at := rng.randrange(nodes)) // 8}", f"s{at}", "h") for _ in range(nodes)]
    places: Sequence[Place] = rng.choice([tree, tree, [()] * nodes, rng.sample(tree, nodes), scattered])
    sick = rng.sample(range(nodes), faults)
    return Simulated(places, {node: rng.choice([0.0, rng.uniform(0.1, 0.75), 0.75]) for node in sick}, seed, noise)


class Network:
    """Measures pairs of a simulated cluster, as often as it is asked."""

    def __init__(self, cluster: Simulated, rounds: int = 6) -> None:
        self._cluster = cluster
        self._rng = random.Random(f"noise {cluster.seed} {len(cluster.places)}")
        slowed = self._rng.sample(range(rounds), min(rounds, cluster.noise.slow_rounds))
        self._slowed = {number: self._rng.uniform(0.7, 0.9) for number in slowed}

    def speed(self, pair: Pair, number: int) -> float:
        noise, rng = self._cluster.noise, self._rng
        usual = noise.by_stratum[stratum(self._cluster.places, pair)] * self._slowed.get(number, 1.0)
        capped = usual * min(self._cluster.shares.get(node, 1.0) for node in pair) * self._cluster.links.get(pair, 1.0)
        repeats = statistics.median(1 + noise.repeat * self._scatter() for _ in range(REPEATS))
        transient = rng.uniform(0.4, 0.8) if rng.random() < noise.transients else 1.0
        return max(0.0, capped * rng.gauss(1, noise.pair) * repeats * transient)

    def _scatter(self) -> float:
        tail = sqrt(self._rng.gammavariate(1.5, 2.0) / 3) if self._cluster.noise.tails else 1.0
        return self._rng.gauss(0, 1) / max(0.1, tail)


def measured(cluster: Simulated) -> list[PairSpeed]:
    """What find-slow would measure: who timed out twice is not asked again in the same rounds."""
    network = Network(cluster)
    found: list[PairSpeed] = []
    while rounds := next_rounds(cluster.places, found):
        before = len({one.round for one in found})
        timeouts: dict[int, int] = {}
        for number, pairs in enumerate(rounds, before):
            for pair in pairs:
                if max(timeouts.get(node, 0) for node in pair) > 1:
                    continue
                speed = network.speed(pair, number)
                if not speed:
                    timeouts.update({node: timeouts.get(node, 0) + 1 for node in pair})
                found.append(PairSpeed(number, pair, speed))
    return found


class Score(NamedTuple):
    """What became of the faults and the healthy nodes of a run."""

    found: int
    sick: int
    compared_found: int
    compared: int
    """sick ones that are not alone"""
    passed: int
    """sick ones that are said to be well"""
    unclear: int
    blamed: int
    """healthy ones"""
    others: int
    """links, borders and fabric, but those that are slow"""


def score(cluster: Simulated, verdict: PairVerdict) -> Score:
    named = {one.node for one in verdict.slow}
    ways, compared = verdict.ways, cluster.compared()
    return Score(
        found=len(named & set(cluster.shares)),
        sick=len(cluster.shares),
        compared_found=len(named & compared),
        compared=len(compared),
        passed=len(verdict.cleared & set(cluster.shares)),
        unclear=len(verdict.unclear),
        blamed=len(named - set(cluster.shares)),
        others=len({*ways.links} - cluster.links.keys()) + len(ways.borders) + ways.fabric,
    )


def trial(nodes: int, faults: int, seed: int, noise: Noise = USUAL) -> Score:
    cluster = draw(nodes, faults, seed, noise)
    return score(cluster, judge(cluster.places, measured(cluster)))


def least_share(found: int, of: int) -> float:
    """The lower end of Wilson's interval of 95 %."""
    if not of:
        return 0.0
    z, share = 1.96, found / of
    return (share + z * z / 2 / of - z * sqrt(share * (1 - share) / of + z * z / 4 / of / of)) / (1 + z * z / of)


def row(nodes: int, faults: int, count: int, noise: Noise = USUAL) -> str:
    """One of Markdown, as docs/find-slow.md has them."""
    scores = [trial(nodes, faults, seed, noise) for seed in range(FIRST_SEED, FIRST_SEED + count)]
    found, sick, compared_found, compared, *rest = map(sum, zip(*scores, strict=True))
    return _cells(nodes, faults, f"{count:,}", *_share(found, sick), *_share(compared_found, compared), *rest)


def link_row(nodes: int, lost: float, count: int) -> str:
    """How often one slow link between good nodes is named, of those that are measured at all."""
    found, scores = 0, []
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        cluster = draw(nodes, 0, seed)
        pair = random.Random(seed).choice([pair for drawn in first_rounds(cluster.places) for pair in drawn])
        cluster = cluster._replace(links={pair: 1 - lost})
        verdict = judge(cluster.places, measured(cluster))
        found += pair in verdict.ways.links
        scores.append(score(cluster, verdict))
    blamed, others = sum(one.blamed for one in scores), sum(one.others for one in scores)
    return _cells(nodes, f"{lost:.0%}", f"{count:,}", *_share(found, count), blamed, others)


def gpu_row(gpus: int, spread: float, count: int) -> str:
    """How often a healthy run names a GPU by either of two measures, and one that has 88 % is named by one."""
    named = found = 0
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        chance = random.Random(seed)
        measures = [{gpu: chance.gauss(1.0, spread) for gpu in range(gpus)} for _ in range(2)]
        named += any(low_shares(speeds, MEASURES[0].floor) for speeds in measures)
        found += 0 in low_shares({**measures[0], 0: 0.88}, MEASURES[0].floor)
    return _cells(gpus, f"{spread:.0%}", f"{count:,}", f"{named:,}", *_share(found, count))


def _share(found: int, of: int) -> tuple[str, str]:
    return (f"{found:,} of {of:,}", f"{least_share(found, of):.2%}") if of else ("-", "-")


def _cells(*values: object) -> str:
    return "| " + " | ".join(f"{one:,}" if isinstance(one, int) else str(one) for one in values) + " |"


def main(seeds: int) -> None:
    for nodes in SIZES:
        for faults in sorted({0, 1, nodes // 5}):
            count = seeds * MOST_PODS_OF_ALL_SEEDS // max(MOST_PODS_OF_ALL_SEEDS, nodes)
            print(row(nodes, faults, count), flush=True)
    for name, noise in OTHERS.items():
        for nodes, faults in ((9, 1), (16, 3), (64, 0), (64, 12)):
            print(f"| {name} {row(nodes, faults, seeds // 4, noise)}", flush=True)
    for nodes in (8, 16, 64, 127):
        for lost in (0.25, 0.5, 0.9):
            print(link_row(nodes, lost, seeds // 2), flush=True)
    for gpus in (8, 16, 64, 512):
        for spread in (0.01, 0.02, 0.03):
            print(gpu_row(gpus, spread, seeds), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
