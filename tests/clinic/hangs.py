"""The ways to hang of tests/clinic/cluster/programs/hangs.py: what is true of each, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from agent.decide.diagnosis import Diagnosis


class Hang(NamedTuple):
    """One way to hang, of four ranks on two pods."""

    name: str
    truth: str
    guilty: tuple[int, ...] = ()
    """Ranks that hold the others up; none: nobody is to blame."""
    words: str = ""
    """What is said of it has these."""
    judged: Literal["named", "circle", "cannot tell"] = "named"
    goes_on: bool = False
    """It only looks like a hang: that it goes on is right, too."""


RUNS: Sequence[tuple[Hang, ...]] = (
    (
        Hang("init", "rank 3 sleeps, the others are in init_process_group", (3,), "init_process_group, which 3 ranks"),
        Hang("sleep", "rank 2 sleeps before an all_reduce", (2,), "(sleep), in the system call clock_nanosleep"),
        Hang("python-loop", "rank 3 computes in Python for ever", (3,), "(loop_in_python)"),
        Hang("native-with-gil", "rank 2 is in a regular expression, and keeps the GIL", (2,), "(match_for_ever)"),
        Hang("native-without-gil", "rank 1 spins in C without the GIL", (1,), "(spin_without_the_gil)"),
        Hang("fifo", "rank 2 opens a FIFO that nobody writes to", (2,), "in the system call openat"),
        Hang("monitored-barrier", "rank 3 does not come to a monitored_barrier", (3,), "not entered monitored_barrier"),
        Hang("new-group", "rank 2 does not take part in making a group", (2,), "has not entered"),
        Hang("other-operation", "rank 3 enters broadcast, the others all_reduce", (3,), "entered broadcast"),
    ),
    (
        Hang("lock", "rank 3 takes a lock twice", (3,), "(lock_twice)"),
        Hang("flock", "rank 2 waits for a lock of a file", (2,), "in the system call flock"),
        Hang("subprocess", "rank 3 waits for a program that sleeps", (3,), "(wait_for_a_program)"),
        Hang("http", "rank 2 waits for a server that says nothing", (2,), "(ask_a_silent_server)"),
        Hang("swallowed", "rank 1 left an operation out after an exception", (1,), "has not entered all_reduce"),
        Hang("dead-child", "rank 2 reads a queue whose writing child has died", (2,), "has ended"),
        Hang("stopped-worker", "rank 2 waits for a worker of its loader, which is stopped", (2,), "its worker, pid"),
        Hang("other-root", "rank 3 enters a broadcast with another root", (3,), "wait in broadcast", "cannot tell"),
    ),
    (
        Hang("stopped", "rank 2 is stopped", (2,), "is stopped by a signal"),
        Hang("slow-steps", "steps of rank 3 take 3 to 5 s", (3,), "has not entered all_reduce", goes_on=True),
        Hang("checkpoint", "rank 0 writes a checkpoint to where nobody reads", (0,), "(save_checkpoint)"),
        Hang("compile", "rank 2 waits for a compiler that works", (2,), "(compile_kernels)"),
        Hang("object-gather", "rank 2 sleeps, the others are in all_gather_object", (2,), "which 3 ranks wait in"),
        Hang("store-wait", "rank 2 sets a key late, which the others wait for", (2,), "rank 2", "cannot tell"),
        Hang("two-late", "ranks 1 and 3 sleep before an all_reduce", (1, 3), "which 2 ranks wait in"),
        Hang("dead", "rank 3 has died, and nobody noticed", (3,), "has ended: 3 ranks wait for it"),
    ),
    (
        Hang("pipeline", "rank 0 sends nothing down a pipeline", (0,), "(3 → 2 → 1 → 0)"),
        Hang("send", "rank 2 does not receive what rank 1 sends", (2,), "3 ranks wait"),
        Hang("receive-circle", "two pairs of ranks both receive", (), "in a circle", "circle"),
        Hang("send-circle", "each rank sends to the next, and none receives", (), "in a circle", "circle"),
        Hang("pair", "rank 2 waits for rank 3 in their group, the others for both", (3,), "3 ranks wait"),
        Hang("three-groups", "three ranks enter three groups in a circle", (), "in a circle", "circle"),
        Hang("two-groups", "two ranks each enter two groups in another order", (), "in a circle", "circle"),
        Hang("uneven-batches", "rank 3 has a batch less under DDP: it is in the barrier", (3,), "entered"),
    ),
    (
        Hang("mpi-late", "rank 3 sleeps before a barrier", (3,), "has not entered MPI_Barrier"),
        Hang(
            "mpi-farm", "nothing hangs: workers compute, rank 0 waits for any", (), "cannot tell", "cannot tell", True
        ),
        Hang("mpi-part", "rank 1 does not enter its communicator's barrier", (1,), "cannot tell", "cannot tell"),
        Hang("mpi-tag", "ranks 0 and 1 use two tags for a message", (0, 1), "cannot tell", "cannot tell"),
    ),
    (Hang("mpi-ssend", "each rank sends to the next, synchronously", (), "cannot tell", "cannot tell"),),
    (Hang("mpi-root", "rank 3 enters a broadcast with another root", (3,), "cannot tell", "cannot tell"),),
)
"""Those of one line go on from one to the next: the last one is a hang that no signal ends."""
HANGS = [hang for run in RUNS for hang in run]
LEAST_RIGHT = 30


def blamed(found: Diagnosis) -> set[int | None]:
    """Ranks that are said to hold others up. One that is only at another place than most does not count."""
    return {one.rank for one in found.culprits if one.fault != "odd"}


def is_right(hang: Hang, found: Diagnosis) -> bool:
    """All who are guilty are named, or it is said that nobody is."""
    if hang.goes_on and found.status == "moves":
        return True
    if not hang.guilty:
        return found.status == "circle"
    return blamed(found) == set(hang.guilty)
