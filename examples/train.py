"""Train a small model on all GPUs with DistributedDataParallel: a4-agent torchrun -- train.py [--steps 20]

torchrun gives each process its RANK, LOCAL_RANK and WORLD_SIZE, and the address at which all of them meet. Without GPUs
it trains on the CPUs, over gloo.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--checkpoint", default="", help="file to which rank 0 saves the model at the end")
    args = parser.parse_args()

    gpu = int(os.environ["LOCAL_RANK"]) if torch.cuda.is_available() else None
    if gpu is not None:
        torch.cuda.set_device(gpu)
    device = torch.device("cpu" if gpu is None else f"cuda:{gpu}")
    dist.init_process_group("gloo" if gpu is None else "nccl")

    torch.manual_seed(0)  # the same model on every rank
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(layers, device_ids=None if gpu is None else [gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    torch.manual_seed(dist.get_rank())  # other data on every rank
    for step in range(1, args.steps + 1):
        batch = torch.randn(32, 64, device=device)
        loss = torch.nn.functional.mse_loss(model(batch), batch.mean(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()  # averages the gradients of all ranks
        optimizer.step()
        if dist.get_rank() == 0 and (step % 10 == 0 or step == args.steps):
            print(f"step {step} of {args.steps}: loss {loss.item():.4f}", flush=True)

    if dist.get_rank() == 0:
        if args.checkpoint:
            torch.save(layers.state_dict(), args.checkpoint)
        print(f"trained on {dist.get_world_size()} ranks", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if gpu is None:
        # A thread of gloo may still hold an object of Python's, and would abort an ordinary end (pytorch#190489).
        os._exit(0)


if __name__ == "__main__":
    main()
