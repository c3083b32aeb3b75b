"""What a source of `why` is: a class that says how it is asked on each pod, what of its answer travels, and how pod 0
tells that. agent/clinic/sources/catalogue.py has a row for each.

No rank is asked for what needs its GIL: a thread that waits for that aborts a program that is ending.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from agent.clinic.sources.question import APART_SECONDS, Question
from agent.clinic.why.records import PodRecords, Role, Source
from agent.decide.diagnosis import SourceSaid, SourceState
from agent.decide.subset import pods_text, ranges
from agent.decide.words import at_most, count_text, plural

if TYPE_CHECKING:  # every run imports this module for `is_dump`
    from agent.clinic.why.deciding import Decision
    from agent.clinic.why.members import GroupMember
    from agent.machine.evidence_text import ProcessSeen

ALL_SHARE = 0.9
"""Part of the time after which everything must have been read."""
DUMP_SHARE = 0.45
"""Part of the time that one process's stacks, or NCCL, may take."""
Job = Callable[[], None]


class Look:
    """One look of this pod at the processes of a run: what sources are asked about, and until when."""

    def __init__(self, question: Question) -> None:
        self.question = question
        # The first source finds these.
        self.processes: Sequence[ProcessSeen] = ()
        self.notes: Sequence[str] = ()
        self.roles: Mapping[int, Role] = {}
        self.gone: Mapping[int, int] = {}
        """Process → rank of those that were ranks, and are not there any more."""
        self.sockets: Mapping[int, str] = {}
        """Process → the socket of torch's server in it, of those that have one."""
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._said: dict[tuple[str, SourceState, str], list[int]] = {}

    @property
    def ranks(self) -> list[ProcessSeen]:
        return [one for one in self.processes if self.roles[one.pid] == "rank"]

    def until(self, share: float) -> float:
        """When that part of the time is over."""
        return self._began + self.question.seconds * share

    def left(self) -> float:
        # Not 0, because a socket would then not wait at all.
        return max(0.1, self.until(ALL_SHARE) - time.monotonic())

    def at_most(self, share: float) -> float:
        return min(self.question.seconds * share, self.left())

    def wait_between_looks(self) -> None:
        threading.Event().wait(min(APART_SECONDS, self.left() / 3))

    def keep(self, name: str, raw: bytes) -> None:
        """What was answered, for who wants to know more. A full disk costs only this."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with suppress(OSError), open(os.open(f"{self.question.why_dir}/{name}", flags, 0o600), "wb") as file:
            file.write(raw)

    def say(self, source: str, state: SourceState, why: str, pids: Sequence[int]) -> None:
        with self._lock:
            self._said.setdefault((source, state, why), []).extend(pids)

    def said(self) -> list[Source]:
        """By all sources until now."""
        with self._lock:
            return [Source(*about, tuple(sorted(pids))) for about, pids in self._said.items()]


class WhySource:
    """One source. An instance lives for one look."""

    name: ClassVar[str]
    """A row of docs/why.md."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.given: dict[int, dict[str, Any]] = {}

    def jobs(self) -> Iterable[Job]:
        """What is asked side by side, the longest first. One that is late is left behind."""
        return ()

    def gives(self, pid: int, **fields: object) -> None:
        """These fields of that `Process` travel."""
        self.given.setdefault(pid, {}).update(fields)

    def says(self, state: SourceState, why: str, *pids: int) -> None:
        """This travels as a `Source`: about these processes, or, with none, about the pod."""
        self.look.say(self.name, state, why, pids)

    def add_to(self, pod: PodRecords) -> PodRecords:
        """The records that travel, with what came in time."""
        return pod._replace(processes=tuple(one._replace(**self.given.get(one.pid, {})) for one in pod.processes))

    def described(self, process: ProcessSeen) -> ProcessSeen:
        """A process with what evidence.txt says of it."""
        return process

    @classmethod
    def shows(cls, member: GroupMember) -> bool:
        """Whether it gave something of that rank."""
        return any(one.state == "found" for one in member.told(cls.name))

    @classmethod
    def tell(cls, decision: Decision) -> list[SourceSaid]:
        """On pod 0: a line for each state and reason."""
        count, members = sum(map(cls.shows, decision.members)), decision.members
        found = [SourceSaid(cls.name, "found", f"{count} of {count_text(len(members), 'rank')}")] if count else []
        return found + cls.unavailable(decision)

    @classmethod
    def unavailable(cls, decision: Decision) -> list[SourceSaid]:
        """Each reason once, with the ranks or the pods that have it."""
        by_reason: dict[str, list[tuple[int, Source]]] = {}
        for pod in decision.collected.pods:
            for source in pod.sources:
                if source.name == cls.name and source.state == "unavailable":
                    by_reason.setdefault(source.why, []).append((pod.pod, source))
        texts = [
            f"{_whose(where, decision.members)}: {why or 'no reason is known'}" for why, where in by_reason.items()
        ]
        return [SourceSaid(cls.name, "unavailable", text) for text in at_most(texts)]


def _whose(where: Sequence[tuple[int, Source]], members: Sequence[GroupMember]) -> str:
    pods = {pod for pod, _ in where}
    if any(not source.pids for _, source in where):
        return pods_text(pods)
    processes = {(pod, pid) for pod, source in where for pid in source.pids}
    ranks = [
        one.rank
        for one in members
        if one.pod and one.process and (one.pod.pod, one.process.pid) in processes and one.rank is not None
    ]
    if ranks:
        return f"{plural('rank', ranks)} {ranges(ranks)}"
    return f"{count_text(len(processes), 'pid')} on {pods_text(pods)}"
