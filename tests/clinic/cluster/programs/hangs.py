"""Real ranks that hang in 39 ways, one after the other:  hangs.py CASE ...

Four ranks; what is true of each case stands in tests/clinic/hangs.py. Each rank makes /mnt/CASE-<rank> right before the
call that it does not come back from. One that can end the hang writes its process id there: SIGUSR1 to it, and the
ranks come to the next case, as importing torch takes longer than most cases. One that no signal ends is the last of its
run.
"""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

PID = os.getpid()
RANK = next(int(os.environ[name]) for name in ("RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)
FOREVER = timedelta(days=1)
LONG = 100_000
MANY = 1 << 24
"""Numbers that are sent: more than sockets hold."""
current = ""
"""The case."""
is_held = False
"""SIGUSR1 raises Released."""
is_released = False
"""SIGUSR1 has come in this case."""
undo: Callable[[], None] | None = None
"""What a thread does at SIGUSR1 while the main thread is in native code."""


class Released(Exception):
    """The hang is over."""


def here() -> None:
    path = Path(f"/mnt/{current}-{RANK}")
    path.with_suffix(".new").write_text(f"{PID}\n" if is_held or undo else "")
    path.with_suffix(".new").rename(path)


def listen_for_signals() -> None:
    """The byte is written even while the main thread is in native code."""
    inlet, outlet = os.pipe()
    os.set_blocking(outlet, False)

    def handle(number: int, frame: object) -> None:
        global is_released
        is_released = True
        if is_held:
            raise Released

    def wait() -> None:
        while os.read(inlet, 1):
            if undo:
                undo()

    signal.set_wakeup_fd(outlet, warn_on_full_buffer=False)
    signal.signal(signal.SIGUSR1, handle)
    threading.Thread(target=wait, daemon=True).start()


def held(action: Callable[[], object]) -> None:
    """Does it until SIGUSR1."""
    global is_held
    with suppress(Released):
        is_held = True
        action()
        is_held = False
        raise AssertionError(f"{current} has not hung")
    is_held = False


class Undone:
    """What a thread does at SIGUSR1, to end what the main thread hangs in. The block ends when it has done it."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._done = threading.Event()

    def _undo(self) -> None:
        global undo
        undo = None
        self._action()
        self._done.set()

    def __enter__(self) -> None:
        global undo
        undo = self._undo

    def __exit__(self, *_: object) -> None:
        self._done.wait()


# What one rank does instead of entering the operation that the others wait in


def sleep() -> None:
    here()
    time.sleep(LONG)


def loop_in_python() -> None:
    here()
    number = 0
    while True:
        number = (number * 31 + 7) % 1_000_003


def match_for_ever() -> None:
    """Native code that keeps the GIL."""
    here()
    re.match(r"(a+)+$", "a" * 60 + "b")


def spin_without_the_gil() -> None:
    libc = ctypes.CDLL(None)
    lock = ctypes.c_int(0)
    libc.pthread_spin_init(ctypes.byref(lock), 0)
    libc.pthread_spin_lock(ctypes.byref(lock))
    with Undone(lambda: libc.pthread_spin_unlock(ctypes.byref(lock))):
        here()
        libc.pthread_spin_lock(ctypes.byref(lock))
    raise Released


def open_a_fifo() -> None:
    os.mkfifo(f"/tmp/{current}")
    here()
    open(f"/tmp/{current}").close()


def lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    here()
    lock.acquire()


def lock_a_file() -> None:
    path = Path(f"/tmp/{current}")
    with path.open("w") as first, path.open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        here()
        fcntl.flock(second, fcntl.LOCK_EX)


def wait_for_a_program() -> None:
    here()
    subprocess.run(["sleep", str(LONG)])


def ask_a_silent_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here()
        urllib.request.urlopen(f"http://127.0.0.1:{server.getsockname()[1]}/batch").read()


def wait_for_a_dead_child() -> None:
    context = multiprocessing.get_context("fork")
    batches = context.Queue()
    child = context.Process(target=os._exit, args=(1,))
    child.start()
    os.waitid(os.P_PID, child.pid or 0, os.WEXITED | os.WNOWAIT)
    here()
    batches.get()


class Batches:
    """A data set whose only item never comes."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        here()
        os.kill(os.getpid(), signal.SIGSTOP)
        return index


def wait_for_a_stopped_worker() -> None:
    from torch.utils.data import DataLoader

    batches = iter(DataLoader(Batches(), num_workers=1))
    try:
        next(batches)
    finally:
        for child in multiprocessing.active_children():
            child.kill()


def stop() -> None:
    here()
    os.kill(os.getpid(), signal.SIGSTOP)
    while True:  # what comes while all threads are stopped may go to another one, and then ends no sleep of this one
        time.sleep(0.1)


def save_checkpoint() -> None:
    os.mkfifo(f"/tmp/{current}")
    with open(f"/tmp/{current}", "r+b", buffering=0) as file:
        here()
        file.write(bytes(MANY))


def compile_kernels() -> None:
    here()
    subprocess.run([sys.executable, "-S", "-c", "while True: pass"], capture_output=True)


def die_unnoticed() -> None:
    """Its launcher cannot notice: it is stopped. Nor can other ranks: a child of it keeps its connections."""
    here()
    if os.fork() == 0:
        time.sleep(LONG)
    os.kill(os.getppid(), signal.SIGSTOP)
    os._exit(1)


# Ranks of torch


def start(dist: Any) -> None:
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=FOREVER)


def join(dist: Any, torch: Any) -> None:
    dist.all_reduce(torch.ones(64))


def late(*who: int, do: Callable[[], object] = sleep, then: Callable[[Any, Any], object] = join) -> Any:
    """Some ranks do something else before what all do."""

    def case(dist: Any, torch: Any) -> None:
        held(do) if RANK in who else here()
        then(dist, torch)

    return case


def wait_for_prefetching() -> None:
    here()
    threading.Event().wait()


def swallow(dist: Any, torch: Any) -> None:
    """Rank 1 leaves out one of three operations."""
    for step in range(3):
        try:
            if RANK == 1 and step == 1:
                raise OSError("a file server did not answer")
            if RANK != 1 and step == 2:
                here()
            dist.all_reduce(torch.ones(64))
        except OSError as error:
            os.write(2, f"step {step} is left out: {error}\n".encode())
    if RANK == 1:
        held(wait_for_prefetching)
        dist.all_reduce(torch.ones(64))


def pipeline(dist: Any, torch: Any) -> None:
    held(sleep) if RANK == 0 else here()
    if RANK > 0:
        dist.recv(torch.ones(64), src=RANK - 1)
    if RANK < 3:
        dist.send(torch.ones(64), dst=RANK + 1)
    dist.all_reduce(torch.ones(64))


def send_much(dist: Any, torch: Any) -> None:
    """Rank 2 does not receive what rank 1 sends."""
    held(sleep) if RANK == 2 else here()
    if RANK == 1:
        dist.send(torch.ones(MANY), dst=2)
    if RANK == 2:
        dist.recv(torch.ones(MANY), src=1)
    dist.all_reduce(torch.ones(64))


def receive_in_pairs(dist: Any, torch: Any) -> None:
    other = RANK ^ 1
    with Undone(lambda: dist.send(torch.ones(64), dst=other)):
        here()
        dist.recv(torch.ones(64), src=other)


def send_around(dist: Any, torch: Any) -> None:
    with Undone(lambda: dist.recv(torch.ones(MANY), src=(RANK - 1) % 4)):
        here()
        dist.send(torch.ones(MANY), dst=(RANK + 1) % 4)


def pair_in_a_group(dist: Any, torch: Any) -> None:
    """Rank 2 waits for rank 3 in their group, the others for both."""
    pair = dist.new_group([2, 3], timeout=FOREVER)
    dist.all_reduce(torch.ones(64))
    held(sleep) if RANK == 3 else here()
    if RANK in (2, 3):
        dist.all_reduce(torch.ones(64), group=pair)
    dist.all_reduce(torch.ones(64))


def three_groups(dist: Any, torch: Any) -> None:
    """0 and 1, 1 and 2, 2 and 0: each begins with another group than the one that waits for it."""
    first, second, third = (dist.new_group(pair, timeout=FOREVER) for pair in ([0, 1], [1, 2], [0, 2]))
    dist.all_reduce(torch.ones(64))
    if RANK == 3:
        here()
    else:
        enter_in_turn(dist, torch, [(first, third), (second, first), (third, second)][RANK], RANK == 1)
    dist.all_reduce(torch.ones(64))


def two_groups(dist: Any, torch: Any) -> None:
    turns = [dist.new_group(timeout=FOREVER) for _ in range(2)]
    dist.all_reduce(torch.ones(64))
    enter_in_turn(dist, torch, turns if RANK < 2 else turns[::-1], RANK >= 2)


def enter_in_turn(dist: Any, torch: Any, groups: Any, undoes: bool) -> None:
    """undoes: a thread enters the last group at SIGUSR1."""
    with Undone(lambda: undoes and dist.all_reduce(torch.ones(64), group=groups[-1])):
        here()
        for group in groups[:-1] if undoes else groups:
            dist.all_reduce(torch.ones(64), group=group)


def take_a_step(seconds: float) -> None:
    here()
    time.sleep(seconds)


def slow_steps(dist: Any, torch: Any) -> None:
    """Rank 3 needs 3 to 5 s for each step."""
    is_over = torch.zeros(1)
    step = 0
    while not is_over:
        if RANK == 3 and step:
            with suppress(AssertionError):
                held(partial(take_a_step, 3 + step % 3))
            is_over += is_released  # perhaps between two steps
        elif step == 1:
            here()
        dist.all_reduce(is_over)
        step += 1


def wait_for_a_key(dist: Any, torch: Any) -> None:
    store = dist.distributed_c10d._get_default_store()
    if RANK == 2:
        held(sleep)
        store.set("weights", "1")
    here()
    store.wait(["weights"], FOREVER)


def uneven_batches(dist: Any, torch: Any) -> None:
    """Rank 3 has one batch less, and goes on to the barrier behind the loop."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    for step in range(3 if RANK == 3 else 4):
        if step == 3:
            here()
        model(torch.ones(4, 8)).sum().backward()
    here()
    dist.barrier()


def other_operation(dist: Any, torch: Any) -> None:
    here()
    dist.broadcast(torch.ones(64), src=0) if RANK == 3 else dist.all_reduce(torch.ones(64))
    dist.barrier()


def other_root(dist: Any, torch: Any) -> None:
    here()
    dist.broadcast(torch.ones(MANY), src=3 if RANK == 3 else 0)
    dist.barrier()


TORCH: dict[str, Callable[[Any, Any], None]] = {
    "init": late(3, then=lambda dist, torch: start(dist)),
    "sleep": late(2),
    "python-loop": late(3, do=loop_in_python),
    "native-with-gil": late(2, do=match_for_ever),
    "native-without-gil": late(1, do=spin_without_the_gil),
    "fifo": late(2, do=open_a_fifo),
    "monitored-barrier": late(3, then=lambda dist, torch: dist.monitored_barrier(timeout=FOREVER)),
    "new-group": late(2, then=lambda dist, torch: dist.new_group([0, 1, 2], timeout=FOREVER)),
    "other-operation": other_operation,
    "lock": late(3, do=lock_twice),
    "flock": late(2, do=lock_a_file),
    "subprocess": late(3, do=wait_for_a_program),
    "http": late(2, do=ask_a_silent_server),
    "swallowed": swallow,
    "dead-child": late(2, do=wait_for_a_dead_child),
    "stopped-worker": late(2, do=wait_for_a_stopped_worker),
    "other-root": other_root,
    "stopped": late(2, do=stop),
    "slow-steps": slow_steps,
    "checkpoint": late(0, do=save_checkpoint),
    "compile": late(2, do=compile_kernels),
    "object-gather": late(2, then=lambda dist, torch: dist.all_gather_object([None] * 4, {"rank": RANK})),
    "store-wait": wait_for_a_key,
    "two-late": late(1, 3),
    "dead": late(3, do=die_unnoticed),
    "pipeline": pipeline,
    "send": send_much,
    "receive-circle": receive_in_pairs,
    "send-circle": send_around,
    "pair": pair_in_a_group,
    "three-groups": three_groups,
    "two-groups": two_groups,
    "uneven-batches": uneven_batches,
}


# Ranks of MPI


def mpi_late(comm: Any) -> None:
    held(sleep) if RANK == 3 else here()
    comm.Barrier()


def mpi_farm(comm: Any) -> None:
    """Rank 0 waits for results of any worker, and all of those compute."""
    if RANK:
        held(loop_in_python)
        comm.send(RANK, dest=0, tag=1)
    else:
        here()
        for _ in range(3):
            comm.recv(tag=1)


def mpi_part(comm: Any) -> None:
    """Ranks 0 and 1 have a communicator, and rank 1 does not enter its barrier; 2 and 3 compute."""
    part = comm.Split(RANK // 2)
    comm.Barrier()
    if RANK == 0:
        here()
    else:
        held(sleep if RANK == 1 else loop_in_python)
    part.Barrier()


def mpi_tag(comm: Any) -> None:
    """Rank 0 has sent with another tag than rank 1 receives with."""
    if RANK == 0:
        comm.send(1, dest=1, tag=1)
    here()
    if RANK == 1:
        comm.recv(source=0, tag=2)
    comm.Barrier()


def mpi_ssend(comm: Any) -> None:
    here()
    comm.ssend(1, dest=(RANK + 1) % 4)


def mpi_root(comm: Any) -> None:
    here()
    comm.Bcast(bytearray(1 << 20), root=1 if RANK == 3 else 0)
    comm.Barrier()


MPI = {
    "mpi-late": mpi_late,
    "mpi-farm": mpi_farm,
    "mpi-part": mpi_part,
    "mpi-tag": mpi_tag,
    "mpi-ssend": mpi_ssend,
    "mpi-root": mpi_root,
}


def main() -> None:
    global current, is_released
    listen_for_signals()
    is_mpi = sys.argv[1] in MPI
    if is_mpi:
        from mpi4py import MPI as mpi
    else:
        import torch
        import torch.distributed as dist
    for current in sys.argv[1:]:
        is_released = False
        if is_mpi:
            MPI[current](mpi.COMM_WORLD)
            continue
        if current != "init":
            start(dist)
        TORCH[current](dist, torch)


if __name__ == "__main__":
    main()
