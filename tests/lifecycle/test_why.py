"""When a run that stands still is looked at: by itself, before somebody ends it, never when it is told to end."""

from __future__ import annotations

import errno
import re
from functools import partial
from typing import Any

import pytest

from agent.clinic.why.records import Frame, GroupProgress, Operation, Process, Thread
from agent.decide.messages import Evidence, message
from agent.errors import Exit
from agent.lifecycle.waits import BEAT_SECONDS
from tests.fake.process import FOREVER, Life
from tests.fake.world import FakeWorld
from tests.lifecycle.test_submitted import ends, running, sleeping

LATE, LIMIT = 2, 300.0
SENTENCE = f"rank {LATE} (pod {LATE}, pid 102) has not entered all_reduce #5, which 3 ranks wait in"
MOST_SECONDS = 5.0


def stack(late: bool) -> tuple[Thread, ...]:
    reduces = Frame("all_reduce", "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py", 2800)
    loads = Frame("load_batch", "/workload/train.py", 15)
    return (Thread("MainThread", (*(() if late else (reduces,)), loads)),)


def process(index: int, step: int = 4) -> Process:
    """All ranks but LATE have come to one operation after the step."""
    entered = step if index == LATE else step + 1
    progress = GroupProgress("0", "gloo", entered, recent=(Operation(entered, "all_reduce"),), ranks=(0, 1, 2, 3))
    threads = stack(index == LATE)
    return Process(100 + index, 1, "S", "rank", index, groups=(progress,), threads=threads)


def stepping(world: FakeWorld, step: int = 4) -> None:
    for pod in world.pods:
        pod.processes = (process(pod.index, step),)


def standing_still(**each: Any) -> tuple[FakeWorld, str]:
    """A run whose ranks wait for one of them; its id."""
    world = sleeping(**{"life": FOREVER, **each})
    stepping(world)
    return world, world.submit(1, "script")


def said(world: FakeWorld, words: str) -> int:
    return world.pod(0).log.getvalue().count(words)


def looked(world: FakeWorld, run: str) -> bool:
    return any(f"/run/a4-agent/runs/{run}/evidence.txt" in pod.files_now for pod in world.pods)


def cancelled(world: FakeWorld, run: str, **fields: Any) -> float:
    """How long it took from the wish to end it until its processes were told."""
    before = world.seconds
    world.ask(1, "cancel", run=run, **fields)
    children = [pod.agent.children[-1] for pod in world.pods]
    world.until(lambda: all(child.signals for child in children))
    return world.seconds - before


def test_of_a_command_nobody_counts_ranks() -> None:
    """What it starts is not known: ranks that are not seen have not ended."""
    world = sleeping(life=FOREVER)
    for pod in world.pods:
        pod.processes = (process(pod.index)._replace(role="other", rank=None, groups=()),)
    run = world.submit(1, "exec", args=["sleep", "100"])
    found = world.ask(3, "why", run=run, records=True)["ok"]
    assert (found["ranks"], len(found["pods"])) == (None, len(world.pods))


def test_ras_is_asked_at_the_port_that_the_ranks_of_this_run_were_given() -> None:
    world, run = standing_still()
    world.ask(1, "why", run=run)
    for pod in world.pods:
        given = pod.agent.children[-1].launch.env["NCCL_RAS_ADDR"]
        assert given and [look.ras for look in pod.looks] == [given]


def test_nothing_is_told_of_what_cannot_be_masked() -> None:
    """A secret that is one of our own words: with what stands in its place the record cannot be read."""
    world = sleeping(life=FOREVER, last={"A4_SECRET_ENV": "MINE", "MINE": "launcher"})
    for pod in world.pods:
        pod.processes = (process(pod.index)._replace(role="launcher"),)
    found = world.ask(1, "why", run=world.submit(1, "script"), records=True)["ok"]
    told = {pod["pod"]: (len(pod["processes"]), [source["why"] for source in pod["sources"]]) for pod in found["pods"]}
    assert told[3][0] == 0 and "cannot be masked" in told[3][1][0], told


# Silence


