"""The torchrun command line, and what its end means."""

from __future__ import annotations

from typing import Any

import pytest

from agent.decide.torchrun import torchrun_end, torchrun_launch
from agent.launch import Launch


def launch(**changes: Any) -> Launch:
    values: dict[str, Any] = {
        "python": "/opt/conda/bin/python",
        "nodes": 4,
        "node_rank": 2,
        "per_node": 8,
        "address": "pod-0.job",
        "port": 6002,
        "interface": "eth0",
        "log_dir": "/run/a4-agent/runs/x/torch-logs",
        "args": ["train.py", "--epochs", "3"],
        "env": {"PATH": "/bin", "HF_TOKEN": "canary"},
        "cwd": "/work",
    }
    return torchrun_launch(**{**values, **changes})


def test_static_rendezvous() -> None:
    made = launch()
    assert list(made.argv) == [
        *("/opt/conda/bin/python", "-m", "torch.distributed.run"),
        *("--nnodes", "4"),
        *("--node-rank", "2"),
        *("--nproc-per-node", "8"),
        *("--master-addr", "pod-0.job"),
        *("--master-port", "6002"),
        *("--log-dir", "/run/a4-agent/runs/x/torch-logs"),
        *("train.py", "--epochs", "3"),
    ]
    assert made.cwd == "/work"
    assert made.env["HF_TOKEN"] == "canary"
    assert not any("canary" in word for word in made.argv)


def test_only_node_0_listens() -> None:
    assert launch(node_rank=0).port == 6002
    assert launch(node_rank=1).port == 0


def test_the_interface_is_named_unless_the_user_has_named_one() -> None:
    made = launch(env={"TP_SOCKET_IFNAME": "ib0"})
    assert made.env["GLOO_SOCKET_IFNAME"] == "eth0" and made.env["TP_SOCKET_IFNAME"] == "ib0"
    assert made.added == ["GLOO_SOCKET_IFNAME"]
    assert "GLOO_SOCKET_IFNAME" not in launch(interface="").env


NO_TORCH = (
    "/usr/bin/python3: Error while finding module specification for 'torch.distributed.run' "
    "(ModuleNotFoundError: No module named 'torch')\n"
)
BUSY = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
    "port: 6002, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
)
FAILED = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_13:31:02
  rank      : 9 (local_rank: 1)
  exitcode  : 1 (pid: 28017)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_13:31:01
  host      : localhost
  rank      : 8 (local_rank: 0)
  exitcode  : {code} (pid: 28016)
  error_file: <N/A>
============================================================
"""


@pytest.mark.parametrize(
    ("status", "output", "end"),
    [
        (1, "", (1, "torchrun ended with exit code 1", True)),
        (-9, "", (137, "torchrun was killed by signal 9", True)),
        (1, NO_TORCH, (66, "python3 has no torch: set A4_PYTHON to a Python that has", False)),
        (1, "ModuleNotFoundError: No module named 'torch'", (1, "torchrun ended with exit code 1", True)),
        (1, BUSY, (71, "MASTER_PORT 6002 is in use: set another one", False)),
        (1, BUSY.replace("6002", "29500"), (1, "torchrun ended with exit code 1", True)),
        (
            1,
            FAILED.format(code=7),
            (1, "torchrun ended with exit code 1: rank 8 ended with exit code 7", True),
        ),
        (1, FAILED.format(code=-9), (1, "torchrun ended with exit code 1: rank 8 was killed by signal 9", True)),
        (1, "Root Cause (first observed failure):\n?", (1, "torchrun ended with exit code 1: a process failed", True)),
    ],
)
def test_ends(status: int, output: str, end: tuple[int, str, bool]) -> None:
    assert torchrun_end(status, output, python="python3", port=6002) == end
