"""Ranks that run, get stuck and are looked at: a small simulation that makes records and knows who is to blame.

Every rank has its share of one common order of operations, so that without a fault all of them come to their end. gloo
blocks in every operation; NCCL enters several ahead and waits at the next synchronization.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from agent.clinic.why.places import stays
from agent.clinic.why.records import (
    Collected,
    Frame,
    GroupProgress,
    Operation,
    PodRecords,
    Process,
    ProcessState,
    Source,
    Thread,
    Waiting,
)

FAULTS = ("none", "asleep", "stopped", "dead", "gil", "other operation", "other size", "left out", "other order", "two")
NAMES = ("all_reduce", "broadcast", "_allgather_base")
TORCH = "/opt/train/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
TRAIN = "/workspace/train.py"
MPI = {"all_reduce": "Allreduce", "broadcast": "Bcast", "_allgather_base": "Allgather", "send": "Send", "recv": "Recv"}
Backend = Literal["gloo", "nccl", "mpi"]
Kind = Literal["collective", "send", "recv", "compute", "sync", "halt"]


class Step(NamedTuple):
    """What one rank does next."""

    kind: Kind
    group: int = 0
    name: str = ""
    size: str = "[4] float"
    peer: int = -1


@dataclass
class Rank:
    """One simulated process."""

    steps: list[Step]
    at: int = 0
    entered: dict[int, list[Step]] = field(default_factory=dict)
    state: ProcessState = "S"
    holds_gil: bool = False

    @property
    def step(self) -> Step | None:
        return self.steps[self.at] if self.at < len(self.steps) else None


def tree_neighbours(at: int, size: int) -> list[int]:
    """Whom gloo's broadcast needs at a place of its binomial tree, with root 0: all above, and those it sends to."""
    below = [at + (1 << bit) for bit in range(at.bit_length(), size.bit_length()) if at + (1 << bit) < size]
    above = []
    while at:
        at -= 1 << (at.bit_length() - 1)
        above.append(at)
    return above + below


@dataclass
class World:
    """All of them, and what is wrong with them."""

    random: random.Random
    ranks: list[Rank]
    groups: list[tuple[int, ...]]
    backend: Backend
    fault: str
    guilty: set[int]
    apart: frozenset[int] = frozenset()
    """Ranks of MPI that take part in nothing, and are well."""
    done: dict[tuple[int, int], int] = field(default_factory=dict)
    """What `completed` has found: what is over stays over."""

    def completed(self, rank: int, group: int) -> int:
        """Operations of the group that are over for this rank: those it needs have entered the same."""
        mine = self.ranks[rank].entered.get(group, [])
        done = self.done.get((rank, group), 0)
        for step in mine[done:]:
            theirs = (self.ranks[one].entered.get(group, []) for one in self._needs(rank, group, step))
            if any(len(other) <= done or other[done] != step for other in theirs):
                break
            done += 1
        self.done[rank, group] = done
        return done

    def _needs(self, rank: int, group: int, step: Step) -> Sequence[int]:
        """Who has to enter an operation before it can be over for this rank: but for a broadcast, all."""
        members = self.groups[group]
        at = members.index(rank)
        if step.name != "broadcast":
            return members
        if self.backend == "nccl":  # along a ring: those behind may come later
            return members[:at]
        return [members[one] for one in tree_neighbours(at, len(members))]

    def advance(self, rank: int) -> bool:
        """Let a rank take its next step; False when it cannot."""
        one = self.ranks[rank]
        step = one.step
        if step is None or one.state != "S" or step.kind == "halt":
            return False
        if step.kind == "collective":
            one.entered.setdefault(step.group, []).append(step)
            if self.backend == "nccl":
                one.at += 1
            else:
                one.steps[one.at : one.at + 1] = [Step("sync", step.group, step.name)]
            return True
        if step.kind == "sync":
            if any(self.completed(rank, group) < len(entered) for group, entered in one.entered.items()):
                return False
            one.at += 1
            return True
        if step.kind in ("send", "recv"):
            return self._meet(rank, step)
        one.at += 1
        return True

    def _meet(self, rank: int, step: Step) -> bool:
        other = self.ranks[step.peer]
        theirs = other.step
        wanted = "recv" if step.kind == "send" else "send"
        if theirs is None or theirs.kind != wanted or theirs.peer != rank or other.state != "S":
            return False
        self.ranks[rank].at += 1
        other.at += 1
        return True

    def run(self, most: int = 10**6) -> int:
        """Until nobody can go on, or so many steps; how many were taken."""
        taken = 0
        while taken < most:
            order = list(range(len(self.ranks)))
            self.random.shuffle(order)
            if not any(self.advance(rank) for rank in order):
                break
            taken += 1
        return taken


