"""A process of a run fails: the verdict asks first whether a lost pod is why, or a process that has not failed yet."""

from __future__ import annotations

from collections.abc import Sequence
from signal import SIGKILL, SIGTERM

import pytest

from agent.lifecycle.runs.running import FAILING_SECONDS
from agent.lifecycle.waits import BEAT_SECONDS
from tests.decide.test_torch_failures import CLOSED, OOM, entry, summary
from tests.fake.process import STUBBORN
from tests.fake.world import USUAL, FakeWorld
from tests.lifecycle.test_submitted import ends, running
from tests.lifecycle.test_told import ENV, SAVES, Tell, by_cancel, by_ctrl_c, by_sigterm, signals

LEASE = USUAL.lease
BEATS = 2 * BEAT_SECONDS
MISSED = summary(entry(0, 0, 1, CLOSED), entry(1, 1, -15))
"""What torchrun prints where a rank has missed another."""
KILLED = summary(entry(0, 2, -9))


def fail(world: FakeWorld, index: int, status: int = 1, said: str = "", seconds: float = 0.5) -> None:
    """The process of this pod fails after that time."""
    child = world.pod(index).agent.children[-1]
    world.clock.after(seconds, lambda: child.output(2, said.encode()))
    world.clock.after(seconds, lambda: child.die(status))


def lose(world: FakeWorld, how: str, *indices: int) -> None:
    for index in indices:
        if how == "killed":
            world.pod(index).kill()
        elif how == "cut off":
            world.net.isolate(index)
        else:
            world.pod(index).pause(2 * LEASE)


@pytest.mark.parametrize("how", ["killed", "cut off", "stopped"])
@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("script", ""),
        ("torchrun", MISSED),
        ("torchrun", summary(entry(0, 0, 1, OOM))),
        ("ddp", MISSED),
        ("collectives", MISSED),
    ],
)
def test_a_lost_pod_is_75_however_fast_the_others_fail(workload: str, said: str, how: str) -> None:
    world, run_id = running(workload)
    lost = world.seconds
    lose(world, how, 2)
    for index in (0, 1, 3):
        fail(world, index, said=said)
    told = ends(world, 1, run_id)
    end = told["end"]
    assert (end["code"], end["origin"], end["where"]) == (75, "agent", world.pod(2).where), world.dump()
    assert world.seconds < lost + LEASE + BEATS
    assert "pod 0, " in end["why"] and "failed" in end["why"] and told["lost"].keys() == {"2"}
    assert "pods 0-1,3 ended because of it" in end["why"]
    assert "no answer since from pod 2; " in world.pod(0).log.getvalue()


@pytest.mark.parametrize("fails", [0, 1, 3])
@pytest.mark.parametrize("exclude", [(), ("0",)])
def test_two_lost_pods_are_both_named_and_the_others_are_ended_meanwhile(fails: int, exclude: Sequence[str]) -> None:
    world, run_id = running(pods=6, exclude=exclude if fails else ())
    lost = world.seconds
    lose(world, "killed", 2)
    lose(world, "cut off", 4)
    fail(world, fails)
    world.until(lambda: world.pod(5).workloads()[-1][1] == [15])
    assert world.seconds < lost + 2
    end = ends(world, 1, run_id)["end"]
    assert (end["code"], end["where"]) == (75, world.pod(2).where), world.dump()
    assert f"{world.pod(4).where}, was lost too: silent for " in end["why"]


def test_a_pod_that_is_lost_after_its_part_was_done_is_asked_too() -> None:
    world, run_id = running()
    fail(world, 3, 0)
    world.wait(5)
    lose(world, "cut off", 3)
    fail(world, 1)
    assert ends(world, 1, run_id)["end"]["where"].startswith("pod 3, "), world.dump()


def test_a_pod_that_left_after_its_part_was_done_is_not_waited_for() -> None:
    world, run_id = running()
    fail(world, 3, 0)
    world.wait(5)
    world.pod(3).signal()
    world.wait(5)
    fail(world, 1)
    failed = world.seconds
    end = ends(world, 1, run_id)["end"]
    assert (end["code"], world.seconds < failed + 5) == (75, True), world.dump()
    assert end["where"].startswith("pod 3, ")


def test_the_pod_that_fails_may_itself_be_lost() -> None:
    """As when memory runs out: the kernel kills the workload, then the agent."""
    world, run_id = running()
    world.net.mute.add((0, 2))
    fail(world, 2, -9)
    world.wait(2)
    lose(world, "killed", 2)
    end = ends(world, 1, run_id)["end"]
    assert (end["code"], end["where"]) == (75, world.pod(2).where), world.dump()
    assert "was killed by SIGKILL" in end["why"]


@pytest.mark.parametrize("away", [5.0, LEASE - 5])
def test_a_pod_that_is_back_before_its_lease_is_over_was_not_lost(away: float) -> None:
    world, run_id = running()
    lose(world, "cut off", 2)
    fail(world, 1, 7)
    world.clock.after(away, lambda: world.net.heal(2))
    back = world.seconds + away
    told = ends(world, 1, run_id)
    assert (told["end"]["code"], told["lost"]) == (7, {}), world.dump()
    late = f"pods that did not answer at first when a process failed: {world.pod(2).where}, for "
    assert late in told["text"], told
    assert back < world.seconds < back + 10
    assert world.pod(2).workloads()[-1][1] == [15]


