"""What find-slow measured, by the record of entrypoints/find-slow.py, which describes its lines: pairs, each GPU alone,
NVLink and network inside pods, an all_gather over all."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from textwrap import wrap
from typing import Any, NamedTuple, TypeVar

from agent.clinic.find_slow.fitting import SIGMAS, PairSpeed, scatter
from agent.clinic.find_slow.gathering import Gathered, smallest_failed
from agent.decide.facts import Finding
from agent.decide.plan import PlannedPeer
from agent.decide.result import Table, table
from agent.decide.subset import pods_text
from agent.decide.words import at_most, is_are, listed

SOURCE = "the other GPUs of this run"
COLUMNS = 80
ACTION = "nvidia-smi on the pod: does another process use it, is it throttled? a4-agent doctor --hosts {}"


class Measure(NamedTuple):
    """One of the speeds of a GPU."""

    name: str
    unit: str
    floor: float
    """So much must be lost at least; what goes to the host depends on where its memory lies"""


MEASURES = (
    Measure("product in bf16", "TFLOP/s", 0.1),
    Measure("copy in its memory", "GB/s", 0.1),
    Measure("copy from the host", "GB/s", 0.3),
    Measure("copy to the host", "GB/s", 0.3),
)
NVLINK = Measure("all_reduce inside the pod", "GB/s", 0.2)
LOOPBACK = Measure("network to itself", "MB/s", 0.25)
"""Well pods differed by 7 % (NVLink) and 12 % (sockets) on four H100."""
HEALTHY_NAMED = 0.003
"""The chance that a measure names a good one of all that are compared, if these scatter as a normal distribution."""
Key = TypeVar("Key")


class LowSpeed(NamedTuple):
    """Something that is slower than its like."""

    rank: int
    device: str
    measure: Measure
    speed: float
    share: float
    """of what is usual; 0: it did not come to its end"""

    def __str__(self) -> str:
        what = f"{self.device}, {self.measure.name}" if self.device else self.measure.name
        if not self.share:
            return f"{what}: it did not finish; the pod's log may say why"
        return f"{what}: {self.speed:.4g} {self.measure.unit}, {self.share:.0%} of what is usual"


@dataclass
class Stages:
    """As far as the record goes."""

    over: str = ""
    rails: int = 1
    why: str = ""
    """Why it is not nccl"""
    versions: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[tuple[int, int], Sequence[float]] = field(default_factory=dict)
    """(rank, GPU) → its speeds, by MEASURES"""
    nvlink: Mapping[int, float] = field(default_factory=dict)
    loopback: dict[tuple[int, int], float] = field(default_factory=dict)
    """(rank, first GPU of two) → MB/s, the best of all times"""
    gathered: list[Gathered] = field(default_factory=list)
    measured: list[PairSpeed] = field(default_factory=list)
    rounds: int = 0
    ended: bool = False
    """All of it was measured."""

    def take(self, values: Mapping[str, Any]) -> None:
        """Raises ValueError, KeyError or TypeError."""
        step = values["step"]
        if step == "over":
            self.over, self.rails, self.why = str(values["over"]), int(values["rails"]), str(values["why"])
            self.versions = {name: str(values[name]) for name in ("torch", "nccl") if values.get(name)}
        elif step == "gpus":
            self.gpus = {(rank, gpu): tuple(map(float, speeds)) for rank, gpu, *speeds in values["speeds"]}
        elif step == "nvlink":
            self.nvlink = {rank: float(speed) for rank, speed in values["speeds"]}
        elif step == "loopback":
            ends = {(rank, gpu): float(speed) for rank, gpu, speed in values["speeds"]}
            for (rank, gpu), speed in ends.items():
                if gpu % 2 == 0 and (rank, gpu + 1) in ends:
                    both = min(speed, ends[rank, gpu + 1])
                    self.loopback[rank, gpu] = max(both, self.loopback.get((rank, gpu), 0.0))
        elif step == "gather":
            self.gathered += [Gathered(tuple(ranks), float(speed)) for ranks, speed in values["groups"]]
        elif step == "round":
            number = int(values["number"])
            self.measured += [
                PairSpeed(number, (int(one), int(other)), float(speed), *map(int, rail))
                for one, other, speed, *rail in values["pairs"]
            ]
            self.rounds = number + 1
        self.ended = step == "end"

    def low(self) -> list[LowSpeed]:
        """What a slow GPU slows with it is left out: NVLink of its pod, and its own network."""
        found = []
        for at, measure in enumerate(MEASURES):
            speeds = {key: of_gpu[at] for key, of_gpu in self.gpus.items()}
            for (rank, gpu), share in low_shares(speeds, measure.floor).items():
                if share or not at:  # a child that failed has failed for all of them
                    found.append(LowSpeed(rank, f"GPU {gpu}", measure, speeds[rank, gpu], share))
        slow = {(one.rank, one.device) for one in found}
        pods = {one.rank for one in found}
        for rank, share in low_shares(self.nvlink, NVLINK.floor).items():
            if rank not in pods:
                found.append(LowSpeed(rank, "NVLink", NVLINK, self.nvlink[rank], share))
        for (rank, gpu), share in low_shares(self.loopback, LOOPBACK.floor).items():
            if slow.isdisjoint([(rank, f"GPU {gpu}"), (rank, f"GPU {gpu + 1}")]):
                device = f"network of GPUs {gpu} and {gpu + 1}"
                found.append(LowSpeed(rank, device, LOOPBACK, self.loopback[rank, gpu], share))
        return found

    def slow_gpus(self) -> dict[tuple[int, int], bool]:
        """(rank, GPU) → whether it is slow by itself, of those that were measured so."""
        low = {(one.rank, one.device) for one in self.low()}
        return {(rank, gpu): (rank, f"GPU {gpu}") in low for rank, gpu in self.gpus}

    def reasons(self, peers: Sequence[PlannedPeer], pairs_are_good: bool) -> list[str]:
        """What counts against the run."""
        found = [f"{peers[one.rank].where}: {one}" for one in self.low()]
        failed = smallest_failed(self.gathered)
        if failed is not None and pairs_are_good:
            pods = pods_text(peers[node].index for node in failed.nodes)
            found.append(f"all_gather over {pods} did not finish, though all pairs that were measured did")
        return found

    def slow_parts(self) -> dict[int, str]:
        """Rank → what of it is slow: "GPU 1 and NVLink"."""
        devices: dict[int, dict[str, None]] = {}
        for one in self.low():
            devices.setdefault(one.rank, {})[one.device] = None
        return {rank: listed([*found]) for rank, found in devices.items()}

    def sentence(self, peers: Sequence[PlannedPeer], blamed: Collection[int] = ()) -> str:
        """What there is besides the slow pods that are blamed; empty: nothing."""
        low = {(one.rank, one.device) for one in self.low() if one.rank not in blamed}
        parts = sorted((rank, part) for rank, part in self.slow_parts().items() if rank not in blamed)
        named = [f"{part} of pod {peers[rank].index}" for rank, part in parts]
        if named:
            return f"{listed(at_most(named, 3, 'of {} more'))} {is_are(low)} slow"
        return "" if blamed else "an all_gather does not finish"

    def findings(self, peers: Sequence[PlannedPeer]) -> list[Finding]:
        found = []
        for one in self.low():
            peer, limit = peers[one.rank], f"more than {1 - one.measure.floor:.0%} of the usual speed"
            found.append(
                Finding(
                    one.measure.name,
                    "bad",
                    "fatal",
                    peer.index,
                    peer.node,
                    one.device,
                    value=str(one).partition(": ")[2],
                    limit=limit,
                    source=SOURCE,
                    action=ACTION.format(peer.index),
                )
            )
        return found

    def tables(self, peers: Sequence[PlannedPeer]) -> list[Table]:
        found = []
        if self.gpus:
            columns = {"pod": "", "GPU": "", **{one.name: one.unit for one in MEASURES}}
            rows = [[peers[rank].index, gpu, *speeds] for (rank, gpu), speeds in self.gpus.items()]
            found.append(table("find-slow-gpus", "Each GPU alone", columns, rows))
        if self.nvlink:
            speeds = [[peers[rank].index, speed or None] for rank, speed in self.nvlink.items()]
            columns = {"pod": "", NVLINK.unit: NVLINK.unit}
            found.append(table("find-slow-nvlink", "all_reduce inside each pod, busbw", columns, speeds))
        if self.loopback:
            ends = [
                [peers[rank].index, f"{gpu}-{gpu + 1}", speed or None] for (rank, gpu), speed in self.loopback.items()
            ]
            columns = {"pod": "", "GPUs": "", LOOPBACK.unit: LOOPBACK.unit}
            found.append(table("find-slow-loopback", "Each pod to itself over its network", columns, ends))
        if self.gathered:
            groups = [[pods_text(peers[node].index for node in one.nodes), one.speed or None] for one in self.gathered]
            found.append(table("find-slow-gathered", "all_gather, busbw", {"pods": "", "GB/s": "GB/s"}, groups))
        return found

    def lines(self, peers: Sequence[PlannedPeer]) -> list[str]:
        """What was measured, and what was not."""
        gathers = "".join(self._gathers(peers))
        if self.over == "nccl":
            rails = "one GPU of each pod" if self.rails == 1 else f"{self.rails} GPUs of each pod, each with its like"
            inside = [*(["NVLink"] if self.nvlink else []), *(["each pod's own network"] if self.loopback else [])]
            text = f"measured: {', '.join(['each GPU alone', *inside, f'NCCL between {rails}'])}{gathers}"
            return wrap(text, COLUMNS, subsequent_indent="  ")
        between = "gloo" if self.over == "gloo" else "TCP"
        measured = f"measured: {between} between pods{gathers}"
        missing = f"not measured{f' ({self.why})' if self.why else ''}: GPUs, NVLink, NCCL's network"
        return [line for text in (measured, missing) for line in wrap(text, COLUMNS, subsequent_indent="  ")]

    def _gathers(self, peers: Sequence[PlannedPeer]) -> Iterator[str]:
        for one in self.gathered:
            pods = "all pods" if len(one.nodes) == len(peers) else pods_text(peers[node].index for node in one.nodes)
            yield f", all_gather over {pods} " + (f"({one.speed:.3g} GB/s)" if one.speed else "(failed)")


def read_stages(text: str) -> Stages:
    """As far as it can be read: its last line may be cut."""
    found = Stages()
    for line in text.splitlines():
        try:
            found.take(json.loads(line))
        except (ValueError, KeyError, TypeError):
            break
    return found


def low_shares(speeds: Mapping[Key, float], floor: float) -> dict[Key, float]:
    """Those that have lost `floor` or more, and more than good ones scatter → what share of the usual they have.

    What is usual is the upper quartile, as of pairs: each is measured alone, so two are enough to name the slower. The
    more there are, the lower is the lowest of good ones.
    """
    known = sorted(speed for speed in speeds.values() if speed)
    usual = known[round(0.75 * (len(known) - 1))] if known else 1.0
    good = [speed / usual for speed in known if speed >= (1 - floor) * usual] or [1.0]
    lowest = NormalDist().inv_cdf(0.75) + NormalDist().inv_cdf(1 - HEALTHY_NAMED / len(good))
    cut = min(1 - floor, 1 - max(SIGMAS, lowest) * scatter(good))
    return {key: speed / usual for key, speed in speeds.items() if speed / usual < cut or not speed}
