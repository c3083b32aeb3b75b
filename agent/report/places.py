"""Who stands where: the order of the ranks by place, and the pods one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from agent.decide.ending import pod_of
from agent.decide.location import levels as levels_of
from agent.decide.result import Life, Pod, Result
from agent.decide.subset import pods_text
from agent.report.grid import Cell, Grid, GridColumn, RowGroup, cells, code, grid, number
from agent.report.number_words import NONE, count_text, duration_text, moment_text

MOST_COLUMNS = 6
"""How many columns show what differs from pod to pod, beside those that every report has."""

WORDS = {
    "gpus": "GPUs",
    "gpu_memory": "memory of each GPU",
    "driver_cuda": "CUDA of the driver",
    "cpus": "CPUs",
    "cpu": "CPU",
    "shm": "shared memory (/dev/shm)",
    "memlock": "memory that may be locked",
    "mpirun_version_text": "Open MPI",
    "nics": "RDMA devices",
    "mtu": "MTU",
    "nccl": "NCCL",
    "nccl_plugin": "network plugin of NCCL",
    "nccl_profiler": "profiler of NCCL",
    "nccl_torch": "NCCL that torch loads",
    "profile": "fabric profile",
}
"""What the page calls a name of the inventory; the others are words already."""


def order_grid(result: Result) -> Grid:
    """Ranks by place, a group per block."""
    depth = _depth(result)
    levels = levels_of(depth)
    grouped = 2 if depth >= 2 else 0
    columns = [number("ranks"), number("pod"), code("node"), *map(code, levels[grouped:])]
    groups, rank = [], 0
    for place, members in groupby(result.pods, key=lambda pod: pod.place[:grouped]):
        pods = list(members)
        rows = [
            [ranks(rank + number, result.slots), str(pod.index), pod.node, *pod.place[grouped:]]
            + [NONE] * (depth - max(len(pod.place), grouped))
            for number, pod in enumerate(pods)
        ]
        heading = _heading(place, levels, rank, pods, result.slots) if grouped else ""
        groups.append(RowGroup(heading, cells(rows)))
        rank += len(pods)
    return Grid("Ranks by place", tuple(columns), tuple(groups))


def order_words(result: Result) -> list[str]:
    """Sentences on the order: where the places came from, and how near neighbours in rank are."""
    if not result.pods:
        return []
    if not _depth(result):
        return ["No places are known: ranks follow the pod index."]
    levels = levels_of(_depth(result))
    counts = [
        count_text(len({pod.place[: level + 1] for pod in result.pods if len(pod.place) > level}), name)
        for level, name in enumerate(levels)
    ]
    words = [
        f"{count_text(len(result.pods), 'pod')} in {', '.join(counts)}; places from "
        f"{result.order.source or 'the pods'}."
    ]
    return words + _crossings(result, levels)


def _crossings(result: Result, levels: Sequence[str]) -> list[str]:
    """How often neighbours in rank stand in different blocks, where a ring of ranks is slower."""
    if len(levels) < 2:
        return []
    blocks = [pod.place[:2] for pod in result.pods]
    runs = [place for place, _ in groupby(blocks)]
    name = levels[1]
    if len(runs) == 1:
        return [f"All are in one {name}."]
    split = len(runs) - len(set(runs))
    crossings = count_text(len(runs) - 1, "pair")
    sentence = f"{crossings} of neighbours in rank {'is' if len(runs) == 2 else 'are'} in different {name}s"
    return [f"{sentence}: {count_text(split, name)} split." if split else f"{sentence}, the least possible."]


def _depth(result: Result) -> int:
    """Levels of the deepest place that is known; 0: none is."""
    return max((len(pod.place) for pod in result.pods), default=0)


def _heading(place: Sequence[str], levels: Sequence[str], rank: int, pods: Sequence[Pod], slots: int) -> str:
    """Where a group of pods stands, the nearest level first, and which ranks it has."""
    where = ", ".join(f"{level} {part}" for level, part in reversed(list(zip(levels, place, strict=False))))
    first, last = rank * slots, (rank + len(pods)) * slots - 1
    which = f"ranks {first}–{last}" if first < last else f"rank {first}"
    return f"{where or 'place unknown'} · {count_text(len(pods), 'pod')}, {which}"


def ranks(node_rank: int, slots: int) -> str:
    """The ranks of the pod with this place in the plan."""
    first = node_rank * slots
    return str(first) if slots == 1 else f"{first}–{first + slots - 1}"


def pods_grid(result: Result) -> Grid:
    """The pods in rank order, with the inventory that is not the same on all."""
    names = [name for name in _inventory(result) if not _same(result, name)]
    columns = [number("pod"), GridColumn("status"), number("ranks"), code("name"), code("node"), code("address")]
    columns += [code(WORDS.get(name, name)) for name in names[:MOST_COLUMNS]]
    left = len(names) - MOST_COLUMNS
    rows = (_pod_row(result, rank, names[:MOST_COLUMNS]) for rank in range(len(result.pods)))
    note = f"{count_text(left, 'more value')} differ from pod to pod: see result.json." if left > 0 else ""
    return grid("Pods in rank order", columns, rows, note=note)


def _pod_row(result: Result, rank: int, names: Sequence[str]) -> list[Cell | str]:
    """One pod, by the name that kubectl takes, if it is known."""
    pod = result.pods[rank]
    found = (_first_line(pod.inventory.get(name, NONE)) for name in names)
    status = _status(pod, pod_of(result.verdict.where) if result.verdict.status == "failed" else None)
    if pod.status is None and not pod.lost:
        status = _under_mpirun(result) or status
    name = pod.pod_name or pod.name.split(".")[0]
    return [str(pod.index), status, ranks(rank, result.slots), name, pod.node, pod.address, *found]


def _under_mpirun(result: Result) -> Cell | None:
    """The status of a pod without a process of a4-agent, where the lead's mpirun has ended well. With fewer ranks than
    slots, some of these pods may have had none."""
    argv = result.launch.argv if result.launch is not None else [""]
    if result.pods[0].status != 0 or argv[0].rpartition("/")[2] != "mpirun":
        return None
    every = "-np" in argv and argv[argv.index("-np") + 1] == str(len(result.pods) * result.slots)
    return Cell("✓ ranks of mpirun" if every else "ranks of mpirun, if any")


def _first_line(text: str) -> str:
    """What programs say of themselves may go on for lines."""
    return text.partition("\n")[0]


def _status(pod: Pod, cause: int | None) -> Cell:
    """How a pod's process ended. `cause`: the pod that made the run fail."""
    process, first = _process(pod.status), ", the cause" if pod.index == cause else ""
    if pod.lost:
        return Cell(f"✗ lost: {pod.lost}" + (f" ({process})" if pod.status is not None else "") + first, "bad")
    if pod.status and cause is not None and not first:
        return Cell(f"{process}, because of pod {cause}", "soft")
    return Cell(process + first, "bad" if pod.status or first else "soft" if pod.status is None else "")


