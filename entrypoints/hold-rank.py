"""Wait in place of a rank until somebody starts it in a terminal: hold-rank.py START SECONDS PROGRAM [ARGUMENT...]

With `--without RANK` this stands before the program of the ranks; START ends in the number of the one to hold, and the
others become their program at once. It prints START.txt and PROGRAM, and waits for START, which runs start-rank.py, for
so many seconds. That hands over its terminal. PROGRAM then runs as a child of this process, which the launcher has
started: with the environment, the limits, the CPUs and the marks that the rank would have had. Signals that START gets
go to the process group, and this process ends as PROGRAM does: its launcher sees a rank like all others. If nobody
comes, it says so in the rank's record and ends with 69.

START sends one message, with its stdin, stdout and stderr, and then a byte for each signal:

  {"argv": […], "term": "xterm"}      "argv": what to start in place of PROGRAM; empty: PROGRAM

and gets {"error": "why nothing could be started"} or, in the end, {"status": n}, negative for a signal. Standard
library only.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shlex
import signal
import socket
import sys
import time
from typing import NoReturn

NOBODY_CAME = 69
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
DEFAULTS = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores two of them, and a launcher may ignore Ctrl-C."""
MOST_BYTES = 1 << 20


def main() -> None:
    start, seconds, *argv = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of this program
    environ = given_environment()
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK")
    if rank != start.rpartition("-")[2]:
        become(argv, environ)
    with listen(start) as server:
        with open(f"{start}.txt") as text:
            print(f"{text.read()}  its command: {shlex.join(argv)}", file=sys.stderr, flush=True)
        person, pid = start_for_somebody(server, time.monotonic() + float(seconds), argv, environ)
        if not person:
            nobody_came(start, str(rank))
        os.unlink(f"{start}.sock")  # who comes now is told that somebody has
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
    status = wait(pid, person)
    tell(person, {"status": os.waitstatus_to_exitcode(status)})
    end_like(status)


def given_environment() -> dict[bytes, bytes]:
    """To the byte: os.environ may have an LC_CTYPE more, by Python itself."""
    with open("/proc/self/environ", "rb") as given:
        variables = (entry.partition(b"=") for entry in given.read().split(b"\0"))
        return {name: value for name, equals, value in variables if equals}


def become(argv: list[str], environ: dict[bytes, bytes]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, environ)
    except OSError as error:
        print(f"cannot start {argv[0]}: {error.strerror}", file=sys.stderr)
        raise SystemExit(127 if isinstance(error, FileNotFoundError) else 126) from error


def listen(start: str) -> socket.socket:
    """By way of the directory: a socket's path may have 107 bytes only."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.path.exists(f"{start}.sock"):
        os.unlink(f"{start}.sock")  # of the rank that torchrun has started again
    directory, name = os.path.split(start)
    at = os.open(directory, os.O_PATH)
    server.bind(f"/proc/self/fd/{at}/{name}.sock")
    os.close(at)
    server.listen()
    return server


def start_for_somebody(
    server: socket.socket, deadline: float, argv: list[str], environ: dict[bytes, bytes]
) -> tuple[socket.socket | None, int]:
    """Who has come, and the process that was started for them; (None, 0): nobody came."""
    while True:
        try:
            server.settimeout(max(0.0, deadline - time.monotonic()))
            person, _ = server.accept()
        except (TimeoutError, BlockingIOError):
            return None, 0
        try:
            return person, start_on_terminal(person, argv, environ)
        except (OSError, ValueError, KeyError, TypeError) as error:
            tell(person, {"error": f"cannot start it: {error}"})
            person.close()


def start_on_terminal(person: socket.socket, argv: list[str], environ: dict[bytes, bytes]) -> int:
    """The process id. Raises OSError, ValueError, KeyError and TypeError."""
    person.settimeout(5.0)
    data, streams, _, _ = socket.recv_fds(person, MOST_BYTES, 3, socket.MSG_CMSG_CLOEXEC)
    try:
        wish = json.loads(data)
        argv = wish["argv"] or argv
        if wish["term"]:
            environ = {b"TERM": os.fsencode(wish["term"]), **environ}
        actions = [(os.POSIX_SPAWN_DUP2, stream, at) for at, stream in enumerate(streams)]
        return os.posix_spawnp(argv[0], argv, environ, file_actions=actions, setsigdef=DEFAULTS)
    finally:
        for stream in streams:
            os.close(stream)


def wait(pid: int, person: socket.socket) -> int:
    """Pass signals on until the process has ended; its status."""
    ended = os.pidfd_open(pid)
    waiting = [ended, person.fileno()]
    while ended not in select.select(waiting, [], [])[0]:
        number = read(person)
        if not number:
            waiting.remove(person.fileno())
        os.killpg(0, number[0] if number else signal.SIGHUP)
    return os.waitpid(pid, 0)[1]


def read(person: socket.socket) -> bytes:
    """The number of a signal; empty when START, and with it the terminal, is gone."""
    try:
        return person.recv(1)
    except OSError:
        return b""


def tell(person: socket.socket, answer: dict[str, object]) -> None:
    try:
        person.send(json.dumps(answer).encode())
    except OSError:
        pass  # who started it has gone


def nobody_came(start: str, rank: str) -> NoReturn:
    with open(f"{os.path.dirname(start)}/ranks/{rank}", "a") as record:
        record.write("nobody\n")
    raise SystemExit(NOBODY_CAME)


def end_like(status: int) -> NoReturn:
    """End with the same code, or by the same signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file is enough
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