def test_silence_is_looked_into_once_and_ends_nothing() -> None:
    world, run = standing_still()
    world.wait(LIMIT)
    assert not looked(world, run)
    world.wait(LIMIT * 4)
    goes_on = f"{run} has printed nothing for"
    assert said(world, goes_on) == said(world, SENTENCE) == 1, world.dump()
    world.pod(3).agent.children[-1].output(1, b"step 5\n")
    world.wait(LIMIT * 3)
    assert said(world, goes_on) == 2, "another silence is news"
    for pod in world.pods:
        pod.agent.children[-1].die(0)
    assert ends(world, 1, run)["end"]["code"] == 0
    assert world.ask(1, "why", run=run)["ok"]["diagnosis"] is None, "what it was silent for is over"


def test_what_was_found_in_silence_is_kept_for_a_run_that_fails_later() -> None:
    world, run = standing_still()
    world.wait(LIMIT * 2)
    world.pod(1).agent.children[-1].die(1)
    ends(world, 1, run)
    found = world.ask(3, "why", run=run)["ok"]["diagnosis"]
    assert SENTENCE in found["sentence"] and found["trigger"] == "silence"


def test_a_silence_that_ended_is_not_why_a_run_fails_later() -> None:
    world, run = standing_still()
    world.wait(LIMIT * 2)
    assert said(world, SENTENCE) == 1
    world.pod(3).agent.children[-1].output(1, b"step 5\n")
    world.wait(30)
    world.pod(1).agent.children[-1].die(1)
    ends(world, 1, run)
    assert world.ask(3, "why", run=run)["ok"]["diagnosis"] is None


@pytest.mark.parametrize(
    ("silence", "status", "words"),
    [
        (15, "moves", "no operation for 1\\d s; before, one every 2\\d s: rank 2 "),
        (45, "waits", "no operation for 4\\d s; before, one every 2\\d s: rank 2 "),
        (80, "hangs", "rank 2 .*; no operation for [78]\\d s; before, one every 2\\d s$"),
    ],
)
def test_a_rank_that_has_not_entered_hangs_when_that_takes_longer_than_ever(
    silence: int, status: str, words: str
) -> None:
    """Steps of 25 s are seen 20 or 30 s apart."""
    world, run = standing_still()
    for number in range(1, 11):
        world.at(world.seconds + 25 * number, partial(stepping, world, 4 + number))
    world.wait(250 + silence)
    found = world.ask(3, "why", run=run)["ok"]["diagnosis"]
    assert found["status"] == status and re.search(words, found["sentence"]), found
    assert [one["rank"] for one in found["culprits"]] == ([] if status == "moves" else [LATE])


def test_ranks_of_mpi_hang_when_they_are_silent_for_longer_than_ever() -> None:
    """They have no recorder: lines that the run prints stand for operations."""
    world, run = standing_still()
    for pod in world.pods:
        (rank,) = pod.processes
        threads = (
            stack(True)
            if pod.index == LATE
            else (Thread("MainThread", (Frame("MPI_Barrier", "libmpi.so"), *stack(True)[0].frames)),)
        )
        pod.processes = (rank._replace(groups=(), threads=threads, stays=True),)
    for second in range(0, 200, 40):
        world.at(world.seconds + second, lambda: world.pod(0).agent.children[-1].output(1, b"step\n"))
    world.wait(180)
    found = world.ask(3, "why", run=run)["ok"]["diagnosis"]
    assert found["status"] == "moves" and found["sentence"].startswith("no line of output for 2"), found
    world.wait(60)
    found = world.ask(3, "why", run=run)["ok"]["diagnosis"]
    assert found["status"] == "hangs" and "before, one every 40 s" in found["sentence"], found


def test_a_silent_run_whose_numbers_move_is_healthy() -> None:
    world, run = standing_still()
    for second in range(0, 1200, 20):
        world.at(world.seconds + second, partial(stepping, world, second))
    world.wait(1100)
    assert looked(world, run) and not said(world, "printed nothing"), world.dump()