def test_a_pod_that_was_told_to_end_and_is_heard_only_after_the_others_have_failed() -> None:
    world, run_id = running()
    lose(world, "cut off", 2)
    world.pod(2).signal()
    fail(world, 1)
    world.clock.after(5, lambda: world.net.heal(2))
    end = ends(world, 1, run_id)["end"]
    assert (end["code"], end["what"]) == (75, "a worker pod was told to end by SIGTERM"), world.dump()
    assert "failed" in end["why"]


@pytest.mark.parametrize("tell", [by_sigterm, by_ctrl_c, by_cancel])
def test_a_run_that_waits_for_a_lost_pod_can_be_told_to_end(tell: Tell) -> None:
    world, _ = running()
    lose(world, "killed", 3)
    fail(world, 1)
    world.wait(3)
    told = world.seconds
    code = 143 if tell(world) == 143 else 1  # who cancels it hides no failure
    world.until(lambda: world.pod(0).state()["runs"][-1].get("code") == code)
    assert world.seconds < told + 10, world.dump()
    assert code == 143 or world.pod(0).state()["runs"][-1]["what"].endswith(" failed"), world.dump()


def test_a_rank_is_named_whose_torchrun_was_slower_than_those_that_missed_it() -> None:
    world, run_id = running("torchrun")
    fail(world, 0, said=MISSED)
    fail(world, 3, said=MISSED, seconds=3)
    fail(world, 2, said=KILLED, seconds=FAILING_SECONDS - 1)
    end = ends(world, 1, run_id)["end"]
    assert (end["what"], end["where"]) == ("rank 2 was killed by SIGKILL", world.pod(2).where), world.dump()
    assert [pod.workloads()[-1][1] for pod in world.pods] == [[], [15], [], []]


def test_a_pod_that_was_told_to_end_after_ranks_of_others_have_missed_its() -> None:
    world, run_id = running("torchrun")
    fail(world, 0, said=MISSED, seconds=0)
    world.wait(2)
    world.pod(2).signal()
    end = ends(world, 1, run_id)["end"]
    assert (end["code"], end["where"]) == (75, world.pod(2).where), world.dump()
    assert "rank 0 failed" in end["why"]


def test_a_limit_that_is_still_looked_into_does_not_explain_a_failure() -> None:
    world, run_id = running("torchrun", env={"A4_WORKLOAD_TIMEOUT_SECONDS": "60"})
    world.every(evidence_seconds=8.0)
    fail(world, 0, said=MISSED, seconds=60)
    end = ends(world, 1, run_id)["end"]
    assert "hit the time limit" in world.pod(0).log.getvalue()
    assert end["code"] == 1 and "limit" not in end["what"], world.dump()


def test_ranks_that_only_missed_another_are_not_waited_for_longer_than_that() -> None:
    world, run_id = running("torchrun")
    fail(world, 3, said=MISSED, seconds=0)
    before = world.seconds
    end = ends(world, 1, run_id)["end"]
    assert (end["code"], end["where"]) == (1, world.pod(3).where), world.dump()
    assert "every rank that failed only missed another one" in end["why"]
    assert FAILING_SECONDS < world.seconds - before < FAILING_SECONDS + 1


def test_a_rank_that_torch_aborts_at_its_end_is_told_what_to_call() -> None:
    """What libstdc++ prints then, of torch 2.13 over gloo."""
    world, run_id = running("torchrun")
    fail(world, 3, said="terminate called without an active exception\n" + summary(entry(0, 3, -6)), seconds=0)
    end = ends(world, 1, run_id)["end"]
    assert "rank 3 was killed by SIGABRT" in end["what"]
    assert "torch.distributed.barrier()" in end["why"]


@pytest.mark.parametrize("said", [KILLED, summary(entry(0, 0, 1, OOM))])
def test_a_plain_failure_costs_a_moment(said: str) -> None:
    world, run_id = running("torchrun")
    before = world.seconds
    fail(world, 2, said=said, seconds=0)
    assert ends(world, 1, run_id)["end"]["code"] == 1
    assert world.seconds < before + 0.5, world.dump()


def test_being_told_to_end_while_ranks_miss_another_leaves_the_grace_time() -> None:
    world, run_id = running("torchrun", env=ENV, life=SAVES)
    fail(world, 0, said=MISSED)
    world.wait(FAILING_SECONDS - 1)
    world.ask(1, "cancel", run=run_id)
    assert ends(world, 1, run_id)["end"]["code"] == 1
    assert signals(world) == [[], [15], [15], [15]], world.dump()


@pytest.mark.parametrize(("workload", "patience"), [("find-slow", 0.0), ("script", 10.0)])
def test_who_has_nothing_to_save_is_not_waited_for(workload: str, patience: float) -> None:
    """A process that is stopped, say, does not hold up the verdict of a run in which another has failed."""
    world, run_id = running(workload, life=STUBBORN)
    fail(world, 1, 65)
    failed = world.seconds
    end = ends(world, 1, run_id)["end"]
    assert end["code"] == 65, world.dump()
    assert patience <= world.seconds - failed < patience + 2, world.dump()
    assert signals(world)[2] == [SIGTERM, SIGKILL]
