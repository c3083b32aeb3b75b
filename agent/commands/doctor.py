"""`a4-agent doctor`: is each pod healthy?"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from agent.client import Client, RunEnd
from agent.clinic.doctor.counted import readings_of
from agent.clinic.doctor.gate import examine_all, fatal_pods
from agent.clinic.doctor.telling import report
from agent.clinic.probes.pod_readings import read_pod
from agent.commands.answers import VERSION, DoctorAnswer, write
from agent.commands.following import RunFollower
from agent.commands.options import working_directory
from agent.commands.pod import agent_environment, next_peers, of_caller, read_state
from agent.commands.printing import terminal_columns
from agent.decide.facts import Finding
from agent.decide.inventory import fabric_variables
from agent.decide.leaving_out import without_them
from agent.decide.plan import Plan
from agent.decide.runspec import RunSpec
from agent.environment import find_plan, load
from agent.errors import Exit
from agent.fabrics import needs, problems
from agent.fabrics.profiles import NONE
from agent.machine.api import Search
from agent.output import STDOUT, Sink, say
from agent.paths import RunDir, agent_command

DESCRIPTION = (
    "Checks GPUs, network devices, memory and limits, disks and names of all pods of the cluster, or of this pod if "
    "no cluster is formed, and says what is wrong and what to do about it. Changes nothing, and computes on GPUs only "
    "while no run occupies the cluster. Exits with 65 on a fatal finding, with 69 if a pod did not answer."
)
EXAMPLES = """\
a4-agent doctor
a4-agent doctor --hosts 0,4-7 --strict
"""
MOST_ANSWER = 4 << 20
SLOTS = 8
"""As GPUS_PER_NODE has by default."""


def add_options(parser: argparse.ArgumentParser) -> None:
    whom = parser.add_mutually_exclusive_group()
    whom.add_argument("--here", action="store_true", help="only this pod")
    whom.add_argument("--hosts", action="append", default=[], metavar="HOST", help="these pods, such as 0,4-7")
    parser.add_argument("--strict", action="store_true", help="exit with 65 also if a check could not run")
    # What the gate asks of each pod: the pod's directory, and the run that waits for it.
    parser.add_argument("--readings", nargs="?", const="", metavar="DIRECTORY", help=argparse.SUPPRESS)
    parser.add_argument("--before", default="", metavar="RUN", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="all findings as JSON, including those that are ok")


def run(args: argparse.Namespace) -> int:
    """65 with a fatal finding, 69 when a pod did not answer. Raises AgentError."""
    directory = RunDir(args.readings or "")
    plan = find_plan(directory)
    if args.readings is not None:
        print(json.dumps(_read_here(directory, plan, args.before)))
        return 0
    state = read_state(directory)
    silent: dict[int, str] = {}
    if args.here or plan is None or state is None or state.phase == "ended":
        if not args.here:
            say("no cluster is formed: only this pod is checked")
        readings = {state.index if state else 0: _read_here(directory, plan)}
    else:
        lost = {} if args.hosts else state.lost_why()
        readings, silent = _read_all(args.hosts, lost)
    pods, nodes = _names([*readings, *silent], plan)
    findings = examine_all(readings, nodes)
    without = without_them(plan.peers if plan else (), fatal_pods(findings))
    if args.json:
        write(DoctorAnswer(VERSION, tuple(findings), silent))
    else:
        sys.stdout.write(report(findings, silent, pods, terminal_columns(), without))
    return exit_code(findings, silent, strict=args.strict)


def exit_code(findings: list[Finding], silent: Mapping[int, str], *, strict: bool) -> int:
    """A fatal finding counts for more than a pod that did not answer."""
    if fatal_pods(findings):
        return Exit.WRONG_RESULT
    if silent:
        return Exit.PEERS_MISSING
    return Exit.WRONG_RESULT if strict and any(one.state == "unknown" for one in findings) else 0


def _read_here(directory: RunDir, plan: Plan | None, before: str = "") -> dict[str, Any]:
    """`before`: a run that has the cluster, and has not begun."""
    environ = agent_environment(directory) or dict(os.environ)
    state = read_state(directory)
    run = state.run.id if state and state.run and state.run.id != before else ""
    slots = environ.get("GPUS_PER_NODE", "")
    paths = dict.fromkeys(["/", directory.path, *filter(None, [environ.get("A4_RESULTS_DIR", "")])])
    profile = (load(directory.environment) or {}).get("profile", NONE)
    fabric = needs(profile, environ) if profile != NONE and plan and len(plan.peers) > 1 else None
    peers = next_peers(plan, state.index) if plan and state else []
    search = fabric and Search("", environ, **fabric._asdict())
    raw = read_pod(environ, list(paths), peers, run, search)
    if fabric:
        gpus = {"files": raw.get("gpu_files", 0), "devices": (), "driver": raw["driver"]}
        inventory = {**raw, "environ": fabric_variables(environ), "gpus": gpus}
        raw["fabric"] = problems(profile, inventory, len(plan.peers) if plan else 1)
    found = readings_of(raw, environ, int(slots) if slots.isdecimal() else SLOTS, run)
    return {**found, "accelerator": environ.get("A4_ACCELERATOR", "")}


class _Answers(Sink):
    """Keeps what each pod prints on stdout."""

    def __init__(self) -> None:
        self.kept: dict[int, bytearray] = {}

    def output(self, pod: int, stream: int, data: bytes) -> None:
        kept = self.kept.setdefault(pod, bytearray())
        if stream == STDOUT and len(kept) < MOST_ANSWER:
            kept.extend(data)


def _read_all(hosts: list[str], lost: dict[int, str]) -> tuple[dict[int, Any], dict[int, str]]:
    """What each pod read, and why others gave no answer; nobody asks those that are `lost`."""
    argv = tuple(agent_command(sys.executable, "doctor", "--readings"))
    whom = RunSpec("exec", argv, hosts=tuple(hosts), exclude=tuple(map(str, lost)))
    spec = whom._replace(cwd=working_directory(), timeout=60.0)
    answers = _Answers()
    with Client() as client, RunFollower(client) as follower:
        clocks = client.clocks()
        run = follower.begin(of_caller(spec))
        ended = follower.follow(run, answers)
    found: dict[int, Any] = {}
    silent = dict(lost)
    for pod in run.pods:
        try:
            found[pod] = json.loads(answers.kept.get(pod, b""))
        except ValueError:
            silent[pod] = _why(pod, ended)
    for pod in found.keys() - {0}:
        found[pod]["clock"] = clocks.get(pod, {})
    return found, silent


def _why(pod: int, ended: RunEnd) -> str:
    if pod in ended.lost:
        return ended.lost[pod]
    code = ended.codes.get(pod)
    return (
        ended.end.what
        if code is None
        else f"its check ended with exit code {code}; on the pod, a4-agent doctor --here says more"
    )


def _names(indices: list[int], plan: Plan | None) -> tuple[dict[int, str], dict[int, str]]:
    """Pods in words, and their nodes."""
    peers = {peer.index: peer for peer in plan.peers} if plan else {}
    words = {index: peers[index].where if index in peers else "this pod" for index in sorted(indices)}
    return words, {index: peers[index].known_node for index in indices if index in peers}
