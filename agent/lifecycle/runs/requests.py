"""What commands ask the coordinator, on its own desk or through a worker, and the way of each answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent import wire
from agent.clinic.interface import Collected
from agent.decide.diagnosis import RunDiagnosis
from agent.decide.ending import JobEnd
from agent.decide.runspec import RunSpec
from agent.decide.words import lines
from agent.errors import Exit
from agent.lifecycle.channel.questions import Answer, handled
from agent.lifecycle.channel.roster import Roster
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.bookings import Bookings
from agent.lifecycle.runs.facts import OPS as FACT_OPS
from agent.lifecycle.runs.meetings import MOST_SAID
from agent.lifecycle.runs.own_parts import Parts
from agent.lifecycle.runs.run_values import certain_end, run_end, run_info
from agent.lifecycle.runs.running import Run
from agent.lifecycle.runs.why import LOOK_SECONDS, decided

AWAY = (Exit.TRY_AGAIN, Exit.MISSING_PROGRAM)
"""What is answered of a pod that is lost, and of one that has come in its place and has not begun yet."""
LOST_SECONDS = 1.0
"""Between two tries to read what a pod prints that is lost and may be replaced."""


@dataclass
class CoordinatorRequests:
    """Answers what the book of runs and the pods know; passes on what changes the job's course.

    `submit` and `release` are the coordinator's: they change what the job does next.
    """

    _pod: Pod
    _roster: Roster
    _parts: Parts
    _bookings: Bookings
    _submit: Callable[[RunSpec, Answer], None]
    _release: Callable[[bool, Answer], None]

    def handle(self, op: str, fields: dict[str, Any], answer: Answer) -> None:
        """Raises AgentError, KeyError, TypeError or ValueError, which become the answer."""
        if op == "read":
            self._read(fields, answer)
        elif op == "submit":
            self._submit(RunSpec.from_json(fields.get("spec")), answer)
        elif op == "find":
            answer({"ok": run_info(self._pod, self._bookings.find(str(fields.get("run", "")))).to_json()})
        elif op in ("verdict", "wait"):
            self._wait(op, self._bookings.find(str(fields["run"])), answer)
        elif op == "why":
            self._why(self._bookings.find(str(fields.get("run", ""))), fields.get("records") is True, answer)
        elif op == "clocks":
            self._roster.compare_clocks(lambda found: answer({"ok": {str(i): wire.to_json(found[i]) for i in found}}))
        elif op in ("arrive", "tell", *FACT_OPS):
            self._said(op, str(fields["run"]), fields, answer)
        elif op == "cancel":
            self._cancel(fields)
            answer({"ok": {}})
        elif op == "release":
            self._release(bool(fields.get("force")), answer)
        else:
            raise ValueError("no such request")

    def _wait(self, op: str, run: Run, answer: Answer) -> None:
        """How it ends: as soon as that is certain, or when all is stored."""
        if op == "verdict":
            run.certain.when(lambda: answer({"ok": wire.to_json(certain_end(self._newest(run)))}))
        else:
            run.answerable.when(lambda: answer({"ok": wire.to_json(run_end(self._pod, self._newest(run)))}))

    def _newest(self, run: Run) -> Run:
        """The last life of that run."""
        return self._bookings.known(run.run_id) or run

    def _said(self, op: str, called: str, fields: dict[str, Any], answer: Answer) -> None:
        """A program of a run has something to say to those on other pods, or to people."""
        if op in FACT_OPS:
            self._bookings.facts_of(called).handle(op, fields, answer)
            return
        run = self._bookings.find(called)
        if op == "arrive":
            run.meetings.arrive(str(fields["name"]), int(fields["pod"]), str(fields.get("says", "")), answer)
        else:
            self._pod.log.info(f"{run.run_id}, pod {int(fields['pod'])}: {str(fields['line'])[:MOST_SAID]}")
            answer({"ok": {}})

    def _read(self, fields: dict[str, Any], answer: Answer) -> None:
        """Asked of the pod concerned, not before it has been told to begin: else it would know nothing of the run."""
        run, index = self._bookings.known(str(fields["run"])), int(fields["pod"])

        def read(op: str, fields: dict[str, Any], answer: Answer) -> None:
            if index == 0:
                self._parts.read(fields, answer)
            else:
                self._roster.reachable(index).questions.ask(op, fields, answer)

        def read_when_there(op: str, fields: dict[str, Any], answer: Answer) -> None:
            """A pod that is lost in a run that may start again is not the end of what is printed there."""

            def answered(reply: dict[str, Any]) -> None:
                is_away = reply.get("error", {}).get("code") in AWAY and fields.get("wait")
                if is_away and run is not None and self._newest(run).waits_for_lost():
                    self._pod.machine.later(LOST_SECONDS, lambda: read_when_there(op, fields, answer))
                else:
                    answer(reply)

            handled(read, op, fields, answered)

        if run is None:
            read("read", fields, answer)
        else:
            asked = {**fields, "run": run.run_id}
            # Later: what this pod tells itself to begin comes first.
            run.told_to_begin.when(lambda: self._pod.machine.later(0, lambda: read_when_there("read", asked, answer)))

    def _why(self, run: Run, records: bool, answer: Answer) -> None:
        """Who holds it up; of one that is over, what was said of it then. With `records`, all that pods have seen."""

        def tell(value: object) -> None:
            """Pods mask what they send with the secrets that they know; this one knows those of all."""
            answer({"ok": self._pod.log.masker.value(wire.to_json(value))})

        def looked(seen: Collected) -> None:
            tell(seen if records else RunDiagnosis(run.run_id, over=False, diagnosis=decided(self._pod, seen)))

        if not run.over:
            run.told_to_begin.when(lambda: run.why.ask("asked", LOOK_SECONDS, looked))
        elif records:
            tell(Collected(run.run_id))
        else:
            tell(RunDiagnosis(run.run_id, over=True, diagnosis=run.why.stored(run.verdict.end)))

    def _cancel(self, fields: dict[str, Any]) -> None:
        """End a run for somebody; one that is over stays as it is, so that a late Ctrl-C is no error."""
        run = self._bookings.find(str(fields["run"]))
        if run.over or fields.get("hurry") or not run.why.is_quiet():
            self._end_run(run, fields)
        else:
            self._pod.log.info(f"{run.run_id} is silent: asking every pod what its processes do before it is ended")
            # Somebody waits for its end.
            run.why.ask("cancel", 2.5, lambda seen: self._end_run(run, fields, seen))

    def _end_run(self, run: Run, fields: dict[str, Any], seen: Collected | None = None) -> None:
        if run.over:
            return
        found = run.why.found = decided(self._pod, seen) if seen is not None else run.why.found
        why = str(fields.get("why") or "somebody ended it")
        self._pod.log.info(f"{run.run_id} is ended: {why}")
        run.cancel(JobEnd(Exit.INTERRUPTED, f"{run.run_id} was ended", why=lines(why, found.sentence if found else "")))
        if fields.get("hurry"):
            run.hurry()