@pytest.mark.parametrize("env", [{"A4_WHY": "false"}, {"A4_WHY_SECONDS": "0"}])
def test_silence_is_left_alone_where_that_is_wished(env: dict[str, str]) -> None:
    world, run = standing_still(env=env)
    world.wait(LIMIT * 3)
    assert not looked(world, run)


@pytest.mark.parametrize("health", ["true", "false"])
def test_a_look_that_comes_after_the_end_changes_nothing(health: str) -> None:
    """The pod that looks is the last that the run waits for, but for the devices."""
    world, run = standing_still(env={"A4_RUN_HEALTH": health})
    world.pod(3).life = Life(seconds=None, term_seconds=3.0)
    world.pod(3).evidence_seconds = 8.0
    world.until(lambda: looked(world, run))
    world.pod(1).agent.children[-1].die(1)
    ends(world, 1, run)
    world.wait(LIMIT * 2)
    assert not said(world, "printed nothing"), world.dump()
    assert world.ask(1, "why", run=run)["ok"]["diagnosis"] is None
    assert f"/run/a4-agent/runs/{run}/evidence.txt" not in world.pod(3).files_now


# Limits


def test_the_first_limit_that_is_hit_counts() -> None:
    """The second is hit while pods are asked. What pods say is masked, and a full disk costs only the file."""
    world = sleeping(life=FOREVER, evidence_seconds=8.0, last={"A4_SECRET_ENV": "MINE", "MINE": "stacks of pod"})
    run = world.submit(1, "script", timeout=100, stall=101)
    world.pod(3).hangs = "rank 3: in the stacks of pod 3"
    world.pod(2).failing = {f"/run/a4-agent/runs/{run}/evidence.txt": errno.ENOSPC}
    end = ends(world, 1, run)["end"]
    assert (end["code"], said(world, "asking every pod")) == (Exit.TIME_LIMIT, 1) and "time limit of 100 s" in end[
        "what"
    ], end
    assert "pod 3: rank 3: in the *** 3" in end["why"] and "pod 2: rank 2 hangs" in end["why"], end
    assert world.pod(3).files_now[f"/run/a4-agent/runs/{run}/evidence.txt"].startswith("*** 3"), world.dump()


