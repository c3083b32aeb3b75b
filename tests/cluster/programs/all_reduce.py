"""torchrun program: every process sums over all with gloo."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as distributed

distributed.init_process_group("gloo")
value = torch.tensor([2.0 ** distributed.get_rank()])
distributed.all_reduce(value)
place = f"{os.environ['GROUP_RANK']}.{os.environ['LOCAL_RANK']} on {os.uname().nodename}"
# One write: another process writes to the same pipe.
sys.stdout.write(f"{distributed.get_rank()} of {distributed.get_world_size()}, {place}: {value.item():.0f}\n")
distributed.destroy_process_group()
