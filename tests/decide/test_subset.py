"""Which pods a run takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.plan import Plan, PlannedPeer
from agent.decide.subset import ranges, subset
from agent.errors import Exit, PeerLost, UsageError


def peer(index: int, node: str = "") -> PlannedPeer:
    name = f"job-workload-0-{index}.job.default.svc.cluster.local"
    return PlannedPeer(index, name, f"10.0.0.{index}", node or f"node-{index % 3}")


# The order of the plan is not that of the indices; pods 0 and 3, 1 and 4 share nodes.
PLAN = Plan("epoch", 8, tuple(map(peer, (0, 3, 1, 2, 4))), "A4_LOCATION", ("a warning",))


def chosen(*, nodes: int = 0, hosts: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> list[int]:
    return [one.index for one in subset(PLAN, nodes, hosts, exclude, lost={}).peers]


@pytest.mark.parametrize(
    ("hosts", "indices"),
    [
        ((), [0, 3, 1, 2, 4]),
        (("0-3",), [0, 3, 1, 2]),
        (("1-2, 4", "1"), [1, 2, 4]),
        (("job-workload-0-2",), [2]),
        (("job-workload-0-2.job.default.svc.cluster.local.",), [2]),
        (("node-0",), [0, 3]),
        (("node-1,2",), [1, 2, 4]),
    ],
)
def test_pods_by_their_names_in_the_order_of_the_plan(hosts: tuple[str, ...], indices: list[int]) -> None:
    assert chosen(hosts=hosts) == indices


@pytest.mark.parametrize(
    ("exclude", "indices"), [(("3",), [0, 1, 2, 4]), (("0-1", "node-2"), [3, 4]), (("node-0",), [1, 2, 4])]
)
def test_pods_left_out(exclude: tuple[str, ...], indices: list[int]) -> None:
    assert chosen(exclude=exclude) == indices


def test_all_else_of_the_plan_stays() -> None:
    part = subset(PLAN, hosts=["1"], lost={})
    assert (part.epoch, part.slots, part.source, part.warnings) == ("epoch", 8, "A4_LOCATION", ("a warning",))
    assert part.ranks == 8


@pytest.mark.parametrize(
    ("hosts", "exclude", "nodes", "what"),
    [
        (("7",), (), 0, "--hosts '7' matches no pod: the plan has pods 0-4"),
        (("3-7",), (), 0, "--hosts '3-7' matches no pod"),
        (("3-1",), (), 0, "--hosts '3-1' matches no pod"),
        (("1,,2",), (), 0, "--hosts '' matches no pod"),
        (("job-workload-0",), (), 0, "matches no pod"),
        (("1", "node-9"), (), 0, "--hosts 'node-9' matches no pod"),
        ((), ("-1",), 0, "--exclude '-1' matches no pod"),
        (("1",), ("0-4",), 0, "no pod is left: the plan has pods 0-4"),
        (("99999999999",), (), 0, "matches no pod"),
        ((), (), 6, "--nodes 6: only 5 pods to choose from: pods 0-4"),
        ((), ("0-1",), 4, "--nodes 4: only 3 pods to choose from by --hosts and --exclude: pods 2-4"),
        (("2",), (), 2, "--nodes 2: only 1 pod to choose from by --hosts and --exclude: pod 2"),
    ],
)
def test_what_makes_no_sense_is_refused(
    hosts: tuple[str, ...], exclude: tuple[str, ...], nodes: int, what: str
) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(nodes=nodes, hosts=hosts, exclude=exclude)
    assert what in caught.value.what
    assert "a4-agent peers" in caught.value.hint


def test_lost_pods_of_the_choice_are_named() -> None:
    lost = {3: "not heard for 30 s", 1: "its agent ended"}
    with pytest.raises(PeerLost) as caught:
        subset(PLAN, exclude=["2"], lost=lost)
    assert caught.value.code == Exit.TRY_AGAIN
    one, three = (next(peer.where for peer in PLAN.peers if peer.index == index) for index in (1, 3))
    why = f"{one}: its agent ended; {three}: not heard for 30 s"
    assert caught.value.what == f"pods 1,3 are needed but lost ({why})"
    assert caught.value.hint.endswith("--exclude 1-3"), "with what was left out already"
    with pytest.raises(PeerLost, match="pod 3 is needed but lost"):
        subset(PLAN, nodes=2, lost=lost)
    assert [one.index for one in subset(PLAN, exclude=["1-3"], lost=lost).peers] == [0, 4]
    assert [one.index for one in subset(PLAN, nodes=1, lost=lost).peers] == [0], "a lost pod that is not needed"


@pytest.mark.parametrize(
    ("indices", "text"),
    [([], ""), ([3], "3"), ([0, 1], "0-1"), ([0, 1, 2, 5], "0-2,5"), ([9, 7, 8, 8, 11], "7-9,11")],
)
def test_ranges(indices: list[int], text: str) -> None:
    assert ranges(indices) == text


WIDE = Plan("epoch", 1, tuple(map(peer, range(64))))


@given(st.sets(st.integers(0, 63), min_size=1))
def test_ranges_name_the_same_pods(indices: set[int]) -> None:
    assert {one.index for one in subset(WIDE, hosts=[ranges(indices)], lost={}).peers} == indices


@given(st.sets(st.integers(0, 63), min_size=1), st.sets(st.integers(0, 63)), st.integers(0, 64))
def test_the_choice_is_a_part_of_the_plan_in_its_order(hosts: set[int], exclude: set[int], nodes: int) -> None:
    left = sorted(hosts - exclude)
    try:
        part = subset(WIDE, nodes, [str(i) for i in hosts], [str(i) for i in exclude], lost={})
    except UsageError:
        assert not left or nodes > len(left)
    else:
        assert [one.index for one in part.peers] == left[: nodes or len(left)]
