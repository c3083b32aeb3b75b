"""`a4-agent bundle`: one file for a ticket, from all pods."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO, NamedTuple

from agent import __version__
from agent.clinic.doctor.ticket import place_text, pods_of, run_ticket
from agent.commands.bundle_part import add_file, send
from agent.commands.pod import read_state
from agent.decide import bundle as rules
from agent.decide.plan import Plan
from agent.decide.pod_state import PodState
from agent.decide.result import Result
from agent.environment import NO_AGENT, find_plan
from agent.errors import DirectoryUnusable, MissingProgram, PeersMissing, SystemFault, UsageError
from agent.log import utc
from agent.machine.workers import in_time
from agent.output import STDOUT, say
from agent.paths import RESULT, RunDir, agent_command
from agent.standard_streams import refused

DESCRIPTION = """\
Makes one file for a ticket, from all pods that can be reached: facts, plan, state, events, the end of the logs, result,
findings and diagnosis of RUN (by default the newest run that occupied the cluster), what a4-agent doctor reads, the
kernel log, and a text with what a provider asks for. Secrets are replaced by ***. Disturbs no run, takes a minute at
most, and needs no agent that answers: pods and files that are not in it are named in it. Exits with 0 if there is a
file.

To make it on your machine:
  kubectl exec POD -- a4-agent bundle -o - > bundle.tar.gz
"""
EXAMPLES = """\
a4-agent bundle
a4-agent bundle night-1 -o /mnt/ticket-4711.tar.gz
a4-agent bundle --results /gcs/my-job
"""
COLLECT_SECONDS = 45.0
"""For all pods. What is left of a minute is for writing the file."""
DIRECTORY_SECONDS = 5.0
AT_ONCE = 128
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ConnectionAttempts=1")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="the run's name or id")
    text = "write to FILE, or - for stdout (default: a4-bundle-RUN.tar.gz in the current directory)"
    parser.add_argument("-o", "--output", metavar="FILE", help=text)
    text = "of a job that is over: from this directory of results alone"
    parser.add_argument("--results", metavar="DIR", help=text)
    # What the verb asks of each pod: the pod's directory, and how much it may send.
    parser.add_argument("--part", metavar="DIRECTORY", help=argparse.SUPPRESS)
    parser.add_argument("--most", type=int, default=rules.MOST_PART, help=argparse.SUPPRESS)


class _Subject(NamedTuple):
    """What a bundle is about."""

    run: str
    """Its id; empty: there was none."""
    pods: dict[int, str]
    """Completion index → the pod in words, with its place."""
    argvs: dict[int, list[str]]
    """What makes the parts of those that are asked."""
    alone: str = ""
    """Why no other pod is asked; empty: they are, or there is none."""

    @property
    def called(self) -> str:
        return f"a4-bundle-{self.run}" if self.run else "a4-bundle"


class _Copied(NamedTuple):
    """What came from a pod."""

    size: int
    ticket: str
    problems: list[str]
    result: Result | None


class _Part(NamedTuple):
    """What a pod sends."""

    file: BinaryIO
    status: int | None = None
    """Exit status of its process; None: it is not over."""
    errors: str = ""


def run(args: argparse.Namespace) -> int:
    """0 when there is a file. Raises AgentError."""
    if args.part is not None:
        send(RunDir(args.part) if args.part else None, args.run, args.results or "", args.most)
        return 0
    _check(args)
    subject = _of_results(args.results) if args.results else _of_pods(RunDir(), args.run)
    output = args.output or f"{subject.called}.tar.gz"
    with _destination(output) as (archive, beside):
        parts = _collected(subject, beside)
        silent = _write_all(subject, parts, archive)
    got = rules.summary(len(parts) - len(silent), [f"pod {pod}" for pod in silent], subject.alone)
    say(f"{got}: {'the bundle is written' if output == '-' else os.path.abspath(output)}")
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError."""
    for option, value in (("-o", args.output), ("--results", args.results)):
        if value == "":
            raise UsageError(f"{option} needs a name", "is a variable of this shell empty?")
    if args.output == "-" and os.isatty(STDOUT):
        hint = "a4-agent bundle -o - > bundle.tar.gz (kubectl exec without -t), or -o FILE"
        raise UsageError("a terminal cannot show an archive", hint)
    if args.results and args.run:
        raise UsageError("--results is about the run of that directory", f"--results {args.results}/runs/{args.run}")


