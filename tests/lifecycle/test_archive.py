"""A run's files and the pod's log on their way into a directory, also into one that takes nothing."""

from __future__ import annotations

import errno
import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.lifecycle.keeping.archive import Archive, PodLog
from agent.log import Log
from agent.machine.api import SERVER_SECONDS
from tests.fake.machine import FakeMachine
from tests.fake.storage import HEADER, PROGRAM, FakeSpool
from tests.fake.world import FakeWorld

SILENT = f"no answer for {SERVER_SECONDS:g} s"
FULL = "No space left on device"
STALE = "Stale file handle"
LATE = "it did not answer in time"
PIECE_BYTES = PROGRAM.PIECE_BYTES


class Bench:
    """An archive with all that is around it, and what it has said."""

    def __init__(self, most: int = 1_000_000) -> None:
        world = FakeWorld(1)
        self.clock = world.clock
        self.storage = world.pod(0)
        self.machine = FakeMachine(self.storage)
        self.machine.role = cast(Any, SimpleNamespace(bug=pytest.fail))
        self.spool = self.machine.spools["/spool"] = FakeSpool(most)
        self.stream = io.StringIO()
        self.ends: list[float] = []
        self.lines = 0
        pod_log = PodLog(self.spool, "/spool", "pod-logs/worker-1.log")
        self.archive = Archive(self.machine, Log(stream=self.stream), "/results", set(), pod_log)

    def say(self, count: int = 1) -> None:
        for _ in range(count):
            self.spool.append(1 + self.lines % 3, b"line %d\n" % self.lines)
            self.lines += 1

    def until(self, seconds: float) -> None:
        while self.clock.step(seconds):
            pass
        self.clock.now = max(self.clock.now, self.clock.now + seconds - self.clock.seconds)

    def breaks(self, why: str) -> None:
        """From now on nothing can be stored for this reason."""
        self.storage.storage = "stuck" if why == SILENT else why

    def mends(self) -> None:
        self.storage.storage = ""

    def kill(self, status: int = -9) -> None:
        """End the process that stores, if there is one."""
        for process in self.machine.keepers[-1:]:
            process.end(status)

    def finish(self, seconds: float | None) -> None:
        self.archive.close(seconds, lambda: self.ends.append(self.clock.seconds))

    @property
    def files(self) -> dict[str, str]:
        """Without the directory and what all their names begin with."""
        return {name.removeprefix("/results/pod-logs/worker-1.log"): text for name, text in self.storage.stored.items()}

    @property
    def said(self) -> list[str]:
        """What was logged, without the time."""
        return [line.split(" ", 2)[2] for line in self.stream.getvalue().splitlines()]


def lines(first: int, after: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, after))


@pytest.fixture
def bench() -> Bench:
    return Bench()


WARNING = "warning: this pod's log cannot be stored in /results: {}; it stays in the pod, and is tried again"
AGAIN = "this pod's log is stored in /results again"
LOST = "warning: {} bytes of this pod's log could not be stored in /results: {}"

# The log


def test_a_piece_every_30_s_while_there_is_something_new(bench: Bench) -> None:
    bench.say(3)
    bench.until(31)
    assert bench.files == {}
    bench.until(36)
    assert bench.files == {".0001": lines(0, 3)}
    bench.say(2)
    bench.until(70)
    assert bench.files == {".0001": lines(0, 3), ".0002": lines(3, 5)}
    bench.until(500)
    assert len(bench.files) == 2
    bench.say()
    bench.until(503)  # there was none for long: it need not wait
    assert bench.files[".0003"] == lines(5, 6)
    assert bench.said == []


def test_much_output_does_not_wait_nor_is_it_tried_more_often_when_it_fails(bench: Bench) -> None:
    bench.spool.append(1, b"x" * PIECE_BYTES)
    bench.until(4)
    bench.spool.append(1, b"y" * PIECE_BYTES)
    bench.until(7)
    assert [len(text) for text in bench.files.values()] == [PIECE_BYTES, PIECE_BYTES]
    bench.breaks(FULL)
    bench.spool.append(1, b"z" * PIECE_BYTES)
    bench.until(37)
    assert len(bench.storage.tried) == 2 + 1
    bench.until(107)
    assert len(bench.storage.tried) == 2 + 4


def test_the_whole_at_the_end(bench: Bench) -> None:
    bench.say(3)
    bench.until(36)
    bench.say(2)
    bench.finish(20)
    bench.until(38)
    assert bench.files == {"": lines(0, 5)}
    assert len(bench.ends) == 1 and bench.said == []
    assert bench.storage.tried[-2:] == ["pod-logs/worker-1.log.0002", "pod-logs/worker-1.log"]
    bench.say()
    bench.until(500)
    assert len(bench.storage.tried) == 3 and len(bench.ends) == 1


