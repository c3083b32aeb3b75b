"""Lines of several pods on one screen."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import DirectoryUnusable
from agent.output import HELD_BYTES, HELD_SECONDS, Lines, write_all


class Screen:
    """Two files and a clock that stands still until it is told."""

    def __init__(self, out: int, err: int) -> None:
        self._files = (out, err)
        self.now = 100.0

    def lines(self, *, label: bool = False, whole: bool = True, agent: bool = False) -> Lines:
        out, err = self._files
        return Lines(label=label, whole=whole, agent=agent, stdout=out, stderr=err, now=lambda: self.now)

    @property
    def out(self) -> bytes:
        return os.pread(self._files[0], 1 << 30, 0)

    @property
    def err(self) -> bytes:
        return os.pread(self._files[1], 1 << 30, 0)


@contextmanager
def screen_of(*, one: bool = False) -> Iterator[Screen]:
    """With `one`, stdout and stderr are the same file, as on a terminal."""
    with tempfile.TemporaryFile(buffering=0) as out, tempfile.TemporaryFile(buffering=0) as err:
        second = os.dup(out.fileno()) if one else os.dup(err.fileno())
        try:
            yield Screen(out.fileno(), second)
        finally:
            os.close(second)


@pytest.fixture
def screen() -> Iterator[Screen]:
    with screen_of() as screen:
        yield screen


def test_one_pods_bytes_pass_unchanged(screen: Screen) -> None:
    lines = screen.lines(whole=False)
    for piece in (b"\xff\x00a", b"\r", b"b\n\nc"):
        lines.output(3, 1, piece)
    lines.output(3, 2, b"err")
    lines.output(3, 3, b"of the agent\n")
    lines.over(3)
    lines.close()
    assert (screen.out, screen.err) == (b"\xff\x00a\rb\n\nc", b"err")


@pytest.mark.parametrize("agent", [False, True])
def test_the_agents_lines_are_shown_on_request(agent: bool, screen: Screen) -> None:
    lines = screen.lines(agent=agent)
    lines.output(3, 3, b"of the agent\n")
    lines.close()
    assert (screen.out, screen.err) == (b"", b"of the agent\n" if agent else b"")


@pytest.mark.parametrize("whole", [False, True])
def test_mpiruns_word_of_a_race_that_harms_nothing_is_not_shown(whole: bool, screen: Screen) -> None:
    warning = b"[node-0:00116] plm:rsh: Warning: setpgid(120,120) failed in parent with errno=Permission denied(13)\n"
    lines = screen.lines(whole=whole)
    lines.output(0, 2, b"one\n" + warning + b"two\n")
    lines.output(0, 1, warning)
    assert (screen.err, screen.out) == (b"one\ntwo\n", warning)


def test_a_line_is_held_back_until_it_ends(screen: Screen) -> None:
    lines = screen.lines()
    lines.output(0, 1, b"one, ")
    lines.output(1, 1, b"three\nfour")
    lines.output(0, 1, b"two\n")
    assert screen.out == b"three\none, two\n"
    lines.over(1)
    assert screen.out == b"three\none, two\nfour"


def test_a_line_is_not_held_back_for_long(screen: Screen) -> None:
    lines = screen.lines()
    assert lines.idle() is None
    lines.output(0, 1, b"progress")
    screen.now += HELD_SECONDS / 2
    assert lines.idle() == pytest.approx(HELD_SECONDS / 2)
    lines.output(0, 1, b" 1%")
    assert screen.out == b""
    screen.now += HELD_SECONDS / 2
    assert lines.idle() is None
    assert screen.out == b"progress 1%"


def test_a_line_without_end_is_not_held_in_memory(screen: Screen) -> None:
    lines = screen.lines()
    lines.output(0, 1, b"x" * HELD_BYTES)
    assert screen.out == b""
    lines.output(0, 1, b"y")
    assert screen.out == b"x" * HELD_BYTES + b"y"


def test_what_was_written_of_a_line_is_ended_before_another_pods(screen: Screen) -> None:
    lines = screen.lines(label=True)
    lines.output(0, 1, b"waiting")
    screen.now += HELD_SECONDS
    lines.idle()
    lines.output(1, 1, b"hello\n")
    lines.output(0, 1, b" ...")
    lines.output(0, 1, b" done\n")
    assert screen.out == b"[0] waiting\n[1] hello\n[0]  ... done\n"


def test_what_was_written_of_a_line_goes_on_on_the_same_line(screen: Screen) -> None:
    lines = screen.lines(label=True)
    for piece in (b"waiting", b" ...", b" done\nnext\n"):
        lines.output(0, 1, piece)
        screen.now += HELD_SECONDS
        lines.idle()
    assert screen.out == b"[0] waiting ... done\n[0] next\n"


@pytest.mark.parametrize("one", [False, True])
def test_stdout_and_stderr_meet_on_a_terminal(one: bool) -> None:
    with screen_of(one=one) as screen:
        lines = screen.lines()
        lines.output(0, 1, b"out")
        screen.now += HELD_SECONDS
        lines.idle()
        lines.output(1, 2, b"err\n")
        expected = (b"out\nerr\n", b"out\nerr\n") if one else (b"out", b"err\n")
        assert (screen.out, screen.err) == expected


PIECES = st.lists(st.tuples(st.integers(0, 2), st.text("x\n", max_size=6)))


@given(PIECES, st.booleans())
def test_lines_of_pods_never_mix(pieces: list[tuple[int, str]], label: bool) -> None:
    """However they are cut, every pod's lines are all there, in order, and nothing else is."""
    written = {pod: "".join(text for its, text in pieces if its == pod) + "\n" for pod in range(3)}
    with screen_of() as screen:
        lines = screen.lines(label=label)
        for pod, text in [*pieces, (0, "\n"), (1, "\n"), (2, "\n")]:
            lines.output(pod, 1, text.replace("x", str(pod)).encode())
        shown = screen.out.decode()
        lines.close()
        assert screen.out.decode() == shown
    if label:
        for pod in range(3):
            mine = [line[4:] for line in shown.splitlines() if line.startswith(f"[{pod}] ")]
            assert mine == written[pod].replace("x", str(pod)).splitlines()
    else:
        assert all(len(set(line)) <= 1 for line in shown.splitlines())
        for pod in range(3):
            mine = [line for line in shown.splitlines() if str(pod) in line]
            assert mine == [line for line in written[pod].replace("x", str(pod)).splitlines() if line]


