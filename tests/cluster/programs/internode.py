"""Stands in for DeepEP's test of that name: prints what that prints, after the nodes have met as its ranks do.

The file /tmp/deepep in a pod says what goes wrong there: "31", "wrong", "hangs", "slow"; "mixed": other lines come
between the two flushes of a case. No pytest module: it is put into pods.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
from pathlib import Path

FILE = Path("/tmp/deepep")
FAULT = FILE.read_text().strip() if FILE.exists() else ""
RANK, NODES = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
RENDEZVOUS = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def meet() -> None:
    """All nodes have found rank 0, each with a rank of its own."""
    if RANK == 0:
        with socket.create_server(("", RENDEZVOUS[1])) as server:
            others = [server.accept()[0] for _ in range(NODES - 1)]
            assert {other.recv(1)[0] for other in others} == set(range(1, NODES))
            for other in others:
                other.sendall(b"!")
        return
    while True:  # rank 0 may come much later
        try:
            with socket.create_connection(RENDEZVOUS) as connection:
                connection.sendall(bytes([RANK]))
                assert connection.recv(1) == b"!"
                return
        except ConnectionRefusedError:
            time.sleep(0.1)


def say(text: str, end: str = "\n") -> None:
    print(text, flush=True, end=end)


def case(number: int, kind: str, top: str, later: bool, previous: bool) -> None:
    say(f"[testing] Running with {kind}, {top} top-k (async={later}, previous={previous}) ...", end="")
    if FAULT == "hangs" and number == 7:
        Path(f"/mnt/hangs-{RANK}").touch()
        time.sleep(600)
    if FAULT == "wrong" and number == 19:
        raise AssertionError("511 != 512")
    if FAULT == "mixed":
        say(f"node:{os.getpid()} [0] NCCL WARN number {number}")
    time.sleep(0.01)  # the other node's lines come meanwhile
    if FAULT == "31" and number == 19:
        say("")
    else:
        say(" passed")


def figures(rdma: float, nvl: float) -> str:
    rdma = 6.53 if FAULT == "slow" else rdma
    return f"31 + 950 us, {rdma:.2f} GB/s (RDMA), {nvl:.2f} GB/s (NVL)"


def main() -> None:
    meet()
    say(f"arguments {sys.argv[1:]}, preloaded {os.environ.get('LD_PRELOAD')}, in {os.getcwd()}")
    say("Testing with seed 0 ...")
    say(f"[config] num_tokens=4096, hidden=7168, num_topk_groups={min(NODES, 4)}, num_topk=8")
    say("[layout] Kernel performance: 0.052 ms\n")
    kinds = ("BF16", "BF16", "FP8", "FP8")
    cases = itertools.product((False, True), (False, True), kinds, ("without", "with"))
    for number, (previous, later, kind, top) in enumerate(cases, 1):
        case(number, kind, top, later, previous)
    say("")
    for kind, rdma, nvl in (("FP8", 70.5, 231.0), ("BF16", 81.25, 265.0)):
        say(f"[tuning] SMs 24, NVL chunk 4, RDMA chunk 4: {figures(rdma / 2, nvl / 2)} ")
        say(f"[tuning] Best dispatch ({kind}): SMs 24, NVL chunk 20, RDMA chunk 28: {figures(rdma, nvl)}\n")
    say(f"[tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 12, {figures(75.0, 245.0)}\n")


if __name__ == "__main__":
    main()