def make(seed: int, *, mpi: bool = False) -> World:
    """A world that has not begun, with one of FAULTS: of torch, or of MPI, where some ranks may be in no group."""
    chance = random.Random(seed)
    fault = FAULTS[seed % len(FAULTS)]
    size = chance.randint(3, 8)
    apart = frozenset(chance.sample(range(size), chance.randint(0, size - 2)) if mpi and chance.random() < 0.5 else ())
    together = [rank for rank in range(size) if rank not in apart]
    groups = [tuple(together)]
    for _ in range(chance.randint(0, 3)):
        groups.append(tuple(sorted(chance.sample(together, chance.randint(2, len(together))))))
    backend: Backend = "mpi" if mpi else chance.choice(("gloo", "nccl"))
    ranks = [Rank([Step("halt")] if rank in apart else []) for rank in range(size)]
    for _ in range(chance.randint(8, 30)):
        _common(chance, ranks, groups, backend)
    for rank in together:  # as programs end: who is through waits for the others
        ranks[rank].steps += [Step("collective", 0, "all_reduce"), Step("sync")]
    world = World(chance, ranks, groups, backend, fault, set(), apart)
    _spoil(world)
    return world


def _common(chance: random.Random, ranks: list[Rank], groups: list[tuple[int, ...]], backend: str) -> None:
    """One operation of some ranks, in the order that all keep."""
    if chance.random() < 0.15 and backend != "nccl":
        sender, receiver = chance.sample(groups[0], 2)
        ranks[sender].steps.append(Step("send", peer=receiver))
        ranks[receiver].steps.append(Step("recv", peer=sender))
        return
    number = chance.randrange(len(groups))
    step = Step("collective", number, chance.choice(NAMES), chance.choice(("[4] float", "[1024, 8] float")))
    syncs = backend != "nccl" or chance.random() < 0.3
    for rank in groups[number]:
        ranks[rank].steps += [Step("compute")] * chance.randint(0, 2) + [step] + [Step("sync")] * syncs


def _spoil(world: World) -> None:
    chance = world.random
    count = {"none": 0, "two": 2, "other order": 0}.get(world.fault, 1)
    for rank in chance.sample(world.groups[0], count):
        own = world.ranks[rank]
        places = [at for at, step in enumerate(own.steps) if step.kind == "collective"]
        if not places:
            continue
        at = chance.choice(places)
        world.guilty.add(rank)
        step = own.steps[at]
        if world.fault == "other operation":
            own.steps[at] = step._replace(name=next(name for name in NAMES if name != step.name))
        elif world.fault == "other size":
            own.steps[at] = step._replace(size="[3] float")
        elif world.fault == "left out":
            del own.steps[at]
        else:
            own.steps.insert(at, Step("halt"))
    if world.fault == "other order":
        _swap(world)


def _swap(world: World) -> None:
    """Two operations of different groups the other way round on one rank, with what lies between."""
    for own in world.random.sample(world.ranks, len(world.ranks)):  # those apart have nothing to swap
        places = [at for at, step in enumerate(own.steps) if step.kind == "collective"]
        pairs = [(a, b) for a, b in pairwise(places) if own.steps[a].group != own.steps[b].group]
        if pairs:
            a, b = world.random.choice(pairs)
            own.steps[a], own.steps[b] = own.steps[b], own.steps[a]
            world.guilty.add(world.ranks.index(own))
            return


def halt(world: World) -> None:
    """What becomes of the ranks that came to where they go no further."""
    for rank in world.guilty:
        own = world.ranks[rank]
        if own.step is not None and own.step.kind == "halt":
            own.state = {"stopped": "T", "dead": "gone"}.get(world.fault, "S")  # type: ignore[assignment]
            own.holds_gil = world.fault == "gil"


class Sight(NamedTuple):
    """How well the pods see."""

    stacks: bool = True
    calls: bool = True
    ranks: bool = True
    """NCCL's recorder tells the ranks of a group; gloo's never does."""
    completed: bool = True
    late: bool = False
    """gloo says of the last operation that is over that it is not."""
    deaf: frozenset[int] = frozenset()
    """Ranks whose recorder does not answer."""
    silent: frozenset[int] = frozenset()
    """Pods that do not."""


