"""Stands in for DeepEP's tests, as test_ep.py for that, and else for test_internode.py: prints what a release of it
prints, after the nodes have met as its ranks do.

The file /tmp/deepep in a pod has words: a release of RELEASES (without one: the newest) and what goes wrong there,
"wrong". No pytest module: it is put into pods.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

FILE = Path("/tmp/deepep")
RATES = "{rdma:.2f} GB/s (RDMA), {nvl:.2f} GB/s (NVL)"
TRANSMIT = ", transmit: {time:.2f} us, notify: {notify:.2f} us, BW: " + RATES
SUM = ": {notify:.0f} + {time:.0f} us, " + RATES


class Release(NamedTuple):
    """What differs between releases."""

    inputs: tuple[str, ...]
    """The type of each."""
    tried: str
    """After the chunk sizes: the figures of one trial, or of the best dispatch."""
    combine: str
    """The figures of the best combine."""


THREE, FOUR = ("BF16", "BF16", "FP8"), ("BF16", "BF16", "FP8", "FP8")
RELEASES: Mapping[str, Release] = {
    "0c984e2": Release(THREE, ": " + RATES, ": " + RATES),
    "eb155da": Release(THREE, TRANSMIT, TRANSMIT),
    "v1.2.1": Release(FOUR, TRANSMIT, TRANSMIT),
    "8a07e7e": Release(FOUR, SUM, ", {notify:.2f} + {time:.2f} us, " + RATES),
}
"""By the first commit or tag that prints so, or one of those that the image is built with."""
NEWEST = list(RELEASES)[-1]
BEST = {"dispatch (FP8)": (70.5, 231.0, 754.4), "dispatch (BF16)": (81.25, 265.0, 1408.6), "combine": (75, 245, 1813)}
"""Operation → GB/s over RDMA and over NVLink, and microseconds."""


def cases(release: Release) -> Iterator[str]:
    """The first flush of each case; " passed" and a line's end are the second."""
    for previous, later, kind, top in itertools.product(
        (False, True), (False, True), release.inputs, ("without", "with")
    ):
        yield f"[testing] Running with {kind}, {top} top-k (async={later}, previous={previous}) ..."


def measured(release: Release) -> Iterator[str]:
    """The lines of tuning: of each operation one trial and the best."""
    for operation, (rdma, nvl, microseconds) in BEST.items():
        figures = {"rdma": rdma, "nvl": nvl, "time": microseconds, "notify": 30.12}
        best = release.combine if operation == "combine" else release.tried
        yield f"[tuning] SMs 24, NVL chunk 4, RDMA chunk 4{release.tried.format(**figures)} "
        yield f"[tuning] Best {operation}: SMs 24, NVL chunk 4, RDMA chunk 12{best.format(**figures)}"
        yield ""


def head(nodes: int) -> str:
    return (
        "Testing with seed 0 ...\n"
        f"[config] num_tokens=4096, hidden=7168, num_topk_groups={min(nodes, 4)}, num_topk=8\n"
        "[layout] Kernel performance: 0.052 ms\n"
    )


ELASTIC = {"dispatch": ("*", 90, 297), "expanded dispatch": ("-", 89, 295), "cached dispatch": ("#", 91, 299)}
ELASTIC |= {"combine": ("@", 88, 291), "reduced combine": ("+", 87, 289)}
"""Operation → its mark, and GB/s of scale-out and scale-up."""


def elastic_head(rank: int, nodes: int) -> str:
    return (
        f"Config:\n > Ranks: {nodes} x 8\n > Experts: 6/256\n > Tokens: {4096 - rank * 8} (max: 4096), hidden: 7168\n"
        " > #SM: 12, #QPs: 13/129\n\nRunning all test cases:"
    )


def elastic_cases() -> Iterator[str]:
    for copied, alignment, fp8, biases, previous, later in itertools.product(
        (1, 0), (128, 1), (1, 0), (0, 1, 2), (0, 1), (0, 1)
    ):
        for allocated in (1,) if previous else (0, 1):
            yield (
                f" > Testing with do_handle_copy={copied}, expert_alignment={alignment}, use_fp8_dispatch={fp8}, "
                f"num_bias={biases}, with_previous_event={previous}, async_with_compute_stream={later}, "
                f"allocate_on_comm_stream={allocated} ..."
            )


def elastic_measured(rank: int, nodes: int) -> Iterator[str]:
    """The lines of one case on a node; local rank 5 is the slowest."""
    for operation, (mark, out, up) in ELASTIC.items():
        side = "reduce" if operation.endswith("combine") else "copy"
        for local in (3, 0, 5, 1, 7, 2, 6, 4):
            slower = local == 5
            speed = f"{out - slower} GB/s (SO), {up - slower} GB/s (SU), {1337.123 + slower:.3f} us, 397433088 bytes"
            who = f"EP: {rank * 8 + local:3}/{nodes * 8}"
            yield f"   {mark} {who} | {operation}: {speed} | {side}: 4451 GB/s, 179.021 us"
    yield ""


def meet(rank: int, nodes: int) -> None:
    """All nodes have found rank 0, each with a rank of its own."""
    rendezvous = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        with socket.create_server(("", rendezvous[1])) as server:
            others = [server.accept()[0] for _ in range(nodes - 1)]
            assert {other.recv(1)[0] for other in others} == set(range(1, nodes))
            for other in others:
                other.sendall(b"!")
        return
    while True:  # rank 0 may come much later
        try:
            with socket.create_connection(rendezvous) as connection:
                connection.sendall(bytes([rank]))
                assert connection.recv(1) == b"!"
                return
        except ConnectionRefusedError:
            time.sleep(0.1)


def say(text: str, end: str = "\n") -> None:
    print(text, flush=True, end=end)


def try_case(number: int, case: str, faults: set[str]) -> None:
    say(case, end="")
    if "wrong" in faults and number == 19:
        raise AssertionError("511 != 512")
    time.sleep(0.01)  # the other node's lines come meanwhile
    say(" passed")


def elastic(rank: int, nodes: int) -> None:
    say(elastic_head(rank, nodes))
    for case in elastic_cases():
        say(case)
        for line in elastic_measured(rank, nodes):
            say(line)
    say("")


def internode(nodes: int) -> None:
    words = set(FILE.read_text().split()) if FILE.exists() else set()
    release = RELEASES[next((word for word in words if word in RELEASES), NEWEST)]
    say(f"arguments {sys.argv[1:]}, preloaded {os.environ.get('LD_PRELOAD')}, in {os.getcwd()}")
    say(head(nodes))
    for number, case in enumerate(cases(release), 1):
        try_case(number, case, words)
    say("")
    for line in measured(release):
        say(line)


def main() -> None:
    rank, nodes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meet(rank, nodes)
    if Path(sys.argv[0]).name == "test_ep.py":
        elastic(rank, nodes)
    else:
        internode(nodes)


if __name__ == "__main__":
    main()
