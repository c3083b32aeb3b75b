"""A rank that somebody starts in a terminal (`--without`): its launcher starts entrypoints/hold-rank.py in its place,
which waits for them. So it has the environment and the place that the launcher gives it, and its end is a rank's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from agent.decide.ending import JobEnd
from agent.decide.words import lines
from agent.errors import Exit, UsageError
from agent.paths import shipped
from agent.workloads.base import Outcome, RunContext

COME_SECONDS = 600.0
"""How long a rank waits for somebody. Others wait as long for it: the default of torch with NCCL."""


def check_held(context: RunContext, ranks: int) -> None:
    """Raises UsageError for a rank that this run has not."""
    if context.spec.without is not None and context.spec.without >= ranks:
        have = f"has ranks 0 to {ranks - 1}" if ranks > 1 else "has rank 0 alone"
        raise UsageError(f"--without {context.spec.without}: this run {have}")


def hold(context: RunContext) -> Sequence[str]:
    """What stands before the program of the ranks; nothing when all are started."""
    if context.spec.without is None:
        return ()
    return [context.python, "-IS", shipped("entrypoints", "hold-rank.py"), context.start_rank, f"{COME_SECONDS:g}"]


def start_script(context: RunContext) -> str:
    """The file that starts the rank."""
    words = [context.python, "-IS", shipped("entrypoints", "start-rank.py"), context.start_rank]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def invitation(context: RunContext) -> str:
    """What to do, on the pod of the rank."""
    environ = context.environ
    if "KUBERNETES_SERVICE_HOST" in environ:  # Kubernetes sets it in every pod
        shell = f"kubectl exec -it {environ.get('POD_NAME') or 'POD'}"
    else:
        cluster = environ.get("JOB_ID", "local")
        shell = f"a4-agent local exec {context.index}" + ("" if cluster == "local" else f" --name {cluster}")
    return f"""\
a4-agent: rank {context.spec.without} waits for you to start it on {context.where(context.index)}
  get a shell there: {shell} -- bash
  and type:          {shlex.quote(context.start_rank)}
  the other ranks wait; if nobody comes within {COME_SECONDS:g} s, the run ends
"""


def nobody_came(context: RunContext, outcome: Outcome) -> JobEnd | None:
    """The end of a run whose rank nobody has started."""
    rank, pod = context.spec.without, context.holder
    if rank is None or pod is None or outcome.cause or rank not in outcome.ranks or not outcome.ranks[rank].unclaimed:
        return None
    what = f"nobody has started rank {rank} within {COME_SECONDS:g} s"
    return JobEnd(Exit.PEERS_MISSING, what, context.where(pod), f"what was to be typed there: {context.start_rank}")


def last_words(context: RunContext, rank: int | None, said: str, error: str) -> str:
    """The last that a rank said, for people, with what to do when its debugger had no terminal by its `error`."""
    if rank is not None and rank == context.spec.without:
        return "what it printed is in the terminal that started it"
    if not re.search(r"\bBdbQuit:?\s*$", error, re.MULTILINE):
        return said
    return lines(f"breakpoint() needs a terminal: run again with --without {'RANK' if rank is None else rank}", said)
