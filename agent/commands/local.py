"""a4-agent local: a cluster of pod-like sandboxes on this machine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from agent.catalogue import RUNNABLE
from agent.commands import Parser
from agent.commands.options import WORKLOAD_ARGUMENTS, add_labels, add_seconds
from agent.decide.setting_values import none_or
from agent.workbench.local import DEFAULT_NAME

Value = TypeVar("Value")
DESCRIPTION = "try the agent in pod-like sandboxes on this machine (needs root)"
EXAMPLES = """\
a4-agent local run --pods 4 connectivity
a4-agent local up --pods 2 --gpus-per-pod 2
"""

_RUN_EPILOG = """\
examples:
  a4-agent local run --pods 4 connectivity
  a4-agent local run --pods 4 --late 2:5 --missing 3 connectivity
  a4-agent local run --pods 2 --gpus-per-pod 2 --metadata stall none
"""
_COPY_EPILOG = """\
examples:
  a4-agent local cp train.py 0:/tmp
  a4-agent local cp 1:/tmp/dump ./dump-of-1
"""


def add_options(parser: Parser) -> None:
    verbs = parser.add_subparsers(dest="local_verb", metavar="VERB", required=True)
    run = _add_verb(verbs, "run", "run a workload on a new cluster, and exit with its exit code")
    run.epilog = _RUN_EPILOG
    _add_cluster_options(run)
    add_seconds(run, "--timeout", none_or("600", 0), "end the run (124) after this", default=0)
    _add_grace(run)
    text = "keep results and logs in a new directory below DIR"
    run.add_argument("--results", metavar="DIR", help=text)
    text = "show the output of all pods, with their index in front (default: pod 0's stdout and all pods' stderr)"
    run.add_argument("--all-pods", action="store_true", help=text)
    text = "also show at the end how the cluster was formed: start-up times, order, hostfile"
    run.add_argument("--details", action="store_true", help=text)
    run.add_argument("--json", action="store_true", help="one JSON object on stdout; pods' output on stderr")
    text = "print what would be started in the pods, without making a cluster"
    run.add_argument("--dry-run", action="store_true", help=text)
    up = _add_verb(verbs, "up", "start a cluster and leave it running; see exec, logs and down")
    _add_cluster_options(up)
    up.add_argument("--wait", action="store_true", help="return when every pod has the plan")
    add_seconds(up, "--timeout", none_or("600", 0), "limit of --wait (600)", default=600)
    inside = _add_verb(verbs, "exec", "run a command in a pod: exec POD -- COMMAND …")
    inside.takes_rest = "options of the command go after `--`: {} POD -- COMMAND --option"
    _add_pod(inside)
    # Also without `--`, as kubectl exec takes it.
    inside.add_argument("command", nargs="*", help="default: bash")
    inside.add_argument("--tty", choices=("auto", "yes", "no"), default="auto", help="give it a terminal")
    _add_name(inside)
    copy = _add_verb(verbs, "cp", "copy a file or directory into a pod or out of it")
    copy.epilog = _COPY_EPILOG
    copy.add_argument("source", metavar="SOURCE", help="PATH, or POD:PATH in a pod")
    copy.add_argument(
        "target", metavar="TARGET", help="POD:PATH, or PATH; an existing directory gets it under its own name"
    )
    _add_name(copy)
    logs = _add_verb(verbs, "logs", "print the output of pods")
    _add_pod(logs, nargs="?", help="only this pod, by index or name; else all, with their index in front")
    logs.add_argument("-f", "--follow", action="store_true", help="follow the output until the pods have ended")
    _add_name(logs)
    down = _add_verb(verbs, "down", "end a cluster: SIGTERM, after the grace time SIGKILL")
    _add_grace(down)
    _add_name(down)
    status = _add_verb(verbs, "status", "print which pods are running, and the status that pod 0 reports")
    status.add_argument("--json", action="store_true", help="which pods run as JSON")
    _add_name(status)
    listing = _add_verb(verbs, "list", "list the running clusters")
    listing.add_argument("--json", action="store_true", help="the same as JSON")


def _add_verb(verbs: Any, name: str, text: str) -> Parser:
    added: Parser = verbs.add_parser(name, help=text, description=text)
    return added


def _add_pod(parser: argparse.ArgumentParser, **options: Any) -> None:
    text = "index or name of the pod, or name of its node"
    parser.add_argument("pod", **{"metavar": "POD", "help": text, **options})


def _add_name(parser: argparse.ArgumentParser) -> None:
    text = f"name of the cluster (default: {DEFAULT_NAME}, or the only one that runs)"
    parser.add_argument("--name", type=cluster_name, help=text)


def _add_grace(parser: Parser) -> None:
    add_seconds(parser, "--grace", none_or("30", 0), "from SIGTERM to SIGKILL (30)", default=30.0)


def _add_cluster_options(parser: Parser) -> None:
    """What a cluster is, and what goes wrong in it on purpose."""
    parser.takes_rest = WORKLOAD_ARGUMENTS
    add = parser.add_argument
    add("workload", nargs="?", default="", help=f"as in: a4-agent run WORKLOAD [-- ARGS]: {', '.join(RUNNABLE)}")
    add_labels(parser, "--run-name")
    add("--pods", type=int, default=2, metavar="N", help="number of pods (2)")
    add("--gpus-per-pod", type=int, default=8, metavar="G", help="GPUs of each pod, real or simulated (8)")
    text = "divide this machine's GPUs: pod 0 gets the first G, pod 1 the next G; without it, GPUs are simulated"
    add("--real-gpus", action="store_true", help=text)
    add("--data-nic", action="store_true", help="pods have a second NIC, eth1, which NCCL and gloo use")
    add("--name", type=cluster_name, default=DEFAULT_NAME, help=f"name of the cluster ({DEFAULT_NAME})")
    add("--port", type=int, default=2222, help="port of the pods' SSH daemon (2222)")
    text = (
        "pods have A4_LIVES=N, and lost ones, but for pod 0, are replaced: same index, other address, host name, place"
    )
    add("--lives", type=int, default=0, metavar="N", help=text)
    several = partial(add, action="append", default=[])
    several("--env", metavar="NAME=VALUE", type=variable, help="a variable of all pods")
    several("--pod-env", metavar="I:NAME=VALUE", type=by_pod(variable), help="for pod I alone")
    text = "a task script that every pod finds mounted, for the workload `script`"
    add("--task-script", default="", metavar="FILE", help=text)
    text = "a directory of this machine that all pods share, at the same path or at PATH"
    several("--mount", metavar="DIR[:PATH]", type=directory, help=text)
    several("--device", metavar="PATH", help="a device file that pods get, too")
    faults = parser.add_argument_group("faults", "I is the index of a pod; all may be given several times")
    fault = partial(faults.add_argument, action="append", default=[])
    seconds = by_pod(float)
    fault("--late", metavar="I:SECONDS", type=seconds, help="starts later")
    fault("--missing", metavar="I", type=int, help="never comes, and has no DNS name")
    fault("--dead", metavar="I", type=int, help="never comes, and its address does not answer")
    fault("--late-name", metavar="I:SECONDS", type=seconds, help="its DNS name appears this much later than the pod")
    fault("--other-secret", metavar="I", type=int, help="has another job secret")
    text = "how the metadata server behaves: ok, 404, 503, html, stall (never answers), no-header"
    fault("--metadata", metavar="[I:]MODE", type=metadata, help=text)
    text = "root's .bashrc sleeps this long and prints a line"
    faults.add_argument("--slow-bashrc", type=float, default=0, metavar="SECONDS", help=text)
    text = "with --lives: how long after the end of a lost pod its replacement starts (1)"
    faults.add_argument("--replace-after", type=float, default=1, metavar="SECONDS", help=text)
    text = "with --lives: for this long, the name of a replaced pod is late, stale (has the old address) or has both"
    faults.add_argument("--replaced-name", type=name_fault, default=("ok", 0), metavar="MODE:SECONDS", help=text)


def cluster_name(text: str) -> str:
    """The name of a cluster: an empty one would mean whichever runs."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty; is a variable of this shell empty?")
    return text


