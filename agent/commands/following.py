"""A person who waits for a run: how it is begun and followed, what Ctrl-C does, how the end is told."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import ExitStack, suppress
from types import FrameType, TracebackType
from typing import Any

from agent.client import Client, RunEnd, RunInfo
from agent.commands.answers import run_answer, write
from agent.commands.pod import of_caller
from agent.decide.ending import JobEnd, signal_name
from agent.decide.noise import Noise, tells_enough, without_peers
from agent.decide.progress import Doing, run_words
from agent.decide.runspec import RunSpec
from agent.decide.tracebacks import own_errors, was_ended
from agent.decide.words import at_most, count_text
from agent.errors import READER_GONE, AgentError, ClusterBusy, DirectoryUnusable
from agent.machine.progress_line import ProgressLine, on_terminal
from agent.output import BAD, GOOD, STDERR, STDOUT, Lines, Sink, say, write_all

MOST_REASONS = 24
"""Lines of a failure's reason that are shown here; all are in the pods' logs and status."""


class RunFollower:
    """Begins a run and follows it to its end.

    Meanwhile SIGINT and SIGTERM end the run on every pod, a second one in a hurry, and a third leaves it alone.
    A terminal that goes leaves it alone, too.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._by = ""
        self._run = ""
        self._told = 0
        """How often it was told to end."""
        self._signal = 0
        """What it was first told to end by."""
        self._undo = ExitStack()

    def __enter__(self) -> RunFollower:
        # A signal that comes just before we begin to wait would otherwise be noticed only when something else comes.
        later = self._undo.callback
        pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for fd in pipe:
            later(os.close, fd)
        self._client.wake_by(pipe[0])
        later(self._client.wake_by, -1)
        later(signal.set_wakeup_fd, signal.set_wakeup_fd(pipe[1], warn_on_full_buffer=False))
        for number, action in ((signal.SIGINT, self._end), (signal.SIGTERM, self._end), (signal.SIGHUP, self._leave)):
            # Under nohup, or in the background of a script, a signal is ignored on purpose.
            if signal.getsignal(number) is not signal.SIG_IGN:
                # The inner call returns the old handler, which is put back at the end.
                later(signal.signal, number, signal.signal(number, action))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._undo.close()

    def begin(self, spec: RunSpec, wait: float = 0.0) -> RunInfo:
        """Raises AgentError when the agent refuses."""
        self._by = spec.by
        run = begin(self._client, spec, wait)
        self._run = run.id
        if self._told:
            self._cancel()  # it could not be named before
        return run

    def follow(self, run: RunInfo, sink: Sink) -> RunEnd:
        """Raises BrokenPipeError when nobody reads any more, DirectoryUnusable for a full disk; the run goes on."""
        try:
            return self._client.follow(run, sink)
        except DirectoryUnusable as error:
            raise DirectoryUnusable(error.what, _goes_on(run.id)) from error

    def code(self, ended: RunEnd) -> int:
        """Exit code of the command."""
        return 128 + self._signal if self._signal else ended.end.code

    def _end(self, number: int, frame: FrameType | None) -> None:
        """May come anywhere, even while we wait for a terminal that takes nothing, or inside itself."""
        self._told += 1
        self._signal = self._signal or number
        times = self._told
        if self._client.waits_its_turn:
            say("no longer waiting; the run has not begun")
            raise SystemExit(128 + number)
        if times > 2 or (times > 1 and not self._run):
            say(f"no longer waiting; {_goes_on(self._run)}")
            raise SystemExit(128 + number)
        if not self._run:
            say("the agent has not answered yet: a run that it starts is ended at once; interrupt again to leave")
            return
        # Before `say`, which a terminal that takes nothing can hold up.
        self._cancel()
        kills = "killing the run; interrupt again to stop waiting for it"
        say(kills if times > 1 else "ending the run on every pod; interrupt again to kill it at once")

    def _cancel(self) -> None:
        """Ask for the end, without waiting for an answer: this may run inside a signal handler."""
        why = f"{self._by} got {signal_name(self._signal)}"
        with suppress(AgentError):  # the agent is gone, which is told where its answers are waited for
            self._client.cancel(self._run, hurry=self._told > 1, why=why, answered=False)

    def _leave(self, number: int, frame: FrameType | None) -> None:
        """The terminal has gone, which ends nothing: somebody else may follow the run."""
        say(_goes_on(self._run))
        raise SystemExit(128 + number)


