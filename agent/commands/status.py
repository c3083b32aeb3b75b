"""`a4-agent status`: what this pod is doing, and with whom. Reads files only, so it always answers."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from agent.commands.pod import read_plan, read_state, run_dir
from agent.paths import RunDir

FRESH_SECONDS = 30.0
PHASES = {
    "preparing": "is starting",
    "waiting": "waits for the coordinator to connect",
    "forming": "is forming the cluster",
    "formed": "has the plan and waits for the run",
    "running": "takes part in a run",
    "sleeping": "sleeps after its run (SLEEP_INFINITY)",
    "ended": "has ended",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("status", description="Shows what the agent of this pod is doing.")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    directory = run_dir()
    state = read_state(directory)
    alive = _alive_seconds(directory)
    if args.json:
        import json

        plan = read_plan(directory)
        data = {"state": state, "alive_seconds_ago": alive, "plan": plan.to_json() if plan else None}
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
    elif state is None:
        sys.stdout.write(f"no a4-agent has been started in this pod ({directory.path} holds no state)\n")
    else:
        sys.stdout.write(describe(state, alive, time.time()))
        plan = read_plan(directory)
        if plan is not None:
            sys.stdout.write(f"plan: {len(plan.peers)} pods x {plan.slots} slots; a4-agent peers lists them\n")
    return 0


def describe(state: dict[str, Any], alive: float | None, now: float) -> str:
    """The state in a few lines. `alive` is the age of the agent's last sign of life, in seconds."""
    phase = state["phase"]
    lines = [
        f"pod {state['index']} of {state['pods']} {PHASES.get(phase, phase)}, since {_ago(now - state['since'])}",
        f"epoch {state['epoch']}, a4-agent {state['agent']}",
    ]
    if phase != "ended" and (alive is None or alive > FRESH_SECONDS):
        lines.append("the agent itself gives no sign of life: it was killed or hangs")
    if "run" in state:
        lines.append(f"run {state['run']['id']} ({state['run']['workload']})")
    for index, why in state.get("missing", {}).items():
        lines.append(f"  missing pod {index}: {why}")
    for index, why in state.get("lost", {}).items():
        lines.append(f"  lost pod {index}: {why}")
    if "end" in state:
        end = state["end"]
        where = f" ({end['where']})" if end.get("where") else ""
        lines.append(f"the job's end: exit code {end['code']}, {end['what']}{where}")
        lines += [f"  {line}" for line in end.get("why", "").splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _alive_seconds(directory: RunDir) -> float | None:
    try:
        return max(0.0, time.time() - os.stat(directory.alive).st_mtime)
    except OSError:
        return None


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
