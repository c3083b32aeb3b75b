"""Rank program that trains a small model with DistributedDataParallel, checks the outcome, and measures.

Runs under torchrun in a Python that has torch; by hand: torchrun --nproc-per-node 2 ddp.py --steps 5. Inputs:

  A4_TOKEN_FILE  file, the same path on every pod, with the token that the agent gave this pod
  A4_RECORD      file on rank 0's pod that the record is written to; not set: none is written

What is checked:

  sum         all-reduce of a 1024×1024 fp32 tensor filled with the rank: every element is n(n-1)/2 on every rank
  parameters  after training, the bytes of all parameters are the same on all ranks, compared by SHA-256
  reference   rank 0 trains the same model alone, on the batches of all ranks: the largest difference of a
              parameter is within TOLERANCE of the largest parameter of its tensor. Matrix products have the
              same shapes in both, so that only the order of the sums over ranks differs: this gives about
              1e-7. One lost gradient of one rank of four in one step gives more than 1e-3.

What is measured, with fp32 (no TF32), after warm-up steps, by each rank for itself:

  step_ms         mean time of a training step; ranks wait for each other in it, so that all have much the same
  samples_per_s   batch of this rank / step time
  compute_ms      forward and backward alone, without waiting for anyone: a slow device shows here
  gradient_gb_s   bus bandwidth of all-reducing the model's gradients, 2(n-1)/n × bytes / median time in GB/s
                  (1e9 bytes), in buckets as DDP makes them (1 MiB, then 25 MiB) and nothing else; 0 on one rank

The record is JSON, one object per line, flushed at each step: what is missing at its end was not reached.
Version 1 has these lines, in this order, and "doing" lines between them:

  {"step": "start", "version": 1, "program": "ddp", "ranks": n, "backend": "gloo", "time": …, "versions": {…}}
  {"step": "ranks", "time": …, "ranks": [{"rank": 0, "local_rank": 0, "token": "…", "node": "…", "pid": 12,
   "device": "cpu", "error": ""}, …]}       token: "" when it could not be read, then "error" says why
  {"step": "sum", "wrong": [{"rank": 3, "expected": 28.0, "found": 27.0, "elements": 1}, …]}
      found: the first wrong element; elements: how many are wrong
  {"step": "parameters", "different": [ranks whose parameters are not those of rank 0]}
  {"step": "reference", "difference": 1.2e-7, "tolerance": 1e-5, "within": true, "steps": 5}
      difference: null when it is not a finite number
  {"step": "measured", "ranks": [{"rank": 0, "samples_per_s": …, "step_ms": …, "compute_ms": …,
   "gradient_gb_s": …}, …], "batch": per rank, "steps": n, "parameters": n, "gradient_bytes": n}
  {"step": "end", "time": …, "finished": [0, 1, …]}
  {"step": "doing", "what": "training step", "number": 1, "of": 5}   before what may take long

Exit status: 0 when all is right; 65 when something is wrong, on every rank; 2 for wrong arguments; 1 for
anything else, then torch's error file has the cause.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record as write_error_file
from torch.nn.parallel import DistributedDataParallel

TOLERANCE = 1e-5
SIDE = 1024
OUTPUTS = 16
SEED = 20
MOST_ROWS = 32
DEFAULTS = {
    "nccl": {"width": 2048, "layers": 6, "batch": 256, "warmup": 5, "timed": 20, "repeats": 20},
    "gloo": {"width": 512, "layers": 4, "batch": 32, "warmup": 1, "timed": 5, "repeats": 5},
}
BUCKETS = (1 << 20, 25 << 20)
"""Sizes at which DDP closes its first bucket of gradients, and all others."""


class Record:
    """The record file of rank 0; on other ranks nothing is written."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "w", encoding="utf-8") if path else None  # noqa: SIM115

    def write(self, step: str, **values: object) -> None:
        if self.file:
            self.file.write(json.dumps({"step": step, **values}) + "\n")
            self.file.flush()

    def doing(self, what: str, number: int = 1, of: int = 1) -> None:
        self.write("doing", what=what, number=number, of=of)


def entry() -> None:
    try:
        status = write_error_file(main)()
    except Exception:
        sys.excepthook(*sys.exc_info())  # torch's own, which names the rank
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Without destructors: that of a process group may wait for ranks that wait for this one, and threads of gloo
    # that let go of a tensor while Python ends abort the process (pytorch/pytorch#179291).
    os._exit(status)


