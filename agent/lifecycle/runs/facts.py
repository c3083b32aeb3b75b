"""What pods have set for others to wait for (`a4-agent sync`). Pod 0 keeps it, for each run and for the job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from typing import Any

from agent import wire
from agent.decide.sync_facts import MOST_MESSAGE, Fact, fact_name
from agent.errors import UsageError
from agent.lifecycle.channel.questions import Answer
from agent.lifecycle.waits import REPORT_SECONDS
from agent.machine.api import Clock

OPS = ("begin", "set", "await", "facts", "forget")
MOST_FACTS = 100_000
"""About 35 MB in pod 0's agent: a barrier of 1,024 pods is 1,024 facts."""
Wait = tuple[str, frozenset[int]]
"""A name, and the pods that are to set it."""


class Facts:
    """Those of one run, or of the job. `gone` says of which pods nothing can come any more, and why."""

    def __init__(self, clock: Clock, gone: Callable[[Collection[int]], Mapping[int, str]]) -> None:
        self._clock = clock
        self._gone = gone
        self._facts: dict[str, dict[tuple[int, bool], Fact]] = {}
        """Name → pod, and whether it has failed → what it says."""
        self._count = 0
        self._waiting: dict[Wait, list[Answer]] = {}
        """All who wait for the same together: in a barrier that is every pod of the run."""
        self.before: Mapping[str, object] = {}
        """Flags on shared storage that were there before the run began: path → which file it is."""
        self.stale: Mapping[str, object] = {}
        """The same, until the pod that leads begins to use facts, and takes them away."""
        self.flagged: Set[str] = frozenset()
        """Names that a flag on shared storage may set as well; `look_again` looks for it, and calls what it gets."""
        self.look_again: Callable[[Callable[[], None]], None] = lambda done: done()
        self._looked_again: dict[Wait, bool] = {}
        """Waits that only a flag can end well: has it been looked for since then?"""
        self.wanted: Callable[[], None] = lambda: None
        """Called when somebody begins to wait."""

    def handle(self, op: str, fields: Mapping[str, Any], answer: Answer) -> None:
        """One of OPS. Raises KeyError, TypeError or ValueError for what makes no sense."""
        if op == "begin":
            stale, self.stale = self.stale, {}
            answer({"ok": {"stale": dict(stale)}})
        elif op == "facts":
            facts = sorted(fact for found in self._facts.values() for fact in found.values())
            answer({"ok": {"facts": wire.to_json(facts)}})
        elif op == "forget":
            count = len(self._facts.pop(str(fields["name"]), {}))
            self._count -= count
            answer({"ok": {"count": count}})
        elif op == "set":
            self._set(wire.from_json(Fact, fields["fact"]))
            answer({"ok": {}})
        else:
            self._wait(fact_name(str(fields["name"])), frozenset(map(int, fields["pods"])), fields["seconds"], answer)

    def _set(self, fact: Fact) -> None:
        fact_name(fact.name)
        if len(fact.message) > MOST_MESSAGE:
            raise ValueError(f"the message has {len(fact.message)} characters")
        if self._count >= MOST_FACTS:
            raise UsageError(f"{MOST_FACTS} facts are set, which is the limit", "a4-agent sync clean NAME removes some")
        self.put(fact)

    def put(self, fact: Fact) -> None:
        """Note it, and tell those who wait for it."""
        found = self._facts.setdefault(fact.name, {})
        self._count += (fact.pod, fact.failed) not in found
        found[fact.pod, fact.failed] = fact._replace(time=self._clock.wall())
        self.look(fact.name)

    def _wait(self, name: str, pods: frozenset[int], seconds: float, answer: Answer) -> None:
        """Answer when all these pods have set the name, one says that it has failed, or one never will; else, after
        `seconds`, with the pods that are missing: who waits asks again."""
        wait = name, pods

        def report() -> None:
            waiting = self._waiting.get(wait, [])
            if answer in waiting:
                waiting.remove(answer)
                answer({"ok": {"missing": sorted(self._missing(name, pods))}})

        self._waiting.setdefault(wait, []).append(answer)
        self._clock.later(min(max(0.0, seconds), REPORT_SECONDS), report)
        self.look(name)
        self.wanted()

    def look(self, name: str = "") -> None:
        """Answer those whose wait is over, for that name or for any."""
        for wait in [wait for wait in self._waiting if name in ("", wait[0])]:
            told = self._told(*wait)
            if "gone" in told and wait[0] in self.flagged and not self._looked_again.get(wait):
                self._look_again(wait)
            elif told:
                for answer in self._waiting.pop(wait, []):
                    answer({"ok": told})

    def _look_again(self, wait: Wait) -> None:
        """A script may have made the flag just before its pod's part was over."""
        if wait in self._looked_again:
            return
        self._looked_again[wait] = False

        def looked() -> None:
            self._looked_again[wait] = True
            self.look(wait[0])

        self.look_again(looked)

    def has(self, name: str, pod: int) -> bool:
        return (pod, False) in self._facts.get(name, {})

    def waited_for(self) -> Set[str]:
        """Names that somebody waits for."""
        return {name for (name, _), waiting in self._waiting.items() if waiting}

    def _missing(self, name: str, pods: frozenset[int]) -> frozenset[int]:
        return pods - {pod for pod, failed in self._facts.get(name, {}) if not failed}

    def _told(self, name: str, pods: frozenset[int]) -> dict[str, Any]:
        """How the wait is over; empty while it is not. That something has failed counts first."""
        failed = [fact for fact in self._facts.get(name, {}).values() if fact.failed]
        if failed:
            return {"failed": wire.to_json(min(failed, key=lambda fact: fact.pod))}
        missing = self._missing(name, pods)
        if not missing:
            return {"done": True}
        gone = self._gone(missing)
        return {"gone": {str(pod): why for pod, why in sorted(gone.items())}} if gone else {}
