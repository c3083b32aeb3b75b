"""How a job ends, and what the termination log holds."""

from __future__ import annotations

import json
from signal import SIGINT, SIGTERM

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide import ending
from agent.decide.diagnosis import Diagnosis, Status
from agent.errors import Exit, PeerLost, SettingsError

LOST = ending.JobEnd(75, "pod 2 was lost", "pod 2")
TOLD = ending.JobEnd(143, "told to end by SIGTERM", "pod 0")
INTERRUPTED = ending.JobEnd(130, "told to end by SIGINT", "pod 0")
FAILED = ending.JobEnd(75, "script ended with exit code 75", "pod 1", origin="workload")

# Short texts of any characters, some repeated until they are far too long.
texts = st.builds(lambda text, times: text * times, st.text(max_size=30), st.sampled_from([1, 1, 40, 400]))
ends = st.builds(ending.JobEnd, st.integers(0, 255), texts, texts, texts, st.sampled_from(["agent", "workload"]))


@given(ends, st.integers(0, 99_999))
def test_the_termination_log_is_small_and_json_whatever_the_text(end: ending.JobEnd, pod: int) -> None:
    """And what fits is not cut."""
    text = ending.termination_message(end, epoch="uid.0.0", pod=pod, run="run-1", node="n")
    assert len(text.encode()) <= ending.TERMINATION_BYTES
    data = json.loads(text)
    all_of_it = {**end.to_json(), "epoch": "uid.0.0", "pod": pod, "run": "run-1", "pod_name": "", "node": "n"}
    assert data == all_of_it or len(json.dumps(all_of_it)) > ending.TERMINATION_BYTES
    assert (data["code"], data["origin"], data["pod"], data["epoch"]) == (end.code, end.origin, pod, "uid.0.0")
    for field in ("what", "where", "why"):
        whole = getattr(end, field)
        assert data[field] == whole or (data[field].endswith("…") and whole.startswith(data[field][:-1]))


def test_the_longest_text_is_cut_and_as_little_as_possible() -> None:
    end = ending.JobEnd(70, "w" * 9000, "pod 1", "short reason")
    data = json.loads(ending.termination_message(end, epoch="e", pod=1))
    assert (data["where"], data["why"]) == ("pod 1", "short reason")
    assert data["what"].endswith("…")
    assert len(json.dumps(data)) == ending.TERMINATION_BYTES


def test_a_pod_with_a_code_of_its_own_tells_both() -> None:
    data = json.loads(ending.termination_message(LOST, epoch="e", pod=2, code=143))
    assert (data["code"], data["job_code"]) == (143, 75)
    same = json.loads(ending.termination_message(LOST, epoch="e", pod=2, code=75))
    assert same["code"] == 75
    assert "job_code" not in same


@pytest.mark.parametrize(
    ("status", "code", "what"),
    [
        (0, 0, "x done"),
        (75, 75, "x failed"),
        (255, 255, "x failed"),
        (-9, 137, "x was killed by SIGKILL"),
        (-15, 143, "x was killed by SIGTERM"),
        (-63, 191, "x was killed by signal 63"),
    ],
)
def test_the_end_of_a_process(status: int, code: int, what: str) -> None:
    end = ending.from_status(status, "x", "pod 1")
    assert (end.code, end.what, end.origin) == (code, what, "workload")
    assert end.where == ("pod 1" if code else "")
    assert ending.exit_code(status) == code


def test_ends_of_other_kinds() -> None:
    assert ending.from_signal(SIGTERM, "pod 0") == TOLD
    assert ending.from_signal(SIGINT, "pod 0") == INTERRUPTED
    assert ending.from_error(PeerLost("gone", "look"), "pod 3") == ending.JobEnd(75, "gone", "pod 3", "look")
    assert ending.from_error(SettingsError(["a", "b"])).code == Exit.SETTINGS
    bug = ending.from_bug("Traceback …", "pod 1")
    assert (bug.code, bug.why, bug.origin) == (70, "Traceback …", "agent")


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [
        (None, LOST, LOST),
        (LOST, TOLD, ending.JobEnd(143, "told to end by SIGTERM")),
        (LOST, INTERRUPTED, ending.JobEnd(130, "told to end by SIGINT")),
        (LOST, FAILED, LOST),
        (FAILED, TOLD, FAILED),
        (FAILED, LOST, FAILED),
        (TOLD, LOST, TOLD),
        (TOLD, INTERRUPTED, TOLD),
        (ending.JobEnd(0, "done"), TOLD, ending.JobEnd(0, "done")),
    ],
)
def test_which_of_two_causes_stands(first: ending.JobEnd | None, second: ending.JobEnd, stands: ending.JobEnd) -> None:
    assert ending.merged(first, second) == stands


def test_an_end_in_words() -> None:
    assert str(ending.JobEnd(1, "it failed", "pod 1", "because")) == "it failed (pod 1)\nbecause"
    assert str(ending.JobEnd(0, "done")) == "done"


RANK = ending.JobEnd(1, "rank 3 failed: ValueError: no", "pod 1, a.b", "reason", "workload")
LOGS = "ended because of it: a4-agent logs RUN --rank N"


@pytest.mark.parametrize(
    ("end", "failed", "ranks", "why"),
    [
        (FAILED, [0, 1, 2, 3], 0, "pods 0,2-3 ended because of it"),
        (FAILED, [1, 2], 0, "pod 2 ended because of it"),
        (FAILED, [1], 0, ""),
        (ending.JobEnd(1, "several", "pods 1 and 2", "reason"), [0, 1], 0, "reason"),
        (ending.JobEnd(124, "time limit"), [0, 1], 0, ""),
        (TOLD, [0, 1], 0, ""),
        (ending.JobEnd(66, "no torch", "pod 1, a.b", "reason"), [0], 8, "reason\npod 0 ended because of it"),
        (RANK, [0, 1, 2], 2, f"reason\n5 ranks on 3 pods {LOGS}"),
        (RANK, [1], 8, f"reason\n7 ranks on 1 pod {LOGS}"),
        (RANK, [0, 1], 1, f"reason\n1 rank on 1 pod {LOGS}"),
        (RANK, [1], 1, "reason"),
    ],
)
def test_pods_and_ranks_that_followed_the_first(end: ending.JobEnd, failed: list[int], ranks: int, why: str) -> None:
    """A torchrun that failed itself has none of these ranks."""
    assert ending.with_followers(end, failed, ranks) == end._replace(why=why)


@pytest.mark.parametrize(
    ("status", "why"), [("hangs", "rank 1\nreason"), ("circle", "rank 1\nreason"), ("unclear", "reason\nrank 1")]
)
def test_dumps_come_before_the_reason_only_where_they_name_a_cause(status: Status, why: str) -> None:
    assert ending.with_diagnosis(RANK, Diagnosis(status, "rank 1")) == RANK._replace(why=why)


def test_pods_whose_memory_ran_out() -> None:
    assert "memory ran out in pods 1,3, " in ending.with_out_of_memory(FAILED, [3, 1], str).why
    assert ending.with_out_of_memory(FAILED, [], str) == FAILED
    assert ending.with_out_of_memory(ending.JobEnd(0, "done"), [1], str) == ending.JobEnd(0, "done")
