"""Rank program of the connectivity test: who runs where, a sum over all ranks, latency and bandwidth.

Runs under mpirun in a Python that has mpi4py; standard library, mpi4py and record.py only. Inputs:

  A4_TOKEN_FILE   file, the same path on every pod, with the token that the agent gave this pod
  A4_RECORD       file on rank 0's pod that the record is written to
  A4_MPI_VERSION  version of mpirun, "4.1.4"
  A4_PACKAGES     directory that may have mpi4py, or empty: python -I leaves out where pip install --user puts it

The record is JSON, one object per line, flushed at each step: what is missing at its end was not reached.
Version 1 has these lines, in this order:

  {"step": "start", "version": 1, "ranks": n, "world": n, "mpirun": "4.1.4", "library": "Open MPI v4.1.4, …"}
      ranks: as mpirun counts them; world: as libmpi does; they differ when the two do not fit
  {"step": "ranks", "ranks": [{"rank": 0, "token": "…", "node": "…", "pid": 12, "library": "4.1.4", "error": ""}, …]}
      token: "" when it could not be read, then "error" says why; library: all of libmpi's text when it is not Open MPI
  {"step": "sum", "wrong": [{"rank": 3, "index": 0, "expected": 1, "found": 2}, …], "time": s}
      all-reduce of a vector of 64-bit integers, checked exactly by every rank; empty is right
  {"step": "pair", "ranks": [0, 2], "latency_us": 31.5, "bandwidth_gb_s": 2.4, "bytes": 8388608}
      once per pair of neighbours: median half round trip of one byte in µs; the slower direction in
      GB/s (1e9 bytes) and the message size that gave it
  {"step": "end", "finished": [0, 1, …]}

Neighbours are the first ranks of pods that follow each other, closed to a ring; on one pod, its ranks. Exit
status: 0 when every step was reached, whatever the figures say; 2 when the inputs are missing; 66 without
mpi4py or libmpi; 1 for anything else.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
import traceback
from array import array
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python -I leaves it out
from record import RecordFile, identity

ELEMENTS = 16384
"""Length of the vector that is summed, 128 KiB: long enough for the algorithms of large messages."""
WARM_UP = 10
BUDGET_S = 0.1
"""Time for one measurement of bandwidth, roughly: a slow link gets fewer messages, not a longer test."""


def load_mpi() -> Any:
    """mpi4py's MPI, not yet initialised; ends the process with 66 when there is none."""
    try:
        sys.path += filter(None, [os.environ.get("A4_PACKAGES")])
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False  # at exit it would wait for ranks that are gone
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        print(f"connectivity: {sys.executable} has no working mpi4py: {error}", file=sys.stderr)
        raise SystemExit(66) from error
    return MPI


def main() -> None:
    options = arguments(sys.argv[1:])
    # The rank that mpirun gave holds even when libmpi does not fit mpirun.
    record = RecordFile(os.environ["A4_RECORD"] if int(os.environ["OMPI_COMM_WORLD_RANK"]) == 0 else "")
    mpi = load_mpi()
    mpi.Init_thread(mpi.THREAD_SINGLE)
    comm = mpi.COMM_WORLD
    try:
        run(comm, re.sub(r"[\0\s]+", " ", mpi.Get_library_version()).strip(), record, options)
    except BaseException:
        # A rank that just ended would leave the others waiting in MPI_Finalize for ever.
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(1)
    mpi.Finalize()


def arguments(argv: list[str]) -> argparse.Namespace:
    """Command line and the names that must be in the environment (exit 2 without them)."""
    parser = argparse.ArgumentParser(description="Rank program of a4-agent's connectivity test.")
    parser.add_argument(
        "--sizes", type=numbers, default=[1 << 20, 8 << 20], help="message sizes, bytes, comma-separated"
    )
    parser.add_argument("--repeats", type=int, default=100, help="messages per measurement, at most")
    options = parser.parse_args(argv)
    needed = ("A4_TOKEN_FILE", "A4_RECORD", "A4_MPI_VERSION", "OMPI_COMM_WORLD_RANK")
    if missing := [name for name in needed if name not in os.environ]:
        parser.error(f"started by a4-agent under mpirun only: no {', '.join(missing)}")
    if options.repeats < 1 or min(options.sizes) < 1:
        parser.error("--sizes and --repeats are at least 1")
    return options


def numbers(text: str) -> list[int]:
    return sorted(int(word) for word in text.split(","))


def run(comm: Any, library: str, record: RecordFile, options: argparse.Namespace) -> None:
    launched = int(os.environ.get("OMPI_COMM_WORLD_SIZE", comm.size))
    mpirun = os.environ["A4_MPI_VERSION"]
    record.write("start", version=1, ranks=launched, world=comm.size, mpirun=mpirun, library=library)
    if comm.size != launched:
        return  # libmpi of another version: every process is alone in a world of its own
    found = re.match(r"Open MPI v(\d+\.\d+\.\d+)", library)
    ranks = comm.allgather(identity(comm.rank, library=found[1] if found else library))
    record.write("ranks", ranks=ranks)
    wrong = [found for found in comm.gather(check_sum(comm)) or [] if found]
    record.write("sum", wrong=wrong, time=time.time())
    measure_rounds(comm, record, rounds(neighbours(ranks)), options)
    record.write("end", finished=comm.gather(comm.rank))


