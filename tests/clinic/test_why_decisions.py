"""Each way to hang, as real programs recorded it: who is blamed, and where it is."""

from __future__ import annotations

from typing import Literal

import pytest

from agent.clinic.interface import diagnose
from agent.clinic.why.deciding import MOVES
from agent.clinic.why.records import (
    Collected,
    Frame,
    GroupProgress,
    Operation,
    PodRecords,
    Process,
    Ras,
    RasCommunicator,
    RasCount,
    RasRank,
    Source,
    Thread,
)
from agent.decide.diagnosis import Diagnosis, Fault
from tests.clinic.recordings import Change, collected, pods_said
from tests.clinic.schedules import TORCH


def blamed(found: Diagnosis) -> dict[int | None, Fault]:
    """Rank → fault."""
    return {one.rank: one.fault for one in found.culprits}


@pytest.mark.parametrize(
    ("name", "fault", "waiting", "words"),
    [
        ("sleep", "behind", 3, "not entered all_reduce #5, which 3 ranks wait in; it is in train.py:15 (load_batch)"),
        ("sigstop", "stopped", 3, "stopped by a signal in train.py:19 (load_batch) (kill -CONT 12055 lets it go on)"),
        ("gil", "behind", 3, "not entered all_reduce #5, which 3 ranks wait in; it holds the GIL in train.py:17"),
        ("fifo", "behind", 3, "train.py:21 (load_batch), in the system call openat (wait_for_partner)"),
        ("loader", "behind", 3, "pid 30969, is in train.py:31 (Data.__getitem__), in the system call openat"),
        ("left-out", "behind", 3, "not entered all_reduce #8, which 3 ranks wait in; it is in train.py:45 (main)"),
        ("other-operation", "other operation", 3, "entered broadcast as operation 2, where 3 ranks are in all_reduce"),
        ("mpi4py", "behind", 3, "has not entered MPI_Barrier, which 3 ranks wait in; it is in mpi.py:6 (load)"),
        ("nccl-late", "behind", 1, "all_reduce #21, which 1 rank waits in; it is in hang.py:43 (load_batch)"),
        ("nccl-left-out", "behind", 1, "has not entered all_reduce #22, which 1 rank waits in"),
        ("nccl-stopped", "stopped", 1, "is stopped by a signal in hang.py:48 (stop) (kill -CONT 211 lets it go on)"),
        ("nccl-receive", "behind", 1, "has sent nothing to rank 0, which waits in irecv: 1 rank waits for it"),
        ("nccl-kernel-timed", "device", 1, "entered all_reduce #21, and its GPU has not begun it, as 1 other has"),
        ("nccl2-late", "behind", 1, "all_reduce #21, which 1 rank waits in; it is in hang.py:43 (load_batch)"),
        ("nccl2-left-out", "behind", 1, "has not entered all_reduce #22, which 1 rank waits in"),
        ("nccl2-stopped", "stopped", 1, "is stopped by a signal in hang.py:48 (stop) (kill -CONT 174 lets it go on)"),
        ("nccl2-receive", "behind", 1, "has sent nothing to rank 0, which waits in irecv: 1 rank waits for it"),
        ("nccl-tests", "stopped", 0, "is stopped by a signal (kill -CONT 159 lets it go on)"),
    ],
)
def test_the_one_that_others_wait_for_is_named(name: str, fault: Fault, waiting: int, words: str) -> None:
    real = name.startswith("nccl")
    found = diagnose(pods_said(name) if real else collected(name))
    assert (found.status, blamed(found)) == ("hangs", {1 if real else 2: fault})
    assert found.sentence.startswith("rank 1 (pod 1, " if real else "rank 2 (pod 1, node gke-1, pid ")
    assert words in found.sentence
    assert found.culprits[0].waiting == waiting


