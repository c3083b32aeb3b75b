"""Claims in a fake shared directory: one holder at a time, whoever stops, dies or wakes up."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from agent.decide.sync_facts import seal
from agent.errors import DirectoryUnusable, PeerLost
from agent.lifecycle.sharing.claim import Claim
from agent.lifecycle.sharing.claim_files import claim_directory
from agent.machine.shared_files import SharedAnswer, Steps
from tests.fake.clock import Clock
from tests.fake.shared import Done, FakeFiles, FakePod, Folders, begin

LEASE = 12.0
NAME = "Qwen3-30B/ckpts"
RUNS = 300


class Writer:
    """One pod that wants the claim and, while it holds it, writes again and again."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.pod = FakePod(world.clock)
        self.files: FakeFiles = FakeFiles(world.clock, self.pod, world.server, world.draw)
        self.said: list[str] = []
        self.lost = ""
        self.claim: Claim | None = None

    def want(self, at: float = 0.0) -> None:
        self.pod.later(at, self._want)

    def _want(self) -> None:
        self.claim = Claim(
            NAME,
            nonce=f"{self.world.draw.getrandbits(128):032x}",
            by=self.name,
            lease=LEASE,
            lost=self._lost,
            say=self.said.append,
            now=self.pod.now,
        )
        begin(self._got(self.claim), self.pod, self.files, self._acquired)

    def _got(self, claim: Claim) -> Steps[bool]:
        try:
            yield from claim.acquire()
            return True
        except DirectoryUnusable as error:
            self.lost = error.what
            return False

    def _acquired(self, held: bool) -> None:
        if held:
            assert self.claim is not None
            self.world.held.append((self.name, self.world.clock.seconds))
            begin(self.claim.hold(), self.pod, self.files, lambda _: None)
            self._write()

    def _write(self) -> None:
        def write(until: float) -> None:
            if until:
                self.files.put("out", "file", self.name, until, go_on)

        def go_on(answer: SharedAnswer) -> None:
            self.pod.later(0.5, self._write)

        begin(self._until(), self.pod, self.files, write)

    def _until(self) -> Steps[float]:
        """0 when it is lost or given back."""
        assert self.claim is not None
        try:
            return (yield from self.claim.confirm())
        except PeerLost:
            return 0.0

    def give_back(self) -> None:
        assert self.claim is not None
        begin(self.claim.release(), self.pod, self.files, lambda _: None)

    def _lost(self, why: str) -> None:
        self.lost = why


class World:
    """Writers around a shared directory."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = Clock()
        self.draw = random.Random(seed)
        self.written: list[tuple[str, float]] = []
        """Who wrote when, as the server sees it."""
        self.server: Folders = {"out": Written(self)}
        self.held: list[tuple[str, float]] = []
        """Who got the claim when."""

    def writers(self, *names: str) -> list[Writer]:
        return [Writer(self, name) for name in names]

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        while not until() and self.clock.step(seconds):
            pass

    def writes_alternate(self) -> bool:
        """Nobody has written after another had got the claim."""
        turns = [at for _, at in self.held] + [float("inf")]
        return all(
            any(name == holder and begin <= at < turns[turn + 1] for turn, (holder, begin) in enumerate(self.held))
            for name, at in self.written
        )


class Written(dict[str, str]):
    """The folder that the writers write to."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def update(self, files: dict[str, str]) -> None:  # type: ignore[override]
        self._world.written += [(text, self._world.clock.seconds) for text in files.values()]


def test_one_of_many_gets_it_and_the_next_when_it_is_given_back_or_its_holder_has_died() -> None:
    world = World()
    writers = {writer.name: writer for writer in world.writers("a", "b", "c", "d")}
    for writer in writers.values():
        writer.want()
    world.run(10.0)
    assert len(world.held) == 1
    holder = writers[world.held[0][0]]
    others = [writer for writer in writers.values() if writer is not holder]
    assert all(f"waiting for the claim {NAME}: held by {holder.name}" in writer.said for writer in others)
    holder.give_back()
    world.run(20.0)
    assert len(world.held) == 2 and holder.lost == ""
    writers[world.held[1][0]].pod.dead = True
    world.run(60.0)
    assert len({name for name, _ in world.held}) == len(world.held) == 3
    assert 20.0 + LEASE * 5 / 6 < world.held[2][1] < 20.0 + LEASE + 5.0
    assert world.writes_alternate()


