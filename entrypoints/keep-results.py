"""Stores a pod's log and the files of its run in a directory that may hang: then this process hangs, not the agent.

    python -I -S keep-results.py MOUNT BASE DIRECTORY NUMBER

The agent writes commands to stdin, one a line, each a JSON array of texts:

  ["probe", NAME, EARLIER]                   write a file and remove it, once; look whether there is EARLIER
  ["write", ID, NAME, TEXT, NEW]             store a file; with NEW, not over one that has another text
  ["log", SPOOL, NAME, COUNT, STORED, LOST]  store the log that this spool holds, after COUNT pieces, which go up to
                                             STORED; LOST bytes of that were gone from the spool when their turn came
  ["end", END]                               the log ends at this offset: make it one file, and remove the pieces

What fails is tried again. It says on stdout, in the same form:

  ["alive", BYTES]                           every 2 s, with the size so far of a file that is being written
  ["probe", WHY, EARLIER]                    WHY: why it failed, empty when it did not; EARLIER: empty if not there
  ["write", ID, WHY, LASTING]                LASTING is not empty when waiting will not help
  ["piece", COUNT, STORED, LOST, WHY, LASTING]
  ["whole", LACKS, LOST, WHY, LASTING]       the log is one file; if it lacks bytes, the pieces stay

and ends when stdin does. An agent that was killed has not said where the log ends: all that is there is stored once.

Names are relative to DIRECTORY. A file is written as NAME.NUMBER.new and renamed; the process with the next NUMBER
removes what a killed one left. Pieces are NAME.0001, NAME.0002, …, also those that fail, so that no name is used twice:
what a server does late for a process that was killed harms no other piece. Offsets count bytes of the spool.

BASE is the beginning of DIRECTORY that somebody named; behind it, no symbolic link is followed.

MOUNT is the mount point on which DIRECTORY lies, as /proc/self/mountinfo writes it. When it is gone nothing is stored:
it would end on the container's own disk, and go with it.
"""

from __future__ import annotations

import errno
import json
import os
import select
import sys
from collections.abc import Callable, Iterator
from time import monotonic

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python -I leaves it out
from stored_files import CHUNK, Directory

HEADER = 9
"""Bytes of a frame before its data: the stream (1), the length of the data (4, big-endian), the time (4)."""
PIECE_SECONDS = 30.0
PIECE_BYTES = 8 * 1024 * 1024
TICK_SECONDS = 2.0
LASTING = {
    *(errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.ENODEV, errno.ENOSPC, errno.ENOTCONN, errno.ENOTDIR, errno.EPERM, errno.EROFS),
}
"""Errors that do not go away by waiting. ENODEV: nothing is mounted there any more; ENOTCONN: its server has ended."""


class Segments:
    """What a pod has printed, in a directory of segments: files of frames, named by the offset of the first."""

    def __init__(self, path: str) -> None:
        self._path = path

    def firsts(self) -> list[int]:
        """Where the segments begin, in order."""
        names = os.listdir(self._path) if os.path.isdir(self._path) else []
        return sorted(int(name) for name in names if name.isdecimal())

    def end(self) -> int:
        """The offset after the last byte; its frame may not be whole yet."""
        first = max(self.firsts(), default=-1)
        return first + os.stat(f"{self._path}/{first:020d}").st_size if first >= 0 else 0

    def frames(self, first: int, at: int, end: int) -> Iterator[bytes]:
        """The data of each frame of a segment from one offset to another, or to what is not whole."""
        try:
            with open(f"{self._path}/{first:020d}", "rb") as file:
                file.seek(at - first)
                while at < end:
                    header = file.read(HEADER)
                    length = int.from_bytes(header[1:5], "big")
                    at += HEADER + length
                    data = file.read(length) if len(header) == HEADER and at <= end else b""
                    if not data or len(data) < length:
                        return
                    yield data
        except FileNotFoundError:
            return  # it has just been dropped


class Text:
    """What a spool holds from one offset to another, both borders of frames; without `end`, as far as it goes now."""

    def __init__(self, spool: Segments, start: int, end: int | None) -> None:
        self.at = start
        """Where `chunks` has come to."""
        self.gaps: list[tuple[int, int]] = []
        """The stretches that the spool does not have any more."""
        self._spool = spool
        self._start = start
        self._end = end

    def missing(self, start: int) -> int:
        """Bytes from that offset on that are in the gaps."""
        return sum(max(0, after - max(first, start)) for first, after in self.gaps)

    def chunks(self) -> Iterator[bytes]:
        """Its bytes; to be called once for each try."""
        self.at, self.gaps = self._start, []
        in_line = False
        limit = self._spool.end() if self._end is None else self._end
        firsts = self._spool.firsts()
        for first, following in zip(firsts, [*firsts[1:], limit], strict=False):
            if first >= limit or following <= self.at:
                continue
            if first > self.at:
                yield self._gap(first, in_line)
                in_line = False
            for data in self._spool.frames(first, self.at, min(following, limit)):
                yield data
                self.at += HEADER + len(data)
                in_line = not data.endswith(b"\n")
        if self._end is not None and self.at < self._end:
            yield self._gap(self._end, in_line)

    def _gap(self, after: int, in_line: bool) -> bytes:
        missing = after - self.at
        self.gaps.append((self.at, after))
        self.at = after
        return b"%s[a4-agent: %d bytes of the log are missing here]\n" % (b"\n" if in_line else b"", missing)


