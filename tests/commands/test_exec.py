"""`a4-agent exec`: many pods, one screen."""

from __future__ import annotations

import json
import signal
import tracemalloc
from collections.abc import Iterator

import pytest

from agent.client import RunEnd, RunInfo
from agent.commands.exec import MOST_KEPT, MOST_KEPT_OF_ALL, FoldedOutput
from agent.decide.ending import JobEnd
from agent.lifecycle.waits import REPORT_SECONDS
from agent.testing import FakeCluster
from tests.commands.conftest import Call, Shown, Type
from tests.commands.server import FakeAgent


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(pods=4) as cluster:
        yield cluster


def test_equal_output_is_shown_once(cluster: FakeCluster, call_command: Call) -> None:
    """How it is shown: tests/decide/test_folding.py."""
    same = dict.fromkeys((0, 2, 3), "a\nb\n")
    cluster.will_end(output={**same, 1: "c\n"}, errors={1: "oh\n", 3: "oh\n"})
    out = "== pods 0,2-3 ==\na\nb\n== pod 1 ==\nc\n"
    assert call_command("exec", "--", "x", env=here(cluster)) == (0, out, "1,3: oh\n")


def test_output_that_cannot_be_shown_is_in_the_logs(cluster: FakeCluster, type_command: Type) -> None:
    """It is shown when the run is over."""
    cluster.will_end(output="x\n")
    with open("/dev/full", "wb") as full:
        code, _, err = type_command("exec", "x", env=here(cluster), stdout=full).end()
    run = cluster.runs[0].info.id
    assert (code, err.splitlines()[1:]) == (73, [f"  {run} is over: a4-agent logs {run}"])


def test_a_failure(cluster: FakeCluster, call_command: Call) -> None:
    cluster.will_end(code={1: 7, 2: 7}, output={3: "x\n"})
    assert call_command("exec", "x", env=here(cluster)) == (7, "3: x\n", "a4-agent: pods 1-2: exit code 7\n")


def test_a_pod_that_is_lost(cluster: FakeCluster, call_command: Call) -> None:
    cluster.will_end(output="x\n", lost=[1])
    code, out, err = call_command("exec", "x", env=here(cluster))
    assert (code, out) == (75, "0: x\n")
    run = cluster.runs[0].info.id
    _, lost, ended, why, logs = err.splitlines()
    assert lost.startswith("a4-agent: pod 1: lost: silent for ")
    assert ended == f"a4-agent: {run} ended with exit code 75: pods were lost during x"
    assert (why.startswith("  pod 1, "), logs) == (True, f"  logs: a4-agent logs {run}")


def test_one_pod_is_shown_as_it_is(cluster: FakeCluster, call_command: Call) -> None:
    cluster.will_end(output="a\n\nb", errors="warning")
    assert call_command("exec", "--hosts", "0", "x", env=here(cluster)) == (0, "a\n\nb", "warning")


def test_as_json(cluster: FakeCluster, call_command: Call) -> None:
    cluster.will_end(code={0: 1}, output="a\udcff\n", errors={0: "oh\n"}, lost=[1])
    code, out, err = call_command("exec", "--json", "--nodes", "2", "x", env=here(cluster))
    names = [f"job-workload-0-{pod}.job.default.svc.cluster.local" for pod in range(2)]
    assert json.loads(out) == [
        {"pod": 0, "name": names[0], "code": 1, "stdout": "a\ufffd\n", "stderr": "oh\n"},
        {"pod": 1, "name": names[1], "code": None, "stdout": "", "stderr": ""},
    ]
    assert code == 75
    assert "pod 1: lost: silent" in err


def here(cluster: FakeCluster) -> dict[str, str]:
    return {"A4_RUN_DIR": cluster.run_dir}


def test_unfolded(agent: FakeAgent, type_command: Type) -> None:
    typed = type_command("exec", "--no-fold", "x")
    agent.until(lambda: bool(agent.asked("wait")))
    agent.runs[0].say(2, b"first\n")
    assert typed.stdout.readline() == b"[2] first\n"
    agent.runs[0].say(1, b"second\n", stream=2)
    assert typed.stderr.readline() == b"[1] second\n"
    agent.runs[0].end()
    assert typed.end() == (0, "", "")


def test_ctrl_c_shows_what_has_come(agent: FakeAgent, type_command: Type) -> None:
    typed = type_command("exec", "x")
    agent.until(lambda: bool(agent.asked("wait")))
    agent.runs[0].say(2, b"half\n")
    agent.runs[0].say(2, b"the agent's own\n", stream=3)
    typed.signal(signal.SIGINT)
    agent.until(lambda: bool(agent.asked("cancel")))
    agent.runs[0].end(130, "exec-0 was ended", origin="agent", codes=dict.fromkeys(range(4), 143))
    code, out, err = typed.end()
    assert (code, out) == (130, "2: half\n")
    assert "a4-agent: pods 0-3: exit code 143 (SIGTERM)\n" in err


# What is kept, and whom it waits for


RUN = RunInfo("exec-0", (0, 1, 2, 5), 0, (0, 1, 2, 5))
ENDED = RunEnd(JobEnd(0, "done"))


def test_much_output_is_not_kept(capfd: Shown) -> None:
    kept = FoldedOutput(RUN)
    for _ in range(64):
        for pod in (0, 1):
            kept.output(pod, 1 + pod, b"x" * (MOST_KEPT // 64))
    assert kept.wants(0) and kept.wants(1)
    for stream in (2, 1):
        kept.output(1, stream, b"y")
    assert kept.wants(0) and not kept.wants(1)
    kept.show(ENDED, as_json=False)
    out, err = capfd.readouterr()
    assert out == f"0: {'x' * MOST_KEPT}\n"
    told = "of pod 1 there is more: a4-agent logs exec-0 --pod 1"
    assert err == f"1: {'x' * MOST_KEPT}\na4-agent: only the first 4,096 KiB that a pod prints are shown; {told}\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_what_many_pods_print_takes_no_more_than_what_few_do(capfd: Shown, as_json: bool) -> None:
    """All share one bound, and nothing is joined to one text before it is written."""
    pods = tuple(range(64))
    piece = b"0123456789abcdef" * (MOST_KEPT_OF_ALL // 512)
    tracemalloc.start()
    try:
        kept = FoldedOutput(RunInfo("exec-0", pods, 0, pods))
        for pod in pods:
            kept.output(pod, 1, piece[pod:])
        kept.show(ENDED, as_json=as_json)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    capfd.readouterr()
    assert most < MOST_KEPT_OF_ALL + 3 * MOST_KEPT


def test_whom_it_waits_for(capfd: Shown) -> None:
    now = 1000.0
    kept = FoldedOutput(RUN, lambda: now)
    assert kept.idle() == 10.0
    kept.over(1)
    now += 10.0
    assert kept.idle() == REPORT_SECONDS
    assert capfd.readouterr().err == "a4-agent: exec-0 waits for 3 of 4 pods: 0,2,5 (for 10 s)\n"
    kept.over(0)
    now += REPORT_SECONDS - 1
    assert kept.idle() == 1
    assert capfd.readouterr().err == ""
    now += 1
    kept.idle()
    assert capfd.readouterr().err == "a4-agent: exec-0 waits for 2 of 4 pods: 2,5 (for 40 s)\n"
    for pod in (2, 5):
        kept.over(pod)
    now += 100
    assert kept.idle() is None
    assert capfd.readouterr().err == ""
