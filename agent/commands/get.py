"""`a4-agent get`: the results and logs of a run, from all of its pods."""

from __future__ import annotations

import argparse
import os
import queue
import re
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from typing import BinaryIO, NamedTuple

from agent.client import Client, RunEnd, RunInfo
from agent.commands.fetched_files import Open, OpenIn, in_archive, in_directory
from agent.commands.options import add_which_run, working_directory
from agent.commands.pod import read_state
from agent.decide.words import count_text, listed
from agent.environment import find_plan
from agent.errors import AgentError, DirectoryUnusable, Exit, MissingProgram, PeerLost, UsageError
from agent.machine.api import SERVER_SECONDS
from agent.output import STDOUT, Sink, say
from agent.paths import POD_LOG, RESULT, RunDir

DESCRIPTION = """\
Fetches result.json, report.html and the log of each pod of RUN, by default of the newest run that occupied the
cluster; after a time limit, also the evidence.txt of each pod. The log of a lost pod is read from the results
directory, if this pod has that. Works in every pod. A run in progress has only logs and what --files names: files
that the workload wrote in its pods.

To copy it to your machine:
  kubectl exec POD -- a4-agent get RUN -o - | tar x
"""
EXAMPLES = """\
a4-agent get
a4-agent get night-1 -o /mnt/night-1
a4-agent get --files 'out/*.csv'
a4-agent get --all -o /mnt/results
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_which_run(parser)
    parser.add_argument("--all", action="store_true", help="all runs that a4-agent status lists, each in a directory")
    text = (
        "write the files to DIR, or - for a tar archive on stdout (default: a4-results/RUN, by its name if it has one)"
    )
    parser.add_argument("-o", "--output", metavar="DIR", help=text)
    text = "also these files or directories in each pod; PATTERN is relative to the current directory, with * and ?"
    parser.add_argument("--files", action="append", default=[], metavar="PATTERN", help=text)


def run(args: argparse.Namespace) -> int:
    """0 when something was fetched, or a run that goes on has printed nothing yet. Raises MissingProgram when nothing,
    or no result.json, is left of a run that is over (with --all: of any), DirectoryUnusable for a file that cannot be
    written."""
    _check(args)
    state = read_state(RunDir()) if args.all else None
    runs = [run.id for run in state.known_runs] if state else []
    with Client() as client, ExitStack() as stack:
        archive = stack.enter_context(in_archive()) if args.output == "-" else None
        fetched = []
        for run in runs or [args.run]:
            fetched.append(_get(client, run, args, archive))
            if archive is None:
                _tell(fetched[-1], several=args.all)
    if archive is not None:  # only now has its reader taken it
        for one in fetched:
            _tell(one, several=args.all)
    problems = [one.problem for one in fetched if one.problem is not None]
    if args.all and len(problems) == len(fetched):
        raise MissingProgram("no run has left anything that is still kept", "a4-agent status lists the runs")
    if problems and not args.all:
        raise problems[0]
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError."""
    if "" in args.files:
        raise UsageError("--files needs a path", "is a variable of this shell empty?")
    if args.output == "":
        raise UsageError("-o needs the name of a directory", "is a variable of this shell empty?")
    if args.output == "-" and os.isatty(STDOUT):
        hint = "a4-agent get -o - | tar x (kubectl exec without -t), or -o DIR"
        raise UsageError("a terminal cannot show an archive", hint)
    if args.all and args.run:
        raise UsageError(f"--all is about all runs, and {args.run} is one")


class _Fetched(NamedTuple):
    """What came of one run."""

    said: str = ""
    problem: AgentError | None = None
    """It is not kept, or not whole."""


def _tell(one: _Fetched, *, several: bool) -> None:
    """What is wrong with one of several runs is said, and the others are fetched all the same."""
    if one.said:
        say(one.said)
    if one.problem is not None and several:
        say(str(one.problem))


def _get(client: Client, run: str, args: argparse.Namespace, archive: OpenIn | None) -> _Fetched:
    try:
        info = client.find(run)
    except AgentError as error:
        if error.code != Exit.MISSING_PROGRAM:
            raise
        return _Fetched(problem=error)
    above = f"{args.output or 'a4-results'}/{info.called}"
    where = os.path.abspath(args.output if args.output and not args.all else above)
    opened = partial(archive, info.called) if archive else in_directory(where)
    ended = client.wait(info.id) if info.over else None
    got = _fetch(client, info, ended, opened)
    found = _fetch_files(info, args.files, opened) if args.files else 0
    got += [count_text(found, "file") + " of the workload"] if found else []
    said = f"{info.title}: {listed(got)} in {'the archive' if archive else where}" if got else ""
    if args.files and not found:
        problem = MissingProgram(f"no pod of {info.title} has a file {' or '.join(args.files)}")
    elif got and ended and ended.results and RESULT not in got:  # runs beside others keep none
        problem = MissingProgram(f"{RESULT} of {info.title} is no longer kept", "a4-agent status shows how it ended")
    elif not got and info.over:
        what = f"{info.title} has left nothing, or it is no longer kept"
        problem = MissingProgram(what, "a4-agent status shows how it ended, and its directory")
    else:
        return _Fetched(said or f"{info.title}: it has printed nothing yet")
    return _Fetched(said, problem)


