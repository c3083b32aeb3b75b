"""Rank program that trains a small model with DistributedDataParallel, checks the outcome, and measures.

Runs under torchrun in a Python that has torch; by hand: torchrun --nproc-per-node 2 ddp.py --steps 5

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

torch_ranks.py tells the environment, the exit status and the record. This program's own lines of the record, in this
order:

  {"step": "sum", "wrong": [{"rank": 3, "expected": 28.0, "found": 27.0, "elements": 1}, …], "time": s}
      found: the first wrong element; elements: how many are wrong
  {"step": "parameters", "different": [ranks whose parameters are not those of rank 0]}
  {"step": "reference", "difference": 1.2e-7, "tolerance": 1e-5, "within": true, "steps": 5}
      difference: null when it is not a finite number
  {"step": "measured", "ranks": [{"rank": 0, "samples_per_s": …, "step_ms": …, "compute_ms": …,
   "gradient_gb_s": …}, …], "batch": per rank, "steps": n, "parameters": n, "gradient_bytes": n}

Each rank appends its losses to A4_SERIES_FILE (docs/report.md), so that the report has their curves.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # also with PYTHONSAFEPATH
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_ranks import RankParser, World, at_least, join, run

TOLERANCE = 1e-5
SIDE = 1024
OUTPUTS = 16
SEED = 20
DEFAULTS = {
    "nccl": {"width": 2048, "layers": 6, "batch": 256, "warmup": 5, "timed": 20, "repeats": 20},
    "gloo": {"width": 512, "layers": 4, "batch": 32, "warmup": 1, "timed": 5, "repeats": 5},
}
BUCKETS = (1 << 20, 25 << 20)
"""Sizes at which DDP closes its first bucket of gradients, and all others."""


def arguments(argv: list[str]) -> argparse.Namespace:
    """The options; anything wrong ends the process with 2."""
    parser = RankParser((__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--steps", type=at_least(1), default=5, help="training steps that are checked (5)")
    add("--batch", type=at_least(1), help="samples per rank and step (256 on GPUs, 32 on CPUs)")
    add("--width", type=at_least(OUTPUTS), help="width of the layers (2048 on GPUs, 512 on CPUs)")
    add("--layers", type=at_least(1), help="hidden layers (6 on GPUs, 4 on CPUs)")
    add("--timed", type=at_least(1), metavar="STEPS", help="steps that are timed (20 on GPUs, 5 on CPUs)")
    return parser.read(argv)


def main(options: argparse.Namespace) -> int:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # arithmetic that gives the same twice
    torch.set_float32_matmul_precision("highest")
    world = join("ddp", options)
    if world.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    for name, value in DEFAULTS[world.backend].items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)
    return world.finish(test(world, options))


def test(world: World, options: argparse.Namespace) -> bool:
    """All steps; True when everything is right, as far as this rank knows."""
    wrong_sums = sums(world)
    model, losses = trained(world, options)
    different = parameters(world, model)
    reference = compare(model.module, world, options) if world.rank == 0 else {}
    world.record.write("reference", **reference)
    measured = world.gather(measure(model, world, options))
    elements = sum(bucket_lengths(model))
    sizes = {"batch": options.batch, "steps": options.timed, "parameters": elements, "gradient_bytes": 4 * elements}
    world.record.write("measured", ranks=measured, **sizes)
    world.say(f"{options.steps} training steps: loss {losses[0]:.4f}, at the end {losses[-1]:.4f} (rank 0)")
    for line in conclusions(wrong_sums, different, reference) if reference else ():
        world.say(line)
    return not wrong_sums and not different and bool(reference.get("within", True))


def sums(world: World) -> list[int]:
    """Ranks whose all-reduce of the rank numbers is wrong."""
    world.record.doing("all-reduce of the rank numbers")
    wrong = [found for found in world.gather(check_sum(world)) if found]
    world.record.write("sum", wrong=wrong, time=time.time())
    return [found["rank"] for found in wrong]


def check_sum(world: World) -> dict[str, object] | None:
    """All-reduce the rank numbers; None when every element is right on this rank."""
    expected = float(world.ranks * (world.ranks - 1) // 2)
    total = torch.full((SIDE, SIDE), float(world.rank), dtype=torch.float32, device=world.device)
    dist.all_reduce(total)
    allowed = 0.0 if expected < 1 << 24 else 1e-5 * expected  # above that, fp32 has not every integer
    wrong = ~((total - expected).abs() <= allowed)  # not a number is wrong too
    elements = int(wrong.sum().item())
    if not elements:
        return None
    found = float(total[wrong][0].item())
    told = found if math.isfinite(found) else str(found)  # JSON has no infinity
    return {"rank": world.rank, "expected": expected, "found": told, "elements": elements}


def new_model(world: World, options: argparse.Namespace) -> torch.nn.Module:
    """The same on every rank and at every call. Smooth, so that a rounding error stays one."""
    generator = torch.Generator().manual_seed(SEED)
    parts: list[torch.nn.Module] = []
    for outputs in [options.width] * options.layers + [OUTPUTS]:
        layer = torch.nn.Linear(options.width, outputs)
        torch.nn.init.normal_(layer.weight, std=1.4 / math.sqrt(options.width), generator=generator)
        torch.nn.init.zeros_(layer.bias)
        parts += [layer, torch.nn.GELU()]
    return torch.nn.Sequential(*parts[:-1]).to(world.device)


def new_optimizer(model: torch.nn.Module, options: argparse.Namespace) -> Any:
    return torch.optim.SGD(model.parameters(), lr=4 / options.width, momentum=0.9)


def batch(step: int, of_rank: int, world: World, options: argparse.Namespace) -> Any:
    """Inputs of one rank in one step, made on the CPU, which gives the same everywhere."""
    generator = torch.Generator().manual_seed(SEED + 1 + step * world.ranks + of_rank)
    return torch.randn(options.batch, options.width, generator=generator).to(world.device)


def loss_of(model: torch.nn.Module, inputs: Any) -> Any:
    """The model learns to give back its first inputs."""
    return torch.nn.functional.mse_loss(model(inputs), inputs[:, :OUTPUTS])


def trained(world: World, options: argparse.Namespace) -> tuple[Any, list[float]]:
    """The model after the steps that are checked, and this rank's losses."""
    world.record.doing("DDP of a new model")
    ids = [world.device.index] if world.device.type == "cuda" else None
    model = DistributedDataParallel(new_model(world, options), device_ids=ids)
    losses = train(model, [world.rank], "training step", world, options)
    write_series(losses, world)
    return model, losses