class RunLines(Lines):
    """What a run prints. A terminal shows in its last line what the agent says there of its progress. Lines that wait
    for the run's end (see Noise) can be told apart only where lines are whole."""

    def __init__(self, run: RunInfo, **options: Any) -> None:
        super().__init__(**options)
        self._run = run
        self._noise = Noise(self._now)
        self._began = time.monotonic()
        self._doing = Doing(shown=not on_terminal())

    def output(self, pod: int, stream: int, data: bytes) -> None:
        super().output(pod, stream, self._doing.printed(pod, data, to_stderr=stream == STDERR))

    def idle(self) -> float | None:
        for held in self._noise.due():
            super()._write((held.pod, STDERR), held.text)
        return min((seconds for seconds in (super().idle(), self._noise.next()) if seconds is not None), default=None)

    def _write(self, source: tuple[int, int], text: bytes) -> None:
        pod, stream = source
        super()._write(source, self._noise.passed(pod, text) if self._whole and stream == STDERR else text)

    def finish(self, end: JobEnd | None) -> int:
        """Show those of the lines that have waited for this end that it does not tell; returns how many are left out of
        a failure."""
        rest = shown = self._noise.rest()
        if end is not None and tells_enough(end):
            shown = own_errors(rest) if was_ended(end) else []
        elif end is not None and not end.code:
            shown = without_peers(rest)
        for held in shown:
            super()._write((held.pod, STDERR), held.text)
        return len(rest) - len(shown) if end is not None and end.code else 0

    def progress(self) -> str:
        return run_words(self._run.called, len(self._run.pods), time.monotonic() - self._began, self._doing.words)


def begin(client: Client, spec: RunSpec, wait: float) -> RunInfo:
    """Have a run started, within `wait` seconds when another goes on. Raises AgentError."""
    try:
        run = client.submit(spec)
    except ClusterBusy as busy:
        if not wait:
            raise
        say(f"{busy.what}; waiting for it to end, {wait:g} s at most")
        run = client.submit(spec, wait=wait)
    if run.name not in ("", spec.name):
        say(f"a run named {spec.name} exists: this one is {run.name}")
    return run


def run_to_end(client: Client, spec: RunSpec, *, label: bool, wait: float, as_json: bool = False) -> int:
    """Begin a run, show what it prints and how it ends; returns the exit code. Raises AgentError."""
    shown = STDERR if as_json else STDOUT
    with RunFollower(client) as follower:
        run = follower.begin(spec, wait)
        say(f"{run.title} runs on {count_text(len(run.pods), 'pod')}")
        if spec.gate:
            say("each pod is checked first, as a4-agent doctor does")
        try:
            whole = len(run.outputs) > 1 or spec.workload == "torchrun"
            lines = RunLines(run, label=label, whole=whole, stdout=shown)
            with ProgressLine(lines.progress):
                try:
                    ended = follower.follow(run, lines)
                except BrokenPipeError:  # what is left would go to the same reader
                    raise
                except BaseException:  # a third Ctrl-C among them
                    lines.finish(None)
                    raise
                unseen = lines.finish(ended.end)
            write_all(shown, ended.text.encode(errors="surrogateescape"))
            if as_json:
                write(run_answer(run, ended))
        except BrokenPipeError:
            return reader_gone(run.called)
        tell_end(run, ended, unseen)
        return follower.code(ended)


def submit(args: argparse.Namespace, spec: RunSpec, client: Client | None = None) -> int:
    """Have the agent of this pod run it, and follow it, leave it alone or only show it (--dry-run) as the options say;
    returns the exit code."""
    if args.dry_run:
        from agent.commands.dry_run import show

        if client is not None:
            client.close()
        return show(spec, as_json=args.json)
    with client or Client() as client:
        spec = of_caller(spec)
        if not args.detach:
            return run_to_end(client, spec, label=args.label, wait=args.wait, as_json=args.json)
        run = begin(client, spec, args.wait)
        if args.json:
            write(run_answer(run))
        else:
            sys.stdout.write(run.id + "\n")
        return 0


def reader_gone(run: str) -> int:
    """Say that the run goes on; returns the exit code that `| head` leads to."""
    say(f"nothing reads the output any more; {_goes_on(run)}")
    return READER_GONE


def tell_end(run: RunInfo, ended: RunEnd, unseen: int = 0) -> None:
    """On stderr: what failed, where, why, and where to read on; of a success, where its results are. `unseen`: lines of
    its output that were not shown."""
    end = ended.end
    results = f"; results on pod 0: {ended.results}" if ended.results else ""
    if ended.missing:
        results += f", without {ended.missing}"
    if end.code == 0:
        if results:
            say(f"{run.title} is done{results}", GOOD)
        return
    where = f" ({end.where})" if end.where else ""
    more = f" ({count_text(unseen, 'more line')} of errors)" if unseen else ""
    lines = [f"{run.title} ended with exit code {end.code}: {end.what}{where}", *reasons(end.why)]
    say("\n  ".join([*lines, f"logs: a4-agent logs {run.called}{more}{results}"]), BAD)


def reasons(why: str) -> list[str]:
    """The lines of why a run ended, as many as people read."""
    found = [line for line in why.splitlines() if line.strip()]
    return at_most(found, MOST_REASONS, "… {} more lines: a4-agent status")


def _goes_on(run: str) -> str:
    """How to see more of a run that is left alone; without a name it may not have begun."""
    unnamed = "if the run has begun, it is still running: a4-agent status"
    return f"{run} is still running: a4-agent logs {run}" if run else unnamed