def main() -> int:
    options = arguments()
    backend = options.backend or usable_backend()
    for name, value in DEFAULTS[backend].items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)
    device = prepare(backend)
    record = Record(os.environ.get("A4_RECORD", "") if rank() == 0 else "")
    record.write(
        "start",
        version=1,
        program="ddp",
        ranks=size(),
        backend=backend,
        time=time.time(),
        versions=versions(backend),
    )
    record.doing("waiting for all ranks")
    limit = timedelta(seconds=options.timeout_seconds)
    dist.init_process_group(backend, timeout=limit, device_id=device if device.type == "cuda" else None)
    right = run(record, device, options)
    dist.destroy_process_group()
    return 0 if right else 65


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=5, help="training steps that are checked (5)")
    parser.add_argument("--batch", type=int, help="samples per rank and step (256 on GPUs, 32 on CPUs)")
    parser.add_argument("--width", type=int, help="width of the layers (2048 on GPUs, 512 on CPUs)")
    parser.add_argument("--layers", type=int, help="hidden layers (6 on GPUs, 4 on CPUs)")
    parser.add_argument("--timed", type=int, metavar="STEPS", help="steps that are timed (20 on GPUs, 5 on CPUs)")
    parser.add_argument("--backend", choices=sorted(DEFAULTS), help="nccl where there are GPUs, else gloo")
    parser.add_argument("--timeout-seconds", type=float, default=600, help="for every collective (600)")
    options = parser.parse_args()
    numbers = (options.steps, options.batch, options.width, options.layers, options.timed)
    if any(number is not None and number < 1 for number in numbers) or options.timeout_seconds <= 0:
        parser.error("all numbers are at least 1")
    if options.width is not None and options.width < OUTPUTS:
        parser.error(f"--width is at least {OUTPUTS}")
    if missing := [name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE") if name not in os.environ]:
        parser.error(f"start it by torchrun --nproc-per-node 2 {sys.argv[0]}: no {', '.join(missing)}")
    return options


def rank() -> int:
    return int(os.environ["RANK"])


def size() -> int:
    return int(os.environ["WORLD_SIZE"])


def usable_backend() -> str:
    """nccl with a GPU per local rank, gloo without any GPU. RuntimeError for what is between."""
    if not torch.cuda.is_available():
        return "gloo"
    check_gpus()
    return "nccl"


def check_gpus() -> None:
    gpus, local = torch.cuda.device_count(), int(os.environ["LOCAL_WORLD_SIZE"])
    if gpus < local:
        raise RuntimeError(f"{local} ranks on this node, but {gpus} GPUs: start fewer, or use --backend gloo")


def prepare(backend: str) -> torch.device:
    """This rank's device, and arithmetic that gives the same twice."""
    torch.set_float32_matmul_precision("highest")
    if backend == "gloo":
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)
        return torch.device("cpu")
    check_gpus()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def versions(backend: str) -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if backend == "nccl":
        found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return found


def run(record: Record, device: torch.device, options: argparse.Namespace) -> bool:
    """All steps; True when everything is right. It is the same on every rank."""
    ranks = gathered(identity(device))
    record.write("ranks", time=time.time(), ranks=ranks)
    record.doing("all-reduce of the rank numbers")
    wrong_sums = [found for found in gathered(check_sum(device)) if found]
    record.write("sum", wrong=wrong_sums)
    model = DistributedDataParallel(
        new_model(device, options), device_ids=[device.index] if device.type == "cuda" else None
    )
    losses = train(model, record, device, options)
    hashes = gathered(digest(model))
    different = [number for number, found in enumerate(hashes) if found != hashes[0]]
    record.write("parameters", different=different)
    reference = compare(model.module, record, device, options) if rank() == 0 else {}
    record.write("reference", **reference)
    measured = gathered(measure(model, record, device, options))
    record.write("measured", ranks=measured, **sizes(model, options))
    record.write("end", time=time.time(), finished=gathered(rank()))
    right = not wrong_sums and not different and reference.get("within", True)
    if rank() == 0:
        show(ranks, measured)
        print(f"{options.steps} training steps: loss {losses[0]:.4f}, at the end {losses[-1]:.4f} (rank 0)")
        print("\n".join(conclusions([found["rank"] for found in wrong_sums], different, reference)), flush=True)
    said = [right]
    dist.broadcast_object_list(said, src=0)  # after rank 0 has flushed its record
    return bool(said[0])