def sight(world: World) -> Sight:
    """Some are blind to something."""
    chance = world.random
    size = len(world.ranks)
    return Sight(
        stacks=chance.random() < 0.8,
        calls=chance.random() < 0.8,
        ranks=world.backend == "nccl",
        completed=chance.random() < 0.8,
        deaf=frozenset(rank for rank in range(size) if chance.random() < 0.05),
        silent=frozenset({chance.randrange((size + 1) // 2)} if chance.random() < 0.1 else ()),
        late=world.backend == "gloo" and chance.random() < 0.3,
    )


def look(world: World, sees: Sight, before: Collected | None = None) -> Collected:
    """What the pods give, two ranks on each."""
    pods = []
    old = {one.rank: one for pod in before.pods for one in pod.processes} if before else {}
    for pod in range((len(world.ranks) + 1) // 2):
        ranks = [rank for rank in (2 * pod, 2 * pod + 1) if rank < len(world.ranks)]
        processes = tuple(_process(world, rank, sees, old.get(rank)) for rank in ranks)
        deaf = tuple(100 + rank for rank in ranks if rank in sees.deaf)
        sources = (Source("recorder", "unavailable", "its socket does not answer", deaf),) if deaf else ()
        if pod not in sees.silent:
            pods.append(PodRecords(pod, f"p{pod}", "", (f"198.18.0.{pod}",), processes, sources=sources))
    silent = dict.fromkeys(sees.silent, "no answer within 8 s")
    apart = 1.0 if before else None
    return Collected("r", pods=tuple(pods), silent=silent, ranks=len(world.ranks), apart=apart)


def _process(world: World, rank: int, sees: Sight, before: Process | None) -> Process:
    own = world.ranks[rank]
    step = own.step
    over = step is None
    state: ProcessState = "gone" if over else own.state
    is_deaf = world.backend == "mpi" or rank in sees.deaf or state in ("gone", "T")
    groups = () if is_deaf else _groups(world, rank, sees, before)
    alive = state != "gone"
    threads = (_thread(world, own),) if alive and sees.stacks else ()
    return Process(
        pid=100 + rank,
        parent=1,
        state=state,
        role="rank",
        rank=rank,
        waiting=(_waiting(own, state),) if alive and sees.calls else (),
        threads=threads,
        holds_gil=own.holds_gil or None,
        groups=groups,
        stays=stays(before.threads, threads) if world.backend == "mpi" and before and state == "S" else None,
    )


def _groups(world: World, rank: int, sees: Sight, before: Process | None) -> tuple[GroupProgress, ...]:
    old = {one.group: one for one in before.groups} if before else {}
    found = []
    for group, entered in world.ranks[rank].entered.items():
        done = max(0, world.completed(rank, group) - sees.late) if sees.completed else None
        name = str(group)
        recent = [Operation(n, step.name, step.size) for n, step in enumerate(entered, 1)]
        first = old.get(name)
        found.append(
            GroupProgress(
                name,
                "nccl" if world.backend == "nccl" else "gloo",
                len(entered),
                done,
                recent=tuple(recent[(done or 0) :][:4] + recent[-2:]),
                ranks=world.groups[group] if sees.ranks else (),
                entered_before=first.entered if first else (0 if before else None),
                completed_before=first.completed if first else (0 if before and done is not None else None),
            )
        )
    return tuple(found)


def _waiting(own: Rank, state: ProcessState) -> Waiting:
    step = own.step
    asleep = step is not None and step.kind == "halt"
    return Waiting(state, syscall="clock_nanosleep" if asleep else "futex")


def _thread(world: World, own: Rank) -> Thread:
    step = own.step or Step("compute")
    own_frame = Frame("main", TRAIN, 10 + own.at)
    if world.backend == "mpi":  # each group has its line in a loop
        call = MPI.get(step.name if step.kind == "sync" else step.kind)
        called = [Frame(f"PMPI_{call}", "libmpi.so")] if call else []
        return Thread("MainThread", (*called, Frame("main", TRAIN, 10 + step.group)), own.holds_gil)
    if step.kind in ("send", "recv"):
        name = "dst" if step.kind == "send" else "src"
        return Thread("MainThread", (Frame(step.kind, TORCH, 1, {name: str(step.peer)}), own_frame))
    if step.kind == "sync" and world.backend == "gloo":
        return Thread("MainThread", (Frame(step.name or "barrier", TORCH, 2), own_frame))
    return Thread("MainThread", (own_frame,), own.holds_gil)


REAL_SIZE = 8
REAL_FAULTS = ("asleep", "stopped", "gil", "left out", "other order", "two")
"""What real ranks of gloo can do: where sizes or operations differ it may end the ranks, and it does when one dies."""


def suits_real_ranks(world: World) -> bool:
    """Can so many real ranks do the same?"""
    return (world.backend, len(world.ranks)) == ("gloo", REAL_SIZE) and world.fault in REAL_FAULTS
