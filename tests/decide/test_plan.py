"""The plan: made from facts, written as JSON, sent on the wire."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.facts import Facts
from agent.decide.order import make_plan
from agent.decide.plan import PLAN_VERSION, Plan, PlannedPeer, from_wire, peer_name, pod_text, to_wire

PREFIX, DOMAIN = "job-workload-", "job.default.svc.cluster.local"
text = st.text(max_size=9)
places = st.lists(text, max_size=4).map(tuple)


def facts(index: int, places: dict[str, tuple[str, ...]] | None = None, slots: int = 8) -> Facts:
    return Facts(index, f"nonce-{index}", "1", f"node-{index}", f"10.0.0.{index}", "eth0", slots, places=places or {})


def plan_for(some: list[Facts], topology: bool = True, slots: int = 8) -> Plan:
    return make_plan(some, epoch="e", prefix=PREFIX, domain=DOMAIN, slots=slots, topology=topology)


pod_names = st.sampled_from(["", "pod-7", "LABEL-x7k2p", "LABEL", "LABEL1", "LABEL.x"])
peers = st.lists(
    st.tuples(st.integers(0, 99_999), text, text, places, pod_names), unique_by=lambda peer: peer[0], max_size=8
).map(
    lambda some: tuple(
        PlannedPeer(i, peer_name(PREFIX, i, DOMAIN), a, n, p, k.replace("LABEL", f"{PREFIX}0-{i}"))
        for i, a, n, p, k in some
    )
)
plans = st.builds(
    Plan,
    epoch=text,
    slots=st.integers(1, 1024),
    peers=peers,
    source=text,
    warnings=st.lists(text, max_size=3).map(tuple),
)


@given(plans)
def test_a_plan_survives_json_and_the_wire(plan: Plan) -> None:
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert from_wire(to_wire(plan)) == plan


def some_hex(words: object) -> str:
    return hashlib.md5(str(words).encode(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    ("pod_name", "node", "words"),
    [
        ("job-0-3-x7k2p", "gke-7", "pod 3, job-0-3-x7k2p, node gke-7"),
        ("", "gke-7", "pod 3, job-0-3.job, pod name not known, node gke-7"),
        ("", "", "pod 3, job-0-3.job, pod name and node not known"),
        ("job-0-3-x7k2p", "job-0-3", "pod 3, job-0-3-x7k2p, node not known"),
    ],
)
def test_a_pod_in_words(pod_name: str, node: str, words: str) -> None:
    """The last one's host name is its own: it is not on the host network, and nothing has named the node."""
    assert pod_text(3, "job-0-3.job", pod_name, node) == words


def test_a_thousand_pods_fit_on_the_wire() -> None:
    """Hex that does not compress, as Google's place names are."""
    some = []
    for i in range(1000):
        place = (some_hex("c"), some_hex(("b", i // 64)), some_hex(("s", i // 8)), some_hex(("h", i)))
        node = f"gke-cluster-a4-pool-{some_hex(('n', i))[:8]}-{some_hex(i)[:4]}"
        suffix = some_hex(("p", i))[:5]
        address = f"10.{i % 7}.{i // 256}.{i % 256}"
        found = Facts(i, "n", "1", node, address, "eth0", 8, places={"physical_host_topology": place})
        some.append(found._replace(pod_name=f"{PREFIX}0-{i}-{suffix}"))
    plan = plan_for(some)
    wire = to_wire(plan)
    assert len(wire) < 72 * 1024
    assert wire.isascii()
    assert from_wire(wire) == plan


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


@pytest.mark.parametrize(
    "wire",
    [
        "",
        to_wire(plan_for([facts(0)]))[:-8],
        packed(b"no json"),
        packed(b"[]"),
    ],
)
def test_a_damaged_wire_is_called_so(wire: str) -> None:
    with pytest.raises(ValueError, match=r"^the plan is damaged: "):
        from_wire(wire)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": PLAN_VERSION + 1}, f"plan version {PLAN_VERSION + 1}; this agent reads version {PLAN_VERSION}"),
        ({"peers": {}}, "peers is not a list"),
        ({"peers": [{"index": 0}]}, r"peers\[0\].name is missing"),
    ],
)
def test_a_whole_wire_that_holds_no_plan_says_why(change: dict[str, Any], why: str) -> None:
    data = {"version": PLAN_VERSION, "epoch": "e", "slots": 8, "peers": [], **change}
    with pytest.raises(ValueError, match=f"^{why}"):
        from_wire(packed(json.dumps(data).encode()))


@pytest.mark.parametrize(("topology", "order"), [(True, [0, 2, 1]), (False, [0, 1, 2])])
def test_a_plan_holds_what_the_facts_say_in_order_of_places_or_indices(topology: bool, order: list[int]) -> None:
    where = {0: ("a",), 1: ("b",), 2: ("a",)}
    plan = plan_for([facts(index, {"A4_LOCATION": place}) for index, place in where.items()], topology)
    peers = tuple(
        PlannedPeer(i, f"job-workload-0-{i}.job.default.svc.cluster.local", f"10.0.0.{i}", f"node-{i}", where[i])
        for i in order
    )
    assert plan == Plan("e", 8, peers, "A4_LOCATION")
    assert plan.ranks == 24
    assert [plan.node_rank(index) for index in order] == [0, 1, 2]
    assert [entry["rank"] for entry in plan.to_json()["peers"]] == [0, 1, 2]
