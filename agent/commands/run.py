"""`a4-agent run`: the resident agent of a pod; where one lives already, a run submitted to it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from agent.catalogue import RUNNABLE, WORKLOADS
from agent.commands import Parser
from agent.commands.options import WORKLOAD_ARGUMENTS, add_followed_run, read_spec, workload_parser
from agent.commands.pod import agent_environment, living, read_state
from agent.decide.ending import from_error, termination_message
from agent.environment import job_from_environment, look, serve
from agent.errors import AgentError, ClusterBusy, SettingsError, SystemFault, UsageError
from agent.log import Log
from agent.machine.files import overwrite
from agent.paths import TERMINATION_LOG, RunDir
from agent.settings import NOT_A_POD, examine, read_setting

if TYPE_CHECKING:
    from agent.client import Client

_LIST = "\n".join(f"  {name:<24} {WORKLOADS[name].help}" for name in RUNNABLE)
DESCRIPTION = f"""\
Forms the cluster with the other pods of the job, runs WORKLOAD on it, and ends with the job's exit
code. Started in every pod, usually as its ENTRYPOINT; pod 0 coordinates. If an agent is already running, as
in kubectl exec, it submits WORKLOAD to that agent, shows its output and ends with its exit code.
WORKLOAD is one of
{_LIST}
and defaults to A4_WORKLOAD. ARGUMENTS go to the workload: a4-agent run WORKLOAD --help lists them.
While a run is followed, Ctrl-C ends it on every pod; a lost terminal does not.
"""
EXAMPLES = """\
a4-agent run nccl -- --tests all_reduce
a4-agent run --name night-1 --timeout 1h collectives
a4-agent run --hosts 0-3 --gate ddp -- --steps 100
"""
Found = TypeVar("Found")
GATES = {"false": "", "true": "on", "strict": "strict"}
"""A4_GATE → as a RunSpec says it."""


class Help(argparse.Action):
    """--help of `run`, and with the name of a workload before it, of that one."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given, nargs=0, default=argparse.SUPPRESS, help="show this help, or that of a workload")

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object) -> None:
        name = getattr(namespace, "workload", "")
        (workload_parser(name) if name in RUNNABLE else parser).print_help()
        parser.exit()


def add_options(parser: Parser) -> None:
    parser.usage = f"{parser.prog} [-h] [options] [WORKLOAD] [-- ARGUMENT ...]"
    parser.takes_rest = WORKLOAD_ARGUMENTS
    parser.add_argument("-h", "--help", action=Help)
    kinds = ", ".join(RUNNABLE)
    parser.add_argument("workload", type=no_verb, nargs="?", default="", metavar="WORKLOAD", help=kinds)
    parser.add_argument(
        "--order",
        choices=("topology", "index"),
        help="when the cluster is formed, order ranks by physical place (default) or by pod index",
    )
    add_followed_run(parser)


def no_verb(name: str) -> str:
    """The name of a workload that this verb may run."""
    if name in ("mpirun", "torchrun"):
        raise argparse.ArgumentTypeError(f"{name} is a verb, not a workload: a4-agent {name}")
    if name.endswith(".py"):
        raise argparse.ArgumentTypeError(f"{name} is a program, not a workload: a4-agent torchrun -- {name}")
    if "/" in name or name.endswith(".sh"):
        raise argparse.ArgumentTypeError(f"{name} is a program, not a workload: a4-agent exec -- {name}")
    return name


def run(args: argparse.Namespace) -> int:
    """Be the agent of this pod, or have the one that lives here run it; the exit code is that of the job or run."""
    started = time.monotonic()

    directory = RunDir()
    client = living(directory)
    if client is not None or args.dry_run:
        _hear_signals()
    else:
        try:
            return _be_the_agent(args, directory, started)
        except ClusterBusy as busy:  # the lock decides: one has taken this pod, and its door opens in a moment
            _hear_signals()
            # An agent that has just taken the pod may not have opened its socket yet.
            client = patiently(lambda: living(directory), 5.0)
            if client is None:
                raise busy
    return _submit(args, client)


def _hear_signals() -> None:
    """agent.cli lets them wait for an agent to be there, and there will be none in this process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())


def patiently(find: Callable[[], Found | None], seconds: float) -> Found | None:
    """What `find` returns, asked again for so long while that is None."""
    until = time.monotonic() + seconds
    while (found := find()) is None and time.monotonic() < until:
        threading.Event().wait(0.05)
    return found


def _submit(args: argparse.Namespace, client: Client | None) -> int:
    """As a client of the agent that lives here; None, which a dry run may have: there is none. Raises AgentError."""
    from agent.commands.following import submit

    if args.order and not args.dry_run:
        raise UsageError("--order has no effect: the cluster is already formed", "a4-agent topology shows its order")
    environ = agent_environment(RunDir()) if client else os.environ
    workload = read_setting("A4_WORKLOAD", environ, look(environ)[0], args.workload)  # by default that of the pod
    return submit(args, read_spec(args, workload), client)


def _be_the_agent(args: argparse.Namespace, directory: RunDir, started: float) -> int:
    """Run the agent of this pod. Raises ClusterBusy when another agent has taken the pod meanwhile."""
    if not os.environ.get("NNODES"):
        raise SettingsError([NOT_A_POD])
    for option in ("detach", "label", "json", "wait"):
        if getattr(args, option):
            raise UsageError(f"--{option} needs a running agent; there is none in this pod yet")

    try:
        job = job_from_environment(args.workload)
    except SettingsError as error:
        with suppress(AgentError):  # a state that cannot be read is one, too
            if read_state(directory) is None:  # else an agent has lived here, and said of itself what there was to say
                _leave_message(error)
        return _said(error)
    name = args.run_name or job.settings.run_name
    spec = read_spec(args, job.settings.workload)._replace(by="ENTRYPOINT", name=name)
    spec = spec._replace(gate=spec.gate or GATES[job.settings.gate])
    try:
        return serve(job._replace(spec=spec, topology=args.order != "index", started=started))
    except SystemFault as error:
        _leave_message(error)
        return _said(error)


def _said(error: AgentError) -> int:
    """Say it as the agent's log would where that is JSON: what reads the one reads the other. Raises it for people."""
    values = {value.name: value.value for value in examine(os.environ, look(os.environ)[0]).values if not value.problem}
    if values.get("A4_LOG_FORMAT") != "json" or sys.stderr.isatty():
        raise error
    log = Log(form="json")
    log.labels = {"job": values.get("JOB_IDENTIFIER", "")}
    names = {"pod_name": "POD_NAME", "node": "NODE_NAME", "epoch": "A4_EPOCH"}
    log.place = {field: values.get(name, "") for field, name in names.items()}
    log.error(str(error), from_error(error))
    return int(error.code)


def _leave_message(error: AgentError) -> None:
    """Have `kubectl describe pod` say what is wrong."""

    index = os.environ.get("JOB_COMPLETION_INDEX", "")
    pod = int(index) if index.isdecimal() else 0
    pod_name, node = os.environ.get("POD_NAME", ""), os.environ.get("NODE_NAME", "")
    message = termination_message(from_error(error), epoch="", pod=pod, pod_name=pod_name[:253], node=node[:253])
    with suppress(OSError):  # the error itself is what matters
        overwrite(TERMINATION_LOG, message)
