"""When a wait for facts is over, and how.

Pod 0 leads or, in a run, that run's first pod. A fact counts only in the directory of a start of it that was seen to go
on since the wait began: what an earlier attempt or start left there never goes on again. The directory of a run is that
run's alone, for its id is drawn at random: there the leader's start counts also when it has done its part of the run
and is silent, and others may still wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from agent.decide.subset import pods_text
from agent.decide.sync.beats import Beats
from agent.decide.sync.facts import Fact, FactPlace, name_of, pods_of, read_fact
from agent.decide.words import is_are, listed
from agent.errors import Exit

MOST_INVALID = 3
"""So many looks may find the same file damaged: one that comes late through a cache is whole by then."""


class WaitOutcome(NamedTuple):
    """How a wait ended: 0, or the exit code with what happened and what to do."""

    code: int
    what: str = ""
    hint: str = ""


@dataclass
class FactWait:
    """One pod's wait for the fact `name` from each of `pods`; for no pods it ends when the leader is known."""

    name: str
    pods: Collection[int]
    _: KW_ONLY
    job: str
    lease: float
    heard_by: float
    """Until when the leader must have been seen to go on, on the clock of the pod that waits."""
    ends: float
    """When all is over, by the same clock."""
    fresh: bool = False
    """The job's directory is that of a run."""
    start: str = ""
    """That of the leader, once it is known; the leader itself need not look for it."""
    lead: int = 0

    def __post_init__(self) -> None:
        self.missing = frozenset(self.pods)
        """Pods without the fact so far."""
        self.beats = Beats(self.lease, fresh=self.fresh)
        self.facts: dict[str, Fact] = {}
        """The valid facts of this name, by file: they need not be read again."""
        self._invalid: dict[str, int] = {}
        self.problems: dict[str, str] = {}
        """What is wrong with files that should be facts."""

    @property
    def place(self) -> FactPlace | None:
        """Where the facts are that count; None before the leader has been seen to go on."""
        return FactPlace(self.job, self.start) if self.start else None

    def look(self, now: float, names: Iterable[str]) -> WaitOutcome | None:
        """Take in the names in the job's directory; an outcome ends the wait."""
        self.beats.look(now, names)
        starts = self.beats.heard(self.lead) | ({self.start} if self.start else set())
        if len(starts) > 1:
            return WaitOutcome(
                Exit.TRY_AGAIN,
                f"pod {self.lead} was started again, or twice: facts of one start of it do not count for another",
                "if no other attempt of this job is still alive, run the command again",
            )
        self.start = next(iter(starts), "")
        if not self.start and now >= self.heard_by:
            first = f"pod {self.lead} is heard from its first a4-agent sync on"
            hint = f"{first}; all pods must see the same directory, and be of one job"
            return WaitOutcome(Exit.PEERS_MISSING, f"pod {self.lead} has not come: {NOT_HEARD}", hint)
        return None

    def judge(
        self, now: float, names: Iterable[str], texts: Mapping[str, str], problems: Mapping[str, str]
    ) -> WaitOutcome | None:
        """Take in the directory of facts: its names, what was read, what could not be. Failure comes first."""
        names = list(names)
        self.beats.came(pods_of(names) - {self.lead})
        there = {name for name in names if name_of(name) == self.name}
        self.facts = {file: fact for file, fact in self.facts.items() if file in there}
        self._read({file: text for file, text in texts.items() if file in there})
        self.problems |= {file: why for file, why in problems.items() if file in there}
        self._invalid = {file: self._invalid.get(file, 0) + 1 for file in self.problems}
        failed = [fact for fact in self.facts.values() if fact.failed]
        if failed:
            first = min(failed, key=lambda fact: fact.pod)
            why = f": {first.message}" if first.message else ""
            return WaitOutcome(first.code or 1, f"pod {first.pod} says that {first.name} failed{why}")
        self.missing = frozenset(self.pods) - {fact.pod for fact in self.facts.values()}
        if not self.missing:
            return WaitOutcome(Exit.OK)
        return self._damaged() or self._lost() or self._late(now)

    def _read(self, texts: Mapping[str, str]) -> None:
        self.problems = {}
        assert self.place is not None
        for file, text in texts.items():
            try:
                self.facts[file] = read_fact(file, text, self.place)
            except ValueError as why:
                self.problems[file] = str(why)

    def _damaged(self) -> WaitOutcome | None:
        for file, times in self._invalid.items():
            if times >= MOST_INVALID:
                return WaitOutcome(
                    Exit.DIRECTORY,
                    f"{self.job}/{self.start}/{file} is not a fact: {self.problems[file]}",
                    f"a4-agent sync clean {self.name} takes it away",
                )
        return None

    def _lost(self) -> WaitOutcome | None:
        lost = self.beats.silent_pods(self.missing if self.fresh else {self.lead, *self.missing})
        if not lost:
            return None
        pods = listed([f"pod {pod} (for {seconds:.0f} s)" for pod, seconds in sorted(lost.items())])
        return WaitOutcome(Exit.TRY_AGAIN, f"{pods} {is_are(lost)} silent: {self._waiting_for()}")

    def _late(self, now: float) -> WaitOutcome | None:
        if now < self.ends:
            return None
        never = [pod for pod in self.missing if not self.beats.heard(pod)]
        return WaitOutcome(Exit.PEERS_MISSING if never else Exit.TIME_LIMIT, f"time is up: {self.report()}")

    def report(self) -> str:
        """Who is missing, and why."""
        if not self.start:
            return f"waiting for pod {self.lead}: {NOT_HEARD}"
        silences = {pod: self.beats.silence(pod) for pod in sorted(self.missing)}
        pods = [
            f"pod {pod}: {NOT_HEARD if seconds is None else f'alive, heard {seconds:.0f} s ago'}"
            for pod, seconds in silences.items()
        ]
        return "\n  ".join([self._waiting_for(), *pods])

    def _waiting_for(self) -> str:
        many = f" ({len(self.missing)} of {len(self.pods)})" if len(self.pods) > 1 else ""
        return f"waiting for {pods_text(self.missing)}{many} to set {self.name}"


NOT_HEARD = "not heard in the shared directory"
