"""A child of find-slow that holds memory of a GPU is killed: prints the free memory before and at once after that.

held_memory.py ENTRYPOINTS
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from typing import Any

sys.path.insert(0, sys.argv[1])
import torch
from find_slow_member import FollowingMember, JsonLines, Say

HELD_BYTES = 8 << 30
ours, theirs = socket.socketpair()


def hold(say: Say) -> None:
    memory = torch.ones(HELD_BYTES, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    say(memory.numel())
    theirs.sendall(b'{"stop": 1}\n')
    while True:
        signal.pause()


def measured(kind: str) -> Any:
    works = {"hold": lambda told: [hold], "free": lambda told: [lambda say: say(torch.cuda.mem_get_info()[0])]}
    return FollowingMember(JsonLines(ours), works).measure({"kind": kind, "task": 1, "deadline": 60.0})[0]


print(json.dumps([measured("free"), measured("hold"), measured("free")]))
