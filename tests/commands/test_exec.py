"""`a4-agent exec`: many pods, one screen."""

from __future__ import annotations

import json
import signal
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from agent.client import RunEnd, RunInfo
from agent.commands.exec import MOST_KEPT, MOST_KEPT_OF_ALL, FoldedOutput
from agent.decide.ending import JobEnd
from agent.lifecycle.waits import REPORT_SECONDS
from tests.commands.conftest import Call, Shown, Type
from tests.commands.server import FakeAgent, FakeRun


def life(outputs: list[bytes], errors: dict[int, bytes] | None = None, **end: Any) -> Callable[[FakeRun], None]:
    """What pods print, from the last to the first, and how it ends."""

    def live(run: FakeRun) -> None:
        run.pods = run.outputs = list(range(len(outputs)))
        for pod in reversed(run.pods):
            run.say(pod, outputs[pod])
            if errors and pod in errors:
                run.say(pod, errors[pod], stream=2)
            run.say(pod, b"the agent's own\n", stream=3)
        run.end(**end)

    return live


def test_equal_output_is_shown_once(agent: FakeAgent, call_command: Call) -> None:
    """How it is shown: tests/decide/test_folding.py."""
    agent.submitted = life([b"a\nb\n", b"c\n", b"a\nb\n", b"a\nb\n"], {1: b"oh\n", 3: b"oh\n"})
    out = "== pods 0,2-3 ==\na\nb\n== pod 1 ==\nc\n"
    assert call_command("exec", "--", "x") == (0, out, "1,3: oh\n")


def test_output_that_cannot_be_shown_is_in_the_logs(agent: FakeAgent, type_command: Type) -> None:
    """It is shown when the run is over."""
    agent.submitted = life([b"x\n"] * 4)
    with open("/dev/full", "wb") as full:
        code, _, err = type_command("exec", "x", stdout=full).end()
    assert (code, err.splitlines()[1:]) == (73, ["  exec-0 is over: a4-agent logs exec-0"])


def test_a_failure(agent: FakeAgent, call_command: Call) -> None:
    agent.submitted = life(
        [b"", b"", b"", b"x\n"], code=7, what="exec ended with exit code 7", codes={0: 0, 1: 7, 2: 7, 3: 0}
    )
    assert call_command("exec", "x") == (7, "3: x\n", "a4-agent: pods 1-2: exit code 7\n")


def test_a_pod_that_is_lost(agent: FakeAgent, call_command: Call) -> None:
    agent.submitted = life(
        [b"x\n", b"x\n"], code=75, what="a pod was lost", origin="agent", codes={0: 0}, lost={1: "not heard for 30 s"}
    )
    code, out, err = call_command("exec", "x")
    assert (code, out) == (75, "0-1: x\n")
    assert err.splitlines()[-3:] == [
        "a4-agent: pod 1: lost: not heard for 30 s",
        "a4-agent: exec-0 ended with exit code 75: a pod was lost",
        "  logs: a4-agent logs exec-0",
    ]


def test_one_pod_is_shown_as_it_is(agent: FakeAgent, call_command: Call) -> None:
    agent.submitted = life([b"a\n\nb"], {0: b"warning"})
    assert call_command("exec", "--hosts", "0", "x") == (0, "a\n\nb", "warning")


def test_as_json(agent: FakeAgent, call_command: Call) -> None:
    agent.submitted = life([b"a\xff\n", b""], {1: b"oh\n"}, code=1, what="it failed", codes={0: 0}, lost={1: "gone"})
    code, out, err = call_command("exec", "--json", "x")
    assert json.loads(out) == [
        {"pod": 0, "name": "job-0.local", "code": 0, "stdout": "a\ufffd\n", "stderr": ""},
        {"pod": 1, "name": "job-1.local", "code": None, "stdout": "", "stderr": "oh\n"},
    ]
    assert code == 1
    assert "pod 1: lost: gone" in err


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
