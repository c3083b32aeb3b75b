"""How a job ended, and the words in which every pod says so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from signal import Signals
from typing import Any, Literal, NamedTuple

from agent import wire
from agent.cutting import first_of, json_size, visible
from agent.decide.diagnosis import Diagnosis
from agent.decide.subset import grouped, pods_text
from agent.decide.words import count_text, lines
from agent.errors import AgentError, Exit

Origin = Literal["agent", "workload"]
TERMINATION_BYTES = 4096


class JobEnd(NamedTuple):
    """How a run or a job ended, in the same words on every pod."""

    code: int
    """The exit code (docs/exit-codes.md)."""
    what: str
    """One sentence: what happened."""
    where: str = ""
    """The pod that it is about, in words; empty when it is not about one."""
    why: str = ""
    """Details and what to do, any number of lines."""
    origin: Origin = "agent"
    """Whose code it is, `agent` or `workload`: a workload may end with 75 too."""

    def to_json(self) -> dict[str, Any]:
        return dict(wire.to_json(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobEnd:
        """Inverse of `to_json`; raises ValueError for anything else."""
        return wire.from_json(cls, data)

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        return f"{self.what}{where}" + (f"\n{self.why}" if self.why else "")


def is_told(end: JobEnd) -> bool:
    """Whether it comes from outside: a signal, `cancel` or `release`."""
    return end.origin == "agent" and end.code in (Exit.INTERRUPTED, Exit.TERMINATED)


def code_of_sleeper(end: JobEnd, woken: JobEnd | None) -> int:
    """With which code a pod of a cluster that sleeps goes: the job's, but if that is 0 the one of what has `woken` it,
    as a signal or a lost coordinator. To Kubernetes a pod that ends with 0 has done its part and is not needed again,
    also when it was evicted or is broken."""
    return end.code or (woken.code if woken else 0)


def from_error(error: AgentError, where: str = "") -> JobEnd:
    return JobEnd(int(error.code), error.what, where, error.hint)


def from_bug(traceback: str, where: str) -> JobEnd:
    what = "a bug in a4-agent; please report it with the lines below"
    return JobEnd(int(Exit.BUG), what, where, traceback)


def from_signal(number: int, where: str) -> JobEnd:
    """The job was told to end."""
    return JobEnd(128 + number, f"told to end by {signal_name(number)}", where)


def from_status(status: int, what: str, where: str) -> JobEnd:
    """A workload's process ended with `status` (negative: killed by that signal)."""
    code = exit_code(status)
    if code == 0:
        return JobEnd(0, f"{what} done", origin="workload")
    how = f"was killed by {signal_name(-status)}" if status < 0 else "failed"
    return JobEnd(code, f"{what} {how}", where, origin="workload")


def exit_code(status: int) -> int:
    """What a shell would say for this process status."""
    return 128 - status if status < 0 else status


def signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def failures(codes: Mapping[int, int], lost: Mapping[int, str]) -> list[str]:
    """A line for each exit code that is not 0, and for each reason of a loss, with the pods that it is of."""
    failed = grouped({pod: code for pod, code in codes.items() if code and pod not in lost})
    signals = {code: f" ({signal_name(code - 128)})" for code in failed if 128 < code < 128 + 65}
    ended = [f"{pods_text(pods)}: exit code {code}{signals.get(code, '')}" for code, pods in failed.items()]
    return ended + [f"{pods_text(pods)}: lost: {why}" for why, pods in grouped(lost).items()]


