"""The pod's log on its way into the results directory: pieces, the whole, and directories that do not take them."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.lifecycle.keeping.pod_log import PIECE_BYTES, PodLog, PodLogEnd
from agent.log import Log
from agent.machine.api import Machine, Piece, Timer
from tests.fake.clock import Clock

HEADER = 5
NO_ANSWER_SECONDS = 10.0
SILENT = "no answer for 10 s"
FULL = "No space left on device"


class FakeSpool:
    """Frames in memory, of which the oldest go when there are more than `most`."""

    def __init__(self) -> None:
        self.end = 0
        self.lost = 0
        self.most = 1_000_000
        self.frames: deque[tuple[int, bytes]] = deque()
        """Offset and data."""

    def append(self, stream: int, data: bytes) -> None:
        self.frames.append((self.end, data))
        self.end += HEADER + len(data)
        while len(self.frames) > self.most:
            self.frames.popleft()

    def close(self) -> None:
        pass

    def oldest(self, start: int) -> int:
        """Offset of the oldest frame from `start` on."""
        return max(start, self.frames[0][0] if self.frames else self.end)

    def text(self, start: int, end: int) -> str:
        return b"".join(data for at, data in self.frames if start <= at < end).decode()


@dataclass
class FakeKeeper:
    """Does everything at once while `why` is empty; else fails, with SILENT after 10 s.

    With `late`, a command that was given up is carried out all the same when its time is over.
    """

    clock: Clock
    spool: FakeSpool
    files: dict[str, str] = field(default_factory=dict)
    why: str = ""
    late: bool = False
    room: int = 1 << 40
    """Largest file that is taken."""
    asked: list[str] = field(default_factory=list)
    """The files that were asked for."""

    def write(self, name: str, text: str, done: Callable[[str], None]) -> None:
        raise NotImplementedError

    def copy_spool(self, spool: str, start: int, end: int, name: str, done: Callable[[str], None]) -> None:
        self.asked.append(name)
        text = self.spool.text(start, end)
        if len(text) > self.room:
            self.clock.after(0.01, lambda: done(FULL))
        else:
            self._do(lambda: self.files.update({name: text}), done)

    def remove(self, names: Sequence[str], done: Callable[[str], None]) -> None:
        self._do(lambda: [self.files.pop(name, None) for name in names], done)

    def probe(self, done: Callable[[str], None]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _do(self, act: Callable[[], object], done: Callable[[str], None]) -> None:
        why = self.why
        if not why or self.late:
            act()
        self.clock.after(NO_ANSWER_SECONDS if why == SILENT else 0.01, lambda: done(why))


class FakeMachine:
    """As much of a machine as a pod log needs."""

    def __init__(self, clock: Clock, spool: FakeSpool) -> None:
        self.clock = clock
        self._spool = spool

    def now(self) -> float:
        return self.clock.now

    def later(self, seconds: float, action: Callable[[], None]) -> Timer:
        return self.clock.after(seconds, action)

    def read_spool(self, directory: str, offset: int, most: int) -> Piece | None:
        return Piece((), offset, self._spool.oldest(offset) - offset)


class Bench:
    """A pod log with all that is around it, and what it has said."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.spool = FakeSpool()
        self.keeper = FakeKeeper(self.clock, self.spool)
        self.stream = io.StringIO()
        self.ends: list[PodLogEnd] = []
        self.ended: list[float] = []
        self.lines = 0
        machine = cast(Machine, FakeMachine(self.clock, self.spool))
        log = Log(stream=self.stream)
        self.pod_log = PodLog(machine, log, self.keeper, "/spool", "worker-1", self.spool)

    def say(self, count: int = 1) -> None:
        for _ in range(count):
            self.spool.append(1 + self.lines % 3, b"line %d\n" % self.lines)
            self.lines += 1

    def until(self, seconds: float) -> None:
        while self.clock.step(seconds):
            pass

    def finish(self, seconds: float | None) -> None:
        def done(end: PodLogEnd) -> None:
            self.ends.append(end)
            self.ended.append(self.clock.seconds)

        self.pod_log.finish(seconds, done)

    @property
    def files(self) -> dict[str, str]:
        """Without the directory and what all their names begin with."""
        return {name.removeprefix("pod-logs/worker-1.log"): text for name, text in self.keeper.files.items()}

    @property
    def said(self) -> list[str]:
        """What was logged, without the time."""
        return [line.split(" ", 2)[2] for line in self.stream.getvalue().splitlines()]


def lines(first: int, after: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, after))


@pytest.fixture
def bench() -> Bench:
    return Bench()


WARNING = (
    "warning: this pod's log cannot be stored in the results directory: {}; it stays in the pod, and is tried again"
)
AGAIN = "this pod's log is stored in the results directory again"