def variable(text: str) -> tuple[str, str]:
    """(name, value) of a variable."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise argparse.ArgumentTypeError(f"NAME=VALUE, not {text!r}")
    return name, value


def directory(text: str) -> tuple[str, str]:
    """(path in the pods, path here) of --mount."""
    here, _, path = text.partition(":")
    here = os.path.abspath(here)
    if not os.path.isdir(here):
        raise argparse.ArgumentTypeError(f"{here} is not a directory")
    path = path or here
    if not path.startswith("/"):
        raise argparse.ArgumentTypeError(f"{path!r} is not an absolute path in a pod")
    return path, here


def by_pod(parse: Callable[[str], Value]) -> Callable[[str], tuple[int, Value]]:
    """A type of options: the index of a pod, a colon and a value that `parse` reads."""

    def read(text: str) -> tuple[int, Value]:
        index, found, value = text.partition(":")
        if not found or not index.isdigit():
            raise argparse.ArgumentTypeError(f"the index of a pod, a colon and a value, not {text!r}")
        try:
            return int(index), parse(value)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{value!r} is not a number") from None

    return read


def name_fault(text: str) -> tuple[str, float]:
    """(mode, seconds). Which modes there are is checked with the rest of the cluster."""
    mode, found, seconds = text.partition(":")
    try:
        return mode, float(seconds)
    except ValueError:
        wanted = f"{seconds!r} is not a number" if found else f"a mode, a colon and seconds, not {text!r}"
        raise argparse.ArgumentTypeError(wanted) from None


def metadata(text: str) -> tuple[int | None, str]:
    """(pod, mode); pod None: all of them. Which modes there are is checked with the rest of the cluster."""
    index, found, mode = text.partition(":")
    return (int(index), mode) if found and index.isdigit() else (None, text)


def run(args: argparse.Namespace) -> int:
    """The exit code that the verb of `local` gives. Raises AgentError."""
    from agent.commands.local_verbs import ACTS

    return ACTS[args.local_verb](args)
