"""The torchrun command line, and what its end means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.decide.ending import exit_code
from agent.decide.words import listed
from agent.errors import Exit
from agent.launch import Launch

MODULE = "torch.distributed.run"
FLAGS = ("--standalone", "--virtual-local-rank", "--use-agent-store")
WITH_VALUE = (
    "--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--max-restarts",
    "--monitor-interval", "--start-method", "--event-log-handler", "--role", "--log-dir", "--redirects", "--tee", "-r",
    "-t", "--local-ranks-filter", "--duplicate-stdout-filters", "--duplicate-stderr-filters", "--node-rank",
    "--master-addr", "--master-port", "--local-addr", "--logs-specs", "--numa-binding", "--signals-to-handle",
    "--shutdown-timeout", "--log-line-prefix-template",
)  # fmt: skip
KINDS = {"-m": "module", "--module": "module", "--no-python": "program", "--run-path": "path"}
"""torchrun's options of torch 2.4 to 2.15: without a value, with one, and those that say what it is to start."""
SET_BY_AGENT = {
    "--nnodes": "--nodes N takes the first N pods",
    "--nproc-per-node": "a4-agent torchrun --nproc-per-node N starts N processes on each pod",
    "--node-rank": "",
    "--master-addr": "",
    "--master-port": "MASTER_PORT in the shell sets the port",
    "--rdzv-backend": "",
    "--rdzv-endpoint": "",
    "--rdzv-id": "",
    "--standalone": "--nodes 1 takes one pod",
}
"""Options that would contradict what the agent gives torchrun, and what to type instead of some. A rendezvous is not
needed: which pods there are is known, and so is the first."""
_NO_PORT = r"static_tcp_rendezvous\.py.{0,300}local network address\. useIpv6: .{0,80}EADDRINUSE"
"""How torch 2.4 says, without the port, that torchrun cannot listen at MASTER_PORT."""


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
    given = {**socket_variables(interface, env), **thread_variables(per_node, env)}
    words = [str(word) for pair in options.items() for word in pair]
    return Launch(
        [python, "-m", MODULE, *words, *args],
        {**env, **given},
        cwd,
        added=list(given),
        port=0 if node_rank else port,
    )


def socket_variables(interface: str, env: Mapping[str, str]) -> dict[str, str]:
    """gloo and TensorPipe would take the address of the host name, which is the node's, or loopback: they get the
    `interface`, unless `env` has one already."""
    return {name: interface for name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME") if interface and not env.get(name)}


def thread_variables(per_node: int, env: Mapping[str, str]) -> dict[str, str]:
    """What torchrun would set itself, with a banner of four lines on every pod."""
    return {"OMP_NUM_THREADS": "1"} if per_node > 1 and "OMP_NUM_THREADS" not in env else {}


class TorchrunTarget(NamedTuple):
    """What torchrun is to start: a "script", which Python reads, a "path", which torchrun's own does, a "module" or a
    "program"; empty: nobody knows."""

    kind: str = ""
    word: str = ""
    rest: tuple[str, ...] = ()


def torchrun_target(words: Sequence[str], env: Mapping[str, str]) -> TorchrunTarget:
    """What torchrun takes of these words, its own options first, to be started. Options that are not known here, and
    those in variables, leave it open."""
    if any(env.get(f"PET_{name}") for name in ("MODULE", "NO_PYTHON", "RUN_PATH")):
        return TorchrunTarget()
    names, at = _options(words)
    if at >= len(words) or words[at].startswith("-"):
        return TorchrunTarget()
    kind = next((KINDS[name] for name in reversed(names) if name in KINDS), "script")
    return TorchrunTarget(kind, words[at], tuple(words[at + 1 :]))


def _options(words: Sequence[str]) -> tuple[Sequence[str], int]:
    """torchrun's own options at the beginning, by their names with dashes, and how many words they are. The first that
    is not known here ends them."""
    names, at = [], 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, _ = words[at].partition("=")
        name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
        if name not in (*WITH_VALUE, *FLAGS, *KINDS):
            break
        names.append(name)
        at += 2 if name in WITH_VALUE and not equals else 1
    return names, at


def set_by_agent(words: Sequence[str]) -> tuple[str, str]:
    """What is wrong with torchrun's options in these words, and what to type; both are empty when nothing is."""
    wrong = [name for name in dict.fromkeys(_options(words)[0]) if name in SET_BY_AGENT]
    if not wrong:
        return "", ""
    instead = [SET_BY_AGENT[name] for name in wrong if SET_BY_AGENT[name]]
    leave = "leave it out" if len(wrong) == 1 else "leave them out"
    return f"a4-agent sets {listed(wrong)} of torchrun itself", "; ".join([leave, *instead])


def with_command(words: Sequence[str], target: TorchrunTarget, python: str, before: Sequence[str]) -> list[str]:
    """The same words for torchrun, but with `before` in front of the command that it would make of the target."""
    options = [word for word in words[: -1 - len(target.rest)] if word.replace("_", "-") not in KINDS]
    command = {"program": [], "script": [python, "-u"], "module": [python, "-u", "-m"]}[target.kind]
    return [*options, "--no-python", *before, *command, target.word, *target.rest]


class TorchrunEnd(NamedTuple):
    """What an end of torchrun means."""

    code: int
    """The exit code to end with."""
    sentence: str
    """What happened."""
    of_program: bool
    """The code is the program's own."""


def torchrun_end(status: int, output: str, *, python: str, port: int) -> TorchrunEnd:
    """The meaning of a `status` other than 0 (negative: killed by that signal), after the end of what was printed."""
    code = exit_code(status)
    text = " ".join(output.split())
    if re.search(rf"Error while finding module specification for '{MODULE}'|No module named {MODULE}\b", text):
        return TorchrunEnd(Exit.MISSING_PROGRAM, f"{python} has no torch: set A4_PYTHON to a Python that has", False)
    if re.search(rf"port: {port}\D.{{0,80}}EADDRINUSE|:{port}\D.{{0,80}}[Aa]ddress already in use|{_NO_PORT}", text):
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