def termination_message(
    end: JobEnd,
    *,
    epoch: str,
    pod: int,
    pod_name: str = "",
    node: str = "",
    run: str = "",
    code: int | None = None,
) -> str:
    """At most 4096 bytes of JSON for /dev/termination-log; the longest text is cut, never the JSON.

    `pod`, `pod_name` and `node` are the pod's that writes it; `where` says which pod the end is about. `code` is this
    pod's own when it differs from the job's.
    """
    data = {**end.to_json(), "epoch": epoch, "pod": pod, "run": run, "pod_name": pod_name, "node": node}
    if code is not None and code != end.code:
        data |= {"code": code, "job_code": end.code}
    texts = ("why", "what", "where")
    while (over := len(json.dumps(data)) - TERMINATION_BYTES) > 0 and any(len(data[name]) > 1 for name in texts):
        longest = max(texts, key=lambda name: json_size(data[name]))
        data[longest] = first_of(data[longest], json_size(data[longest]) - over, "…")
    return json.dumps(data)


def pod_of(where: str) -> int | None:
    """Completion index of the pod that the `where` of an end is about; None: no pod, or several."""
    found = re.match(r"pod (\d+)(?:,|$)", where)
    return int(found[1]) if found else None


def with_followers(end: JobEnd, failed: Collection[int], ranks: int = 0) -> JobEnd:
    """The end, with those of the `failed` pods named that ended because of the one that it is about; of a rank that
    failed, how many other `ranks` of each of these pods did."""
    first = pod_of(end.where)
    if first is None or is_told(end):
        return end
    others = sorted(set(failed) - {first})
    because = f"{pods_text(others)} ended because of it" if others else ""
    if ranks and end.origin == "workload" and re.search(r"\brank \d", end.what):
        # All ranks of these pods but the one that failed.
        followed = len({first, *others}) * ranks - 1
        pods = {first, *others} if ranks > 1 else others
        where = f"{count_text(followed, 'rank')} on {count_text(len(pods), 'pod')}"
        because = f"{where} ended because of it: a4-agent logs RUN --rank N" if followed else ""
    return end._replace(why=lines(end.why, because))


def with_diagnosis(end: JobEnd, found: Diagnosis) -> JobEnd:
    """The end of a run whose ranks left dumps, with what those say. What names no cause comes after what is known."""
    ordered = (end.why, found.sentence) if found.status == "unclear" else (found.sentence, end.why)
    return end._replace(why=lines(*ordered))


def with_losses(end: JobEnd, lost: Mapping[int, str], where: Callable[[int], str]) -> JobEnd:
    """The end, with the lost pods named that it is not about."""
    others = [
        f"{where(index)}, was lost too: {why}" for index, why in sorted(lost.items()) if index != pod_of(end.where)
    ]
    return end._replace(why=lines(end.why, *others))


def with_failure(end: JobEnd, failure: JobEnd) -> JobEnd:
    """The end, with what failed because of it, or at the same time."""
    failed = f"{failure.where}: {failure.what}" if failure.where else failure.what
    return end._replace(why=lines(end.why, failed, failure.why))


def with_out_of_memory(end: JobEnd, pods: Collection[int], where: Callable[[int], str]) -> JobEnd:
    """The end, with the pods named in which the kernel killed processes because memory had run out."""
    if not pods or end.code == Exit.OK:
        return end
    named = where(min(pods)) if len(pods) == 1 else pods_text(pods)
    what = f"memory ran out in {named}, and the kernel killed processes there"
    return end._replace(why=lines(f"{what}: raise the memory limit, or start fewer ranks on a pod", end.why))


def masked(end: JobEnd, mask: Callable[[str], str]) -> JobEnd:
    """The end as it may be shown: before it is cut, or sent to pods that do not know every secret.

    Programs' own words may be in it, and control characters in them.
    """
    what, where, why = (visible(mask(text)) for text in (end.what, end.where, end.why))
    return end._replace(what=what, where=where, why=why)


def merged(first: JobEnd | None, second: JobEnd) -> JobEnd:
    """Which of two causes stands: the first, unless it is only a pod that is going because all are.

    When a job is deleted every pod gets SIGTERM, and a worker's word of its own may arrive before the
    coordinator's signal does: the job then ended by the signal, not by the lost worker.
    """
    if first is None:
        return second
    if first.origin == "agent" and first.code == Exit.TRY_AGAIN and is_told(second):
        return second._replace(where="")
    return first
