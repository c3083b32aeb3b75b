"""Which failure of a run under torchrun is its cause.

torchrun names a "root cause" per node, the failure with the earliest time. That is often a rank that only lost its
peer: a process killed by a signal, or one that ends without torch's error file, gets the time at which torchrun saw
it, up to seconds after the others' errors. So all failures of all pods are read here, and what only follows from
another failure is told apart by its words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from signal import Signals
from typing import Any

from agent.cutting import cut_at_word
from agent.decide.ending import JobEnd, exit_code, signal_name
from agent.decide.missed_peer import exception_class, misses_a_peer
from agent.decide.tail import last_lines
from agent.decide.torchrun import torchrun_end
from agent.decide.words import lines
from agent.wire import finite
from agent.workloads.base import FailedPart, Outcome, RunContext
from agent.workloads.held_rank import last_words

MOST = 300
"""Characters of an error that a sentence shows."""

_DIED_ENDING = "terminate called without an active exception"
_WHY_ENDING = (
    "its Python was ending while a thread of torch still worked (pytorch#190489): end the program by os._exit(0) once "
    "all is written; torch.distributed.barrier() at its end makes this rarer"
)

_ABORTED = re.compile(r"\b(?:Watchdog|NCCL error|CUDA error|Aborting process on rank \d+ due to)\b.*")
"""The last is torch 2.15's."""

_ENTRY = re.compile(
    r"^\[\d+\]:\n"
    r"  time +: (?P<time>\S+)\n"
    r"(?:  host +: .*\n)?"
    r"  rank +: (?P<rank>\d+) .*\n"
    r"  exitcode +: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\).*"
    r"(?:\n  error_file: (?P<file>.*))?"
    r"(?:\n  traceback : (?P<text>.*(?:\n  .*)*))?",
    re.MULTILINE,
)
_ROOT = "Root Cause (first observed failure):"


@dataclass(frozen=True)
class Failure:
    """One process that failed."""

    index: int
    """Completion index of its pod."""
    rank: int | None
    """None: it is torchrun itself, or nobody said."""
    exit_code: int | None
    """Negative: killed by that signal."""
    message: str = ""
    """First line of what it said, "RuntimeError: …"; empty when it said nothing."""
    trace: str = ""
    """Its traceback, any number of lines."""
    timestamp: float | None = None
    """When it failed, in seconds since 1970; without an error file, when torchrun saw it."""
    victim: bool = False
    """It only follows from another failure: a peer went away or did not come, or somebody ended it."""


def torchrun_failure(context: RunContext, outcome: Outcome, *, own: str = "") -> JobEnd | None:
    """Why the run failed; None when no process failed by itself.

    A program of a4-agent, named in `own`, ends the run with the code of its rank; torchrun's is 1 for all of them.
    """
    if outcome.first is None:
        return None
    status = outcome.statuses[outcome.first]
    said = outcome.failures.get(outcome.first, FailedPart()).output
    of_torchrun = torchrun_end(status, said, python=context.workload_python, port=context.master_port)
    if not of_torchrun.of_program:
        return JobEnd(of_torchrun.code, of_torchrun.sentence, context.where(outcome.first))
    failures = _failures(outcome)
    cause = root_cause(failures)
    code = exit_code(cause.exit_code if own and cause.exit_code else status)
    what = f"{own}: {sentence(cause)}" if own else sentence(cause)
    why = _why(context, failures, cause, outcome)
    return JobEnd(code, what, context.where(cause.index), why, origin="workload")


def rank_code(outcome: Outcome) -> int | None:
    """With what the rank that is the cause ended (see `Workload.rank_code`): torchrun's own code is 1 for all."""
    cause = root_cause(_failures(outcome)) if outcome.first is not None else None
    return None if cause is None or cause.rank is None or not cause.exit_code else exit_code(cause.exit_code)


def _failures(outcome: Outcome) -> list[Failure]:
    """The failures of all pods, the one that was heard first in front."""
    failed = [index for index, status in outcome.statuses.items() if status]
    found: list[Failure] = []
    for index in sorted(failed, key=lambda index: (index != outcome.first, index)):
        part = outcome.failures.get(index, FailedPart())
        found += pod_failures(index, outcome.statuses[index], part.output, part.error)
    return found


