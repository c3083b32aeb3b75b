"""What the rank programs beside this file share: how ranks meet, what they exchange, their record, how they end.

For Pythons with torch 2.4 or later, started by torchrun; standard library, torch, record.py and loaded_nccl.py only.
Environment, besides torchrun's:

  A4_TOKEN_FILE   file, the same path on every pod, with the token that the agent gave this pod
  A4_RECORD       file on rank 0's pod that the record is written to; not set: no record

The record is JSON, one object per line, flushed at each step: what is missing at its end was not reached. Version 1
has these lines, and those of the program between "ranks" and "end":

  {"step": "start", "version": 1, "program": "ddp", "ranks": n, "backend": "gloo", "time": s, "versions": {…}}
  {"step": "ranks", "time": s, "ranks": [{"rank": 0, "local_rank": 0, "token": "…", "node": "…", "pid": 12,
   "device": "cpu", "error": ""}, …]}       token: "" when it could not be read, then "error" says why
  {"step": "end", "time": s, "finished": [0, 1, …]}
  {"step": "doing", "what": "all_reduce, 1 GiB", "number": 31, "of": 120, "time": s}   before what may take long or hang

Exit status: 0 when all is right; 65 on every rank when something is wrong on any; 2 wrong usage; 1 anything else,
with the cause in torch's error file. torchrun itself ends 1 for all of these.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from loaded_nccl import loaded_nccl
from record import RecordFile, identity
from torch.distributed.elastic.multiprocessing.errors import record as keep_cause

TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
WRONG = 65
GIB = 1 << 30
LINGER_SECONDS = 10.0


class RankParser(argparse.ArgumentParser):
    """Has the options that `join` needs. Rank 0 speaks for all: usage is printed once."""

    def __init__(self, description: str, epilog: str = "") -> None:
        super().__init__(description=description, epilog=epilog)
        self.silent = os.environ.get("RANK", "0") != "0"
        self.add_argument("--backend", choices=("nccl", "gloo"), help="default: nccl where there are GPUs")
        self.add_argument("--timeout-seconds", type=at_least(1), default=600, help="for one collective (default 600)")

    def read(self, argv: list[str]) -> argparse.Namespace:
        """The options; anything wrong ends the process with 2."""
        options = self.parse_args(argv)
        if missing := [name for name in TORCHRUN if name not in os.environ]:
            self.error(f"to be started by torchrun: no {', '.join(missing)} in the environment")
        return options

    def print_help(self, file: Any = None) -> None:
        if not self.silent:
            super().print_help(file)

    def error(self, message: str) -> NoReturn:
        if not self.silent:
            super().error(message)
        time.sleep(LINGER_SECONDS)  # torchrun ends all ranks when one has ended: not before rank 0 has spoken
        raise SystemExit(2)


def at_least(least: int) -> Callable[[str], int]:
    """A type of options: whole numbers."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number (at least {least})")
        return int(text)

    return number


