"""`a4-agent logs`: what a run has printed, from its beginning."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime

from agent.client import MOST_READ, Client, RunInfo, hand_over
from agent.commands.answers import JsonLines
from agent.commands.options import add_which_run, checked, pods, unit_seconds
from agent.commands.pod import living, read_state
from agent.decide.pod_state import PodState
from agent.decide.setting_values import whole
from agent.decide.subset import pods_text, ranges, subset
from agent.decide.tail import rank_of
from agent.environment import read_plan
from agent.errors import MissingProgram, PeersMissing, UsageError
from agent.machine.spool import read_spool
from agent.output import AGENT, BAD, GOOD, STDERR, STDOUT, Lines, Sink, say, write_all
from agent.paths import RunDir

DESCRIPTION = """\
Prints the output of RUN from all its pods, by default of the newest run that occupied the cluster, and follows
it until the run is over. Interrupting it does not end the run. If no agent runs in this pod, only the pod's own
output is printed, from its disk.
"""
EXAMPLES = """\
a4-agent logs -n 50
a4-agent logs --rank 12 night-1
a4-agent logs --pod 3 --since 10m --agent
"""
RUN_ID = r"[A-Za-z0-9][A-Za-z0-9._-]*"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_which_run(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--pod", type=pods, action="extend", default=[], metavar="LIST", help="only these pods, such as 3 or 0,2-5"
    )
    which.add_argument(
        "--rank",
        type=checked(whole(0, 9_999_999)),
        metavar="N",
        help="only the pod of this rank, without lines of other ranks",
    )
    tail = ("-n", "--tail")
    parser.add_argument(
        *tail, type=checked(whole(0, 9_999_999)), metavar="N", help="begin with the last N lines of each pod"
    )
    parser.add_argument(
        "--since",
        type=checked(moment),
        default=0.0,
        metavar="TIME",
        help="begin at this time: 90s, 10m, 2h (ago), 2026-03-04T12:30",
    )
    follow = parser.add_mutually_exclusive_group()
    follow.add_argument("--no-follow", action="store_true", help="print what there is and exit")
    # What it does in any case, and what people type.
    follow.add_argument("-f", "--follow", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--agent", action="store_true", help="also print the agents' own lines")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--label", action="store_true", help="put [pod] in front of every line")
    form.add_argument("--json", action="store_true", help="a JSON object per line: {version, pod, stream, text}")


def run(args: argparse.Namespace) -> int:
    directory = RunDir()
    client = living(directory)
    if client is None:
        return _from_disk(args, directory)
    with client:
        return _from_agent(args, client)


def _from_agent(args: argparse.Namespace, client: Client) -> int:
    run = client.find(args.run)
    wanted = _wanted(args, run)
    if run.command:  # an agent of an older release does not say
        say(_headline(run, shutil.get_terminal_size().columns if os.isatty(STDERR) else 0))
    sink = _sink(args, run, several=len(wanted) > 1)
    chosen = run._replace(outputs=wanted)
    offsets = {}
    if args.no_follow or args.since or args.tail is not None:
        offsets = client.catch_up(chosen, sink, since=args.since)
    if args.no_follow and not run.over:
        say(f"{run.title} is still running")
        return 0
    ended = client.wait(run.id) if args.no_follow else client.follow(chosen, sink, offsets=offsets)
    write_all(STDERR if args.json else STDOUT, ended.text.encode(errors="surrogateescape"))
    where = f" ({ended.end.where})" if ended.end.where else ""
    say(f"{run.title} ended with exit code {ended.end.code}: {ended.end.what}{where}", BAD if ended.end.code else GOOD)
    return 0


def _headline(run: RunInfo, columns: int) -> str:
    """Which run it is, in lines that fit so many `columns` (0: any)."""
    room = columns - len("a4-agent: ")
    lines = [f"{run.title}: {run.command}", *([f"  {run.note}"] if run.note else [])]
    return "\n".join(line if len(line) <= room or not columns else line[: room - 1] + "…" for line in lines)


def moment(text: str) -> float:
    """A time in seconds since 1970. Raises ValueError with what it takes."""
    length = unit_seconds(text)
    if length is not None:
        return time.time() - length
    try:
        return datetime.fromisoformat(re.sub("Z$", "+00:00", text)).timestamp()
    except ValueError:
        raise ValueError("a time such as 90s, 10m, 2h (ago) or 2026-03-04T12:30") from None


def _sink(args: argparse.Namespace, run: RunInfo | None, *, several: bool) -> Sink:
    lines: Sink = JsonLines() if args.json else Lines(label=args.label, whole=several, agent=args.agent)
    if not args.json and args.tail is None and args.rank is None:
        return lines
    rank, slots = args.rank, run.slots if run else 1

    def wanted(line: bytes) -> bool:
        return rank is None or rank_of(line, rank - rank % slots) in (rank, None)

    return Selected(lines, agent=args.agent, tail=args.tail, wanted=wanted)


class Selected(Sink):
    """Passes whole lines on that are `wanted`; with `tail` only so many of each pod, when `close` is called first.

    The agents' own lines do not count unless `agent` is set. The sink need not be asked when it is idle: it holds back
    only lines without an end.
    """

    def __init__(self, sink: Sink, *, agent: bool, tail: int | None, wanted: Callable[[bytes], bool]) -> None:
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

    def over(self, pod: int) -> None:
        self._end_lines(pod)
        self._sink.over(pod)

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
        if not self._wanted(line):
            return
        if self._tail is None:
            self._sink.output(pod, stream, line)
        else:
            self._last.setdefault(pod, deque(maxlen=self._tail)).append((stream, line))


def _pod_of_rank(run: RunInfo, rank: int) -> tuple[int, ...]:
    """The pod that printed what this rank did. Raises UsageError when the run has no such rank."""
    if rank >= len(run.pods) * run.slots:
        raise UsageError(f"{run.id} has no rank {rank}", f"it has ranks 0-{len(run.pods) * run.slots - 1}")
    pod = run.pods[rank // run.slots]
    if pod in run.outputs:
        return (pod,)
    say(f"ranks of {run.id} print through pod {run.lead}: lines without a tag may be from any rank")
    return run.outputs


def _wanted(args: argparse.Namespace, run: RunInfo) -> tuple[int, ...]:
    """The pods to read. Raises UsageError for those that had no part in the run."""
    if args.rank is not None:
        return _pod_of_rank(run, args.rank)
    if not args.pod:
        # Agents have something to say even where no process prints.
        return run.outputs or ((run.lead,) if args.agent else ())
    try:
        chosen = subset(read_plan(), hosts=args.pod, lost={})
    except UsageError as error:
        raise UsageError(error.what.replace("--hosts", "--pod"), error.hint) from error
    indices = tuple(peer.index for peer in chosen.peers)
    if strangers := set(indices) - set(run.pods):
        raise UsageError(f"{pods_text(strangers)} took no part in {run.id}", f"its pods: {ranges(run.pods)}")
    return indices


def _from_disk(args: argparse.Namespace, directory: RunDir) -> int:
    """Without an agent nobody can ask other pods."""

    state = read_state(directory)
    index = state.index if state else 0
    if args.pod and args.pod != [str(index)]:
        what = f"no a4-agent runs in this pod: only what this pod itself printed, pod {index}, can be read"
        raise PeersMissing(what, "omit --pod, or ask in another pod")
    if args.rank is not None:
        raise PeersMissing("no a4-agent runs in this pod: rank placement is unknown", "omit --rank")
    run = _newest(state) if not args.run else state.run_id(args.run) if state else args.run
    path = directory.spool(run)
    piece = read_spool(path, 0, MOST_READ, args.since) if re.fullmatch(RUN_ID, run) else None
    if piece is None:
        raise MissingProgram(f"this pod has no output of {run or 'any run'}", "a4-agent status lists the runs")
    say(f"no a4-agent runs in this pod: this is what pod {index} itself printed during {run}")
    sink = _sink(args, None, several=False)
    while piece is not None and (piece.frames or piece.skipped):
        hand_over(sink, index, piece.frames, piece.skipped)
        piece = read_spool(path, piece.next, MOST_READ)
    sink.close()
    return 0


def _newest(state: PodState | None) -> str:
    """The run that went on last; empty when there has been none."""
    return state.known_runs[-1].id if state and state.known_runs else ""
