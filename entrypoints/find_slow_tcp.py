"""How find-slow measures TCP between two pods: in both directions at once, without torch."""

from __future__ import annotations

import select
import socket
import statistics
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from find_slow_member import CHUNK, Say

REPEATS = 5
HELLO_SECONDS = 2.0


class Exchange:
    """Sends and receives at the same time, until both sides have received for `seconds`."""

    def __init__(self, server: socket.socket, given: Mapping[str, Any], told: Mapping[str, Any]) -> None:
        self.server, self.given, self.told = server, given, told
        self.window = given["seconds"] / (REPEATS + 1)
        self.rates: list[float] = []
        self.began = 0.0
        self.count = 0

    def hello(self, rank: int) -> bytes:
        return f"{self.given['token']} {self.told['round']} {rank}\n".encode()

    def run(self, say: Say) -> None:
        """Say MB/s; the first window is for getting up to speed."""
        partner = (self.told["address"], self.told["port"])
        out = socket.create_connection(partner, timeout=self.told["deadline"])
        out.sendall(self.hello(self.given["rank"]))
        out.setblocking(False)
        source, sink = self.accepted(), bytearray(CHUNK)
        data = memoryview(bytes(CHUNK))
        sending = True
        while sending or len(self.rates) <= REPEATS:
            wanted = [source] if len(self.rates) <= REPEATS else []
            ready, free, _ = select.select(wanted, [out] if sending else [], [])
            if ready:
                self.count_in(source.recv_into(sink))
                if len(self.rates) > REPEATS:
                    source.close()
            if free:
                try:
                    out.send(data)
                except BlockingIOError:
                    pass
                except OSError:  # the other side has enough
                    sending = False
        say(statistics.median(self.rates[1:]))

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
        expected = self.hello(self.told["partner"])
        while True:
            found = self.server.accept()[0]
            found.settimeout(HELLO_SECONDS)
            with suppress(OSError):
                if found.recv(len(expected), socket.MSG_WAITALL) == expected:
                    found.settimeout(None)
                    return found
            found.close()
