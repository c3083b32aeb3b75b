"""Waits for facts in a shared directory, on a fake one that shows old contents and is full of old facts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from agent.decide.sync.beats import LEADER_SECONDS, STALLED_SECONDS, beat_seconds
from agent.decide.sync.facts import Fact, FactPlace, job_directory, write_fact
from agent.decide.sync.waiting import FactWait, WaitOutcome
from agent.lifecycle.sharing.waiting import await_facts
from agent.lifecycle.waits import REPORT_SECONDS
from agent.machine.shared_files import SharedAnswer
from tests.fake.clock import EPOCH, Clock
from tests.fake.shared import CACHED_SECONDS, MOST_DELAY, FakeFiles, FakePod, Folders, begin

JOB = job_directory("uid.0.0", "")
LEASE = 10.0
HEARD_SECONDS, WAIT_SECONDS = 20.0, 40.0
NO_OUTCOME = WaitOutcome(-1)
RUNS = 1000


@dataclass
class Told:
    """What became of one wait."""

    outcome: WaitOutcome = NO_OUTCOME
    at: float = 0.0
    said: list[str] = field(default_factory=list)


class World:
    """Pods of one job around a shared directory."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = Clock()
        self.draw = random.Random(seed)
        self.server: Folders = {JOB: {}}
        self.start = ""
        """The newest of pod 0."""
        self.true: list[tuple[float, str]] = []
        """When which start of pod 0 has really set the fact, or said that it has failed."""
        self.alive: dict[str, tuple[float, float]] = {}
        """Starts of pod 0: their first beat, and the last so far."""
        self.files: list[FakeFiles] = []

    def nonce(self) -> str:
        return f"{self.draw.getrandbits(128):032x}"

    def pod(self) -> tuple[FakePod, FakeFiles]:
        pod = FakePod(self.clock)
        self.files.append(FakeFiles(self.clock, pod, self.server, self.draw))
        return pod, self.files[-1]

    def beats(self, index: int, at: float = 0.0) -> FakePod:
        """A pod that beats from then on until it is dead; one that was stopped for a lease ends itself."""
        pod, files = self.pod()
        nonce = self.nonce()
        if index == 0:
            self.start = nonce
        start = f"pod.{index}.{nonce}."
        seconds = beat_seconds(LEASE, 4, leads=index == 0)
        last = float("inf")

        def beat(count: int) -> None:
            nonlocal last
            now = self.clock.now
            if now - last > LEASE:
                return
            last = now

            def done(answer: SharedAnswer) -> None:
                if index == 0:
                    self.alive[nonce] = self.alive.get(nonce, (now, now))[0], self.clock.now
                pod.later(seconds, lambda: beat(count + 1))

            if count == 0:
                self.server.setdefault(f"{JOB}/{nonce}", {})
                files.put(JOB, f"{start}0", "", float("inf"), done)
            else:
                files.move(JOB, f"{start}{count - 1}", f"{start}{count}", float("inf"), done)

        pod.later(at, lambda: beat(0))
        return pod

    def sets(self, pod: FakePod, at: float, fact: Fact) -> None:
        files = FakeFiles(self.clock, pod, self.server, self.draw)
        nonce = self.start
        place = FactPlace(JOB, nonce)

        def put() -> None:
            if not pod.dead:
                self.true.append((self.clock.now, nonce))
                files.put(place.directory, fact.file, write_fact(fact, place), float("inf"), lambda _: None)

        pod.later(at, put)

    def waits(
        self, pods: set[int], at: float = 0.0, name: str = "x", start: str = "", fresh: bool = False
    ) -> tuple[FakePod, Told]:
        pod, files = self.pod()
        told = Told()

        def ended(outcome: WaitOutcome) -> None:
            assert told.outcome.code < 0, "told twice"
            told.outcome, told.at = outcome, self.clock.now

        def start_waiting() -> None:
            now = self.clock.now
            heard_by, ends = now + HEARD_SECONDS, now + WAIT_SECONDS
            wait = FactWait(name, pods, job=JOB, lease=LEASE, heard_by=heard_by, ends=ends, fresh=fresh, start=start)
            begin(await_facts(wait, 4, told.said.append, now=pod.now, chance=self.draw.random), pod, files, ended)

        pod.later(at, start_waiting)
        return pod, told

    def run(self, seconds: float = 200.0, until: Callable[[], bool] = lambda: False) -> None:
        while not until() and self.clock.step(seconds):
            pass

    def litter(self) -> None:
        """What earlier runs, attempts and starts may have left, and copies of it in wrong places."""
        old = [self.nonce() for _ in range(self.draw.randint(0, 3))]
        texts = ["", "{}\n", "x" * 3000, "{}\n" + "0" * 64 + "\n"]
        for start in old:
            self.server[JOB][f"pod.0.{start}.{self.draw.randint(0, 10**6)}"] = ""
            facts = [Fact("x", pod, failed) for pod in range(3) for failed in (False, True) if self.draw.random() < 0.5]
            for fact in facts:
                texts.append(write_fact(fact, FactPlace(JOB, start)))
                self.server.setdefault(f"{JOB}/{start}", {})[fact.file] = self.draw.choice([texts[-1], *texts])
        self.texts = texts


