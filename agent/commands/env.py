"""`a4-agent env`: the environment of this pod's workloads, and what a fabric profile makes of one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.commands.pod import agent_environment
from agent.commands.printing import fitted_table, print_json
from agent.decide.env_sh import exports
from agent.decide.environment import USER, Layer, changed, of_pod
from agent.decide.masking import Masker
from agent.decide.secret_variables import hidden, listed, secret_values
from agent.decide.words import did_you_mean
from agent.environment import load
from agent.errors import UsageError
from agent.fabrics.profiles import CHOICES, MARKS, NONE, choose, parse
from agent.paths import RunDir, shipped
from agent.settings import Found, read_setting

DESCRIPTION = """\
Shows the variables that workloads get in this pod, and where each comes from; values of secrets are not shown.
With --profile: what that fabric profile would set here, and what it would unset. Vendors' scripts, which take
effect before a profile, run when a pod starts, and never by this command.
"""
EXAMPLES = """\
a4-agent env NCCL_IB_TC
a4-agent env --profile a4-gib
"""


class Shown(NamedTuple):
    """What is printed."""

    profile: str
    why: str
    variables: Mapping[str, str]
    unset: list[str]
    sources: Mapping[str, str]
    overruled: list[str]
    secret: Sequence[str] = ()
    """Names of variables whose values are not shown."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these variables")
    parser.add_argument("--profile", choices=CHOICES, help="what this profile sets and unsets")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--shell", action="store_true", help="as lines that a shell can source")
    form.add_argument("--json", action="store_true", help="the same as JSON")


def run(args: argparse.Namespace) -> int:
    shown = _without_secrets(_of_profile(args.profile) if args.profile else _of_pod())
    if args.names:
        shown = _of_these(args.names, shown)
    if args.json:
        print_json(shown._asdict())
        return 0
    print(f"# profile {shown.profile}: {shown.why}")
    sys.stdout.flush()
    if args.shell:
        variables = {name: value for name, value in shown.variables.items() if name not in shown.secret}
        text = exports(variables, shown.unset)
    else:
        text = _table(shown)
    sys.stdout.buffer.write(text.encode(errors="surrogateescape"))
    return 0


def _of_pod() -> Shown:
    """What the agent of this pod has prepared; before that, what it was or would be started with."""
    directory = RunDir()
    record = load(directory.environment) or {"profile": NONE, "why": "no a4-agent has prepared this pod yet"}
    changes = record.get("changes", {})
    env = agent_environment(directory) or changed(os.environ, changes)
    gone = [name for name, value in changes.items() if value is None]
    sources, overruled = record.get("sources", {}), record.get("overruled", [])
    return Shown(record["profile"], record["why"], env, gone, sources, overruled)


def _of_profile(wanted: str) -> Shown:
    """What a profile would set here. Raises SettingsError for a wrong A4_USER_ENV."""
    profile = choose(wanted, [mark for mark in MARKS if os.path.exists(mark)])
    if wanted != "auto":
        profile = profile._replace(why="asked for with --profile")
    if profile.name != NONE:
        with open(shipped("env", f"{profile.name}.env"), encoding="utf-8") as file:
            profile = parse(profile, file.read())
    by_user = read_setting(USER, os.environ, Found()).split()
    made = of_pod(os.environ, by_user).with_layer(Layer(f"profile {profile.name}", profile.values, profile.unset))
    values = {name: made.env[name] for name in profile.values}
    gone = [name for name in profile.unset if name not in made.env]
    return Shown(profile.name, profile.why, values, gone, made.sources, list(made.overruled))


def _of_these(names: Sequence[str], found: Shown) -> Shown:
    """What was found of these variables. Raises UsageError for one that is not there."""
    known = {*found.variables, *found.unset}
    for name in names:
        if name not in known:
            hint = "a4-agent env lists them"
            raise UsageError(f"there is no variable {name!r} for workloads{did_you_mean(name, known)}", hint)
    variables = {name: value for name, value in found.variables.items() if name in names}
    return found._replace(
        variables=variables,
        unset=[name for name in found.unset if name in names],
        sources={name: source for name, source in found.sources.items() if name in names},
    )


def _without_secrets(found: Shown) -> Shown:
    """The same with secrets replaced. What was replaced is named: --shell must leave it out."""
    names = listed({**os.environ, **found.variables})
    masker = Masker(secret_values(found.variables, names))
    variables = masker.value(hidden(found.variables, names))
    secret = [name for name, value in variables.items() if found.variables.get(name) != value]
    return found._replace(variables=variables, overruled=masker.value(found.overruled), secret=secret)


def _table(shown: Shown) -> str:
    """For people: each variable with where it came from."""
    # On one line, whatever is in a value.
    lines = {name: value if value.isprintable() else repr(value) for name, value in sorted(shown.variables.items())}
    rows = [[name, line, shown.sources.get(name, "the pod")] for name, line in lines.items()]
    rows += [[name, "(unset)", shown.sources.get(name, f"profile {shown.profile}")] for name in sorted(shown.unset)]
    return fitted_table(["variable", "value", "from"], rows)
