"""`a4-agent logs`, beside an agent and without one; `a4-agent cancel` and `release`."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from agent.decide.plan import Plan, PlannedPeer
from agent.machine.spool import FileSpool, Room
from tests.commands.conftest import Call, Type
from tests.commands.server import PATIENCE, FakeAgent, FakeRun

PLAN = Plan("uid.0.0", 8, tuple(PlannedPeer(i, f"job-{i}.local", f"10.0.0.{i}", f"node-{i}") for i in (0, 2, 1, 3, 4)))


@pytest.fixture
def run(agent: FakeAgent) -> FakeRun:
    """A run of pods 0 to 3 that goes on and has printed."""
    agent.write("plan.json", PLAN.to_json())
    run = FakeRun(agent, "script-7", {}, [0, 1, 2, 3])
    agent.runs = [FakeRun(agent, "old-1", {}, [0, 1, 2, 3]), run]
    for pod in run.pods:
        run.say(pod, b"hello from %d\n" % pod)
        run.say(pod, b"agent %d\n" % pod, stream=3)
    run.say(2, b"oh\n", stream=2)
    return run


def over(run: FakeRun) -> None:
    run.end(7, "script ended with exit code 7", where="pod 2")


END = "a4-agent: script-7 ended with exit code 7: script ended with exit code 7 (pod 2)\n"


def test_the_newest_run(run: FakeRun, call_command: Call) -> None:
    over(run)
    code, out, err = call_command("logs")
    assert code == 0
    assert sorted(out.splitlines()) == [f"hello from {i}" for i in range(4)]
    assert err == f"oh\n{END}"


def test_it_follows_to_the_end(run: FakeRun, type_command: Type) -> None:
    typed = type_command("logs", "script-7", "--pod", "2", "--label")
    assert typed.stdout.readline() == b"[2] hello from 2\n"
    run.say(2, b"more\n")
    assert typed.stdout.readline() == b"[2] more\n"
    over(run)
    assert typed.end() == (0, "", f"[2] oh\n{END}")


def test_what_there_is_by_now(run: FakeRun, call_command: Call) -> None:
    code, out, err = call_command("logs", "--no-follow", "--pod", "1-2", "--pod", "job-3")
    assert (code, out) == (0, "hello from 2\nhello from 1\nhello from 3\n")  # in rank order
    assert err == "oh\na4-agent: script-7 is still running\n"
    over(run)
    assert call_command("logs", "--no-follow", "--pod", "0") == (0, "hello from 0\n", END)


def test_the_last_lines_of_each_pod(run: FakeRun, call_command: Call) -> None:
    run.say(1, b"two\nthree\n")
    run.say(1, b"no end")
    run.say(2, b"two\n", stream=2)
    command = ("logs", "--no-follow", "--tail", "2")
    assert call_command(*command)[:2] == (0, "hello from 0\nthree\nhello from 3\nno end")
    assert call_command(*command, "--pod", "2", "--agent") == (0, "", "oh\ntwo\na4-agent: script-7 is still running\n")
    assert call_command("logs", "--no-follow", "--tail", "0", "--pod", "2")[1] == ""


def test_the_last_lines_and_what_comes(run: FakeRun, type_command: Type) -> None:
    run.say(3, b"two\n" * 1000)
    typed = type_command("logs", "--tail", "1", "--pod", "3")
    assert typed.stdout.readline() == b"two\n"
    run.say(3, b"more\n")
    assert typed.stdout.readline() == b"more\n"
    over(run)
    assert typed.end() == (0, "", END)


def test_what_was_printed_since_then(run: FakeRun, agent: FakeAgent, call_command: Call) -> None:
    run.old[0] = 2
    run.say(0, b"new\n")
    over(run)
    assert call_command("logs", "--since", "10m", "--pod", "0") == (0, "new\n", END)
    since = agent.asked("read")[0]["since"]
    assert 600 <= time.time() - since < 600 + PATIENCE
    assert call_command("logs", "--since", "2026-03-04T12:30Z", "--pod", "0")[0] == 0
    assert 1_772_627_400.0 in {request.get("since") for request in agent.asked("read")}


def test_one_rank(run: FakeRun, call_command: Call) -> None:
    """One of two ranks on each of the pods 0 to 3."""
    for line in (b"no mark\n", b"[rank4]: other\n[rank5]: own\n[default0]: other\n", b"[defau", b"lt1]: own"):
        run.say(2, line)
    command = ("logs", "--no-follow", "--rank", "5")
    assert call_command(*command)[1] == "hello from 2\nno mark\n[rank5]: own\n[default1]: own"
    run.outputs = [0]  # as of mpirun
    code, out, err = call_command(*command)
    assert (code, out) == (0, "hello from 0\n")
    assert "ranks of script-7 print through pod 0: lines without a tag may be from any rank" in err


def test_the_agents_own_lines(run: FakeRun, call_command: Call) -> None:
    over(run)
    assert call_command("logs", "--agent", "--pod", "0") == (0, "hello from 0\n", f"agent 0\n{END}")
    run.outputs = []  # as of `none`
    assert call_command("logs", "--agent") == (0, "hello from 0\n", f"agent 0\n{END}")
    assert call_command("logs") == (0, "", END)


def test_leaving_ends_nothing(run: FakeRun, agent: FakeAgent, type_command: Type) -> None:
    typed = type_command("logs")
    agent.until(lambda: bool(agent.asked("wait")))
    typed.signal(signal.SIGINT)
    assert typed.end()[0] == 130
    assert not agent.asked("cancel")


# Without an agent


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """What the agent of pod 3 has left on the disk."""
    directory = tmp_path / "run"
    directory.mkdir()
    runs = [{"id": "old-1"}, {"id": "script-7"}]
    (directory / "state.json").write_text(json.dumps({"phase": "running", "index": 3, "runs": runs}))
    for name in ("old-1", "script-7"):
        spool = FileSpool(str(directory / "runs" / name / "spool"), Room(1 << 20))
        for number in range(3):
            spool.append(1, f"{name} {number}\n".encode() * 8000)
        spool.append(2, b"oh\n")
        spool.append(3, b"the agent's\n")
        spool.close()
    return directory


def told(run: str) -> str:
    return f"a4-agent: no a4-agent runs in this pod: this is what pod 3 itself printed during {run}\n"


@pytest.mark.parametrize("argv", [[], ["script-7", "--pod", "3", "--no-follow"]], ids=" ".join)
def test_this_pods_output_from_its_disk(argv: list[str], left: Path, call_command: Call) -> None:
    out = "".join(f"script-7 {number}\n" * 8000 for number in range(3))
    assert call_command("logs", *argv) == (0, out, f"{told('script-7')}oh\n")


def test_the_end_of_it(left: Path, call_command: Call) -> None:
    assert call_command("logs", "--tail", "2") == (0, "script-7 2\n", f"{told('script-7')}oh\n")
    spool = FileSpool(str(left / "runs" / "new-1" / "spool"), Room(1 << 20), lambda: 1000.0)
    spool.append(1, b"long ago\n")
    assert call_command("logs", "new-1")[1] == "long ago\n"
    assert call_command("logs", "new-1", "--since", "1d")[1] == ""


def test_an_older_run_from_the_disk(left: Path, call_command: Call) -> None:
    code, out, err = call_command("logs", "old-1", "--agent", "--label")
    assert (code, out[:13], err) == (0, "[3] old-1 0\n[", f"{told('old-1')}[3] oh\n[3] the agent's\n")


def test_what_the_disk_no_longer_has(tmp_path: Path, call_command: Call) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "state.json").write_text(json.dumps({"index": 0, "run": {"id": "a-1"}}))
    spool = FileSpool(str(directory / "runs" / "a-1" / "spool"), Room(80_000))
    for number in range(100):
        spool.append(1, b"%4d\n" % number * 400)
    spool.close()
    code, out, err = call_command("logs")
    assert code == 0
    assert out.splitlines()[-1] == "  99"
    assert "bytes that pod 0 printed are not kept any more" in err


@pytest.mark.parametrize(
    ("beside", "argv", "code", "words"),
    [
        ("run", "logs no-such", 66, "there is no run 'no-such'"),
        ("run", "logs --pod 9", 2, "--pod '9' matches no pod: the plan has pods 0-4"),
        ("run", "logs --pod 3,4", 2, "pod 4 took no part in script-7\n  its pods: 0-3"),
        ("run", "logs --rank 8", 2, "script-7 has no rank 8\n  it has ranks 0-7"),
        ("left", "logs no-such", 66, "this pod has no output of no-such\n  a4-agent status lists the runs"),
        ("left", "logs ../runs/old-1", 66, "this pod has no output of ../runs/old-1"),
        ("left", "logs --rank 2", 69, "rank placement is unknown\n  omit --rank"),
        ("left", "logs --pod 2", 69, "only what this pod itself printed, pod 3, can be read\n  omit --pod"),
        ("tmp_path", "logs", 66, "this pod has no output of any run\n  a4-agent status lists the runs\n"),
    ],
)
def test_what_cannot_be_read(
    beside: str, argv: str, code: int, words: str, request: pytest.FixtureRequest, call_command: Call
) -> None:
    request.getfixturevalue(beside)
    ended, out, err = call_command(*argv.split())
    assert (ended, out) == (code, "")
    assert words in err


# Cancel and release


def going_on(agent: FakeAgent, pods: int = 4) -> FakeRun:
    agent.runs = [FakeRun(agent, "mpirun-1a2b", {}, [*range(pods)])]
    return agent.runs[0]


@pytest.mark.parametrize(("words", "hurry"), [((), False), (("mpirun-1a2b", "--hurry"), True)])
def test_cancel(words: tuple[str, ...], hurry: bool, agent: FakeAgent, type_command: Type) -> None:
    run = going_on(agent, pods=1)
    typed = type_command("cancel", *words)
    agent.until(lambda: bool(agent.asked("cancel")))
    request = agent.asked("cancel")[0]
    assert (request["run"], request["hurry"]) == (run.id, hurry)
    run.end(130, "ended", why=f"{request['why']}\nrank 2 has not entered all_reduce #4")
    code, out, err = typed.end()
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        f"a4-agent: ending {run.id} on 1 pod",
        f"a4-agent: {run.id} ended with exit code 130: ended",
        "  rank 2 has not entered all_reduce #4",
    ]


def test_cancel_of_what_is_over_or_not_there(agent: FakeAgent, call_command: Call) -> None:
    run = going_on(agent)
    run.end()
    assert call_command("cancel") == (0, "", f"a4-agent: {run.id} is over already\n")
    assert call_command("cancel", "mpirun-00000000")[0] == 66
    assert not agent.asked("cancel")


@pytest.mark.parametrize("force", [False, True])
def test_release(force: bool, agent: FakeAgent, type_command: Type) -> None:
    agent.code = 7
    said = "the cluster is released: every pod ends with the job's exit code 7\n"
    assert type_command("release", *["--force"] * force).end() == (0, said, "")
    assert [request["force"] for request in agent.asked("release")] == [force]
