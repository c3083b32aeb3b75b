"""What it costs to have ranks prepared for `why`: all_reduce and steps of DDP without and with each part, in turns.

    python -m bench.why_cost --torch .venv-torch/bin/python [--backend nccl] [--ranks 2] [--rounds 10]

Over gloo on the CPUs of this machine, or over NCCL on its GPUs. One rank, as by default, waits for nobody: what it
takes longer is what was added. Each process gives the least of its nine repeats, in microseconds on rank 0: of one
all_reduce on the clock and of the processor, and of one step. Printed are the medians of all processes without and
with, and the quartiles of the differences to the process without right before.
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
backend, count = sys.argv[1], int(sys.argv[2])
rank = int(os.environ["RANK"])
device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
if backend == "nccl":
    torch.cuda.set_device(device)
dist.init_process_group(backend)
def finish():
    if backend == "nccl":
        torch.cuda.synchronize()
def measured(action, count):
    for _ in range(count // 10 + 1):
        action()
    finish()
    clock, processor = [], []
    for _ in range(9):
        began, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            action()
        finish()
        clock.append((time.perf_counter() - began) / count * 1e6)
        processor.append((time.process_time() - used) / count * 1e6)
    return min(clock), min(processor)
one = torch.ones(2, device=device)
operation = measured(lambda: dist.all_reduce(one), count)
width = 1024 if backend == "nccl" else 256
layers = [layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
batch = torch.randn(64, width, device=device)
def step():
    model.zero_grad()
    model(batch).sum().backward()
steps = measured(step, max(10, count // 20))
if rank == 0:
    print(*operation, steps[0])
dist.destroy_process_group()
"""
FIGURES = ("all_reduce, clock", "all_reduce, processor", "DDP step, clock")


def measured(options: argparse.Namespace, env: Mapping[str, str]) -> tuple[float, ...]:
    """Microseconds, as FIGURES names them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(options.ranks), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [options.torch, "-c", PROGRAM, options.backend, str(options.operations)],
            env={**os.environ, **common, **env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(options.ranks)
    ]
    said = [rank.communicate(timeout=300)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"{options.torch} with {options.backend}: ranks ended with {[rank.returncode for rank in ranks]}")
    return tuple(map(float, said[0].split()))


def parts(directory: str, backend: str) -> Mapping[str, Mapping[str, str]]:
    """Variables of each part, and of all."""
    hook = {"PYTHONPATH": shipped("entrypoints", "hook"), "A4_WHY_DIR": directory}
    recorder = {"TORCH_FR_BUFFER_SIZE": "2000"}
    every = {**hook, **recorder}
    if backend == "nccl":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            every["NCCL_RAS_ADDR"] = f"localhost:{free.getsockname()[1]}"
        timing = {"timing": {**every, "TORCH_NCCL_ENABLE_TIMING": "1"}}
        return {"hook and socket": hook, "all": every, **timing}
    return {"hook and socket": hook, "recorder": recorder, "all": every}


def told(name: str, bare: Sequence[float], found: Sequence[float]) -> str:
    differences = [one - before for one, before in zip(found, bare, strict=True)]
    low, middle, high = statistics.quantiles(differences, n=4) if len(differences) > 1 else differences * 3
    medians = f"{statistics.median(bare):.1f} -> {statistics.median(found):.1f} us"
    return f"{name}: {medians}; difference {middle:+.1f} ({low:+.1f} to {high:+.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable, help="a Python with torch")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo", help="nccl needs a GPU for each rank")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--operations", type=int, default=2000)
    options = parser.parse_args()
    found: dict[str, list[tuple[tuple[float, ...], tuple[float, ...]]]] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as directory:
            for name, env in parts(directory, options.backend).items():
                pair = [measured(options, given) for given in ({}, env)]
                found.setdefault(name, []).append((pair[0], pair[1]))
                print(f"{name}: without {pair[0]}, with {pair[1]}", flush=True)
    for name, pairs in found.items():
        for at, which in enumerate(FIGURES):
            print(told(f"{name}: {which}", [bare[at] for bare, _ in pairs], [one[at] for _, one in pairs]))


if __name__ == "__main__":
    main()
