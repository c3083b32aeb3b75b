"""What was decided, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.clinic.why.culprits import Blame, Blames
from agent.clinic.why.members import GroupMember
from agent.clinic.why.places import place
from agent.clinic.why.waits import Wait
from agent.decide.diagnosis import Culprit, Place
from agent.decide.subset import grouped, ranges
from agent.decide.words import at_most, count_text, listed, plural

TIMING = (
    "a GPU that does not end its work looks like all others unless torch's timing is on: "
    "set A4_WHY_TIMING=true for the pods, or TORCH_NCCL_ENABLE_TIMING=1 for one command (about 20 µs per operation), "
    "and from torch 2.15 on TORCH_DIST_USE_NCCL2=0 as well"
)
MOST_NAMED = 3
MOST_IN_LINE = 16
"""Ranks of a pipeline that are named."""
MOST_RANGES = 12
"""Ranges in a list of ranks or of pods: 0-3,8,12."""
NOWHERE = Place("unknown", "")


def culprit(blame: Blame, members: Sequence[GroupMember]) -> Culprit:
    """One rank, with its own sentence."""
    member = members[blame.key]
    wait = blame.wait
    return Culprit(
        fault=blame.fault,
        pod=member.pod.pod if member.pod else -1,
        pod_name=member.pod.name if member.pod else "",
        node=member.pod.node if member.pod else "",
        pid=member.process.pid if member.process else None,
        rank=member.rank,
        group=wait.group.text if wait else "",
        operation=wait.operation if wait else "",
        number=wait.number if wait else None,
        waiting=blame.waiting,
        place=where(member),
        text=told(blame, members),
    )


def where(member: GroupMember) -> Place:
    return place(member.process, member.children) if member.process and not member.is_dead else NOWHERE


def told(blame: Blame, members: Sequence[GroupMember]) -> str:
    """One sentence about one rank, without a full stop."""
    member = members[blame.key]
    what = _does(blame, members)
    at = where(member)
    if blame.fault == "stopped" or not at.text:
        return f"{member.label} {what}"
    verb = "holds the GIL" if at.kind == "gil" else "is"
    text = at.text.partition(", and holds the GIL")[0] if at.kind == "gil" else at.text
    return f"{member.label} {what}; it {verb} in {text}"


def sentence(blames: Sequence[Blame], members: Sequence[GroupMember]) -> str:
    """All of them: those that are behind in the same operation together."""
    groups: dict[tuple[object, ...], list[Blame]] = {}
    for blame in blames:
        key = (blame.fault, blame.wait.group, blame.wait.number) if blame.wait else (blame.fault, None, None)
        groups.setdefault(key, []).append(blame)
    texts = [told(group[0], members) if len(group) == 1 else _together(group, members) for group in groups.values()]
    return "; and ".join(at_most(texts, MOST_NAMED, "{} more groups of ranks hold others up"))


def _together(group: Sequence[Blame], members: Sequence[GroupMember]) -> str:
    first, member = group[0], members[group[0].key]
    who = _ranks((blame.key for blame in group), members)
    at = where(member)
    text = f"{who} {_does(first, members)}"
    text = text.replace(f"{who} is ", f"{who} are ", 1).replace(f"{who} has ", f"{who} have ", 1)
    text = text.replace(" wait for it", " wait for them").replace(" waits for it", " waits for them")
    return text + (f"; {member.label} is in {at.text}" if at.text and first.fault != "stopped" else "")


def _does(blame: Blame, members: Sequence[GroupMember]) -> str:
    """What it does, or does not do, while others wait."""
    wait, member = blame.wait, members[blame.key]
    match blame.fault:
        case "dead":
            return f"has ended{_needed(blame)}"
        case "stopped":
            pid = member.process.pid if member.process else 0
            return f"is {where(member).text} (kill -CONT {pid} lets it go on){_needed(blame)}"
        case "waits":
            return "does not answer NCCL's RAS"
        case "odd":
            return f"is elsewhere than {count_text(blame.waiting, 'other rank')}"
    if wait is None:
        return "holds the others up"
    if blame.fault == "behind" and wait.kind == "point to point":
        return _silent(blame, wait, members)
    return _has_entered(blame, wait)


def _has_entered(blame: Blame, wait: Wait) -> str:
    others = f"{count_text(blame.waiting, 'rank')} {'is' if blame.waiting == 1 else 'are'}"
    match blame.fault:
        case "other operation":
            what = "" if wait.number is None else f" as operation {wait.number}{_of(wait)}"
            return f"entered {blame.instead}{what}, where {others} in {wait.operation}"
        case "other size":
            return f"entered {_operation(wait)} with {blame.instead}, where {others} in it with {wait.size}"
        case "device":
            return (
                f"entered {_operation(wait)}, and its GPU has not begun it, as {count_text(blame.waiting, 'other')} "
                f"{'has' if blame.waiting == 1 else 'have'}: what was started on that GPU before does not end"
            )
    return f"has not entered {_operation(wait)}, which {count_text(blame.waiting, 'rank')} {_waits(blame.waiting)} in"


def _silent(blame: Blame, wait: Wait, members: Sequence[GroupMember]) -> str:
    line = " → ".join(_in_line([*blame.chain, blame.key], members)) if blame.chain else ""
    waiters = f"{count_text(blame.waiting, 'rank')} {_waits(blame.waiting)} for it" + (f" ({line})" if line else "")
    word = wait.operation.partition(" ")[0]
    verb = "has sent nothing to" if "recv" in word.lower() else "receives nothing from"
    return f"{verb} {members[wait.waiter].name}, which waits in {word}: {waiters}"


def _in_line(keys: Sequence[int], members: Sequence[GroupMember]) -> list[str]:
    ranks = [str(members[key].rank) for key in keys]
    return ranks if len(ranks) <= MOST_IN_LINE else [*ranks[:2], "…", *ranks[3 - MOST_IN_LINE :]]


def _needed(blame: Blame) -> str:
    if blame.wait is None:
        return ""
    ranks = f"{count_text(blame.waiting, 'rank')} {_waits(blame.waiting)}"
    return f": {ranks} for it in {_operation(blame.wait)}"


def circle(judgement: Blames, members: Sequence[GroupMember]) -> tuple[str, tuple[str, ...]]:
    """The sentence, and a line for each operation in it."""
    waits = judgement.circle
    lines = tuple(_in_operations(waits, members))
    different = len({wait.group for wait in waits}) > 1
    why = "they entered the operations of several groups in different orders" if different else "each waits for another"
    count = len({wait.waiter for wait in waits})
    return f"{count} ranks wait for each other in a circle: {why}; no single one of them is to blame", lines


def differ(judgement: Blames, members: Sequence[GroupMember]) -> str:
    """Nobody is in a minority: no rank is blamed."""
    first = judgement.differ[0]
    same = [one for one in judgement.differ if (one.group, one.number) == (first.group, first.number)]
    entered = {wait.waiter: f"{wait.operation} {wait.size}".strip() for wait in same}
    told = [f"{_ranks(keys, members)} entered {text}" for text, keys in grouped(entered).items()]
    return (
        f"ranks entered different operations as number {first.number}{_of(first)}, and none is in a minority: "
        + listed(told)
    )


def full(judgement: Blames, members: Sequence[GroupMember], size: int) -> str:
    """All have entered the same operation, and for some or all of so many ranks it does not end."""
    wait = judgement.full[0]
    keys = {one.waiter for one in judgement.full if (one.group, one.number) == (wait.group, wait.number)}
    if len(keys) < size:
        those = f"{_ranks(keys, members)} {_waits(len(keys))} in {_operation(wait)}"
        text = f"{those}, which all {count_text(size, 'rank')} entered, and it does not end"
    else:
        text = f"all {count_text(size, 'rank')}{_of(wait)} entered {_operation(wait)} alike, and it does not end"
    if wait.group.backend == "nccl" and wait.started is None:
        return f"{text}: {TIMING}"
    return f"{text}: a network that lost a message, or a device, would look so"


def waiting(judgement: Blames, members: Sequence[GroupMember], waits: Sequence[Wait]) -> str:
    """Cannot tell for whom they wait."""
    known = _in_operations(waits, members)[:3]
    unknown = _ranks(judgement.unknown, members) if judgement.unknown else ""
    reasons = dict.fromkeys(members[key].unseen for key in sorted(judgement.unknown) if members[key].unseen)
    text = f"cannot tell who holds the others up: {listed(known)}"
    if unknown:
        text += f", perhaps for {unknown}, of which too little is known"
    elif judgement.open:
        text += ", in a group whose other ranks are not known"
    return text + (f" ({'; '.join(reasons)})" if reasons else "")


def _in_operations(waits: Sequence[Wait], members: Sequence[GroupMember]) -> list[str]:
    """Who waits in each."""
    by_operation: dict[str, set[int]] = {}
    for wait in waits:
        by_operation.setdefault(_operation(wait), set()).add(wait.waiter)
    return [f"{_ranks(keys, members)} {_waits(len(keys))} in {text}" for text, keys in by_operation.items()]


def _operation(wait: Wait) -> str:
    if wait.kind == "stack":
        return wait.operation
    number = f" #{wait.number}" if wait.number is not None else ""
    return f"{wait.operation.partition(' ')[0]}{number}{_of(wait)}"


def _of(wait: Wait) -> str:
    return f" of group {wait.group.text}" if wait.group.text else ""


def _waits(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _ranks(keys: Iterable[int], members: Sequence[GroupMember]) -> str:
    """ranks 2-3 (pod 1)"""
    chosen = [members[key] for key in sorted(keys)]
    numbers = [one.rank for one in chosen if one.rank is not None]
    pods = sorted({one.pod.pod for one in chosen if one.pod})
    where_text = f" (pod {pods[0]})" if len(pods) == 1 else f" (pods {_some_ranges(pods)})" if pods else ""
    if not numbers:
        return f"{count_text(len(chosen), 'process', 'processes')}{where_text}"
    return f"{plural('rank', numbers)} {_some_ranges(numbers)}{where_text}"


def _some_ranges(numbers: Iterable[int]) -> str:
    return ",".join(at_most(ranges(numbers).split(","), MOST_RANGES, "…"))
