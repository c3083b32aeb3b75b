"""Why a run stood still, as it is told: on the page, in result.json, in the termination message, by `why`."""

from __future__ import annotations

from typing import Literal, NamedTuple

SourceState = Literal["found", "unavailable", "contradicts"]
Fault = Literal["dead", "stopped", "behind", "other operation", "other size", "device", "waits", "odd"]
"""device: its GPU has not begun what the others wait in; waits: it does not answer; odd: its stack is another than
most, which blames nobody"""
Status = Literal["hangs", "circle", "waits", "moves", "unclear"]
PlaceKind = Literal["stopped", "gil", "kernel", "python", "native", "unknown"]


class Place(NamedTuple):
    """Where a process is."""

    kind: PlaceKind
    text: str
    """in words: dataloader.py:88 (next_batch)"""
    details: tuple[str, ...] = ()
    """frames, the innermost first"""


class Culprit(NamedTuple):
    """A rank that others wait for."""

    fault: Fault
    pod: int
    """completion index; -1: unknown"""
    pod_name: str
    node: str
    pid: int | None
    rank: int | None
    group: str
    """the process group; empty: none is known"""
    operation: str
    """what the others are in: all_reduce; empty: unknown"""
    number: int | None
    """its number in the group"""
    waiting: int
    """how many ranks wait for it, directly or through others"""
    place: Place
    text: str
    """one sentence about this rank"""


class SourceSaid(NamedTuple):
    """What one source gave, over all pods."""

    name: str
    """a source of docs/why.md"""
    state: SourceState
    text: str
    """what it showed, why it is unavailable and what to do, or what it contradicts"""


class Diagnosis(NamedTuple):
    """Why a run stands still."""

    status: Status
    """hangs: a culprit is named; circle: ranks wait for each other, nobody is blamed; waits: ranks wait for culprits,
    too short a time to call it a hang; moves: nothing hangs; unclear: cannot tell who"""
    sentence: str
    culprits: tuple[Culprit, ...] = ()
    """those that wait for nobody; the one that most ranks wait for first"""
    sources: tuple[SourceSaid, ...] = ()
    details: tuple[str, ...] = ()
    """lines for people: the ranks of a circle, the most common and the odd stacks"""
    at: float | None = None
    """when it was looked at, in seconds since 1970"""
    trigger: str = ""
    """why it was looked at: asked, stall, timeout, silence, watchdog, cancel"""


class RunDiagnosis(NamedTuple):
    """What `why` answers of a run."""

    run: str
    """the run's id"""
    over: bool
    """it is over: what was found before its end"""
    diagnosis: Diagnosis | None
    """None: it is over, and nothing was seen to hang"""
