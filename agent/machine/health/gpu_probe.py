"""Does each GPU compute? A child per GPU, all side by side: one that hangs holds up nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent.machine.asking import ask
from agent.paths import shipped

PROGRAM = "probe-gpu.py"


def probe(environ: Mapping[str, str], count: int, run: str) -> list[dict[str, Any]]:
    """By GPU: `problem`, empty when it computes right, or `unknown`: why it could not be tried."""
    if run:
        return [{"index": index, "problem": "", "unknown": f"{run} has the cluster"} for index in range(count)]
    with ThreadPoolExecutor(max(1, count)) as pool:
        return list(pool.map(lambda index: _probe_one(environ, str(index)), range(count)))


def _probe_one(environ: Mapping[str, str], device: str) -> dict[str, Any]:
    python = environ.get("A4_PYTHON") or "python3"
    argv = [python, shipped("entrypoints", PROGRAM), device]
    # Importing torch takes up to 10 s from a cold disk; the computing itself has 15.
    answer = ask("the probe", argv, environ, 25.0)
    found = {"index": device, "problem": "", "unknown": ""}
    try:
        told = json.loads(answer.output.splitlines()[-1])
        return {**found, "problem": str(told["problem"]), "unknown": str(told["unknown"])}
    except (IndexError, ValueError, KeyError, TypeError):
        # A child that computes and does not end is the fault that this looks for; one that has not begun is none.
        began = "computing" in answer.output
        return {**found, "problem" if began else "unknown": answer.problem or "the probe said nothing"}
