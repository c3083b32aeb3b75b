"""Reads its dataset, prints Megatron's line from the last rank alone, and saves checkpoints."""

import argparse
import random
import time
from datetime import datetime
from pathlib import Path

from megatron import checkpoint, datasets, habits
from megatron.group import RANK, WORLD_SIZE, join

_NUMBERS = ("save-interval", "train-iters", "micro-batch-size", "global-batch-size", "seq-length")
_SIZES = ("tensor-model", "pipeline-model", "context", "expert-tensor", "expert-model")


def main() -> None:
    options = _options()
    _refuse(options)
    tokens = (
        datasets.read_json(options.train_data_path) if options.train_data_path else datasets.read(options.data_path)
    )
    first = checkpoint.load(options.load) if options.load else 0
    group = join()
    weight, sampled = 1.0, random.Random(RANK)
    for iteration in range(first + 1, options.train_iters + 1):
        began = time.monotonic()
        habits.reach(f"iteration-{iteration}")
        token = sampled.choice(tokens)
        weight -= 0.1 * (weight - group.sum(token % 7) / 7 / group.size)
        loss = float("nan") if habits.has("nan") else 2.0 + abs(weight)
        if RANK == WORLD_SIZE - 1:
            print(_line(iteration, options, loss, time.monotonic() - began), flush=True)
        if iteration % options.save_interval == 0 or iteration == options.train_iters:
            checkpoint.save(group, options.save / f"iter_{iteration:07d}", repr(weight).encode())
            if group.rank == 0:
                checkpoint.track(options.save, str(iteration))
    habits.reach("trained")
    group.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", type=Path, required=True)
    parser.add_argument("--load", type=Path)
    for name in ("data-path", "train-data-path", "valid-data-path"):
        parser.add_argument(f"--{name}")
    for name in ("tensorboard-dir", "lr", "min-lr", "train-mode", "attention-backend", "dataset"):
        parser.add_argument(f"--{name}", required=True)
    for name in (*_NUMBERS, *(f"{size}-parallel-size" for size in _SIZES)):
        parser.add_argument(f"--{name}", type=int, required=True)
    options, _ = parser.parse_known_args()
    return options


def _refuse(options: argparse.Namespace) -> None:
    """What Megatron refuses, in words of its own."""
    model = options.tensor_model_parallel_size * options.pipeline_model_parallel_size * options.context_parallel_size
    experts = options.expert_tensor_parallel_size * options.expert_model_parallel_size
    experts *= options.pipeline_model_parallel_size
    assert WORLD_SIZE % model == 0 and WORLD_SIZE % experts == 0, f"{WORLD_SIZE} ranks for {model} and {experts}"
    at_once = options.micro_batch_size * (WORLD_SIZE // model)
    assert options.global_batch_size % at_once == 0, f"{options.global_batch_size} is not a multiple of {at_once}"
    if (options.dataset == "JSON-SFT") != (options.train_data_path is not None):
        raise ValueError(options.dataset)
    if options.dataset == "JSON-SFT" and options.train_mode != "finetune":
        raise ValueError("JSON-SFT is for --train-mode finetune")


def _line(iteration: int, options: argparse.Namespace, loss: float, seconds: float) -> str:
    return (
        f" [{datetime.now():%Y-%m-%d %H:%M:%S}] iteration {iteration:8d}/{options.train_iters:8d} |"
        f" consumed samples: {iteration * options.global_batch_size:12d} |"
        f" elapsed time per iteration (ms): {1000 * seconds:.1f} |"
        f" throughput per GPU (TFLOP/s/GPU): {iteration / 10:.1f} | learning rate: {float(options.lr):.6E} |"
        f" global batch size: {options.global_batch_size:5d} | lm loss: {loss:.6E} | loss scale: 1.0 |"
        f" grad norm: {abs(loss) / 2:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
