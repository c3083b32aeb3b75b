"""The workload's environment: what wins, when the pod, its profile, vendors' scripts and the user all say something."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What a shell and mpirun take for the name of a variable."""
SEARCH_PATHS = (
    "PATH",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LIBRARY_PATH",
    "CPATH",
    "MANPATH",
    "PKG_CONFIG_PATH",
    "PYTHONPATH",
)
"""Lists of directories or libraries: what is new comes first, and nothing is ever taken out."""
SOCKETS = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NVTE_UB_SOCKET_IFNAME")
"""Lists of interfaces, for which the chart has defaults."""
MOST_SHOWN = 200
POD = "the pod"
USER = "A4_USER_ENV"
# What bash sets in its own environment: no effect of a script that it runs.
SHELL_OWN = ("_", "SHLVL", "PWD", "OLDPWD")


class Layer(NamedTuple):
    """What one source says, in words and in variables."""

    source: str
    values: Mapping[str, str] = {}
    unset: Collection[str] = ()


def _overruled(name: str, value: str | None, source: str, by: str, by_value: str | None) -> str:
    """A value that does not hold, in words. None: not set."""
    wins = f"{name} is not set" if by_value is None else f"{name}={_short(by_value)}"
    lost = f"unset {name}" if value is None else f"{name}={_short(value)}"
    return f"{wins} ({by}) overrules {lost} ({source})"


def _short(value: str) -> str:
    """A value as one line of a log shows it."""
    text = value if value.isprintable() else repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


class Environment(NamedTuple):
    """Variables, and where each that is not the pod's own comes from."""

    env: Mapping[str, str]
    base: Mapping[str, str] = {}
    """What the pod was started with."""
    user: Collection[str] = ()
    """Names whose value the user has set, which nobody overrules (A4_USER_ENV)."""
    sources: Mapping[str, str] = {}
    """The source of each variable that differs from the pod's own, unset ones included."""
    overruled: Sequence[str] = ()
    """The values that do not hold, a sentence each."""

    @property
    def changes(self) -> dict[str, str | None]:
        """What differs from the pod's own; None: unset."""
        return {name: self.env.get(name) for name in self.sources}

    def with_layer(self, layer: Layer) -> Environment:
        """This with one more source, which comes before all that are in it but the user."""
        env, sources, overruled = dict(self.env), dict(self.sources), list(self.overruled)
        for name, value in {**layer.values, **dict.fromkeys(layer.unset)}.items():
            old, new = env.get(name), self._value(name, value)
            if name not in SEARCH_PATHS and value not in (old, new):
                overruled.append(_overruled(name, value, layer.source, USER, new))
            if old == new:
                continue
            if name not in SEARCH_PATHS and old is not None:
                overruled.append(_overruled(name, old, sources.get(name, POD), layer.source, new))
            env.pop(name, None)
            if new is not None:
                env[name] = new
            sources[name] = layer.source
            if new == self.base.get(name):
                del sources[name]
        return Environment(env, self.base, self.user, sources, tuple(overruled))

    def _value(self, name: str, value: str | None) -> str | None:
        """What holds once a source has said `value`."""
        old = self.env.get(name)
        if name in SEARCH_PATHS:
            merged = old if value is None else prepended(name, value, old or "")
            users = self.base.get(name) if name in self.user else None
            return prepended(name, users, merged or "") if users and merged is not None else merged
        return old if name in self.user and name in self.base else value


def of_pod(environ: Mapping[str, str], user: Collection[str] = ()) -> Environment:
    """What the pod was started with, before any source has been heard."""
    return Environment(environ, environ, frozenset(user))


def of_interfaces(environ: Mapping[str, str], interfaces: Sequence[str]) -> Layer:
    """In place of lists none of which is in the pod, the first of its `interfaces`: that of the agent's own traffic."""
    named = {name: environ[name] for name in SOCKETS if environ.get(name)}
    gone = [name for name, value in named.items() if not _any_there(value, interfaces)]
    return Layer("interfaces of the pod", dict.fromkeys(gone, interfaces[0]))


def _any_there(value: str, interfaces: Sequence[str]) -> bool:
    """NCCL takes the beginnings of names, and with ^ or = in front other lists: those are nobody's default."""
    return value[0] in "^=" or any(one.startswith(wanted) for wanted in value.split(",") for one in interfaces)


def prepended(name: str, first: str, rest: str) -> str:
    """Both lists as one, each entry where it comes first. An empty entry would mean the working directory: it goes."""
    mark = r"[: ]+" if name == "LD_PRELOAD" else ":"
    entries = [entry for text in (first, rest) for entry in re.split(mark, text) if entry]
    return ":".join(dict.fromkeys(entries))


def added(name: str, env: Mapping[str, str], base: Mapping[str, str]) -> list[str]:
    """Entries of a search path in `env` that the one in `base` has not."""
    old = base.get(name, "").split(":")
    return [entry for entry in env.get(name, "").split(":") if entry and entry not in old]


def is_named(name: str, patterns: Sequence[str]) -> bool:
    """Whether `patterns` have that name or, with a star at the end, its beginning."""
    return name in patterns or name.startswith(tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*")))


def effect(source: str, answer: bytes) -> Layer:
    """What a script has done to its environment, by what entrypoints/vendor-script.sh prints.

    Raises ValueError for anything but a whole answer.
    """
    first, found, second = answer.partition(b"\0\0")
    if not found or not second.endswith(b"\0"):
        raise ValueError("it has ended the shell that sourced it")
    before, after = _variables(first), _variables(second[:-1])
    values = {name: value for name, value in after.items() if before.get(name) != value and name not in SHELL_OWN}
    return Layer(source, values, [name for name in before if name not in after and name not in SHELL_OWN])


def _variables(data: bytes) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in data.decode("utf-8", "surrogateescape").split("\0"))
    return {name: value for name, found, value in pairs if found and name}


def saved(prepared: Environment, profile: str, why: str) -> dict[str, Any]:
    """What was made of the pod's environment, for the run directory; `changed` restores it."""
    return {
        "version": 1,
        "profile": profile,
        "why": why,
        "changes": prepared.changes,
        "sources": dict(prepared.sources),
        "overruled": list(prepared.overruled),
    }


def changed(environ: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The pod's environment with `saved` changes."""
    env = {name: value for name, value in environ.items() if name not in changes}
    return {**env, **{name: value for name, value in changes.items() if value is not None}}
