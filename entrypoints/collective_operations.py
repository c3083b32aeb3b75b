"""Collectives: what torch has of each, the values that prove its result, how nccl-tests counts and prints it."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch_ranks import World, versions

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
        reduce = {"sum": rows.sum, "avg": rows.sum, "prod": rows.prod, "min": rows.amin, "max": rows.amax}
        result = reduce[self.operation](0)
        if self.operation == "avg":
            result = result / self.ranks if self.type.is_floating_point else result // self.ranks
        return result.to(self.type)

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
class CollectiveOperation:
    """One collective of one size in one placement: what it does, on which values, and what must come out."""

    run: Callable[[], object]
    sources: list[tuple[Any, int, int]]
    """Buffer, key of its values, offset."""
    results: list[tuple[Any, int | None, int]]
    """Buffer, key of its values (None: the reduced ones), offset."""

    def check(self, values: Values, seed: int, world: World) -> int:
        """Run it once on values of their own; the number of wrong elements on this rank."""
        for buffer, _, _ in self.results:
            buffer.fill_(NEVER)
        for buffer, key, offset in self.sources:
            fill(buffer, values.moved(key, seed), offset)
        self.run()
        world.synchronize()
        found = 0
        for buffer, wanted, offset in self.results:
            period = values.reduced(seed) if wanted is None else values.moved(wanted, seed)
            found += count_wrong(buffer, period, offset, values.tolerance())
        return found


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


def all_reduce(case: Case) -> CollectiveOperation:
    data = case.first
    return CollectiveOperation(lambda: dist.all_reduce(data, op=case.redop), [(data, case.rank, 0)], [(data, None, 0)])


def all_gather(case: Case) -> CollectiveOperation:
    # torch 2.13 has renamed all_gather_into_tensor, and warns of the old name.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    target = case.second
    mine = case.own(target) if case.placement == IN else case.first[: case.count]
    results = [(part, rank, 0) for rank, part in case.parts(target)]
    return CollectiveOperation(lambda: gather(target, mine), [(mine, case.rank, 0)], [*results])


def reduce_scatter(case: Case) -> CollectiveOperation:
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    source = case.first
    mine = case.own(source) if case.placement == IN else case.second[: case.count]
    results = [(mine, None, case.rank * case.count)]
    return CollectiveOperation(lambda: scatter(mine, source, op=case.redop), [(source, case.rank, 0)], [*results])


def alltoall(case: Case) -> CollectiveOperation:
    source, target = case.first, case.second
    sources = [(part, case.rank * case.ranks + to, 0) for to, part in case.parts(source)]
    results = [(part, sender * case.ranks + case.rank, 0) for sender, part in case.parts(target)]
    return CollectiveOperation(lambda: dist.all_to_all_single(target, source), sources, [*results])


def broadcast(case: Case) -> CollectiveOperation:
    data, root = case.first, case.root
    sources = [(data, root, 0)] if case.rank == root else []
    return CollectiveOperation(lambda: dist.broadcast(data, root), sources, [(data, root, 0)])


def sendrecv(case: Case) -> CollectiveOperation:
    """To the next rank, from the one before."""
    after, before = (case.rank + 1) % case.ranks, (case.rank - 1) % case.ranks

    def exchange() -> None:
        pair = [dist.P2POp(dist.isend, case.first, after), dist.P2POp(dist.irecv, case.second, before)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    return CollectiveOperation(exchange, [(case.first, case.rank, 0)], [(case.second, before, 0)])


# All collectives


@dataclass(frozen=True)
class Collective:
    """How nccl-tests counts a collective, and what torch has of it."""

    name: str
    build: Callable[[Case], CollectiveOperation]
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
        Collective("all_reduce", all_reduce, (IN,), lambda n: 2 * all_but_one(n), reduces=True),
        Collective("all_gather", all_gather, (OUT, IN), all_but_one, per_rank=True),
        Collective("reduce_scatter", reduce_scatter, (OUT, IN), all_but_one, per_rank=True, reduces=True),
        Collective("alltoall", alltoall, (OUT,), all_but_one, per_rank=True),
        Collective("broadcast", broadcast, (IN,), lambda n: 1.0, rooted=True),
        Collective("sendrecv", sendrecv, (OUT,), lambda n: 1.0),
    )
}

MISSING = re.compile(
    r"not support|unsupported|not implement|unconvertible|invalid scalar type|cannot use reduceop", re.I
)
"""How torch says that a backend does not have a collective, a type or an operation."""


def is_missing(error: Exception) -> bool:
    """Not so for a failure of NCCL or CUDA, which may be called 'operation not supported' too."""
    failed = isinstance(error, dist.DistError) or re.search("(?:nccl|cuda) (?:error|failure)", str(error), re.I)
    return not failed and (isinstance(error, NotImplementedError) or bool(MISSING.search(str(error))))


# Tables, as nccl-tests prints them

TITLES = (
    f"#{'out-of-place':>74}{'in-place':>31}          ",
    "#       size         count      type   redop    root" + "     time   algbw   busbw  #wrong" * 2 + " ",
    "#        (B)    (elements)                          " + "     (us)  (GB/s)  (GB/s)        " * 2 + " ",
)
NOT_MEASURED = f"  {'-':>7}  {'-':>6}  {'-':>6}  {'-':>6}"


def header(collective: str, backend: str, devices: list[str], options: Namespace) -> list[str]:
    """The lines before the rows."""
    found = versions(backend)
    step = f"{options.stepfactor}(factor)" if options.stepfactor > 1 else f"{options.stepbytes}(bytes)"
    nccl = f", NCCL {found['nccl']}" if backend == "nccl" else ""
    return [
        f"# a4-agent collectives, in the format of nccl-tests; torch {found['torch']}{nccl}, {backend}",
        f"# Collective test starting: {collective}",
        f"# nThread 1 nGpus 1 minBytes {options.minbytes} maxBytes {options.maxbytes} step: {step} "
        f"warmup iters: {options.warmup_iters} iters: {options.iters} agg iters: 1 "
        f"validation: {options.check} graph: 0 unalign: 0",
        "#",
        "# Using devices",
        *devices,
        "#",
        *TITLES,
    ]


def measured(seconds: float, algbw: float, busbw: float, wrong: int | None) -> str:
    """The four columns of one placement. wrong: None when nothing was checked."""
    figures = f"  {narrow(seconds * 1e6, 7)}  {narrow(algbw, 6)}  {narrow(busbw, 6)}"
    return figures + ("     N/A" if wrong is None else f"  {float(wrong):6g}")


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
