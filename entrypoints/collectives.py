"""Rank program that checks and measures collectives: the sweep of nccl-tests, without its binaries.

Runs under torchrun in a Python that has torch 2.4 or later; by hand:

  torchrun --nproc-per-node 2 collectives.py --tests all_reduce -b 8 -e 1M -f 4

Rank 0 prints one table per collective in the format of nccl-tests, with nccl-tests' options and definitions of size,
count, algbw and busbw. It differs where torch does:

  - A placement that torch does not have is not measured and has "-" in its four columns: all_reduce and broadcast
    are in place only, alltoall and sendrecv out of place only. A copy is never counted as communication.
  - The time is that of torch's call, at small sizes mostly its own cost. Warm-up is done for every size.
  - A size is cut down to whole elements per rank, of 16 bytes where it can, as in nccl-tests; but a row is never
    empty: the least is one element per rank. A size that gives the same row as the one before is left out.
  - redop is "none" for sendrecv; alltoall, all_gather and broadcast have none in nccl-tests either.
  - Where an iteration takes long, fewer are done (--budget-seconds); a comment line before the row says how many.

torch_ranks.py tells the environment, the exit status and the record. This program's own lines of the record:

  {"step": "left-out", "collective": "…", "why": "…"}      the backend does not have it
  {"step": "sweep", "collective": "all_reduce", "type": "float", "redop": "sum", "root": -1, "iterations": 20,
   "warmup": 5, "time": s}      after its first call
  {"step": "wrong", "collective": "…", "size": bytes, "placement": "in-place", "ranks": {"3": 17}}
      rank → wrong elements; every element is compared

It goes on after wrong elements, and ends with 65 when there were any, or when the backend has nothing of what was
asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # also with PYTHONSAFEPATH
import torch
import torch.distributed as dist
from collective_operations import (
    COLLECTIVES,
    IN,
    NOT_MEASURED,
    OPERATIONS,
    OUT,
    TYPES,
    Case,
    Collective,
    CollectiveOperation,
    Values,
    header,
    in_words,
    is_missing,
    measured,
)
from collective_options import arguments, sizes, with_defaults
from torch_ranks import World, free_memory, join, run

# The sweep


@dataclass
class Bench:
    """Measures one collective after the other in the same two buffers."""

    world: World
    options: argparse.Namespace
    devices: list[str]
    """The tables' lines of devices."""
    buffers: tuple[Any, Any]
    of: int = 0
    """Steps: a first call of each collective, and its rows."""
    number: int = 0
    """Steps that have been begun."""
    what: str = ""
    """The last of them."""
    checks: int = 0
    wrong: int = 0
    """Results of this collective with wrong elements, counted per rank, size and placement as nccl-tests does."""
    bandwidths: list[float] = field(default_factory=list)

    def sweep(self, names: list[str]) -> bool:
        """Whether anything was tested, and all was right."""
        chosen = [COLLECTIVES[name] for name in names]
        self.of = sum(1 + len(self.counts(each)) for each in chosen)
        found = [self.measure(each) for each in chosen]
        tested = [wrong for wrong in found if wrong is not None]
        if not tested:
            self.world.say(f"# Nothing was tested: {self.world.backend} has none of {', '.join(names)}")
        return bool(tested) and not any(tested)

    def begin(self, what: str) -> None:
        self.number += 1
        self.what = what
        self.doing()

    def doing(self) -> None:
        self.world.record.doing(self.what, self.number, self.of)

    def operation(self, collective: Collective, placement: str, count: int) -> CollectiveOperation:
        rank, ranks = self.world.rank, self.world.ranks
        whole = count * ranks if collective.per_rank else count
        redop = getattr(dist.ReduceOp, OPERATIONS[self.options.op])
        first, second = self.buffers
        case = Case(rank, ranks, count, placement, self.options.root, redop, first[:whole], second[:whole])
        return collective.build(case)

    def counts(self, collective: Collective) -> list[int]:
        """One per row, without repetition."""
        width = TYPES[self.options.datatype].itemsize
        return list(dict.fromkeys(collective.count(each, self.world.ranks, width) for each in sizes(self.options)))

    def measure(self, collective: Collective) -> int | None:
        """Print one table; how much was wrong. None, and a comment, when the backend does not have this collective."""
        self.begin(f"{collective.name}, first call")
        placements, why = self.placements(collective)
        if not placements:
            self.world.say(f"# {collective.name} is left out: {why}")
            self.world.record.write("left-out", collective=collective.name, why=why)
            self.of -= len(self.counts(collective))
            return None
        redop, root = self.options.op if collective.reduces else "none", self.options.root if collective.rooted else -1
        kind = {"type": self.options.datatype, "redop": redop, "root": root}
        times = {"iterations": self.options.iters, "warmup": self.options.warmup_iters}
        self.world.record.write("sweep", collective=collective.name, time=time.time(), **kind, **times)
        for line in header(collective.name, self.world.backend, self.devices, self.options):
            self.world.say(line)
        self.wrong, self.bandwidths = 0, []
        for count in self.counts(collective):
            self.row(collective, placements, count, f"{self.options.datatype:>8}  {redop:>6}  {root:>6}")
        self.foot(collective)
        return self.wrong

    def placements(self, collective: Collective) -> tuple[list[str], str]:
        """Those that work here, and why others do not. What is missing fails before anything is sent."""
        if collective.name == "sendrecv" and self.world.ranks == 1:
            return [], "one rank has nobody to send to"
        found, why = [], ""
        for placement in collective.placements:
            try:
                self.operation(collective, placement, 1).run()
                self.world.synchronize()
                found.append(placement)
            except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
                if not is_missing(error):
                    raise
                why = str(error).strip().split("\n")[0]
        return found, why

    def row(self, collective: Collective, placements: list[str], count: int, kind: str) -> None:
        size = collective.size(count, self.world.ranks, TYPES[self.options.datatype].itemsize)
        self.begin(f"{collective.name}, {in_words(size)}")
        columns = [
            self.placement(collective, placement, count, size) if placement in placements else NOT_MEASURED
            for placement in (OUT, IN)
        ]
        self.world.say(f"{size:>12}  {count:>12}  {kind}{''.join(columns)}")

    def placement(self, collective: Collective, placement: str, count: int, size: int) -> str:
        """The four columns of one measurement."""
        operation = self.operation(collective, placement, count)
        wrong = self.check(collective, placement, operation, size)
        seconds, iterations = self.time(operation)
        if iterations < self.options.iters:
            self.world.say(
                f"# {size} bytes, {placement}: {iterations} of {self.options.iters} iterations, to save time"
            )
        algbw = size / seconds / 1e9
        busbw = algbw * collective.factor(self.world.ranks)
        self.bandwidths.append(busbw)
        return measured(seconds, algbw, busbw, wrong if self.options.check else None)

    def check(self, collective: Collective, placement: str, operation: CollectiveOperation, size: int) -> int:
        """Wrong elements of all ranks, in the first of the checked iterations that has any."""
        found, redop = [0], self.options.op if collective.reduces else ""
        values = Values(redop, self.world.ranks, TYPES[self.options.datatype], self.world.device)
        for _ in range(self.options.check):
            self.checks += 1
            found = [int(each) for each in self.world.everyone(operation.check(values, self.checks, self.world))]
            if any(found):
                break
        ranks = {str(rank): number for rank, number in enumerate(found) if number}
        if ranks:
            self.wrong += len(ranks)
            self.world.record.write("wrong", collective=collective.name, size=size, placement=placement, ranks=ranks)
            self.doing()  # the last line of the record names what is being done
            words = ", ".join(f"rank {rank}: {number}" for rank, number in ranks.items())
            self.world.say(f"# {size} bytes, {placement}: wrong elements: {words}")
        return sum(found)

    def time(self, operation: CollectiveOperation) -> tuple[float, int]:
        """Seconds per iteration, the mean of all ranks, and iterations; the same on every rank.

        The first of the runs for warming up, which is always done, tells how many there is time for.
        """
        budget = self.options.budget_seconds
        once = max(self.world.everyone(self.world.seconds_of(operation.run)))
        warmup = min(self.options.warmup_iters, int(budget / 4 / once))
        if warmup > 1:
            once = max(self.world.everyone(self.world.seconds_of(operation.run, warmup - 1)))
        iterations = max(1, min(self.options.iters, int(budget / once)))
        taken = self.world.everyone(self.world.seconds_of(operation.run, iterations))
        return sum(taken) / len(taken), iterations

    def foot(self, collective: Collective) -> None:
        average = sum(self.bandwidths) / len(self.bandwidths)
        self.world.say(f"# Out of bounds values : {self.wrong} {'FAILED' if self.wrong else 'OK'}")
        self.world.say(f"# Avg bus bandwidth    : {average:g} ")
        self.world.say(f"#\n# Collective test concluded: {collective.name}\n#")