def write_series(losses: Sequence[float], world: World) -> None:
    """For the report. A run fails by no curve that it cannot store."""
    path = os.environ.get("A4_SERIES_FILE")
    records = [{"name": "loss", "step": at, "value": loss, "rank": world.rank} for at, loss in enumerate(losses, 1)]
    if path:
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(record) + "\n" for record in records)
        except OSError as error:
            world.say(f"no curve of the loss: {error}")


def train(model: Any, ranks: Sequence[int], what: str, world: World, options: argparse.Namespace) -> list[float]:
    """Make the steps that are checked, on the batches of these ranks. Returns the losses on the last rank's batches."""
    optimizer = new_optimizer(model, options)
    losses = []
    for step in range(options.steps):
        world.record.doing(what, step + 1, options.steps)
        optimizer.zero_grad()
        for rank in ranks:
            loss = loss_of(model, batch(step, rank, world, options))
            loss.backward()
        for parameter in model.parameters():
            parameter.grad /= len(ranks)
        optimizer.step()
        losses.append(float(loss.item()))
    return losses


def parameters(world: World, model: Any) -> list[int]:
    """Ranks whose parameters are not those of rank 0."""
    world.record.doing("comparison of the parameters")
    hashes = world.gather(digest(model))
    different = [rank for rank, found in enumerate(hashes) if found != hashes[0]]
    world.record.write("parameters", different=different)
    return different


