"""The conductor of find-slow.py: tells all members what to measure, and waits for nobody much longer than for most."""

from __future__ import annotations

import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from find_slow_member import GRACE_SECONDS, LOST, JsonLines, say
from record import RecordFile

WRONG, MISSING = 65, 66
PATIENCE_SECONDS = 30.0
LIMITS = {"torch": 60.0, "gpus": 30.0, "nvlink": 30.0, "pair": 10.0, "loopback": 15.0, "gather": 60.0}
"""Seconds that a task may take besides what it measures."""
GPU_SPEEDS = 4
"""Each GPU alone is measured for `--seconds` so many times."""
LOOPBACKS = 2
"""The better one counts: there are two pods to compare, and over sockets a well one may lose 28 % at one time."""
FIRST_LOOK, SECOND_LOOK = 5.0, 2.0
"""So many times as long as others a member may take; who has timed out before, less."""
LEAST_SECONDS = 5.0
"""However quick others are: on a busy node a child may need seconds to start."""
MOST_TIMEOUTS = 2

Pair = tuple[int, int]
T = TypeVar("T")


class KnownMember(NamedTuple):
    """A process that measures, and what it said of itself."""

    lines: JsonLines
    address: str
    port: int
    devices: int
    torch: dict[str, Any]


class Conductor:
    """Runs on the first pod, beside its member."""

    def __init__(self, options: Namespace, server: socket.socket) -> None:
        self.options = options
        self.server = server
        self.record = RecordFile(os.environ.get("A4_RECORD", ""))
        self.members: dict[int, KnownMember] = {}
        self.over, self.rails = "tcp", 1
        self.task = 0
        self.rounds = 0
        self.measured: list[tuple[int, int, int, float, int]] = []
        self.gathered: list[tuple[list[int], float]] = []
        self.timeouts: dict[int, int] = {}
        self.silent: set[int] = set()

    def conduct(self) -> int:
        self.record.write("start", version=2, nodes=self.options.nodes, time=time.time())
        if missing := self.gather_members():
            say(f"the processes of these pods did not come: {', '.join(map(self.pod, missing))}")
            return LOST
        if why := self.choose():
            say(f"--over {self.options.over} is not possible: {why}")
            say(f"A4_PYTHON names the Python with torch, here {self.options.torch}")
            say("without --over it measures over what all pods have")
            self.dismiss()
            return MISSING
        if self.over == "nccl":
            self.look_at_gpus()
        while wanted := self.wanted():
            self.timeouts.clear()
            for pairs in wanted.get("rounds", []):
                self.play([(one, other) for one, other in pairs])
            if groups := wanted.get("groups"):
                self.all_gather(groups)
        self.record.write("end", time=time.time(), silent=sorted(self.silent))
        self.dismiss()
        return WRONG if self.silent else 0

    def dismiss(self) -> None:
        for member in self.members.values():
            with suppress(OSError):
                member.lines.send(end=True)

    def pod(self, rank: int) -> str:
        pods = os.environ.get("A4_RUN_PODS", "").split(",")
        return pods[rank] if rank < len(pods) else f"of rank {rank}"

    def wanted(self) -> dict[str, Any]:
        said = json.dumps({"measured": self.measured, "gathered": self.gathered, "over": self.over})
        try:
            done = subprocess.run(
                self.options.next, input=said, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
            )
        except subprocess.TimeoutExpired:
            sys.exit(f"find-slow: whom to pair was not decided within {PATIENCE_SECONDS:g} s: pod 0 is busy, try again")
        if done.returncode:
            sys.exit(f"find-slow: whom to pair was not decided: {done.stderr}")
        return dict(json.loads(done.stdout))

    # Who is there, and how to measure

    def gather_members(self) -> list[int]:
        """Take in the members; the ranks of those that did not come."""
        until = time.monotonic() + PATIENCE_SECONDS
        new: dict[socket.socket, JsonLines] = {}
        while self.missing() and (left := until - time.monotonic()) > 0:
            for lines in readable({self.server: None, **new}, left):
                if lines is None:
                    connection = self.server.accept()[0]
                    new[connection] = JsonLines(connection)
                else:
                    self.greet(new.pop(lines.connection))
        return self.missing()

    def missing(self) -> list[int]:
        return [rank for rank in range(self.options.nodes) if rank not in self.members]

    def greet(self, lines: JsonLines) -> None:
        """A stranger is sent away."""
        try:
            for hello in lines.read():
                rank = int(hello["rank"])
                if hello["token"] == self.options.token and rank in self.missing():
                    address, port, devices = str(hello["address"]), int(hello["port"]), int(hello["devices"])
                    self.members[rank] = KnownMember(lines, address, port, devices, {})
                    lines.connection.settimeout(GRACE_SECONDS)
                    return
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            pass
        lines.connection.close()

    def choose(self) -> str:
        """Decide what to measure over; why that is not possible, where it was asked for."""
        asked, why, versions = self.options.over, "", dict[str, str]()
        without = [rank for rank, one in self.members.items() if not one.devices]
        if not asked and without:
            where = counted(len(without), "pod") if len(without) > 1 else f"pod {self.pod(without[0])}"
            why = f"no GPU on {where}"
        elif asked != "tcp":
            over = asked or "nccl"
            versions, why = self.start_torch(over)
            if why and asked:
                return why
            self.over = "tcp" if why else over
        if self.over == "nccl":
            self.rails = min(one.torch["gpus"] for one in self.members.values() if one.torch)
        self.record.write("over", over=self.over, rails=self.rails, **versions, why=why)
        rails = f", {counted(self.rails, 'GPU')} on each pod" if self.over == "nccl" else ""
        print(f"over {self.over}{rails}" + (f": {why}" if why else ""), flush=True)
        return ""

    def start_torch(self, over: str) -> tuple[dict[str, str], str]:
        """Its versions, and why it cannot be used. Pods that do not answer are found later."""
        answers = self.ask({rank: {"kind": "torch"} for rank in self.members})
        for rank, (told,) in answers.items():
            self.members[rank] = self.members[rank]._replace(torch=told or {})
        said = {rank: told for rank, (told,) in answers.items() if told}
        for rank, told in said.items():
            if why := told["why"] or ("torch finds no GPU" if over == "nccl" and not told["gpus"] else ""):
                return {}, f"pod {self.pod(rank)}: {why}"
        if not said:
            return {}, "torch was imported on no pod in time"
        some = next(iter(said.values()))
        return {"torch": some["torch"], "nccl": some["nccl"]}, ""

    # What is measured

    def look_at_gpus(self) -> None:
        found = self.ask({rank: {"kind": "gpus"} for rank in self.members})
        speeds = [[rank, gpu, *(speed or [0.0] * 4)] for rank in sorted(found) for gpu, speed in enumerate(found[rank])]
        self.record.write("gpus", speeds=speeds)
        print(f"each GPU alone: {counted(len(speeds), 'GPU')}", flush=True)
        if self.rails > 1:
            found = self.ask({rank: {"kind": "nvlink", "over": "nccl"} for rank in self.members})
            self.record.write("nvlink", speeds=[[rank, min(found[rank])] for rank in sorted(found)])
            print("NVLink: all_reduce in each pod", flush=True)
        if self.rails > 1 and self.options.nodes == 2:
            for _ in range(LOOPBACKS):
                found = self.ask({rank: {"kind": "loopback", "over": "nccl"} for rank in self.members})
                speeds = [[rank, gpu, speed] for rank in sorted(found) for gpu, speed in enumerate(found[rank])]
                self.record.write("loopback", speeds=speeds)
            print("each pod to itself over its network", flush=True)

    def play(self, pairs: list[Pair]) -> None:
        """One round: each pair on each rail."""
        often = self.timeouts
        pairs = [pair for pair in pairs if max(often.get(rank, 0) for rank in pair) < MOST_TIMEOUTS]
        again = {rank for pair in pairs for rank in pair if {*pair} & (often.keys() | self.silent)}
        tasks = {rank: self.task_of(pair, rank) for pair in pairs for rank in pair}
        speeds = self.ask(tasks, again)
        found = []
        for one, other in pairs:
            ends = [speeds.get(rank) or [0.0] * self.rails for rank in (one, other)]
            rails = [min(both) for both in zip(*ends, strict=True)]
            found += [(one, other, speed, rail) for rail, speed in enumerate(rails)]
            if not any(rails):
                often.update({rank: often.get(rank, 0) + 1 for rank in (one, other)})
        self.record.write("round", number=self.rounds, pairs=found)
        self.measured += [(self.rounds, *each) for each in found]
        self.rounds += 1
        late = len({pair[:2] for pair in found if not pair[2]})
        said = f", {late} timed out" if late else ""
        print(f"round {self.rounds}: {counted(len(pairs), 'pair')}{said}", flush=True)

    def task_of(self, pair: Pair, rank: int) -> dict[str, Any]:
        lower, upper = pair
        partner = self.members[upper if rank == lower else lower]
        if self.over == "tcp":
            where = {"address": partner.address, "port": partner.port}
            return {"kind": "tcp", "round": self.rounds, "partner": upper if rank == lower else lower, **where}
        ports = self.members[lower].torch.get("ports", [0])
        where = {"address": self.members[lower].address, "ports": [*ports, *[0] * self.rails][: self.rails]}
        return {"kind": "pair", "over": self.over, "upper": rank == upper, **where}

    def all_gather(self, groups: list[list[int]]) -> None:
        """In all of these groups at once."""
        tasks = {
            rank: {
                "kind": "gather",
                "over": self.over,
                "address": self.members[group[0]].address,
                "port": self.members[group[0]].torch.get("ports", [0])[0],
                "at": at,
                "pods": len(group),
                "rails": self.rails,
            }
            for group in groups
            for at, rank in enumerate(group)
        }
        speeds = self.ask(tasks)
        found = [(group, min(min(speeds.get(rank, [0.0])) for rank in group)) for group in groups]
        self.record.write("gather", groups=found)
        self.gathered += found
        for group, speed in found:
            print(f"all_gather over {len(group)} pods: " + (f"{speed:.3g} GB/s" if speed else "failed"), flush=True)

    def ask(self, tasks: dict[int, dict[str, Any]], again: Collection[int] = ()) -> dict[int, list[Any]]:
        """Rank → values of those that answer. Who takes much longer than others is told to stop."""
        self.task += 1
        kinds = {task["kind"] for task in tasks.values()}
        most = max((self.most_seconds(kind) for kind in kinds), default=0.0)
        for rank, task in tasks.items():
            with suppress(OSError):
                self.members[rank].lines.send(task=self.task, deadline=most, **task)
        began, took, answers = time.monotonic(), list[float](), dict[int, list[Any]]()
        waiting: dict[int, float | None] = dict.fromkeys(tasks)
        while waiting:
            usual = statistics.median(took) if len(took) * 2 >= len(tasks) and kinds != {"torch"} else most
            ends = {
                rank: told
                or began + min(most, max(LEAST_SECONDS, usual * (SECOND_LOOK if rank in again else FIRST_LOOK)))
                for rank, told in waiting.items()
            }
            now = time.monotonic()
            for rank in [rank for rank in waiting if ends[rank] <= now]:
                if waiting[rank]:
                    del waiting[rank]
                else:
                    waiting[rank] = ends[rank] = now + GRACE_SECONDS
                    with suppress(OSError):
                        self.members[rank].lines.send(stop=self.task)
            left = min((ends[rank] for rank in waiting), default=now) - now
            for rank in readable({self.members[rank].lines.connection: rank for rank in waiting}, left):
                values = self.answer(rank)
                if values is None:
                    continue
                del waiting[rank]
                if values:
                    answers[rank] = values
                    took += [time.monotonic() - began] if all(values) else []
        self.silent |= tasks.keys() - answers.keys()
        return answers

    def most_seconds(self, kind: str) -> float:
        """How long such a task may take at most."""
        times = GPU_SPEEDS if kind == "gpus" else 1
        return LIMITS.get(kind, LIMITS["pair"]) + times * float(self.options.seconds)

    def answer(self, rank: int) -> list[Any] | None:
        """Its values; none when it is lost, None when it has not answered yet."""
        found = None
        try:
            for answer in self.members[rank].lines.read():
                if answer["task"] == self.task:
                    found = list(answer["values"])
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            return []
        return found


def readable(sockets: Mapping[socket.socket, T], seconds: float) -> list[T]:
    """Whose sockets have something to read; more of them than select() takes."""
    with selectors.DefaultSelector() as selector:
        for one, whose in sockets.items():
            selector.register(one, selectors.EVENT_READ, whose)
        return [key.data for key, _ in selector.select(seconds)] if selector.get_map() else []


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
