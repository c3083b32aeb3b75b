"""Stand-in for a rank with torch: torch_stand_in.py RANK RECORDING

Answers what torch's own server in a rank answers, on the Unix socket where the hook would have opened it, from a file
that has the answers of real ranks (tests/clinic/recorded): those of rank 2 for the rank that is behind, of rank 0 for
all others. It prints nothing, and stands still like them.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path

BEHIND = 5
RECORDED_BEHIND, RECORDED_OTHER = "2", "0"


def answers(rank: int, recording: str) -> dict[str, str]:
    """Body by handler."""
    recorded = json.loads(Path(recording).read_text())[RECORDED_BEHIND if rank == BEHIND else RECORDED_OTHER]
    return {
        "fr_trace_json": json.dumps(recorded["recorder"]),
        "dump_nccl_trace_json": json.dumps(recorded["nccl"]),
        "dump_traceback": recorded["traceback"],
    }


def serve(listener: socket.socket, bodies: dict[str, str]) -> None:
    while True:
        peer, _ = listener.accept()
        with peer:
            handler = peer.recv(1 << 16).split()[1].decode().strip("/").removeprefix("handler/")
            body = bodies.get(handler, "").encode()
            status = "200 OK" if handler in bodies else "404 Not Found"
            peer.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def load_batch() -> None:
    threading.Event().wait()


def all_reduce() -> None:
    threading.Event().wait()


def main() -> None:
    rank, directory = int(sys.argv[1]), os.environ["A4_WHY_DIR"]
    Path(directory, str(os.getpid())).write_text(f"{rank}\n")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{directory}/{os.getpid()}.sock")
    listener.listen()
    threading.Thread(target=serve, args=(listener, answers(rank, sys.argv[2])), daemon=True).start()
    Path(f"/tmp/stands-{rank % 2}").touch()
    load_batch() if rank == BEHIND else all_reduce()


if __name__ == "__main__":
    main()
