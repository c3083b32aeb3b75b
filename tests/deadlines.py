"""Deadlines of real clusters: long enough for any machine, or short because they begin to count after an event.

A pod that is starved for some seconds on a busy machine is no fault of the agent. So a cluster of a test is started
with limits under 30 s only where its workload keeps them from counting until what the test needs is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

from agent.workbench.local.spec import ClusterSpec

SHORTEST_SECONDS = 30.0
"""Load does not reach it."""
SETTINGS = (
    "A4_LEASE_SECONDS",
    "A4_PEER_TIMEOUT_SECONDS",
    "A4_STALL_TIMEOUT_SECONDS",
    "A4_WORKLOAD_TIMEOUT_SECONDS",
)
OPTIONS = ("--stall-timeout", "--timeout")


Limits = Sequence[tuple[str, str]]
"""Names of settings or options, and their seconds."""


class ShortDeadline(str):
    """Seconds, as settings and options have them, and the file in pod 0 that is there before they begin to count."""

    after: str


def at_any_moment(seconds: float) -> ShortDeadline:
    """A limit under 30 s that may be hit before anything has happened: the test expects the same of it then."""
    short = ShortDeadline(seconds)
    short.after = ""
    return short


def short_deadline(seconds: float, *, after: str) -> ShortDeadline:
    """A limit under 30 s. Until the file `after` is there, the workload does what keeps it from counting: it prints.

    At its end the test fails if the file is not there (`events`).
    """
    short = ShortDeadline(seconds)
    short.after = after
    return short


def talking_until(event: str) -> str:
    """Shell text: a background process that prints until the file `event` is there, or the shell itself has ended."""
    return f"while kill -0 $$ 2>/dev/null && ! test -e {event}; do echo starting; sleep 0.2; done &"


def talking(program: str, event: str, silent: str = '[ "$1" = --version ]') -> bytes:
    """A script that starts this program and prints until the file `event` is there: programs take their time.

    silent: shell text that succeeds where nothing may be printed
    """
    return f'#!/bin/sh\n{silent} || {{ {talking_until(event)} }}\nexec {program} "$@"\n'.encode()


def refuse_short(limits: Limits) -> None:
    """Fail the test for each limit of (name, value) that is short without saying after which event it begins."""
    for name, value in limits:
        if not isinstance(value, ShortDeadline) and 0 < float(value) < SHORTEST_SECONDS:
            pytest.fail(f"{name}={value}: a busy machine needs {SHORTEST_SECONDS:g} s; or short_deadline(after=…)")


def events(limits: Limits) -> set[str]:
    """Files after which the short ones among these limits begin to count."""
    return {value.after for _, value in limits if isinstance(value, ShortDeadline) and value.after}


def limits_of_spec(spec: ClusterSpec) -> Limits:
    """The limits of all pods of a local cluster."""
    of_pods = [limit for env in (spec.env, *spec.pod_env.values()) for limit in limits_of_env(env)]
    return [*of_pods, *limits_of_words((*spec.entrypoint, *spec.arguments))]


def limits_of_env(env: Mapping[str, str]) -> Limits:
    return [(name, env[name]) for name in SETTINGS if name in env]


def limits_of_words(words: Sequence[str]) -> Limits:
    """The limits in a command line: options with their values, and `--env NAME=SECONDS`."""
    pairs = list(pairwise(words))
    settings = [value.partition("=") for name, value in pairs if name == "--env"]
    return [
        *((name, value) for name, value in pairs if name in OPTIONS),
        *((name, seconds) for name, _, seconds in settings if name in SETTINGS),
    ]
