"""`--dry-run`: the command lines and environment changes of a run, nothing touched."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent.catalogue import RUNNABLE
from agent.commands.answers import VERSION, DryRunAnswer, write
from agent.commands.pod import agent_environment, guessed_plan, living, of_caller, read_state
from agent.decide.env_sh import MARK
from agent.decide.masking import Masker
from agent.decide.plan import Plan
from agent.decide.runspec import RunSpec
from agent.decide.secret_variables import argument_secrets, hidden, listed, secret_values
from agent.decide.subset import pods_text, ranges, subset
from agent.environment import find_mpi, find_plan, load, look
from agent.fabrics.profiles import Profile
from agent.launch import Launch
from agent.lifecycle.pod.first_environment import first_environment
from agent.lifecycle.pod.known import Known, choose_interface
from agent.lifecycle.runs.context import run_context
from agent.machine import files
from agent.machine.api import Interface
from agent.machine.inventory import core_count, interfaces
from agent.paths import RunDir
from agent.settings import Settings, read_settings
from agent.workloads import find_workload
from agent.workloads.base import RunContext, Workload
from agent.workloads.why_variables import RAS_PORTS

RUN_ID = "RUN-ID"


def show(spec: RunSpec, *, as_json: bool = False) -> int:
    """Print what would be started on each kind of pod. Raises AgentError as the run itself would."""
    directory = RunDir()
    client = living(directory)
    environ: Mapping[str, str] = os.environ
    if client is not None:
        client.close()
        environ = agent_environment(directory)
        spec = of_caller(spec)
    found, secret = look(environ)
    settings, _ = read_settings(environ, found, spec.workload if spec.workload in RUNNABLE else "")
    answer(describe(settings, environ, spec), environ, spec, secret.decode(errors="replace").strip(), as_json=as_json)
    return 0


def answer(text: str, environ: Mapping[str, str], spec: RunSpec, *secrets: str, as_json: bool) -> None:
    """What would be started, on stdout, without the secrets of that environment and of what the user typed."""
    known = secret_values({**environ, **spec.env}, listed(environ)).union(argument_secrets(spec.args), secrets)
    text = Masker(known).text(text)
    if as_json:
        write(DryRunAnswer(VERSION, spec.workload, text))
    else:
        sys.stdout.write(text)


def describe(settings: Settings, environ: Mapping[str, str], spec: RunSpec) -> str:
    """The launch on the lead, and on the others if they have one."""
    directory = RunDir(settings.run_dir)
    plan = find_plan(directory)
    state = read_state(directory)
    lost = state.lost_why() if state else {}
    chosen = subset(plan or guessed_plan(settings), nodes=spec.nodes, hosts=spec.hosts, exclude=spec.exclude, lost=lost)
    prepared, found = load(directory.environment), interfaces()
    if prepared is not None:
        profile = Profile(prepared["profile"], prepared["why"])
        known = Known(environ, profile, interface=choose_interface(settings, found))
    else:
        known = environment_before(settings, environ, found)
    return launches(settings, known, spec, chosen, guessed=plan is None)


def launches(settings: Settings, known: Known, spec: RunSpec, plan: Plan, *, guessed: bool = False) -> str:
    """What is started on the pods of that plan."""

    workload = find_workload(spec.workload)
    pods = ranges(peer.index for peer in plan.peers)
    lines = [f"# {workload.name} on {len(plan.peers)} of {settings.nnodes} pods: {pods}"]
    if guessed:
        lines.append("# no plan yet: pods in index order, as a guess")
    context = run_context(
        settings, known, plan, RUN_ID, spec, python=sys.executable, cores=core_count(), ras_port=RAS_PORTS[0]
    )
    workload.check(context)
    if workload.starts_nothing:
        return "\n".join([*lines, "# nothing is started: only the cluster is formed"]) + "\n"
    lines.append(f"# to read, not to paste: {RUN_ID} is drawn at each run, and its directory made then")
    if workload.led:
        context = replace(context, mpi=find_mpi(known.search_path))
    return "\n".join([*lines, *_launches(workload, context)]) + "\n"


def environment_before(settings: Settings, environ: Mapping[str, str], found: Sequence[Interface]) -> Known:
    """What is known without running vendors' scripts, in a pod with these interfaces."""
    own = choose_interface(settings, found)
    names = [own.name, *(interface.name for interface in found)]
    first = first_environment(settings, environ, names, os.path.exists, files.read)
    return Known({**first.prepared.env, MARK: "1"}, first.profile, interface=own)


def _launches(workload: Workload, context: RunContext) -> list[str]:
    """Lines for the lead and, where others start something, for the second pod: the rest differ in their rank alone."""
    lead, *others = context.indices
    if workload.led:
        reached = [f"# {pods_text(others)}: nothing is started, mpirun reaches them through sshd"] if others else []
        return [
            f"# pod {lead} (with the programs and variables of this pod):",
            _text(workload, context, lead),
            *reached,
        ]
    first = _text(workload, context, lead)
    second = _text(workload, context, others[0]) if others else first
    if first == second:
        return [f"# {pods_text([lead, *others])}:", first]
    rest = f"; likewise on {pods_text(others[1:])}, each with its own rank" if others[1:] else ""
    return [f"# pod {lead}:", first, f"# pod {others[0]}{rest}:", second]


def _text(workload: Workload, context: RunContext, index: int) -> str:
    """What one pod would start, with the variables that the run adds to its environment."""
    launch = workload.launch(replace(context, index=index))
    if launch is None:
        return "# nothing is started here"
    names = sorted({*launch.added, *(name for name in context.spec.env if name in launch.env)})
    # However short a secret is: this text is made to be passed around.
    env = hidden({name: launch.env[name] for name in names}, listed(context.environ))
    shown = Launch(launch.argv, env, launch.cwd, names, launch.removed, steps=launch.steps, text=launch.text)
    return "\n".join([*(f"# note: {note}" for note in launch.notes), str(shown)])