def _why(context: RunContext, failures: list[Failure], cause: Failure, outcome: Outcome) -> str:
    """The traceback of the cause, or the last that its pod printed; where there is none but that of a rank that missed
    another, who that is."""
    output = outcome.failures.get(cause.index, FailedPart()).output
    said = cause.trace or last_words(context, cause.rank, last_lines(of_rank(output, cause.rank)), cause.message)
    if cause.exit_code == -Signals.SIGABRT and _DIED_ENDING in output and not cause.message:
        said = lines(_WHY_ENDING, said)
    if outcome.lost or not all_victims(failures):
        return said
    hint = "every rank that failed only missed another one: look at the network, and at ranks that hung"
    return lines(said, hint, *(f"rank {rank} did not come and had to be ended" for rank in did_not_come(failures)))


def pod_failures(index: int, status: int, output: str, error: str = "") -> list[Failure]:
    """What failed on one pod: the ranks that torchrun lists, its own root cause first.

    `status`: torchrun's, not 0; `output`: the end of what it printed; `error`: the file that TORCHELASTIC_ERROR_FILE
    names in its environment, to which it copies the error file of its root cause. Always at least one.
    """
    told = _from_error_file(index, error)
    listed = _listed(index, output)
    if not listed:
        return [_alone(index, status, output, told)]
    if told is None or not listed[0].message.endswith(told.message):  # a traceback has the module, too
        return listed
    # How far torchrun's own times are off where the pod's zone is not UTC.
    shift = (told.timestamp or 0.0) - (listed[0].timestamp or 0.0) if told.timestamp and listed[0].timestamp else 0.0
    first = replace(listed[0], trace=told.trace or listed[0].trace)
    return [
        one if one.timestamp is None else replace(one, timestamp=one.timestamp + shift) for one in (first, *listed[1:])
    ]


def root_cause(failures: Iterable[Failure]) -> Failure:
    """The failure that the others follow from: no victim if there is another, the earliest, the first given."""
    return min(failures, key=lambda one: (one.victim, one.timestamp is None, one.timestamp or 0.0))


def all_victims(failures: Sequence[Failure]) -> bool:
    """Nothing failed of itself: a lost pod, the network, or a rank that did not come is the cause."""
    return bool(failures) and all(one.victim for one in failures)


def is_victim(status: int, left: FailedPart) -> bool:
    """The same of one pod (see `Workload.is_victim`)."""
    return all_victims(pod_failures(0, status, left.output, left.error))


def did_not_come(failures: Sequence[Failure]) -> list[int]:
    """Ranks that had to be ended while others waited for them until a timeout: the cause is there, if anywhere."""
    if not any(re.search(r"[Tt]imed out|timeout", one.message) for one in failures):
        return []
    ended = (-Signals.SIGTERM, -Signals.SIGKILL)
    return sorted(one.rank for one in failures if one.rank is not None and not one.message and one.exit_code in ended)


def sentence(failure: Failure) -> str:
    """In words: "rank 5 was killed by SIGKILL", "rank 3 failed: RuntimeError: …", "rank 3 ended with exit
    code 7". 1 is the code of every exception."""
    who = "torchrun" if failure.rank is None else f"rank {failure.rank}"
    code, said = failure.exit_code, cut_at_word(failure.message, MOST)
    if code is None or code == 1 or (said and code == -Signals.SIGTERM):  # torchrun ended it after it had failed
        return f"{who} failed" + (f": {said}" if said else "")
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    return f"{who} {how}" + (f": {said}" if said else "")


def _from_error_file(index: int, text: str) -> Failure | None:
    """What torch's error file says, which does not name the rank."""
    try:
        message = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(message, dict):
        return _judged(Failure(index, None, None, _first_line(str(message)))) if message != "<NONE>" else None
    extra: dict[str, Any] = message["extraInfo"] if isinstance(message.get("extraInfo"), dict) else {}
    code = message.get("errorCode")
    said = str(message.get("message", ""))
    found = Failure(
        index=index,
        rank=None,
        exit_code=code if isinstance(code, int) else None,
        message=_first_line(said),
        trace=str(extra.get("py_callstack", "")).strip("\n"),
        timestamp=finite(extra.get("timestamp")),
    )
    return _judged(found, said)


def _listed(index: int, output: str) -> list[Failure]:
    """The processes of torchrun's summary, its root cause, which it prints last, first."""
    root = output.rfind(_ROOT)
    entries = sorted(_ENTRY.finditer(output), key=lambda entry: entry.start() < root)
    return [_from_entry(index, entry, output) for entry in entries]


