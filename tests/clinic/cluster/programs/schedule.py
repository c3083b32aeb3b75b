"""torchrun program: eight ranks that do what a simulated world says, until they stand still:  schedule.py CHECKOUT SEED

Every rank makes /mnt/SEED-<rank>-<step> right before each of its steps.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

CHECKOUT, SEED = sys.argv[1:3]
sys.path.insert(0, CHECKOUT)

from tests.clinic.schedules import Step, make  # noqa: E402

FOREVER = timedelta(days=1)
SIZES = {"[4] float": (4,), "[1024, 8] float": (1024, 8)}

world = make(int(SEED))
dist.init_process_group("gloo", timeout=FOREVER)
rank = dist.get_rank()
groups = [dist.group.WORLD, *(dist.new_group(list(ranks), timeout=FOREVER) for ranks in world.groups[1:])]


def collective(step: Step) -> None:
    group, ranks = groups[step.group], world.groups[step.group]
    value = torch.ones(SIZES[step.size])
    if step.name == "all_reduce":
        dist.all_reduce(value, group=group)
    elif step.name == "broadcast":
        dist.broadcast(value, src=ranks[0], group=group)
    else:
        dist.all_gather_into_tensor(torch.empty(len(ranks) * value.shape[0], *value.shape[1:]), value, group=group)


def halt() -> None:
    if world.fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif world.fault == "gil":
        ctypes.PyDLL(None).sleep(100_000)
    time.sleep(100_000)


for at, step in enumerate(world.ranks[rank].steps):
    open(f"/mnt/{SEED}-{rank}-{at}", "w").close()
    if step.kind == "collective":
        collective(step)
    elif step.kind == "send":
        dist.send(torch.ones(4), dst=step.peer)
    elif step.kind == "recv":
        dist.recv(torch.ones(4), src=step.peer)
    elif step.kind == "halt":
        halt()
