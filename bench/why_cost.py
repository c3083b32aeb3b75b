"""What it costs to have ranks prepared for `why`: all_reduce over gloo without and with each part of it, in turns.

    python -m bench.why_cost --torch .venv-torch/bin/python [--rounds 10] [--operations 2000]

Each measurement is two ranks on loopback. Printed are microseconds of one operation on rank 0, on the clock and of the
processor: medians, and the quartiles of the differences to what was measured without, right before.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from agent.paths import shipped

PROGRAM = """
import os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
one = torch.ones(2)
count = int(sys.argv[1])
for _ in range(200):
    dist.all_reduce(one)
clock, processor = [], []
for _ in range(7):
    began, used = time.perf_counter(), time.process_time()
    for _ in range(count):
        dist.all_reduce(one)
    clock.append((time.perf_counter() - began) / count * 1e6)
    processor.append((time.process_time() - used) / count * 1e6)
if dist.get_rank() == 0:
    print(sorted(clock)[3], sorted(processor)[3])
dist.destroy_process_group()
"""


def measured(python: str, count: int, env: Mapping[str, str]) -> tuple[float, ...]:
    """Microseconds of one all_reduce, on the clock and of the processor: medians of seven on rank 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    base = {"PATH": os.environ["PATH"], "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", **env}
    ranks = [
        subprocess.Popen(
            [python, "-c", PROGRAM, str(count)],
            env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=300)[0] for rank in ranks]
    return tuple(map(float, said[0].split()))


def parts(directory: str) -> Mapping[str, Mapping[str, str]]:
    """Variables of each part, and of all."""
    hook = {"PYTHONPATH": shipped("entrypoints", "hook"), "A4_WHY_DIR": directory}
    recorder = {"TORCH_FR_BUFFER_SIZE": "2000"}
    return {"hook and socket": hook, "recorder": recorder, "all": {**hook, **recorder, "NCCL_RAS_ADDR": "localhost:1"}}


def told(name: str, bare: Sequence[float], found: Sequence[float]) -> str:
    differences = [one - before for one, before in zip(found, bare, strict=True)]
    low, middle, high = statistics.quantiles(differences, n=4) if len(differences) > 1 else differences * 3
    medians = f"{statistics.median(bare):.1f} -> {statistics.median(found):.1f} us"
    return f"{name}: {medians}; difference {middle:+.1f} ({low:+.1f} to {high:+.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable, help="a Python with torch")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--operations", type=int, default=2000)
    options = parser.parse_args()
    found: dict[str, list[tuple[tuple[float, ...], tuple[float, ...]]]] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as directory:
            for name, env in parts(directory).items():
                bare = measured(options.torch, options.operations, {})
                found.setdefault(name, []).append((bare, measured(options.torch, options.operations, env)))
                print(f"{name}: without {bare}, with {found[name][-1][1]}", flush=True)
    for name, pairs in found.items():
        for at, which in enumerate(("clock", "processor")):
            print(told(f"{name}, {which}", [bare[at] for bare, _ in pairs], [one[at] for _, one in pairs]))


if __name__ == "__main__":
    main()