@pytest.mark.parametrize(("count", "seconds"), [(3, 0), (0, 100)])
def test_a_short_log_takes_one_file(bench: Bench, count: int, seconds: int) -> None:
    bench.say(count)
    bench.until(seconds)
    bench.finish(None)
    bench.until(seconds + 1)
    assert (bench.files, bench.storage.tried) == ({"": lines(0, count)}, ["pod-logs/worker-1.log"])
    assert len(bench.ends) == 1 and bench.said == []


@pytest.mark.parametrize("why", [SILENT, FULL, "Read-only file system", STALE])
def test_a_piece_that_failed_is_in_the_next(bench: Bench, why: str) -> None:
    bench.say(2)
    bench.until(36)
    bench.breaks(why)
    bench.say(2)
    bench.until(150)
    bench.say(2)
    bench.mends()
    bench.until(220)
    assert 3 < len(bench.storage.tried) <= 7
    assert list(bench.files.values()) == [lines(0, 2), lines(2, 6)]
    assert set(bench.files) == {".0001", max(bench.files)} and max(bench.files) > ".0003", "a name was used twice"
    assert bench.said == [WARNING.format(why), AGAIN]
    bench.breaks(why)
    bench.say()
    bench.until(300)
    bench.mends()
    bench.finish(30)
    bench.until(340)
    assert bench.files == {"": lines(0, 7)}
    assert len(bench.ends) == 1
    assert bench.said == [WARNING.format(why), AGAIN] * 2


def test_a_piece_that_turns_up_late_harms_no_other(bench: Bench) -> None:
    """The server goes on with what it was told when nobody waited any more."""
    bench.say(2)
    bench.breaks(SILENT)
    bench.storage.carries_out_late = True
    bench.until(50)
    bench.mends()
    bench.until(53)
    assert bench.files == {".0001": lines(0, 2)}
    bench.say()
    bench.until(120)
    assert bench.files == {".0001": lines(0, 2), ".0101": lines(0, 3)}
    bench.finish(20)
    bench.until(125)
    assert bench.files == {"": lines(0, 3)}


def test_a_directory_that_never_comes_back(bench: Bench) -> None:
    bench.say(3)
    bench.until(36)
    stored = bench.spool.end
    bench.breaks(SILENT)
    bench.say(2)
    bench.until(100)
    bench.finish(20)
    bench.until(119)
    assert bench.ends == []
    bench.until(121)
    assert bench.said == [WARNING.format(SILENT), LOST.format(bench.spool.end - stored, SILENT)]
    assert bench.files == {".0001": lines(0, 3)}
    tried = len(bench.storage.tried)
    bench.until(500)
    assert len(bench.ends) == 1 and len(bench.storage.tried) == tried


def test_a_directory_that_is_silent_for_the_first_time_at_the_end(bench: Bench) -> None:
    bench.say(3)
    bench.breaks(SILENT)
    bench.finish(5)
    bench.until(100)
    assert bench.said == [LOST.format(bench.spool.end, LATE)]


@pytest.mark.parametrize("limit", [20, None])
@pytest.mark.parametrize("why", [STALE, SILENT])
def test_a_directory_that_comes_back_at_the_end(bench: Bench, limit: float | None, why: str) -> None:
    bench.say(3)
    bench.until(36)
    bench.breaks(why)
    bench.say(2)
    bench.finish(limit)
    bench.until(48)
    bench.mends()
    bench.until(100)
    assert bench.files == {"": lines(0, 5)}
    assert bench.said == [WARNING.format(why), AGAIN]
    assert len(bench.ends) == 1


@pytest.mark.parametrize("why", [FULL, "Read-only file system", "Permission denied", "Not a directory"])
def test_at_the_end_nobody_waits_long_for_what_lasts(bench: Bench, why: str) -> None:
    bench.breaks(why)
    bench.say(3)
    bench.archive.keep("result.json", "{}")
    bench.until(200)
    bench.finish(60)
    bench.until(207)
    assert len(bench.ends) == 1, "it waited on"
    assert f"error: not stored in /results: result.json ({why})" in bench.said
    assert bench.said[-1] == LOST.format(bench.spool.end, why)


def test_the_whole_does_not_fit_but_the_pieces_do(bench: Bench) -> None:
    bench.storage.room = len(lines(0, 3))
    bench.say(3)
    bench.until(36)
    bench.say(2)
    bench.finish(20)
    bench.until(60)
    assert bench.files == {".0001": lines(0, 3), ".0002": lines(3, 5)}
    assert bench.said == [WARNING.format(FULL)]


