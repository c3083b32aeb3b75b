"""Which lines of the pods' output `a4-agent logs` shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from agent.output import AGENT, Sink


class Selected(Sink):
    """Passes whole lines on that are `wanted`; with `tail` only so many of each pod, when `close` is called first.

    The agents' own lines do not count unless `agent` is set.
    """

    def __init__(
        self, sink: Sink, *, agent: bool, tail: int | None = None, wanted: Callable[[bytes], bool] | None = None
    ) -> None:
        self._sink = sink
        self._agent = agent
        self._tail = tail
        self._wanted = wanted
        self._begun: dict[tuple[int, int], bytes] = {}
        """(pod, stream) → a line that has no end yet."""
        self._last: dict[int, deque[tuple[int, bytes]]] = {}
        """Pod → its last lines with their streams."""

    def output(self, pod: int, stream: int, data: bytes) -> None:
        """Pass whole lines on; the beginning of one is kept until its end comes."""
        if stream == AGENT and not self._agent:
            return
        *lines, rest = (self._begun.pop((pod, stream), b"") + data).split(b"\n")
        for line in lines:
            self._take(pod, stream, line + b"\n")
        if rest:
            self._begun[pod, stream] = rest

    def wants(self, pod: int) -> bool:
        return self._sink.wants(pod)

    def over(self, pod: int) -> None:
        self._end_lines(pod)
        self._sink.over(pod)

    def note(self, text: str) -> None:
        self._sink.note(text)

    def idle(self) -> float | None:
        return self._sink.idle()

    def close(self) -> None:
        for pod, _ in list(self._begun):
            self._end_lines(pod)
        self._tail = None
        for pod, lines in self._last.items():
            for stream, line in lines:
                self._sink.output(pod, stream, line)
        self._last.clear()
        self._sink.close()

    def _end_lines(self, pod: int) -> None:
        """What a pod printed last may have no end."""
        for source in [source for source in self._begun if source[0] == pod]:
            self._take(*source, self._begun.pop(source))

    def _take(self, pod: int, stream: int, line: bytes) -> None:
        """Pass a line on, or keep it while only the last ones are wanted."""
        if self._wanted is not None and not self._wanted(line):
            return
        if self._tail is None:
            self._sink.output(pod, stream, line)
        else:
            self._last.setdefault(pod, deque(maxlen=self._tail)).append((stream, line))
