"""`a4-agent sync`: what pods tell each other through their agents."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.commands.options import add_seconds, checked, pods
from agent.commands.printing import print_json
from agent.connection import ANSWER_SECONDS, Connection, content
from agent.decide.masking import Masker
from agent.decide.secret_variables import listed, secret_values
from agent.decide.setting_values import seconds, whole
from agent.decide.subset import index_range, pods_text, ranges
from agent.decide.sync_facts import MOST_MESSAGE, Fact, fact_name, old_flags
from agent.decide.tables import Cell, render
from agent.decide.words import count_text
from agent.errors import AgentError, Exit, PeerLost, UsageError
from agent.lifecycle.waits import REPORT_SECONDS
from agent.log import utc
from agent.output import say
from agent.paths import RunDir
from agent.settings import Found, Settings, read_settings
from agent.wire import from_json, to_json

if TYPE_CHECKING:
    from agent.lifecycle.sharing.directory import SharedDirectory

DESCRIPTION = """\
Lets pods wait for each other. Pod 0's agent keeps what pods have set, for each run and for the job: what was set
in an earlier run, or by an earlier attempt of the job, does not count.
"""
EPILOG = """\
examples:
  a4-agent sync set download            on pod 0, when the data is there
  a4-agent sync fail download --code 3  on pod 0, when it will not come
  a4-agent sync wait download           on the others: 0, or the code that fail gave
  a4-agent sync wait ready --from all   a barrier, after `a4-agent sync set ready` on every pod

In a run on some pods, `all` means these pods, and the first of them in rank order takes the role of pod 0.
"""
DEFAULT_TIMEOUT = 14400.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    verbs = parser.add_subparsers(dest="sync_verb", metavar="VERB", required=True)
    _add_verb(verbs, "set", _set, "say that NAME is done in this pod")
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
    text = f"end with 124 (default: {DEFAULT_TIMEOUT:.0f})"
    add_seconds(waiting, "--timeout", seconds("600"), text, default=DEFAULT_TIMEOUT)
    failing = _add_verb(verbs, "fail", _fail, "say that NAME has failed in this pod: every wait for it ends")
    failing.add_argument(
        "--code", type=checked(whole(1, 255)), default=1, metavar="N", help="exit code of those waits (default: 1)"
    )
    failing.add_argument("--message", default="", metavar="TEXT", help="message of those waits")
    listing = _add_verb(verbs, "list", _list, "list what is set", named=False)
    listing.add_argument("--json", action="store_true", help="one JSON object")
    _add_verb(verbs, "clean", _clean, "remove NAME, as if no pod had set it or had failed")


def _add_verb(
    verbs: Any, name: str, act: Callable[[argparse.Namespace, Member], int], text: str, *, named: bool = True
) -> argparse.ArgumentParser:
    """A verb of `sync`; `named`: it is about one NAME."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    if named:
        parser.add_argument("name", type=checked(fact_name), metavar="NAME", help="what it is about, such as download")
    parser.add_argument("--job", action="store_true", help="apply to the whole job, not only to the current run")
    parser.set_defaults(act=act)
    return parser


class Member(NamedTuple):
    """This pod, as one of those that take part."""

    settings: Settings
    run: str
    """Empty: the whole job."""
    pods: Sequence[int]
    """Those that take part, the one that leads first."""
    agent: Connection

    @property
    def leads(self) -> bool:
        return self.settings.index == self.pods[0]

    def ask(self, op: str, patience: float = ANSWER_SECONDS, **fields: Any) -> dict[str, Any]:
        """Ask pod 0's agent through this pod's. Raises AgentError."""
        return content(self.agent.answer(self.agent.send(op, {"run": self.run, **fields}), patience))

    def flags(self, name: str) -> list[tuple[str, str]]:
        """Directory and file of the flags that old scripts look for under this name."""
        prefix = self.settings.hostname_prefix
        return old_flags(name, os.environ.get("JOB_ID", ""), prefix) if self.settings.shared_dir else []


def run(args: argparse.Namespace) -> int:
    """0, or the code with which a wait ended. Raises AgentError: 69 where no agent or no cluster is, 75 when a pod is
    lost, 73 when a flag for old scripts cannot be written."""
    settings, _ = read_settings(os.environ, Found())
    run_id = "" if args.job else os.environ.get("A4_RUN", "")
    of_run = os.environ.get("A4_RUN_PODS", "") if run_id else ""
    taking_part = [int(word) for word in of_run.split(",")] if of_run else range(settings.nnodes)
    with closing(Connection(RunDir(settings.run_dir).socket)) as agent:
        member = Member(settings, run_id, taking_part, agent)
        if member.leads and args.sync_verb in ("set", "wait", "fail"):  # who only looks changes nothing
            _remove_stale_flags(member)
        code: int = args.act(args, member)
        return code


