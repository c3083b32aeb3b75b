"""Starts ranks as torchrun does, many times: torch is imported once here, and every rank is a fork of this process.

Runs in torch's Python. Each line of stdin is a JSON object: "program", "args", "ranks", "env", and "home", a directory
that gets stdout and stderr of all ranks and, below log, their error files. One line of stdout answers when all have
ended: JSON, a list of [rank, status], the first to end first. As under torchrun a rank that fails ends the others, and
who is ended in that way is not listed.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from typing import Any, NoReturn

import torch
import torch._dynamo  # DDP imports it: as much work as torch itself
import torch.distributed
import torch.nn.parallel

HOST = "127.0.0.1"


def as_rank(given: dict[str, Any], rank: int, port: int) -> NoReturn:
    """Be that rank; `port` is a pipe that tells where the store is."""
    home, ranks = given["home"], str(given["ranks"])
    log = f"{home}/log/run/attempt_0/{rank}"
    os.makedirs(log)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    os.environ |= {"MASTER_ADDR": HOST, "MASTER_PORT": os.read(port, 100).decode()}
    os.environ |= {"TORCHELASTIC_RUN_ID": "run", "TORCHELASTIC_RESTART_COUNT": "0"}
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    os.environ["TORCHELASTIC_ERROR_FILE"] = f"{log}/error.json"
    for directory in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if os.path.exists(customized := os.path.join(directory, "sitecustomize.py")):
            runpy.run_path(customized)
    sys.argv = [given["program"], *given["args"]]
    sys.path.insert(0, os.path.dirname(given["program"]))
    runpy.run_path(given["program"], run_name="__main__")
    raise AssertionError("a rank program ends its process")


def run(given: dict[str, Any]) -> list[tuple[int, int]]:
    """Ranks and statuses of those that ended by themselves."""
    for name, fd in (("out", 1), ("err", 2)):
        os.dup2(os.open(f"{given['home']}/{name}", os.O_WRONLY | os.O_CREAT), fd)
    os.environ.clear()
    os.environ |= given["env"]
    pipes = [os.pipe() for _ in range(given["ranks"])]
    ranks = {fork(as_rank, given, rank, pipe[0]): rank for rank, pipe in enumerate(pipes)}
    # Its thread is started after the forks.
    store = torch.distributed.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    for _, end in pipes:
        os.write(end, str(store.port).encode())
    found: list[tuple[int, int]] = []
    ended = False
    while ranks:
        pid, status = os.wait()
        rank = ranks.pop(pid)
        if not ended or not os.WIFSIGNALED(status):
            found.append((rank, os.waitstatus_to_exitcode(status)))
        if status and not ended:
            ended = True
            for other in ranks:
                os.kill(other, signal.SIGTERM)
    return found


def answer(given: dict[str, Any], to: int) -> NoReturn:
    os.write(to, (json.dumps(run(given)) + "\n").encode())
    os._exit(0)


def fork(what: Any, *args: Any) -> int:
    """PID of a child that does that."""
    pid = os.fork()
    if not pid:
        try:
            what(*args)
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 1)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    return pid


def main() -> None:
    to = os.dup(1)
    for line in sys.stdin:
        os.waitpid(fork(answer, json.loads(line), to), 0)


if __name__ == "__main__":
    main()
    os._exit(0)  # Python takes its time to take torch down
