"""The agent's side of channels, on a loop of its own."""

from __future__ import annotations

from collections.abc import Callable

from agent.machine.loop import Loop
from agent.machine.stream import LineStream


class Listening:
    """It hears lines, and answers each with `answer`. A connection that ends stops the loop."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.channels: list[LineStream] = []
        self.lines: list[bytes] = []
        self.ends: list[str] = []
        self.answer: Callable[[LineStream, bytes], None] = lambda channel, line: self.loop.stop()

    def opened(self, channel: LineStream) -> None:
        self.channels.append(channel)

        def heard(line: bytes) -> None:
            self.lines.append(line)
            self.answer(channel, line)

        def ended(reason: str) -> None:
            self.ends.append(reason)
            self.loop.stop()

        channel.receive(heard, ended)
