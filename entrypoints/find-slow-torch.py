"""What find-slow measures with torch: each GPU alone, NVLink, pairs of GPUs of two pods, an all_gather of all.

    python find-slow-torch.py JSON

find-slow.py becomes this program when its conductor asks for torch: JSON has its rank, address, token and seconds, and
the sockets that stay open. This process imports torch once and never uses CUDA itself: each measurement is a child of
its own, which joins a group of its own by a TCPStore, and is killed at its deadline. Works with torch 2.5 or later.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from find_slow_member import FollowingMember, JsonLines, Say, Work, held_port
from find_slow_tcp import REPEATS, Exchange
from loaded_nccl import loaded_nccl

MIB = 1 << 20
MOST_BYTES = {"nccl": 256 * MIB, "gloo": 64 * MIB}
FIRST_BYTES = {"nccl": MIB, "gloo": MIB // 4}
"""Few over sockets: a link that has lost nearly all its speed is measured, and not taken for one that hangs."""
TRIES = 3
"""So often these are sent: by the fastest of them one knows how much fits."""
GATHERED_BYTES = 1 << 30
SIDE = 8192
"""How long the sides of the matrices are that are multiplied."""
ALONE = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
"""With these, NCCL goes from one GPU of a pod to another by the network."""

Told = dict[str, Any]


def main(argv: list[str]) -> int:
    given = json.loads(argv[0])
    lines = JsonLines(socket.socket(fileno=given["connection"]))
    server = socket.socket(fileno=given["server"])
    torch, ready = imported()
    ports: list[socket.socket] = []
    works: dict[str, Callable[[Told], Sequence[Work]]] = {
        "count": lambda told: [partial(count_gpus, torch)],
        "tcp": lambda told: [Exchange(server, given, told).run],
    }
    member = FollowingMember(lines, works)
    if torch is not None:
        gpus = member.measure({"kind": "count", "task": given["task"], "deadline": given["deadline"]})[0]
        ports += [held_port() for _ in range(max(1, gpus))]
        ready |= {"gpus": gpus, "ports": [port.getsockname()[1] for port in ports]}
        works |= Works(torch, given, gpus, ready["ports"]).kinds()
    lines.send(task=given["task"], values=[ready])
    return member.follow()


def imported() -> tuple[Any, dict[str, Any]]:
    """torch and its versions; None, and why."""
    try:
        import torch
        import torch.distributed
    except Exception as error:  # a broken torch raises whatever it likes
        return None, {"why": f"torch cannot be imported: {error}".partition("\n")[0]}
    if not torch.distributed.is_available():
        return None, {"why": f"torch {torch.__version__} has no torch.distributed"}
    torch.set_num_threads(1)
    nccl = loaded_nccl(torch) if torch.distributed.is_nccl_available() and torch.version.cuda else ()
    return torch, {"torch": str(torch.__version__), "nccl": ".".join(map(str, nccl)), "why": ""}


def count_gpus(torch: Any, say: Say) -> None:
    """In a child: the answer may cost a context of CUDA, after which a process must not fork."""
    say(torch.cuda.device_count() if torch.cuda.is_available() else 0)


class Works:
    """What the children of each kind of task do."""

    def __init__(self, torch: Any, given: dict[str, Any], gpus: int, ports: Sequence[int]) -> None:
        self.torch, self.given, self.gpus, self.ports = torch, given, gpus, ports

    def kinds(self) -> dict[str, Callable[[Told], Sequence[Work]]]:
        return {
            "gpus": lambda told: [partial(self.alone, gpu) for gpu in range(self.gpus)],
            "nvlink": self.of_pod,
            "pair": self.pairs,
            "loopback": self.loopbacks,
            "gather": self.gathers,
        }

    def pairs(self, told: Told) -> list[Work]:
        """One for each rail, between the GPUs of the same number."""
        return [
            self.group(told, gpu, port, f"{told['task']}/{gpu}", int(told["upper"]), 2, self.exchange)
            for gpu, port in enumerate(told["ports"])
        ]

    def loopbacks(self, told: Told) -> list[Work]:
        """Neighbours, over the network; the last of an odd number has none."""
        told = {**told, "address": "127.0.0.1", "env": ALONE}
        return [
            self.group(told, gpu, self.ports[gpu // 2], "loopback", gpu % 2, 2, self.exchange)
            for gpu in range(self.gpus // 2 * 2)
        ]

    def of_pod(self, told: Told) -> list[Work]:
        told = {**told, "address": "127.0.0.1"}
        port, size = self.ports[0], self.gpus
        return [self.group(told, gpu, port, "pod", gpu, size, self.all_reduce) for gpu in range(size)]

    def gathers(self, told: Told) -> list[Work]:
        rails, world = told["rails"], told["rails"] * told["pods"]
        return [
            self.group(told, gpu, told["port"], str(told["task"]), told["at"] * rails + gpu, world, self.all_gather)
            for gpu in range(rails)
        ]

    def group(
        self, told: Told, gpu: int, port: int, name: str, rank: int, size: int, run: Callable[[Group], float]
    ) -> Work:
        """Joins a group of its own, measures, and leaves when all have measured."""

        def work(say: Say) -> None:
            os.environ.update(told.get("env", {}))
            group = Group(self.torch, self.given, told, gpu, port, name, rank, size)
            say(run(group))
            group.leave()

        return work

    def exchange(self, group: Group) -> float:
        """MB/s, with as much in the other direction at the same time."""
        torch, dist, most = self.torch, group.dist, MOST_BYTES[group.backend]
        out, into = (torch.empty(most, dtype=torch.uint8, device=group.device) for _ in range(2))
        partner = 1 - group.rank

        def run(size: int) -> None:
            both = [dist.P2POp(dist.isend, out[:size], partner), dist.P2POp(dist.irecv, into[:size], partner)]
            for each in dist.batch_isend_irecv(both):
                each.wait()

        return group.speed(run, most) / 1e6

    def all_reduce(self, group: Group) -> float:
        """GB/s as nccl-tests' busbw."""
        torch, most = self.torch, MOST_BYTES[group.backend]
        data = torch.zeros(most // 4, dtype=torch.float32, device=group.device)
        return group.speed(lambda size: group.dist.all_reduce(data[: size // 4]), most) * 2 * group.share / 1e9

    def all_gather(self, group: Group) -> float:
        """GB/s as nccl-tests' busbw."""
        torch, most = self.torch, min(MOST_BYTES[group.backend] // 4, GATHERED_BYTES // group.size)
        mine = torch.zeros(most, dtype=torch.uint8, device=group.device)
        every = torch.empty(most * group.size, dtype=torch.uint8, device=group.device)

        def run(size: int) -> None:
            into = every[: size * group.size]
            if group.backend == "nccl":
                group.dist.all_gather_into_tensor(into, mine[:size])
            else:  # which not every torch has over gloo
                group.dist.all_gather(list(into.chunk(group.size)), mine[:size])

        return group.speed(run, most) * group.size * group.share / 1e9

    def alone(self, gpu: int, say: Say) -> None:
        """TFLOP/s of a product in bf16, then GB/s of a copy in memory, to the GPU, and from it."""
        torch = self.torch
        torch.cuda.set_device(gpu)
        one, product = (torch.ones((SIDE, SIDE), dtype=torch.bfloat16, device="cuda") for _ in range(2))
        there, other = (torch.zeros(MOST_BYTES["nccl"], dtype=torch.uint8, device="cuda") for _ in range(2))
        here = torch.zeros(MOST_BYTES["nccl"], dtype=torch.uint8).pin_memory()
        size = there.numel() / 1e9
        say(
            [
                2 * SIDE**3 / 1e12 / self.seconds(lambda: torch.matmul(one, one, out=product)),
                2 * size / self.seconds(lambda: other.copy_(there)),
                size / self.seconds(lambda: there.copy_(here, non_blocking=True)),
                size / self.seconds(lambda: here.copy_(there, non_blocking=True)),
            ]
        )

    def seconds(self, run: Callable[[], object]) -> float:
        """How long one call takes: the median of REPEATS windows of several, after one for getting up to speed."""
        found, window, times = list[float](), self.given["seconds"] / (REPEATS + 1), 1
        for _ in range(REPEATS + 2):
            took = timed(self.torch, run, times)
            times = times if found[1:] else max(1, int(window / took))
            found.append(took)
        return statistics.median(found[2:])


def timed(torch: Any, run: Callable[[], object], times: int, *, on_gpu: bool = True) -> float:
    """Seconds that it takes, the mean of so many."""
    begin = time.perf_counter()
    for _ in range(times):
        run()
    if on_gpu:
        torch.cuda.synchronize()
    return max((time.perf_counter() - begin) / times, 1e-9)


class Group:
    """A few ranks that measure together."""

    def __init__(
        self, torch: Any, given: dict[str, Any], told: Told, gpu: int, port: int, name: str, rank: int, size: int
    ) -> None:
        self.torch, self.dist, self.rank, self.size = torch, torch.distributed, rank, size
        self.backend, self.window = told["over"], given["seconds"] / (REPEATS + 1)
        over_nccl = self.backend == "nccl"
        self.device = torch.device("cuda", gpu) if over_nccl else torch.device("cpu")
        if over_nccl:
            torch.cuda.set_device(self.device)
        limit = timedelta(seconds=told["deadline"])
        store = self.dist.TCPStore(told["address"], port, size, rank == 0, limit, wait_for_workers=False)
        self.store = self.dist.PrefixStore(f"{given['token']}/{name}", store)
        self.dist.init_process_group(self.backend, store=self.store, rank=rank, world_size=size, timeout=limit)

    @property
    def share(self) -> float:
        """How much of what is gathered comes from others."""
        return (self.size - 1) / self.size

    def speed(self, run: Callable[[int], object], most: int) -> float:
        """Bytes a second: the median of REPEATS, each as large, and as often, as fits into its time."""
        first = min(FIRST_BYTES[self.backend], most)
        self.seconds(run, first)  # connections are made
        fits = int(first * self.window / min(self.seconds(run, first) for _ in range(TRIES)))
        size = self.agreed("size", max(first // 16, min(most, fits) // 16 * 16))
        times = self.agreed("times", max(1, fits // most))
        return size / statistics.median(self.seconds(run, size, times) for _ in range(REPEATS))

    def agreed(self, name: str, value: int) -> int:
        """Rank 0's value."""
        if self.rank == 0:
            self.store.set(name, str(value))
        return int(self.store.get(name))

    def seconds(self, run: Callable[[int], object], size: int, times: int = 1) -> float:
        """For one of so many."""
        return timed(self.torch, partial(run, size), times, on_gpu=self.device.type == "cuda")

    def leave(self) -> None:
        """Not before all have measured: what one has sent may still be on its way through others. Rank 0, which has
        the store, is the last."""
        self.store.set(f"done {self.rank}", "")
        if self.rank:
            self.store.get("all done")
            self.store.set(f"left {self.rank}", "")
            return
        for rank in range(self.size):
            self.store.get(f"done {rank}")
        self.store.set("all done", "")
        for rank in range(1, self.size):
            self.store.get(f"left {rank}")


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # all is said; Python would take half a second to take torch down
