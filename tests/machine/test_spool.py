"""Spools: all that was kept comes back in order, the oldest goes first, and a full disk harms no reader."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.machine.api import Piece
from agent.machine.spool import HEADER, MOST_DATA, FileSpool, Room, read_spool

Frames = list[tuple[int, bytes]]
PLENTY = 1 << 30


def read(directory: Path, offset: int = 0, most: int = PLENTY) -> Piece:
    piece = read_spool(str(directory), offset, most)
    assert piece is not None
    return piece


def read_all(directory: Path, most: int = PLENTY, offset: int = 0) -> tuple[Frames, int, int]:
    """Piece by piece to the end: all frames, bytes skipped, and where it ended."""
    frames: Frames = []
    skipped = 0
    while True:
        piece = read(directory, offset, most)
        skipped += piece.skipped
        assert piece.next == offset + piece.skipped + sum(HEADER.size + len(data) for _, data in piece.frames)
        if piece.next == offset:
            return frames, skipped, offset
        frames += piece.frames
        offset = piece.next


def on_disk(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size`: a write that crosses it is partly done, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.binary(max_size=90)), max_size=60),
    st.integers(500, 3000),
    st.integers(0, 300),
)
@example([(1, b"x" * 50)] * 60, 1000, 100)
def test_what_is_kept_is_the_newest_within_the_limit(
    tmp_path_factory: pytest.TempPathFactory, appended: Frames, limit: int, most: int
) -> None:
    directory = tmp_path_factory.getbasetemp() / "spool"
    spool = FileSpool(str(directory), Room(limit))
    for stream, data in appended:
        spool.append(stream, data)
        assert on_disk(directory) <= limit
    if spool.end > limit:
        assert on_disk(directory) > limit - 2 * (limit // 8)  # it goes by segments
    spool.close()
    frames, skipped, end = read_all(directory, most)
    kept, all_of_it = b"".join(data for _, data in frames), b"".join(data for _, data in appended)
    assert all_of_it.endswith(kept)
    assert (end, spool.lost) == (spool.end, 0)
    assert len(kept) + HEADER.size * len(frames) + skipped == spool.end
    if spool.end <= limit * 3 // 4:
        assert (frames, skipped) == ([frame for frame in appended if frame[1]], 0)


def test_a_piece_is_as_large_as_asked_and_never_without_a_frame(tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path), Room(1 << 20))
    for _ in range(10):
        spool.append(1, b"x" * 100)
    assert [len(read(tmp_path, 0, most).frames) for most in (0, 99, 100, 199, 250, 10_000)] == [1, 1, 1, 1, 2, 10]
    assert read(tmp_path, spool.end) == Piece((), spool.end)
    assert read(tmp_path, spool.end + 1000) == Piece((), spool.end + 1000)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300)), max_size=60), st.integers(1, 200))
def test_what_was_written_since_then(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], since: int
) -> None:
    """Seconds between frames, and their sizes, in a spool of several segments."""
    directory = tmp_path_factory.getbasetemp() / "since"
    times = list(accumulate((seconds for seconds, _ in steps), initial=1))[1:]
    clock = iter(times)
    spool = FileSpool(str(directory), Room(4000), lambda: next(clock))
    for _, size in steps:
        spool.append(1, b"x" * size)
    kept = read_all(directory)[0]
    found = read_spool(str(directory), 0, PLENTY, since)
    assert found is not None
    late = [size for (_, size), when in zip(steps, times, strict=True) if when >= since]
    wanted = min(len(late), len(kept))
    assert [len(data) for _, data in found.frames] == (late[-wanted:] if wanted else [])
    assert found.next == spool.end
    assert read_spool(str(directory), found.next, PLENTY, since) == Piece((), spool.end)


def test_what_is_long_is_split(tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path), Room(64 << 20))
    data = os.urandom(3 * MOST_DATA + 7)
    spool.append(2, data)
    spool.append(1, b"")
    frames = read(tmp_path).frames
    assert [len(piece) for _, piece in frames] == [MOST_DATA] * 3 + [7]
    assert b"".join(piece for _, piece in frames) == data


def test_segments_are_named_by_their_offset_and_hold_whole_frames(tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path), Room(1 << 30))
    for number in range(200):
        spool.append(1, bytes([number]) * 50_000)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [len(name) for name in names] == [20, 20]
    assert int(names[1]) == (tmp_path / names[0]).stat().st_size <= 8 << 20
    assert read(tmp_path, int(names[1])).frames[0][1] == bytes([int(names[1]) // 50_005]) * 50_000


def test_a_spool_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("stays")
    first = FileSpool(str(tmp_path), Room(4096))
    for _ in range(100):
        first.append(1, b"old" * 30)
    FileSpool(str(tmp_path), Room(4096)).append(2, b"new")
    assert read_all(tmp_path) == ([(2, b"new")], 0, HEADER.size + 3)
    assert len(os.listdir(tmp_path)) == 2


def test_all_spools_together_have_a_limit(tmp_path: Path) -> None:
    """The oldest that is closed gives way first, then the largest."""
    room = Room(80_000)
    first, second, third, beside = (FileSpool(str(tmp_path / name), room) for name in ("1", "2", "3", "beside"))
    for spool in (first, second):
        spool.append(1, b"x" * 30_000)
        spool.close()
    beside.append(1, b"x" * 5_000)
    third.append(1, b"y" * 20_000)
    assert (on_disk(tmp_path / "1"), on_disk(tmp_path / "2")) == (first.kept, second.kept)
    assert first.kept < 30_000 < second.kept
    third.append(1, b"y" * 200_000)
    assert [on_disk(tmp_path / name) for name in ("1", "2")] == [0, 0]
    assert on_disk(tmp_path / "beside") > 5_000
    assert sum(spool.kept for spool in (first, second, third, beside)) <= 80_000
    assert read(tmp_path / "1") == Piece((), first.end, first.end), "readers learn how much is gone"


def test_a_spool_that_was_removed_takes_no_room(tmp_path: Path) -> None:
    room = Room(80_000)
    first, second = (FileSpool(str(tmp_path / name), room) for name in ("1", "2"))
    for spool in (first, second):
        spool.append(1, b"x" * 30_000)
        spool.close()
    shutil.rmtree(tmp_path / "1")
    FileSpool(str(tmp_path / "3"), room).append(1, b"x" * 40_000)
    assert on_disk(tmp_path / "2") == second.kept > 30_000


def test_there_is_no_spool(tmp_path: Path) -> None:
    assert read_spool(str(tmp_path / "none"), 0, 100) is None
    assert read_spool(str(tmp_path), 0, 100) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        FileSpool(str(tmp_path / "file" / "spool"), Room(4096))
    spool = FileSpool(str(tmp_path / "spool"), Room(4096))
    assert read(tmp_path / "spool") == Piece((), 0)
    assert (spool.end, spool.lost) == (0, 0)


@pytest.mark.parametrize("written", range(1, HEADER.size + 10))
def test_a_frame_that_is_being_written_is_not_there_yet(tmp_path: Path, written: int) -> None:
    spool = FileSpool(str(tmp_path), Room(4096))
    spool.append(1, b"whole")
    with open(tmp_path / f"{0:020}", "ab") as file:
        file.write((HEADER.pack(2, 10, 0) + b"0123456789")[:written])
    assert read_all(tmp_path) == ([(1, b"whole")], 0, spool.end)


def test_a_segment_that_cannot_be_read_is_skipped(tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path), Room(8 << 10))
    for number in range(50):
        spool.append(1, b"%02d" % number * 50)
    starts = sorted(int(path.name) for path in tmp_path.iterdir())
    lost = tmp_path / f"{starts[1]:020}"
    lost.unlink()
    lost.mkdir()
    first = read(tmp_path)
    assert first.next == starts[1]
    second = read(tmp_path, first.next)
    assert (second.skipped, second.frames[0][1]) == (starts[2] - starts[1], b"%02d" % (starts[2] // 105) * 50)
    assert read_all(tmp_path)[2] == spool.end


def test_an_offset_at_which_no_frame_begins_is_skipped_to_the_next_segment(tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path), Room(8 << 10))
    for _ in range(12):
        spool.append(1, b"\0\0\0\0\1" * 20)  # as the header of a stream that there is not
    second = int(max(path.name for path in tmp_path.iterdir()))
    piece = read(tmp_path, HEADER.size)
    assert (piece.skipped, piece.next, len(piece.frames)) == (second - HEADER.size, spool.end, 3)
    assert read(tmp_path, second + HEADER.size) == Piece((), second + HEADER.size)


# Disks that refuse


def test_a_write_that_stops_half_way_leaves_nothing(tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path), Room(8 << 20))
    spool.append(1, b"before")
    with file_limit(1000):
        spool.append(1, b"x" * 2000)
        assert (spool.lost, on_disk(tmp_path)) == (2000, spool.end)
        spool.append(2, b"small")
        spool.append(1, b"x" * 3 * MOST_DATA)
    assert spool.lost == 2000 + 3 * MOST_DATA
    spool.append(3, b"after")
    assert read_all(tmp_path) == ([(1, b"before"), (2, b"small"), (3, b"after")], 0, spool.end)


@contextmanager
def append_only(path: Path) -> Iterator[None]:
    """A file that grows and is never cut; what is open already obeys too."""
    done = subprocess.run(["chattr", "+a", str(path)], capture_output=True)
    if done.returncode:
        pytest.skip(f"chattr +a: {done.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-a", str(path)], check=True)


def test_what_cannot_be_cut_back_is_left_and_never_read(tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path), Room(8 << 20))
    spool.append(1, b"before")
    first = spool.end
    with append_only(tmp_path / f"{0:020}"), file_limit(1000):
        spool.append(1, b"x" * 2000)
        assert (tmp_path / f"{0:020}").stat().st_size == 1000
        assert read_all(tmp_path) == ([(1, b"before")], 0, first)
        spool.append(3, b"after")
    assert read_all(tmp_path) == ([(1, b"before"), (3, b"after")], 0, spool.end)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020}", f"{first:020}"]


def test_a_segment_whose_first_frame_is_broken_is_begun_again(tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path), Room(8 << 20))
    with append_only(tmp_path / f"{0:020}"), file_limit(1000):
        spool.append(1, b"x" * 2000)
        assert read_all(tmp_path) == ([], 0, 0)
    spool.append(3, b"after")
    assert read_all(tmp_path) == ([(3, b"after")], 0, spool.end)


def test_a_directory_that_is_taken_away_ends_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    spool = FileSpool(str(directory), Room(8192))
    shutil.rmtree(directory)
    for _ in range(200):
        spool.append(1, b"x" * 100)
    assert spool.lost
    directory.mkdir()
    spool.append(1, b"back")
    assert read(directory).frames[-1] == (1, b"back")


def test_after_its_end_a_spool_takes_nothing(tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path), Room(4096))
    spool.append(1, b"kept")
    spool.close()
    spool.close()
    spool.append(1, b"late")
    assert spool.lost == 4
    assert read_all(tmp_path)[0] == [(1, b"kept")]
