"""find-slow: who is paired with whom, and what the speeds say."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from agent.clinic.find_slow.fitting import PairSpeed
from agent.clinic.find_slow.matching import Pair, confirming_rounds, first_rounds, least_pairs, stratum
from agent.clinic.find_slow.stages import read_stages
from agent.clinic.find_slow.telling import ToldVerdict, pairs_json, tell
from agent.clinic.find_slow.verdict import PairVerdict, judge, next_rounds
from agent.decide.location import Place
from agent.decide.plan import Plan, PlannedPeer
from agent.decide.result_reader import read_result
from agent.launch import unpacked
from agent.workloads import shown
from agent.workloads.base import Outcome
from scripts.find_slow_simulation import Noise, Simulated, least_share, measured, trial
from tests.report.examples import pod, result
from tests.test_workloads import context, judged, launched, options


def tree(nodes: int, small: int, wide: int) -> list[Place]:
    return [("c", f"b{at // small // wide}", f"s{at // small}", f"h{at}") for at in range(nodes)]


@st.composite
def clusters(draw_: st.DrawFn) -> list[Place]:
    nodes = draw_(st.one_of(st.integers(2, 200), st.integers(200, 1024)))
    seed, kind = draw_(st.integers(0, 1 << 30)), draw_(st.integers(0, 2))
    rng = random.Random(seed)
    some = [
        ("c", f"b{(at := rng.randrange(nodes)) // 8}", f"s{at // 3}", "h")[: rng.choice([0, 4, 4])]
        for _ in range(nodes)
    ]
    kinds: list[list[Place]] = [[()] * nodes, tree(nodes, 1 + seed % 20, 1 + seed % 5), some]
    return kinds[kind]


def disjoint(pairs: Sequence[Pair]) -> bool:
    return len({node for pair in pairs for node in pair}) == 2 * len(pairs)


@given(clusters())
def test_rounds_are_disjoint_new_and_enough(places: list[Place]) -> None:
    rounds = first_rounds(places)
    pairs = [pair for one in rounds for pair in one]
    assert len(rounds) <= 4 and all(disjoint(one) for one in rounds)
    assert len(set(pairs)) == len(pairs)
    assert least_pairs(rounds, len(places)) >= min(3, len(places) - 1)
    if len(places) <= 4:
        assert len(pairs) == len(places) * (len(places) - 1) // 2


@given(clusters(), st.data())
def test_suspects_meet_good_nodes(places: list[Place], data: st.DataObject) -> None:
    nodes = range(len(places))
    suspects = data.draw(st.lists(st.sampled_from(nodes), unique=True, max_size=len(places) // 5))
    good = [node for node in nodes if node not in suspects]
    first = first_rounds(places)
    rounds = confirming_rounds(places, first, suspects, set(good), [first[0][0]])
    assert len(first) + len(rounds) <= 6 and all(disjoint(one) for one in rounds)
    for suspect in suspects:
        partners = [sum(pair) - suspect for one in rounds for pair in one if suspect in pair]
        assert len(partners) == 2 and set(partners) <= set(good)
        assert len(places) < 8 or len(set(partners)) == 2


def test_neighbours_first_and_borders_last() -> None:
    places = tree(64, 8, 4)
    counts = [[stratum(places, pair) for pair in one].count(3) for one in first_rounds(places)]
    assert counts == [32, 32, 32, 0]


SPEEDS = {3: 100.0, 2: 80.0, 1: 60.0, 0: 50.0}


def play(
    places: Sequence[Place], *rails: Mapping[int, float], slow: Sequence[Pair] = (), hangs: int = -1, since: int = 0
) -> list[PairSpeed]:
    """What would be measured without any noise: of each rail, which nodes have which share of its speed. The node
    `hangs` does so from the round `since`."""
    found: list[PairSpeed] = []
    while rounds := next_rounds(places, found):
        for number, pairs in enumerate(rounds, len({one.round for one in found})):
            for pair in pairs:
                speed = (
                    SPEEDS[stratum(places, pair)] * (0.5 if pair in slow else 1) * (hangs not in pair or number < since)
                )
                for rail, sick in enumerate(rails or ({},)):
                    share = min(sick.get(node, 1.0) for node in pair)
                    found.append(PairSpeed(number, pair, speed * share, rail))
    return found


PLACES = tree(16, 4, 2)
CROSSING = [(a, b) for a in range(4) for b in range(4, 16)]


@pytest.mark.parametrize(
    ("sick", "slow", "named", "ways"),
    [
        ({}, [], {}, []),
        ({5: 0.75}, [], {5: 0.75}, []),
        ({5: 0.0}, [], {5: 0.0}, []),
        ({0: 0.5, 1: 0.0, 9: 0.7}, [], {0: 0.5, 1: 0.0, 9: 0.7}, []),
        ({}, [(0, 1)], {}, [(0, 1)]),
        ({}, CROSSING, {}, [("c", "b0", "s0")]),
        ({5: 0.9}, [], {}, []),
    ],
)
def test_verdicts(sick: dict[int, float], slow: list[Pair], named: dict[int, float], ways: list[object]) -> None:
    found = judge(PLACES, play(PLACES, sick, slow=slow))
    assert {one.node: round(one.share, 2) for one in found.slow} == named
    assert [*found.ways.links, *found.ways.borders] == ways and not found.ways.fabric
    assert not found.unclear


def test_simulated_clusters() -> None:
    """No healthy node is blamed; noise, transients, a slow round, places and faults are drawn."""
    rng = random.Random(1)
    drawn = [(nodes := rng.choice([8, 13, 16, 31, 64]), rng.randint(0, nodes // 5), seed) for seed in range(50)]
    scores = [trial(*one) for one in drawn]
    assert sum(one.blamed for one in scores) == 0
    assert sum(one.found for one in scores) >= 0.99 * sum(one.sick for one in scores)


@pytest.mark.faults
@pytest.mark.parametrize(("nodes", "faults"), [(5, 1), (8, 1), (16, 3), (33, 6), (64, 12), (129, 25)])
def test_the_rate_of_what_is_found(nodes: int, faults: int) -> None:
    scores = [trial(nodes, faults, seed) for seed in range(200)]
    assert sum(one.blamed for one in scores) == 0
    found, sick = sum(one.found for one in scores), sum(one.sick for one in scores)
    assert nodes < 8 or least_share(found, sick) > 0.96


def test_who_has_only_met_slow_nodes_is_not_blamed() -> None:
    """Nobody has cleared its partners, nor it."""
    pairs = [(0, 1), (0, 2), (0, 3), (0, 4)]
    found = [one for one in play([()] * 16, dict.fromkeys(range(1, 5), 0.5)) if 0 not in one.pair]
    verdict = judge([()] * 16, [*found, *(PairSpeed(number, pair, 25.0) for number, pair in enumerate(pairs))])
    assert [one.node for one in verdict.slow] == [1, 2, 3, 4] and verdict.unclear == [0]


def test_two_low_pairs_are_too_few() -> None:
    found = [one for one in play(PLACES, {5: 0.5}) if 5 not in one.pair or one.round < 2]
    verdict = judge(PLACES, found)
    assert (list(verdict.slow), list(verdict.unclear)) == ([], [5])


def test_who_has_no_partner_in_one_round_has_in_the_next() -> None:
    """The odd one of 65 is alone in its place, and the others stay among themselves all the same."""
    rounds = first_rounds(tree(65, 8, 4))
    assert [len(one) for one in rounds] == [32] * 4 and least_pairs(rounds, 65) == 3
    assert all([stratum(tree(65, 8, 4), pair) for pair in one].count(3) >= 28 for one in rounds[:3])


@pytest.mark.parametrize("since", [0, 1, 2, 3])
@pytest.mark.parametrize("places", [PLACES, tree(9, 4, 2), tree(6, 2, 2), [()] * 5])
def test_a_node_that_begins_to_hang(places: list[Place], since: int) -> None:
    """What it did before does not clear it, and the pair that waited for it is not blamed."""
    verdict = judge(places, play(places, hangs=2, since=since))
    assert [(one.node, one.share) for one in verdict.slow] == [(2, 0.0)] and not verdict.ways.links


def test_two_pods_of_four_that_timed_out_once_beside_a_slow_one() -> None:
    """A child on one of them was stopped; what both measured later clears them."""
    places = tree(4, 1, 2)
    found = [one._replace(speed=0.0) if one[:2] == (0, (1, 2)) else one for one in play(places, {3: 0.5})]
    verdict = judge(places, found)
    assert [one.node for one in verdict.slow] == [3] and verdict.cleared == {0, 1, 2}
    assert (verdict.ways.links, verdict.ways.once) == ([], 1)


def test_one_slow_pod_of_four() -> None:
    """As four pods with an H100 each measured it; there are no more than three partners."""
    speeds = {(0, 3): 46.3, (1, 2): 21.9, (1, 3): 44.4, (0, 2): 21.5, (2, 3): 23.3, (0, 1): 39.9}
    measured = [PairSpeed(at // 2, pair, speed) for at, (pair, speed) in enumerate(speeds.items())]
    measured += [PairSpeed(3, (0, 2), 21.6), PairSpeed(3, (1, 3), 43.8)]
    measured += [PairSpeed(4, (0, 2), 20.8), PairSpeed(4, (1, 3), 41.5)]
    verdict = judge([("c", "b", "s", "h")] * 4, measured)
    assert [one.node for one in verdict.slow] == [2] and verdict.cleared == {0, 1, 3}


def on_rails(slow: dict[int, dict[int, float]]) -> list[PairSpeed]:
    """What is measured on four rails, some of which are slow: rail → node → share of its speed."""
    return play(PLACES, *(slow.get(rail, {}) for rail in range(4)))


EVERYWHERE = dict.fromkeys(range(16), 0.5)


@pytest.mark.parametrize(
    ("slow", "named", "slow_rails"),
    [
        ({}, [], ()),
        ({3: {5: 0.5}}, [(5, (3,), 0.5)], ()),
        ({1: {5: 0.5}, 3: {5: 0.6}}, [(5, (1, 3), 0.55)], ()),
        ({rail: {5: 0.5} for rail in range(4)}, [(5, (), 0.5)], ()),
        ({2: {5: 0.0}}, [(5, (2,), 0.0)], ()),
        ({2: EVERYWHERE}, [], (2,)),
    ],
)
def test_rails(
    slow: dict[int, dict[int, float]], named: list[tuple[int, tuple[int, ...], float]], slow_rails: tuple[int, ...]
) -> None:
    """All rails low is the node, some are what is at its end of them, and one that is low everywhere is the network."""
    verdict = judge(PLACES, on_rails(slow))
    assert [(one.node, one.rails, round(one.share, 2)) for one in verdict.slow] == named
    assert verdict.ways.slow_rails == slow_rails and not verdict.ways.links and not verdict.unclear


def peers_of(nodes: int) -> list[PlannedPeer]:
    return [PlannedPeer(at, f"job-0-{at}.job", f"10.0.0.{at}", f"gke-{at}") for at in range(nodes)]


def test_what_is_slow_on_a_rail() -> None:
    """A GPU that is slow alone is to blame for its rail; one that is well, its NIC."""
    measured = on_rails({3: {5: 0.5}})
    for gpus, part in (({}, "GPU or NIC 3"), ({(5, 3): True}, "GPU 3"), ({(5, 3): False}, "NIC 3")):
        said = tell(peers_of(16), measured, judge(PLACES, measured), "nccl", gpus, {})
        assert said.what == f"{part} of pod 5 of 16 is slow" and f" {part} slow" in said.table
        (bad,) = [one for one in said.found if one.state == "bad"]
        assert (bad.check, bad.pod, bad.device) == ("NCCL to other pods", 5, part)
    gpus = {(5, rail): False for rail in range(4)}
    everywhere = on_rails({rail: {5: 0.5} for rail in range(4)})
    said = tell(peers_of(16), everywhere, judge(PLACES, everywhere), "nccl", gpus, {})
    assert said.what == "network of pod 5 of 16 is slow"


def alone(share: float) -> PairVerdict:
    """Eight pods in a block, and one in another."""
    return judge(tree(9, 8, 1), play(tree(9, 8, 1), {8: share}))


def test_a_pod_alone_in_its_place() -> None:
    """All its ways are longer than any other: it is slow only if it is slower than distance makes it."""
    assert alone(1.0).unclear == [8] and alone(0.75).unclear == [8]
    assert alone(0.55).unclear == [8], "a network may have half as much from one distance to the next"
    (slow,) = alone(0.2).slow
    assert slow.node == 8 and slow.alone and alone(0.0).slow[0].share == 0.0


def test_a_pod_alone_is_like_a_long_way() -> None:
    """Whether it has lost a quarter, or the way there has, the same is measured: any rule that named it in the one case
    would blame it in the other."""
    places = tree(9, 8, 1)
    slow, far = Simulated(places, {8: 0.75}, 1), Simulated(places, {}, 1, Noise(by_stratum=(50.0, 45.0, 80.0, 100.0)))
    speeds = [{(one.round, one.pair): one.speed for one in measured(cluster)} for cluster in (slow, far)]
    assert speeds[0] == pytest.approx(speeds[1]) and not slow.compared()


@pytest.mark.parametrize(("nodes", "small"), [(10, 4), (11, 8), (11, 3)])
def test_any_two_slow_pods(nodes: int, small: int) -> None:
    """In the last two rounds each has good partners at a distance at which others can be compared."""
    places = tree(nodes, small, 2)
    for sick in combinations(range(nodes), 2):
        shares = dict.fromkeys(sick, 0.75)
        if Simulated(places, shares, 0).compared() == {*sick}:
            verdict = judge(places, play(places, shares))
            assert [one.node for one in verdict.slow] == [*sick] and not verdict.ways.links


def test_a_pair_that_is_slow_by_chance() -> None:
    """Low each time, but never by as much."""
    found = play(PLACES, slow=[(0, 1)])
    shares = iter((0.5, 0.65, 0.8))
    uneven = [one._replace(speed=100 * next(shares)) if one.pair == (0, 1) else one for one in found]
    assert judge(PLACES, found).ways.links == [(0, 1)]
    ways = judge(PLACES, uneven).ways
    assert not ways.links and ways.once == 1


def test_who_hangs_is_left_out_after_two_rounds() -> None:
    """And a slow pod that met two of them first is judged by others."""
    places: list[Place] = [()] * 16
    assert all(7 not in one.pair for one in play(places, {7: 0.0}) if one.round > 1)
    sick = {sum(pair) - 1: 0.0 for drawn in first_rounds(places)[:2] for pair in drawn if 1 in pair} | {1: 0.5}
    assert {one.node: round(one.share, 2) for one in judge(places, play(places, sick)).slow} == sick


def told(nodes: int, sick: dict[int, float]) -> ToldVerdict:
    found = play([()] * nodes, sick)
    return tell(peers_of(nodes), found, judge([()] * nodes, found), "tcp", {}, {})


def test_what_is_said_of_a_slow_and_a_hanging_node() -> None:
    said = told(16, {3: 0.5, 7: 0.0})
    assert said.reasons and said.what == "pods 3,7 of 16 are slow or hang"
    assert "a4-agent run --exclude 3,7 " in said.text and "avoidNodes={gke-3,gke-7}" in said.text
    assert said.files["failing_nodes.txt"] == "gke-3\ngke-7\n"
    assert said.files["passing_nodes.txt"].count("\n") == 14
    assert [one.pod for one in said.found if one.state == "bad"] == [3, 7]
    assert {type(row[3]) for row in said.tables[0].rows} == {float}  # MB/s
    assert max(map(len, said.table.splitlines())) <= 80 and said.table.count("\n") <= 14


def test_pages_show_what_is_stored() -> None:
    found, peers = play([()] * 8, {3: 0.5}), peers_of(8)
    tables = wire.to_json(told(8, {3: 0.5}).tables)
    pods = [pod(at, node=f"gke-{at}") for at in range(8)]
    data = result("find-slow", pods, tables=tables, record={"pairs": pairs_json(peers, found)})
    page = shown(read_result(data))
    assert page.nodes and [node for node, share in page.nodes.shares.items() if share < page.nodes.low] == ["gke-3"]
    assert [one.name for one in page.maps] == ["speed between pods"] and len(page.maps[0].pairs) >= 8 * 3 / 2


def test_the_docs_show_the_columns_that_are_printed() -> None:
    page = (Path(__file__).parents[2] / "docs/find-slow.md").read_text()
    shown = [line.split() for line in re.findall(r"(?m)^    (pod  .*)$", page)]
    assert shown == [told(8, {3: 0.5}).table.splitlines()[0].split()], "docs/find-slow.md has another table"


def test_too_many_are_not_excluded() -> None:
    said = told(16, dict.fromkeys(range(4), 0.5))
    assert said.reasons and "--exclude" not in said.text and "look at the cluster" in said.text


def test_two_pods() -> None:
    healthy, dead = told(2, {}), told(2, {1: 0.0})
    assert not healthy.reasons and "two pods cannot be compared" in healthy.text
    assert dead.reasons and "one of the two hangs" in dead.text and "--exclude" not in dead.text


def test_the_record_says_which_rail() -> None:
    line = json.dumps({"step": "round", "number": 0, "pairs": [[0, 1, 12.5, 0], [0, 1, 6, 3]]})
    assert read_stages(line).measured == [PairSpeed(0, (0, 1), 12.5), PairSpeed(0, (0, 1), 6.0, 3)]


@pytest.mark.parametrize("end", ['{"step": "rou', '{"step": "round", "number": 1}', "\N{SNOWMAN}", "[]"])
def test_a_record_that_is_cut(end: str) -> None:
    line = json.dumps({"step": "round", "number": 0, "pairs": [[0, 1, 12.5]]})
    found = read_stages(f"{line}\n{end}")
    assert (found.measured, found.rounds, found.ended) == ([PairSpeed(0, (0, 1), 12.5)], 1, False)


def test_only_the_first_pod_decides_whom_to_pair() -> None:
    """With a thousand places, whose hosts are hashes, its command still fits into an argument."""
    rng = random.Random(1)
    hosts = [rng.randbytes(16).hex() for _ in range(1024)]
    peers = tuple(
        PlannedPeer(
            at, f"job-0-{at}.job", "10.0.0.1", f"gke-{at}", (hosts[0], hosts[at // 64], hosts[at // 8], hosts[at])
        )
        for at in range(1024)
    )
    lead = launched(context("find-slow", "--seconds", "0.5", index=0, plan=Plan("epoch", 8, peers)))
    other = launched(context("find-slow", index=1023, plan=Plan("epoch", 8, peers)))
    (decides,) = options(lead, "--next")
    assert lead.port == 6002 and not other.port and not options(other, "--next") and len(decides) < 1 << 17
    assert options(lead, "--seconds") == ["0.5"] and options(other, "--rank") == ["1023"]
    word = json.loads(decides)[-1]
    assert first_rounds(unpacked(tuple[Place, ...], word)) == first_rounds([peer.place for peer in peers])


@pytest.mark.parametrize(("name", "interface"), [("", "eth0"), ("=eth1,eth2", "eth1"), ("^lo", "eth0")])
def test_the_interface_is_that_of_nccl(name: str, interface: str) -> None:
    made = launched(context("find-slow", environ={"NCCL_SOCKET_IFNAME": name}))
    assert options(made, "--interface") == [interface]


def test_a_run_that_was_broken_off_says_nothing_of_pods() -> None:
    line = json.dumps({"step": "round", "number": 0, "pairs": [[0, 1, 12.5]]})
    lost = judged(context("find-slow"), Outcome(0, f"{line}\n", lost={1: "silent for 30 s"}))
    assert lost.end.code == 75 and not lost.measurements.found and "12.5" in lost.text and not lost.files
    end = {"step": "end", "time": 1.0, "silent": []}
    whole = "".join(f"{json.dumps(one)}\n" for one in ({"step": "round", "number": 0, "pairs": [[0, 1, 12.5]]}, end))
    for code in (0, 75):
        late = judged(context("find-slow"), Outcome(code, whole, statuses={0: code}, lost={1: "silent for 30 s"}))
        assert late.end.code == 75 and "12.5" in late.text and not late.files, "it was lost after all was measured"
    killed = judged(context("find-slow"), Outcome(-9, statuses={2: -9}, first=2))
    assert killed.end.code == 137 and "pod 2" in killed.end.where