def test_a_limit_that_comes_later(bench: Bench) -> None:
    bench.say(3)
    bench.breaks(STALE)
    bench.finish(None)
    bench.until(1000)
    assert bench.ends == []
    bench.finish(5)
    bench.until(1006)
    assert len(bench.ends) == 1 and bench.said[-1] == LOST.format(bench.spool.end, STALE)
    bench.finish(5)
    bench.until(1007)
    assert len(bench.ends) == 2


@pytest.mark.parametrize(("limit", "seconds"), [(None, 20), (2, 1)])
def test_without_a_limit_what_lasts_is_waited_for(bench: Bench, limit: float | None, seconds: float) -> None:
    """A limit that comes later does not wait for the next turn of a try without one."""
    bench.say(3)
    bench.breaks(FULL)
    bench.finish(None)
    bench.until(1000)
    assert bench.ends == []
    bench.mends()
    if limit:
        bench.finish(limit)
    bench.until(1000 + seconds)
    assert bench.files == {"": lines(0, 3)} and len(bench.ends) == 1


def test_more_was_printed_than_the_pod_keeps() -> None:
    """Pieces have what the spool has no more, so they stay."""
    bench = Bench(most=4)
    for turn in range(3):
        bench.say(3)
        bench.until(36 + 32 * turn)
    bench.finish(20)
    bench.until(120)
    files = bench.files
    whole = files.pop("")
    assert files == {".0001": lines(0, 3), ".0002": lines(3, 6), ".0003": lines(6, 9)}
    assert whole.endswith(lines(5, 9))
    assert bench.said == ["more was printed than this pod keeps: its whole log has the end, its pieces the rest"]


def test_what_the_spool_drops_while_the_directory_is_away_is_counted() -> None:
    bench = Bench(most=4)
    bench.breaks(FULL)
    bench.say(9)
    bench.until(100)
    bench.mends()
    bench.until(140)
    lost = 5 * (HEADER + len("line 0\n"))
    missing = f"[a4-agent: {lost} bytes of the log are missing here]\n"
    assert list(bench.files.values()) == [missing + lines(5, 9)]
    bench.spool.lost = 100
    bench.finish(20)
    bench.until(150)
    assert bench.said[-1] == LOST.format(lost + 100, "more was printed than the pod keeps")
    assert bench.files[""] == missing + lines(5, 9)


def test_what_never_reached_the_spool_is_counted(bench: Bench) -> None:
    bench.say(3)
    bench.spool.lost = 100
    bench.finish(20)
    bench.until(1)
    assert bench.said == [LOST.format(100, "the pod's own disk took no more")]


# Files


def test_those_who_wait_for_the_files_hear_when_they_are_there(bench: Bench) -> None:
    heard: list[str] = []
    bench.archive.when_kept(heard.append)
    assert heard == [""], "there were none"
    bench.archive.keep("result.json", "{}")
    bench.archive.when_kept(lambda missing: heard.append(f"{missing}{bench.files}"), 30)
    assert len(heard) == 1
    bench.until(1)
    assert heard[1:] == ["{'/results/result.json': '{}'}"]


@pytest.mark.parametrize(("why", "after"), [(FULL, 5), (SILENT, 30)])
def test_or_which_are_missing(bench: Bench, why: str, after: int) -> None:
    heard: list[str] = []
    bench.breaks(why)
    bench.archive.keep("result.json", "{}")
    bench.archive.keep("a", "text")
    bench.archive.when_kept(heard.append, 30)
    bench.until(after - 2)
    assert heard == []
    bench.until(after + 1)
    assert heard == [f"a, result.json ({why})"]
    assert f"error: not stored in /results: {heard[0]}" in bench.said
    bench.mends()
    bench.until(80)
    assert bench.files["/results/result.json"] == "{}", "it was tried again"


def test_a_log_that_does_not_fit_costs_no_file(bench: Bench) -> None:
    bench.say(3)
    bench.until(36)
    bench.storage.room = 10
    bench.say(3)
    bench.until(80)
    heard: list[str] = []
    bench.archive.keep("result.json", "{}")
    bench.archive.keep("report.html", "x" * 1000)
    bench.archive.when_kept(heard.append, 30)
    bench.until(90)
    assert heard == [f"report.html, the rest of pod-logs/worker-1.log ({FULL})"]
    assert bench.files["/results/result.json"] == "{}"
    assert bench.said == [WARNING.format(FULL), f"error: not stored in /results: report.html ({FULL})"]
    bench.archive.keep("a", "text")
    bench.finish(2)
    bench.until(100)
    assert bench.files["/results/a"] == "text"
    assert bench.said[2:] == [LOST.format(3 * (HEADER + len("line 0\n")), FULL)]


def test_a_file_that_does_not_fit_costs_only_itself(bench: Bench) -> None:
    bench.storage.room = 100
    bench.say(3)
    bench.until(36)
    bench.say(2)
    bench.archive.keep("report.html", "x" * 1000)
    bench.until(100)
    bench.finish(60)
    bench.until(110)
    assert bench.files == {"": lines(0, 5)} and len(bench.ends) == 1
    assert bench.said == [f"error: not stored in /results: report.html ({FULL})"]


