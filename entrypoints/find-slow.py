"""Measures pods, alone and in pairs, to find those that are slow or hang: one of these runs on every pod.

    python -ES find-slow.py --rank N --nodes N --lead HOST --port N --token WORD [--interface NAME] [--seconds S]
    [--over tcp|gloo|nccl] [--torch PROGRAM] [--next JSON]

The process of rank 0 conducts: it listens at PORT and tells all others, task by task, what to measure, and with whom.
That is decided by the command `--next`, which gets {"measured": [[round, rank, rank, speed, rail], …], "gathered":
[[ranks, speed], …], "over": …} on stdin and prints {"rounds": [[[rank, rank], …], …]} or {"groups": [[rank, …], …]},
or {} at the end. The token keeps out processes of other runs; it is not secret.

Everything is measured by children, which are killed at their deadline. Over `tcp` that needs nothing else. Else each
process becomes find-slow-torch.py, under the Python `--torch`, and measures all GPUs at a time. Without `--over` it is
nccl where all pods have GPUs and torch finds them, else tcp.

Conductor and members write JSON lines: {"token", "rank", "address", "port", "devices"} from a member first; then
{"task", "kind", "deadline", …} to it, and {"task", "values"} back, 0 for what did not end in time; {"stop": task} where
others have long ended; and {"end": true} to all. The file A4_RECORD gets:

  {"step": "start", "version": 2, "nodes": n, "time": s}
  {"step": "over", "over": "nccl", "rails": 8, "torch": "2.11.0", "nccl": "2.28.9", "why": "…"}
  {"step": "gpus", "speeds": [[rank, gpu, TFLOP/s, GB/s copied, GB/s to it, GB/s from it], …]}     only nccl
  {"step": "nvlink", "speeds": [[rank, GB/s], …]}                                                  only nccl
  {"step": "round", "number": 0, "pairs": [[0, 1, 1180.5, rail], …]}    MB/s, the slower direction; 0: a time-out
  {"step": "loopback", "speeds": [[rank, rail, MB/s], …]}                                     only nccl, two pods
  {"step": "gather", "groups": [[[rank, …], GB/s], …]}                                             not tcp
  {"step": "end", "time": s, "silent": [3]}                             who did not answer any more

Exit status: 0; 65 when a process did not answer; 66 when torch, or a GPU, is not there though `--over` wants it; 75
when not all came, or the conductor is lost; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import fcntl
import glob
import json
import os
import signal
import socket
import struct
import sys
import time
from contextlib import suppress

from find_slow_conductor import PATIENCE_SECONDS, Conductor
from find_slow_member import LOST, FollowingMember, JsonLines, await_gone, say
from find_slow_tcp import Exchange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIOCGIFADDR = 0x8915
TORCH_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "find-slow-torch.py")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measures pods to find those that are slow or hang.")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--lead", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--interface", default="")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--over", choices=("tcp", "gloo", "nccl"))
    parser.add_argument("--torch", default="python3")
    parser.add_argument("--next", type=json.loads)
    options = parser.parse_args(argv)
    if options.rank:
        return member(options)
    with socket.create_server(("", options.port), backlog=options.nodes) as server:
        if not (child := os.fork()):
            server.close()
            options.lead = "127.0.0.1"
            os._exit(member(options))
        try:
            return Conductor(options, server).conduct()
        finally:
            os.kill(child, signal.SIGKILL)
            await_gone({child})


def member(options: argparse.Namespace) -> int:
    lines = JsonLines(reach(options.lead, options.port))
    address = address_of(options.interface) or lines.connection.getsockname()[0]
    given = {name: getattr(options, name) for name in ("rank", "token", "seconds")} | {"address": address}
    with socket.create_server((address, 0)) as server:
        works = {
            "tcp": lambda told: [Exchange(server, given, told).run],
            "torch": lambda told: become(options, lines, server, {**given, **told}),
        }
        devices = len(glob.glob("/dev/nvidia[0-9]*"))
        lines.send(
            token=options.token, rank=options.rank, address=address, port=server.getsockname()[1], devices=devices
        )
        return FollowingMember(lines, works).follow()


def become(options: argparse.Namespace, lines: JsonLines, server: socket.socket, given: dict[str, Any]) -> list[Any]:
    """This process is find-slow-torch.py from now on; where that cannot be started, a child says why."""
    for each in (lines.connection, server):
        os.set_inheritable(each.fileno(), True)
    given |= {"connection": lines.connection.fileno(), "server": server.fileno()}
    if options.interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", options.interface)
    try:
        os.execvp(options.torch, [options.torch, TORCH_PROGRAM, json.dumps(given)])
    except OSError as error:
        why = f"{options.torch} cannot be started: {error.strerror}"
    return [lambda tell: tell({"why": why})]


def reach(host: str, port: int) -> socket.socket:
    """A connection to the conductor, as soon as it listens."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), timeout=PATIENCE_SECONDS)
        except OSError as error:
            if time.monotonic() > until:
                say(f"{host}:{port} does not answer: {error}")
                sys.exit(LOST)
            time.sleep(0.1)


def address_of(interface: str) -> str:
    """Its IPv4 address; empty for none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as some, suppress(OSError):
        asked = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(some, SIOCGIFADDR, asked)[20:24])
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
