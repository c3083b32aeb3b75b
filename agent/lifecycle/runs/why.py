"""Why a run stands still: all its pods are asked what its processes do, and the answers are joined.

The coordinator asks when a limit is hit, when the run has been silent for A4_WHY_SECONDS, when somebody ends a run that
is silent, and when somebody wants to know. A run that hangs is only seen by its silence. Before it is ended, and with
it what it hangs in, everybody is asked: afterwards nobody could tell.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Set
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from agent import wire
from agent.clinic.interface import APART_SECONDS, Collected, PodRecords, diagnose
from agent.decide.diagnosis import Diagnosis
from agent.decide.ending import JobEnd
from agent.decide.messages import AskEvidence, Evidence
from agent.decide.run_names import run_of
from agent.decide.words import lines
from agent.errors import Exit
from agent.lifecycle.channel.link import beat_seconds
from agent.lifecycle.channel.roster import Roster
from agent.lifecycle.pod.pod import Pod
from agent.machine.evidence_text import is_stuck
from agent.workloads.base import RunContext, Workload

Trigger = Literal["asked", "stall", "timeout", "silence", "watchdog", "cancel"]
LOOK_SECONDS = 9.0
"""How long each pod may look."""
SAME_LINE_SECONDS = 1.0
"""Pods say how long ago they printed, a little sooner or later each time."""
NOTE_SECONDS = 15.0
"""A scrape a minute is usual."""
MOST_WHY = 6000
"""Characters of what all pods say in the reason of the end; the rest is in their files."""


@dataclass(eq=False)
class Asker:
    """Who waits for a look."""

    trigger: Trigger
    done: Callable[[Collected], None]


@dataclass(eq=False)
class Why:
    """Looks at one run for who holds it up. `waiting` has the pods whose part is not over; `end` gets why the run ends
    when it has hit a limit."""

    _pod: Pod
    _workload: Workload
    _context: RunContext
    _roster: Roster
    _waiting: Callable[[], Set[int]]
    _end: Callable[[JobEnd], None]

    def __post_init__(self) -> None:
        self._machine = self._pod.machine
        self._limit = self._pod.settings.why_seconds
        """The silence after which it is looked at by itself; 0: it is not."""
        self._timers = ExitStack()
        """Cancels them when the run ends."""
        self._with_dumps: frozenset[int] | None = None
        """Once all parts are over: the pods that are still asked."""
        self._asked: list[Asker] = []
        """Who waits for the look that goes on."""
        self._answers: dict[int, PodRecords | str | None] = {}
        """What pods have seen; a text: why that cannot be read; None: nothing goes on there."""
        self._began: float | None = None
        """When its pods were told to begin, on this pod's clock."""
        self._hit: JobEnd | None = None
        """The limit that was hit, while pods are asked."""
        self._summaries: dict[int, str] = {}
        """What pods said for people, in the last look."""
        self._printed_before = 0.0
        """When it had last printed, at the last look in silence."""
        self.found: Diagnosis | None = None
        """The last that was decided by itself, for those who ask when the run is over."""

    @property
    def _watched(self) -> bool:
        """Does its silence mean something? Somebody at a debugger's prompt is silent."""
        return self._pod.settings.why and self._context.spec.without is None

    def stop(self) -> None:
        """The run ends: limits no longer count, and it is looked at no more, but for those who wait for an answer."""
        self._hit = None
        self._timers.close()
        self._asked = [one for one in self._asked if one.trigger != "silence"]

    def is_quiet(self) -> bool:
        """Has it printed nothing for so long that it may hang? Then it is looked at before somebody's wish ends it."""
        if self._began is None or not self._watched:
            return False
        return self._machine.now() - max(self._began, self._printed()) >= 60.0

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it then if the run still goes on."""
        self._timers.callback(self._machine.later(seconds, action).cancel)

    def _printed(self) -> float:
        return self._roster.printed(self._context.indices)

    def stored(self, end: JobEnd) -> Diagnosis | None:
        """What was found of a run that ended so. A silence is over when the run ends well, or has printed since."""
        in_silence = self.found is not None and self.found.trigger == "silence"
        has_printed = self._printed() - self._printed_before > SAME_LINE_SECONDS
        return None if not end.code or (in_silence and has_printed) else self.found

    # One look

    def read_dumps(self, pods: Set[int], done: Callable[[Collected], None]) -> None:
        """All parts are over: have these pods say what torch's watchdog has left there."""
        # Who waits for a look at living ranks gets what is known, because no pod says more of them.
        self._answer(list(self._asked))
        self._with_dumps = frozenset(pods)
        self.ask("watchdog", 5.0, done)  # ranks are gone: there are files to read, and nothing else

    def _awaited(self) -> Set[int]:
        """Pods that can still say something of it."""
        return self._waiting() if self._with_dumps is None else self._with_dumps

    def ask(self, trigger: Trigger, seconds: float, done: Callable[[Collected], None]) -> None:
        """Have every pod look for at most so long; `done` gets what came in time. A look that goes on is joined."""
        if not self._asked:
            self._answers, self._summaries = {}, {}
            self._roster.say(AskEvidence(self._context.run_id, seconds), sorted(self._awaited()))
        asker = Asker(trigger, done)
        self._asked.append(asker)
        # Answers are on their way a little longer than pods look.
        self._machine.later(seconds + 2.0, lambda: self._answer([asker]))
        self._answer_if_all()

    def heard(self, index: int, said: Evidence | None) -> None:
        """A pod has looked, and its last word counts; None: it has no part in the run any more."""
        if not self._asked:
            return
        self._summaries[index] = said.summary if said is not None else ""
        if said is None or not said.records:
            self._answers.setdefault(index, None)
        else:
            try:
                self._answers[index] = wire.from_json(PodRecords, said.records)
            except ValueError as error:
                self._answers[index] = f"its answer cannot be read ({error}): does it run the same release?"
        self._answer_if_all()

    def _answer_if_all(self) -> None:
        if self._awaited() <= self._answers.keys():
            asked = list(self._asked)
            # By the loop, because a run that reads dumps asks in the middle of its judgement, which the answer begins
            # anew.
            self._machine.later(0, lambda: self._answer(asked))

    def _answer(self, askers: list[Asker]) -> None:
        """Tell those who still wait what is known by now."""
        for one in askers:
            if one in self._asked:
                self._asked.remove(one)
                one.done(self._collected(one.trigger))

    def _collected(self, trigger: Trigger) -> Collected:
        context = self._context
        spec, pods = context.spec, len(context.indices)
        answers = [self._answers.get(index) for index in context.indices]
        records = tuple(answer for answer in answers if isinstance(answer, PodRecords))
        silent = dict.fromkeys(self._awaited() - self._answers.keys(), "it did not answer in time")
        silent |= {index: why for index, why in self._answers.items() if isinstance(why, str)}
        silent |= {index: why for index, why in self._roster.lost.reasons().items() if index in context.indices}
        printed = self._printed()
        return Collected(
            run=context.run_id,
            pods=records,
            silent=silent,
            ranks=(spec.ranks or context.per_pod * pods) if knows_ranks(self._workload) else None,
            apart=APART_SECONDS if any(one.looked_twice for one in records) else None,
            quiet=max(0.0, self._machine.now() - printed) if printed > float("-inf") else None,
            trigger=trigger,
            hang_seconds=self._pod.settings.hang_seconds,
        )

    # Limits: how long it may take, and how long it may print nothing

    def _ask_at_limit(self, trigger: Trigger, which: str) -> None:
        if self._hit is not None:
            return
        self._hit = JobEnd(Exit.TIME_LIMIT, f"{self._context.spec.workload} hit {which}")
        self._pod.log.error(f"{self._context.run_id} hit {which}; asking every pod what its processes do", self._hit)
        self.ask(trigger, LOOK_SECONDS, self._end_run)

    def _end_run(self, collected: Collected) -> None:
        if self._hit is not None:
            found = self.found = decided(self._pod, collected)
            self._end(self._hit._replace(why=lines(found.sentence, self._described())))

    def _described(self) -> str:
        found = self._summaries
        said = [f"pod {index}: {line}" for index in sorted(found) for line in found[index].splitlines()]
        said.sort(key=lambda line: not is_stuck(line))  # of 1,000 ranks that wait for one, that one is shown
        if silent := sorted(self._awaited() - set(found)):
            said.append(f"pods {', '.join(map(str, silent))} did not say in time what they do")
        text = "\n".join(said)
        directory = f"{self._pod.dir.run(run_of(self._context.run_id))}/evidence.txt"
        cut = text if len(text) <= MOST_WHY else f"{text[:MOST_WHY]}…"
        return f"{cut}\nstacks and last output of every rank: {directory} on each pod, evidence/ in the results"

    # By itself

    def start(self) -> None:
        """Every part has begun."""
        spec, began = self._context.spec, self._machine.now()
        self._began = began
        if spec.timeout:
            which = f"the time limit of {spec.timeout:g} s"
            self._later(spec.timeout, lambda: self._ask_at_limit("timeout", which))
        if spec.stall:
            # What workers print is known with their next beat. Of an MPI run, mpirun alone prints.
            alone = list(self._workload.printing(self._context.indices)) == [0]
            late = 0.0 if alone else beat_seconds(self._pod.settings.lease)
            silence = f"the limit of {spec.stall:g} s without a line of output"
            self._when_silent(spec.stall + late, began, lambda: self._ask_at_limit("stall", silence))
        if self._watched and self._limit and self._workload.exclusive:
            self._look_in_silence(began)
        if self._pod.settings.metrics_port and self._workload.exclusive:
            self._note_words()

    def _note_words(self) -> None:
        """Keep, for metrics, when the run last printed."""
        assert self._began is not None
        silent = self._machine.now() - max(self._began, self._printed())
        self._pod.state.update(printed=round(self._machine.wall() - silent, 3))
        self._later(NOTE_SECONDS, self._note_words)

    def _look_in_silence(self, began: float) -> None:
        self._when_silent(self._limit, began, lambda: self.ask("silence", LOOK_SECONDS, self._look_again))

    def _when_silent(self, limit: float, began: float, action: Callable[[], None]) -> None:
        """Call it when the run has printed nothing for so long, at the earliest from `began` on."""
        left = limit - (self._machine.now() - max(began, self._printed()))
        if left < 0.01:  # a rounding error, not a time to wait
            action()
        else:
            self._later(left, lambda: self._when_silent(limit, began, action))

    def _look_again(self, first: Collected) -> None:
        began = self._machine.now()

        def again() -> None:
            self.ask("silence", LOOK_SECONDS, lambda second: self._judge_silence(first, second, began))

        self._later(min(30.0, self._limit / 2), again)  # numbers of a healthy run may stand still for a while

    def _judge_silence(self, first: Collected, second: Collected, began: float) -> None:
        """Say it once in a silence; a run whose numbers move is looked at again when it is still silent later."""
        both = second.after(first, self._machine.now() - began)
        found = decided(self._pod, both)
        if both.moves or found.status in ("moves", "waits"):
            self._later(self._limit, lambda: self._look_in_silence(self._machine.now()))
            return
        printed = self._printed_before = self._printed()
        self._later(self._limit, lambda: self._await_words(printed))
        self.found = found
        self._pod.state.update(stuck=found.status)
        quiet = f"{self._context.run_id} has printed nothing for {second.quiet or self._limit:.0f} s"
        self._pod.log.warning(f"{quiet}, and goes on: {found.sentence}")

    def _await_words(self, before: float) -> None:
        """Once it has printed again, the next silence counts."""
        printed = self._printed()
        if printed - before > SAME_LINE_SECONDS:
            self._pod.state.update(stuck=None)
            self._look_in_silence(printed)
        else:
            self._later(self._limit, lambda: self._await_words(before))


def knows_ranks(workload: Workload) -> bool:
    """Do mpirun or torchrun start them, and not a command or a script of the user's own?"""
    if workload.kind == "mpi" or workload.name.startswith("pai-"):
        return True
    return workload.kind == "everywhere" and workload.exclusive and workload.name != "script"


def decided(pod: Pod, collected: Collected) -> Diagnosis:
    """What follows from it. A bug there must not keep a run from its end."""
    try:
        return diagnose(collected)._replace(at=pod.machine.wall(), trigger=collected.trigger)
    except Exception:
        pod.log.error(f"why {collected.run} is stuck cannot be determined: this is a bug\n{traceback.format_exc()}")
        return Diagnosis(
            "unclear", "cannot tell: the decision failed, which is a bug; the log of pod 0 has its traceback"
        )
