"""Does each GPU compute, and what does NCCL say of two? Children side by side: one that hangs holds up nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent.machine.asking import ask
from agent.paths import shipped


def probe(environ: Mapping[str, str], count: int, run: str, seconds: float) -> list[dict[str, Any]]:
    """By GPU: `problem`, empty when it computes right, or `unknown`: why it could not be tried."""
    if run:
        return [{"index": index, "problem": "", "unknown": f"{run} has the cluster"} for index in range(count)]
    with ThreadPoolExecutor(max(1, count)) as pool:
        return list(pool.map(lambda index: probe_one(environ, str(index), seconds), range(count)))


def probe_nccl(environ: Mapping[str, str], run: str, seconds: float) -> dict[str, str]:
    """The `output` of NCCL's diagnostics on two GPUs, or `unknown`: why there is none, or not all of it."""
    if run:
        return {"output": "", "unknown": f"{run} has the cluster"}
    answer = ask("NCCL's probe", _argv(environ, "probe-nccl.py"), environ, seconds)
    output, _, last = answer.output.rstrip().rpartition("\n")
    try:
        return {"output": output, "unknown": str(json.loads(last)["unknown"])}
    except (ValueError, KeyError, TypeError):
        return {"output": answer.output, "unknown": answer.problem or "NCCL's probe said nothing"}


def _argv(environ: Mapping[str, str], program: str, *arguments: str) -> list[str]:
    python = environ.get("A4_PYTHON") or "python3"
    return [python, shipped("entrypoints", program), *arguments]


def probe_one(environ: Mapping[str, str], device: str, seconds: float) -> dict[str, Any]:
    answer = ask("the probe", _argv(environ, "probe-gpu.py", device), environ, seconds)
    found = {"index": device, "problem": "", "unknown": ""}
    try:
        told = json.loads(answer.output.splitlines()[-1])
        return {**found, "problem": str(told["problem"]), "unknown": str(told["unknown"])}
    except (IndexError, ValueError, KeyError, TypeError):
        # A child that computes and does not end is the fault that this looks for; one that has not begun is none.
        began = "computing" in answer.output
        return {**found, "problem" if began else "unknown": answer.problem or "the probe said nothing"}