class StoredLog:
    """The pod's log, and how far it is stored."""

    def __init__(self, spool: Segments, name: str, count: int, stored: int, lost: int, now: float) -> None:
        self.spool = spool
        self.name = name
        self.count = count
        """Pieces that were begun."""
        self.stored = stored
        self.lost = lost
        self.begun = now
        """When a piece was last begun, or might have been."""
        self.ends = self.is_whole = False
        self.end: int | None = None

    def needs_piece(self, now: float, *, failing: bool) -> bool:
        new = (self.spool.end() if self.end is None else self.end) - self.stored
        if self.ends:  # a short log is stored at once as a whole
            return new > 0 and (self.count > 0 or new > PIECE_BYTES)
        return new > 0 and (now - self.begun >= PIECE_SECONDS or (new >= PIECE_BYTES and not failing))


class ResultsStoring:
    """Takes commands and does, in each `turn`, what is due: files first, then the log. `say` hears how that went."""

    def __init__(
        self,
        directory: Directory,
        say: Callable[..., None],
        now: Callable[[], float] = monotonic,
        spool: Callable[[str], Segments] = Segments,
    ) -> None:
        self._directory = directory
        self._say = say
        self._now = now
        self._spool = spool
        self._files: dict[str, tuple[str, str, bool]] = {}
        """Name → ID, text, whether it must be new."""
        self._log: StoredLog | None = None
        self._failing_since = self._again = 0.0

    def obey(self, verb: str, *args: str) -> None:
        """Take a command."""
        if verb == "probe":
            found = [""]
            why, _ = self._attempt(lambda: found.append(self._directory.probe(*args)))
            self._say("probe", why, found[-1])
        elif verb == "write":
            number, name, text, new = args
            self._files[name] = (number, text, bool(new))
            self._again = 0.0
        elif verb == "log":
            spool, name, count, stored, lost = args
            self._log = StoredLog(self._spool(spool), name, int(count), int(stored), int(lost), self._now())
        elif verb == "end" and self._log is not None:
            self._log.ends, self._log.end = True, int(args[0])
            self._failing_since = self._again = 0.0

    def agent_is_gone(self) -> None:
        """Store all that is there, once."""
        if self._log is not None:
            self._log.ends = True
        self._again = 0.0
        self.turn()

    def turn(self) -> None:
        """Do what is due; what fails is tried again in a later turn."""
        if self._now() < self._again:
            return
        self._again = 0.0
        for name in list(self._files):
            self._store_file(name)
        log = self._log
        if log is not None and not log.is_whole:
            if log.needs_piece(self._now(), failing=bool(self._failing_since)):
                self._store_piece(log)
            if log.ends and not log.needs_piece(self._now(), failing=False):
                self._store_whole(log)

    def _attempt(self, action: Callable[[], None]) -> tuple[str, str]:
        """Why it failed, empty when it did not; and whether that lasts."""
        try:
            action()
        except OSError as error:
            now = self._now()
            self._failing_since = self._failing_since or now
            failing = now - self._failing_since
            # The next try comes after a quarter of the time for which tries have failed, and 10 s later at the most.
            self._again = now + min(10.0, max(TICK_SECONDS, failing / 4))
            lasting = error.errno in LASTING and failing >= 3.0
            return error.strerror or str(error), "lasting" if lasting else ""
        except Exception as error:  # a bug, or a text that is none: nothing else must suffer
            return f"{type(error).__name__}: {error}", "lasting"
        if not self._again:
            self._failing_since = 0.0
        return "", ""

    def _store_file(self, name: str) -> None:
        number, text, new = self._files[name]

        def chunks() -> list[bytes]:
            data = text.encode("utf-8", "surrogateescape")
            return [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]

        why, lasting = self._attempt(lambda: self._directory.store(name, chunks, new=new))
        if not why or not self._again:
            del self._files[name]
        self._say("write", number, why, lasting)

    def _store_piece(self, log: StoredLog) -> None:
        text = Text(log.spool, log.stored, log.end)
        why, lasting = self._attempt(lambda: self._directory.store(f"{log.name}.{log.count + 1:04d}", text.chunks))
        log.begun = self._now()
        log.count += 1
        if not why:
            log.stored, log.lost = text.at, log.lost + text.missing(0)
        self._say("piece", str(log.count), str(log.stored), str(log.lost), why, lasting)

    def _store_whole(self, log: StoredLog) -> None:
        text = Text(log.spool, 0, log.end)
        why, lasting = self._attempt(lambda: self._directory.store(log.name, text.chunks))
        if not why and not text.gaps:
            self._attempt(lambda: self._directory.remove(f"{log.name}."))
        log.is_whole = not why
        lost = log.lost + (0 if why else text.missing(log.stored))
        self._say("whole", str(text.missing(0)), str(lost), why, lasting)


class Agent:
    """The other end of stdin and stdout."""

    def __init__(self) -> None:
        self._said = 0.0
        self._rest = bytearray()

    def say(self, *words: str) -> None:
        self._said = monotonic()
        try:
            os.write(1, json.dumps(words).encode() + b"\n")
        except OSError:
            pass  # it was killed: what it asked for is done all the same

    def got_on(self, written: int = 0) -> None:
        if monotonic() - self._said >= TICK_SECONDS / 2:
            self.say("alive", str(written))

    def commands(self) -> Iterator[list[str]]:
        """Those that come within a tick. Raises EOFError when no more can come."""
        if not select.select([0], [], [], TICK_SECONDS)[0]:
            return
        data = os.read(0, CHUNK)
        if not data:
            raise EOFError
        self._rest += data
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            yield from map(json.loads, lines)


def main(mount: str, base: str, path: str, number: str) -> None:
    agent = Agent()
    storing = ResultsStoring(Directory(mount, base, path, int(number), agent.got_on), agent.say)
    try:
        while True:
            agent.got_on()
            for command in agent.commands():
                storing.obey(*command)
            storing.turn()
    except EOFError:
        storing.agent_is_gone()


if __name__ == "__main__":
    main(*sys.argv[1:])
