"""Measures the speed between pairs of pods over TCP, many pairs at a time: one of these runs on every pod.

    python -ES find-slow.py --rank N --nodes N --lead HOST --port N --token WORD [--interface NAME] [--seconds S]
    [--next JSON]

The process of rank 0 conducts: it listens at PORT and tells all others, in rounds, whom to measure with. Who is paired
is decided by the command `--next`, which gets {"measured": [[round, rank, rank, speed], …]} on stdin and prints a list
of rounds, or an empty one at the end. A pair that is measured sends in both directions at once for S seconds; a child
process does so, which is killed at the deadline. The token keeps out processes of other runs; it is not secret.

Conductor and members write JSON lines: {"token", "rank", "address", "port"} from a member first; then {"round",
"partner", "address", "port", "deadline"} to it, and {"round", "speed"} back, in MB/s received, 0 for a time-out; and
{"end": true} to all. The file A4_RECORD gets:

  {"step": "start", "version": 1, "nodes": n, "time": s}
  {"step": "round", "number": 0, "pairs": [[0, 1, 1180.5], …]}    the slower direction; 0: a time-out
  {"step": "end", "time": s, "silent": [3]}                       who did not answer any more

Exit status: 0; 65 when a process did not answer; 75 when not all came, or the conductor is lost; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from contextlib import suppress

from record import RecordFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

WRONG, LOST = 65, 75
PATIENCE_SECONDS = 30.0
PAIR_SECONDS = 10.0
AGAIN_SECONDS = 2.0
GRACE_SECONDS = 1.0
REPEATS = 5
CHUNK = 1 << 20
MOST_LINE = 1 << 16
MOST_TIMEOUTS = 2
MOST_ROUNDS = 6
SIOCGIFADDR = 0x8915


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measures the speed between pairs of pods over TCP.")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--lead", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--interface", default="")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--next", type=json.loads)
    options = parser.parse_args(argv)
    if options.rank:
        return member(options)
    with socket.create_server(("", options.port), backlog=options.nodes) as server:
        if not (child := os.fork()):
            server.close()
            options.lead = "127.0.0.1"
            os._exit(member(options))
        try:
            return Conductor(options, server).conduct()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


class Lines:
    """JSON lines over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.left = b""

    def send(self, **values: object) -> None:
        """Raises OSError."""
        self.connection.sendall(json.dumps(values).encode() + b"\n")

    def read(self) -> Iterator[dict[str, Any]]:
        """What has come, after a wait for the first of it. Raises EOFError, OSError and ValueError."""
        data = self.connection.recv(CHUNK)
        *lines, self.left = (self.left + data).split(b"\n")
        if not data:
            raise EOFError
        if len(self.left) > MOST_LINE:
            raise ValueError("a line has no end")
        for line in lines:
            yield dict(json.loads(line))


