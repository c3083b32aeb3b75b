"""Pass on what a program prints, and keep the end of it: last-words.py DIRECTORY PROGRAM [ARGUMENT...]

Stands before the program of every rank in runs that have a limit of time or silence. The file DIRECTORY/<rank> holds
the last 64 to 128 KiB of stdout and stderr together, line by line; what is passed on is unchanged. The launchers' own
means do not serve: Open MPI 4 keeps everything, Open MPI 5.0.11 then prints nothing, torchrun --tee marks and delays
lines.

PROGRAM gets a terminal for its stdout where this process has one, as mpirun gives one: else a C program would hold its
lines back. Signals go to the whole process group: this process waits for the end of PROGRAM, and ends as it did.
Standard library only.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import sys
import time
import tty

LIMIT = 64 * 1024
LINE_LIMIT = 4096
"""A longer line may be cut by one of the other stream."""
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class LastWords:
    """A file with the end of what was printed. A full disk only costs the file.

    The line that a stream is at stands at the end until it is whole: were it cut by what the other stream prints, a
    secret in it would not be known again.
    """

    def __init__(self, directory: str) -> None:
        rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK") or "unknown"
        self._kept = bytearray()
        self._begun = {1: b"", 2: b""}
        """The line that each stream is at."""
        os.makedirs(directory, 0o700, exist_ok=True)
        self._file = open(os.path.join(directory, rank), "wb", buffering=0)  # noqa: SIM115

    def add(self, stream: int, data: bytes) -> None:
        whole, self._begun[stream] = parted(self._begun[stream] + data)
        end = len(self._kept)
        self._kept += whole
        if len(self._kept) > 2 * LIMIT:
            del self._kept[:-LIMIT]
            end = 0
        try:
            self._file.seek(end)
            self._file.write(self._kept[end:] + b"\n".join(filter(None, self._begun.values())))
            self._file.truncate()
        except OSError:
            pass


def parted(data: bytes) -> tuple[bytes, bytes]:
    """Whole lines, and what has begun of one; that counts as whole when it is too long."""
    end = data.rfind(b"\n") + 1
    if len(data) - end > LINE_LIMIT:
        end = len(data)
    return data[:end], data[end:]


def main() -> None:
    directory, *argv = sys.argv[1:]
    words = LastWords(directory)
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
    streams = {1: output(), 2: os.pipe()}
    actions = [(os.POSIX_SPAWN_DUP2, write, stream) for stream, (_, write) in streams.items()]
    try:
        pid = os.posix_spawnp(
            argv[0], argv, os.environ, file_actions=actions, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
        )
    except OSError as error:
        print(f"cannot start {argv[0]}: {error.strerror}", file=sys.stderr)
        raise SystemExit(127 if isinstance(error, FileNotFoundError) else 126) from error
    for _, write in streams.values():
        os.close(write)
    pass_on(pid, {read: stream for stream, (read, _) in streams.items()}, words)
    end_like(pid)


def output() -> tuple[int, int]:
    """(end to read, end for the program) of what becomes its stdout."""
    if not os.isatty(1):
        return os.pipe()
    read, write = os.openpty()
    tty.setraw(write)
    return read, write


def pass_on(pid: int, streams: dict[int, int], words: LastWords) -> None:
    """Copy each descriptor of `streams` to its stream, until the process has ended and all of them are at their end."""
    selector = selectors.DefaultSelector()
    ended = os.pidfd_open(pid)
    for fd in (*streams, ended):
        selector.register(fd, selectors.EVENT_READ)
    deadline = None
    while deadline is None or (streams and time.monotonic() < deadline):
        for key, _ in selector.select(None if deadline is None else max(0.0, deadline - time.monotonic())):
            fd = int(key.fd)
            if fd == ended:
                selector.unregister(ended)
                # What was printed may still arrive; a process that PROGRAM left behind may hold the streams open.
                deadline = time.monotonic() + 0.5
            elif data := read(fd):
                words.add(streams[fd], data)
                write(streams[fd], data)
            else:
                selector.unregister(fd)
                del streams[fd]


def read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""  # the end of a terminal is an error


def write(stream: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(stream, data) :]
    except OSError:
        pass  # nobody reads it any more


def end_like(pid: int) -> None:
    """End with the same code, or by the same signal."""
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file is enough
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
