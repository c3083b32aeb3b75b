"""`a4-agent status` through the life of a pod."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from agent.commands.state_text import MOST_RUNS, clock, describe
from agent.decide.plan import Plan, PlannedPeer
from agent.decide.pod_state import PodState
from agent.wire import from_json
from tests.commands.conftest import Prints, Type
from tests.terminal import Terminal

STATE: dict[str, Any] = {
    "phase": "running",
    "index": 1,
    "pods": 3,
    "gpus": 8,
    "since": 1000.0,
    "epoch": "uid.0.0",
    "agent": "1.2.3",
}
RUN: dict[str, Any] = {
    "id": "script-7",
    "workload": "script",
    "by": "pod 2 (pid 31)",
    "since": 1000.0,
    "pods": [0, 1, 2],
    "lead": 0,
    "results": "/results/runs/script-7",
}
PAST = RUN | {"until": 1090.0, "code": 7, "what": "script ended with exit code 7", "where": "pod 2, job-2.local"}
END = {"code": 75, "what": "pod 2 was lost", "where": "pod 2", "why": "line 1\nline 2", "origin": "agent"}
PLAN = Plan("uid.0.0", 8, tuple(PlannedPeer(i, f"job-{i}.local", "", "", ("c", f"b{i % 2}")) for i in (0, 2, 1)))


def described(state: dict[str, Any], now: float = 1010.0, plan: Plan | None = None, **more: Any) -> str:
    """As an agent that lives is described; `alive`, `columns` and `lines` as describe takes them."""
    return describe(from_json(PodState, state), plan, more.pop("alive", 0.0), now, **more)


def test_no_agent_was_started(run_dir: Path, prints: Prints) -> None:
    told = f"no a4-agent has been started in this pod ({run_dir} holds no state)"
    assert prints("status", code=69) == f"{told}; the pods of a local cluster: a4-agent local status\n"
    nothing = {"state": None, "alive_seconds_ago": None, "plan": None}
    assert json.loads(prints("status", "--json", code=69)) == nothing


def test_a_running_agent(run_dir: Path, prints: Prints) -> None:
    state = STATE | {"since": time.time(), "run": RUN | {"since": time.time()}}
    (run_dir / "state.json").write_text(json.dumps(state))
    (run_dir / "plan.json").write_text(json.dumps(PLAN.to_json()))
    (run_dir / "alive").touch()
    shown = prints("status")
    assert "pod 1 of 3: taking part in a run for " in shown
    assert "run script-7 by pod 2 (pid 31) on pods 0-2, running for " in shown
    assert "pods: 3 x 8 slots: 3 ready" in shown
    assert "does not respond" not in shown
    data = json.loads(prints("status", "--json"))
    assert data["state"] == state
    assert data["plan"] == PLAN.to_json()
    assert data["alive_seconds_ago"] is not None


def test_a_damaged_state_is_told(run_dir: Path, refused: Prints) -> None:
    for text in ("{", "[]", "null x"):
        (run_dir / "state.json").write_text(text)
        assert "state.json is damaged" in refused(71, "status")


def test_an_agent_that_shows_no_life_is_told_unless_it_has_ended() -> None:
    for alive in (None, 31.0):
        assert "the agent does not respond: it was killed or hangs" in described(STATE, alive=alive)
    text = described(STATE | {"phase": "ended", "end": END}, alive=None)
    assert "does not respond" not in text
    assert text.endswith("the job ended: exit code 75, pod 2 was lost (pod 2)\n  line 1\n  line 2\n")


PHASES = {
    "preparing": "starting",
    "waiting": "waiting for the coordinator",
    "forming": "forming the cluster",
    "formed": "received the plan",
    "running": "taking part in a run",
    "sleeping": "sleeping between runs",
    "ended": "ended",
    "a later phase": "a later phase",
}


LASTING = {-5: "for 0 s", 0: "for 0 s", 119: "for 119 s", 600: "for 10 min", 9000: "for 2.5 h"}


def test_the_first_line_says_the_phase_and_how_long_it_lasts() -> None:
    for phase, words in PHASES.items():
        assert words in described(STATE | {"phase": phase}).splitlines()[0]
    for seconds, words in LASTING.items():
        assert described(STATE, 1000.0 + seconds).splitlines()[0].endswith(words)


def test_who_is_missing() -> None:
    missing = {"2": "port 2222 refused", "3": "no name", "5": "port 2222 refused"}
    text = described(STATE | {"phase": "forming", "pods": 6, "missing": missing})
    assert text.splitlines()[2:] == [
        "pods: 6 x 8 slots: 3 ready, 3 missing",
        "  missing: pods 2,5: port 2222 refused",
        "  missing: pod 3: no name",
    ]


def test_the_current_run() -> None:
    assert described(STATE | {"run": RUN}, 1600.0).splitlines()[2:] == [
        "run script-7 by pod 2 (pid 31) on pods 0-2, running for 10 min",
        "  script",
        "  output: a4-agent logs script-7",
        "  results on pod 0: /results/runs/script-7",
    ]
    named = RUN | {"name": "lr-0.1", "note": "warm-up", "command": "torchrun train.py --lr 0.1"}
    assert described(STATE | {"run": named}).splitlines()[2:5] == [
        "run script-7 (lr-0.1) by pod 2 (pid 31) on pods 0-2, running for 10 s",
        "  torchrun train.py --lr 0.1  # warm-up",
        "  output: a4-agent logs lr-0.1",
    ]


def test_the_lives_of_runs() -> None:
    first, third = RUN | {"life": 1}, RUN | {"life": 3, "awaits": [2, 1], "ended_by": "rank 5 was killed"}
    assert described(STATE | {"run": first}).splitlines()[2].endswith("running for 10 s")
    lines = described(STATE | {"run": third}).splitlines()
    assert lines[2].endswith("running for 10 s, in life 3") and lines[4:6] == [
        "  life 2 ended by: rank 5 was killed",
        "  waits for the replacement of pods 1-2",
    ]
    ends = [PAST | {"life": 2}, PAST | {"life": 2, "code": 0}, PAST | {"life": 1, "code": 0}]
    shown = described(STATE | {"runs": ends}, 5000.0).splitlines()
    assert shown[-5].endswith(PAST["what"] + " (pod 2, in life 2)") and shown[-4].endswith("  in life 2")
    assert "in life" not in shown[-3]


def test_past_runs() -> None:
    long = "torchrun " + "x" * 200
    later = PAST | {"id": "ddp-8", "code": 0, "what": "good", "where": "", "command": long, "name": "lr-0.1"}
    state = STATE | {"runs": [PAST, later]}
    lines = described(state, 5000.0).splitlines()
    cells = [re.split(r" {2,}", line.strip()) for line in lines[-5:-2]]
    assert cells[0] == ["past run", "name", "by", "start", "took", "code", "command", "end"]
    assert cells[1][:2] + cells[1][3:] == ["script-7", "pod 2", "90 s", "7", "script", PAST["what"] + " (pod 2)"]
    assert cells[2][:2] == ["ddp-8", "lr-0.1"] and cells[2][-1] == long
    assert lines[-2:] == [
        "a4-agent logs RUN prints its output, a4-agent get RUN fetches results and logs",
        "results of lr-0.1 on pod 0: /results/runs/script-7",
    ]
    shown = described(state, 5000.0, columns=80).splitlines()
    assert all(len(line) <= 80 for line in shown)
    assert shown[-3].startswith("  lr-0.1 ") and re.search(r" 0  torchrun x+…$", shown[-3])
    narrow = described(state, 5000.0, columns=30).splitlines()[-5:-2]
    assert "  lr-0.1" in narrow[2] and all(len(line) <= 30 for line in narrow)


def test_many_past_runs() -> None:
    text = described(STATE | {"runs": [PAST | {"id": f"script-{i}"} for i in range(50)]})
    shown = re.findall(r"^  (script-\d+)", text, re.MULTILINE)
    assert shown == [f"script-{i}" for i in range(50 - MOST_RUNS, 50)]
    assert f"and {50 - MOST_RUNS} older: a4-agent status --json. Output: a4-agent logs RUN\n" in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "idle for 60 min: 24 GPU slots; a4-agent release ends the cluster\n"),
        ({"runs": [PAST | {"until": 4000.0}]}, "idle for 600 s"),
        ({"idle": 4300.0}, "idle for 5 min"),
    ],
)
def test_an_idle_cluster(more: dict[str, Any], words: str) -> None:
    assert words.replace("600 s", "10 min") in described(STATE | {"phase": "sleeping"} | more, 4600.0)


def test_pods() -> None:
    lost = {"2": {"why": "not heard for 30 s", "since": 1300.0}}
    first, second, third = PLAN.peers
    plan = PLAN._replace(peers=(first, second._replace(pod_name="job-2-x7k2p"), third))
    lines = described(STATE | {"formed": 1000.0, "lost": lost}, 8200.0, plan).splitlines()
    assert lines[2:4] == [
        "pods: 3 x 8 slots, formed 2.0 h ago: 2 ready, 1 lost",
        f"  lost 115 min ago: {plan.peers[1].where}: not heard for 30 s",
    ]
    assert [re.split(r" {2,}", line.strip()) for line in lines[5:]] == [
        ["rank", "pod", "state", "name", "place"],
        ["0", "0", "ready", "job-0", "/c/b0"],
        ["1", "2", "lost", "job-2-x7k2p", "/c/b0"],
        ["2", "1", "ready", "job-1", "/c/b1"],
    ]


def test_a_screen_shows_the_pods_first_and_past_runs_in_what_is_left() -> None:
    place = ("us-central1-ai4", "4e52447852ecb6d1a9c03f5e7d2b8810", "0" * 32, "fe85" + "0" * 28)
    plan = Plan("uid.0.0", 8, tuple(PlannedPeer(i, f"job-{i}.local", "", "", place) for i in range(32)))
    lost = {"7": {"why": "not heard for 30 s", "since": 1000.0}}
    runs = [PAST | {"id": f"collectives-{i:08x}", "by": "ENTRYPOINT of pod 0 (pid 1)"} for i in range(50)]
    end = END | {"why": "\n".join(f"line {i}" for i in range(30))}
    state = STATE | {"phase": "sleeping", "lost": lost, "runs": runs, "end": end, "run": RUN}
    shown = described(state, 1060.0, plan, columns=80, lines=24).splitlines()
    assert len(shown) == 24 and all(len(line) <= 80 for line in shown)
    assert shown[3] == "  lost 60 s ago: pod 7, job-7.local, pod name and node not known: not heard for…"
    whole = described(state, 1060.0, plan, columns=80)
    assert "    31   31  ready  job-31  /us-central1-ai4/4e524478/00000000/fe850000\n" in whole
    assert "line 29\n" in whole


@pytest.mark.parametrize(
    ("count", "lines", "rows"),
    [
        (8, 24, [f"{i} {i} ready job-{i} /c/b0/s0/h{i}" for i in range(8)]),
        (64, 20, [f"{16 * i}-{16 * i + 15} 16 ready /c/b{i} {16 * i}-{16 * i + 15}" for i in range(4)]),
        (64, 24, [f"{8 * i}-{8 * i + 7} 8 ready /c/b{i // 2}/s{i} {8 * i}-{8 * i + 7}" for i in range(8)]),
        (64, 17, ["0-63 64 ready /c 0-63"]),
        (64, 14, []),
    ],
)
def test_a_screen_folds_the_pods_before_it_leaves_out_past_runs(count: int, lines: int, rows: list[str]) -> None:
    peers = (PlannedPeer(i, f"job-{i}", "", "", ("c", f"b{i // 16}", f"s{i // 8}", f"h{i}")) for i in range(count))
    state = STATE | {"phase": "sleeping", "runs": [PAST] * 50, "run": RUN}
    shown = described(state, 1060.0, Plan("uid.0.0", 8, tuple(peers)), columns=80, lines=lines).splitlines()
    assert len(shown) <= lines and sum(line.startswith("  script-7") for line in shown) >= 3
    assert [" ".join(line.split()) for line in shown if " ready " in line] == rows


def test_the_time_of_day() -> None:
    assert re.fullmatch(r"\d\d:\d\d:\d\d", clock(200_000.0, 286_399.0))
    assert re.fullmatch(r"1970-01-\d\d \d\d:\d\d", clock(200_000.0, 286_400.0))


# Watching


def test_watching_a_pipe(run_dir: Path, type_command: Type) -> None:
    (run_dir / "state.json").write_text(json.dumps(STATE))
    typed = type_command("status", "--watch", "0.01", "--json")
    assert json.loads(typed.stdout.readline())["state"] == STATE
    assert json.loads(typed.stdout.readline())["state"] == STATE, "as long as it is so, again and again"
    (run_dir / "new.json").write_text(json.dumps(STATE | {"phase": "sleeping"}))
    (run_dir / "new.json").rename(run_dir / "state.json")
    while json.loads(typed.stdout.readline())["state"]["phase"] != "sleeping":
        pass
    typed.signal(signal.SIGINT)
    code, _, err = typed.end()
    assert (code, err) == (0, "")


FRAME = "\x1b[H\x1b[J"


def test_watching_on_a_terminal_redraws_what_it_has_room_for(run_dir: Path, type_command: Type) -> None:
    runs = [PAST | {"id": f"script-{i}"} for i in range(10)]
    (run_dir / "state.json").write_text(json.dumps(STATE | {"runs": runs}))
    with Terminal(12, 40) as terminal:
        typed = type_command("status", "--watch", "0.01", **terminal.streams)
        for lines, columns, last in (
            (12, 40, "and 4 older: a4-agent status --json. Ou…"),
            (3, 40, "the agent does not respond: it was kill…"),
            (2, 20, "… 2 more lines: a4-a"),
            (1, 20, "pod 1 of 3: taking …"),
            (1, 1, "…"),
            (24, 80, "a4-agent logs RUN prints its output, a4-agent get RUN fetches results and logs"),
        ):
            terminal.resize(lines, columns)
            shown = [""]
            while shown[-1] != last:
                shown = terminal.until(FRAME).split("\r\n")
            assert len(shown) <= lines and all(len(line) <= columns for line in shown)
        typed.signal(signal.SIGINT)
        terminal.until(f"{last}\r\n")  # while nobody reads, it waits for room
        assert typed.process.wait() == 0
