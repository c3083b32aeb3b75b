"""Hostfiles and the order files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.decide.plan import Plan, PlannedPeer, hostfile, rank_order
from tests.hostfiles import parse_hostfile

NAMES = st.lists(st.text("az09.-", min_size=1))
PLAN = Plan(
    "e",
    8,
    (PlannedPeer(0, "pod-0.x", "10.0.0.1", "n", ("c", "b")), PlannedPeer(2, "pod-2.x", "10.0.0.3", "n")),
)


def test_the_text() -> None:
    assert hostfile(["b.x", "a.x"], 8) == "b.x slots=8\na.x slots=8\n"
    assert hostfile([], 8) == ""


@given(NAMES, st.integers(1, 1024))
def test_a_hostfile_is_read_back(names: list[str], slots: int) -> None:
    assert parse_hostfile(hostfile(names, slots)) == [(name, slots) for name in names]


def test_the_order_files() -> None:
    assert rank_order(PLAN) == "/c/b pod-0.x\n- pod-2.x\n"
