"""What a run on a local cluster left behind, as text and as JSON. Pure but for `collect`."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agent.decide.location import LEVELS, short_part
from agent.decide.subset import ranges
from agent.decide.tables import render
from agent.output import BAD, GOOD
from agent.paths import DEFAULT_RUN_DIR, HOSTFILE, TERMINATION_LOG
from agent.wire import json_object
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.pods import PodInfo
from agent.workbench.local.spec import ClusterSpec

RESULTS = ("report.html", "result.json", "pod-logs")
_MANY = 6
"""For more pods than these, the times of the first, the median and the last stand for all: lines fit 80 columns."""
_INDENT = 2
_DETAILS = {"peers-ready", "cluster-formed", "result-known"}
"""Events of one pod, or within a millisecond of another: in the JSON, but no columns of the table."""


@dataclass(frozen=True)
class PodReport:
    """One pod: how it ended, why, and the events of its agent."""

    info: PodInfo
    events: list[dict[str, Any]] = field(default_factory=list)
    cause: str = ""


@dataclass(frozen=True)
class Report:
    """What is shown at the end of `local run`."""

    name: str
    code: int
    pods: list[PodReport]
    plan: dict[str, Any] = field(default_factory=dict)
    hostfile: str = ""
    results: Sequence[str] = ()
    """Files of the results, on this machine: the first ones that people open."""

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        pods = [asdict(pod.info) | {"cause": pod.cause, "events": pod.events} for pod in self.pods]
        order = {"source": self.plan.get("source", ""), "order": self.plan.get("peers", [])}
        found = {"name": self.name, "code": self.code, "pods": pods, **order, "hostfile": self.hostfile}
        return found | ({"results": list(self.results)} if self.results else {})

    def text(self, tone: Callable[[str, str], str], columns: int = 0, *, details: bool = False) -> str:
        """How pods ended and where results are; with `details`, also how the cluster was formed. `tone` gives a line a
        colour; `columns`: how many the terminal has, 0 for a pipe."""
        room = max(0, columns - _INDENT)
        hostfile = f"Hostfile {HOSTFILE}:\n{_indent(self.hostfile)}" if self.hostfile else ""
        parts = [timeline(self.pods), order_table(self.plan, room), hostfile] if details else []
        parts.append(ends_table(self.pods, tone, room))
        parts.append("\n".join(["Results:", *(f"  {path}" for path in self.results)]) if self.results else "")
        return "\n\n".join(part for part in parts if part)


def run_directory(spec: ClusterSpec, index: int) -> str:
    """Where the agent of a pod keeps its state."""
    default = spec.env.get("A4_RUN_DIR", DEFAULT_RUN_DIR)
    return spec.pod_env.get(index, {}).get("A4_RUN_DIR", default)


def job_code(pods: Sequence[PodInfo]) -> int:
    """The coordinator's exit code, or the first that is not 0 when that is."""
    codes = [pod.code for pod in sorted(pods, key=lambda pod: pod.index)]
    return next((code for code in codes if code), 0)


def collect(cluster: LocalCluster, pods: Sequence[PodInfo], code: int, results: str = "") -> Report:
    """Read what the agents have left in their pods, and in the directory `results` of this machine."""
    found, plan, hostfile = [], b"", b""
    for pod in pods:
        if pod.started is None:
            found.append(PodReport(pod))
            continue
        directory = run_directory(cluster.spec, pod.index)
        names = [f"{directory}/events.jsonl", f"{directory}/plan.json", HOSTFILE, TERMINATION_LOG]
        files = cluster.read_bytes(pod.index, names)
        events, pod_plan, pod_hostfile, last_words = [files[name] or b"" for name in names]
        plan, hostfile = plan or pod_plan, hostfile or pod_hostfile
        cause = _cause(last_words) if pod.code else ""
        known = [json_object(line) for line in events.decode(errors="replace").splitlines()]
        whole = [one for one in known if "event" in one and isinstance(one.get("monotonic"), (int, float))]
        found.append(PodReport(pod, whole, cause))
    order = json_object(plan)
    kept = [path for path in (f"{results}/{name}" for name in RESULTS) if results and os.path.exists(path)]
    return Report(cluster.name, code, found, order, hostfile.decode(errors="replace"), kept)


def _cause(text: bytes) -> str:
    """What happened, and to which pod."""
    said = json_object(text)
    pod = str(said.get("where", "")).partition(",")[0]
    return str(said.get("what", "")) + (f" ({pod})" if pod else "")


def _milestones(pod: PodReport, begin: float) -> dict[str, float]:
    """Seconds from the first container's start to each event of a pod, the first time it came."""
    times = {}
    if pod.info.created_monotonic is not None:
        times["container"] = pod.info.created_monotonic - begin
    for event in pod.events:
        times.setdefault(str(event["event"]), float(event["monotonic"]) - begin)
    return times


def timeline(pods: Sequence[PodReport]) -> str:
    """When each pod reached each event; for many pods the least, the median and the most."""
    begins = [pod.info.created_monotonic for pod in pods if pod.info.created_monotonic is not None]
    if not begins:
        return ""
    times = {pod.info.index: _milestones(pod, min(begins)) for pod in pods if pod.info.created_monotonic}
    names = {name for row in times.values() for name in row}
    known = {name: [row[name] for row in times.values() if name in row] for name in names - _DETAILS}
    if len(times) > _MANY:
        head = ["min", "median", "max", "pods"]
        cells = {
            name: [*map(_seconds, (min(all), statistics.median(all), max(all))), str(len(all))]
            for name, all in known.items()
        }
    else:
        head = [f"pod {index}" for index in times]
        cells = {name: [_seconds(row.get(name)) for row in times.values()] for name in known}
    rows = [[name, *cells[name]] for name in sorted(known, key=lambda name: statistics.median(known[name]))]
    table = render(["", *head], rows, right=range(1, 1 + len(head)))
    return f"Start-up, seconds after the first container was begun:\n{_indent(table)}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def order_table(plan: dict[str, Any], columns: int) -> str:
    """The ranks with their pods and places."""
    peers = plan.get("peers")
    if not isinstance(peers, list) or not peers:
        return "No plan was made."
    rows = []
    for rank, peer in enumerate(peers):
        place = [*map(str, peer.get("place") or []), *[""] * len(LEVELS)][: len(LEVELS)]
        named = [str(peer.get("rank", rank)), str(peer.get("index", "?")), str(peer.get("node", ""))]
        rows.append([*named, *map(short_part, place)])
    source = plan.get("source") or "no places known, order of the indices"
    return f"Order ({source}):\n{_indent(render(['rank', 'pod', 'node', *LEVELS], rows, columns=columns))}"


def ends_table(pods: Sequence[PodReport], tone: Callable[[str, str], str], columns: int) -> str:
    """How every pod ended; pods that ended alike stand in one line."""
    groups: dict[tuple[str, str], list[int]] = {}
    for pod in pods:
        end = pod.info.state if pod.info.code is None else str(pod.info.code)
        groups.setdefault((end, pod.cause), []).append(pod.info.index)
    rows = [[ranges(indices), end, cause] for (end, cause), indices in groups.items()]
    head, *lines = render(["pods", "exit code", "cause"], rows, columns=columns).splitlines()
    found = [tone(f"  {line}", GOOD if end == "0" else BAD) for line, (_, end, _) in zip(lines, rows, strict=True)]
    return "\n".join(["Ends:", f"  {head}", *found])


def _indent(text: str) -> str:
    return "\n".join(f"{' ' * _INDENT}{line}".rstrip() for line in text.splitlines())
