"""`a4-agent run`: the resident agent of a pod, from the first file to the job's exit code."""

from __future__ import annotations

import argparse
import os
import sys
import time

from agent.errors import AgentError, SettingsError
from agent.settings import NOT_A_POD, WORKLOADS, Settings, read_settings

DESCRIPTION = """\
Forms the cluster with the other pods of the job, runs WORKLOAD on it, and ends with the job's exit
code. Started in every pod, usually as its ENTRYPOINT; pod 0 coordinates. WORKLOAD is one of
  none           form the cluster and write the hostfiles
  connectivity   MPI ranks on every pod: placement, an all-reduce, latency and bandwidth of neighbours
  script         the task script that is mounted in the pod, on every pod
and by default what A4_WORKLOAD says. ARGS go to the workload: connectivity takes --sizes and --repeats,
a script whatever it takes.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "run",
        usage="a4-agent run [-h] [--order {topology,index}] [--dry-run] [WORKLOAD] [-- ARGS ...]",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workload", nargs="?", default="", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument(
        "--order",
        choices=("topology", "index"),
        default="topology",
        help="ranks by physical place (default) or by pod index",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be started and touch nothing")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    started = time.monotonic()
    from agent.commands.pod import log_for, look

    if not os.environ.get("NNODES"):
        raise SettingsError([NOT_A_POD])
    found, secret = look(os.environ)
    try:
        settings, warnings = read_settings(os.environ, found, args.workload)
    except SettingsError as error:
        if not args.dry_run:
            _leave_message(error)
        raise
    if args.dry_run:
        return _dry_run(settings, args)
    from agent.lifecycle.pod import Job
    from agent.lifecycle.serve import serve

    log = log_for(settings, os.environ, secret)
    for warning in warnings:
        log.warning(warning)
    job = Job(
        settings=settings,
        environ=dict(os.environ),
        secret=secret,
        python=sys.executable,
        args=tuple(args.args),
        topology=args.order == "topology",
        started=started,
    )
    return serve(job, log)


def _leave_message(error: SettingsError) -> None:
    """Have `kubectl describe pod` say what is wrong, unless an agent lives here that will say its own."""
    from agent.commands.pod import read_state, run_dir
    from agent.decide.ending import from_error, termination_message
    from agent.machine.files import overwrite
    from agent.paths import TERMINATION_LOG

    index = os.environ.get("JOB_COMPLETION_INDEX", "")
    pod = int(index) if index.isdecimal() else 0
    try:
        if read_state(run_dir()) is None:
            overwrite(TERMINATION_LOG, termination_message(from_error(error), epoch="", pod=pod))
    except (AgentError, OSError):
        pass  # the settings errors themselves are what matters


def _dry_run(settings: Settings, args: argparse.Namespace) -> int:
    from agent.commands.dry_run import describe

    sys.stdout.write(describe(settings, os.environ, sys.executable, args.args, args.order == "topology"))
    return 0
