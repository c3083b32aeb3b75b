"""Lives: which ends are followed by another life, and what lives are called."""

from __future__ import annotations

import pytest

from agent.decide.ending import JobEnd
from agent.decide.facts import Finding
from agent.decide.lives import LifeEnd, no_progress, reasons, unhealthy_pods, with_code_of_job
from agent.decide.run_names import life_id, life_parts, run_of

USUAL = "lost,75,137,143"
LOST = JobEnd(75, "a pod was lost during the run")


def failed(code: int) -> JobEnd:
    return JobEnd(code, "rank 3 failed", origin="workload")


@pytest.mark.parametrize(
    ("end", "rank_code", "lost", "wanted", "again"),
    [
        (LOST, None, [2], USUAL, True),
        (LOST, None, [2], "75,137", False),
        (JobEnd(75, "not ready for the run"), None, [], USUAL, True),
        (JobEnd(75, "not ready for the run"), None, [], "lost", False),
        (failed(137), None, [], USUAL, True),
        (failed(137), None, [], "lost", False),
        (failed(1), 137, [], USUAL, True),
        (failed(1), None, [], USUAL, False),
        (failed(1), 7, [], USUAL, False),
        (failed(1), 7, [], "7", True),
        (failed(143), None, [], USUAL, True),
        (JobEnd(143, "told to end by SIGTERM"), None, [2], USUAL, False),
        (JobEnd(130, "it was ended"), None, [], "130", False),
        (JobEnd(124, "it hit the time limit"), None, [], "124", False),
        (JobEnd(78, "pods differ"), None, [], "78", False),
        (JobEnd(0, "done", origin="workload"), None, [2], USUAL, False),
        (failed(137), None, [], "", False),
    ],
)
def test_which_ends_give_another_life(
    end: JobEnd, rank_code: int | None, lost: list[int], wanted: str, again: bool
) -> None:
    assert bool(reasons(end, rank_code, lost=lost) & set(wanted.split(","))) is again


@pytest.mark.parametrize(
    ("end", "again"),
    [
        (failed(1), True),
        (JobEnd(124, "it hit the time limit"), True),
        (JobEnd(78, "pods differ"), False),
        (JobEnd(130, "it was ended"), False),
        (JobEnd(0, "done", origin="workload"), False),
    ],
)
def test_pods_that_became_unhealthy_give_another_life(end: JobEnd, again: bool) -> None:
    assert ("unhealthy" in reasons(end, lost=[2], unhealthy=[2])) is again
    assert not {"unhealthy", "lost"} & reasons(end, lost=[2])


def test_a_limit_of_silence_is_another_reason_than_one_of_time() -> None:
    end = JobEnd(124, "script hit the limit of 200 s without a line of output")
    assert reasons(end, stalled=True) == {"stalled"} and not reasons(end)


BROKEN = Finding("XIDs", "bad", "fatal", 2, device="GPU 3", value="79")


@pytest.mark.parametrize(
    ("findings", "pods"),
    [
        ([BROKEN, BROKEN._replace(value="48")], {2: "XIDs: 79 on GPU 3"}),
        ([BROKEN, BROKEN._replace(pod=1, device="")], {1: "XIDs: 79", 2: "XIDs: 79 on GPU 3"}),
        ([BROKEN, BROKEN._replace(pod=0)], {}),
        ([BROKEN._replace(severity="degraded"), BROKEN._replace(state="unknown")], {}),
    ],
)
def test_who_is_unhealthy(findings: list[Finding], pods: dict[int, str]) -> None:
    assert unhealthy_pods(findings) == pods


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (LOST, 79),
        (failed(137), 79),
        (failed(143), 79),
        (failed(3), 3),
        (JobEnd(143, "told to end by SIGTERM"), 143),
        (JobEnd(130, "the cluster was released"), 130),
        (JobEnd(0, "done", origin="workload"), 0),
    ],
)
def test_no_end_of_a_job_looks_like_that_of_lost_pods(end: JobEnd, code: int) -> None:
    found = with_code_of_job(end, "")
    assert (found.code, found.what, found.where) == (code, end.what, end.where)
    assert found == end or (found.origin, f"in place of {end.code}" in found.why) == ("agent", True)


def test_a_job_that_makes_no_progress_has_a_code_that_kubernetes_does_not_answer() -> None:
    found = with_code_of_job(failed(1), "3 lives have not come further than step 5")
    assert (found.code, found.origin) == (80, "agent") and "in place of 1" in found.why


def life(step: int | None, code: int = 137, pod: int = 4, name: str = "a", *, lost: bool = False) -> LifeEnd:
    end = JobEnd(code, "rank 9 failed", f"pod {pod}, {name}", origin="workload")
    return LifeEnd(0.0, 1.0, 2.0, step, LOST if lost else end)


@pytest.mark.parametrize(
    ("lives", "why"),
    [
        ([life(10), life(20)], ""),
        ([life(10), life(10)], "life 1 ended in the same way at the same step, 10"),
        ([life(10, name="a"), life(30), life(10, name="b")], "life 1 ended in the same way at the same step, 10"),
        ([life(10), life(10, code=139)], ""),
        ([life(10), life(10, pod=5)], ""),
        ([life(10, lost=True), life(10, lost=True)], ""),
        ([life(None), life(None), life(None), life(None)], ""),
        ([life(10), life(9), life(8), life(7)], "3 lives have not come further than step 10"),
        ([life(10), life(9), life(8, lost=True), life(None), life(7)], "3 lives have not come further than step 10"),
        ([life(10), life(9), life(8), life(11), life(7)], ""),
        ([life(10), *[life(9, lost=True)] * 5], ""),
    ],
)
def test_a_run_that_gets_no_further_does_not_start_again(lives: list[LifeEnd], why: str) -> None:
    assert no_progress(lives) == why


def test_lives_are_told_from_runs_and_from_names() -> None:
    run = "torchrun-0a1b2c3d"
    assert life_id(run, 12) == f"{run}.12" and life_parts(f"{run}.12") == (run, 12)
    for other in (run, "night.2", f"{run}.0", f"{run}.2.3", f"my-{run}.2"):
        assert run_of(other) == other and life_parts(other)[1] == 1