def digest(model: Any) -> str:
    """SHA-256 of the bytes of all parameters."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        tensor = parameter.detach().cpu().contiguous()
        found.update((ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr()))
    return found.hexdigest()


def compare(trained: Any, world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Train a second model on the batches of all ranks, without any communication, and compare."""
    world.record.doing("single-process reference")
    alone = new_model(world, options)
    train(alone, range(world.ranks), "step of the single-process reference", world, options)
    with torch.no_grad():
        pairs = zip(trained.parameters(), alone.parameters(), strict=True)
        parts = [float(((a - b).abs().max() / b.abs().max()).item()) for a, b in pairs]
    # max() may lose what is not a number
    difference = max(parts) if all(map(math.isfinite, parts)) else None
    within = difference is not None and difference <= TOLERANCE
    return {"difference": difference, "tolerance": TOLERANCE, "within": within, "steps": options.steps}


def measure(model: Any, world: World, options: argparse.Namespace) -> dict[str, float]:
    """This rank's figures. The model is trained on; nothing is checked after this."""
    doing = world.record.doing
    doing("timing of training steps", 1, 3)
    inputs = batch(options.steps, world.rank, world, options)
    optimizer = new_optimizer(model, options)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model, inputs).backward()
        optimizer.step()

    def compute() -> None:
        with model.no_sync():
            loss_of(model, inputs).backward()

    training = mean_time(step, world, options)
    doing("timing of training steps without gradients", 2, 3)
    computing = mean_time(compute, world, options)
    doing("timing of the gradients' all-reduce", 3, 3)
    lengths = bucket_lengths(model)
    reducing = reduce_time(lengths, world, options)
    moved = 2 * (world.ranks - 1) / world.ranks * 4 * sum(lengths)
    return {
        "rank": world.rank,
        "samples_per_s": round(options.batch / training, 1),
        "step_ms": round(training * 1e3, 3),
        "compute_ms": round(computing * 1e3, 3),
        "gradient_gb_s": round(moved / reducing / 1e9, 4),
    }


def mean_time(work: Callable[[], None], world: World, options: argparse.Namespace) -> float:
    """Seconds that `work` takes once, all ranks at once."""
    for _ in range(options.warmup):
        work()
    return world.seconds_of(work, options.timed)


def reduce_time(lengths: list[int], world: World, options: argparse.Namespace) -> float:
    """Median seconds of all-reducing as many bytes as there are gradients."""
    buffers = [torch.zeros(length, device=world.device) for length in lengths]

    def reduce() -> None:
        for work in [dist.all_reduce(buffer, async_op=True) for buffer in buffers]:
            work.wait()

    times = [world.seconds_of(reduce) for _ in range(options.warmup + options.repeats)]
    return statistics.median(times[options.warmup :])


def bucket_lengths(model: Any) -> list[int]:
    """fp32 elements of each bucket: the gradients in the order in which backward gives them, up to DDP's sizes."""
    lengths = [0]
    for parameter in reversed(list(model.parameters())):
        if lengths[-1] * 4 >= BUCKETS[min(len(lengths) - 1, 1)]:
            lengths.append(0)
        lengths[-1] += parameter.numel()
    return lengths


def conclusions(wrong_sums: list[int], different: list[int], reference: dict[str, Any]) -> list[str]:
    """What was checked and the outcome, for people."""
    odd = f"DIFFERENT from those of rank 0 on ranks {different}"
    return [
        f"all-reduce of {SIDE}×{SIDE} floats: {f'WRONG on ranks {wrong_sums}' if wrong_sums else 'right'}",
        f"parameters: {odd if different else 'the same on all ranks'}",
        f"beside a single process: {'right' if reference['within'] else 'WRONG'}, the largest difference is "
        f"{reference['difference']:.1e}; up to {TOLERANCE:.0e} is allowed",
    ]


if __name__ == "__main__":
    run(main, arguments(sys.argv[1:]))
