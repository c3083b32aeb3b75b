"""The torchrun command line, and what its end means."""

from __future__ import annotations

from typing import Any

import pytest

from agent.decide.torchrun import (
    TorchrunTarget,
    set_by_agent,
    torchrun_end,
    torchrun_launch,
    torchrun_target,
    with_command,
)
from agent.launch import Launch
from tests.decide.test_torch_failures import entry, summary


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


def test_only_node_0_listens_on_the_interface_that_is_named_unless_the_user_has_named_one() -> None:
    assert launch(node_rank=0).port == 6002 and launch(node_rank=1).port == 0
    made = launch(env={"TP_SOCKET_IFNAME": "ib0"})
    assert made.env["GLOO_SOCKET_IFNAME"] == "eth0" and made.env["TP_SOCKET_IFNAME"] == "ib0"
    assert made.added == ["GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"]
    assert "GLOO_SOCKET_IFNAME" not in launch(interface="").env


@pytest.mark.parametrize(
    ("per_node", "env", "threads"),
    [
        (8, {}, "1"),
        (1, {}, None),
        (8, {"OMP_NUM_THREADS": ""}, ""),
    ],
)
def test_threads_by_torchruns_own_rule(per_node: int, env: dict[str, str], threads: str | None) -> None:
    made = launch(per_node=per_node, env=env)
    assert made.env.get("OMP_NUM_THREADS") == threads
    assert ("OMP_NUM_THREADS" in made.added) == (threads == "1")


@pytest.mark.parametrize(
    ("typed", "kind", "word", "rest"),
    [
        ("--max-restarts 3 --tee=3 -r 1 sub/train.py", "script", "sub/train.py", []),
        ("--max_restarts=3 --standalone train.py -m x", "script", "train.py", ["-m", "x"]),
        ("--run-path train.py", "path", "train.py", []),
        ("-m package.train 1", "module", "package.train", ["1"]),
        ("--module --nproc_per_node 2 package.train", "module", "package.train", []),
        ("--no-python bash -c date", "program", "bash", ["-c", "date"]),
        ("--of-a-later-release x train.py", "", "", []),
        ("-r3 train.py", "", "", []),
        ("--max-restarts", "", "", []),
        ("--max-restarts 3", "", "", []),
    ],
)
def test_what_torchrun_is_to_start(typed: str, kind: str, word: str, rest: list[str]) -> None:
    assert torchrun_target(typed.split(), {}) == TorchrunTarget(kind, word, tuple(rest))
    assert torchrun_target(["package.train"], {"PET_MODULE": "1"}) == TorchrunTarget(), "it is left to torchrun"


@pytest.mark.parametrize(
    ("typed", "what", "hint"),
    [
        ("train.py --nnodes 2", "", ""),
        ("--max-restarts 3 --rdzv-conf timeout=900 train.py", "", ""),
        (
            "--nnodes=2 train.py",
            "a4-agent sets --nnodes of torchrun itself",
            "leave it out; --nodes N takes the first N",
        ),
        (
            "--nnodes 2 --nproc_per_node=8 --rdzv_backend c10d --rdzv-endpoint=head:29500 train.py",
            "a4-agent sets --nnodes, --nproc-per-node, --rdzv-backend and --rdzv-endpoint of torchrun itself",
            "leave them out; --nodes N takes the first N pods; a4-agent torchrun --nproc-per-node N",
        ),
        (
            "--max-restarts 3 --standalone -m package.train",
            "a4-agent sets --standalone of torchrun itself",
            "--nodes 1",
        ),
    ],
)
def test_options_that_the_agent_sets(typed: str, what: str, hint: str) -> None:
    """All of them are told at once, as they come from one line of a script."""
    found = set_by_agent(typed.split())
    assert (found[0], hint in found[1]) == (what, True) and bool(found[1]) == bool(what), found


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("--max-restarts 3 train.py -m x", "--max-restarts 3 --no-python hold python -u train.py -m x"),
        ("-m --max_restarts=3 package.train 1", "--max_restarts=3 --no-python hold python -u -m package.train 1"),
        ("--no_python bash -c date", "--no-python hold bash -c date"),
    ],
)
def test_a_program_before_that_of_the_ranks(typed: str, command: str) -> None:
    words = typed.split()
    assert with_command(words, torchrun_target(words, {}), "python", ["hold"]) == command.split()


NO_TORCH = (
    "/usr/bin/python3: Error while finding module specification for 'torch.distributed.run' "
    "(ModuleNotFoundError: No module named 'torch')\n"
)
BUSY = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
    "port: 6002, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
)
BUSY_2_4 = """
  File "/opt/torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py", line 66, in next_rendezvous
    self._store = TCPStore(  # type: ignore[call-arg]
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: The server socket has failed to listen on any local network address. useIpv6: 0, code: -98, name: \
EADDRINUSE, message: address already in use
"""
"""torch 2.4.1, which does not name the port."""


def failed(code: int) -> str:
    return summary(entry(0, 8, code), entry(1, 9, 1))


@pytest.mark.parametrize(
    ("status", "output", "end"),
    [
        (-9, "", (137, "torchrun was killed by signal 9", True)),
        (1, NO_TORCH, (66, "python3 has no torch: set A4_PYTHON to a Python that has", False)),
        (1, "ModuleNotFoundError: No module named 'torch'", (1, "torchrun ended with exit code 1", True)),
        (1, BUSY, (71, "MASTER_PORT 6002 is in use: set another one", False)),
        (1, BUSY_2_4, (71, "MASTER_PORT 6002 is in use: set another one", False)),
        (1, BUSY_2_4.splitlines()[-1], (1, "torchrun ended with exit code 1", True)),  # of a rank's own socket
        (1, BUSY.replace("6002", "29500"), (1, "torchrun ended with exit code 1", True)),
        (1, failed(7), (1, "torchrun ended with exit code 1: rank 8 ended with exit code 7", True)),
        (1, failed(-9), (1, "torchrun ended with exit code 1: rank 8 was killed by signal 9", True)),
        (1, "Root Cause (first observed failure):\n?", (1, "torchrun ended with exit code 1: a process failed", True)),
    ],
)
def test_ends(status: int, output: str, end: tuple[int, str, bool]) -> None:
    assert torchrun_end(status, output, python="python3", port=6002) == end
