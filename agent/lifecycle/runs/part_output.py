"""What a part of a run prints: kept, passed on, and read by those who follow it."""

from __future__ import annotations

from collections.abc import Callable

from agent.clinic.interface import Steps
from agent.decide.masking import MaskedStream
from agent.decide.tail import Tail
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.tagged_lines import TaggedLines
from agent.machine.api import Spool, Timer
from agent.workloads.base import RunContext, Workload

MOST_RECENT = 1000
"""Bytes in which the beginning of an awaited line is looked for."""


class PartOutput:
    """The output of this pod's part of a run. Nothing is kept before `open`.

    That of an exclusive run also goes to the pod's own log, and its spool is that of all exclusive runs, which gets the
    agent's lines as well and so is not closed with the part.
    """

    def __init__(self, pod: Pod, context: RunContext, workload: Workload) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._run_id = context.run_id
        self._emitted = workload.exclusive
        self._tail = Tail(workload.output_bytes)
        tagged = context.spec.mpi is not None and context.spec.mpi.tag
        self._lines = {stream: TaggedLines() for stream in (1, 2)} if tagged else {}
        self._streams: dict[int, MaskedStream] = {}
        self._waiting: list[Callable[[], None]] = []
        """Readers that want to hear when there is more to read."""
        self._patience: Timer | None = None
        self._spool: Spool | None = None
        self.steps = Steps(0, pod.machine.now())
        """How often the process prints, in lines."""
        self.collective: float | None = None
        """When it printed that a collective was complete, in seconds since 1970."""
        self._awaited = workload.shows_collective
        self._recent = b""

    @property
    def printed(self) -> float:
        """When the process last printed something; at first, when it was started."""
        return self.steps.at

    def begin(self) -> None:
        """The process has been started."""
        self.steps = Steps(0, self._machine.now())

    def open(self) -> None:
        """Raises OSError when there is no place to keep it."""
        logs = self._pod.run_logs
        self._spool = logs.spool if self._emitted else logs.open_spool(self._run_id)
        self._streams = {stream: self._pod.log.masker.stream() for stream in (1, 2)}

    def take(self, stream: int, data: bytes) -> None:
        """The process has printed this."""
        # A progress bar prints no newline, and is output all the same.
        printed = max(1, data.count(b"\n"))
        self.steps = self.steps.seen(self.steps.number + printed, self._machine.now())
        if self._awaited is not None:
            self._recent = self._recent[-MOST_RECENT:] + data
            if self._awaited.search(self._recent):
                self.collective, self._awaited, self._recent = self._machine.wall(), None, b""
        self._take(stream, self._lines[stream].feed(data) if self._lines else data)

    def _take(self, stream: int, data: bytes) -> None:
        # Unmasked, because the workload's parsers need what was printed; it is masked where it is told.
        self._tail.add(stream, data)
        self._show(stream, self._streams[stream].feed(data))

    def finish(self) -> None:
        """The process prints nothing more: show what was held back, for it could still have become a secret."""
        for stream, masked in self._streams.items():
            if self._lines:
                self._take(stream, self._lines[stream].finish())
            self._show(stream, masked.finish())

    def close(self) -> None:
        """Nothing more is coming."""
        if self._spool is not None and not self._emitted:
            self._spool.close()
        if self._patience is not None:
            self._patience.cancel()
        self._wake()

    def say(self, text: str) -> None:
        """Show a line of the agent's own. It does not count as output."""
        self._show(2, self._pod.log.masked(f"{text}\n").encode(errors="backslashreplace"))

    def text(self) -> str:
        """The end of what the process printed."""
        return self._tail.text()

    def _show(self, stream: int, data: bytes) -> None:
        """Keep and pass on what is masked."""
        if not data:
            return
        if self._spool is not None:
            self._spool.append(stream, data)
        if self._emitted:
            self._machine.emit(stream, data)
        self._wake()

    def when_more(self, action: Callable[[], None]) -> None:
        """Call `action` once, when there is more to read, nothing more to come, or a minute has passed.

        The last, so that readers who went away are forgotten.
        """
        self._waiting.append(action)
        if self._patience is None:  # one for all readers: a run that prints much has thousands of them in that time
            self._patience = self._machine.later(60.0, self._no_more_patience)

    def _no_more_patience(self) -> None:
        self._patience = None
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()
