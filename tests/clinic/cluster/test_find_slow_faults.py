"""`find-slow` on 64 pods whose data NICs are slow, cut off, or slow to some others: who is named, and who is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.clinic.cluster.test_find_slow import NIC, shaped, states
from tests.cluster.conftest import Trial, starting
from tests.cluster.work import agent, following, read_until, result_of

pytestmark = pytest.mark.faults

PODS = 64
RATE, LOW = "10mbit", "4mbit"
"""Two cores can fill 64 such links."""


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with starting() as start:
        yield shaped(start, PODS, RATE)


def find(trial: Trial, *words: str) -> str:
    """What it prints; no pod is bad."""
    done = agent(trial, 0, "run", *words, "find-slow")
    pods = set(range(PODS)) - set(map(int, words[1:]))
    assert states(result_of(trial, done))["ok"] == pods and "--exclude" not in done.stdout, done.stdout
    assert done.returncode == (0 if "find-slow: none of" in done.stdout else 65), done
    return re.sub(r"  \d pairs? of good pods w\w+ slow only once: not counted\n", "", done.stdout)  # on busy cores


def find_bad(trial: Trial, pod: int, how: str) -> None:
    """It names this pod and no other, and the next run without it passes."""
    done = agent(trial, 0, "run", "find-slow")
    told = states(result_of(trial, done))
    assert done.returncode == 65 and told == {"bad": {pod}, "ok": set(range(PODS)) - {pod}}, done.stdout
    assert f"find-slow: pod {pod} of {PODS} {how}\n" in done.stdout
    assert f"a4-agent run --exclude {pod} …\n" in done.stdout, done.stdout
    assert "none of 63 pods is slow" in find(trial, "--exclude", str(pod))


def test_a_link_at_half_rate(trial: Trial) -> None:
    with ExitStack() as end:
        end.callback(trial.cluster.slow_link, 21, RATE, NIC)
        trial.cluster.slow_link(21, "5mbit", NIC)
        find_bad(trial, 21, "is slow")


def test_a_link_that_is_down(trial: Trial) -> None:
    with ExitStack() as end:
        end.callback(trial.cluster.link, 0, up=True, nic=NIC)
        trial.cluster.link(0, up=False, nic=NIC)  # that of the conductor's pod, which goes on by the other NIC
        find_bad(trial, 0, "hangs")


def test_one_way_that_is_slow(trial: Trial) -> None:
    with ExitStack() as end:
        end.callback(trial.cluster.slow_way, 1, (), nic=NIC)
        trial.cluster.slow_way(1, [0], LOW, NIC)
        told = find(trial)
        assert "  the link between pods 0-1 was slow in every round\n\n" in told, told


def test_the_border_of_a_block(trial: Trial) -> None:
    inside = range(16, 32)
    outside = [pod for pod in range(PODS) if pod not in inside]
    with ExitStack() as end:
        for pod in inside:
            end.callback(trial.cluster.slow_way, pod, (), nic=NIC)
            trial.cluster.slow_way(pod, outside, LOW, NIC)
        told = find(trial)
        assert "  all links into /c/b1 are slow; those inside it and elsewhere are not\n\n" in told, told


def test_a_probe_that_is_stopped(trial: Trial) -> None:
    """Three rounds are left."""
    with following(trial, 0, "run", "find-slow") as (run, _):
        read_until(run.stdout, b"round 1: 32 pairs\n")
        trial.cluster.exec(2, ["pkill", "-STOP", "-f", "find-slow.py"])
        printed = run.stdout.read().decode()
        assert run.wait() == 65, printed
    assert "find-slow: pod 2 of 64 hangs\n" in printed and "a4-agent run --exclude 2 …\n" in printed