def _set(args: argparse.Namespace, member: Member) -> int:
    if member.leads:
        _change_flags(member, args.name, set_it=True)
    member.ask("set", fact=to_json(Fact(args.name, member.settings.index)))
    return 0


def _fail(args: argparse.Namespace, member: Member) -> int:
    """What others will print of it is masked here: they do not know the secrets of this pod."""
    message = Masker(secret_values(os.environ, listed(os.environ))).text(args.message)[:MOST_MESSAGE]
    fact = Fact(args.name, member.settings.index, failed=True, code=args.code, message=message)
    member.ask("set", fact=to_json(fact))
    _change_flags(member, args.name, set_it=False)
    return 0


def _remove_stale_flags(member: Member) -> None:
    """Take away flags that an earlier run or attempt has left: old scripts would take them for new ones. Those that
    scripts have made since stay."""
    if stale := member.ask("begin")["stale"]:
        with suppress(AgentError), _shared_directory(member) as directory:  # no fact depends on it
            directory.remove_flags(stale)


@contextmanager
def _shared_directory(member: Member) -> Iterator[SharedDirectory]:
    """Raises DirectoryUnusable."""
    from agent.lifecycle.sharing.directory import SharedDirectory

    directory = SharedDirectory(member.settings.shared_dir, f"A4_SHARED_DIR={member.settings.shared_dir}")
    try:
        directory.open()
        yield directory
    finally:
        directory.close()


def _change_flags(member: Member, name: str, *, set_it: bool) -> None:
    """Write or take away the flags for old scripts under this name, if it has some. Raises DirectoryUnusable."""
    if not (flags := member.flags(name)):
        return
    with _shared_directory(member) as directory:
        for folder, file in flags:
            if set_it:
                directory.put(folder, file, f"{member.run or 'job'}\n")
            else:
                directory.remove(folder, file)


def _wait(args: argparse.Namespace, member: Member) -> int:
    """Wait for the pods that were named, and say every 30 s which are missing."""
    wanted = {member.pods[0]} if args.origin is None else _indices(args.origin, member.pods)
    began = time.monotonic()
    while True:
        left = max(0.0, began + args.timeout - time.monotonic())
        patience = min(left, REPORT_SECONDS)
        told = member.ask("await", patience + ANSWER_SECONDS, name=args.name, pods=sorted(wanted), seconds=patience)
        if "failed" in told:
            return _failed(from_json(Fact, told["failed"]))
        if "gone" in told:
            why = "; ".join(f"pod {pod}: {reason}" for pod, reason in told["gone"].items())
            raise PeerLost(f"{args.name} is not set, and will not be: {why}")
        if "done" in told:
            return 0
        missing = told["missing"]
        many = f" ({len(missing)} of {len(wanted)})" if len(wanted) > 1 else ""
        waiting = f"waiting for {pods_text(missing)}{many} to set {args.name}"
        if left <= patience:
            say(f"time is up: {waiting}")
            return Exit.TIME_LIMIT
        say(f"{waiting} for {time.monotonic() - began:.0f} s")


def _failed(fact: Fact) -> int:
    why = f": {fact.message}" if fact.message else ""
    say(f"pod {fact.pod} says that {fact.name} failed{why}")
    return fact.code or 1


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
    answer = member.ask("facts")
    if args.json:
        print_json(answer)
        return 0
    facts = [from_json(Fact, one) for one in answer["facts"]]
    rows: list[list[Cell]] = [
        [fact.name, fact.pod, f"failed ({fact.code})" if fact.failed else "done", utc(fact.time), fact.message]
        for fact in facts
    ]
    if rows:
        sys.stdout.write(render(["name", "pod", "state", "since", "message"], rows))
    return 0


def _clean(args: argparse.Namespace, member: Member) -> int:
    """Take away what all pods have said under this name."""
    count = member.ask("forget", name=args.name)["count"]
    _change_flags(member, args.name, set_it=False)
    say(f"{args.name} of {count_text(count, 'pod')} removed")
    return 0
