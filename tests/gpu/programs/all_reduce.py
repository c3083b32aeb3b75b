"""torchrun program: every process sums over all on its own GPU with NCCL, which says in a file how it went there."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as distributed

NOTES = "/tmp/nccl.log"

if os.environ["LOCAL_RANK"] == "0":
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=NOTES)
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
distributed.init_process_group("nccl", device_id=device)
value = torch.full((1 << 20,), 2.0 ** distributed.get_rank(), device=device)
distributed.all_reduce(value)
torch.cuda.synchronize()
total = value.unique().tolist()
# One write: another process writes to the same pipe.
sys.stdout.write(f"{distributed.get_rank()} of {distributed.get_world_size()} on {os.uname().nodename}: {total}\n")
distributed.destroy_process_group()
