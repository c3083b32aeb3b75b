"""Have NCCL look at two GPUs by its own diagnostics, which it has since 2.31.

    probe-nccl.py               two ranks, each a process of this program
    probe-nccl.py RANK FILE     one of them; they meet in FILE

Prints what rank 0 prints, and a JSON object at the end: `unknown`, why NCCL could not check, or empty. Runs under the
workload's Python. Only these ranks have the variables that switch the diagnostics on.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time

from loaded_nccl import loaded_nccl

SINCE = (2, 31)
RANKS = 2
DIAGNOSE = {"NCCL_RUN_DIAGNOSTICS": "1", "NCCL_RUN_RAS_DIAGNOSTICS": "1", "NCCL_RAS_ENABLE": "1"}
ALONE = {
    **{f"NCCL_{name}_PLUGIN": "none" for name in ("NET", "TUNER", "PROFILER")},
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_DEBUG": "",
}
"""Nothing that is shared with others is used: no fabric, no multicast of the NVSwitches, nobody's telemetry."""


def main() -> str:
    try:
        import torch
    except Exception as error:  # a broken torch raises whatever it likes
        return f"torch cannot be imported: {error}"
    if torch.cuda.device_count() < RANKS:
        return f"torch {torch.__version__} finds {torch.cuda.device_count()} GPUs, and it takes {RANKS}"
    version = loaded_nccl(torch)
    if version[:2] < SINCE:
        return f"NCCL {'.'.join(map(str, version))} has no diagnostics: {'.'.join(map(str, SINCE))} was the first"
    with tempfile.TemporaryDirectory() as directory:
        return both(os.path.join(directory, "meet"))


def both(file: str) -> str:
    environ = {**os.environ, **DIAGNOSE, **ALONE}
    first, second = ([sys.executable, __file__, str(rank), file] for rank in range(RANKS))
    other = subprocess.Popen(second, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        done = subprocess.run(first, env=environ, stderr=subprocess.PIPE, text=True)
        status = done.returncode or other.wait()
    finally:
        other.kill()
    last = done.stderr.strip().rpartition("\n")[2]
    return f"an all_reduce of two ranks ended with {status}: {last}" if status else ""


def rank(number: int, file: str) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(number)
    limit = datetime.timedelta(seconds=20)
    dist.init_process_group("nccl", init_method=f"file://{file}", rank=number, world_size=RANKS, timeout=limit)
    ones = torch.ones(1024, device="cuda")
    dist.all_reduce(ones)
    torch.cuda.synchronize()
    if bool((ones != RANKS).any()):
        sys.exit("the sum is wrong")
    time.sleep(2.0)  # NCCL's RAS thread prints when the communicator is there, and needs some 10 ms for it
    ctypes.CDLL(None).fflush(None)  # NCCL prints by C's stdout
    os._exit(0)  # destroying the communicator takes longer, and nobody needs it


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rank(int(sys.argv[1]), sys.argv[2])
    else:
        print(json.dumps({"unknown": main()}))