def gathered(mine: Any) -> list[Any]:
    """What all ranks have, in their order, on every rank."""
    every: list[Any] = [None] * size()
    dist.all_gather_object(every, mine)
    return every


def identity(device: torch.device) -> dict[str, object]:
    """What one rank says of itself."""
    token, error = "", ""
    try:
        with open(os.environ["A4_TOKEN_FILE"], encoding="utf-8") as file:
            token = file.read().strip()
    except KeyError:
        error = "A4_TOKEN_FILE is not set"
    except (OSError, ValueError) as failure:
        error = str(failure)
    return {
        "rank": rank(),
        "local_rank": int(os.environ["LOCAL_RANK"]),
        "token": token,
        "node": os.uname().nodename,
        "pid": os.getpid(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "error": error,
    }


def check_sum(device: torch.device) -> dict[str, object] | None:
    """All-reduce the rank numbers; None when every element is right on this rank."""
    expected = float(size() * (size() - 1) // 2)
    total = torch.full((SIDE, SIDE), float(rank()), dtype=torch.float32, device=device)
    dist.all_reduce(total)
    allowed = 0.0 if expected < 1 << 24 else 1e-5 * expected  # above that, fp32 has not every integer
    wrong = ~((total - expected).abs() <= allowed)  # not a number is wrong too
    elements = int(wrong.sum().item())
    if not elements:
        return None
    found = float(total[wrong][0].item())
    return {"rank": rank(), "expected": expected, "found": number(found), "elements": elements}


def number(value: float) -> float | str:
    """JSON has no infinity."""
    return value if math.isfinite(value) else str(value)


def new_model(device: torch.device, options: argparse.Namespace) -> torch.nn.Module:
    """The same on every rank and at every call. Smooth, so that a rounding error stays one."""
    generator = torch.Generator().manual_seed(SEED)
    parts: list[torch.nn.Module] = []
    for outputs in [options.width] * options.layers + [OUTPUTS]:
        layer = torch.nn.Linear(options.width, outputs)
        torch.nn.init.normal_(layer.weight, std=1.4 / math.sqrt(options.width), generator=generator)
        torch.nn.init.zeros_(layer.bias)
        parts += [layer, torch.nn.GELU()]
    return torch.nn.Sequential(*parts[:-1]).to(device)


def new_optimizer(model: torch.nn.Module, options: argparse.Namespace) -> Any:
    return torch.optim.SGD(model.parameters(), lr=4 / options.width, momentum=0.9)


def batch(step: int, of_rank: int, device: torch.device, options: argparse.Namespace) -> Any:
    """Inputs of one rank in one step, made on the CPU, which gives the same everywhere."""
    generator = torch.Generator().manual_seed(SEED + 1 + step * size() + of_rank)
    return torch.randn(options.batch, options.width, generator=generator).to(device)


def loss_of(model: torch.nn.Module, inputs: Any) -> Any:
    """The model learns to give back its first inputs."""
    return torch.nn.functional.mse_loss(model(inputs), inputs[:, :OUTPUTS])


def train(model: Any, record: Record, device: torch.device, options: argparse.Namespace) -> list[float]:
    """The steps that are checked; this rank's losses."""
    optimizer = new_optimizer(model, options)
    losses = []
    for step in range(options.steps):
        record.doing("training step", step + 1, options.steps)
        optimizer.zero_grad()
        loss = loss_of(model, batch(step, rank(), device, options))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.item()))
    return losses


