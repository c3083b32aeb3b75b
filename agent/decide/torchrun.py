"""The torchrun command line, and what its end means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.decide.ending import exit_code
from agent.errors import Exit
from agent.launch import Launch

MODULE = "torch.distributed.run"


def torchrun_launch(
    *,
    python: str,
    nodes: int,
    node_rank: int,
    per_node: int,
    address: str,
    port: int,
    interface: str,
    args: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    log_dir: str = "",
) -> Launch:
    """torchrun of one node, static rendezvous: node 0 listens at `address`:`port`, which the others dial.

    Without `log_dir` torchrun leaves a directory in /tmp behind.
    """
    options: dict[str, object] = {
        "--nnodes": nodes,
        "--node-rank": node_rank,
        "--nproc-per-node": per_node,
        "--master-addr": address,
        "--master-port": port,
    }
    if log_dir:
        options["--log-dir"] = log_dir
    words = [str(word) for pair in options.items() for word in pair]
    sockets = socket_variables(interface, env)
    return Launch(
        [python, "-m", MODULE, *words, *args],
        {**env, **sockets},
        cwd,
        added=list(sockets),
        port=0 if node_rank else port,
    )


def socket_variables(interface: str, env: Mapping[str, str]) -> dict[str, str]:
    """gloo and TensorPipe would take the address of the host name, which is the node's, or loopback: they get the
    `interface`, unless `env` has one already."""
    return {name: interface for name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME") if interface and not env.get(name)}


class TorchrunEnd(NamedTuple):
    """What torchrun printed of its end: our exit code, one sentence, whether it is the program's own."""

    code: int
    sentence: str
    of_program: bool


def torchrun_end(status: int, output: str, *, python: str, port: int) -> TorchrunEnd:
    """The meaning of a `status` other than 0 (negative: killed by that signal), after the end of what was printed."""
    code = exit_code(status)
    text = " ".join(output.split())
    if re.search(rf"Error while finding module specification for '{MODULE}'|No module named {MODULE}\b", text):
        return TorchrunEnd(Exit.MISSING_PROGRAM, f"{python} has no torch: set A4_PYTHON to a Python that has", False)
    if re.search(rf"port: {port}\D.{{0,80}}EADDRINUSE|:{port}\D.{{0,80}}[Aa]ddress already in use", text):
        return TorchrunEnd(Exit.SYSTEM, f"MASTER_PORT {port} is in use: set another one", False)
    if found := re.search(r"Root Cause \(first observed failure\):(.*)", text):
        return TorchrunEnd(code, f"torchrun ended with exit code {code}: {_root_cause(found[1])}", True)
    how = f"was killed by signal {-status}" if status < 0 else f"ended with exit code {code}"
    return TorchrunEnd(code, f"torchrun {how}", True)


def _root_cause(text: str) -> str:
    rank = re.search(r"rank\s*: (\d+)", text)
    code = re.search(r"exitcode\s*: (-?\d+)", text)
    if not rank or not code:
        return "a process failed"
    if code[1].startswith("-"):
        return f"rank {rank[1]} was killed by signal {code[1][1:]}"
    return f"rank {rank[1]} ended with exit code {code[1]}"
