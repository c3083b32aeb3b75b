"""`a4-agent sync`: what pods tell each other through a shared directory."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agent.commands.options import add_seconds, checked, pods
from agent.commands.printing import print_json
from agent.decide.masking import Masker
from agent.decide.secret_variables import listed, secret_values
from agent.decide.setting_values import path, seconds, whole
from agent.decide.subset import index_range, ranges
from agent.decide.sync.facts import Fact, fact_name
from agent.decide.sync.waiting import WaitOutcome
from agent.decide.tables import Cell, render
from agent.decide.words import count_text
from agent.errors import UsageError
from agent.log import utc
from agent.output import say
from agent.settings import Found, read_settings
from agent.wire import to_json

if TYPE_CHECKING:
    from agent.lifecycle.sharing.member import Member

DESCRIPTION = """\
Lets pods wait for each other through a directory that all of them share (NFS, Lustre; A4_SHARED_DIR). It needs
nothing but that directory. What was set in an earlier run, attempt or start of pod 0 does not count.
"""
EPILOG = """\
examples:
  a4-agent sync set download            on pod 0, when the data is there
  a4-agent sync fail download --code 3  on pod 0, when it will not come
  a4-agent sync wait download           on the others: 0, or the code that fail gave
  a4-agent sync wait ready --from all   a barrier, after `a4-agent sync set ready` on every pod

In a run on some pods, `all` means these pods, and the first of them in rank order has the part of pod 0.
"""
DEFAULT_TIMEOUT = 14400.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    verbs = parser.add_subparsers(dest="sync_verb", metavar="VERB", required=True)
    setting = _add_verb(verbs, "set", _set, "say that NAME is done in this pod")
    waiting = _add_verb(
        verbs, "wait", _wait, "wait until NAME is done in other pods; ends with their code if one fails"
    )
    waiting.add_argument(
        "--from",
        dest="origin",
        type=pods,
        metavar="PODS",
        help="all, or indices such as 0,2-5 (default: 0, in a run its first pod)",
    )
    text = f"end with 124, or with 69 where a pod was never heard (default: {DEFAULT_TIMEOUT:.0f})"
    add_seconds(waiting, "--timeout", seconds("600"), text, default=DEFAULT_TIMEOUT)
    failing = _add_verb(verbs, "fail", _fail, "say that NAME has failed in this pod: all who wait for it end")
    failing.add_argument(
        "--code", type=checked(whole(1, 255)), default=1, metavar="N", help="with which exit code they end (default: 1)"
    )
    failing.add_argument("--message", default="", metavar="TEXT", help="what they say")
    for beating in (setting, waiting, failing):
        beating.add_argument(
            "--while",
            dest="owner",
            type=checked(whole(1, 2**22)),
            default=0,
            metavar="PID",
            help="this pod counts as alive until this process ends, such as $$ in a script (default: the run's "
            "first process in this pod or, outside a run, the container's)",
        )
    listing = _add_verb(verbs, "list", _list, "list current facts", named=False)
    listing.add_argument("--json", action="store_true", help="one JSON object")
    _add_verb(verbs, "clean", _clean, "take NAME away, as if no pod had set it or had failed")


def _add_verb(
    verbs: Any, name: str, act: Callable[[argparse.Namespace, Member], int], text: str, *, named: bool = True
) -> argparse.ArgumentParser:
    """A verb of `sync`; `named`: it is about one NAME."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    if named:
        parser.add_argument("name", type=checked(fact_name), metavar="NAME", help="what it is about, such as download")
    parser.add_argument(
        "--dir", type=checked(path), metavar="DIR", help="the shared directory, instead of A4_SHARED_DIR"
    )
    parser.add_argument(
        "--job",
        action="store_true",
        help="apply to the whole job, not only to the current run",
    )
    parser.set_defaults(act=act)
    return parser


def run(args: argparse.Namespace) -> int:
    """0, or the code with which a wait ended. Raises AgentError for a directory that cannot be used."""
    from agent.lifecycle.sharing.member import Member

    environ = {**os.environ, **({"A4_SHARED_DIR": args.dir} if args.dir else {})}
    settings, _ = read_settings(environ, Found())
    if getattr(args, "owner", 0) and not os.path.exists(f"/proc/{args.owner}"):
        raise UsageError(f"--while {args.owner}: there is no such process")
    run_id = "" if args.job else os.environ.get("A4_RUN", "")
    of_run = os.environ.get("A4_RUN_PODS", "") if run_id else ""
    taking_part = [int(word) for word in of_run.split(",")] if of_run else range(settings.nnodes)
    member = Member(settings, run_id, taking_part, say)
    try:
        member.open()
        code: int = args.act(args, member)
        return code
    finally:
        member.close()


def _set(args: argparse.Namespace, member: Member) -> int:
    """Say that it is done; the beat shows others that this pod is alive."""
    member.beat(args.owner)
    return _end(member.put(Fact(args.name, member.pod)))


def _fail(args: argparse.Namespace, member: Member) -> int:
    """Say that it failed. What others will print of it is masked here: they do not know the secrets of this pod."""
    member.beat(args.owner)
    message = Masker(secret_values(os.environ, listed(os.environ))).text(args.message)
    return _end(member.put(Fact(args.name, member.pod, failed=True, code=args.code, message=message)))


def _wait(args: argparse.Namespace, member: Member) -> int:
    """Wait for the pods that were named, while this one shows that it is alive."""
    wanted = {member.lead} if args.origin is None else _indices(args.origin, member.pods)
    member.beat(args.owner)
    return _end(member.wait(args.name, wanted, args.timeout))


def _end(outcome: WaitOutcome) -> int:
    """Say why a wait did not end well; returns the exit code."""
    if outcome.code:
        say("\n  ".join(filter(None, (outcome.what, outcome.hint))))
    return int(outcome.code)


def _indices(words: Sequence[str], pods: Sequence[int]) -> set[int]:
    """Those of `pods` that people name so. Raises UsageError."""
    found: set[int] = set()
    for word in words:
        named = pods if word == "all" else index_range(word)
        if not named or len(named) > len(pods) or not set(named) <= set(pods):
            raise UsageError(f"--from {word!r} names pods that do not take part", f"{ranges(pods)} do; or all")
        found.update(named)
    return found


def _list(args: argparse.Namespace, member: Member) -> int:
    """Print the facts that count. A file that is damaged is a warning: it must not hide the others."""
    listed = member.list()
    if args.json:
        print_json({"directory": member.job, **to_json(listed)})
        return 0
    if not listed.start:
        say(f"pod {member.lead} is not heard: nothing counts (it is heard from its first a4-agent sync on)")
    rows: list[list[Cell]] = [
        [fact.name, fact.pod, f"failed ({fact.code})" if fact.failed else "done", utc(fact.time), fact.message]
        for fact in listed.facts
    ]
    if rows:
        sys.stdout.write(render(["name", "pod", "state", "since", "message"], rows))
    for file, why in listed.problems.items():
        say(f"warning: {file} does not count: {why}")
    return 0


def _clean(args: argparse.Namespace, member: Member) -> int:
    """Take away what all pods have said under this name."""
    count = member.clean(args.name)
    say(f"{count_text(count, 'file')} of {args.name} taken away")
    return 0
