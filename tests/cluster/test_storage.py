"""Logs and results on the real thing: kept while a run lasts and after it, and never in its way."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Start, Trial, all_codes
from tests.cluster.storage import (
    BREAK,
    MEND,
    MOUNT,
    REASON,
    RESULTS,
    STORE,
    log_name,
    on_fuse,
    shell,
    stored,
    until_logged,
)
from tests.cluster.work import agent, sleeping, state

ALERTS = Path(__file__).parents[2] / "docs" / "alerts.md"
LINES = 8500
MUCH = f"seq -f 'line %01000g of a long log' {LINES}"
"""More than 8 MiB: a piece is stored at once and not only after 30 s."""


def until_printed(trial: Trial, text: str) -> None:
    """Wait until every pod has printed a line in its run."""
    for index in range(trial.cluster.spec.pods):
        until_logged(trial, index, text)


def on_all(trial: Trial, script: str) -> None:
    for index in range(trial.cluster.spec.pods):
        shell(trial, index, script)


BREAKS_FOR_A_WHILE = f"""
echo begun
until test -e /tmp/broken; do sleep 0.05; done
{MUCH}
echo printed
until test -e /tmp/mended; do sleep 0.05; done
echo after
"""


PASSING = {0: "stopped", 1: "read-only"}
LASTING = {0: "stopped", 1: "gone"}
"""How the results directory of each pod breaks."""


def test_a_results_directory_that_breaks_for_a_while_holds_nothing_up_and_nothing_is_lost(start: Start) -> None:
    trial = start(len(PASSING), script=BREAKS_FOR_A_WHILE, **on_fuse())
    until_printed(trial, "begun")
    for index, fault in PASSING.items():
        shell(trial, index, BREAK[fault])
    on_all(trial, "touch /tmp/broken")
    until_printed(trial, "printed")
    until_logged(trial, 1, f"this pod's log cannot be stored in {RESULTS}: {REASON[PASSING[1]]};")
    for index in PASSING:  # pod 0 waits for an answer meanwhile
        assert "taking part in a run" in shell(trial, index, "a4-agent status")
        answers = json.loads(shell(trial, index, "a4-agent exec --json -- echo here"))
        assert {answer["pod"]: answer["stdout"] for answer in answers} == dict.fromkeys(PASSING, "here\n")
    for index, fault in PASSING.items():
        shell(trial, index, MEND[fault])
    on_all(trial, "touch /tmp/mended")
    all_codes(trial, 0)
    for index in PASSING:
        workload, said = trial.cluster.logs(index, "out").splitlines(), trial.cluster.logs(index, "err")
        assert (len(workload), workload[-1]) == (LINES + 3, "after")
        kept = stored(trial, index, f"pod-logs/{log_name(index)}.log").splitlines()
        assert [line for line in kept if " a4-agent [" not in line] == workload
        assert (f"is stored in {RESULTS} again" in said) >= index
        assert "could not be stored" not in said
    assert json.loads(stored(trial, 0, "result.json"))["verdict"]["code"] == 0


def test_a_directory_that_one_worker_alone_cannot_write_ends_the_job_and_names_the_worker(start: Start) -> None:
    before = f'test "$JOB_COMPLETION_INDEX" = 0 || mount -i -o remount,ro {MOUNT}'
    trial = start(2, script="echo begun", **on_fuse(before))
    all_codes(trial, 73)
    for index in (0, 1):
        end = trial.said(index)
        assert end["what"] == f"A4_RESULTS_DIR={RESULTS} cannot be used: Read-only file system"
        assert end["where"].startswith("pod 1, ")
        assert trial.cluster.logs(index, "out") == ""


STAYS_BROKEN = """
echo begun
until test -e /tmp/broken; do sleep 0.05; done
echo after
until test -e /tmp/over; do sleep 0.05; done
exit 7
"""


@pytest.mark.faults
def test_a_results_directory_that_stays_broken_changes_no_code_and_each_pod_says_what_is_lost(start: Start) -> None:
    trial = start(len(LASTING), script=STAYS_BROKEN, **on_fuse())
    until_printed(trial, "begun")
    for index, fault in LASTING.items():
        shell(trial, index, BREAK[fault])
    on_all(trial, "touch /tmp/broken")
    until_printed(trial, "after")
    shell(trial, 1, "touch /tmp/over")
    all_codes(trial, 7)
    for index, fault in LASTING.items():
        said = trial.cluster.logs(index, "err")
        lost = re.findall(rf"(\d+) bytes of this pod's log could not be stored in {RESULTS}: {REASON[fault]}", said)
        assert len(lost) == 1 and int(lost[0]) > len("begun\nafter\n"), said
        assert f"{RESULTS} again" not in said
        assert (trial.said(index)["code"], trial.said(index)["where"][:6]) == (7, "pod 1,")
    assert f"not stored in {RESULTS}: result.json ({REASON['stopped']})" in trial.cluster.logs(0, "err")
    # Not behind the mount, and not on the container's own disk where the mount was.
    paths = [f"{where}/pod-logs/{log_name(1)}.log" for where in (f"{STORE}/out", RESULTS)]
    assert trial.cluster.read_bytes(1, paths) == dict.fromkeys(paths)


def test_every_line_of_an_agent_is_an_object_for_cloud_logging(start: Start) -> None:
    env = {"A4_LOG_FORMAT": "json", "JOB_IDENTIFIER": "my-job"}
    trial = sleeping(start, 2, env=env, pod_env={1: {"A4_NO_SUCH_SETTING": "x"}})
    assert agent(trial, 1, "run", "script", "--", "false").returncode == 1
    none, run = (each["id"] for each in state(trial)["runs"])
    trial.cluster.terminate()
    all_codes(trial, 143)
    said: list[dict[str, Any]] = []
    for index in (0, 1):
        lines = [json.loads(line) for line in trial.cluster.logs(index, "err").splitlines()]
        assert {(line["pod"], line["job"]) for line in lines} == {(f"{index}/2", "my-job")}
        said += lines
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["time"]) for line in said)
    assert {line["severity"] for line in said if "A4_NO_SUCH_SETTING" in line["message"]} == {"WARNING"}
    (begun,) = (line for line in said if line["message"].endswith(f" runs {run}"))
    assert (begun["severity"], begun["run"]) == ("INFO", run)
    ends = [line for line in said if "code" in line]
    assert all(line in ends for line in said if line["severity"] == "ERROR")
    named = set(re.findall(r"jsonPayload\.(\w+)", ALERTS.read_text()))
    assert named and all(named <= line.keys() for line in ends)
    of_pod_0 = [(line["code"], line["origin"], line["run"]) for line in ends if line["pod"] == "0/2"]
    assert of_pod_0[:2] == [(0, "agent", none), (1, "workload", run)]
    for line in ends:
        message = trial.said(int(line["pod"][0]))
        assert {name: line[name] for name in ("pod_name", "node", "epoch")}.items() <= message.items()
