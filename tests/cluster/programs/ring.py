"""Processes, one on each pod, that pass a word around: each fails as soon as a neighbour is gone, or silent for long.

    ring.py SECONDS [TURNS]

`SECONDS` of silence are too long. Without `TURNS` it never ends by itself, else it makes /mnt/done-POD at its end. Each
that the word has reached makes /mnt/turns-POD.
"""

import os
import socket
import sys
import time

PORT = 7077 + int(os.environ.get("LOCAL_RANK", "0"))  # a ring of each local rank of torchrun

seconds, turns = float(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else None
with open(f"/run/a4-agent/runs/{os.environ['A4_RUN']}/hostfile-1pernode") as file:
    names = [line.split()[0] for line in file]
pod, rank = os.environ["JOB_COMPLETION_INDEX"], int(os.environ["A4_NODE_RANK"])
server = socket.create_server(("", PORT))
until = time.monotonic() + 120
while True:
    try:
        after = socket.create_connection((names[(rank + 1) % len(names)], PORT), timeout=seconds)
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.1)
server.settimeout(120)
before, _ = server.accept()
before.settimeout(120)  # it may still wait for the next
turn = 0
while turn != turns:
    after.sendall(b"x")
    if not before.recv(1):
        raise ConnectionError(f"the process before rank {rank} has gone")
    before.settimeout(seconds)
    if turn == 0:
        open(f"/mnt/turns-{pod}", "w").close()
    turn += 1
    time.sleep(0.1)
open(f"/mnt/done-{pod}", "w").close()