@pytest.mark.parametrize(
    ("name", "status", "faults", "words"),
    [
        ("nccl-kernel", "unclear", {}, "all 2 ranks entered all_reduce #21 alike"),
        ("nccl-kernel", "unclear", {}, "A4_WHY_TIMING=true"),
        ("nccl2-kernel", "unclear", {}, "from torch 2.15 on TORCH_DIST_USE_NCCL2=0 as well"),
        ("pipeline", "hangs", {0: "behind"}, "has sent nothing to rank 1, which waits in recv: 3 ranks wait for it"),
        ("pipeline", "hangs", {0: "behind"}, "(3 → 2 → 1 → 0)"),
        ("two", "hangs", {1: "behind", 3: "behind"}, "which 1 rank waits in"),
        ("circle", "circle", {}, "no single one of them is to blame"),
        ("moves", "moves", {}, MOVES),  # its ranks are up to seven operations apart, as each was looked at later
    ],
)
def test_other_hangs_and_what_is_only_slow(name: str, status: str, faults: dict[int, Fault], words: str) -> None:
    found = diagnose(pods_said(name) if name.startswith("nccl") else collected(name))
    assert (found.status, blamed(found)) == (status, faults)
    assert found.sentence.count(words) == max(1, len(faults))
    if name == "circle":
        assert "ranks 2-3 (pod 1) wait in all_reduce #1 of group 4" in found.details


def with_its_shell(seen: Collected) -> Collected:
    """A shell was around rank 2, and is gone, too."""
    *pods, last = seen.pods
    return seen._replace(pods=(*pods, last._replace(processes=(*last.processes, Process(9, 1, "gone", "rank", 2)))))


def test_a_process_that_its_launcher_does_not_miss() -> None:
    """Recorded of a rank that sleeps: gloo itself notices one that dies."""

    def die(process: Process) -> Process:
        return process._replace(state="gone", groups=(), threads=(), waiting=()) if process.rank == 2 else process

    found = diagnose(with_its_shell(collected("sleep", die)))
    assert blamed(found) == {2: "dead"}
    assert ("recorder", "found", "3 of 4 ranks") in found.sources
    assert "has ended: 3 ranks wait for it in all_reduce #5" in found.sentence


def test_a_process_whose_threads_could_not_be_read_in_time() -> None:
    """Recorded of a rank that sleeps: of one that the kernel holds, /proc may tell its state and then hang."""

    def hold(process: Process) -> Process:
        held = process._replace(state="D", groups=(), threads=(), waiting=())
        return held if process.rank == 2 else process

    found = diagnose(collected("sleep", hold))
    assert blamed(found) == {2: "behind"}
    assert found.sentence.endswith("it is in the kernel, where no signal reaches it")


def test_an_operation_of_another_size() -> None:
    """Recorded of another operation: gloo ends at once where sizes differ, NCCL waits."""

    def shrink(process: Process) -> Process:
        size = "[512] float" if process.rank == 2 else "[1024] float"
        groups = tuple(one._replace(recent=(Operation(2, "all_reduce", size),)) for one in process.groups)
        return process._replace(groups=groups)

    found = diagnose(collected("other-operation", shrink))
    assert blamed(found) == {2: "other size"}
    assert "all_reduce #2 with [512] float, where 3 ranks are in it with [1024] float" in found.sentence


@pytest.mark.parametrize(("deaf", "place"), [(None, "train.py:15 (load_batch)"), (True, "holds the GIL in other.py:1")])
def test_a_thread_beside_the_main_one_counts_where_it_holds_the_gil_for_good(deaf: bool | None, place: str) -> None:
    """Recorded of a rank that sleeps: py-spy also says so of a thread that had the GIL when it looked."""

    def change(process: Process) -> Process:
        other = Thread("other", (Frame("spin", "/app/other.py", 1),), holds_gil=True)
        return process._replace(threads=(*process.threads, other), holds_gil=deaf) if process.rank == 2 else process

    found = diagnose(collected("sleep", change))
    assert blamed(found) == {2: "behind"}
    assert f"it {'is in ' if deaf is None else ''}{place}" in found.sentence


