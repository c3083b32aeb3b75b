"""Commands whose stdin, stdout or stderr is closed or full."""

from __future__ import annotations

import pytest

from agent.commands import VERBS
from agent.decide.plan import Plan, PlannedPeer
from tests.commands.conftest import Type
from tests.commands.server import FakeAgent, FakeRun

RUN = "nccl-7"
PLAN = Plan(
    "uid.0.0", 8, (PlannedPeer(0, "job-0.local", "10.0.0.1", "n"), PlannedPeer(1, "job-1.local", "10.0.0.2", "n"))
)
PRINTED = b"line\n" * 10_000
FULL = "a4-agent: the output cannot be written: No space left on device"
NOTHING = {"cancel"}
"""Verbs that print nothing to stdout."""


@pytest.fixture
def pod(agent: FakeAgent) -> FakeAgent:
    """With a run that is over, and an agent that ends each new one with 3."""

    def end(run: FakeRun) -> None:
        run.say(0, PRINTED)
        run.end(3, "it failed")

    run = FakeRun(agent, RUN, {}, [0, 1])
    run.say(0, PRINTED)
    run.files = {(0, "result.json"): b"{}\n"}
    run.end()
    agent.runs, agent.submitted = [run], end
    agent.write("plan.json", PLAN.to_json())
    return agent


def typed(verb: str) -> list[str]:
    """A command that prints; with some verbs more than a buffer holds."""
    words = {
        "run": "run script",
        "exec": "exec hostname",
        "mpirun": "mpirun ./a.out",
        "torchrun": "torchrun train.py",
        "doctor": "doctor --here",
        "bundle": "bundle -o -",
        "logs": f"logs {RUN} --no-follow",
        "get": f"get {RUN} -o -",
        "env": "env --profile a4-gib",
        "settings": "settings A4_PROFILE",
        "sync": "sync --help",
        "report": "report --help",
        "local": "local --help",
        "completion": "completion bash",
    }
    return words.get(verb, verb).split()


@pytest.mark.parametrize("verb", VERBS)
def test_a_closed_stdout_changes_nothing_and_a_full_one_is_said(verb: str, pod: FakeAgent, type_command: Type) -> None:
    words = typed(verb)
    closed = type_command(*words, through=["sh", "-c", 'exec "$@" >&-', "sh"]).end()
    good = (3 if verb in ("run", "exec", "mpirun", "torchrun", "find-slow") else 0, "")
    assert closed[:2] == good and "Traceback" not in closed[2], closed
    with open("/dev/full", "wb") as full:
        code, _, err = type_command(*words, stdout=full).end()
    if verb in NOTHING:
        assert (code, FULL in err) == (0, False), err
    else:
        assert (code, err.count(FULL), "Traceback" in err) == (73, 1, False), err


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("mpirun ./a.out", 3), ("nonsense", 2), ("logs no-such", 66)])
def test_a_message_that_nobody_gets_changes_no_code(
    words: str, code: int, redirected: str, pod: FakeAgent, type_command: Type
) -> None:
    through = ["sh", "-c", f'exec "$@" {redirected}', "sh"]
    assert type_command(*words.split(), through=through).end()[::2] == (code, "")
