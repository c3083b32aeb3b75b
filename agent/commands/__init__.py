"""The verbs of the command line, one module each. Only the verb that is asked for is imported."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from agent import __version__

VERBS = {
    "run": "form the cluster and run a workload: the ENTRYPOINT of every pod",
    "status": "what this pod is doing, and with whom",
    "peers": "the pods of this job, in rank order",
    "topology": "who stands where: rank, pod, node and place",
    "hostfile": "the MPI hostfile",
    "settings": "every setting, its value and where it came from",
    "local": "a cluster of pod-like sandboxes on this machine",
    "version": "versions of the agent and of what it calls",
}
EPILOG = """\
In a pod:        a4-agent run            (as ENTRYPOINT; the chart sets everything it needs)
In kubectl exec: a4-agent status
On your machine: a4-agent local run --pods 4 connectivity
"""


def dispatch(argv: Sequence[str]) -> int:
    """Run the verb in `argv`; returns the exit code. Prints errors, raises none but bugs."""
    from agent.errors import AgentError

    verb = _verb(argv)
    argv, rest = _split(argv) if verb == "run" else (argv, [])
    parser = build_parser(verb)
    args = parser.parse_args(argv)
    if verb == "run":
        args.args = rest
    handler: Callable[[argparse.Namespace], int] | None = getattr(args, "handler", None)
    if handler is None:
        parser.print_help()
        return 0
    try:
        return handler(args)
    except AgentError as error:
        print(f"a4-agent: {error}", file=sys.stderr)
        return int(error.code)
    except BrokenPipeError:
        return 141  # the reader of our output has gone, as `| head` does
    except Exception:
        import traceback

        traceback.print_exc()
        print("a4-agent: this is a bug in a4-agent; please report it with the lines above", file=sys.stderr)
        return 70
    except KeyboardInterrupt:
        return 130


def _split(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What stands before and after the first `--`."""
    at = list(argv).index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1 :]


def build_parser(verb: str = "") -> argparse.ArgumentParser:
    """The parser, complete for `verb` alone: the others are only named."""
    parser = argparse.ArgumentParser(
        prog="a4-agent",
        description="Brings the pods of a GPU JobSet together and runs one workload on all of them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"a4-agent {__version__}")
    subparsers = parser.add_subparsers(metavar="VERB", title="verbs")
    for name, text in VERBS.items():
        if name == verb:
            import_module(f"agent.commands.{name}").add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=text, add_help=False)
    return parser


def _verb(argv: Sequence[str]) -> str:
    return next((word for word in argv if not word.startswith("-")), "")
