"""Train a small model on all GPUs with DistributedDataParallel: a4-agent torchrun -- train.py [--steps 20]

torchrun gives each process its RANK, LOCAL_RANK and WORLD_SIZE, and the address at which all of them meet. Without GPUs
it trains on the CPUs, over gloo.

With --resume DIR it saves its state there, and goes on from it when it is started again:

    a4-agent torchrun --lives 3 -- train.py --steps 100 --resume /data/checkpoints
"""

from __future__ import annotations

import argparse
import os
import zipfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(directory: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint that is there as a whole or not at all, and keep the one before it."""
    path = directory / f"step-{state['step']:09}.pt"
    beside = path.with_suffix(".part")
    with open(beside, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())  # else the new name could outlast the content, if the node fails
    beside.replace(path)
    for old in sorted(directory.glob("step-*.pt"))[:-2]:
        old.unlink()


def newest(directory: Path) -> dict[str, Any] | None:
    """The state in the newest checkpoint that is whole."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in sorted(directory.glob("step-*.pt"), reverse=True):
        if zipfile.is_zipfile(path):  # its table of contents is at the end: a torn file has none
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            return state
        print(f"{path} is not whole", flush=True)
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--checkpoint", default="", help="file to which rank 0 saves the model at the end")
    parser.add_argument("--resume", type=Path, help="directory of checkpoints that all pods share: go on from there")
    parser.add_argument("--save-every", type=int, default=10, help="steps from one checkpoint to the next")
    args = parser.parse_args()

    gpu = int(os.environ["LOCAL_RANK"]) if torch.cuda.is_available() else None
    if gpu is not None:
        torch.cuda.set_device(gpu)
    device = torch.device("cpu" if gpu is None else f"cuda:{gpu}")
    dist.init_process_group("gloo" if gpu is None else "nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # the same model on every rank
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(layers, device_ids=None if gpu is None else [gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    done = 0
    if args.resume:
        # Rank 0 reads and tells the others: by themselves, they might see another checkpoint as the newest.
        found = [newest(args.resume) if rank == 0 else None]
        dist.broadcast_object_list(found, src=0)
        if state := found[0]:
            layers.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            done = state["step"]

    for step in range(done + 1, args.steps + 1):
        torch.manual_seed(step * ranks + rank)  # other data on every rank and in every step: the step says which
        batch = torch.randn(32, 64, device=device)
        loss = torch.nn.functional.mse_loss(model(batch), batch.mean(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()  # averages the gradients of all ranks
        optimizer.step()
        if rank == 0 and (step % 10 == 0 or step == args.steps):
            print(f"step {step} of {args.steps}: loss {loss.item():.9g}", flush=True)
        if rank == 0 and args.resume and (step % args.save_every == 0 or step == args.steps):
            save(args.resume, {"step": step, "model": layers.state_dict(), "optimizer": optimizer.state_dict()})

    if rank == 0:
        if args.checkpoint:
            torch.save(layers.state_dict(), args.checkpoint)
        print(f"trained on {ranks} ranks", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if gpu is None:
        # A thread of gloo may still hold an object of Python's, and would abort an ordinary end (pytorch#190489).
        os._exit(0)


if __name__ == "__main__":
    main()
