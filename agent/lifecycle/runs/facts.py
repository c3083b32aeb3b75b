"""What pods have set for others to wait for (`a4-agent sync`). Pod 0 keeps it, for each run and for the job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from typing import Any

from agent import wire
from agent.decide.sync_facts import MOST_MESSAGE, Fact, fact_name
from agent.lifecycle.channel.questions import Answer
from agent.lifecycle.waits import REPORT_SECONDS
from agent.machine.api import Machine

OPS = ("begin", "set", "await", "facts", "forget")
MOST_FACTS = 10_000
Wait = tuple[str, frozenset[int]]
"""A name, and the pods that are to set it."""


class Facts:
    """Those of one run, or of the job. `gone` says of which pods nothing can come any more, and why."""

    def __init__(self, machine: Machine, gone: Callable[[Collection[int]], Mapping[int, str]]) -> None:
        self._machine = machine
        self._gone = gone
        self._facts: dict[tuple[str, int, bool], Fact] = {}
        """By name, pod, and whether it has failed."""
        self._waiting: dict[Answer, Wait] = {}
        self._began = False
        """Somebody has said `begin`."""
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
            began, self._began = self._began, True
            answer({"ok": {"first": not began}})
        elif op == "facts":
            answer({"ok": {"facts": wire.to_json(sorted(self._facts.values()))}})
        elif op == "forget":
            answer({"ok": {"count": self._forget(str(fields["name"]))}})
        elif op == "set":
            self._set(wire.from_json(Fact, fields["fact"]))
            answer({"ok": {}})
        else:
            self._wait(fact_name(str(fields["name"])), frozenset(map(int, fields["pods"])), fields["seconds"], answer)

    def _set(self, fact: Fact) -> None:
        fact_name(fact.name)
        if len(fact.message) > MOST_MESSAGE or len(self._facts) >= MOST_FACTS:
            raise ValueError(f"{len(self._facts)} names are set, and this message has {len(fact.message)} characters")
        self.put(fact)

    def put(self, fact: Fact) -> None:
        """Note it, and tell those who wait for it."""
        self._facts[fact.name, fact.pod, fact.failed] = fact._replace(time=self._machine.wall())
        self.look()

    def _forget(self, name: str) -> int:
        found = [key for key in self._facts if key[0] == name]
        for key in found:
            del self._facts[key]
        return len(found)

    def _wait(self, name: str, pods: frozenset[int], seconds: float, answer: Answer) -> None:
        """Answer when all these pods have set the name, one says that it has failed, or one never will; else, after
        `seconds`, with the pods that are missing: who waits asks again."""

        def report() -> None:
            if self._waiting.pop(answer, None):
                answer({"ok": {"missing": sorted(self._missing(name, pods))}})

        self._waiting[answer] = (name, pods)
        self._machine.later(min(max(0.0, seconds), REPORT_SECONDS), report)
        self.look()
        self.wanted()

    def look(self) -> None:
        """Answer those whose wait is over."""
        told = {wait: self._told(*wait) for wait in set(self._waiting.values())}
        for wait, found in told.items():
            if "gone" in found and wait[0] in self.flagged and not self._looked_again.get(wait):
                told[wait] = {}
                self._look_again(wait)
        for answer, wait in list(self._waiting.items()):
            if found := told[wait]:
                del self._waiting[answer]
                answer({"ok": found})

    def _look_again(self, wait: Wait) -> None:
        """A script may have made the flag just before its pod's part was over."""
        if wait in self._looked_again:
            return
        self._looked_again[wait] = False

        def looked() -> None:
            self._looked_again[wait] = True
            self.look()

        self.look_again(looked)

    def has(self, name: str, pod: int) -> bool:
        return (name, pod, False) in self._facts

    def waited_for(self) -> Set[str]:
        """Names that somebody waits for."""
        return {name for name, _ in self._waiting.values()}

    def _missing(self, name: str, pods: frozenset[int]) -> frozenset[int]:
        return pods - {pod for of, pod, failed in self._facts if of == name and not failed}

    def _told(self, name: str, pods: frozenset[int]) -> dict[str, Any]:
        """How the wait is over; empty while it is not. That something has failed counts first."""
        failed = [fact for (of, _, has_failed), fact in self._facts.items() if of == name and has_failed]
        if failed:
            return {"failed": wire.to_json(min(failed, key=lambda fact: fact.pod))}
        missing = self._missing(name, pods)
        if not missing:
            return {"done": True}
        gone = self._gone(missing)
        return {"gone": {str(pod): why for pod, why in sorted(gone.items())}} if gone else {}
