"""Rank program that checks and measures collectives: the sweep of nccl-tests, without its binaries.

Runs under torchrun in a Python that has torch 2.4 or later; standard library and torch only. By hand:

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

Environment, besides torchrun's:

  A4_TOKEN_FILE   file, the same path on every pod, with the token that the agent gave this pod
  A4_RECORD       file on rank 0's pod that the record is written to; not set: no record

The record is JSON, one object per line, flushed at each step: what is missing at its end was not reached.
Version 1 has these lines; {"step": "doing", "what", "number", "of"} stands before whatever may take long:

  {"step": "start", "version": 1, "program": "collectives", "ranks": n, "backend": "gloo", "time": s, "versions": {…}}
  {"step": "ranks", "time": s, "ranks": [{"rank", "local_rank", "token", "node", "pid", "device", "error"}, …]}
  {"step": "left-out", "collective": "…", "why": "…"}      the backend does not have it
  {"step": "sweep", "collective": "all_reduce", "type": "float", "redop": "sum", "root": -1, "iterations": 20,
   "warmup": 5}
  {"step": "wrong", "collective": "…", "size": bytes, "placement": "in-place", "ranks": {"3": 17}}
      rank → wrong elements; every element is compared
  {"step": "end", "time": s, "finished": [0, 1, …]}

Exit status: 0 when all was measured and right; 65 on every rank when an element was wrong anywhere, after the whole
sweep; 2 wrong usage; 1 anything else, with the cause in torch's error file. torchrun itself ends 1 for all of these.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record as keep_cause

MIB = 1 << 20
TYPES = {
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "half": torch.float16,
    "float": torch.float32,
    "double": torch.float64,
    "bfloat16": torch.bfloat16,
}
"""By nccl-tests' names. torch's process groups have no uint32 and uint64."""
OPERATIONS = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG"}
OUT, IN = "out-of-place", "in-place"
WRONG = 65


# What is measured


@dataclass(frozen=True)
class Collective:
    """How nccl-tests counts a collective, and what torch has of it."""

    name: str
    placements: tuple[str, ...]
    factor: Callable[[int], float]
    """busbw / algbw, from the number of ranks."""
    per_rank: bool = False
    """The count is that of one rank's part, the size that of all parts."""
    reduces: bool = False
    rooted: bool = False

    def count(self, size: int, ranks: int, width: int) -> int:
        """Elements of `width` bytes, at least one, for a size in bytes."""
        if self.per_rank:
            return max(1, size // width // ranks & ~(16 // width - 1))
        return max(1, size // width)

    def size(self, count: int, ranks: int, width: int) -> int:
        return count * width * (ranks if self.per_rank else 1)


def all_but_one(ranks: int) -> float:
    return (ranks - 1) / ranks


COLLECTIVES = {
    each.name: each
    for each in (
        Collective("all_reduce", (IN,), lambda n: 2 * all_but_one(n), reduces=True),
        Collective("all_gather", (OUT, IN), all_but_one, per_rank=True),
        Collective("reduce_scatter", (OUT, IN), all_but_one, per_rank=True, reduces=True),
        Collective("alltoall", (OUT,), all_but_one, per_rank=True),
        Collective("broadcast", (IN,), lambda n: 1.0, rooted=True),
        Collective("sendrecv", (OUT,), lambda n: 1.0),
    )
}


# Command line


def arguments(argv: list[str], environ: dict[str, str]) -> argparse.Namespace:
    """The options; anything wrong ends the process with 2."""
    parser = argparse.ArgumentParser(
        description="Checks and measures collectives, with the options and the tables of nccl-tests.",
        epilog="Sizes take K, M and G (×1024). Defaults: with NCCL -b 1M -e 1G -f 2 -n 20 -w 5, with gloo "
        "-b 64K -e 16M -f 4 -n 4 -w 1.",
    )
    add = parser.add_argument
    add("collectives", nargs="*", metavar="TEST", help=f"of {', '.join(COLLECTIVES)}; default: all")
    add("--tests", default="", help="the same, separated by commas")
    add("-b", "--minbytes", type=byte_size)
    add("-e", "--maxbytes", type=byte_size)
    step = parser.add_mutually_exclusive_group()
    step.add_argument("-f", "--stepfactor", type=at_least(2), help="from one size to the next by multiplication")
    step.add_argument("-i", "--stepbytes", type=byte_size, help="by addition")
    add("-n", "--iters", type=at_least(1))
    add("-w", "--warmup_iters", type=at_least(0))
    add("-c", "--check", type=at_least(0), default=1, help="iterations that are checked (default 1)")
    add("-d", "--datatype", choices=TYPES, default="float", help="default float")
    add("-o", "--op", choices=OPERATIONS, default="sum", help="default sum")
    add("-r", "--root", type=at_least(0), default=0, help="root of broadcast (default 0)")
    add("--backend", choices=("nccl", "gloo"), help="default: nccl where there are GPUs")
    add("--timeout-seconds", type=at_least(1), default=600, help="for one collective (default 600)")
    add("--budget-seconds", type=float, default=10.0, help="for the iterations of one size (default 10)")
    options = parser.parse_args(argv)
    options.tests = [*filter(None, options.tests.split(",")), *options.collectives] or list(COLLECTIVES)
    if wrong := wrong_usage(options, environ):
        parser.error(wrong)
    return options


def wrong_usage(options: argparse.Namespace, environ: dict[str, str]) -> str:
    """What argparse does not see; empty: nothing."""
    if missing := [name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE") if name not in environ]:
        return f"to be started by torchrun: no {', '.join(missing)} in the environment"
    if unknown := [name for name in options.tests if name not in COLLECTIVES]:
        return f"no test {', '.join(unknown)}: there are {', '.join(COLLECTIVES)}"
    if options.root >= int(environ["WORLD_SIZE"]):
        return f"no rank {options.root} for --root: there are {environ['WORLD_SIZE']} ranks"
    if options.minbytes and options.maxbytes and options.minbytes > options.maxbytes:
        return f"minbytes {options.minbytes} is more than maxbytes {options.maxbytes}"
    return ""


def byte_size(text: str) -> int:
    """Bytes; "1.5M" is 1572864."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)", text, re.IGNORECASE)
    value = int(float(found[1]) * 1024 ** " KMG".index(found[2].upper() or " ")) if found else 0
    if not 0 < value < 1 << 50:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 64K, 1M or 8G")
    return value


def at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return number


def with_defaults(options: argparse.Namespace, backend: str) -> None:
    """Fill in what depends on the backend. A bound that is given moves the other's default out of its way."""
    least, most, factor, iterations, warmup = (MIB, 1024 * MIB, 2, 20, 5) if backend == "nccl" else SLOW
    options.minbytes = options.minbytes or min(least, options.maxbytes or least)
    options.maxbytes = options.maxbytes or max(most, options.minbytes)
    options.stepfactor = options.stepfactor or (1 if options.stepbytes else factor)
    options.iters = options.iters or iterations
    options.warmup_iters = warmup if options.warmup_iters is None else options.warmup_iters


SLOW = (MIB // 16, 16 * MIB, 4, 4, 1)
"""Defaults for gloo: with four ranks on a small machine all six collectives take some seconds."""


def sizes(options: argparse.Namespace) -> Iterator[int]:
    value = options.minbytes
    while value <= options.maxbytes:
        yield value
        value = value * options.stepfactor if options.stepfactor > 1 else value + options.stepbytes


# The ranks and their record


class Record:
    """The record file of rank 0; on other ranks, and without a path, nothing is written."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "w", encoding="utf-8") if path else None  # noqa: SIM115

    def write(self, step: str, **values: object) -> None:
        if self.file:
            self.file.write(json.dumps({"step": step, **values}) + "\n")
            self.file.flush()


@dataclass
class World:
    """The ranks, seen by one of them."""

    rank: int
    local_rank: int
    ranks: int
    local_ranks: int
    backend: str
    device: Any
    record: Record

    def say(self, line: str) -> None:
        """Only rank 0 is heard; at once, so that a row is seen when its size is done."""
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

    def everyones_words(self, value: object) -> list[Any]:
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


def join(options: argparse.Namespace) -> World:
    """Start the process group and say so in the record."""
    rank, local_rank, ranks, local_ranks = (
        int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    )
    backend = choose_backend(options.backend, local_ranks)
    record = Record(os.environ.get("A4_RECORD", "") if rank == 0 else "")
    record.write(
        "start",
        version=1,
        program="collectives",
        ranks=ranks,
        backend=backend,
        time=time.time(),
        versions=versions(),
    )
    limit = timedelta(seconds=options.timeout_seconds)
    if backend == "nccl":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", timeout=limit, device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo", timeout=limit)
    return World(rank, local_rank, ranks, local_ranks, backend, device, record)


def choose_backend(asked: str | None, local_ranks: int) -> str:
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    backend = asked or ("nccl" if gpus else "gloo")
    if backend == "nccl" and gpus < local_ranks:
        raise RuntimeError(
            f"{local_ranks} ranks on this pod, but {gpus} GPUs that torch can use: start one rank per GPU, "
            "or measure CPUs with --backend gloo"
        )
    return backend


def versions() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3])), "torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.cuda.is_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def identity(world: World) -> dict[str, Any]:
    """What one rank says of itself; besides the record's fields, its line in the table."""
    token, error = "", ""
    try:
        with open(os.environ["A4_TOKEN_FILE"], encoding="utf-8") as file:
            token = file.read().strip()
    except KeyError:
        error = "A4_TOKEN_FILE is not set"
    except (OSError, ValueError) as caught:
        error = str(caught)
    return {
        "rank": world.rank,
        "local_rank": world.local_rank,
        "token": token,
        "node": os.uname().nodename,
        "pid": os.getpid(),
        "device": torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "cpu",
        "error": error,
        "bus": bus_address(world.device),
    }


def bus_address(device: Any) -> str:
    """PCI address of the GPU, as nccl-tests prints it; "-": a CPU, or a torch that does not tell."""
    found = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    domain, bus, slot = (getattr(found, f"pci_{name}_id", -1) for name in ("domain", "bus", "device"))
    return "-" if -1 in (domain, bus, slot) else f"{domain:04x}:{bus:02x}:{slot:02x}"


# Values that every rank knows of every other

PERIOD = 4093
"""Values repeat after so many elements: a prime, so that a part of a buffer at a wrong place has wrong values."""
NEVER = 111
"""Stands where a result belongs before it comes; no right result has this value."""
BLOCK = 4096
"""Periods that are compared at once: 16 Mi elements."""


@dataclass(frozen=True)
class Values:
    """Small whole numbers, from a hash of rank, position and seed, whose results every type holds exactly.

    sum, avg   0 to 3 on up to 32 ranks per position, 0 on the others: at most 96 (int8 ends at 127, bfloat16 is
               exact to 256), in whichever order they are added
    prod       1 or 2 on up to 6 ranks per position, 1 on the others: at most 64
    else       0 to 100
    """

    operation: str
    """"" for what is only moved."""
    ranks: int
    type: Any
    device: Any

    def raw(self, keys: list[int], seed: int) -> Any:
        """int64, one row of PERIOD values for each key (a rank, or sender and receiver in one)."""
        key = torch.tensor(keys, dtype=torch.int64, device=self.device).view(-1, 1)
        place = torch.arange(PERIOD, dtype=torch.int64, device=self.device)
        mixed = hashed(hashed(key * 7919 + place) + seed)
        if self.operation in {"sum", "avg"}:
            return mixed % 4 * self.takes_part(key, place, 32)
        if self.operation == "prod":
            return 1 + mixed % 2 * self.takes_part(key, place, 6)
        return mixed % 101

    def takes_part(self, key: Any, place: Any, most: int) -> Any:
        return (key + place) % -(-self.ranks // most) == 0

    def moved(self, key: int, seed: int) -> Any:
        return self.raw([key], seed)[0].to(self.type)

    def reduced(self, seed: int) -> Any:
        rows = self.raw(list(range(self.ranks)), seed)
        if self.operation == "avg":
            total = rows.sum(0)
            return (total / self.ranks if self.type.is_floating_point else total // self.ranks).to(self.type)
        reduce: dict[str, Callable[[], Any]] = {
            "sum": lambda: rows.sum(0),
            "prod": lambda: rows.prod(0),
            "min": lambda: rows.amin(0),
            "max": lambda: rows.amax(0),
        }
        return reduce[self.operation]().to(self.type)

    def tolerance(self) -> float:
        """Relative. Only averages of floating-point numbers are not exact: backends divide before they add."""
        if self.operation == "avg" and self.type.is_floating_point:
            return float(torch.finfo(self.type).eps) * (min(self.ranks, 32) + 2)
        return 0.0


def hashed(value: Any) -> Any:
    """A hash of int64 to 31 bits."""
    value = value * 2654435761 & 0x7FFFFFFF
    value = (value ^ value >> 15) * 739982445 & 0x7FFFFFFF
    return value ^ value >> 12


def fill(buffer: Any, period: Any, offset: int = 0) -> None:
    """Write the values that belong at `offset` and after it."""
    period = period.roll(-(offset % PERIOD))
    rounds, rest = divmod(len(buffer), PERIOD)
    buffer[: rounds * PERIOD].view(rounds, PERIOD).copy_(period.expand(rounds, PERIOD))
    buffer[rounds * PERIOD :].copy_(period[:rest])


def count_wrong(buffer: Any, period: Any, offset: int, tolerance: float) -> int:
    """How many elements are not what `fill` would write."""
    period = period.roll(-(offset % PERIOD))
    rounds, rest = divmod(len(buffer), PERIOD)
    wrong = differing(buffer[rounds * PERIOD :], period[:rest], tolerance)
    whole = buffer[: rounds * PERIOD].view(rounds, PERIOD)
    return wrong + sum(differing(part, period, tolerance) for part in whole.split(BLOCK))


def differing(found: Any, expected: Any, tolerance: float) -> int:
    if not tolerance:
        return int((found != expected).sum().item())
    near: Any = (found.double() - expected.double()).abs() <= expected.double() * tolerance
    return int(near.numel()) - int(near.sum().item())  # a NaN is near to nothing


# One collective


@dataclass
class Operation:
    """One collective of one size in one placement: what it does, on which values, and what must come out."""

    run: Callable[[], object]
    sources: list[tuple[Any, int, int]]
    """Buffer, key of its values, offset."""
    results: list[tuple[Any, int | None, int]]
    """Buffer, key of its values (None: the reduced ones), offset."""


@dataclass(frozen=True)
class Case:
    """What an operation is built from."""

    rank: int
    ranks: int
    count: int
    placement: str
    root: int
    redop: Any
    first: Any
    """Buffers with room for all parts, or for `count` elements where there are no parts."""
    second: Any

    def own(self, buffer: Any) -> Any:
        """This rank's part."""
        return buffer[self.rank * self.count : (self.rank + 1) * self.count]

    def parts(self, buffer: Any) -> list[tuple[int, Any]]:
        """All ranks' parts, numbered."""
        return list(enumerate(buffer.split(self.count)))


def all_reduce(case: Case) -> Operation:
    data = case.first
    return Operation(lambda: dist.all_reduce(data, op=case.redop), [(data, case.rank, 0)], [(data, None, 0)])


def all_gather(case: Case) -> Operation:
    # torch 2.13 has renamed all_gather_into_tensor, and warns of the old name.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    target = case.second
    mine = case.own(target) if case.placement == IN else case.first[: case.count]
    results = [(part, rank, 0) for rank, part in case.parts(target)]
    return Operation(lambda: gather(target, mine), [(mine, case.rank, 0)], [*results])


def reduce_scatter(case: Case) -> Operation:
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    source = case.first
    mine = case.own(source) if case.placement == IN else case.second[: case.count]
    results = [(mine, None, case.rank * case.count)]
    return Operation(lambda: scatter(mine, source, op=case.redop), [(source, case.rank, 0)], [*results])


def alltoall(case: Case) -> Operation:
    source, target = case.first, case.second
    sources = [(part, case.rank * case.ranks + to, 0) for to, part in case.parts(source)]
    results = [(part, sender * case.ranks + case.rank, 0) for sender, part in case.parts(target)]
    return Operation(lambda: dist.all_to_all_single(target, source), sources, [*results])


def broadcast(case: Case) -> Operation:
    data, root = case.first, case.root
    sources = [(data, root, 0)] if case.rank == root else []
    return Operation(lambda: dist.broadcast(data, root), sources, [(data, root, 0)])


def sendrecv(case: Case) -> Operation:
    """To the next rank, from the one before."""
    after, before = (case.rank + 1) % case.ranks, (case.rank - 1) % case.ranks

    def exchange() -> None:
        pair = [dist.P2POp(dist.isend, case.first, after), dist.P2POp(dist.irecv, case.second, before)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    return Operation(exchange, [(case.first, case.rank, 0)], [(case.second, before, 0)])


BUILDERS: dict[str, Callable[[Case], Operation]] = {
    build.__name__: build for build in (all_reduce, all_gather, reduce_scatter, alltoall, broadcast, sendrecv)
}


@dataclass
class Bench:
    """Measures one collective after the other in the same two buffers."""

    world: World
    options: argparse.Namespace
    devices: list[str]
    """The tables' lines of devices."""
    buffers: tuple[Any, Any]
    number: int = 0
    """Rows that have been begun, of `rows`."""
    rows: int = 0
    checks: int = 0
    wrong: int = 0
    """Results with wrong elements, counted per rank, size and placement as nccl-tests does."""
    bandwidths: list[float] = field(default_factory=list)

    def operation(self, collective: Collective, placement: str, count: int) -> Operation:
        rank, ranks = self.world.rank, self.world.ranks
        whole = count * ranks if collective.per_rank else count
        redop = getattr(dist.ReduceOp, OPERATIONS[self.options.op])
        first, second = self.buffers
        case = Case(rank, ranks, count, placement, self.options.root, redop, first[:whole], second[:whole])
        return BUILDERS[collective.name](case)

    def values(self, collective: Collective) -> Values:
        operation = self.options.op if collective.reduces else ""
        return Values(operation, self.world.ranks, TYPES[self.options.datatype], self.world.device)

    def counts(self, collective: Collective) -> list[int]:
        """One per row, without repetition."""
        width = TYPES[self.options.datatype].itemsize
        found = [collective.count(each, self.world.ranks, width) for each in sizes(self.options)]
        return list(dict.fromkeys(found))

    def measure(self, collective: Collective) -> None:
        """Print one table; or a comment, when the backend does not have this collective."""
        placements, why = self.placements(collective)
        if not placements:
            self.leave_out(collective, why)
            return
        redop, root = self.options.op if collective.reduces else "none", self.options.root if collective.rooted else -1
        self.world.record.write(
            "sweep",
            collective=collective.name,
            type=self.options.datatype,
            redop=redop,
            root=root,
            iterations=self.options.iters,
            warmup=self.options.warmup_iters,
        )
        self.head(collective)
        wrong, self.wrong, self.bandwidths = self.wrong, 0, []
        for count in self.counts(collective):
            self.row(collective, placements, count, f"{self.options.datatype:>8}  {redop:>6}  {root:>6}")
        self.foot(collective)
        self.wrong += wrong

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

    def leave_out(self, collective: Collective, why: str) -> None:
        self.world.say(f"# {collective.name} is left out: {why}")
        self.world.record.write("left-out", collective=collective.name, why=why)
        self.rows -= len(self.counts(collective))

    def head(self, collective: Collective) -> None:
        options, found = self.options, versions()
        step = f"{options.stepfactor}(factor)" if options.stepfactor > 1 else f"{options.stepbytes}(bytes)"
        nccl = f", NCCL {found['nccl']}" if self.world.backend == "nccl" else ""
        lines = [
            f"a4-agent collectives, in the format of nccl-tests; torch {found['torch']}{nccl}, {self.world.backend}",
            f"Collective test starting: {collective.name}",
            f"nThread 1 nGpus 1 minBytes {options.minbytes} maxBytes {options.maxbytes} step: {step} "
            f"warmup iters: {options.warmup_iters} iters: {options.iters} agg iters: 1 "
            f"validation: {options.check} graph: 0 unalign: 0",
        ]
        for line in (*(f"# {line}" for line in lines), "#", "# Using devices", *self.devices, "#", *titles()):
            self.world.say(line)

    def row(self, collective: Collective, placements: list[str], count: int, kind: str) -> None:
        size = collective.size(count, self.world.ranks, TYPES[self.options.datatype].itemsize)
        self.number += 1
        what = f"{collective.name}, {in_words(size)}"
        self.world.record.write("doing", what=what, number=self.number, of=self.rows)
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
        figures = f"  {narrow(seconds * 1e6, 7)}  {narrow(algbw, 6)}  {narrow(busbw, 6)}"
        return figures + (f"  {float(wrong):6g}" if self.options.check else "     N/A")

    def check(self, collective: Collective, placement: str, operation: Operation, size: int) -> int:
        """Wrong elements of all ranks, in the first of the checked iterations that has any."""
        found: list[int] = []
        for _ in range(self.options.check):
            self.checks += 1
            found = [int(each) for each in self.world.everyone(self.check_once(collective, operation))]
            if any(found):
                break
        ranks = {str(rank): number for rank, number in enumerate(found) if number}
        if ranks:
            self.wrong += len(ranks)
            self.world.record.write("wrong", collective=collective.name, size=size, placement=placement, ranks=ranks)
            words = ", ".join(f"rank {rank}: {number}" for rank, number in ranks.items())
            self.world.say(f"# {size} bytes, {placement}: wrong elements: {words}")
        return sum(found)

    def check_once(self, collective: Collective, operation: Operation) -> int:
        """Wrong elements of this rank."""
        values, seed = self.values(collective), self.checks
        for buffer, _, _ in operation.results:
            buffer.fill_(NEVER)
        for buffer, key, offset in operation.sources:
            fill(buffer, values.moved(key, seed), offset)
        operation.run()
        self.world.synchronize()
        return sum(
            count_wrong(
                buffer,
                values.reduced(seed) if key is None else values.moved(key, seed),
                offset,
                values.tolerance() if key is None else 0.0,
            )
            for buffer, key, offset in operation.results
        )

    def time(self, operation: Operation) -> tuple[float, int]:
        """Seconds per iteration, the mean of all ranks, and iterations; the same on every rank.

        The first of the runs for warming up, which is always done, tells how many there is time for.
        """
        budget = self.options.budget_seconds
        once = max(self.world.everyone(self.repeat(operation, 1)))
        warmup = min(self.options.warmup_iters, int(budget / 4 / once))
        if warmup > 1:
            once = max(self.world.everyone(self.repeat(operation, warmup - 1) / (warmup - 1)))
        iterations = max(1, min(self.options.iters, int(budget / once)))
        taken = self.world.everyone(self.repeat(operation, iterations) / iterations)
        return sum(taken) / len(taken), iterations

    def repeat(self, operation: Operation, times: int) -> float:
        """Seconds for so many runs on this rank, from a common start until the device is done."""
        self.world.everyone(0)
        begin = time.perf_counter()
        for _ in range(times):
            operation.run()
        self.world.synchronize()
        return max(time.perf_counter() - begin, 1e-9)

    def foot(self, collective: Collective) -> None:
        average = sum(self.bandwidths) / len(self.bandwidths)
        self.world.say(f"# Out of bounds values : {self.wrong} {'FAILED' if self.wrong else 'OK'}")
        self.world.say(f"# Avg bus bandwidth    : {average:g} ")
        self.world.say(f"#\n# Collective test concluded: {collective.name}\n#")


MISSING = re.compile(
    r"not support|unsupported|not implement|unconvertible|invalid scalar type|cannot use reduceop", re.I
)
"""How torch says that a backend does not have a collective, a type or an operation."""


def is_missing(error: Exception) -> bool:
    """Not so for a failure of NCCL or CUDA, which may be called 'operation not supported' too."""
    failed = isinstance(error, dist.DistError) or re.search("(?:nccl|cuda) (?:error|failure)", str(error), re.I)
    return not failed and (isinstance(error, NotImplementedError) or bool(MISSING.search(str(error))))


NOT_MEASURED = f"  {'-':>7}  {'-':>6}  {'-':>6}  {'-':>6}"


def titles() -> list[str]:
    """The three lines of a table's header."""
    first = ["size", "count", "type", "redop", "root"]
    units = ["(B)", "(elements)", "", "", ""]
    widths = (10, 12, 8, 6, 6, 7, 6, 6, 6, 7, 6, 6, 6)
    placements = "           out-of-place                       in-place          "
    return [
        "# " + in_columns([""] * 5, widths) + placements,
        "# " + in_columns(first + ["time", "algbw", "busbw", "#wrong"] * 2, widths) + " ",
        "# " + in_columns(units + ["(us)", "(GB/s)", "(GB/s)", ""] * 2, widths) + " ",
    ]


def in_columns(words: list[str], widths: tuple[int, ...]) -> str:
    return "  ".join(f"{word:>{width}}" for word, width in zip(words, widths, strict=False))


def narrow(value: float, width: int) -> str:
    """The number with as many decimals as the column has room for: two, or four below 1 (nccl-tests: two)."""
    for decimals in (4 if value < 1 else 2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def in_words(value: float) -> str:
    """67108864 → "64 MiB"."""
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:g} {unit}"
        value /= 1024
    return f"{value:g} GiB"


# The whole


def reduce_to_memory(world: World, options: argparse.Namespace) -> None:
    """Lower the sizes to what every rank has room for, and say so as nccl-tests does."""
    room = int(min(world.everyone(room_per_buffer(world))))
    if options.maxbytes > room:
        options.maxbytes = max(room, 1)
        options.minbytes = min(options.minbytes, options.maxbytes)
        world.say(f"#\n# Reducing maxBytes to {options.maxbytes} due to memory limitation")


def room_per_buffer(world: World) -> int:
    """Bytes for each of the two buffers."""
    if world.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(world.device)
        return int(free - min(total // 16, 4096 * MIB) - 1024 * MIB) // 2
    return free_memory() // world.local_ranks // 4  # gloo takes as much again


def free_memory() -> int:
    """Bytes that this pod's memory has left, by the kernel and by the pod's limit."""
    with open("/proc/meminfo", encoding="ascii") as file:
        known = dict(line.split(":", 1) for line in file)
    found = [int(known["MemAvailable"].split()[0]) * 1024]
    try:
        limit, used = (read(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
        found.append(int(limit) - int(used))
    except (OSError, ValueError):
        pass  # no cgroup of version 2, or no limit in it: "max"
    return max(0, min(found))


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def introduce(world: World) -> list[str]:
    """Exchange who is who, write it to the record, and return the table's lines of devices."""
    ranks = world.everyones_words(identity(world))
    lines = [
        f"#  Rank {each['rank']:2} Group  0 Pid {each['pid']:6} on {each['node']:>10} device {each['local_rank']:2} "
        f"[{each['bus']}] {each['device']}"
        for each in ranks
    ]
    for each in ranks:
        del each["bus"]
    world.record.write("ranks", time=time.time(), ranks=ranks)
    return lines


def main(options: argparse.Namespace) -> int:
    world = join(options)
    with_defaults(options, world.backend)
    devices = introduce(world)
    reduce_to_memory(world, options)
    room = max(options.maxbytes // TYPES[options.datatype].itemsize, world.ranks)
    buffers = [torch.zeros(room, dtype=TYPES[options.datatype], device=world.device) for _ in range(2)]
    bench = Bench(world, options, devices, (buffers[0], buffers[1]))
    tests = [COLLECTIVES[name] for name in options.tests]
    bench.rows = sum(len(bench.counts(each)) for each in tests)
    for each in tests:
        bench.measure(each)
    if not bench.number:
        raise RuntimeError(f"none of the tests can run with {world.backend}: {', '.join(options.tests)}")
    finished = [int(rank) for rank in world.everyone(world.rank)]
    world.record.write("end", time=time.time(), finished=finished)
    world.everyone(0)  # torchrun ends rank 0 as soon as another ends with an error: not before its record is whole
    dist.destroy_process_group()
    return WRONG if bench.wrong else 0


if __name__ == "__main__":
    given = arguments(sys.argv[1:], dict(os.environ))
    try:
        status = keep_cause(main)(given)  # the error file of torch names what is raised
    except BaseException:
        # Not through the destructors of a process group whose other ranks still wait.
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    sys.exit(status)