@pytest.mark.parametrize("seconds", [103.0, None])
def test_a_run_that_ends_while_it_is_asked_about_ends_as_it_does(
    seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stays is ended, also when a bug keeps us from deciding why it hangs."""
    monkeypatch.setattr("agent.lifecycle.runs.why.diagnose", lambda seen: 1 / 0)
    world = sleeping(life=Life(seconds=seconds), evidence_seconds=8.0)
    end = ends(world, 1, world.submit(1, "script", timeout=100))["end"]
    assert end["code"] == (Exit.TIME_LIMIT if seconds is None else 0), world.dump()
    assert end["why"].startswith("cannot tell: the decision failed") == (seconds is None), end


# Before somebody ends it


@pytest.mark.parametrize("evidence_seconds", [1.0, 4.0, None])
@pytest.mark.parametrize("is_asked_for", [False, True])
def test_a_silent_run_is_looked_at_before_it_is_ended(evidence_seconds: float | None, is_asked_for: bool) -> None:
    """However slow pods are, and also when a longer look goes on."""
    world, run = standing_still()
    world.pod(1).evidence_seconds = evidence_seconds
    world.wait(70)
    client = world.pod(3).agent.client()
    asked = client.ask("why", run=run) if is_asked_for else None
    world.wait(0.1)
    assert cancelled(world, run) < MOST_SECONDS, world.dump()
    end = ends(world, 1, run)["end"]
    assert end["code"] == 130
    if evidence_seconds == 1.0:
        assert SENTENCE in end["why"], end
        assert world.ask(1, "why", run=run)["ok"]["diagnosis"]["trigger"] == "cancel"
    if asked is not None:
        world.until(lambda: asked in client.answers)
        assert "ok" in client.answers[asked]


def test_a_run_that_prints_and_one_in_a_hurry_are_ended_at_once() -> None:
    world, run = standing_still()
    world.wait(70)
    world.pod(2).agent.children[-1].output(1, b"step\n")
    world.wait(10)
    assert cancelled(world, run) < 1 and not looked(world, run)
    ends(world, 1, run)
    again = world.submit(1, "script")
    world.wait(70)
    assert cancelled(world, again, hurry=True) < 1 and not looked(world, again)


def test_a_job_that_is_told_to_end_is_not_looked_at() -> None:
    world = FakeWorld(4, "script", life=Life(seconds=None, term_seconds=5))
    stepping(world)
    world.until_event("run-started")
    world.wait(70)
    before = world.seconds
    world.pod(0).signal()
    world.until(lambda: bool(world.pod(1).agent.children[-1].signals))
    assert world.seconds - before < 1
    world.run()
    assert not any(name.endswith("evidence.txt") for pod in world.pods for name in pod.files_now)


# Answers


def test_a_pod_that_is_lost_during_a_look_and_one_of_another_release() -> None:
    world, run = running("exec")
    world.pod(2).evidence_seconds = None
    client = world.pod(1).agent.client()
    number = client.ask("why", run=run, records=True)
    odd = message(Evidence(run, "", {"pod": "three"}))
    world.at(world.seconds + 2, lambda: world.slip_in(odd, 3))
    world.at(world.seconds + 1, world.pod(2).kill)
    world.until(lambda: number in client.answers)
    found = client.answers[number]["ok"]
    assert [pod["pod"] for pod in found["pods"]] == [0, 1]
    assert "cannot be read (name is missing)" in found["silent"]["3"] and "2" in found["silent"], found


def test_what_a_pod_said_before_its_part_was_over_counts() -> None:
    world, run = running("exec")
    world.pod(2).evidence_seconds = 4.0
    world.at(world.seconds + 2, lambda: world.pod(3).agent.children[-1].die(0))
    found = world.ask(1, "why", run=run, records=True)["ok"]
    assert {pod["pod"] for pod in found["pods"]} == {0, 1, 2, 3}


def test_a_pod_that_does_not_answer_is_named_in_time() -> None:
    """One that is a little late is waited for."""
    world, run = standing_still()
    world.pod(3).evidence_seconds = 9.5
    world.wait(1)
    world.pod(2).pause(25)
    found = world.ask(1, "why", run=run, records=True)["ok"]
    assert found["silent"] == {"2": "it did not answer in time"}, world.dump()
    assert [len(pod["processes"]) for pod in found["pods"]] == [1, 1, 1]


# What torch's watchdog left


def ended_by_the_watchdog(**each: Any) -> tuple[FakeWorld, str]:
    """A run whose ranks have written dumps and were killed; its id."""
    world, run = standing_still(**each)
    world.wait(20)
    for pod in world.pods:
        (seen,) = pod.processes
        (group,) = seen.groups
        left = group._replace(backend="nccl", completed=4)
        pod.processes = (seen._replace(state="gone", threads=(), groups=(left,)),)
        pod.agent.files[f"/run/a4-agent/runs/{run}/why/dump-{pod.index}"] = ""
    world.pod(LATE - 1).agent.children[-1].die(-6)
    return world, run


def test_dumps_say_who_held_up_the_ranks_that_the_watchdog_ended() -> None:
    world, run = ended_by_the_watchdog()
    end = ends(world, 1, run)["end"]
    assert end["code"] == 134 and end["why"].startswith(SENTENCE), world.dump()
    found = world.ask(3, "why", run=run)["ok"]["diagnosis"]
    assert (found["trigger"], [one["fault"] for one in found["culprits"]]) == ("watchdog", ["behind"])


@pytest.mark.parametrize(("is_cancelled", "most"), [(False, 10), (True, MOST_SECONDS)])
def test_a_pod_that_cannot_read_its_dump_holds_the_end_up_for_seconds_only(is_cancelled: bool, most: float) -> None:
    """It is not waited for when somebody ends the run."""
    world, run = ended_by_the_watchdog(evidence_seconds=None)
    before = world.seconds
    if is_cancelled:
        world.wait(1)
        world.ask(1, "cancel", run=run)
    end = ends(world, 1, run)["end"]
    assert end["code"] == 134 and "killed by SIGABRT" in end["what"] and world.seconds - before < most, world.dump()


def test_dumps_of_a_pod_that_is_lost_are_not_waited_for() -> None:
    """Where pods do not need each other the run has gone on without it."""
    world, run = running("exec")
    world.pod(2).agent.files[f"/run/a4-agent/runs/{run}/why/dump-2"] = ""
    world.pod(2).agent.children[-1].die(-6)
    world.wait(1)
    world.pod(2).kill()
    world.wait(60)
    assert world.ask(1, "why", run=run, records=True)["ok"]["silent"]["2"].startswith("silent for")
    before = world.seconds
    for pod in world.others(2):
        pod.agent.children[-1].die(0)
    assert ends(world, 1, run)["end"]["code"] == 75, world.dump()
    assert world.seconds - before < MOST_SECONDS


# Runs with a rank that somebody is to start (`--without`): they are silent for as long as that takes


LIMITS = {"A4_WHY_SECONDS": "60", "A4_STALL_TIMEOUT_SECONDS": "100"}


def waiting(world: FakeWorld, **wish: object) -> str:
    """A run of one rank on each pod, which waits for rank 1; its id."""
    world.every(life=FOREVER)
    return world.submit(0, "torchrun", args=["train.py"], without=1, per_node=1, **wish)


def test_nobody_comes() -> None:
    world = sleeping(env=LIMITS)
    run = waiting(world)
    world.wait(600)
    assert "printed nothing" not in world.pod(0).log.getvalue()
    (holder,) = [pod for pod in world.pods if f"/run/a4-agent/runs/{run}/start-rank-1" in pod.files_now]
    assert holder.agent.files[f"/run/a4-agent/runs/{run}/start-rank-1"].startswith("#!/bin/sh\nexec ")
    holder.agent.files[f"/run/a4-agent/runs/{run}/ranks/1"] = "nobody\n"
    holder.agent.children[-1].die(1)
    end = ends(world, 0, run)["end"]
    assert (end["code"], end["what"]) == (Exit.PEERS_MISSING, "nobody has started rank 1 within 600 s"), world.dump()
    assert f"pod {holder.index}, " in end["where"] and f"/run/a4-agent/runs/{run}/start-rank-1" in end["why"]


@pytest.mark.parametrize(("workload", "prints", "late"), [("mpirun", 0.0, 0.0), ("torchrun", 99.9, BEAT_SECONDS)])
def test_a_limit_of_silence_counts_from_the_last_line_of_any_pod(workload: str, prints: float, late: float) -> None:
    """What a worker has printed is known with its next beat. Of an MPI run mpirun alone prints, here on pod 0: it is
    not waited for. The end's reason begins with who held it up."""
    world = sleeping(env=LIMITS, life=FOREVER)
    stepping(world)
    run = world.submit(1, workload, args=["train.py"], per_node=1)
    begun = world.seconds
    world.wait(prints)
    if prints:
        world.pod(1).agent.children[-1].output(1, b"step 1\n")
    world.until(lambda: bool(said(world, "hit the limit of 100 s without a line of output")))
    assert 100 <= world.seconds - begun - prints < 100.1 + late, world.dump()
    assert ends(world, 0, run)["end"]["why"].startswith(SENTENCE), world.dump()


def test_a_limit_that_was_typed_counts() -> None:
    world = sleeping(env=LIMITS)
    run = waiting(world, stall=200)
    assert ends(world, 0, run)["end"]["code"] == Exit.TIME_LIMIT, world.dump()


@pytest.mark.parametrize("wish", [{"workload": "ddp"}, {"workload": "exec", "args": ["true"]}])
def test_other_workloads_start_all_ranks(wish: dict[str, object]) -> None:
    refused = sleeping().ask(0, "submit", spec={"by": "somebody", "without": 1, **wish})
    assert refused["error"]["code"] == Exit.USAGE and "does not support --without" in str(refused), refused