def test_two_ranks_that_both_receive_from_each_other_wait_in_a_circle() -> None:
    """Recorded of a pipeline: rank 0 gets the stack of rank 1, which receives from it."""

    recorded = collected("pipeline")
    (second,) = (one for pod in recorded.pods for one in pod.processes if one.rank == 1)
    (thread, *_) = second.threads
    receive, *outer = thread.frames
    stack = (receive._replace(arguments={**receive.arguments, "src": "1"}), *outer)

    def change(process: Process) -> Process:
        return process._replace(threads=(thread._replace(frames=stack),)) if process.rank == 0 else process

    found = diagnose(collected("pipeline", change))
    assert (found.status, found.culprits) == ("circle", ())
    assert "no single one of them is to blame" in found.sentence


def test_a_foreign_program_of_mpi_shows_its_system_call() -> None:
    """Recorded of mpi4py, without its stacks: nothing says who waits for whom."""
    found = diagnose(collected("mpi4py", lambda one: one._replace(threads=())))
    assert (found.status, found.culprits) == ("unclear", ())
    assert "no source says who waits for whom; rank 2 (pod 1, node gke-1, pid 19811) is elsewhere" in found.sentence
    assert found.sentence.endswith("it is in the system call clock_nanosleep")


@pytest.mark.parametrize(
    ("asleep", "words"),
    [(True, "; and rank 2 (pod 1, node gke-1, pid 4746) is elsewhere"), (False, "rank 2 (pod 1) waits")],
)
def test_what_torch_does_not_record_is_named_and_blames_nobody(asleep: bool, words: str) -> None:
    """Recorded of a rank that sleeps before an all_reduce: here others wait in a barrier without a number."""
    first = collected("sleep").pods[0].processes[0]
    stack = Frame("monitored_barrier", TORCH, 1), Frame("main", "/app/train.py", 9)

    def change(process: Process) -> Process:
        if process.rank == 2:
            seen = process if asleep else first
            return process._replace(groups=seen.groups, threads=seen.threads, waiting=seen.waiting)
        groups = tuple(one._replace(entered=4, completed=4) for one in process.groups)
        return process._replace(groups=groups, threads=(Thread("MainThread", stack),))

    found = diagnose(collected("sleep", change))
    assert (found.status, found.culprits) == ("unclear", ())
    assert "ranks 0-1,3 (pods 0-1) wait in monitored_barrier" in found.sentence and words in found.sentence


@pytest.mark.parametrize(
    ("late", "words"),
    [
        (True, "has not entered a collective operation, which 3 ranks wait in"),
        (False, "cannot tell who holds the others up: ranks 0-1,3 (pods 0-1) wait in a collective operation"),
    ],
)
def test_an_operation_that_only_a_native_stack_shows_has_no_name(late: bool, words: str) -> None:
    """Recorded of mpi4py, with the stacks of a torch without a recorder."""
    wait = Frame("c10d::ProcessGroupNCCL::WorkNCCL::wait", "libtorch_cuda.so")
    waits = Thread("main", (wait, Frame("main", "/app/train.py", 3)))

    def change(process: Process) -> Process:
        threads = (waits,) if process.rank != 2 else process.threads if late else ()
        return process._replace(threads=threads, waiting=process.waiting if late else ())

    assert words in diagnose(collected("mpi4py", change)).sentence


def unchanged(process: Process) -> Process:
    return process


def elsewhere(process: Process) -> Process:
    return process._replace(threads=(Thread("main", (Frame("work", "/workspace/mpi.py", 20),)),))


def calls(function: str, line: int = 10) -> Change:
    stack = (Frame(function, "libmpi.so"), Frame("<module>", "/workspace/mpi.py", line))
    return lambda process: process._replace(threads=(Thread("main", stack),))


