"""Stands in for the programs of nccl-tests, under their names: speaks MPI, prints their tables, logs as NCCL does.

STAND_IN says what it does otherwise than a good release with -J: words, spaces between them.
"""

import json
import os
import socket
import sys
import time

STAND_IN = os.environ.get("STAND_IN", "").split()
NAME = os.path.basename(sys.argv[0])
REDOP = "sum" if "reduce" in NAME else "none"
GBS = float(os.environ.get("STAND_IN_GBS", "344"))
USAGE = f"USAGE: {NAME} \n\t[-b,--minbytes <min size in bytes>] \n\t" + (
    "" if "old" in STAND_IN else "[-J,--output_file <file>] \n\t[-h,--help]"
)
HEADER = """\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
"""


def option(letter: str, default: str) -> str:
    found = [sys.argv[i + 1] for i, word in enumerate(sys.argv) if word == f"-{letter}"]
    return found[-1] if found else default


def size(text: str) -> int:
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]]


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def log(rank: int) -> None:
    """What NCCL writes at NCCL_DEBUG=INFO."""
    path = os.environ["NCCL_DEBUG_FILE"].replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
    network, device = "gIB", f"{rank % 2}/GDRDMA"
    found = "[0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"
    token = os.environ.get("HF_TOKEN", "")
    lines = [
        "NCCL INFO NCCL version 2.28.9+cuda13.0",
        f"NCCL INFO NET/{network} : Using {found}",
        f"NCCL INFO Initialized NET plugin {network}",
        f"NCCL INFO Assigned NET plugin {network} to comm",
        f"NCCL INFO Using network {network}",
        "NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer",
        f"NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/{network}/{device}",
        f"NCCL INFO HF_TOKEN is {token}",
    ]
    if "warns" in STAND_IN:
        lines.append(f"misc/socket.cc:484 (connectOnce) NCCL WARN something is odd with {token}")
    assert os.environ["NCCL_DEBUG"] == "INFO"
    with open(path, "w") as file:
        file.writelines(f"host:{os.getpid()}:1 [0] {line}\n" for line in lines)


def main() -> None:
    if "--help" in sys.argv:
        say(USAGE)
        return
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    rank = world.rank
    log(rank)
    if "dies" in STAND_IN and rank == 1:
        say("host: Test NCCL failure common.cu:123 'unhandled system error'\n")
        os._exit(3)
    hosts = world.gather(socket.gethostname())
    if rank == 0:
        assert hosts is not None
        measure(hosts)
    if "hangs" in STAND_IN:
        world.Barrier()
        open("/mnt/hangs", "w").close()
        time.sleep(3600)
    world.Barrier()


def measure(hosts: "list[str]") -> None:
    iterations, warmup = int(option("n", "20")), int(option("w", "1"))
    if "old" not in STAND_IN:
        say("# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809\n")
        say(f"# Collective test starting: {NAME}\n")
    say(f"# nThread 1 nGpus 1 minBytes 1 maxBytes 2 step: 2(factor) warmup iters: {warmup} iters: {iterations} agg\n")
    devices = []
    for rank, host in enumerate(hosts):
        say(f"#  Rank {rank:2} Group  0 Pid {os.getpid():6} on {host:>10} device  0 [0000:8f:00] NVIDIA B200\n")
        devices.append({"rank": rank, "group": 0, "hostname": host, "device_info": "NVIDIA B200"})
    say(HEADER)
    results, speeds = [], []
    at, last = size(option("b", "32M")), size(option("e", "32M"))
    while at <= last:
        busbw = GBS * (1 if at >= 1 << 29 else 0.5)
        figures = {"time": at / busbw / 1e3, "alg_bw": busbw, "bus_bw": busbw, "nwrong": 0.0}
        text = f"{figures['time']:9.1f} {busbw:7.2f} {busbw:7.2f}       0"
        say(f"{at:12} {at // 4:13}     float {REDOP:>7}      -1{text}{text}\n")
        row = {"size": at, "count": at // 4, "type": "float", "redop": REDOP, "root": "    -1"}
        results.append({**row, "out_of_place": figures, "in_place": figures, "actual_iterations": iterations})
        speeds.append(busbw)
        at *= 2
    average = sum(speeds) / len(speeds)
    if "hangs" not in STAND_IN:  # who has printed this is at its end
        say(f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {average:g} \n#\n")
    if "-J" in sys.argv:
        assert "old" not in STAND_IN
        with open(option("J", ""), "x") as file:
            known = {
                "version": 3,
                "args": sys.argv,
                "env": [f"{name}={value}" for name, value in os.environ.items()],
                "nccl_version": 22809,
                "config": {
                    "nthreads": 1,
                    "ngpus": 1,
                    "iterations": iterations,
                    "warmup_iters": warmup,
                    "devices": devices,
                },
                "results": results,
                "out_of_bounds": {"count": 0, "okay": "true"},
                "average_bus_bandwidth": {"bandwidth": average, "okay": "unchecked"},
            }
            json.dump(known, file)


if __name__ == "__main__":
    main()