# Writing


def read_all(fd: int, into: list[bytes]) -> None:
    while data := os.read(fd, 65536):
        into.append(data)


@pytest.mark.parametrize("blocking", [True, False])
def test_a_slow_reader_gets_everything(blocking: bool) -> None:
    read, write = os.pipe()
    os.set_blocking(write, blocking)
    got: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(read, got))
    data = os.urandom(1 << 20)
    reader.start()
    write_all(write, data)
    os.close(write)
    reader.join()
    os.close(read)
    assert b"".join(got) == data


def test_a_reader_that_has_gone() -> None:
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(BrokenPipeError):
        write_all(write, b"x")
    os.close(write)


def test_a_terminal_that_has_gone() -> None:
    ours, theirs = os.openpty()
    os.close(ours)
    with pytest.raises(BrokenPipeError):
        write_all(theirs, b"x")
    os.close(theirs)


def test_a_full_disk() -> None:
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(DirectoryUnusable, match="No space left"):
        write_all(full.fileno(), b"x")


def test_a_stdout_that_was_closed() -> None:
    nowhere = 2_000_000_000  # no descriptor has this number
    lines = Lines(whole=False, stdout=nowhere)
    with pytest.raises(DirectoryUnusable, match="cannot be written"):
        lines.output(0, 1, b"x")
