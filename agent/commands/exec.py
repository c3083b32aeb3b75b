"""`a4-agent exec`: one command on all pods, equal output shown once."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator

from agent.client import Client, RunEnd, RunInfo
from agent.commands import Parser
from agent.commands.following import RunFollower, reader_gone, tell_end
from agent.commands.options import add_run, read_spec, take_command
from agent.commands.pod import of_caller
from agent.decide.ending import failures
from agent.decide.subset import pods_text, ranges
from agent.decide.tail import folded
from agent.errors import READER_GONE, DirectoryUnusable
from agent.lifecycle.waits import REPORT_SECONDS
from agent.output import STDERR, STDOUT, Lines, Sink, say, write_all

DESCRIPTION = """\
Runs COMMAND on all pods, beside whatever else runs there. Identical output of several pods is
shown once, under their numbers, when all have ended. The exit code is 0 if it is 0
everywhere, else that of a pod where it failed.
"""
EPILOG = """\
examples:
  a4-agent exec -- nvidia-smi -L
  a4-agent exec --hosts 0,4-7 -- df -h /mnt
  a4-agent exec --no-fold -- bash -c 'dmesg | tail -n 3'
"""
MOST_KEPT, MOST_KEPT_OF_ALL = 4 * 1024 * 1024, 32 * 1024 * 1024
"""How many bytes of output are kept: of one pod, and of all together, who share them equally."""


def add_options(parser: Parser) -> None:
    take_command(parser, "COMMAND", EPILOG, example="hostname")
    add_run(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--no-fold", action="store_true", help="show lines as they come, with [pod] in front")
    form.add_argument("--json", action="store_true", help="a list of {pod, name, code, stdout, stderr}")


def run(args: argparse.Namespace) -> int:
    """The exit code is that of the pods. Raises AgentError."""
    spec = read_spec(args, "exec")
    if args.dry_run:
        from agent.commands.dry_run import show

        return show(spec, as_json=args.json)
    with Client() as client, RunFollower(client) as follower:
        run = follower.begin(of_caller(spec))
        alone = len(run.outputs) == 1
        collected = FoldedOutput(run) if args.json or not (args.no_fold or alone) else None
        sink: Sink = collected or Lines(label=args.no_fold, whole=not alone)
        try:
            ended = follower.follow(run, sink)
        except BrokenPipeError:
            return reader_gone(run.id)
        if collected is not None:
            hint = f"{run.id} is over: a4-agent logs {run.id}"
            try:
                collected.show(ended, as_json=args.json)
            except BrokenPipeError:
                say(f"nothing reads the output any more; {hint}")
                return READER_GONE
            except DirectoryUnusable as error:
                raise DirectoryUnusable(error.what, hint) from error
        for line in failures(ended.codes, ended.lost):
            say(line)
        # What the pods' own codes do not tell: a limit, a program that is not there, Ctrl-C.
        if ended.end.code and ended.end.origin == "agent":
            tell_end(run, ended)
        return follower.code(ended)


class FoldedOutput(Sink):
    """Keeps each pod's output until all have ended; says meanwhile whom it waits for."""

    def __init__(self, run: RunInfo, now: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._now = now
        self._began = now()
        self._speak_at = self._began + 10.0
        self._open = set(run.outputs)
        self._most = min(MOST_KEPT, MOST_KEPT_OF_ALL // max(1, len(run.outputs)))
        self._cut: set[int] = set()
        self._kept: dict[tuple[int, int], bytearray] = {}

    def output(self, pod: int, stream: int, data: bytes) -> None:
        """Keep it, as far as there is room. What agents say of themselves is not of the command."""
        if stream not in (STDOUT, STDERR):
            return
        room = self._most - sum(len(self._kept.get((pod, each), b"")) for each in (STDOUT, STDERR))
        if len(data) > room:
            self._cut.add(pod)
        self._kept.setdefault((pod, stream), bytearray()).extend(data[:room])

    def wants(self, pod: int) -> bool:
        """A pod that has printed too much is read no further: the run goes on all the same."""
        return pod not in self._cut

    def over(self, pod: int) -> None:
        self._open.discard(pod)

    def idle(self) -> float | None:
        """Say now and then whom this waits for: without output there is nothing else to see."""
        if not self._open:
            return None
        now = self._now()
        if now >= self._speak_at:
            pods = f"{len(self._open)} of {len(self._run.outputs)} pods: {ranges(self._open)}"
            say(f"{self._run.id} waits for {pods} (for {now - self._began:.0f} s)")
            self._speak_at = now + REPORT_SECONDS
        return self._speak_at - now

    def show(self, ended: RunEnd, *, as_json: bool) -> None:
        """Write what was kept, which is given up piece by piece."""
        if as_json:
            for piece in self._as_json(ended):
                write_all(STDOUT, piece.encode())
        else:
            for stream in (STDOUT, STDERR):
                for text in folded({pod: self._taken(pod, stream) for pod in self._run.outputs}):
                    write_all(stream, text)
        if self._cut:
            logs = f"a4-agent logs {self._run.id} --pod {ranges(self._cut)}"
            more = f"of {pods_text(self._cut)} there is more: {logs}"
            say(f"only the first {self._most >> 10:,} KiB that a pod prints are shown; {more}")

    def _as_json(self, ended: RunEnd) -> Iterator[str]:
        """The list, one pod at a time."""
        for number, pod in enumerate(self._run.pods):
            item = {
                "pod": pod,
                "name": self._run.names.get(pod, ""),
                "code": ended.codes.get(pod),
                "stdout": self._taken(pod, STDOUT).decode(errors="replace"),
                "stderr": self._taken(pod, STDERR).decode(errors="replace"),
            }
            # One pod at a time, because all together may hold 32 MiB. [1:-2] takes the list's own brackets off.
            yield ("," if number else "[") + json.dumps([item], indent=1)[1:-2]
        yield "\n]\n"

    def _taken(self, pod: int, stream: int) -> bytes:
        """What a pod printed there, handed over once."""
        return bytes(self._kept.pop((pod, stream), b""))
