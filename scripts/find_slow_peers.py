"""Our models of how others find slow nodes, on the simulated clusters of scripts/find_slow_simulation.py:
.venv/bin/python -m scripts.find_slow_peers [SEEDS]

They were written from their sources, and read in their favor where these leave something open:

- DLRover, dlrover/python/master/elastic_training/rdzv_manager.py (NetworkCheckRendezvousManager): neighbors, then the
  fastest with the slowest. A node is faulty that failed twice, and a straggler whose better time is more than twice the
  median. Only the time of the network counts here.
- SuperBench, superbench/common/utils/gen_traffic_pattern_config.py (gen_pair_wise_config): everybody with everybody.
  There is no baseline here, so a node's median pair is compared with that of all nodes, with the 5 % of the paper.
- NCCL, src/diagnostics/ib_write_bw.cc: a ring of nodes in two phases. The mean of a node's two pairs is compared with
  the median of all; 30 % is an outlier. A node of which no pair came to its end counts as found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import combinations
from math import inf
from statistics import mean, median

from agent.clinic.find_slow.matching import Pair
from agent.clinic.find_slow.verdict import judge
from scripts.find_slow_simulation import FIRST_SEED, Network, Simulated, draw, least_share, measured


def ours(cluster: Simulated) -> set[int]:
    return {one.node for one in judge(cluster.places, measured(cluster)).slow}


def dlrover(cluster: Simulated) -> set[int]:
    network, nodes = Network(cluster, 2), [*range(len(cluster.places))]
    times: dict[int, float] = {}
    for number in range(2):
        if number:
            order = sorted(nodes, key=lambda node: times[node])
            groups = [[one, other] for one, other in zip(order, order[::-1], strict=True)][: len(order) // 2]
            left = [order[len(order) // 2]] if len(order) % 2 else []
        else:
            groups = [[*pair] for pair in zip(nodes[::2], nodes[1::2], strict=False)]
            left = nodes[2 * len(groups) :]
        groups[-1] += left
        for group in groups:
            speed = min(network.speed(pair, number) for pair in combinations(sorted(group), 2))
            for node in group:
                times[node] = min(times.get(node, inf), 1 / speed if speed else inf)
    usual = median(times.values())
    return {node for node, time in times.items() if time == inf or time > 2 * usual}


def superbench(cluster: Simulated) -> set[int]:
    nodes = len(cluster.places)
    count = nodes + nodes % 2
    network = Network(cluster, count - 1)
    speeds: dict[int, list[float]] = {node: [] for node in range(nodes)}
    around = [*range(count)]
    for number in range(count - 1):
        for pair in _ends(around, nodes):
            speed = network.speed(pair, number)
            for node in pair:
                speeds[node].append(speed)
        around = [around[0], *around[2:], around[1]]
    return _behind({node: median(found) for node, found in speeds.items()}, 0.05)


def _ends(around: Sequence[int], nodes: int) -> list[Pair]:
    half = len(around) // 2
    pairs = [(min(pair), max(pair)) for pair in zip(around[:half], around[::-1], strict=False)]
    return [pair for pair in pairs if pair[1] < nodes]


def nccl(cluster: Simulated) -> set[int]:
    network, nodes = Network(cluster, 2), len(cluster.places)
    speeds: dict[int, list[float]] = {node: [] for node in range(nodes)}
    for number in range(2):
        for server in range(number, nodes - nodes % 2, 2):
            pair = min(server, (server + 1) % nodes), max(server, (server + 1) % nodes)
            speed = network.speed(pair, number)
            for node in pair if speed else ():
                speeds[node].append(speed)
    silent = {node for node, found in speeds.items() if not found}
    return silent | _behind({node: mean(found) for node, found in speeds.items() if found}, 0.3)


def _behind(levels: dict[int, float], loss: float) -> set[int]:
    usual = median(levels.values())
    return {node for node, level in levels.items() if level < (1 - loss) * usual}


SCHEMES: dict[str, Callable[[Simulated], set[int]]] = {
    "find-slow": ours,
    "DLRover": dlrover,
    "SuperBench": superbench,
    "NCCL": nccl,
}


def main(seeds: int) -> None:
    for nodes, faults in ((8, 1), (16, 3), (33, 6), (64, 0), (64, 1), (64, 12)):
        clusters = [draw(nodes, faults, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
        cells = []
        for scheme in SCHEMES.values():
            named = [scheme(one) for one in clusters]
            found = sum(len(names & one.shares.keys()) for names, one in zip(named, clusters, strict=True))
            blamed = sum(len(names - one.shares.keys()) for names, one in zip(named, clusters, strict=True))
            share = f"{found / faults / seeds:.1%} (≥ {least_share(found, faults * seeds):.1%})" if faults else "-"
            cells.append(f"{share}, {blamed / seeds:.2f}")
        print(f"| {nodes} | {faults} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