@pytest.mark.parametrize(
    "changes",
    [
        {0: elsewhere},
        {0: calls("PMPI_Barrier", line=11)},
        {0: calls("PMPI_Allreduce")},
        {0: lambda process: process._replace(stays=False)},
        {2: lambda process: process._replace(stays=False)},
        {2: lambda process: process._replace(stays=None)},
        {2: calls("PMPI_Recv")},
        {2: calls("MPI_Init_thread")},
        {0: calls("PMPI_Recv"), 1: elsewhere, 3: elsewhere},
        *(dict.fromkeys((0, 1, 3), calls(f"MPI_{name}")) for name in ("Recv", "Mprobe", "Waitsome", "Test")),
    ],
)
def test_no_stack_of_mpi_blames_a_rank_that_may_have_no_part_in_an_operation(changes: dict[int, Change]) -> None:
    """Recorded of mpi4py, three ranks in a barrier and one asleep, and what would make another hang of it."""
    found = diagnose(collected("mpi4py", lambda one: changes.get(one.rank or 0, unchanged)(one)))
    assert (found.status, found.culprits) == ("unclear", ())
    assert found.sentence.startswith("cannot tell who holds the others up: ")


@pytest.mark.parametrize("fault", ["stopped", "dead"])
def test_dead_or_stopped_comes_before_fewer_entries(fault: str) -> None:
    def change(process: Process) -> Process:
        state = "T" if fault == "stopped" else "Z"
        return process._replace(state=state) if process.rank == 0 else process  # type: ignore[arg-type]

    found = diagnose(collected("sleep", change))
    assert [(one.rank, one.fault) for one in found.culprits] == [(0, fault), (2, "behind")]


def nccl(
    *numbers: tuple[int, int], ras: Ras | None = None, recorder: bool = True, backend: Literal["nccl", "gloo"] = "nccl"
) -> Collected:
    """Ranks of one group, by (entered, completed)."""
    work = Thread("MainThread", (Frame("main", "/app/train.py", 3),))

    def rank(number: int, entered: int, completed: int) -> Process:
        recent = (Operation(entered, "all_reduce", "[2] float"),)
        group = GroupProgress("0", backend, entered, completed, None, recent, ranks=tuple(range(len(numbers))))
        groups, threads = (group,) if recorder else (), (work,) if recorder else ()
        return Process(100 + number, 1, "S", "rank", number, threads=threads, groups=groups)

    pods = [
        PodRecords(at, f"p{at}", "", (f"198.18.0.{at}",), (rank(at, *of_rank),), None if at else ras)
        for at, of_rank in enumerate(numbers)
    ]
    return Collected("r", pods=tuple(pods), ranks=len(numbers), apart=1.0)


@pytest.mark.parametrize(
    ("backend", "second", "faults", "words"),
    [
        ("gloo", (6, 6), {1: "behind"}, "has not entered all_reduce #7, which 2 ranks wait in"),
        ("gloo", (6, 5), {}, "rank 1 (pod 1) waits in all_reduce #6, which all 3 ranks entered, and it does not end"),
        ("gloo", (7, 5), {}, "all 3 ranks entered all_reduce #7 alike, and it does not end"),
        ("nccl", (6, 6), {}, "ranks 0,2 (pods 0,2) wait in operation #6, which all 3 ranks entered, and it"),
    ],
)
def test_what_gloo_says_late_is_over_is_no_wait_of_ranks_that_went_on(
    backend: Literal["nccl", "gloo"], second: tuple[int, int], faults: dict[int, Fault], words: str
) -> None:
    found = diagnose(nccl((7, 5), second, (7, 5), backend=backend))
    assert blamed(found) == faults
    assert words in found.sentence


def mismatch(*behind: int, size: int = 2) -> Ras:
    """RAS's answer when some ranks launched one operation less than the others."""
    others = ",".join(str(rank) for rank in range(size) if rank not in behind)
    counts = (RasCount("", 55, ",".join(map(str, behind))), RasCount("", 56, others))
    odd = tuple(RasRank(rank, 100 + rank, f"198.18.0.{rank}") for rank in behind)
    return Ras("MISMATCH", (RasCommunicator("0x1", size, counts, odd, status="MISMATCH"),))


TWO_GROUPS = tuple(mismatch(rank).communicators[0] for rank in (0, 1))
"""Who is behind in one of them may wait in the other."""


