"""Start a rank that waits for somebody (hold-rank.py), in this terminal: start-rank.py START [COMMAND...]

With COMMAND that is started in the rank's place: `bash` is a shell with the rank's environment. Ends as the rank does,
128 + n for a signal. Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
MOST_BYTES = 1 << 16


def main() -> None:
    start, *argv = sys.argv[1:]
    rank = start.rpartition("-")[2]
    try:
        holder = connect(start)
    except OSError:
        sys.exit(f"rank {rank} does not wait here: it was started already, or its run has not come to it or is over")
    if not os.isatty(0):
        print(f"rank {rank} gets no terminal, and breakpoint() needs one: kubectl exec needs -it", file=sys.stderr)

    def pass_on(number: int, _: object) -> None:
        try:
            holder.send(bytes([number]))
        except OSError:
            pass  # the rank is over

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # the rank would go on reading beside the shell
    wish = {"argv": argv, "term": os.environ.get("TERM", "")}
    try:
        socket.send_fds(holder, [json.dumps(wish).encode()], [0, 1, 2])
        answer = json.loads(holder.recv(MOST_BYTES) or "{}")
    except OSError:
        answer = {}
    if "status" not in answer:
        sys.exit(answer.get("error", f"rank {rank} was killed"))
    status = int(answer["status"])
    ended = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
    print(f"rank {rank} {ended}", file=sys.stderr)
    sys.exit(128 - status if status < 0 else status)


def connect(start: str) -> socket.socket:
    """By way of the directory: a socket's path may have 107 bytes only."""
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    directory, name = os.path.split(start)
    at = os.open(directory, os.O_PATH)
    holder.connect(f"/proc/self/fd/{at}/{name}.sock")
    os.close(at)
    return holder


if __name__ == "__main__":
    main()
