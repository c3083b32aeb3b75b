"""Why a run stands still: the answer, from all that its pods saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from agent.clinic.why import telling
from agent.clinic.why.culprits import Blame, Blames, judge
from agent.clinic.why.members import GroupMember, blind_pods, members
from agent.clinic.why.pace import Pace, together
from agent.clinic.why.places import frame_text, main_frames, user_frame
from agent.clinic.why.ras_view import RasView, view
from agent.clinic.why.records import DEFAULT_GROUP, Collected
from agent.clinic.why.waits import GroupName, Wait, WaitGraph
from agent.decide.diagnosis import Diagnosis, Status
from agent.decide.words import count_text

MOST_CULPRITS = 32
ODD_SHARE = 0.25
"""At most this share of the ranks is called odd, and always one of three or more."""
MOVES = "nothing hangs: the operation number moves"
MOVES_SO_FAR = "nothing hangs so far"


class Decision(NamedTuple):
    """The answer, and by what it was found."""

    diagnosis: Diagnosis
    """Without what the sources gave."""
    collected: Collected
    members: Sequence[GroupMember]
    ras: RasView | None
    blamed: frozenset[int]
    """Members, also if they are not told."""


def decide(collected: Collected) -> Decision:
    """Who holds the others up and where it is, or that nobody does, or that it cannot be told."""
    picture = WaitGraph(members(collected), are_all=not blind_pods(collected))
    ras = _ras(collected, picture.members)
    judgement = judge(picture)
    blames = judgement.blames or _by_ras(picture, ras, judgement)
    status, sentence, details = _answer(collected, picture, judgement, blames, ras)
    diagnosis = Diagnosis(
        status=status,
        sentence=sentence,
        culprits=tuple(telling.culprit(one, picture.members) for one in blames[:MOST_CULPRITS] if status != "moves"),
        details=details,
        trigger=collected.trigger,
    )
    return Decision(diagnosis, collected, picture.members, ras, frozenset(one.key for one in blames))


def _answer(
    collected: Collected, picture: WaitGraph, judgement: Blames, blames: Sequence[Blame], ras: RasView | None
) -> tuple[Status, str, tuple[str, ...]]:
    ranks = picture.members
    if not ranks:
        return "unclear", _no_ranks(collected), ()
    if blames:
        return _blamed(collected, picture, judgement, blames)
    if judgement.moves or (ras is not None and ras.moves and ras.is_ours and not picture.waits):
        return "moves", MOVES, ()
    if judgement.differ:
        return "unclear", telling.differ(judgement, ranks), ()
    usual = together(map(_pace, ranks))
    enough = collected.hang_seconds if not picture.waits else 0.0  # all may be at work
    if usual is not None and usual.still <= max(usual.longest, enough) and not judgement.circle:
        return "moves", f"{MOVES_SO_FAR}: {usual.words('operation')}", ()
    if judgement.unknown or (judgement.open and not judgement.circle):
        lines, odd = common_and_odd(ranks)
        waiters = {one.waiter for one in picture.waits}
        shown = [one for one in odd if one.key not in waiters] if judgement.open else []
        sentences = (telling.waiting(judgement, ranks, picture.waits), *_odd(shown, ranks))
        return "unclear", "; and ".join(sentences), lines
    if judgement.circle:
        sentence, lines = telling.circle(judgement, ranks)
        return "circle", sentence, lines
    if judgement.full:
        everybody, _ = picture.ranks_of(judgement.full[0].group)
        return "unclear", telling.full(judgement, ranks, len(everybody)), common_and_odd(ranks)[0]
    return _by_stacks(ranks)


def _blamed(
    collected: Collected, picture: WaitGraph, judgement: Blames, blames: Sequence[Blame]
) -> tuple[Status, str, tuple[str, ...]]:
    """Ranks that have only not entered an operation yet may be at something that takes long. Everything else is said at
    once."""
    ranks = picture.members
    sentence = telling.sentence(blames, ranks)
    known = _paces(blames, picture, collected)
    if not known or collected.trigger == "watchdog":
        return "hangs", sentence, _unmoved(collected, judgement)
    pace, what = max(known, key=lambda one: one[0].still)
    said = pace.words(what)
    least = max(collected.hang_seconds, pace.longest)
    if any(one.fault != "behind" for one in blames) or pace.still >= least:
        return "hangs", f"{sentence}; {said}", ()
    which = "the longest time so far" if least == pace.longest else "A4_HANG_SECONDS"
    until = f"called a hang after {least:.0f} s without one ({which})"
    return ("moves" if pace.still <= pace.longest else "waits"), f"{said}: {sentence}", (until,)


def _paces(blames: Sequence[Blame], picture: WaitGraph, collected: Collected) -> list[tuple[Pace, str]]:
    """How often each blamed rank and those that wait for it enter operations, and what is counted. Where no rank is
    known to enter any, how often the run prints. Empty: nothing is known."""
    waiters: dict[frozenset[int], list[int]] = {}
    for wait in picture.waits:
        waiters.setdefault(wait.blockers, []).append(wait.waiter)
    found: dict[int, list[Pace | None]] = {one.key: [_pace(picture.members[one.key])] for one in blames}
    for blockers, keys in waiters.items():
        pace = together(_pace(picture.members[key]) for key in keys)
        for key in blockers & found.keys():
            found[key].append(pace)
    known = [(pace, "operation") for pace in map(together, found.values()) if pace is not None]
    printed = together(pod.printed for pod in collected.pods)
    return known or ([(printed, "line of output")] if printed is not None else [])


def _pace(member: GroupMember) -> Pace | None:
    return member.process.pace if member.process else None


def _no_ranks(collected: Collected) -> str:
    silent = "; ".join(f"pod {pod}: {why}" for pod, why in sorted(collected.silent.items()))
    return "cannot tell: no pod showed a rank of the run" + (f" ({silent})" if silent else "")


def _unmoved(collected: Collected, judgement: Blames) -> tuple[str, ...]:
    if collected.trigger == "watchdog":
        return ("torch's watchdog wrote that down before it ended the ranks",)
    if any(one.wait is not None and one.wait.kind == "stack" for one in judgement.blames):
        return ("the ranks that wait were at the same place at two looks",)
    if collected.apart is None:
        return ("it was looked at once: whether a number moves is not known",)
    return (f"no number that counts here moved within {collected.apart:.1f} s",)


def _ras(collected: Collected, ranks: Sequence[GroupMember]) -> RasView | None:
    """The answer that is about the run; if several are, one that says something is wrong."""
    views = [view(pod.ras, ranks) for pod in collected.pods if pod.ras is not None]
    return max(views, key=_weight, default=None)


def _weight(ras: RasView) -> tuple[bool, ...]:
    return bool(ras.is_ours), ras.is_ours is None, bool(ras.behind or ras.silent), not ras.moves


def _by_ras(picture: WaitGraph, ras: RasView | None, judgement: Blames) -> tuple[Blame, ...]:
    """Where torch's recorder tells nothing, NCCL's counts do."""
    if ras is None or ras.moves or not ras.is_ours or picture.waits or judgement.moves:
        return ()
    group = GroupName(DEFAULT_GROUP, "nccl")
    operation = ras.operation or "an operation"
    wait = Wait(-1, "stack", f"{operation} over NCCL", None, group, ras.behind)
    found = [Blame(key, "behind", wait, ras.others) for key in sorted(ras.behind - ras.silent)]
    return (*(Blame(key, "waits", None, 0) for key in sorted(ras.silent)), *found)


def _by_stacks(ranks: Sequence[GroupMember]) -> tuple[Status, str, tuple[str, ...]]:
    """Nothing says who waits for whom: the most common stack, and the odd ones."""
    lines, odd = common_and_odd(ranks)
    if odd:
        return "unclear", f"no source says who waits for whom; {'; and '.join(_odd(odd, ranks))}", lines
    if not lines:
        return "unclear", "cannot tell: no source showed what the ranks do", ()
    return "unclear", "cannot tell: no rank is known to wait for another, and no stack is odd", lines


def _odd(odd: Sequence[GroupMember], ranks: Sequence[GroupMember]) -> list[str]:
    """A sentence for each of the first."""
    others = len(ranks) - len(odd)
    return [telling.told(Blame(one.key, "odd", None, others), ranks) for one in odd[: telling.MOST_NAMED]]


def common_and_odd(ranks: Sequence[GroupMember]) -> tuple[tuple[str, ...], tuple[GroupMember, ...]]:
    """Lines with how many ranks are where, the most common first; and the few that are elsewhere than most."""
    places = {one.key: _signature(one) for one in ranks}
    counts = Counter(text for text in places.values() if text)
    if not counts:
        return (), ()
    lines = tuple(f"{count_text(count, 'rank')} at {text}" for text, count in counts.most_common(4))
    common, count = counts.most_common(1)[0]
    odd = tuple(one for one in ranks if places[one.key] and places[one.key] != common)
    few = len(ranks) >= 3 and len(odd) <= max(1, len(ranks) * ODD_SHARE) and count * 2 > len(ranks)
    return lines, odd if few else ()


def _signature(member: GroupMember) -> str:
    """Where it is in the user's code; without a Python stack, its call of the system."""
    if member.process is None or member.is_dead:
        return "its end" if member.is_dead else ""
    frame = user_frame(main_frames(member.process))
    first = member.process.waiting[0] if member.process.waiting else None
    if frame is not None:
        return frame_text(frame)
    if first is None:
        return ""
    return f"state {first.state}" if first.syscall in ("", "running") else f"the system call {first.syscall}"
