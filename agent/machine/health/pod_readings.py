"""What `a4-agent doctor` reads in one pod: each part in a thread, with a time of its own."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent.machine.asking import ask
from agent.machine.files import read
from agent.machine.gpus import module_version
from agent.machine.health.gpu_probe import probe
from agent.machine.inventory import InventoryPart, gathered
from agent.machine.nics import nics, rdma
from agent.machine.resources import gpu_count, resources

SMI_DIRECTORY = "/usr/local/nvidia/bin"
"""Where GKE puts nvidia-smi: not every image has that on its PATH."""
AGAIN = 0.5
"""Seconds after which a name is looked up again."""
KERNEL_RECORD_BYTES = 8192
"""The kernel hands out a record at a time, and refuses one that does not fit."""


class Question(NamedTuple):
    """What is to be read."""

    environ: Mapping[str, str]
    """What workloads of this pod get."""
    paths: Sequence[str]
    """Directories whose disks are looked at."""
    peers: Sequence[str]
    """Names that are looked up."""
    run: str = ""
    """The run that has the cluster: GPUs are not computed with meanwhile."""


def read_pod(question: Question, root: str = "/") -> dict[str, Any]:
    """Everything; `problems` says of each part that could not be read why. Takes 30 s at most."""
    environ = question.environ
    parts = {
        "resources": InventoryPart(lambda: {**resources(root), "gpu_files": gpu_count(root)}, 5.0),
        "nics": InventoryPart(lambda: {"nics": nics({}, root), "rdma": rdma(root)}, 10.0),
        "disks": InventoryPart(lambda: {"disks": [disk(path) for path in question.paths]}, 5.0),
        "names": InventoryPart(lambda: {"names": names(question.peers)}, 10.0),
    }
    driver = module_version(root)
    if driver or gpu_count(root):
        parts |= {
            "gpus": InventoryPart(lambda: {"nvidia_smi": nvidia_smi(environ)}, 25.0),
            "xids": InventoryPart(lambda: {"kernel_log": kernel_log(root)}, 5.0),
            "probes": InventoryPart(lambda: {"probes": probe(environ, gpu_count(root), question.run)}, 28.0),
        }
    return {**gathered(parts), "driver": driver}


def nvidia_smi(environ: Mapping[str, str]) -> str:
    """All that it says, as XML. Raises OSError."""
    path = os.pathsep.join((environ.get("PATH", os.defpath), SMI_DIRECTORY))
    program = shutil.which("nvidia-smi", path=path)
    if program is None:
        raise FileNotFoundError(errno.ENOENT, f"nvidia-smi is not on PATH, nor in {SMI_DIRECTORY}")
    answer = ask("nvidia-smi", [program, "-q", "-x"], {**environ, "LD_PRELOAD": ""}, 20.0)
    if answer.problem:
        raise OSError(answer.problem)
    return answer.output


def kernel_log(root: str) -> dict[str, Any]:
    """Its `records`, and the `uptime` in seconds. Raises OSError where this pod may not read it, as most may not."""
    pieces = []
    log = os.open(os.path.join(root, "dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                pieces.append(os.read(log, KERNEL_RECORD_BYTES))
            except BrokenPipeError:  # records were overwritten meanwhile
                continue
            except BlockingIOError:
                break
            if not pieces[-1]:
                break
    finally:
        os.close(log)
    uptime = float((read(os.path.join(root, "proc/uptime")) or "0").split()[0])
    return {"records": b"".join(pieces).decode(errors="replace").splitlines(), "uptime": uptime}


def disk(path: str) -> dict[str, Any]:
    """Bytes and files of the file system that has a directory, which need not be there yet."""
    while path != "/" and not os.path.lexists(path):
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path)
    except OSError as error:
        return {"path": path, "problem": f"{error.strerror}"}
    sizes = {"bytes": found.f_blocks * found.f_frsize, "bytes_free": found.f_bavail * found.f_frsize}
    return {"path": path, "problem": "", **sizes, "files": found.f_files, "files_free": found.f_favail}


def names(peers: Sequence[str]) -> list[dict[str, Any]]:
    """How long the resolver takes for each. A slow one is looked up again: the core may have been busy."""
    found = [_look_up(name) for name in peers]
    return [_look_up(one["name"]) if one["seconds"] >= AGAIN or one["problem"] else one for one in found]


def _look_up(name: str) -> dict[str, Any]:
    began, problem = time.monotonic(), ""
    try:
        socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        problem = str(error.strerror)
    return {"name": name, "seconds": round(time.monotonic() - began, 3), "problem": problem}