def _of_results(directory: str) -> _Subject:
    """Raises MissingProgram."""
    seen: list[bool] = []
    in_time([lambda: seen.append(os.path.isdir(directory))], 1, time.monotonic() + DIRECTORY_SECONDS)
    if not any(seen):
        what = f"{directory} is not a directory" if seen else f"{directory} does not answer"
        raise MissingProgram(what, "--results takes the directory with result.json and pod-logs")
    argv = agent_command(sys.executable, "bundle", "--part", "", "--results", os.path.abspath(directory))
    return _Subject("", {0: "pod 0: the results directory"}, {0: argv}, f"the results in {directory}")


def _of_pods(directory: RunDir, called: str) -> _Subject:
    """Raises MissingProgram for a run that is not known, PeersMissing where no agent has ever been."""
    if not os.path.isdir(directory.path):
        raise PeersMissing(NO_AGENT, "of a job that is over: a4-agent bundle --results DIR")
    if not os.access(directory.path, os.R_OK | os.X_OK):
        raise SystemFault(f"{directory.path} cannot be read: only root can bundle a pod")
    state, plan, problem = None, None, ""
    try:
        state = read_state(directory)
        plan = find_plan(directory)
    except SystemFault as damaged:
        problem = damaged.what
    run, results = _run(directory, state, called)
    own = state.index if state else 0
    alone = problem or _why_alone(state, plan)
    peers = {peer.index: peer for peer in plan.peers} if plan else {}
    pods = {index: peer.where + place_text(peer.place) for index, peer in peers.items()} or {
        own: f"pod {own}: this pod"
    }
    asked = [own] if alone else [own, *(index for index in peers if index != own)]
    argvs = {}
    for pod in asked:
        words = ["bundle", "--part", directory.path, "--most", str(rules.most_part(len(asked)))]
        words += ["--results", results] if results and pod in (0, own) else []
        argv = agent_command(sys.executable, *words, *([run] if run else []))
        ssh = ["ssh", "-F", directory.ssh_config, *SSH_OPTIONS, peers[pod].name] if pod != own else []
        argvs[pod] = [*ssh, shlex.join(argv)] if ssh else argv
    return _Subject(run, pods, argvs, alone)


def _run(directory: RunDir, state: PodState | None, called: str) -> tuple[str, str]:
    """The id of the run, and its directory of results. Raises MissingProgram."""
    known = state.known_runs if state else ()
    wanted = state.run_id(called) if state and called else called or (known[-1].id if known else "")
    found = next((run for run in known if run.id == wanted), None)
    if called and found is None and not (rules.RUN_ID.fullmatch(wanted) and os.path.isdir(directory.run(wanted))):
        raise MissingProgram(f"this pod knows no run {called}", "a4-agent status lists the runs")
    return wanted, found.results if found else ""


def _why_alone(state: PodState | None, plan: Plan | None) -> str:
    if plan is None or state is None:
        return "no cluster is formed"
    return "the job has ended here" if state.phase == "ended" else ""


@contextmanager
def _destination(output: str) -> Iterator[tuple[tarfile.TarFile, str | None]]:
    """The archive, and where there is room for its parts. A file has its name once it is whole."""
    path = os.path.abspath(output)
    folder = os.path.dirname(path)
    aside = f"{folder}/.a4-bundle-{secrets.token_hex(8)}"
    try:
        if output == "-":
            with tarfile.open(None, "w:gz", sys.stdout.buffer, compresslevel=1) as archive:
                yield archive, None
            sys.stdout.flush()
        # A device or FIFO is written into: put in its place, a file would break it for everyone.
        elif os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as file, tarfile.open(None, "w:gz", file, compresslevel=1) as archive:
                yield archive, None
        else:
            with tarfile.open(aside, "x:gz", compresslevel=1) as archive:
                os.chmod(aside, 0o600)
                yield archive, folder
            os.replace(aside, path)
    except OSError as error:
        if output == "-":
            raise refused(error) from error
        hint = "put it elsewhere with -o FILE, or take it from stdout with -o -"
        raise DirectoryUnusable(f"{path} cannot be written: {error.strerror}", hint) from error
    finally:
        with suppress(OSError):
            os.unlink(aside)


