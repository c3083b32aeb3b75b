"""Ends that time alone brings. That takes long, 30 s where load must not reach it: all clusters here wait at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.cluster.conftest import Trial, starting
from tests.cluster.storage import log_name
from tests.cluster.test_forming import STRANGERS, with_a_busy_port
from tests.cluster.work import RING, RING_FILES

pytestmark = pytest.mark.faults


class Silent(NamedTuple):
    """Clusters in which nothing happens any more before their ends."""

    headless: Trial
    """Pod 0 was killed during a run."""
    cut: Trial
    """Pod 1 is behind a dead link, and pod 2 was killed, during a run whose processes fail at once without them."""
    unmet: Trial
    """Pod 2 has no name, pod 4 an address that does not answer, and pod 5 cannot start its sshd."""
    strange: Trial
    """Pod 1 is of another attempt, and pod 3 has another secret."""


@pytest.fixture(scope="module")
def silent(no_pod_around_fixtures: None) -> Iterator[Silent]:
    with starting() as start:
        headless = start(2, script="exec sleep 600")
        for index in range(2):
            headless.until_event(index, "run-started")
        headless.kill_agent(0)
        cut = start(4, script=RING, files=RING_FILES)
        for index in range(4):
            cut.until(index, f"test -e /mnt/turns-{index}")
        cut.cluster.link(1, up=False)
        cut.kill_agent(2)
        env = {"A4_PEER_TIMEOUT_SECONDS": "30", "A4_RESULTS_DIR": "/mnt/results"}
        unmet = start(6, missing=frozenset({2}), dead=frozenset({4}), env=env, **with_a_busy_port(5))
        strange = start(4, **STRANGERS, env=env)
        yield Silent(headless, cut, unmet, strange)


def test_a_killed_coordinator_ends_every_pod(silent: Silent) -> None:
    assert silent.headless.codes() == {0: 137, 1: 75}, silent.headless.log()


def test_a_pod_behind_a_cut_link_and_one_that_is_killed_end_every_pod(silent: Silent) -> None:
    """Both are noticed by their silence, though the others fail at once; the pod behind the link notices that of the
    coordinator."""
    trial = silent.cut
    assert trial.codes() == {0: 75, 1: 75, 2: 137, 3: 75}, trial.log()
    stamp = r"last heard \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    named = r"pod {}, \S+-workload-0-{}-[0-9a-f]{{5}}, node gke-local-gpu-\w+-{}"
    silent_coordinator = rf"the coordinator has been silent for \d+ s, {stamp} \({named.format(0, 0, 0)}\)"
    assert re.fullmatch(silent_coordinator, trial.said(1)["what"]), trial.said(1)
    end = trial.said(3)
    assert end["what"] == "a pod was lost during the run" and end["origin"] == "agent"
    first = end["where"][:5][-1]
    assert re.fullmatch(named.format(first, first, first), end["where"])
    other = named.format(r"(\d)", r"\1", r"\1")
    too = re.search(rf"^{other}, was lost too: silent for \d+ s, {stamp}: ", end["why"], re.MULTILINE)
    assert too and {first, too[1]} == {"1", "2"}, end
    assert re.fullmatch(named.format(3, 3, 3), f"pod 3, {end['pod_name']}, node {end['node']}")
    assert "task-script.sh failed" in end["why"], end


def test_pods_that_do_not_come_are_named_each_with_its_reason(silent: Silent) -> None:
    """Each pod keeps its log."""
    trial = silent.unmet
    codes = trial.codes()
    assert codes == {0: 69, 1: 69, 3: 69, 5: 71}, trial.log()
    for index in (0, 1, 3):
        end = trial.said(index)
        assert end["what"] == "3 of 6 pods did not join within 30 s"
        absent, dead, busy = (re.search(rf"^pod {other}, .*", end["why"], re.MULTILINE) for other in (2, 4, 5))
        assert absent and "DNS does not know its name" in absent[0], end
        assert dead and "DNS ok" in dead[0], end
        assert busy, end
        log = trial.cluster.read(0, f"/mnt/results/pod-logs/{log_name(index)}.log")
        assert f"exit code 69: {end['what']}" in log and "pod 2, " in log
    assert trial.said(5)["what"].startswith("port 2222 on ")
    assert "import socket, time" in trial.said(5)["what"]


def test_strangers_at_the_deadline_are_an_end_of_its_own(silent: Silent) -> None:
    trial = silent.strange
    assert trial.codes() == {0: 77, 1: 69, 2: 77, 3: 69}, trial.log()
    for index in (1, 3):
        assert f"shows a host key that is not pod {index}'s" in trial.said(0)["why"]