def test_a_fact_is_seen_soon() -> None:
    world = World()
    leader = world.beats(0)
    told = [world.waits({0}, at)[1] for at in (0.0, 3.0, 29.0)]
    world.sets(leader, 20.0, Fact("x", 0))
    world.run()
    assert [one.outcome for one in told] == [WaitOutcome(0)] * 3
    delay = 4 * MOST_DELAY
    assert all(20.0 < one.at - EPOCH <= 20.0 + 1.2 + delay for one in told[:2])
    assert told[2].at - EPOCH <= 29.0 + 3 * LEADER_SECONDS + 3 * delay  # it had to hear pod 0 first


def test_a_full_set_of_old_facts_is_no_pass() -> None:
    world = World()
    old = world.nonce()
    world.server[JOB][f"pod.0.{old}.77"] = ""
    world.server[f"{JOB}/{old}"] = {
        fact.file: write_fact(fact, FactPlace(JOB, old)) for fact in (Fact("x", pod) for pod in range(4))
    }
    _, alone = world.waits({0})
    world.run()
    assert alone.outcome.code == 69
    assert "pod 0 has not come" in alone.outcome.what
    assert alone.at - EPOCH < (HEARD_SECONDS + WAIT_SECONDS) / 2
    world.beats(0)
    world.server[f"{JOB}/{world.start}"] = dict(world.server[f"{JOB}/{old}"])  # copied, too
    _, beside = world.waits({0})
    world.run(400)
    assert beside.outcome.code == 73
    assert f"it belongs to {JOB}/{old}/done.x.0" in beside.outcome.what


def test_failure_comes_before_done() -> None:
    world = World()
    leader = world.beats(0)
    world.beats(1)
    world.sets(leader, 5.0, Fact("x", 0))
    world.sets(leader, 5.0, Fact("x", 1, failed=True, code=7, message="no space"))
    _, told = world.waits({0}, 6.0)
    world.run()
    assert told.outcome == WaitOutcome(7, "pod 1 says that x failed: no space")


@pytest.mark.parametrize(("whose", "awaited"), [(0, {0}), (2, {0, 2}), (0, {2})])
def test_a_pod_that_dies_ends_the_wait_within_its_lease(whose: int, awaited: set[int]) -> None:
    world = World()
    pods = {index: world.beats(index) for index in sorted({0, *awaited})}
    _, told = world.waits(awaited)
    world.run(15.0)
    pods[whose].dead = True
    world.run()
    assert told.outcome.code == 75
    assert told.outcome.what.startswith(f"pod {whose} (for 1")
    assert told.at - EPOCH <= 15.0 + LEASE + 5.0


def test_pod_0_started_again_is_another() -> None:
    world = World()
    leader = world.beats(0)
    _, told = world.waits({0})
    world.run(12.0)
    leader.dead = True
    world.sets(world.beats(0), 0.1, Fact("x", 0))
    world.run()
    assert (told.outcome.code, "pod 0 was started again" in told.outcome.what) == (75, True)


def test_in_a_run_pod_0_counts_when_it_has_done_its_part_and_others_wait_for_each_other() -> None:
    world = World()
    leader, other = world.beats(0), world.beats(1)
    world.sets(leader, 2.0, Fact("x", 0))
    world.sets(other, 25.0, Fact("x", 1))
    world.run(4.0)
    leader.dead = True
    told, never = (world.waits({0}, 10.0, name, fresh=True)[1] for name in ("x", "never"))
    others = [world.waits({1}, at, fresh=True)[1] for at in (0.0, 8.0)]
    outside = [world.waits({pod}, at)[1] for pod, at in ((0, 10.0), (1, 0.0))]
    world.run()
    assert [one.outcome for one in (told, *others)] == [WaitOutcome(0)] * 3
    assert never.outcome.code == 75
    assert [one.outcome.code for one in outside] == [69, 69]


def test_a_pod_that_ends_right_after_it_has_set_something_was_there() -> None:
    """It was never seen to go on; but what it has set says that it came since pod 0 was started."""
    world = World()
    world.beats(0)
    gone, _ = world.pod()
    world.server[JOB][f"pod.1.{world.nonce()}.0"] = ""
    world.sets(gone, 3.0, Fact("other", 1))
    told = [world.waits({1}, at)[1] for at in (0.0, 12.0)]
    world.run()
    for one, began in zip(told, (3.0, 12.0), strict=True):
        assert one.outcome.code == 75
        assert one.outcome.what.startswith("pod 1 (for 1")
        assert one.at - EPOCH < began + LEASE + 5.0


