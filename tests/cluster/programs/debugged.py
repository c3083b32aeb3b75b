"""Ranks of torch, or of MPI, that meet, or with an argument only stay; rank 3 stops in a debugger before that. Each
leaves its environment."""

import json
import os
import sys
import time
from pathlib import Path

OF_MPI = "OMPI_COMM_WORLD_RANK" in os.environ
RANK = int(os.environ["OMPI_COMM_WORLD_RANK" if OF_MPI else "RANK"])
Path(f"/job/environ-{RANK}").write_text(json.dumps(dict(os.environ)))
if RANK == 3:
    breakpoint()  # noqa: T100
if len(sys.argv) > 1:
    time.sleep(1000)
if OF_MPI:
    from mpi4py import MPI

    total = MPI.COMM_WORLD.allreduce(RANK)
else:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    mine = torch.tensor([float(RANK)])
    dist.all_reduce(mine)
    total = int(mine.item())
    dist.destroy_process_group()
sys.stdout.write(f"rank {RANK}: {total}\n")  # one write: mpirun reads from several ranks
sys.stdout.flush()
if not OF_MPI:
    os._exit(0)  # threads of gloo may abort a Python that ends (pytorch/pytorch#179291)