@pytest.mark.parametrize("pause", [LEASE / 4, 3 * LEASE])
def test_a_holder_that_wakes_up_too_late_finds_that_it_has_lost_it_and_writes_nothing(pause: float) -> None:
    world = World()
    holder, other = world.writers("a", "b")
    holder.want()
    other.want(5.0)
    world.run(20.0)
    holder.pod.pause(pause)
    world.run(21.0)
    before = [at for name, at in world.written if name == "a"]
    world.run(100.0)
    if pause < LEASE:
        assert (holder.lost, [name for name, _ in world.held]) == ("", ["a"])
        return
    taken, late = f"another pod has taken over the claim {NAME}", f"the claim {NAME} could not be renewed"
    assert holder.lost.startswith((taken, late))
    assert [at for name, at in world.written if name == "a"] == before
    assert [name for name, _ in world.held] == ["a", "b"]


def test_a_holder_learns_that_one_with_a_shorter_lease_has_taken_over() -> None:
    world = World()
    (holder,) = world.writers("a")
    holder.want()
    world.run(20.0)
    world.server[claim_directory(NAME)]["term.2"] = seal({"nonce": "f" * 32, "by": "another job"})
    world.run(25.0)
    assert holder.lost == f"another pod has taken over the claim {NAME}"
    assert all(at < 20.0 + 0.5 for _, at in world.written)


class Failing(FakeFiles):
    """Storage that answers nothing but errors."""

    def look(self, folder: str, beginnings: Sequence[str], known: Sequence[str], done: Done) -> None:
        self._pod.later(10.0, lambda: done(SharedAnswer(None, "no answer for 10 s")))


def test_who_waits_is_told_when_the_storage_does_not_answer_for_too_long() -> None:
    world = World()
    (writer,) = world.writers("a")
    writer.files = Failing(world.clock, writer.pod, world.server, world.draw)
    writer.want()
    world.run(10 * LEASE)
    assert not writer.lost and writer.said
    world.run(11 * LEASE + 15.0)
    assert writer.lost.startswith(f"the claim {NAME} has been unreadable for 1")
    assert writer.lost.endswith("no answer for 10 s")
    said = len(writer.said)
    world.run(30 * LEASE)
    assert len(writer.said) == said and not world.held


@pytest.mark.parametrize(
    "junk",
    [
        {"term.1": "no claim"},
        {"term.1": seal({"nonce": 7})},
        {"term.1": seal({"nonce": "0" * 32, "by": "an old job"}), f"beat.1.{'0' * 32}.5": ""},
        {"free.3": "", "term.2": "", "term.x": "", "beat.9": ""},
    ],
)
def test_what_others_left_is_taken_over(junk: dict[str, str]) -> None:
    world = World()
    world.server[claim_directory(NAME)] = dict(junk)
    (writer,) = world.writers("a")
    writer.want()
    world.run(LEASE + 5.0)
    assert [name for name, _ in world.held] == ["a"]


def test_a_holder_that_cannot_reach_the_directory_has_lost_it_before_others_may_have_it() -> None:
    world = World()
    (writer,) = world.writers("a")
    writer.want()
    world.run(10.0)
    writer.files.hangs = True
    world.run(100.0, until=lambda: bool(writer.lost))
    assert writer.lost
    assert world.clock.seconds < 10.0 + LEASE


def test_random_writers_never_write_at_the_same_time() -> None:
    taken_over = 0
    for seed in range(RUNS):
        world = World(seed)
        draw = world.draw
        writers = world.writers("a", "b", "c")
        for writer in writers:
            writer.want(draw.uniform(0, 20))
            fate = draw.random()
            if fate < 0.3:
                writer.pod.later(draw.uniform(0, 60), lambda writer=writer: setattr(writer.pod, "dead", True))  # type: ignore[misc]
            elif fate < 0.8:
                pause = draw.uniform(0, 3 * LEASE)
                writer.pod.later(draw.uniform(0, 60), lambda writer=writer, pause=pause: writer.pod.pause(pause))  # type: ignore[misc]
        world.run(120.0)
        assert world.writes_alternate(), f"seed {seed}"
        taken_over += len(world.held) > 1
        got = {name for name, _ in world.held}
        if any(not writer.pod.dead and writer.name not in got for writer in writers):
            assert world.written[-1][1] > 118.0, f"seed {seed}: one waits, and nobody writes"
    assert taken_over > RUNS / 4