def test_beats_that_the_directory_refuses_are_no_silence_of_pods() -> None:
    world = World()
    world.beats(0)
    _, told = world.waits({0})
    world.run(12.0)
    for files in world.files:
        files.refuses = "Read-only file system"
    world.run()
    assert told.outcome.code == 73
    assert "cannot be used any more: Read-only file system; pod 0 (for 1" in told.outcome.what


def test_two_pods_0_end_every_wait() -> None:
    world = World()
    world.beats(0)
    first = world.start
    leader = world.beats(0)
    told = [world.waits({0}, at)[1] for at in (0.0, 5.0, 11.0)]
    mine = world.waits({1}, 3.0, start=first)[1]
    world.sets(leader, 10.0, Fact("x", 0))
    world.run()
    assert [one.outcome.code for one in (*told, mine)] == [75] * 4


@pytest.mark.parametrize("tenths", range(20))
def test_a_waiter_that_stood_still_counts_anew(tenths: int) -> None:
    """It must not blame others for the time in which it did not look, also when an old answer is still under way."""
    world = World()
    leader = world.beats(0)
    pod, told = world.waits({0})
    world.sets(leader, 33.0, Fact("x", 0))
    world.clock.after(5.0 + tenths / 10, lambda: pod.pause(LEASE + STALLED_SECONDS))
    world.run()
    assert told.outcome == WaitOutcome(0)


def test_who_is_missing_is_said_every_30_s() -> None:
    world = World()
    world.beats(0)
    world.beats(2)
    _, told = world.waits({0, 1, 2})
    world.run()
    assert told.outcome.code == 69  # pod 1 was never heard
    assert len(told.said) == 1 + int(WAIT_SECONDS // REPORT_SECONDS)  # the first when pod 0 is known
    first, *pods = told.said[-1].split("\n  ")
    assert first == "waiting for pods 0-2 (3 of 3) to set x"
    assert pods[1] == "pod 1: not heard in the shared directory"
    assert [line.split(",")[0] for line in (pods[0], pods[2])] == ["pod 0: alive", "pod 2: alive"]


def test_a_fact_that_is_taken_away_does_not_count() -> None:
    world = World()
    leader = world.beats(0)
    world.beats(1)
    world.sets(leader, 2.0, Fact("x", 0))
    _, told = world.waits({0, 1})
    world.run(8.0)
    del world.server[f"{JOB}/{world.start}"]["done.x.0"]
    world.sets(leader, 0.0, Fact("x", 1))
    world.run()
    assert told.outcome.code == 124
    assert "pod 0 to set x" in told.outcome.what.replace(" (1 of 2)", "")


def random_run(seed: int) -> list[tuple[Told, float, World]]:
    """Pods that come, set, fail, stop and die at any time, among what earlier ones left."""
    world = World(seed)
    draw = world.draw
    world.litter()
    for _ in range(draw.choice([0, 1, 1, 1, 2])):
        begin = draw.uniform(0, 15)
        leader = world.beats(0, begin)
        ends = draw.random()
        if ends < 0.6:
            world.sets(leader, begin + draw.uniform(0.5, 20), Fact("x", 0, failed=draw.random() < 0.2, code=9))
        if 0.4 < ends < 0.7:
            leader.later(draw.uniform(1, 30), lambda leader=leader: setattr(leader, "dead", True))  # type: ignore[misc]
        elif ends > 0.8:
            leader.later(draw.uniform(1, 30), lambda leader=leader: leader.pause(draw.uniform(1, 30)))  # type: ignore[misc]
        if draw.random() < 0.1:
            folder = world.server.setdefault(f"{JOB}/{world.start}", {})
            folder["done.x.0"] = draw.choice(world.texts)
    told = []
    for _ in range(draw.randint(1, 3)):
        begin = draw.uniform(0, 25)
        pod, one = world.waits({0}, begin)
        if draw.random() < 0.2:
            pod.later(draw.uniform(1, 40), lambda pod=pod: pod.pause(draw.uniform(1, 30)))  # type: ignore[misc]
        told.append((one, EPOCH + begin, world))
    world.run(150, until=lambda: all(one.outcome.code >= 0 for one, *_ in told))
    return told


def test_no_false_pass_in_random_runs_and_no_wait_without_end() -> None:
    codes: dict[int, int] = {}
    for seed in range(RUNS):
        for told, began, world in random_run(seed):
            code = told.outcome.code
            assert code >= 0, f"seed {seed}: a wait has no end"
            codes[code] = codes.get(code, 0) + 1
            if code in (0, 9):
                # A beat from before the wait is new to it while a cache shows what was there before that.
                live = {nonce for nonce, (_, last) in world.alive.items() if last >= began - CACHED_SECONDS}
                assert any(when < told.at and nonce in live for when, nonce in world.true), f"seed {seed}: false pass"
    assert min(codes.get(code, 0) for code in (0, 9, 69, 73, 75, 124)) > RUNS / 100, codes
