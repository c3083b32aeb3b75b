"""What a pod printed during a run, in files: whole frames in segments, the oldest of which go first.

A frame is the stream (u8), the length of its data and when it was written, in seconds since 1970 (u32, big-endian), and
the data. A segment is a file named by the
offset of its first frame, in 20 digits; no frame lies in two. Whoever reads needs nothing but the files: a frame
that is not whole is being written, or its segment was left at that place and the next one goes on from there.
"""

from __future__ import annotations

import os
import struct
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from agent.machine.api import Piece

HEADER = struct.Struct(">BII")
MOST_DATA = 65536
"""Bytes in one frame."""
MOST_SEGMENT = 8 * 1024 * 1024
NAME_DIGITS = 20
STREAMS = (1, 2, 3)


class Room:
    """The bytes that all spools of a pod may take together.

    When they are used up, the oldest of those that are closed gives way, then the largest.
    """

    def __init__(self, limit: int) -> None:
        self.most_segment = max(min(MOST_SEGMENT, limit // 8), HEADER.size + 1)
        self._limit = limit
        self._spools: list[FileSpool] = []

    def add(self, spool: FileSpool) -> None:
        """Count this one too, and forget those that were removed."""
        self._spools = [other for other in self._spools if os.path.isdir(other.directory)] + [spool]

    def make(self, length: int) -> None:
        """Drop segments until there is room for so many bytes more, or no segment is left but those being written."""
        while sum(spool.kept for spool in self._spools) + length > self._limit:
            closed = (spool for spool in self._spools if spool.is_closed and spool.kept)
            if not next(closed, max(self._spools, key=lambda spool: spool.kept)).drop_oldest():
                return


class FileSpool:
    """agent.machine.api.Spool in a directory of its own, begun anew. Raises OSError."""

    def __init__(self, directory: str, room: Room, now: Callable[[], float] = time.time) -> None:
        self.end = 0
        self.lost = 0
        self.kept = 0
        """Bytes in all segments."""
        self.directory = directory
        self.is_closed = False
        self._room = room
        self._now = now
        self._most_data = min(MOST_DATA, room.most_segment - HEADER.size)
        self._closed_segments: deque[tuple[int, int]] = deque()
        """(offset, bytes)"""
        self._start = 0
        """Offset of the segment that is written."""
        self._fd = -1
        os.makedirs(directory, 0o700, exist_ok=True)
        for start in segments(directory):
            os.unlink(segment_path(directory, start))
        self._open()
        room.add(self)

    def append(self, stream: int, data: bytes) -> None:
        for at in range(0, len(data), self._most_data):
            piece = data[at : at + self._most_data]
            try:
                self._write(stream, piece)
            except OSError:
                self.lost += len(piece)

    def close(self) -> None:
        self.is_closed = True
        self._leave()

    def drop_oldest(self) -> bool:
        """Take its oldest segment away; False when there is none but that being written."""
        if not self._closed_segments:
            return False
        start, size = self._closed_segments.popleft()
        self.kept -= size
        with suppress(OSError):
            if self.is_closed and not self.kept:
                self._open()  # an empty one, so that readers learn how much is gone
                self._leave()
            os.unlink(segment_path(self.directory, start))
        return True

    def _write(self, stream: int, data: bytes) -> None:
        """Raises OSError when the frame cannot be written; nothing of it is left then."""
        if self.is_closed:
            raise OSError("the spool is closed")
        length = HEADER.size + len(data)
        if self._fd >= 0 and self.end - self._start + length > self._room.most_segment:
            self._leave()
        if self._fd < 0:
            self._open()
        self._room.make(length)
        try:
            if os.writev(self._fd, [HEADER.pack(stream, len(data), int(self._now())), data]) != length:
                raise OSError("the disk is full")
        except OSError:
            # What was written of the frame goes; else the segment is left, as no reader takes half a frame.
            try:
                os.ftruncate(self._fd, self.end - self._start)
            except OSError:
                self._leave()
            raise
        self.end += length
        self.kept += length

    def _open(self) -> None:
        """Begin a segment. One of that name has no frame in it."""
        path = segment_path(self.directory, self.end)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        self._start = self.end

    def _leave(self) -> None:
        """The segment is full, or broken."""
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1
            if self.end > self._start:
                self._closed_segments.append((self._start, self.end - self._start))


def read_spool(directory: str, offset: int, most: int, since: float = 0.0) -> Piece | None:
    """Frames from `offset` on, with `most` bytes of data or little less, but at least one frame if there is one.

    None when there is no such spool. `offset` is 0 or the `next` of an earlier piece; a segment that cannot be read
    counts as skipped, like one that is no longer kept. What was written before the second `since` is left out.
    """
    starts = segments(directory)
    if not starts:
        return None
    if since:
        offset = max(offset, _first_since(directory, starts, int(since)))
    frames: list[tuple[int, bytes]] = []
    at = begin = offset
    size = 0
    first = max(0, bisect_right(starts, offset) - 1)
    for start in starts[first:]:
        if at < start:
            if frames:
                break  # the gap is for the next piece, which begins with it
            at = begin = start
        for stream, _, data in _frames(segment_path(directory, start), at - start, most - size):
            if frames and size + len(data) > most:
                return Piece(tuple(frames), at, begin - offset)
            frames.append((stream, data))
            size += len(data)
            at += HEADER.size + len(data)
    return Piece(tuple(frames), at, begin - offset)


def _first_since(directory: str, starts: list[int], since: int) -> int:
    """Offset of the first frame that was written at that time or later; without one, of the end."""
    for at in reversed(starts):
        path = segment_path(directory, at)
        first = next(_frames(path, 0, 1), None)
        if first is not None and first[1] < since:
            break
    for _, when, data in _frames(path, 0, MOST_SEGMENT):
        if when >= since:
            break
        at += HEADER.size + len(data)
    return at


def _frames(path: str, at: int, most: int) -> Iterator[tuple[int, int, bytes]]:
    """Stream, time and data of whole frames of one segment from a place in it on, as many as one read of some `most`
    bytes gives."""
    content = b""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(at)
        content = file.read(min(max(most, MOST_DATA) + HEADER.size, MOST_SEGMENT))
    place = 0
    while place + HEADER.size <= len(content):
        stream, length, when = HEADER.unpack_from(content, place)
        place += HEADER.size
        if stream not in STREAMS or not 0 < length <= len(content) - place:
            return  # it is being written, or no frame begins here
        yield stream, when, content[place : place + length]
        place += length


def segments(directory: str) -> list[int]:
    """Where the segments of a spool begin, in order; empty when there is none."""
    try:
        return sorted(int(name) for name in os.listdir(directory) if len(name) == NAME_DIGITS and name.isdecimal())
    except OSError:
        return []


def segment_path(directory: str, start: int) -> str:
    return f"{directory}/{start:0{NAME_DIGITS}}"
