"""What programs answered, as records: real answers where there are any, and shapes from the sources of NCCL."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import wire
from agent.clinic.interface import Question, as_evidence, diagnose
from agent.clinic.sources import catalogue
from agent.clinic.sources.catalogue import SOURCES
from agent.clinic.sources.dump import is_dump, read_dump
from agent.clinic.sources.processes import roles
from agent.clinic.sources.ras import read_ras, since
from agent.clinic.sources.recorder import read_hooked, read_recorder
from agent.clinic.sources.stacks import read_py_spy
from agent.clinic.why.fitting import compact, fit, size_of
from agent.clinic.why.places import frame_text
from agent.clinic.why.ras_view import least
from agent.clinic.why.records import (
    MOST_BYTES,
    NO_ENTRIES,
    Collected,
    Frame,
    GroupProgress,
    Operation,
    PodRecords,
    Process,
    Ras,
    RasCount,
    RasRank,
    Thread,
)
from agent.machine.api import RunMarks
from agent.machine.evidence_text import ProcessSeen
from tests.clinic.recordings import DIRECTORY, recorded

READERS: Mapping[str, Callable[..., Any]] = {
    "processes": roles,
    "recorder": read_recorder,
    "dump": read_dump,
    "ras": read_ras,
    "stacks": read_py_spy,
}
"""What reads the answers of each source."""


def test_every_source_has_a_row_a_reader_that_is_tested_and_a_line_on_the_page() -> None:
    names = {source.name for source in SOURCES}
    modules = Path(catalogue.__file__).parent.glob("*.py")
    classes = {path.stem for path in modules if "(WhySource):" in path.read_text()}
    assert {source.__module__.rpartition(".")[2] for source in SOURCES} == classes, "SOURCES has a row for each"
    assert len(names) == len(SOURCES) and names == READERS.keys(), "READERS has the reader of each source of `why`"
    tests = Path(__file__).read_text()
    assert [name for name, reader in READERS.items() if f" {reader.__name__}(" not in tests] == [], "no test reads them"
    page = (Path(__file__).parents[2] / "docs" / "why.md").read_text()
    table = page.partition("| source | what it knows |")[2].partition("\n\n")[0]
    assert set(re.findall(r"(?m)^\| (\w+) \|", table)) == names, "docs/why.md has a row for each source"


def hooked(completed: int, backend: str = "nccl2") -> str:
    """What torch's hook recorded for a backend that does not record itself: the answer of torch 2.15 for its `fake`
    one, under the name of another. `completed`: `op_id` of the last that is over. torch's handler leaves
    out entries of what is over, by its source."""
    text = json.dumps(recorded("hooked")).replace('"fake:', f'"{backend}:')
    answer: dict[str, Any] = json.loads(text)
    answer["pg_status"]["0"]["last_completed_collective"] = str(completed)
    answer["entries"] = [entry for entry in answer["entries"] if entry["op_id"] > completed]
    return json.dumps(answer)


@pytest.mark.parametrize(("completed", "over"), [(-1, 0), (0, 1), (2, 3), (3, 3), (4, 4)])
@pytest.mark.parametrize("backend", ["nccl2", "nccl-lazy"])
def test_a_recorder_that_torch_s_hook_fills(completed: int, over: int, backend: str) -> None:
    """A send counts among operations, the first has the number 0, and nothing says whether a GPU has begun one."""
    (group,) = read_hooked(hooked(completed, backend), []).groups
    assert (group.backend, group.entered, group.completed, group.started) == ("nccl", 5, over, None)
    assert (group.ranks, group.description) == ((0, 1), "default_pg")
    assert group.recent[-1].name == "barrier"


def test_a_rank_that_waits_in_nothing_has_its_numbers() -> None:
    """A send is among them."""
    (group,) = read_hooked(hooked(5), []).groups
    assert (group.backend, group.entered, group.completed, group.recent) == ("nccl", 6, 6, ())
    assert (group.ranks, group.description) == ((0, 1), "default_pg")
    nobody = json.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}})
    assert read_hooked(nobody, []) == ((), NO_ENTRIES)


@pytest.mark.parametrize(
    ("entered", "made", "found"),
    [
        ({3: 4, 11: 90}, ["0", "7", "2"], {"7": 4, "2": 90}),
        ({3: 4, 11: 90}, ["0", "2", "7"], {"2": 4, "7": 90}),
        ({3: 4, 11: 90}, [], {"2": 90, "7": 90}),
        ({3: 4}, ["0", "7", "2"], {"2": 4, "7": 4}),
        ({}, ["0", "7", "2"], {"2": 0, "7": 0}),
    ],
    ids=["in order", "in another order", "order not known", "one was not used", "none was used"],
)
def test_groups_in_which_a_rank_waits_in_nothing(
    entered: dict[int, int], made: list[str], found: dict[str, int]
) -> None:
    """It waits in the group of all. Numbers that may be those of several groups count as the highest of them."""
    answer = json.loads(hooked(4))
    answer["pg_config"] |= {name: {"name": name, "desc": "", "ranks": "[0, 1]"} for name in ("2", "7")}
    answer["pg_status"] |= {str(one): {"last_enqueued_collective": str(count - 1)} for one, count in entered.items()}
    world, *others = read_hooked(json.dumps(answer), made).groups
    assert (world.group, world.entered, world.completed) == ("0", 5, 4)
    assert {one.group: one.entered for one in others} == found
    assert all(one.completed == one.entered for one in others)


def test_a_gloo_recorder() -> None:
    """Its numbers are texts, and it names no ranks."""
    (group,) = read_recorder(json.dumps(recorded("sleep")["0"]["recorder"])).groups
    assert (group.group, group.backend, group.entered, group.completed, group.ranks) == ("0", "gloo", 5, 4, ())
    assert group.recent == (Operation(5, "all_reduce", "[1024] float"),)
    assert group.started is None


def test_an_nccl_recorder_with_timing_and_an_open_receive() -> None:
    entry = {"collective_seq_id": 56, "p2p_seq_id": 0, "is_p2p": False, "pg_id": 0, "state": "started"}
    entry |= {"process_group": ["0", "default_pg"], "input_sizes": [[2]], "input_dtypes": ["Float"]}
    entry["profiling_name"] = "nccl:all_reduce"
    receive = {**entry, "is_p2p": True, "p2p_seq_id": 3, "profiling_name": "nccl:recv 0<-1", "state": "scheduled"}
    over = {**receive, "p2p_seq_id": 2, "retired": True}
    status = {"last_enqueued_collective": "56", "last_started_collective": "56", "last_completed_collective": "55"}
    config = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
    data = {"version": "2.10", "pg_config": {"0": config}, "pg_status": {"0": status}}
    (group,) = read_recorder(json.dumps({**data, "entries": [entry, over, receive]})).groups
    assert (group.entered, group.completed, group.started, group.ranks) == (56, 55, 56, (0, 1))
    assert [(one.number, one.name) for one in group.sends] == [(3, "recv 0<-1")]


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "not a recorder's"), ("<html>", "not a recorder's"), ('{"version": "2.10", "entries": []}', NO_ENTRIES)],
)
def test_what_is_no_recorder_says_so(text: str, why: str) -> None:
    found = read_recorder(text)
    assert found.groups == ()
    assert why in found.why


@pytest.mark.parametrize(
    ("name", "whole"), [("dump-7", True), ("dump-", False), ("dump-7.tmp", False), ("dump-²", False)]
)
def test_names_of_dumps(name: str, whole: bool) -> None:
    assert is_dump(name) is whole


def test_a_dump_is_read_without_running_what_it_holds() -> None:
    data = {**recorded("sleep")["0"]["recorder"]}
    data["entries"] = [{**data["entries"][-1], "frames": [{"name": "main", "filename": "/workspace/a.py", "line": 3}]}]
    (group,) = read_dump(pickle.dumps(data, 2)).groups
    assert (group.entered, group.recent[-1].number) == (5, 5)


def test_the_dump_of_a_rank_that_torch_2_15_ended() -> None:
    """It is the only one: a rank that did not wait leaves none."""
    (group,) = read_dump((DIRECTORY / "dump-2.15.0").read_bytes()).groups
    assert (group.backend, group.entered, group.completed, group.started, group.ranks) == ("nccl", 21, 20, None, (0, 1))
    assert group.recent == (Operation(21, "all_reduce", "[1048576] float"),)
    pod = PodRecords(0, "p0", "", processes=(Process(72, 0, "gone", "rank", 0, groups=(group,)),))
    found = diagnose(Collected("r", pods=(pod,), ranks=2, trigger="watchdog"))
    assert (
        "waits in all_reduce #21, perhaps for rank 1, of which too little is known (it left no dump)" in found.sentence
    )


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(os.system),
        b"cos\nsystem\n(S'true'\ntR.",
        pickle.dumps(bytearray(9), 5),
        b"\x80\x02\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02]",
        b"",
    ],
    ids=["protocol 4", "text", "bytearray", "huge bytearray", "cut", "empty"],
)
def test_any_other_pickle_is_refused(data: bytes) -> None:
    found = read_dump(data)
    assert found.groups == ()
    assert "cannot be read" in found.why


def test_py_spys_stacks() -> None:
    (thread,) = read_py_spy(json.dumps(recorded("pipeline")["3"]["stacks"]))
    assert thread.frames[0].arguments == {"src": "2", "tag": "0", "group_src": "None"}
    assert frame_text(thread.frames[0]) == "torch/distributed/distributed_c10d.py:2799 (recv)"


def test_sends_and_receives_of_gloo_count_for_no_collective() -> None:
    """Recorded of a rank that sent once before four collectives, of which it waits in the last: torch counts five."""
    (group,) = read_recorder(json.dumps(recorded("after-a-send"))).groups
    assert (group.entered, group.completed) == (4, 3)
    assert [operation.number for operation in group.recent] == [4]


RANK = ProcessSeen(20, 10, "python a.py", "S", 1.0, 1.0, rank=2)
CHILD = replace(RANK, pid=30, ppid=20)
LAUNCHER = ProcessSeen(10, 1, "mpirun -n 4 a.py", "S", 1.0, 1.0)


@pytest.mark.parametrize(
    ("seen", "noted", "ranks"),
    [
        ((RANK, CHILD), {}, {20}),
        ((RANK, replace(CHILD, ppid=1)), {20: 2}, {20}),
        ((RANK, replace(CHILD, ppid=1)), {}, {20}),
        ((replace(CHILD, ppid=1), replace(CHILD, pid=40, ppid=30)), {20: 2}, set()),
        ((replace(RANK, program="sh /x/rank.sh a.py"), CHILD, replace(CHILD, pid=40, ppid=1)), {}, {30}),
        ((replace(RANK, ppid=1),), {}, {20}),
    ],
    ids=["child", "orphan, noted", "orphan", "rank is gone", "our shell", "launcher is gone"],
)
def test_what_a_rank_has_forked_is_no_rank(
    seen: tuple[ProcessSeen, ...], noted: dict[int, int], ranks: set[int]
) -> None:
    found = roles((LAUNCHER, *seen), noted)
    assert {pid for pid, role in found.items() if role == "rank"} == ranks


def ras_json(*counts: int, missing: bool = False) -> str:
    status = {"init_state": 0, "abort_flag": False, "finalize_called": False}
    ranks = [
        {"rank": n, "host": f"198.18.0.{n}", "pid": 100 + n, "cuda_dev": 0, "status": status}
        | {"collective_counts": {"AllReduce": count, "Reduce": 0}}
        for n, count in enumerate(counts)
    ]
    gone = {"rank": len(counts), "host": "198.18.0.9", "pid": 109, "cuda_dev": 0}
    gone["status"] = {"unresponsive": True, "considered_dead": False}
    communicator = {"hash": "0x1", "size": len(counts) + missing, "ranks": ranks, "missing_ranks": [gone] * missing}
    return "OK\n" + json.dumps({"nccl_version": "2.28.9", "communicators": [communicator]})


def ras_of(text: str) -> Ras:
    found = read_ras(text)
    assert isinstance(found, Ras), found
    return found


def test_ras_in_json_lists_those_behind_and_not_the_minority() -> None:
    ras = ras_of(ras_json(56, 55, 55, 55))
    (communicator,) = ras.communicators
    assert ras.status == "MISMATCH"
    assert least(communicator.counts) == RasCount("", 55, "1-3")
    assert [one.rank for one in communicator.odd] == [1, 2, 3]


@pytest.mark.parametrize("name", ["ras-2.31.2.json", "ras-2.32.3.json", "ras-2.32.3.txt"])
def test_what_ras_said_of_two_ranks_on_two_gpus(name: str) -> None:
    """Rank 0 had launched one operation more."""
    ras = ras_of((DIRECTORY / name).read_text())
    (communicator,) = ras.communicators
    assert (ras.status, communicator.size) == ("MISMATCH", 2)
    assert (fewest := least(communicator.counts)) and (fewest.count, fewest.ranks) == (20, "1")


def test_ras_in_json_names_ranks_that_are_alike() -> None:
    found = read_ras(ras_json(56, 56, 56), ("198.18.0.1", "pod-1"))
    assert isinstance(found, Ras)
    assert (found.status, found.here) == ("OK", (RasRank(1, 101, "198.18.0.1"),))


def test_ras_in_json_names_who_does_not_answer() -> None:
    ras = ras_of(ras_json(56, missing=True))
    assert ras.status == "INCOMPLETE"
    assert ras.communicators[0].missing == (RasRank(1, 109, "198.18.0.9", "unresponsive"),)


def test_ras_of_nccl_2_28_leaves_a_comma_out_where_a_rank_is_missing() -> None:
    """As jsonWriteMissingRank of NCCL 2.28.7 to 2.28.9 prints it; two H100 gave such an answer."""
    ras = ras_of(
        'OK\n{\n  "nccl_version": "2.28.9",\n  "communicators": [\n    {\n      "hash": "0x1",\n      "size": 2,\n'
        '      "ranks": [\n\n      ],\n      "missing_ranks": [\n        {\n          "rank": 1,\n'
        '          "host": "198.18.0.9",\n          "pid": 109,\n          "cuda_dev": 0,\n          "nvml_dev": 0\n'
        '          "status": {\n            "unresponsive": true,\n            "considered_dead": false\n'
        "          }\n        }\n      ]\n    }\n  ]\n}\n"
    )
    assert ras.communicators[0].missing == (RasRank(1, 109, "198.18.0.9", "unresponsive"),)


def test_counts_of_the_query_before() -> None:
    ras, before = ras_of(ras_json(56, 55)), ras_of(ras_json(54, 55))
    assert since(ras, before).moves
    assert not since(ras, ras).moves and not since(before, ras).moves
    assert not since(ras, Ras("OK", ())).moves  # a communicator of which nothing was known


def test_ranks_that_are_behind_in_different_operations_blame_nobody() -> None:
    counts = [
        RasCount(name, 7 + (rank == first), str(rank))
        for name, first in (("AllReduce", 0), ("Broadcast", 1))
        for rank in (0, 1)
    ]
    assert least(counts[:2]) == counts[1]
    assert least(counts) is None


@pytest.mark.parametrize("heading", ["collective", "AllReduce"])
def test_ras_as_text(heading: str) -> None:
    text = (
        "NCCL version 2.26.2 compiled with CUDA 12.8\n\nCommunicators... (0.00s)\n=============\n\n"
        "  Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
        "      #  in group  per comm  per node  per comm  in group\n"
        "      0         1         2         2         4         4   RUNNING  MISMATCH\n\nWarnings\n========\n\n"
        f"  #0-0 (27a079b828ff1a75) MISMATCH\n    Communicator ranks have different {heading} operation counts\n"
        "    3 ranks have launched up to operation 56\n"
        "    Rank 1 has launched up to operation 55 -- GPU 1 managed by process 101 on node 198.18.0.1\n"
    )
    ras = ras_of(text)
    (communicator,) = ras.communicators
    fewest = least(communicator.counts)
    assert fewest is not None and (fewest.count, fewest.ranks) == (55, "1")
    assert [one.ranks for one in communicator.counts if one.count == 56] == ["0,2-3"]
    assert communicator.odd == (RasRank(1, 101, "198.18.0.1", "running"),)


@pytest.mark.parametrize("text", ["", "ERROR: unknown command\n"])
def test_what_is_no_answer_of_ras_says_so(text: str) -> None:
    found = read_ras(text)
    assert isinstance(found, str) and found


def test_a_pod_of_eight_ranks_in_many_groups_fits() -> None:
    frames = tuple(Frame(f"function_{n}", f"/workspace/a_long_directory/module_{n}.py", n) for n in range(12))
    operations = tuple(Operation(n, "all_gather_into_tensor", "[4096, 8192] bfloat16") for n in range(6))
    groups = tuple(
        GroupProgress(str(n), "nccl", 10**6, 10**6 - n % 2, recent=operations, ranks=tuple(range(0, 1024, 16)))
        for n in range(20)
    )
    process = Process(1, 0, "S", "rank", 0, threads=(Thread("MainThread", frames),) * 8, groups=groups)
    pod = PodRecords(0, "p", "n", processes=(process,) * 8)
    cut = fit(pod)
    assert size_of(pod) > 6 * MOST_BYTES
    assert size_of(cut) <= MOST_BYTES
    assert cut.left_out
    assert len(cut.processes) == 8 and all(len(one.groups) == 20 for one in cut.processes)
    assert wire.from_json(PodRecords, compact(cut)) == cut
    sent = as_evidence(Question(pod, RunMarks("r")), pod, {}, None, lambda value: value, pods=2048)
    assert len(json.dumps(sent)) <= 4096, "its share of what pod 0 can read"


def test_what_is_cut_keeps_whom_an_open_receive_waits_for() -> None:
    """By its collective operations the group is idle. Nothing else tells of a rank that has gone."""
    operations = tuple(Operation(number, "all_reduce", "[1024] float") for number in range(4, 10))
    group = GroupProgress("0", "nccl", 9, 9, recent=operations, sends=(Operation(1, "recv 0<-1"),), ranks=(0, 1))
    pod = PodRecords(0, "p", "n", processes=(Process(1, 0, "S", "rank", 0, groups=(group,)),))
    cut = fit(pod, size_of(pod) - 1)
    assert cut.left_out
    assert [(one.rank, one.fault) for one in diagnose(Collected("r", pods=(cut,))).culprits] == [(1, "dead")]
