"""When a job is started anew and when it has ended: the rules that the chart renders, in a model of their controllers.

The codes are those with which real pods end: tests/cluster/test_chart.py has an evicted coordinator,
tests/lifecycle/test_signals.py an evicted worker, tests/cluster/test_told.py a Job that is suspended or deleted, and
tests/cluster/test_runs.py a program that fails.
"""

from __future__ import annotations

from itertools import combinations

from agent.errors import Exit
from tests.chart.helm import Engines, Object
from tests.chart.job_end import ENDED, REPLACED, STARTED_ANEW, Failed, pod, what_follows

RESTARTS = 3
LOST_PEER, TERMINATED = int(Exit.TRY_AGAIN), int(Exit.TERMINATED)
FINAL = sorted({*map(int, Exit), 1, 9, 126, 127, 134, 137, 139, 255} - {int(Exit.OK), LOST_PEER, TERMINATED})


def jobset(engines: Engines, *settings: str, restarts: int = RESTARTS) -> Object:
    return engines.with_settings(f"workload.max_workload_restarts={restarts}", *settings).jobset


def in_any_order(jobset: Object, pods: list[Failed]) -> set[str]:
    """What follows when the controller looks while only some of the pods have failed yet."""
    seen = [list(some) for count in range(1, len(pods) + 1) for some in combinations(pods, count)]
    return {what_follows(jobset, some) for some in seen}


EVICTIONS = {
    "the coordinator, which tells all others to end": [pod(143, evicted=True), pod(143), pod(143), pod(143)],
    "a worker, which the others then miss": [pod(75), pod(143, evicted=True), pod(75), pod(75)],
    "a worker that had no time to end": [pod(75), pod(137, evicted=True), pod(75), pod(75)],
    "a pod of which nothing is known any more": [pod(75), Failed({}, pod(0, evicted=True).conditions), pod(75)],
    "all, with their node pool": [pod(143, evicted=True)] * 4,
    "all, told to end by their controller": [pod(143)] * 4,
    "none, but a peer was lost": [pod(75)] * 4,
    "none, but an installer has failed": [Failed({"nccl-plugin-installer": 1}), pod(75), pod(75), pod(75)],
}


def test_an_evicted_pod_and_a_lost_peer_are_worth_a_restart(engines: Engines) -> None:
    found = {case: in_any_order(jobset(engines), pods) for case, pods in EVICTIONS.items()}
    assert found == {case: {STARTED_ANEW} for case in EVICTIONS}


def test_a_final_code_among_pods_that_miss_a_peer_is_final(engines: Engines) -> None:
    assert what_follows(jobset(engines), [pod(75), pod(137), pod(75), pod(75)]) == ENDED


def test_there_are_as_many_restarts_as_were_asked_for(engines: Engines) -> None:
    never, thrice = (jobset(engines, restarts=restarts) for restarts in (0, 3))
    lost = [pod(75)] * 4
    assert what_follows(never, lost) == ENDED
    assert [what_follows(thrice, lost, restarts) for restarts in range(5)] == [STARTED_ANEW] * 3 + [ENDED] * 2


def test_without_a_word_nothing_is_started_anew(engines: Engines) -> None:
    assert what_follows(engines.with_values().jobset, [pod(75)]) == ENDED


PAI, NEXT = (
    f"workload.run={model},volumes.nfs.ip=10.0.0.2" for model in ("pai-megatron-qwen3", "pai-megatron-qwen3-next")
)
RESTART_ON = {
    "": {75, 143},
    "workload.restartOn=null": {75, 143},
    "workload.restartOn={75}": {75, 143},
    "workload.restartOn={143,137,75,137}": {75, 137, 143},
    "workload.restartOn[2]=9": {9, 75, 143},
    "workload.restartOn={}": {75, 143},
    "workload.restartOn={137}": {75, 137, 143},
    "workload.restartOn={any}": {75, 143, *FINAL},
    "workload.restartOn={1,any}": {75, 143, *FINAL},
    PAI: {1, 75, 143},
    NEXT: {1, 75, 143},
    f"{PAI},workload.restartOn={{75}}": {75, 143},
}


def test_the_codes_of_the_values_are_those_that_start_it_anew(engines: Engines) -> None:
    for setting, codes in RESTART_ON.items():
        made = jobset(engines, setting)
        assert {code for code in (75, 143, *FINAL) if what_follows(made, [pod(code)] * 2) == STARTED_ANEW} == codes
        assert what_follows(made, [pod(137, evicted=True)]) == STARTED_ANEW, "an evicted pod, whatever its code"


LOST = [[pod(75)], [pod(137)], [pod(143)], [pod(75), pod(143)], [Failed({"nccl-plugin-installer": 1})]]
EVICTED = [pod(143, evicted=True), pod(3, evicted=True), Failed({}, pod(0, evicted=True).conditions)]


def test_with_lives_a_lost_pod_is_replaced(engines: Engines) -> None:
    """Once more often than a run starts again; after that the JobSet starts all pods anew."""
    made = jobset(engines, "workload.lives=2")
    assert {what_follows(made, pods, losses=losses) for pods in LOST for losses in range(3)} == {REPLACED}
    assert {what_follows(made, pods, losses=3) for pods in LOST} == {STARTED_ANEW}
    assert {what_follows(made, pods, RESTARTS, losses=3) for pods in LOST} == {ENDED}
    assert {what_follows(made, [pod], losses=1000) for pod in EVICTED} == {REPLACED}


def test_with_lives_the_job_ends_or_is_started_anew_by_the_codes_of_its_own(engines: Engines) -> None:
    over = int(Exit.LIVES_OVER)
    for setting, anew in {
        "workload.restartOn=null": {over},
        "workload.restartOn={75,137,143}": {over},
        "workload.restartOn={1,137}": {1, over},
        "workload.restartOn={13,9}": {9, 13, over},
        "workload.restartOn={any}": {*range(1, 256)} - {75, 137, 143},
        PAI: {1, over},
    }.items():
        made = jobset(engines, "workload.lives=1", setting)
        codes = {*range(1, 256)} - {75, 137, 143}
        assert {code for code in codes if what_follows(made, [pod(code), pod(75)]) == STARTED_ANEW} == anew
        assert {what_follows(made, [pod(code), pod(137)]) for code in codes - anew} <= {ENDED}


def test_the_codes_are_a_list_that_kubernetes_takes(engines: Engines) -> None:
    rules = engines.with_settings("workload.restartOn={143,9,75,9}").job["podFailurePolicy"]["rules"]
    (codes,) = [rule["onExitCodes"]["values"] for rule in rules if "onExitCodes" in rule]
    assert codes == sorted(set(codes)), "in order, and each once"