@dataclass
class World:
    """The ranks, seen by one of them."""

    rank: int
    ranks: int
    local_ranks: int
    backend: str
    device: Any
    record: RecordFile
    every: list[dict[str, Any]] = field(default_factory=list)
    """What each rank said of itself, as in the record."""

    def say(self, line: str) -> None:
        """Only rank 0 is heard; at once, so that a line is seen when its work is done."""
        if self.rank == 0:
            print(line, flush=True)

    def everyone(self, value: float) -> list[float]:
        """Each rank's value, on every rank, once all have called: a barrier too.

        all_gather and no all-reduce: what is under test does not judge itself. float64, exact up to 2**53.
        """
        mine = torch.tensor([value], dtype=torch.float64, device=self.device)
        found = [torch.zeros_like(mine) for _ in range(self.ranks)]
        dist.all_gather(found, mine)
        return [float(each.item()) for each in found]

    def gather(self, value: object) -> list[Any]:
        """As `everyone`, for what JSON can say. (torch's own all_gather_object needs numpy.)"""
        text = json.dumps(value).encode()
        room = int(max(self.everyone(len(text))))
        mine = torch.tensor(list(text.ljust(room)), dtype=torch.uint8, device=self.device)
        found = [torch.zeros_like(mine) for _ in range(self.ranks)]
        dist.all_gather(found, mine)
        return [json.loads(bytes(each.tolist())) for each in found]

    def synchronize(self) -> None:
        """Wait until the GPU has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds_of(self, work: Callable[[], object], times: int = 1) -> float:
        """Seconds that `work` takes on this rank: the mean of so many, from a common start until the device is done."""
        self.synchronize()
        self.everyone(0)
        begin = time.perf_counter()
        for _ in range(times):
            work()
        self.synchronize()
        return max(time.perf_counter() - begin, 1e-9) / times

    def finish(self, right: bool) -> int:
        """Write the record's end and leave the process group. The exit status: the same on every rank."""
        self.record.doing("all ranks come to their end")
        every = self.gather([self.rank, right])
        self.record.write("end", time=time.time(), finished=[rank for rank, _ in every])
        self.everyone(0)  # torchrun ends rank 0 as soon as another ends with an error: not before its record is whole
        if self.backend != "gloo":
            # With torch 2.4 gloo's may never end: it holds the GIL and waits for a thread that needs it to let go of a
            # tensor (pytorch/pytorch#154976). The process ends right after this, without destructors.
            dist.destroy_process_group()
        return 0 if all(right for _, right in every) else WRONG


def join(program: str, options: argparse.Namespace) -> World:
    """Start the process group, exchange who is who, and say so in the record."""
    rank, local_rank, ranks, local_ranks = (int(os.environ[name]) for name in TORCHRUN)
    backend = choose_backend(options.backend, local_ranks)
    device = torch.device("cuda", local_rank) if backend == "nccl" else torch.device("cpu")
    record = RecordFile(os.environ.get("A4_RECORD", "") if rank == 0 else "")
    start = {"program": program, "ranks": ranks, "backend": backend, "time": time.time()}
    record.write("start", version=1, **start, versions=versions(backend))
    record.doing("ranks look for each other")
    if backend == "nccl":
        torch.cuda.set_device(device)
    limit = timedelta(seconds=options.timeout_seconds)
    dist.init_process_group(backend, timeout=limit, device_id=device if backend == "nccl" else None)
    world = World(rank, ranks, local_ranks, backend, device, record)
    record.doing("ranks introduce themselves")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    world.every = world.gather(identity(rank, local_rank=local_rank, device=name))
    record.write("ranks", time=time.time(), ranks=world.every)
    return world


def choose_backend(asked: str | None, local_ranks: int) -> str:
    """nccl with a GPU per local rank, gloo without any GPU. RuntimeError for what is between."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    backend = asked or ("nccl" if gpus else "gloo")
    if backend == "nccl" and gpus < local_ranks:
        raise RuntimeError(
            f"{local_ranks} ranks on this pod, but {gpus} GPUs that torch can use: start one rank per GPU, "
            "or take CPUs with --backend gloo"
        )
    return backend


def versions(backend: str) -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if backend == "nccl":
        found["nccl"] = ".".join(map(str, loaded_nccl(torch)))
    return found


def free_memory(world: World) -> int:
    """Bytes that this rank may take, beside what the backend and others need."""
    if world.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(world.device)
        return int(free) - min(int(total) // 16, 4 * GIB) - GIB
    return memory_of_pod() // world.local_ranks // 2  # gloo takes as much again


def memory_of_pod() -> int:
    """Bytes that are left, by the kernel and by the pod's limit."""
    known = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    found = [int(known["MemAvailable"].split()[0]) * 1024]
    try:
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        found.append(limit - used)
    except (OSError, ValueError):
        pass  # no cgroup of version 2, or no limit in it: "max"
    return max(0, min(found))


def run(program: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> NoReturn:
    """Run a rank program, and end the process with its status."""
    try:
        status = keep_cause(program)(options)  # the error file of torch names what is raised
    except BaseException:
        sys.excepthook(*sys.exc_info())  # torch's own, which names the rank
        status = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Without destructors: that of a process group may wait for ranks that wait for this one, and threads of gloo
        # that let go of a tensor while Python ends abort the process (pytorch/pytorch#179291).
        os._exit(status)