def digest(model: Any) -> str:
    """SHA-256 of the bytes of all parameters."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        tensor = parameter.detach().cpu().contiguous()
        found.update((ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr()))
    return found.hexdigest()


def compare(trained: Any, record: Record, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    """Train a second model on the batches of all ranks, without any communication, and compare."""
    alone = new_model(device, options)
    optimizer = new_optimizer(alone, options)
    for step in range(options.steps):
        record.doing("step of the single-process reference", step + 1, options.steps)
        optimizer.zero_grad()
        for of_rank in range(size()):
            loss_of(alone, batch(step, of_rank, device, options)).backward()
        for parameter in alone.parameters():
            parameter.grad /= size()
        optimizer.step()
    with torch.no_grad():
        pairs = zip(trained.parameters(), alone.parameters(), strict=True)
        parts = [float(((a - b).abs().max() / b.abs().max()).item()) for a, b in pairs]
    # max() may lose what is not a number
    difference = max(parts) if all(map(math.isfinite, parts)) else None
    within = difference is not None and difference <= TOLERANCE
    return {"difference": difference, "tolerance": TOLERANCE, "within": within, "steps": options.steps}


def measure(model: Any, record: Record, device: torch.device, options: argparse.Namespace) -> dict[str, float]:
    """This rank's figures. The model is trained on; nothing is checked after this."""
    inputs = batch(options.steps, rank(), device, options)
    optimizer = new_optimizer(model, options)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model, inputs).backward()
        optimizer.step()

    def compute() -> None:
        with model.no_sync():
            loss_of(model, inputs).backward()

    record.doing("timing of training steps", 1, 3)
    training = mean_time(step, device, options)
    record.doing("timing of training steps without gradients", 2, 3)
    computing = mean_time(compute, device, options)
    record.doing("timing of the gradients' all-reduce", 3, 3)
    reducing = reduce_time(model, device, options)
    moved = 2 * (size() - 1) / size() * gradient_bytes(model)
    return {
        "rank": rank(),
        "samples_per_s": round(options.batch / training, 1),
        "step_ms": round(training * 1e3, 3),
        "compute_ms": round(computing * 1e3, 3),
        "gradient_gb_s": round(moved / reducing / 1e9, 4),
    }


def mean_time(work: Callable[[], None], device: torch.device, options: argparse.Namespace) -> float:
    """Seconds that `work` takes, in the mean of so many times, all ranks at once."""
    for _ in range(options.warmup):
        work()
    wait(device)
    begin = time.perf_counter()
    for _ in range(options.timed):
        work()
    synchronize(device)
    return (time.perf_counter() - begin) / float(options.timed)


def reduce_time(model: Any, device: torch.device, options: argparse.Namespace) -> float:
    """Median seconds of all-reducing as many bytes as there are gradients."""
    buffers = [torch.zeros(length, device=device) for length in bucket_lengths(model)]
    times: list[float] = []
    for turn in range(options.warmup + options.repeats):
        wait(device)
        begin = time.perf_counter()
        for work in [dist.all_reduce(buffer, async_op=True) for buffer in buffers]:
            work.wait()
        synchronize(device)
        if turn >= options.warmup:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def bucket_lengths(model: Any) -> list[int]:
    """Elements of each bucket: the gradients in the order in which backward gives them, up to DDP's sizes."""
    lengths = [0]
    for parameter in reversed(list(model.parameters())):
        if lengths[-1] * 4 >= BUCKETS[min(len(lengths) - 1, 1)]:
            lengths.append(0)
        lengths[-1] += parameter.numel()
    return lengths


def wait(device: torch.device) -> None:
    """For all ranks, and for this rank's own device."""
    synchronize(device)
    dist.barrier()
    synchronize(device)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def gradient_bytes(model: Any) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def sizes(model: Any, options: argparse.Namespace) -> dict[str, int]:
    return {
        "batch": options.batch,
        "steps": options.timed,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "gradient_bytes": gradient_bytes(model),
    }


def show(ranks: list[Any], measured: list[Any]) -> None:
    """For people who look at stdout; of many ranks only those that compute slowest."""
    print(f"{'rank':>5}  {'device':16}  {'samples/s':>10}  {'step ms':>9}  {'compute ms':>10}  {'gradient GB/s':>13}")
    slowest = sorted(measured, key=lambda row: -row["compute_ms"])[:MOST_ROWS]
    for row in sorted(slowest, key=lambda row: row["rank"]):
        figures = f"{row['samples_per_s']:10.1f}  {row['step_ms']:9.2f}  {row['compute_ms']:10.2f}"
        print(f"{row['rank']:5}  {ranks[row['rank']]['device']:16.16}  {figures}  {row['gradient_gb_s']:13.3f}")


def conclusions(wrong_sums: list[int], different: list[int], reference: dict[str, Any]) -> list[str]:
    """What was checked and the outcome, for people."""
    odd = f"DIFFERENT from those of rank 0 on ranks {different}"
    return [
        f"all-reduce of {SIDE}×{SIDE} floats: {f'WRONG on ranks {wrong_sums}' if wrong_sums else 'right'}",
        f"parameters: {odd if different else 'the same on all ranks'}",
        f"beside a single process: {'right' if reference['within'] else 'WRONG'}, the largest difference is "
        f"{reference['difference']}, {TOLERANCE} is allowed",
    ]


if __name__ == "__main__":
    entry()
