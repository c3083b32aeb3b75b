"""Stores files in the results directory: one that hangs holds up this process, and nobody else.

    python -I -S keep-results.py MOUNT DIRECTORY

The agent writes commands to stdin, one line each, a JSON array of texts:

  [ID, "probe", ASIDE]                           write a file, read it, remove it
  [ID, "write", ASIDE, NAME, TEXT]               put a whole file there
  [ID, "copy", ASIDE, NAME, SPOOL, START, END]   the text of a spool between two offsets, as a file
  [ID, "remove", NAME, …]                        take files away; those that are not there are no error

They are done in order. Each gets one line on stdout, [ID, "done", WHY], with why it failed, empty when it did
not; one that takes long says [ID, "busy", BYTES] about once a second, with the bytes written so far, but only
when it got on in between. It ends when stdin does.

Names are relative to DIRECTORY and do not leave it. ASIDE is the name under which a file is written before it
gets its own: who asks can so clear away what a killed process left. SPOOL is the absolute path of a directory
of segments, files named by the offset of their first byte in 20 digits, made of frames: stream (1 byte), length
of the data (4 bytes, big-endian), data. Where segments are gone the text says how many bytes are missing.

MOUNT is the mount point on which DIRECTORY lies, as /proc/self/mountinfo writes it. When nothing is mounted there any
more every command fails: what was written would end on the container's own disk, and go with it.

Every pod starts one of these: what is imported is chosen by what it costs (json alone doubles the start-up).
"""

from __future__ import annotations

import os
import sys
from _json import encode_basestring_ascii, scanstring
from errno import EINVAL, ENOSYS, ENOTSUP
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK = 1024 * 1024
HEADER = 5
BUSY_SECONDS = 1.0


class Command:
    """One line of stdin and what is said about it."""

    def __init__(self, line: str) -> None:
        self.id, self.verb, *self.args = texts(line)
        self._said = monotonic()

    def got_on(self, written: int = 0) -> None:
        if monotonic() - self._said >= BUSY_SECONDS:
            self._said = monotonic()
            self._say("busy", str(written))

    def done(self, why: str) -> None:
        self._say("done", why)

    def _say(self, *words: str) -> None:
        line = ", ".join(encode_basestring_ascii(word) for word in (self.id, *words))
        data = f"[{line}]\n".encode()
        while data:
            data = data[os.write(1, data) :]


def texts(line: str) -> list[str]:
    """The elements of a JSON array that holds nothing but texts."""
    found = []
    at = line.find('"')
    while at >= 0:
        text, at = scanstring(line, at + 1)
        found.append(text)
        at = line.find('"', at)
    return found


def main(mount: str, directory: str) -> None:
    for line in sys.stdin.buffer:
        command = Command(line.decode())
        try:
            check_mount(mount)
            obey(command, directory)
        except OSError as error:
            command.done(error.strerror or str(error))
        except Exception as error:  # a bug, or a text that is none: the next command must not suffer
            command.done(f"{type(error).__name__}: {error}")
        else:
            command.done("")


def check_mount(mount: str) -> None:
    """Raises OSError when nothing is mounted there. Asks the kernel only: a server that hangs is not looked at."""
    if mount == "/":
        return
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        if not any(line.split(" ", 5)[4] == mount for line in table):
            raise OSError(f"nothing is mounted at {mount} any more")


def obey(command: Command, directory: str) -> None:
    """Raises OSError, ValueError for a name that leaves the directory."""
    if command.verb == "remove":
        for name in command.args:
            remove(inside(directory, name))
            command.got_on()
        return
    aside = inside(directory, command.args[0])
    if command.verb == "probe":
        probe(command, aside)
        return
    path = inside(directory, command.args[1])
    if command.verb == "write":
        data = command.args[2].encode("utf-8", "surrogateescape")
        store(command, aside, path, lambda: iter([data]))
    elif command.verb == "copy":
        spool, start, end = command.args[2], int(command.args[3]), int(command.args[4])
        store(command, aside, path, lambda: joined(spool_text(spool, start, end)))
    else:
        raise ValueError(f"no such command: {command.verb}")


def inside(directory: str, name: str) -> str:
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name!r} is not a name in this directory")
    return f"{directory}/{name}"


def probe(command: Command, path: str) -> None:
    try:
        fill(command, path, iter([b"a4-agent\n"]))
        with open(path, "rb") as file:
            if file.read() != b"a4-agent\n":
                raise OSError("what was written reads differently")
    finally:
        clear_away(path)
    if os.path.lexists(path):
        raise OSError("a file cannot be removed")


def store(command: Command, aside: str, path: str, chunks: Callable[[], Iterator[bytes]]) -> None:
    """Make `path` of what `chunks` gives: readers see nothing of it, or all."""
    try:
        fill(command, aside, chunks())
    except OSError:
        clear_away(aside)
        raise
    try:
        os.rename(aside, path)
    except OSError:  # some mounts of buckets cannot; or the directory has just gone
        clear_away(aside)
        store_in_place(command, path, chunks())


def store_in_place(command: Command, path: str, chunks: Iterator[bytes]) -> None:
    try:
        fill(command, path, chunks)
    except OSError:
        clear_away(path)  # no half of a file
        raise


def fill(command: Command, path: str, chunks: Iterator[bytes]) -> None:
    fd = create(path)
    written = 0
    try:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                size = os.write(fd, view[:CHUNK])
                view = view[size:]
                written += size
                command.got_on(written)
        sync(fd)
    finally:
        os.close(fd)  # full disks and lost connections of network file systems show here, too


def create(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, flags, 0o644)


def sync(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (EINVAL, ENOSYS, ENOTSUP):  # there is nothing to sync on such a file system
            raise


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def clear_away(path: str) -> None:
    """Remove a file as far as that is possible: what failed before is what counts."""
    try:
        os.unlink(path)
    except OSError:
        pass


def joined(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in large chunks: each write is a request to a server."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= CHUNK:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def spool_text(spool: str, start: int, end: int) -> Iterator[bytes]:
    """What the frames between two offsets hold. Both offsets are borders of frames."""
    at, in_line = start, False
    for first, limit, path in segments(spool, start, end):
        if first > at:
            yield gap(first - at, in_line)
            at, in_line = first, False
        for data in frames(path, at - first, limit - first):
            yield data
            at += HEADER + len(data)
            in_line = not data.endswith(b"\n")
    if at < end:
        yield gap(end - at, in_line)


def gap(missing: int, in_line: bool) -> bytes:
    return b"%s[a4-agent: %d bytes of the log are missing here]\n" % (b"\n" if in_line else b"", missing)


def segments(spool: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """(offset of its first byte, offset after what counts of it, path) of each segment of the stretch, in order."""
    try:
        firsts = sorted(int(name) for name in os.listdir(spool) if name.isdigit())
    except FileNotFoundError:
        return
    for first, following in zip(firsts, [*firsts[1:], end], strict=True):
        if first < end and following > start:
            yield first, min(following, end), f"{spool}/{first:020d}"


def frames(path: str, at: int, end: int) -> Iterator[bytes]:
    """The data of each frame of a segment from offset `at` in it, up to `end` or to what is not whole."""
    try:
        with open(path, "rb") as file:
            file.seek(at)
            while at < end:
                header = file.read(HEADER)
                length = int.from_bytes(header[1:], "big")
                at += HEADER + length
                if len(header) < HEADER or at > end:
                    return
                data = file.read(length)
                if len(data) < length:
                    return
                yield data
    except FileNotFoundError:
        return  # it has just been dropped


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
