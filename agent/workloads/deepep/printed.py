"""Reads what DeepEP's test prints on one node, and judges what all nodes have printed. elastic.py reads test_ep.py.

Of test_internode.py every node prints 32 functional cases, begun with one flush and ended by " passed" with another,
then its best figures:

    [testing] Running with FP8, with top-k (async=True, previous=False) ... passed
    [tuning] Best dispatch (BF16): SMs 24, NVL chunk 8, RDMA chunk 16: 30 + 900 us, 81.00 GB/s (RDMA), 265.00 GB/s (NVL)
    [tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 12, 30.12 + 950.33 us, 75.00 GB/s (RDMA), 245.00 GB/s (NVL)

That is the form since 2012e31 (September 2025). From eb155da (July 2025) on, also in v1.2.1, both have instead
", transmit: 930.12 us, notify: 30.10 us, BW: 81.00 GB/s (RDMA), …", and earlier releases have no times. There is no
line that says that all is well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent.cutting import cut_at_word
from agent.decide.result import Result, Table
from agent.decide.result import table as result_table
from agent.decide.subset import pods_text
from agent.decide.tables import Cell, render
from agent.workloads.deepep import elastic
from agent.workloads.showing import Figure

CASES, FEWER_CASES = 32, 24
"""Per node: {with, without} a previous event x {async, sync} x inputs x {with, without} top-k. Releases before ef70b83
(September 2025) have three inputs, BF16, BF16 and FP8; later ones have four."""
OPERATIONS = ("dispatch FP8", "dispatch BF16", "combine")
MOST_ERROR = 300

# What NCCL prints may come between the two, cut off anywhere: its buffer is written when it is full.
_CASE = re.compile(r"\[testing\] Running with (?P<case>[^()\n]+ top-k \([^)\n]*\))|(?P<passed> passed)")
_NUMBER = r"\d+(?:\.\d+)?"
_BEST = re.compile(
    r"\[tuning\] Best (?:dispatch \((?P<type>FP8|BF16)\)|combine):"
    r" (?P<setting>SMs \d+, NVL chunk \d+, RDMA chunk \d+)[:,]"
    rf"(?: {_NUMBER} \+ (?P<time>{_NUMBER}) us,| transmit: (?P<transmit>{_NUMBER}) us, notify: {_NUMBER} us, BW:)?"
    rf" (?P<rdma>{_NUMBER}) GB/s \(RDMA\), (?P<nvl>{_NUMBER}) GB/s \(NVL\)"
)
_CONFIG = re.compile(r"\[config\] (\w+=\d+(?:, \w+=\d+)*)")
_ERROR = re.compile(r"^(?:\[rank\d+\]: )?((?:\w+\.)*\w*(?:Error|Exception)\b(?::.*)?)$", re.MULTILINE | re.ASCII)


class Best(NamedTuple):
    """The best of one operation on one node, in GB/s. Of the elastic test: scale-out and scale-up."""

    rdma: float
    nvl: float
    setting: str = ""
    """SMs and chunk sizes with which it was reached; the elastic test has one setting, which `config` has."""
    microseconds: float | None = None
    """How long the transfer took, without the notification before it."""


class Node(NamedTuple):
    """What one node's test has printed."""

    script: str = ""
    version: str = ""
    gpus: str = ""
    """8 × NVIDIA B200"""
    missing: str = ""
    """What the test needs and this pod does not have."""
    begun: int = 0
    passed: int = 0
    open: tuple[str, ...] = ()
    """Cases that were begun and did not pass, a few of them."""
    config: Mapping[str, int] = {}
    best: Mapping[str, Best] = {}
    """The best of each operation in OPERATIONS; the elastic test measures more."""
    error: str = ""
    """The last exception on stderr."""
    cases: int = CASES
    """How many this release has."""
    test: str = "internode"
    """One of those that --test takes."""
    measured: tuple[str, ...] = OPERATIONS
    """Those of OPERATIONS that it measures."""
    nvshmem: str = ""
    """The version of NVSHMEM."""
    warning: str = ""
    """What is known to be wrong with what this pod has."""

    @property
    def whole(self) -> bool:
        """Every case has passed and every operation was measured."""
        return self.begun == self.passed == self.cases and set(self.best) >= set(self.measured)

    @property
    def is_wrong(self) -> bool:
        """A check of a result has failed."""
        return self.passed < self.begun and self.error.startswith("AssertionError")


def read_node(about: str, output: str, errors: str, args: Sequence[str] = ()) -> Node:
    """What the three files of entrypoints/deepep-node.sh say. `args`: those of the test."""
    told = _about(about)
    gpus = told.get("gpu", [])
    errors_found: list[str] = _ERROR.findall(errors)
    node = Node(
        script="".join(told.get("script", [])),
        version="".join(told.get("version", [])),
        gpus=", ".join(f"{gpus.count(name)} × {name}" for name in dict.fromkeys(gpus)),
        missing="".join(told.get("missing", [])),
        error=cut_at_word(errors_found[-1], MOST_ERROR) if errors_found else "",
        nvshmem="".join(told.get("nvshmem", [])),
        warning="".join(told.get("warning", [])),
    )
    if told.get("test") == [elastic.ELASTIC]:
        return _elastic(node, output, args, ended_well=told.get("status") == ["0"])
    return _internode(node, output)


def _internode(node: Node, output: str) -> Node:
    cases, passed = _cases(output)
    return node._replace(
        begun=len(cases),
        passed=len(passed),
        open=_open(cases, passed),
        config=_config(output),
        best=dict(_best(output)),
        # After the first FP8 input comes another, or BF16 again.
        cases=FEWER_CASES if "".join(cases[6:7]).startswith("BF16") else CASES,
    )