@pytest.mark.parametrize(
    ("ras", "status", "faults"),
    [
        (mismatch(1), "hangs", {1: "behind"}),
        (mismatch(1)._replace(moves=True), "moves", {}),
        (mismatch(1)._replace(communicators=TWO_GROUPS), "unclear", {}),
    ],
    ids=["one is behind", "counts grow", "two groups"],
)
def test_counts_of_nccl_tell_where_no_rank_has_a_recorder(ras: Ras, status: str, faults: dict[int, Fault]) -> None:
    found = diagnose(nccl((0, 0), (0, 0), ras=ras, recorder=False))
    assert (found.status, blamed(found)) == (status, faults)
    assert ("which 1 rank waits in" in found.sentence) == (status == "hangs")


def test_a_source_that_says_otherwise_contradicts() -> None:
    found = diagnose(nccl((56, 55), (55, 55), (56, 55), ras=mismatch(0, size=3)))
    assert blamed(found) == {1: "behind"}
    (ras,) = (one for one in found.sources if one.name == "ras")
    assert ras.state == "contradicts"
    assert "rank 0 would be behind" in ras.text


def test_an_answer_for_another_job_on_the_node_does_not_count() -> None:
    other = mismatch(1)._replace(
        communicators=(mismatch(1).communicators[0]._replace(odd=(RasRank(1, 9, "10.0.0.1"),)),)
    )
    found = diagnose(nccl((56, 55), (56, 55), ras=other))
    assert [(one.state, one.text[:30]) for one in found.sources if one.name == "ras"] == [
        ("unavailable", "it answered for another job on")
    ]


ALIKE = Ras("OK", (RasCommunicator("0x1", 2, (RasCount("", 56, "0-1"),)),), moves=True)


@pytest.mark.parametrize(
    ("ras", "status", "words"),
    [
        (ALIKE, "unclear", "equal; it names no process, so another job on the node may be meant"),
        (ALIKE._replace(is_of_run=True), "moves", "equal"),
        (ALIKE._replace(here=(RasRank(0, 100, "198.18.0.0"),)), "moves", "equal"),
        (ALIKE._replace(here=(RasRank(0, 9, "198.18.0.0"),), is_of_run=True), "unclear", "another job on the node: "),
    ],
    ids=["nobody is named", "an address of its own", "a rank of ours", "a rank of another job"],
)
def test_an_answer_that_finds_nothing_counts_only_if_it_is_ours(ras: Ras, status: str, words: str) -> None:
    found = diagnose(nccl((0, 0), (0, 0), ras=ras, recorder=False))
    (said,) = (one.text for one in found.sources if one.name == "ras")
    assert found.status == status
    assert words in said and (status == "unclear" or said.endswith(words))


def test_ranks_on_a_pod_that_does_not_answer_are_not_blamed() -> None:
    seen = nccl((5, 4), (5, 4), (5, 4))
    found = diagnose(seen._replace(pods=seen.pods[:2], silent={2: "no answer within 8 s"}))
    assert (found.status, found.culprits) == ("unclear", ())
    assert "perhaps for rank 2" in found.sentence
    assert "pod 2 gave no records: no answer within 8 s" in found.sentence
    failed = PodRecords(2, "p2", "", sources=(Source("processes", "unavailable", "the look took too long"),))
    found = diagnose(seen._replace(pods=(*seen.pods[:2], failed)))
    assert (found.status, found.culprits) == ("unclear", ())


def test_each_source_says_why_it_is_missing() -> None:
    seen = collected("sigstop")
    found = diagnose(seen)
    assert ("recorder", "unavailable", "rank 2: its socket accepts and never answers") in found.sources
    assert ("recorder", "found", "3 of 4 ranks") in found.sources
    pods = tuple(pod._replace(sources=(Source("ras", "unavailable", "port 28028 is closed"),)) for pod in seen.pods)
    found = diagnose(seen._replace(pods=pods))
    assert ("ras", "unavailable", "pods 0-1: port 28028 is closed") in found.sources


def test_nothing_seen_is_not_an_answer() -> None:
    found = diagnose(Collected("r", silent={0: "lost"}))
    assert (found.status, found.sentence) == ("unclear", "cannot tell: no pod showed a rank of the run (pod 0: lost)")
