"""What it costs to have ranks prepared for `why`: all_reduce over gloo with the hook and without, in pairs.

    python -m bench.why_cost --torch .venv-torch/bin/python [--pairs 10] [--operations 2000]

Each process pair is two ranks on loopback. Printed are the medians of both, of their difference, and the spread.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from agent.paths import shipped

PROGRAM = """
import os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
one = torch.ones(2)
count = int(sys.argv[1])
for _ in range(200):
    dist.all_reduce(one)
times = []
for _ in range(7):
    began = time.perf_counter()
    for _ in range(count):
        dist.all_reduce(one)
    times.append((time.perf_counter() - began) / count * 1e6)
if dist.get_rank() == 0:
    print(sorted(times)[len(times) // 2])
dist.destroy_process_group()
"""


def measured(python: str, count: int, env: Mapping[str, str]) -> float:
    """Microseconds of one all_reduce, the median of seven rounds on rank 0."""
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
    return float(said[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable, help="a Python with torch")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--operations", type=int, default=2000)
    options = parser.parse_args()
    differences, bare, prepared = [], [], []
    for _ in range(options.pairs):
        with tempfile.TemporaryDirectory() as directory:
            why = {
                "PYTHONPATH": shipped("entrypoints", "hook"),
                "A4_WHY_DIR": directory,
                "TORCH_FR_BUFFER_SIZE": "2000",
                "NCCL_RAS_ADDR": "localhost:20000",
            }
            bare.append(measured(options.torch, options.operations, {}))
            prepared.append(measured(options.torch, options.operations, why))
        differences.append(prepared[-1] - bare[-1])
        print(f"without {bare[-1]:.1f} us, with {prepared[-1]:.1f} us", flush=True)
    spread = statistics.quantiles(differences, n=4) if len(differences) > 1 else differences * 3
    print(
        f"medians: without {statistics.median(bare):.1f} us, with {statistics.median(prepared):.1f} us; difference "
        f"{statistics.median(differences):+.1f} us (quartiles {spread[0]:+.1f} to {spread[2]:+.1f})"
    )


if __name__ == "__main__":
    main()