def _elastic(node: Node, output: str, args: Sequence[str], ended_well: bool) -> Node:
    """A case has passed when the next begins; the last, when the test ends well."""
    cases, config, best = elastic.read(output)
    passed = set(range(len(cases) if ended_well else len(cases) - 1))
    wanted, measured = elastic.expected(args, OPERATIONS)
    return node._replace(
        test=elastic.ELASTIC,
        begun=len(cases),
        passed=len(passed),
        open=_open(cases, passed),
        config=config,
        best={name: Best(one.out, one.up, microseconds=one.microseconds) for name, one in best.items()},
        cases=wanted,
        measured=measured,
    )


def _open(cases: Sequence[str], passed: set[int]) -> tuple[str, ...]:
    return tuple([f"{i + 1} ({case})" for i, case in enumerate(cases) if i not in passed][:3])


def _about(text: str) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip():
            told.setdefault(name, []).append(value.strip())
    return told


def _cases(output: str) -> tuple[list[str], set[int]]:
    """Those that were begun, and which of them passed."""
    cases: list[str] = []
    passed: set[int] = set()
    for found in _CASE.finditer(output):
        if found["case"]:
            cases.append(found["case"])
        elif cases:
            passed.add(len(cases) - 1)
    return cases, passed


def _best(output: str) -> Iterator[tuple[str, Best]]:
    """(operation, its best)"""
    for found in _BEST.finditer(output):
        time = found["time"] or found["transmit"]
        operation = f"dispatch {found['type']}" if found["type"] else "combine"
        yield (
            operation,
            Best(float(found["rdma"]), float(found["nvl"]), found["setting"], float(time) if time else None),
        )


def _config(output: str) -> dict[str, int]:
    found = _CONFIG.search(output)
    pairs = (pair.split("=") for pair in found[1].split(", ")) if found else ()
    return {name: int(value) for name, value in pairs}


def incomplete(node: Node | None, where: str) -> list[str]:
    """What is not as it should be on a node, a sentence each; `where`: its pod, in words. None: it left nothing."""
    if node is None:
        return [f"{where} has left no output of the test"]
    if node.missing:
        return [f"{where}: {node.missing}"]
    reasons = []
    if node.begun != node.passed or node.passed != node.cases:
        reasons.append(f"{where}: {_cases_text(node)}")
    untold = [name for name in node.measured if name not in node.best]
    if untold and node.passed:
        reasons.append(f"{where} has not measured {', '.join(untold)} to the end")
    return reasons


def _cases_text(node: Node) -> str:
    if not node.begun:
        return f"none of {node.cases} cases was begun"
    unended = f"; begun and not passed: case {', '.join(node.open)}" if node.open else ""
    if node.begun < node.cases:
        return f"{node.passed} of {node.cases} cases passed, {node.begun} were begun{unended}"
    more = f", though {node.begun} were begun" if node.begun > node.cases else ""
    return f"{node.passed} of {node.cases} cases passed{more}{unended}"


def versions(nodes: Mapping[int, Node]) -> dict[str, str]:
    """The `versions` of result.json."""
    found = {
        "DeepEP": {node.version for node in nodes.values()},
        "NVSHMEM": {node.nvshmem for node in nodes.values() if node.test != elastic.ELASTIC},
    }
    return {name: ", ".join(sorted(known - {""})) for name, known in found.items() if known - {""}}


def warnings(nodes: Mapping[int, Node]) -> list[str]:
    """The `warnings` of result.json: each once, with its pods."""
    pods: dict[str, list[int]] = {}
    for index, node in nodes.items():
        if node.warning:
            pods.setdefault(node.warning, []).append(index)
    return [f"{pods_text(indices)}: {warning}" for warning, indices in pods.items()]


TABLE = "deepep"
COLUMNS = {
    "pod": "",
    "cases passed": "",
    **{f"{name} {link}": "GB/s" for name in OPERATIONS for link in ("RDMA", "NVL")},
}


def tables(nodes: Mapping[int, Node]) -> list[Table]:
    """The `tables` of result.json: a row for each pod that has said something."""
    rows = [_row(index, node) for index, node in nodes.items()]
    return [result_table(TABLE, "DeepEP between nodes: the best of each node", COLUMNS, rows)] if rows else []


def figures(result: Result) -> list[Figure]:
    """The slowest pod of each operation, and what the test was asked for, by the first node that says it."""
    nodes = result.record.get("nodes")
    said = [one.get("config") for one in nodes.values() if isinstance(one, dict)] if isinstance(nodes, dict) else []
    config = next((one for one in said if isinstance(one, dict) and one), {})
    details = [", ".join(f"{name} {value}" for name, value in config.items())]
    speeds = {name: result.numbers(TABLE, f"{name} RDMA") for name in OPERATIONS}
    return [Figure(f"{name} over RDMA", "GB/s", min(found, default=None), details) for name, found in speeds.items()]


def text_table(nodes: Mapping[int, Node]) -> str:
    """The same for people: RDMA / NVL in GB/s; empty when nobody has said anything."""
    rows: list[list[Cell]] = [
        [
            index,
            f"{node.passed}/{node.cases}",
            *(f"{best.rdma:.2f} / {best.nvl:.2f}" if best else None for best in map(node.best.get, OPERATIONS)),
        ]
        for index, node in nodes.items()
    ]
    heads = ["pod", "passed", *(f"{name} RDMA / NVL" for name in OPERATIONS)]
    return render(heads, rows, right=range(len(heads))) if rows else ""


def _row(index: int, node: Node) -> list[Any]:
    best = [node.best.get(name) for name in OPERATIONS]
    figures = [value for found in best for value in ((found.rdma, found.nvl) if found else (None, None))]
    return [index, node.passed, *figures]