def _collected(subject: _Subject, beside: str | None) -> dict[int, _Part]:
    """The part of each pod in a file without a name, as far as it came in time."""
    try:
        parts = {pod: _Part(tempfile.TemporaryFile(dir=beside)) for pod in subject.argvs}  # noqa: SIM115  # till we end
    except OSError as error:
        raise DirectoryUnusable(f"a temporary file cannot be written: {error.strerror}", "set TMPDIR") from error
    deadline = time.monotonic() + COLLECT_SECONDS
    # A run's mark would have the sessions end with it.
    environ = {name: value for name, value in os.environ.items() if name != "A4_RUN"}

    def ask(pod: int, argv: Sequence[str]) -> None:
        left = max(0.1, deadline - time.monotonic())
        quiet = {"stdin": subprocess.DEVNULL, "stdout": parts[pod].file, "stderr": subprocess.PIPE, "env": environ}
        try:
            done = subprocess.run(argv, timeout=left, **quiet)  # type: ignore[call-overload]
            parts[pod] = parts[pod]._replace(status=done.returncode, errors=done.stderr.decode(errors="replace"))
        except subprocess.TimeoutExpired:
            pass
        except OSError as error:
            parts[pod] = parts[pod]._replace(status=127, errors=f"{argv[0]} cannot be started: {error.strerror}")

    in_time([partial(ask, pod, argv) for pod, argv in subject.argvs.items()], AT_ONCE, deadline + 1.0)
    return dict(parts)


def _write_all(subject: _Subject, parts: Mapping[int, _Part], archive: tarfile.TarFile) -> list[int]:
    """Write the archive; returns the pods of which nothing came."""
    copied: dict[int, _Copied] = {}
    left = rules.MOST_BUNDLE
    for pod, part in parts.items():
        copied[pod] = _copy(part, archive, f"{subject.called}/pod-{pod}", min(rules.MOST_PART, left))
        left -= copied[pod].size
    for name, text in _pages(subject, copied).items():
        add_file(archive, f"{subject.called}/{name}", text.encode(errors="backslashreplace"))
    return [pod for pod, one in copied.items() if not one.size]


def _copy(part: _Part, archive: tarfile.TarFile, above: str, most: int) -> _Copied:
    """Pass on the files of a part into that directory, `most` bytes of them."""
    size, texts, result = 0, dict.fromkeys((rules.TICKET, rules.MISSING), ""), None
    damaged: list[str] = []
    for name, data in _members(part.file, damaged):
        if size + len(data) > most:
            damaged.append(f"{name} and all that follows would make the bundle too large")
            break
        size += len(data)
        if name in texts:
            texts[name] = data.decode(errors="replace")
        else:
            add_file(archive, f"{above}/{name}", data)
        if os.path.basename(name) == RESULT:
            result = result or rules.run_of_result(data)
    why = rules.part_problem(part.status, part.errors, bool(size), COLLECT_SECONDS)
    problems = [*filter(None, [why]), *damaged, *texts[rules.MISSING].splitlines()]
    return _Copied(size, texts[rules.TICKET], problems, result)


def _members(file: BinaryIO, damaged: list[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of the files that came whole; why no more came is added to `damaged`."""
    if not file.seek(0, os.SEEK_END):
        return
    file.seek(0)
    try:
        with tarfile.open(fileobj=file, mode="r|gz") as part:
            for member in part:
                names = [name for name in member.name.split("/") if name not in ("", ".", "..")]
                content = part.extractfile(member) if member.isfile() and names else None
                if content is not None:
                    yield "/".join(names), content.read(2 * rules.MOST_FILE)
    except (tarfile.TarError, EOFError, zlib.error, OSError):
        damaged.append("its part ends before all of it has come")


def _pages(subject: _Subject, copied: Mapping[int, _Copied]) -> dict[str, str]:
    """The bundle's own texts by their names."""
    results = [one.result for one in copied.values() if one.result]
    result = next((one for one in results if subject.run in ("", one.run)), None)
    pods = (pods_of(result) if result and not subject.run else {}) or subject.pods
    problems = {f"pod {pod}": one.problems for pod, one in copied.items()}
    problems |= {f"pod {pod}": [f"not asked: {subject.alone}"] for pod in sorted(pods.keys() - copied.keys())}
    tickets = [f"{text}\n{copied[pod].ticket if pod in copied else ''}" for pod, text in pods.items()]
    what, here = subject.run or (result.run if result else "a cluster without a run"), os.uname().nodename
    return {
        "README.txt": rules.README.format(what=what, version=__version__, pod=here, when=utc()),
        rules.TICKET: (run_ticket(result, utc) if result else "") + "".join(tickets),
        rules.MISSING: rules.missing_text(problems),
    }