class Conductor:
    """Tells all members whom to measure with."""

    def __init__(self, options: argparse.Namespace, server: socket.socket) -> None:
        self.options = options
        self.server = server
        self.record = RecordFile(os.environ.get("A4_RECORD", ""))
        self.members: dict[int, Lines] = {}
        self.listening: dict[int, tuple[str, int]] = {}
        self.measured: list[tuple[int, int, int, float]] = []
        self.silent: set[int] = set()

    def conduct(self) -> int:
        self.record.write("start", version=1, nodes=self.options.nodes, time=time.time())
        if missing := self.gather():
            pods = os.environ.get("A4_RUN_PODS", "").split(",")
            named = [pods[rank] if rank < len(pods) else f"of rank {rank}" for rank in missing]
            say(f"the processes of these pods did not come: {', '.join(named)}")
            return LOST
        number = 0
        while rounds := self.next_rounds():
            timeouts: dict[int, int] = {}
            for pairs in rounds:
                asked = [pair for pair in pairs if max(timeouts.get(rank, 0) for rank in pair) < MOST_TIMEOUTS]
                found = self.play(number, asked, timeouts)
                self.record.write("round", number=number, pairs=found)
                self.measured += [(number, *pair) for pair in found]
                late = sum(not speed for _, _, speed in found)
                print(f"round {number + 1}: {len(found)} pairs" + (f", {late} timed out" if late else ""), flush=True)
                number += 1
        self.record.write("end", time=time.time(), silent=sorted(self.silent))
        for lines in self.members.values():
            with suppress(OSError):
                lines.send(end=True)
        return WRONG if self.silent else 0

    def next_rounds(self) -> list[list[tuple[int, int]]]:
        asked = json.dumps({"measured": self.measured})
        done = subprocess.run(
            self.options.next, input=asked, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )
        if done.returncode:
            sys.exit(f"find-slow: whom to pair was not decided: {done.stderr}")
        return [[(one, other) for one, other in pairs] for pairs in json.loads(done.stdout)]

    def gather(self) -> list[int]:
        """Take in the members; the ranks of those that did not come."""
        until = time.monotonic() + PATIENCE_SECONDS
        new: dict[socket.socket, Lines] = {}
        while self.missing() and (left := until - time.monotonic()) > 0:
            for ready in select.select([self.server, *new], [], [], left)[0]:
                if ready is self.server:
                    connection = self.server.accept()[0]
                    new[connection] = Lines(connection)
                else:
                    self.greet(new.pop(ready))
        return self.missing()

    def missing(self) -> list[int]:
        return [rank for rank in range(self.options.nodes) if rank not in self.members]

    def greet(self, lines: Lines) -> None:
        """A stranger is sent away."""
        try:
            for hello in lines.read():
                rank = int(hello["rank"])
                if hello["token"] == self.options.token and rank in self.missing():
                    self.listening[rank] = str(hello["address"]), int(hello["port"])
                    self.members[rank] = lines
                    lines.connection.settimeout(GRACE_SECONDS)
                    return
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            pass
        lines.connection.close()

    def play(self, number: int, pairs: list[tuple[int, int]], timeouts: dict[int, int]) -> list[tuple[int, int, float]]:
        """One round: each pair with its speed."""
        waiting: dict[int, float] = {}
        for pair in pairs:
            again = any(rank in timeouts or rank in self.silent for rank in pair)
            deadline = self.options.seconds + (AGAIN_SECONDS if again else PAIR_SECONDS)
            for rank, partner in (pair, pair[::-1]):
                address, port = self.listening[partner]
                waiting[rank] = time.monotonic() + deadline + GRACE_SECONDS
                with suppress(OSError):
                    self.members[rank].send(
                        round=number, partner=partner, address=address, port=port, deadline=deadline
                    )
        speeds = self.answers(number, waiting)
        self.silent |= {rank for pair in pairs for rank in pair if rank not in speeds}
        found = [(one, other, min(speeds.get(one, 0.0), speeds.get(other, 0.0))) for one, other in pairs]
        for one, other, speed in found:
            if not speed:
                timeouts.update({rank: timeouts.get(rank, 0) + 1 for rank in (one, other)})
        return found

    def answers(self, number: int, waiting: dict[int, float]) -> dict[int, float]:
        """Rank → speed, of those that answer before their time is over."""
        speeds: dict[int, float] = {}
        while waiting:
            ranks = {self.members[rank].connection: rank for rank in waiting if rank in self.members}
            left = min(waiting.values()) - time.monotonic()
            for ready in select.select(list(ranks), [], [], max(0.0, left))[0]:
                rank = ranks[ready]
                try:
                    for answer in self.members[rank].read():
                        if answer["round"] == number:
                            speeds[rank] = max(0.0, float(answer["speed"]))
                            waiting.pop(rank, None)
                except (OSError, EOFError, ValueError, KeyError, TypeError):
                    waiting.pop(rank, None)
            waiting = {rank: until for rank, until in waiting.items() if until > time.monotonic()}
        return speeds