def test_a_piece_every_30_s_while_there_is_something_new(bench: Bench) -> None:
    bench.say(3)
    bench.until(29)
    assert bench.files == {}
    bench.until(31)
    assert bench.files == {".0001": lines(0, 3)}
    bench.say(2)
    bench.until(61)
    assert bench.files == {".0001": lines(0, 3), ".0002": lines(3, 5)}
    bench.until(500)
    assert len(bench.files) == 2
    bench.say()
    bench.until(503)  # there was none for long: it need not wait
    assert bench.files[".0003"] == lines(5, 6)
    assert bench.said == []


def test_much_output_does_not_wait(bench: Bench) -> None:
    bench.spool.append(1, b"x" * PIECE_BYTES)
    bench.until(3)
    bench.spool.append(1, b"y" * PIECE_BYTES)
    bench.until(6)
    assert [len(text) for text in bench.files.values()] == [PIECE_BYTES, PIECE_BYTES]


def test_the_whole_at_the_end(bench: Bench) -> None:
    bench.say(3)
    bench.until(31)
    bench.say(2)
    bench.finish(20)
    bench.until(32)
    assert bench.files == {"": lines(0, 5)}
    assert bench.ends == [PodLogEnd(bench.spool.end, 0, "")]
    assert bench.keeper.asked[-2:] == ["pod-logs/worker-1.log.0002", "pod-logs/worker-1.log"]
    bench.say()
    bench.until(500)
    assert len(bench.keeper.asked) == 3 and len(bench.ends) == 1


def test_a_short_log_takes_one_file(bench: Bench) -> None:
    bench.say(3)
    bench.finish(None)
    bench.until(1)
    assert (bench.files, bench.keeper.asked) == ({"": lines(0, 3)}, ["pod-logs/worker-1.log"])
    assert bench.ends == [PodLogEnd(bench.spool.end, 0, "")]


def test_a_pod_that_printed_nothing(bench: Bench) -> None:
    bench.until(100)
    bench.finish(20)
    bench.until(101)
    assert (bench.files, bench.ends) == ({"": ""}, [PodLogEnd(0, 0, "")])


@pytest.mark.parametrize("why", [SILENT, FULL, "Read-only file system"])
def test_a_piece_that_failed_is_in_the_next(bench: Bench, why: str) -> None:
    bench.say(2)
    bench.until(31)
    bench.keeper.why = why
    bench.say(2)
    bench.until(150)
    bench.say(2)
    bench.keeper.why = ""
    bench.until(200)
    tries = len(bench.keeper.asked)
    assert 3 < tries <= 7
    assert bench.files == {".0001": lines(0, 2), f".{tries:04d}": lines(2, 6)}
    assert bench.said == [WARNING.format(why), AGAIN]
    bench.keeper.why = why
    bench.say()
    bench.until(300)
    bench.keeper.why = ""
    bench.finish(20)
    bench.until(320)
    assert bench.files == {"": lines(0, 7)}
    assert bench.ends == [PodLogEnd(bench.spool.end, 0, "")]
    assert bench.said == [WARNING.format(why), AGAIN] * 2


def test_much_output_does_not_try_more_often_when_it_fails(bench: Bench) -> None:
    bench.keeper.why = FULL
    bench.spool.append(1, b"x" * PIECE_BYTES)
    bench.until(25)
    assert len(bench.keeper.asked) == 1
    bench.until(95)
    assert len(bench.keeper.asked) == 3


def test_a_piece_that_turns_up_late_is_taken_away(bench: Bench) -> None:
    """The server goes on with what it was told when nobody waited any more."""
    bench.say(2)
    bench.keeper.why, bench.keeper.late = SILENT, True
    bench.until(35)
    assert bench.files == {".0001": lines(0, 2)}
    bench.keeper.why = ""
    bench.say()
    bench.until(100)
    assert bench.files == {".0002": lines(0, 3)}


def test_a_directory_that_never_comes_back(bench: Bench) -> None:
    bench.say(3)
    bench.until(31)
    stored = bench.spool.end
    bench.keeper.why = SILENT
    bench.say(2)
    bench.until(100)
    bench.finish(20)
    bench.until(119)
    assert bench.ends == []
    bench.until(120)
    assert bench.ends == [PodLogEnd(stored, bench.spool.end - stored, SILENT)]
    assert bench.ended[0] < 120, "who waits 20 s hears nothing"
    assert bench.files == {".0001": lines(0, 3)}
    asked = len(bench.keeper.asked)
    bench.until(500)
    assert len(bench.ends) == 1 and len(bench.keeper.asked) == asked


def test_a_directory_that_is_silent_for_the_first_time_at_the_end(bench: Bench) -> None:
    bench.say(3)
    bench.keeper.why = SILENT
    bench.finish(5)
    bench.until(100)
    assert bench.ends == [PodLogEnd(0, bench.spool.end, "it did not answer in time")]
    assert bench.said == []  # his words are for who asked


@pytest.mark.parametrize("limit", [20, None])
def test_a_directory_that_comes_back_at_the_end(bench: Bench, limit: float | None) -> None:
    bench.say(3)
    bench.until(31)
    bench.keeper.why = FULL
    bench.say(2)
    bench.finish(limit)
    bench.until(40)
    bench.keeper.why = ""
    bench.until(80)
    assert bench.files == {"": lines(0, 5)}
    assert bench.ends == [PodLogEnd(bench.spool.end, 0, "")]
    assert bench.said == [WARNING.format(FULL), AGAIN]
    assert (bench.ended[0] < 45) == (limit is not None)