def _fetch(client: Client, run: RunInfo, ended: RunEnd | None, opened: Open) -> list[str]:
    """Returns what there was, in words."""
    if ended is None:
        say(f"{run.title} is still running: this is what there is so far")
    got = [name for name in (RESULT, "report.html") if ended and _copy(client, run.id, 0, name, opened, name)]
    stored = ended.results if ended else ""
    dropped = {pod for pod in run.pods if run.over and _is_dropped(client, run.id, pod)}
    if dropped:
        say(f"pods no longer keep what {run.title} printed: its logs are those among its results")
    logs = sum((_stored_log if pod in dropped else _log)(client, run, pod, opened, stored) for pod in run.pods)
    got += [count_text(logs, "log")] if logs else []
    if ended and ended.end.code == Exit.TIME_LIMIT:
        pods = [pod for pod in run.pods if pod not in ended.lost]
        found = [pod for pod in pods if _evidence(client, run.id, pod, opened)]
        got += [f"evidence of {count_text(len(found), 'pod')}"] if found else []
    return got


def _fetch_files(run: RunInfo, patterns: Sequence[str], opened: Open) -> int:
    """How many there were."""
    from agent.commands.get_files import fetch

    directory, here = RunDir(), working_directory()
    plan = find_plan(directory)
    alone = plan is not None and len(plan.peers) == 1  # then there is no sshd
    found = 0
    for pod in run.pods:
        ssh = [] if alone else ["ssh", "-F", directory.ssh_config, run.names[pod]]
        found += fetch(pod, ssh, patterns, here, partial(_open_below, opened, f"files/{_of(pod)}"))
    return found


def _open_below(opened: Open, folder: str, name: str) -> AbstractContextManager[BinaryIO]:
    return opened(f"{folder}/{name}", empty=True)


def _of(pod: int) -> str:
    """Name of a pod among the results."""
    return f"worker-{pod}" if pod else "coordinator"


def _copy(client: Client, run: str, pod: int, name: str, opened: Open, target: str) -> bool:
    """False when there is no such file."""
    with opened(target) as file:
        for data in client.file(run, name, pod):
            file.write(data)
        return file.tell() > 0


def _evidence(client: Client, run: str, pod: int, opened: Open) -> bool:
    """False when there is none, or the pod was lost after the run, which is said."""
    try:
        return _copy(client, run, pod, "evidence.txt", opened, f"evidence/{_of(pod)}.txt")
    except (DirectoryUnusable, PeerLost):  # the file here, or the agent of this pod
        raise
    except AgentError as error:
        say(f"evidence.txt of pod {pod} cannot be read: {error}")
        return False


def _is_dropped(client: Client, run: str, pod: int) -> bool:
    """Whether the pod has dropped the output of a run: it keeps that of the last ones."""
    try:
        client.read(run, pod, most=1)
    except AgentError as error:  # of a lost pod `_log` says so
        return error.code == Exit.MISSING_PROGRAM
    return False


def _stored_log(client: Client, run: RunInfo, pod: int, opened: Open, results: str) -> bool:
    """As `_log`, of a pod that has dropped what it printed."""
    with opened(f"pod-logs/{_of(pod)}.log") as file:
        return bool(_copy_stored(client, run, pod, results, file))


def _log(client: Client, run: RunInfo, pod: int, opened: Open, results: str) -> bool:
    """False when there is none. `results`: the run's directory that may have that of a lost pod; empty for none."""
    with opened(f"pod-logs/{_of(pod)}.log") as file:
        sink = _Unchanged(file)
        client.catch_up(run._replace(outputs=(pod,)), sink)
        if sink.noted and not file.tell() and (which := _copy_stored(client, run, pod, results, file)):
            say(f"the log of pod {pod} is {which}")
        return file.tell() > 0


def _copy_stored(client: Client, run: RunInfo, pod: int, results: str, file: BinaryIO) -> str:
    """Copy the log of a pod that is stored. Returns which one it is; empty when there is none."""
    if run.over:
        with suppress(PeerLost):
            for data in client.file(run.id, POD_LOG, pod):
                file.write(data)
        if file.tell():
            return "the one among its results"
    for data in _stored(f"{results}/pod-logs/{_of(pod)}.log") if results else ():
        file.write(data)
    return f"what {results} has of it" if file.tell() else ""


def _stored(path: str) -> Iterator[bytes]:
    """What the results directory has of a pod's log: the file or, of a pod that was killed, its pieces in order.

    Nothing where this pod has no such directory. What cannot be read is said.
    """
    chunks: queue.Queue[bytes | OSError | None] = queue.Queue(maxsize=4)
    threading.Thread(target=_read_stored, args=(path, chunks.put), daemon=True).start()
    try:
        while (chunk := chunks.get(timeout=SERVER_SECONDS)) is not None:
            if isinstance(chunk, OSError):
                say(f"{chunk.filename or path} cannot be read: {chunk.strerror}")
                return
            yield chunk
    except queue.Empty:
        say(f"{path} cannot be read: it has not answered for {SERVER_SECONDS:g} s")


def _read_stored(path: str, give: Callable[[bytes | OSError | None], None]) -> None:
    folder, _, name = path.rpartition("/")
    try:
        pieces = sorted(found for found in os.listdir(folder) if re.fullmatch(re.escape(name) + r"\.\d{4,}", found))
        for each in [path] if os.path.lexists(path) else [f"{folder}/{piece}" for piece in pieces]:
            # Others may write to the directory: a link would lead elsewhere, a FIFO would wait.
            with open(os.open(each, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    continue
                while data := file.read(1 << 20):
                    give(data)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        give(error)
    give(None)


class _Unchanged(Sink):
    """A sink that writes all that one pod prints to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.noted = False
        """Something is missing, which was said."""

    def note(self, text: str) -> None:
        self.noted = True
        super().note(text)

    def output(self, pod: int, stream: int, data: bytes) -> None:
        self._file.write(data)
