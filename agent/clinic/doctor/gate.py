"""Whether pods may begin a run, by what doctor saw of them (A4_GATE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.clinic.doctor import fleet
from agent.clinic.doctor.checks import Readings, examine
from agent.clinic.doctor.telling import sentences, verdict
from agent.decide.ending import JobEnd
from agent.decide.facts import Finding
from agent.decide.leaving_out import without_them
from agent.decide.plan import PlannedPeer
from agent.decide.subset import pods_text
from agent.decide.words import at_most
from agent.errors import Exit


def examine_all(readings: Mapping[int, Readings], nodes: Mapping[int, str]) -> list[Finding]:
    """What all checks say of these pods, and the comparison of them."""
    found = [one for pod, read in sorted(readings.items()) for one in examine(read, pod, nodes.get(pod, ""))]
    return found + fleet.compare(readings, nodes)


def fatal_of(findings: Sequence[Finding]) -> list[Finding]:
    return [one for one in findings if one.state == "bad" and one.severity == "fatal"]


def fatal_pods(findings: Sequence[Finding]) -> list[int]:
    return sorted({one.pod for one in fatal_of(findings)})


def refusal(
    findings: Sequence[Finding], silent: Mapping[int, str], peers: Sequence[PlannedPeer], *, strict: bool
) -> JobEnd | None:
    """Why a run must not begin on these pods; None when it may. A fatal finding counts for more than a pod that did not
    answer."""
    where = {peer.index: peer.where for peer in peers}
    sick, blind = fatal_pods(findings), [one for one in findings if one.state == "unknown"]
    fatal = fatal_of(findings)
    unheard = [f"{where[pod]} did not answer: {why}" for pod, why in sorted(silent.items())]
    if sick:
        what = f"the gate: {pods_text(sick)} of {len(peers)} with a fatal finding"
        code, told, of = Exit.WRONG_RESULT, [*at_most(sentences(fatal, where)), *unheard], sick
        told += at_most(list(dict.fromkeys(one.action for one in fatal)))
    elif silent:
        what = f"the gate: {pods_text(silent)} of {len(peers)} did not answer"
        code, told, of = Exit.PEERS_MISSING, at_most(unheard), sorted(silent)
    elif strict and blind:
        what = f"the gate: checks could not run on {pods_text({one.pod for one in blind})} of {len(peers)}"
        code, told, of = Exit.WRONG_RESULT, at_most(sentences(blind, where)), []
        told.append("A4_GATE=true starts runs anyway")
    else:
        return None
    # First what to do: a termination message is cut at its end.
    why = "\n".join([*without_them(peers, of), *told])
    return JobEnd(code, what, where[of[0]] if len(of) == 1 else "", why)


class GateVerdict(NamedTuple):
    """Whether a run may begin."""

    end: JobEnd | None
    """Why it must not; None: it may."""
    findings: tuple[Finding, ...]
    """Those that are not ok."""
    words: str
    """For the log."""


def judge_gate(
    readings: Mapping[int, Readings], silent: Mapping[int, str], peers: Sequence[PlannedPeer], *, strict: bool
) -> GateVerdict:
    """What the pods of a run have read, and why others gave no answer, judged."""
    found = examine_all(readings, {peer.index: peer.known_node for peer in peers})
    words = verdict(found, silent, len(readings) + len(silent))
    end = refusal(found, silent, peers, strict=strict)
    return GateVerdict(end, tuple(one for one in found if one.state != "ok"), words)