def test_the_whole_does_not_fit_but_the_pieces_do(bench: Bench) -> None:
    bench.keeper.room = len(lines(0, 3))
    bench.say(3)
    bench.until(31)
    bench.say(2)
    bench.finish(20)
    bench.until(60)
    assert bench.files == {".0001": lines(0, 3), ".0002": lines(3, 5)}
    assert bench.ends == [PodLogEnd(bench.spool.end, 0, FULL)]


def test_a_limit_that_comes_later(bench: Bench) -> None:
    bench.say(3)
    bench.keeper.why = FULL
    bench.finish(None)
    bench.until(1000)
    assert bench.ends == []
    bench.finish(5)
    bench.until(1005)
    assert [end.why for end in bench.ends] == [FULL]
    bench.finish(5)
    bench.until(1006)
    assert bench.ends[1:] == bench.ends[:1]


def test_a_limit_that_comes_later_and_a_directory_that_is_back(bench: Bench) -> None:
    """It does not wait for the next turn of a try without a limit."""
    bench.say(3)
    bench.keeper.why = FULL
    bench.finish(None)
    bench.until(1000)
    bench.keeper.why = ""
    bench.finish(2)
    bench.until(1001)
    assert bench.ends == [PodLogEnd(bench.spool.end, 0, "")]


def test_the_end_while_a_piece_is_under_way(bench: Bench) -> None:
    bench.say(3)
    bench.keeper.why = SILENT
    bench.until(31)
    bench.keeper.why = ""
    bench.say(2)
    bench.finish(20)
    bench.until(60)
    assert bench.files == {"": lines(0, 5)}
    assert bench.ends == [PodLogEnd(bench.spool.end, 0, "")]


def test_more_was_printed_than_the_pod_keeps(bench: Bench) -> None:
    """Pieces have what the spool has no more, so they stay."""
    bench.spool.most = 4
    for turn in range(3):
        bench.say(3)
        bench.until(31 + 30 * turn)
    bench.finish(20)
    bench.until(120)
    assert bench.files == {".0001": lines(0, 3), ".0002": lines(3, 6), "": lines(5, 9)}
    assert bench.ends == [PodLogEnd(bench.spool.end, 0, "")]
    name = "pod-logs/worker-1.log"
    assert bench.said == [
        f"more was printed than this pod keeps: {name} is its end, {name}.0001 … {name}.0002 its beginning"
    ]


def test_what_the_spool_drops_while_the_directory_is_away_is_counted(bench: Bench) -> None:
    bench.spool.most = 4
    bench.keeper.why = FULL
    bench.say(9)
    bench.until(100)
    bench.keeper.why = ""
    bench.until(140)
    lost = 5 * (HEADER + len("line 0\n"))
    assert list(bench.files.values()) == [lines(5, 9)]
    bench.spool.lost = 100
    bench.finish(20)
    bench.until(150)
    assert bench.ends == [PodLogEnd(bench.spool.end - lost, lost + 100, "more was printed than the pod keeps")]
    assert list(bench.files.values())[-1] == lines(5, 9)


def test_what_never_reached_the_spool_is_counted(bench: Bench) -> None:
    bench.say(3)
    bench.spool.lost = 100
    bench.finish(20)
    bench.until(1)
    assert bench.ends == [PodLogEnd(bench.spool.end, 100, "the pod's own disk took no more")]


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 5),  # lines that are printed
        st.sampled_from(["", "", FULL, SILENT]),  # how the directory is from then on
        st.booleans(),  # does it carry out late what was given up
        st.floats(0.1, 60),  # seconds that pass
    ),
    max_size=12,
)


@given(events=EVENTS, most=st.integers(3, 100), limit=st.one_of(st.none(), st.floats(0, 60)))
def test_every_line_is_stored_or_counted(
    events: list[tuple[int, str, bool, float]], most: int, limit: float | None
) -> None:
    bench = Bench()
    bench.spool.most = most
    for count, why, late, seconds in events:
        bench.say(count)
        bench.keeper.why, bench.keeper.late = why, late
        bench.until(bench.clock.seconds + seconds)
    if limit is None:
        bench.keeper.why = ""
    bench.finish(limit)
    bench.until(bench.clock.seconds + 200)
    (end,) = bench.ends
    found = {line for text in bench.files.values() for line in text.splitlines()}
    missing = sum(HEADER + len(f"line {number}\n") for number in range(bench.lines) if f"line {number}" not in found)
    assert end.stored + end.lost == bench.spool.end
    assert end.lost >= missing, "lost and not counted"
    if limit is None:  # else a file may be there of which nobody has heard
        assert "" in bench.files
        assert end.lost == missing or any(late for _, _, late, _ in events), "counted and not lost"
    if limit is None and most == 100:
        assert bench.files == {"": lines(0, bench.lines)}