def member(options: argparse.Namespace) -> int:
    """Measure with whom the conductor says."""
    lines = Lines(reach(options.lead, options.port))
    lines.connection.settimeout(PATIENCE_SECONDS + PAIR_SECONDS * MOST_ROUNDS)
    address = address_of(options.interface) or lines.connection.getsockname()[0]
    with socket.create_server((address, 0)) as server:
        lines.send(token=options.token, rank=options.rank, address=address, port=server.getsockname()[1])
        try:
            while True:
                for told in lines.read():
                    if told.get("end"):
                        return 0
                    lines.send(round=told["round"], speed=measure(options, server, told))
        except (OSError, EOFError):
            say("the process on the first pod is gone")
            return LOST


def reach(host: str, port: int) -> socket.socket:
    """A connection to the conductor, as soon as it listens."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), timeout=PAIR_SECONDS)
        except OSError as error:
            if time.monotonic() > until:
                say(f"{host}:{port} does not answer: {error}")
                sys.exit(LOST)
            time.sleep(0.1)


def address_of(interface: str) -> str:
    """Its IPv4 address; empty for none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as some, suppress(OSError):
        asked = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(some, SIOCGIFADDR, asked)[20:24])
    return ""


def measure(options: argparse.Namespace, server: socket.socket, told: dict[str, Any]) -> float:
    """What a child received, in MB/s; 0 when it did not come to an end in time."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        signal.alarm(int(told["deadline"]) + 2)  # should this process be killed
        try:
            os.write(writer, str(Exchange(options, server, told).run()).encode())
        except OSError:
            pass  # the pair has no speed
        finally:
            os._exit(0)
    os.close(writer)
    answer = b""
    if select.select([reader], [], [], told["deadline"])[0]:
        answer = os.read(reader, 64)
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return float(answer or 0)


class Exchange:
    """Sends and receives at the same time, until both sides have received for long enough."""

    def __init__(self, options: argparse.Namespace, server: socket.socket, told: dict[str, Any]) -> None:
        self.window = options.seconds / (REPEATS + 1)
        self.server = server
        partner, number, token = told["partner"], told["round"], options.token
        self.expected = f"{token} {number} {partner}\n".encode()
        self.out = socket.create_connection((told["address"], told["port"]), timeout=told["deadline"])
        self.out.sendall(f"{token} {number} {options.rank}\n".encode())
        self.out.setblocking(False)
        self.rates: list[float] = []
        self.began = 0.0
        self.count = 0

    def run(self) -> float:
        """MB/s; the first window is for getting up to speed."""
        source, sink = self.accepted(), bytearray(CHUNK)
        data = memoryview(bytes(CHUNK))
        sending = True
        while sending or len(self.rates) <= REPEATS:
            receiving = len(self.rates) <= REPEATS
            wanted = [source] if receiving else []
            ready, free, _ = select.select(wanted, [self.out] if sending else [], [])
            if ready:
                self.count_in(source.recv_into(sink))
                if len(self.rates) > REPEATS:
                    source.close()
            if free:
                try:
                    self.out.send(data)
                except BlockingIOError:
                    pass
                except OSError:  # the other side has enough
                    sending = False
        return statistics.median(self.rates[1:])

    def count_in(self, size: int) -> None:
        now = time.monotonic()
        if not size:
            raise ConnectionError("the other side is gone")
        if not self.began:
            self.began = now
            return
        self.count += size
        if now - self.began >= self.window:
            self.rates.append(self.count / (now - self.began) / 1e6)
            self.began, self.count = now, 0

    def accepted(self) -> socket.socket:
        """The connection of the partner, whoever else may come."""
        while True:
            found = self.server.accept()[0]
            found.settimeout(AGAIN_SECONDS)
            with suppress(OSError):
                if found.recv(len(self.expected), socket.MSG_WAITALL) == self.expected:
                    found.settimeout(None)
                    return found
            found.close()


def say(text: str) -> None:
    print(f"find-slow: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