def _from_entry(index: int, entry: re.Match[str], output: str) -> Failure:
    text = re.sub(r"^  ", "", entry["text"] or "", flags=re.MULTILINE).strip()
    has_file = (entry["file"] or "<N/A>").strip() != "<N/A>"
    rank, code = int(entry["rank"]), int(entry["code"])
    said = _end_of_trace(text) if has_file else _printed(output, rank, code)
    found = Failure(index, rank, code, _first_line(said), text if has_file else "", _moment(entry["time"]))
    ended_hard = f"Unable to shutdown process {entry['pid']} via" in output
    ended = not said and (code == -Signals.SIGTERM or ended_hard)
    return _judged(found, said, ended=ended or _told_first(output, entry["pid"], rank))


def _told_first(output: str, pid: str, rank: int) -> bool:
    """Whether torchrun told the rank to end before it had said anything of an error."""
    told = output.find(f"Sending process {pid} closing signal")
    said = re.search(rf"^\[rank{rank}\]: ", output, re.MULTILINE)
    return told >= 0 and (said is None or told < said.start())


def _judged(failure: Failure, said: str = "", ended: bool = False) -> Failure:
    """A failure, a victim if its words say so; `ended`: torchrun ended the rank."""
    text = said or failure.message
    return replace(failure, victim=ended or misses_a_peer(text) or exception_class(text) == "SignalException")


def _alone(index: int, status: int, output: str, told: Failure | None) -> Failure:
    """The failure where there is no list: torchrun itself failed, or its list is cut off or of another format."""
    if told is None:
        ended = status in (-Signals.SIGTERM, 128 + Signals.SIGTERM)
        errors = [line for line in output.splitlines() if _is_error(line)]  # torchrun's own exception comes last
        return _judged(Failure(index, None, status, _first_line("\n".join(errors[-1:]))), ended=ended)
    names = re.findall(rf"^\[rank(\d+)\]: {re.escape(told.message)}", output, re.MULTILINE)
    rank = int(names[0]) if told.message and names else None
    return replace(told, rank=rank, exit_code=status if told.exit_code is None else told.exit_code)


def _printed(output: str, rank: int, code: int) -> str:
    """What a rank without an error file said last: its exception, or why its watchdog aborted it."""
    if code == -Signals.SIGABRT:
        # Line by line, and only those that name the rank: a progress bar is one line with hundreds of brackets.
        named = (line for line in output.splitlines() if re.search(rf"\b[Rr]ank ?{rank}\]", line))
        found = (_ABORTED.search(line) for line in named)
        if said := next((one[0] for one in found if one), ""):
            return said
    if code == 1 and not re.search(r"^\[rank\d+\]: ", output, re.MULTILINE):
        # torch marks nothing before a rank has joined the others. Who lost its peer may have printed it, too.
        of_torchrun = re.compile(r"^torch\.distributed\.elastic\.")
        lines = [line for line in output.splitlines() if not (of_torchrun.match(line) or misses_a_peer(line))]
    else:
        # An exception of the program may end in an abort, too, while a thread of torch still works.
        raised = code > 0 or code == -Signals.SIGABRT
        lines = re.findall(rf"^\[rank{rank}\]: (\S.*)", output, re.MULTILINE) if raised else []
    return str(next((line for line in reversed(lines) if _is_error(line)), ""))


def of_rank(output: str, rank: int | None) -> str:
    """The output without lines that torch marks as another rank's."""
    return re.sub(rf"^\[rank(?!{rank}\])\d+\]: .*\n", "", output, flags=re.MULTILINE)


def _is_error(line: str) -> bool:
    return re.match(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|BdbQuit)\b(?::|$)", line) is not None


def _end_of_trace(trace: str) -> str:
    """The exception that ends a traceback, with all of its lines."""
    lines = trace.split("\n")
    begin = next((i for i in range(len(lines) - 1, -1, -1) if _is_error(lines[i])), None)
    return "\n".join(lines[begin:]) if begin is not None else lines[-1].strip()


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _moment(text: str) -> float | None:
    """torchrun prints the time of its pod without a zone, which is UTC in containers."""
    try:
        return datetime.strptime(text, "%Y-%m-%d_%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