# The buffers


def reduce_to_memory(world: World, options: argparse.Namespace) -> None:
    """Lower the sizes to what every rank has room for, and say so as nccl-tests does."""
    world.record.doing("ranks compare their free memory")
    room = int(min(world.everyone(free_memory(world)))) // 2
    if options.maxbytes > room:
        options.maxbytes = max(room, 1)
        options.minbytes = min(options.minbytes, options.maxbytes)
        world.say(f"#\n# Reducing maxBytes to {options.maxbytes} due to memory limitation")


def new_buffers(world: World, options: argparse.Namespace) -> tuple[Any, Any]:
    """Two with room for the largest size. MemoryError says where there is none."""
    kind = TYPES[options.datatype]
    room = max(options.maxbytes // kind.itemsize, world.ranks)
    world.record.doing(f"memory for two buffers of {in_words(room * kind.itemsize)}")
    try:
        first, second = (torch.zeros(room, dtype=kind, device=world.device) for _ in range(2))
    except RuntimeError as error:
        device = f"{world.device} ({world.every[world.rank]['device']})" if world.device.type == "cuda" else "cpu"
        raise MemoryError(
            f"out of memory on {device} of rank {world.rank}: no room for two buffers of "
            f"{in_words(room * kind.itemsize)}: {error}"
        ) from error
    world.everyone(0)  # the record says "memory" until all have theirs
    return first, second


# The whole


def device_lines(world: World) -> list[str]:
    """How a table's header names the devices."""
    world.record.doing("ranks name their devices")
    return [
        f"#  Rank {each['rank']:2} Group  0 Pid {each['pid']:6} on {each['node']:>10} device {each['local_rank']:2} "
        f"[{bus}] {each['device']}"
        for each, bus in zip(world.every, world.gather(bus_address(world.device)), strict=True)
    ]


def bus_address(device: Any) -> str:
    """PCI address of the GPU, as nccl-tests prints it; "-": a CPU, or a torch that does not tell."""
    found = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    domain, bus, slot = (getattr(found, f"pci_{name}_id", -1) for name in ("domain", "bus", "device"))
    return "-" if -1 in (domain, bus, slot) else f"{domain:04x}:{bus:02x}:{slot:02x}"


def main(options: argparse.Namespace) -> int:
    world = join("collectives", options)
    with_defaults(options, world.backend)
    devices = device_lines(world)
    reduce_to_memory(world, options)
    bench = Bench(world, options, devices, new_buffers(world, options))
    return world.finish(bench.sweep(options.tests))


if __name__ == "__main__":
    run(main, arguments(sys.argv[1:]))