def _process(status: int | None) -> str:
    """How a process ended, by its exit status; negative: by that signal."""
    if status is None:
        return "no process"
    if status < 0:
        return f"✗ signal {-status}"
    return f"✗ exit {status}" if status else "✓ exit 0"


def shared_inventory(result: Result) -> list[tuple[str, str]]:
    """What is the same on all pods, once."""
    if not result.pods:
        return []
    domains = {pod.name.partition(".")[2] for pod in result.pods}
    domain = [("domain", *domains)] if len(domains) == 1 and domains != {""} else []
    same = [name for name in _inventory(result) if _same(result, name)]
    told = [(WORDS.get(name, name), _first_line(result.pods[0].inventory[name])) for name in same]
    return domain + told  # type: ignore[return-value]


def _inventory(result: Result) -> list[str]:
    """Names of everything that any pod has told of itself, in the order in which it first comes."""
    return list(dict.fromkeys(name for pod in result.pods for name in pod.inventory))


def _same(result: Result, name: str) -> bool:
    """Whether all pods have told the same, or none has told it."""
    return len({pod.inventory.get(name) for pod in result.pods}) == 1


def differences_grid(result: Result) -> Grid | None:
    """What differed between pods where it should not; None for nothing."""
    if not result.differences:
        return None
    rows: list[list[Cell | str]] = [
        [one.what, one.usual, Cell(value, "warn"), pods_text(pods)]
        for one in result.differences
        for value, pods in one.odd.items()
    ]
    return grid("What differed", [GridColumn("what"), code("most pods"), code("instead"), GridColumn("on")], rows)


def lives_grid(result: Result) -> Grid | None:
    """Why the run started again, and when; None where it did not."""
    rows: list[list[Cell | str]] = [
        [
            str(number),
            moment_text(life.since),
            duration_text(life.until - life.since),
            life.verdict.what,
            life.verdict.where,
            pods_text(life.lost) if life.lost else "",
            _until_the_next(life),
        ]
        for number, life in enumerate(result.lives, 1)
    ]
    heads = ("life", "began", "took", "ended by", "where", "lost", "until the next")
    return grid("Lives before the last", [GridColumn(head) for head in heads], rows) if rows else None


def _until_the_next(life: Life) -> str:
    """What the time was spent on."""
    parts = [f"{life.until - life.noticed:.1f} s to end"]
    if life.lost and life.joined is not None:
        parts.append(f"{life.joined - life.until:.1f} s until replaced")
    if life.joined is not None and life.next is not None:
        parts.append(f"{life.next - life.joined:.1f} s to start")
    return ", ".join(parts)


def health_grid(result: Result) -> Grid | None:
    """What was found out about the health of the pods, the worst first; None where all is well."""
    tones = {"fatal": "bad", "degraded": "warn", "information": "soft"}
    found = [one for one in result.findings if one.state != "ok"]
    found.sort(key=lambda one: (one.state != "bad", list(tones).index(one.severity)))
    rows: list[list[Cell | str]] = [
        [
            Cell(one.severity, tones[one.severity]) if one.state == "bad" else Cell("not checked", "soft"),
            one.check,
            f"{one.value} (expected: {one.limit})" if one.limit and one.state == "bad" else one.value,
            f"pod {one.pod}" + (f", {one.device}" if one.device else ""),
            one.node,
            one.action if one.state == "bad" else "",
        ]
        for one in found
    ]
    heads = ("how bad", "check", "seen", "where", "node", "what to do")
    return grid("What was found", [GridColumn(head) for head in heads], rows) if rows else None
