"""How a job ends, and what the termination log holds."""

from __future__ import annotations

import json
from signal import SIGHUP, SIGINT, SIGTERM

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.ending import (
    TERMINATION_BYTES,
    JobEnd,
    exit_code,
    from_bug,
    from_error,
    from_signal,
    from_status,
    merged,
    signal_name,
    termination_message,
    with_followers,
    with_out_of_memory,
)
from agent.errors import Exit, PeerLost, SettingsError

LOST = JobEnd(75, "pod 2 was lost", "pod 2")
TOLD = JobEnd(143, "told to end by SIGTERM", "pod 0")
INTERRUPTED = JobEnd(130, "told to end by SIGINT", "pod 0")
FAILED = JobEnd(75, "script ended with exit code 75", "pod 1", origin="workload")

# Short texts of any characters, some repeated until they are far too long.
texts = st.builds(lambda text, times: text * times, st.text(max_size=30), st.sampled_from([1, 1, 40, 400]))
ends = st.builds(JobEnd, st.integers(0, 255), texts, texts, texts, st.sampled_from(["agent", "workload"]))


@given(ends, st.integers(0, 99_999))
def test_the_termination_log_is_small_and_json_whatever_the_text(end: JobEnd, pod: int) -> None:
    text = termination_message(end, epoch="uid.0.0", pod=pod, run="run-1")
    assert len(text.encode()) <= TERMINATION_BYTES
    data = json.loads(text)
    assert (data["code"], data["origin"], data["pod"], data["epoch"]) == (end.code, end.origin, pod, "uid.0.0")
    for field in ("what", "where", "why"):
        whole = getattr(end, field)
        assert data[field] == whole or (data[field].endswith("…") and whole.startswith(data[field][:-1]))


@given(ends)
def test_what_fits_is_not_cut(end: JobEnd) -> None:
    whole = json.dumps({**end.to_json(), "epoch": "e", "pod": 0, "run": "", "pod_name": "", "node": "n"})
    if len(whole) <= TERMINATION_BYTES:
        assert json.loads(termination_message(end, epoch="e", pod=0, node="n")) == json.loads(whole)


def test_the_longest_text_is_cut_and_as_little_as_possible() -> None:
    end = JobEnd(70, "w" * 9000, "pod 1", "short reason")
    data = json.loads(termination_message(end, epoch="e", pod=1))
    assert (data["where"], data["why"]) == ("pod 1", "short reason")
    assert data["what"].endswith("…")
    assert len(json.dumps(data)) == TERMINATION_BYTES


def test_a_pod_with_a_code_of_its_own_tells_both() -> None:
    data = json.loads(termination_message(LOST, epoch="e", pod=2, code=143))
    assert (data["code"], data["job_code"]) == (143, 75)
    same = json.loads(termination_message(LOST, epoch="e", pod=2, code=75))
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
    end = from_status(status, "x", "pod 1")
    assert (end.code, end.what, end.origin) == (code, what, "workload")
    assert end.where == ("pod 1" if code else "")
    assert exit_code(status) == code


@pytest.mark.parametrize(("number", "name"), [(SIGTERM, "SIGTERM"), (SIGHUP, "SIGHUP"), (200, "signal 200")])
def test_signals_by_name(number: int, name: str) -> None:
    assert signal_name(number) == name


def test_ends_of_other_kinds() -> None:
    assert from_signal(SIGTERM, "pod 0") == TOLD
    assert from_signal(SIGINT, "pod 0") == INTERRUPTED
    assert from_error(PeerLost("gone", "look"), "pod 3") == JobEnd(75, "gone", "pod 3", "look")
    assert from_error(SettingsError(["a", "b"])).code == Exit.SETTINGS
    bug = from_bug("Traceback …", "pod 1")
    assert (bug.code, bug.why, bug.origin) == (70, "Traceback …", "agent")


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [
        (None, LOST, LOST),
        (LOST, TOLD, JobEnd(143, "told to end by SIGTERM")),
        (LOST, INTERRUPTED, JobEnd(130, "told to end by SIGINT")),
        (LOST, FAILED, LOST),
        (FAILED, TOLD, FAILED),
        (FAILED, LOST, FAILED),
        (TOLD, LOST, TOLD),
        (TOLD, INTERRUPTED, TOLD),
        (JobEnd(0, "done"), TOLD, JobEnd(0, "done")),
    ],
)
def test_which_of_two_causes_stands(first: JobEnd | None, second: JobEnd, stands: JobEnd) -> None:
    assert merged(first, second) == stands


def test_an_end_in_words() -> None:
    assert str(JobEnd(1, "it failed", "pod 1", "because")) == "it failed (pod 1)\nbecause"
    assert str(JobEnd(0, "done")) == "done"


@pytest.mark.parametrize(
    ("end", "failed", "why"),
    [
        (FAILED, [0, 1, 2, 3], "pods 0,2-3 ended because of it"),
        (FAILED, [1, 2], "pod 2 ended because of it"),
        (FAILED, [1], ""),
        (JobEnd(1, "several", "pods 1 and 2", "reason"), [0, 1], "reason"),
        (JobEnd(124, "time limit"), [0, 1], ""),
        (TOLD, [0, 1], ""),
        (JobEnd(66, "no torch", "pod 1, a.b", "reason"), [0], "reason\npod 0 ended because of it"),
    ],
)
def test_pods_that_followed_the_first(end: JobEnd, failed: list[int], why: str) -> None:
    assert with_followers(end, failed) == end._replace(why=why)


RANK = JobEnd(1, "rank 3 failed: ValueError: no", "pod 1, a.b", "reason", "workload")


@pytest.mark.parametrize(
    ("end", "failed", "ranks", "because"),
    [
        (RANK, [0, 1, 2], 2, "5 ranks on 3 pods"),
        (RANK, [1], 8, "7 ranks on 1 pod"),
        (RANK, [0, 1], 1, "1 rank on 1 pod"),
        (RANK, [1], 1, ""),
    ],
)
def test_ranks_that_followed_the_first(end: JobEnd, failed: list[int], ranks: int, because: str) -> None:
    more = f"\n{because} ended because of it: a4-agent logs RUN --rank N" if because else ""
    assert with_followers(end, failed, ranks) == end._replace(why=f"reason{more}")


def test_no_rank_followed_a_torchrun_that_failed_itself() -> None:
    end = JobEnd(66, "no torch", "pod 1, a.b")
    assert with_followers(end, [0, 1], 8).why == "pod 0 ended because of it"


def test_pods_whose_memory_ran_out() -> None:
    assert "memory ran out in pods 1,3, " in with_out_of_memory(FAILED, [3, 1], str).why
    assert with_out_of_memory(FAILED, [], str) == FAILED
    assert with_out_of_memory(JobEnd(0, "done"), [1], str) == JobEnd(0, "done")