def test_the_log_does_not_wait_for_a_file_that_is_still_being_made(bench: Bench) -> None:
    bench.say(3)
    given_up: list[str] = []
    made = bench.archive.expect("report.html", lambda: given_up.append("report.html"))
    bench.archive.expect("other.html", lambda: given_up.append("other.html"))
    bench.finish(20)
    bench.until(2)
    assert bench.files == {"": lines(0, 3)} and bench.ends == []
    made("page")
    bench.until(21)
    assert bench.files["/results/report.html"] == "page" and given_up == ["other.html"]
    assert bench.said == ["error: not stored in /results: other.html (it has not answered in time)"]


# The process


@pytest.mark.parametrize("when", [1, 2.5, 20, 33.9, 34.1, 40, 60.005])
def test_a_process_that_is_killed_is_replaced(bench: Bench, when: float) -> None:
    bench.say(3)
    bench.clock.after(when, bench.kill)
    bench.until(60)
    bench.say(2)
    bench.finish(20)
    bench.until(62)
    assert bench.files == {"": lines(0, 5)}
    assert (len(bench.ends), bench.said) == (1, [])


def test_a_process_that_always_ends_is_not_waited_for(bench: Bench) -> None:
    bench.say(3)

    def kill() -> None:
        bench.clock.after(0.001, kill)
        bench.kill(3)

    kill()
    bench.finish(60)
    bench.until(10)
    why = "the process that stores files was ended with status 3"
    assert bench.said == [WARNING.format(why), LOST.format(bench.spool.end, why)]


def test_no_process_can_be_started(bench: Bench) -> None:
    bench.say(3)
    bench.storage.refusing["keep-results.py"] = errno.ENOMEM
    bench.finish(60)
    bench.until(10)
    why = "the process that stores files cannot be started: Cannot allocate memory"
    assert bench.said == [WARNING.format(why), LOST.format(bench.spool.end, why)]


def test_a_large_file_has_more_time(bench: Bench) -> None:
    """A second more for each 16 MiB: a bucket takes them when the file is closed."""
    bench.breaks(SILENT)
    bench.archive.keep("a", "text")
    bench.until(1)
    bench.machine.keepers[0].say("alive", str(16 << 24))
    bench.until(25)
    assert bench.said == []
    bench.until(40)
    assert bench.said == [WARNING.format(SILENT)]


def test_no_more_than_three_processes_hang(bench: Bench) -> None:
    bench.say(3)
    bench.breaks(SILENT)
    bench.until(600)
    assert len(bench.machine.keepers) == 3
    bench.mends()
    bench.until(640)
    assert len(bench.machine.keepers) == 4
    assert list(bench.files.values()) == [lines(0, 3)]


# All together

EVENTS = st.lists(
    st.tuples(
        st.integers(0, 5),  # lines that are printed
        st.sampled_from(["", "", FULL, STALE, SILENT]),  # how the directory is from then on
        st.booleans(),  # does it carry out late what was given up
        st.booleans(),  # is the process killed
        st.floats(0.1, 60),  # seconds that pass
    ),
    max_size=12,
)


@given(events=EVENTS, most=st.integers(3, 100), limit=st.one_of(st.none(), st.floats(0, 60)))
def test_every_line_is_stored_or_counted(
    events: list[tuple[int, str, bool, bool, float]], most: int, limit: float | None
) -> None:
    bench = Bench(most)
    for count, why, late, killed, seconds in events:
        bench.say(count)
        bench.breaks(why)
        bench.storage.carries_out_late = late
        if killed:
            bench.kill()
        bench.until(bench.clock.seconds + seconds)
    if limit is None:
        bench.mends()
    bench.finish(limit)
    bench.until(bench.clock.seconds + 200)
    assert len(bench.ends) == 1
    pieces = {name: writers for name, writers in bench.storage.writers.items() if name != "pod-logs/worker-1.log"}
    assert all(len(writers) == 1 for writers in pieces.values()), "a name was used twice"
    found = {line for text in bench.files.values() for line in text.splitlines()}
    missing = sum(HEADER + len(f"line {number}\n") for number in range(bench.lines) if f"line {number}" not in found)
    lost = [int(line.split()[1]) for line in bench.said if "could not be stored" in line]
    counted = lost[0] if lost else 0
    assert counted >= missing, "lost and not counted"
    if limit is None:  # else a file may be there of which nobody has heard
        assert "" in bench.files
        assert counted == missing or any(late for _, _, late, _, _ in events), "counted and not lost"
    if limit is None and most == 100:
        assert bench.files == {"": lines(0, bench.lines)}
