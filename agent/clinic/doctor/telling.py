"""Findings for people: equal ones of several pods and devices together, the worst first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from agent.decide.facts import Finding
from agent.decide.subset import grouped, pods_text
from agent.decide.words import count_text, listed

ORDER = ("fatal", "degraded", "information")
INDENT = "  "
LEAST_COLUMNS = 40


def report(
    findings: Sequence[Finding],
    silent: Mapping[int, str],
    pods: Mapping[int, str],
    columns: int,
    without: Sequence[str] = (),
) -> str:
    """The verdict, then what is bad, what could not be looked at, and what is well.

    `silent`: pods that did not answer, and why; `pods`: the name of each, for a finding on a single one; `without`: how
    to continue without the sick ones.
    """
    bad = [one for one in findings if one.state == "bad"]
    unknown = [one for one in findings if one.state == "unknown"]
    found = [verdict(findings, silent, len(pods))]
    found += [line for pod, why in silent.items() for line in _wrapped(f"{pods[pod]} did not answer: {why}", columns)]
    for severity in ORDER:
        for group in _alike(one for one in bad if one.severity == severity):
            found += ["", *_wrapped(f"{severity}: {_sentence(group, pods)}", columns)]
            found += _wrapped(f"expected: {group[0].limit}", columns, INDENT)
            actions = dict.fromkeys(one.action for one in group)  # once for all pods where it is the same
            found += [line for action in actions for line in _wrapped(action, columns, INDENT)]
    found += ["", *without] if without else []
    if unknown:
        found += ["", "not checked:"]
        found += [line for group in _alike(unknown) for line in _wrapped(_sentence(group, pods), columns, INDENT)]
    if well := _well(findings):
        found += ["", *_wrapped(f"ok: {', '.join(well)}", columns)]
    return "".join(f"{line}\n" for line in found)


def verdict(findings: Sequence[Finding], silent: Mapping[int, str], pods: int) -> str:
    """One line."""
    bad = [one for one in findings if one.state == "bad" and one.severity != "information"]
    sick = {one.pod for one in bad if one.severity == "fatal"}
    worse = {one.pod for one in bad} - sick
    parts = [f"{len(sick)} with a fatal finding"] if sick else []
    parts += [f"{len(worse)} degraded"] if worse else []
    parts += [f"{len(silent)} without an answer"] if silent else []
    looked = f"{count_text(pods, 'pod')}: "
    if parts:
        return looked + listed(parts)
    blind = {one.check for one in findings if one.state == "unknown"}
    return f"{looked}nothing bad found" + (f", {count_text(len(blind), 'check')} could not run" if blind else "")


def sentences(findings: Sequence[Finding], pods: Mapping[int, str]) -> list[str]:
    """One for all that say the same; `pods`: the name of each."""
    return [_sentence(group, pods) for group in _alike(findings)]


def _alike(findings: Iterator[Finding] | Sequence[Finding]) -> list[list[Finding]]:
    """Those that say the same of other pods and devices."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for one in findings:
        groups.setdefault((one.check, one.value, one.limit), []).append(one)
    return list(groups.values())


def _sentence(group: Sequence[Finding], pods: Mapping[int, str]) -> str:
    """`GPU recovery action is Reset: GPU 3 of pod 2 (…)`."""
    devices: dict[int, list[str]] = {}
    for one in group:
        devices.setdefault(one.pod, []).extend([one.device] if one.device else [])
    of_devices = grouped({pod: tuple(names) for pod, names in devices.items()})
    where = "; ".join(
        f"{', '.join(names)} of {_named(found, pods)}" if names else _named(found, pods)
        for names, found in of_devices.items()
    )
    return f"{group[0].check}: {group[0].value} on {where}"


def _named(found: Sequence[int], pods: Mapping[int, str]) -> str:
    return pods[found[0]] if len(found) == 1 else pods_text(found)


def _well(findings: Sequence[Finding]) -> list[str]:
    """Checks that are ok wherever they apply."""
    other = {one.check for one in findings if one.state != "ok"}
    return list(dict.fromkeys(one.check for one in findings if one.check not in other))


def _wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    """`columns` 0: one line."""
    if not columns:
        return [indent + text]
    width = max(LEAST_COLUMNS, columns)
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + INDENT, break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