def check_sum(comm: Any) -> dict[str, int] | None:
    """All-reduce a vector that depends on rank and index; None when this rank got the right sums."""
    mine = array("q", [(comm.rank + 1) * (i + 1) for i in range(ELEMENTS)])
    sums = array("q", bytes(8 * ELEMENTS))
    comm.Allreduce(mine, sums)
    weight = comm.size * (comm.size + 1) // 2
    for index, found in enumerate(sums):
        expected = weight * (index + 1)
        if found != expected:
            return {"rank": comm.rank, "index": index, "expected": expected, "found": found}
    return None


def neighbours(ranks: list[dict[str, object]]) -> list[int]:
    """The ranks that are measured, in ring order: the first of each pod; on one pod all of them."""
    first: dict[object, int] = {}
    for number, rank in enumerate(ranks):
        first.setdefault(rank["token"], number)
    return list(first.values()) if len(first) > 1 else list(range(len(ranks)))


def rounds(ring: list[int]) -> list[list[tuple[int, int]]]:
    """The ring's pairs in at most three rounds; no rank is twice in one round."""
    count = len(ring)
    if count < 2:
        return []
    pairs = [(ring[i], ring[(i + 1) % count]) for i in range(count if count > 2 else 1)]
    last = [pairs.pop()] if len(pairs) % 2 and len(pairs) > 1 else []
    return [part for part in (pairs[0::2], pairs[1::2], last) if part]


def measure_rounds(
    comm: Any, record: RecordFile, plan: list[list[tuple[int, int]]], options: argparse.Namespace
) -> None:
    for pairs in plan:
        rest(comm)
        found = None
        for pair in pairs:
            if comm.rank in pair:
                found = measure(comm, pair, options)
        rest(comm)
        for result in comm.gather(found) or []:
            if result:
                record.write("pair", **result)


def rest(comm: Any) -> None:
    """A barrier for ranks that may wait long: they sleep, so that those which measure have the cores."""
    request = comm.Ibarrier()
    pause = 0.0001
    while not request.Test():
        time.sleep(pause)
        pause = min(2 * pause, 0.005)


def measure(comm: Any, pair: tuple[int, int], options: argparse.Namespace) -> dict[str, object] | None:
    """Measure one pair; its first rank returns the result."""
    first = comm.rank == pair[0]
    peer = pair[1] if first else pair[0]
    latency = round_trips(comm, peer, first, options.repeats)
    best, best_size = 0.0, 0
    for size in options.sizes:
        buffer = bytearray(size)
        there = stream(comm, peer, first, buffer, options.repeats)
        back = stream(comm, peer, not first, buffer, options.repeats)
        mine = min(there, back)
        slower = min(mine, comm.sendrecv(mine, peer, source=peer))
        if slower > best:
            best, best_size = slower, size
        if best < size / BUDGET_S / 1e9:
            break  # a larger message would take too long on this link
    if not first:
        return None
    found = {"ranks": list(pair), "latency_us": round(latency * 1e6, 2)}
    return {**found, "bandwidth_gb_s": float(f"{best:.4g}"), "bytes": best_size}


def round_trips(comm: Any, peer: int, first: bool, repeats: int) -> float:
    """Median of half a round trip of one byte, in seconds."""
    message = bytearray(1)
    times = []
    for _ in range(WARM_UP + repeats):
        begin = time.perf_counter()
        if first:
            comm.Send(message, peer)
            comm.Recv(message, peer)
        else:
            comm.Recv(message, peer)
            comm.Send(message, peer)
        times.append((time.perf_counter() - begin) / 2)
    return statistics.median(times[WARM_UP:])


def stream(comm: Any, peer: int, sends: bool, message: bytearray, repeats: int) -> float:
    """GB/s of messages of one size in one direction, seen by the sender until the last is confirmed.

    The receiver returns infinity: only the sender's figure counts.
    """
    if not sends:
        comm.Recv(message, peer)
        comm.send(None, peer)
        for _ in range(comm.recv(source=peer)):
            comm.Recv(message, peer)
        comm.send(None, peer)
        return float("inf")
    begin = time.perf_counter()
    comm.Send(message, peer)
    comm.recv(source=peer)
    once = time.perf_counter() - begin
    count = max(1, min(repeats, int(BUDGET_S / once)))
    comm.send(count, peer)
    begin = time.perf_counter()
    for _ in range(count):
        comm.Send(message, peer)
    comm.recv(source=peer)
    return count * len(message) / (time.perf_counter() - begin) / 1e9


if __name__ == "__main__":
    main()
