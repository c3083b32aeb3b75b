"""This pod's part of a run: its process if it has one, what that prints, and what is left of it.

Of an MPI run only the lead has a process, mpirun. The other pods' parts have none: they last until they are told to
end, and then end what mpirun's daemons have started here.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from agent.clinic.interface import Pace, RankSteps
from agent.decide.ending import exit_code, from_error
from agent.decide.grace import USUAL
from agent.decide.messages import Done, Prepared, RanksOver, SaidOfPart
from agent.decide.os_refusals import not_started, refused
from agent.decide.part_end import PartEnd
from agent.decide.progress import progress_text
from agent.decide.secret_variables import argument_secrets
from agent.decide.words import count_text
from agent.errors import AgentError, SystemFault
from agent.launch import Launch
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.fencing import PartFence
from agent.lifecycle.runs.hanging import Hanging
from agent.lifecycle.runs.marks import make_marks
from agent.lifecycle.runs.part_files import PartFiles, described
from agent.lifecycle.runs.part_gpus import when_free
from agent.lifecycle.runs.part_health import PartHealth
from agent.lifecycle.runs.part_output import PartOutput
from agent.lifecycle.runs.saving import Saving
from agent.lifecycle.waits import Once
from agent.machine.api import Child
from agent.workloads.base import RunContext, Workload

MOST_PIDS = 10
"""Processes that a warning names."""
PROGRESS_SECONDS = 10.0
"""After this much silence the run says what it is doing, if it knows."""


class PartPhase(IntEnum):
    """How far a part is. It never goes back, and may leave out what lies between."""

    PREPARING = 0
    READY = 1
    """All that it needs is there; it waits for `go`."""
    BEGUN = 2
    """Its process runs, or it has none and lasts until it is told to end."""
    STOPPED = 3
    """It was told to end, in whatever way."""
    ENDED = 4
    """Its process is gone; what it left is swept up, and its files are read."""
    OVER = 5


@dataclass(eq=False)
class RunPart:
    """Begins when `prepare` and `go` have been called.

    `say` gets what the coordinator is to hear of it: at last how it went, when nothing of it is left; at once for a
    part that cannot begin. Then `ended` is told.
    """

    _pod: Pod
    workload: Workload
    context: RunContext
    _say: Callable[[SaidOfPart], None]
    _ended: Callable[[], None]

    def __post_init__(self) -> None:
        pod, workload, context, say = self._pod, self.workload, self.context, self._say
        self._machine = pod.machine
        self.marks = make_marks(pod, context.run_id)
        self._fence = PartFence(pod, self.marks, context.spec.lives, self.kill)
        self._shares = pod.shares
        self.output = PartOutput(pod, context, workload)
        self.process: Child | None = None
        """At most one, while it runs."""
        self._terminated = False
        """It got SIGTERM. It gets one: at a second one mpirun gives up its own clean-up."""
        self._files = PartFiles(pod, workload, context, say)
        self._health = PartHealth(pod, workload, context, say)
        self._reports = workload.exclusive and context.index == context.lead
        """What it prints and records counts for the verdict, and for people."""
        self._launch: Launch | None = None
        self._began: float | None = None
        """When the process was started, in seconds since 1970, for result.json; None: there is none."""
        self._begun_at = 0.0
        """The same on the clock that never jumps, for how long it takes."""
        self._memory_kills = math.inf
        """Kills for memory on this pod before the part began; until then none counts as its own."""
        self._phase = PartPhase.PREPARING
        self._ready = Once()
        self.dumps = 0
        """Files of torch's watchdog, when it is over."""
        self._stopped = False
        """It was told to end, by the coordinator or because this pod ends."""
        self._at_once = False
        """Nobody has patience: what is left of it gets no time to end by itself."""
        self._stuck = False
        """It was at its end, hung, and was ended here: its status says nothing then."""
        begun, paused, end = (lambda: self._phase is PartPhase.BEGUN), (lambda: self._is_paused), self._end_hanging
        self.hanging = Hanging(self._machine, self._files, self.output, paused, begun, self._ranks_over, end)
        self.steps = RankSteps(self._machine, context.why_dir, begun)
        over, stop = (lambda: self.over), self._stop_process
        self._saving = Saving(pod, context, self.marks, workload.led, over, self._ranks_over, stop)

    @property
    def over(self) -> bool:
        return self._phase is PartPhase.OVER

    def printed(self) -> float:
        """When its process last printed something: now, while what it prints has to wait for a slow reader."""
        return self._machine.now() if self._is_paused else self.output.printed

    def pace(self) -> Pace | None:
        """How often its process prints; None: it has none."""
        if self.process is None:
            return None
        now = self._machine.now()
        return self.output.steps.pace(now)._replace(still=now - self.printed())

    @property
    def _is_paused(self) -> bool:
        return self.process is not None and self.process.is_paused

    def prepare(self) -> None:
        """Make directories and files of the run, and look for the programs and files that this pod is to start."""
        try:
            self._launch = self._make_ready()
        except (AgentError, OSError, ValueError) as error:
            self._fail(error)
            return
        programs = self.workload.programs(self.context) or (self._launch.argv[:1] if self._launch else ())
        files = self.workload.files(self.context)
        if not programs:
            self._looked(None)
            return
        cwd = self._launch.cwd if self._launch else self.context.spec.cwd
        path = self.context.environ.get("PATH", "")
        # Aside: what is asked for may lie on a server that does not answer, and starting it would wait for that.
        look = self._machine.why_unstartable
        self._machine.aside(lambda: look(programs, path, cwd, files), self._looked, self._looked)

    def _looked(self, missing: OSError | None) -> None:
        if self._phase is not PartPhase.PREPARING:
            return
        if missing is not None:
            self._fail(missing)
            return
        wanted, ready = (lambda: self._phase is PartPhase.PREPARING), self._be_ready
        when_free(self._pod, self.context, wanted, lambda: self._fence.when_ready(ready))

    def _be_ready(self) -> None:
        if self._phase is not PartPhase.PREPARING:
            return
        self._phase = PartPhase.READY
        self._say(Prepared(self.context.run_id))
        self._ready.happen()

    def go(self) -> None:
        """Begin, now or when it is prepared."""
        self._ready.when(self._begin)

    def _begin(self) -> None:
        if self._phase is not PartPhase.READY:
            return
        self._phase = PartPhase.BEGUN
        # The kernel counts for the whole container, from its start.
        self._memory_kills = self._machine.memory_kills()
        launch = self._launch
        if self.workload.led:
            self.hanging.start(is_lead=launch is not None)
        if self.context.why:
            self.steps.start()
        self._files.begin_series()
        self._health.begin()
        if self._reports and self.context.life > 1:
            left, run = count_text(self.context.lives_left, "life", "lives"), self._pod.state.run
            why = f"starts again after this: {run.ended_by}" if run is not None and run.ended_by else "starts again"
            self.output.say(f"a4-agent: {self.context.run_id} {why}; {left} left")
        if launch is not None:
            self._start(launch)

    def _start(self, launch: Launch) -> None:
        for note in launch.notes:
            self._pod.log.warning(note)
        self._pod.log.debug(f"starting:\n{launch}")
        try:
            self.process = self._machine.start(
                launch, self._exited, self.output.take, emitted=self.workload.exclusive, marks=self.marks
            )
        except (OSError, ValueError) as error:  # ValueError: a text that no process can be given
            self._fail(error)
            return
        self._began = self._machine.wall()
        self._begun_at = self._machine.now()
        self.output.begin()
        if self._reports:
            self._machine.later(PROGRESS_SECONDS, self._say_progress)

    def _make_ready(self) -> Launch | None:
        """Directories and files of the run, then what to start. Raises AgentError or OSError."""
        pod, context = self._pod, self.context
        pod.log.add_secrets(pod.secrets(context.spec.env).union(argument_secrets(context.spec.args)))
        pod.make_dir(context.run_dir, 0o700)
        self.output.open()
        self._files.make(self.marks)
        launch = self.workload.launch(context)
        port = launch.port if launch is not None else 0
        if port and (holder := self._machine.port_holder(pod.known.interface.address, port)):
            what = f"MASTER_PORT {port} on {pod.where(context.index)} is taken by {holder}"
            raise SystemFault(what, "end it, or set another MASTER_PORT")
        self._fence.start()
        return launch

    def _fail(self, error: AgentError | OSError | ValueError) -> None:
        """End a part that cannot begin. What its preparation has started, if anything, is ended as after a process."""
        if not isinstance(error, AgentError):
            error = not_started(self.workload.name, error, self.context.spec.cwd, self.context.workload_python)
        code, what = int(error.code), str(error)
        self._pod.log.error(what, from_error(error))
        end = PartEnd(None, code, what)
        if not self.workload.fail_fast:
            # As a shell would: this pod has failed, the others go on.
            self.output.say(what)
            end = PartEnd(code, code)
        self._phase = PartPhase.ENDED
        self._files.stop_series()
        self._machine.sweep(self.marks, USUAL.kill, lambda count, left: self._finish(end))

    # Ending it

    def _ranks_over(self) -> None:
        """The ranks of an MPI run are over here, or were told to end and had their time: mpirun may go now."""
        self._say(RanksOver(self.context.run_id))

    def _end_hanging(self, why: str) -> None:
        self.output.say(f"a4-agent: {why}")
        self._stuck = True
        self._stop_process(self._shares.own_term)

    def stop(self) -> None:
        """End it: SIGTERM, SIGKILL a little later. This also ends the wait for a part that was told to end."""
        self._note_stop()
        most = self._shares.own_term if self.workload.saves else 0.0
        self._stop_process(min(most, self._saving.seconds_left()))

    def tell(self) -> None:
        """It is told to end from outside, and has the grace time (see Saving)."""
        self._health.hurried = True
        if self._phase < PartPhase.BEGUN:
            self.stop()
        if self._phase is PartPhase.BEGUN:
            self._note_stop()
            self._phase = PartPhase.STOPPED
            self._saving.begin()

    def kill(self) -> None:
        """No more patience."""
        self._note_stop()
        self._at_once = True
        # A part without a process ends by the first of these alone.
        self._stop_process(self._shares.kill)
        self._kill_process()

    def _note_stop(self) -> None:
        if self._phase < PartPhase.ENDED:
            self._stopped = True

    def _stop_process(self, seconds: float, group: bool = False) -> None:
        """SIGTERM, and SIGKILL after `seconds`; a further call can only shorten that.

        With `group` every process of its group has this time. Else what outlives the first one is ended with it.
        """
        if self._phase >= PartPhase.ENDED:
            return
        self._phase = PartPhase.STOPPED
        if self.process is None:
            # What mpirun's daemons have started here is ended by the sweep that follows.
            self._exited(0)
            return
        self._machine.later(seconds, self._kill_process)
        if self._terminated:
            return
        self._terminated = True
        if group:
            self.process.await_group()
        self.process.signal(signal.SIGTERM)

    def _kill_process(self) -> None:
        """What even SIGKILL does not end (a device that hangs) is left and said."""

        def leave() -> None:
            if self.process is not None:
                self._pod.log.error(f"process {self.process.pid} of the run cannot be killed")
                self._exited(-signal.SIGKILL)

        if self.process is not None:
            self.process.signal(signal.SIGKILL)
            self._machine.later(self._shares.kill, leave)

    def _exited(self, status: int) -> None:
        """Its process has ended, or cannot be ended; the clean-up goes on."""
        if self._phase >= PartPhase.ENDED:
            return
        self._phase = PartPhase.ENDED
        self.process = None
        self._health.look_again()
        swept = partial(self._swept, status)
        self._machine.sweep(self.marks, USUAL.kill, swept, at_once=self._at_once)

    def _swept(self, status: int, count: int, left: Sequence[int]) -> None:
        """Its process, and all that it left behind, is gone: now the files in its directory do not change any more."""
        if count:
            # Daemons of an MPI run are still ending by themselves when the run is over: no news.
            say = self._pod.log.info if self._began is not None else self._pod.log.debug
            say(f"ended {count} process{'es' if count > 1 else ''} that the run had left behind")
        if left:
            pids = ", ".join(map(str, left[:MOST_PIDS])) + (", …" if len(left) > MOST_PIDS else "")
            self._pod.log.warning(f"processes of the run are left: SIGKILL has not ended {pids} (PIDs of this pod)")
        # Before its text is read, because unfinished lines of `--tag-output` come only now.
        self.output.finish()
        starved = self._machine.memory_kills() > self._memory_kills
        end = PartEnd(None) if self._began is None else self._part_end(status)
        end = end._replace(
            stopped=self._fence.has_passed() or self._stopped,
            out_of_memory=starved,
            collective=self.output.collective,
            left=len(left),
        )
        try:
            end, read_rest = self._files.told(end, record=self._began is not None and self._reports)
        except OSError as error:
            self._finish(self._unread(end, error))
            return
        self.dumps = end.dumps

        def read() -> PartEnd:
            assert read_rest is not None
            try:
                return read_rest()
            except OSError as error:
                return self._unread(end, error)

        if read_rest is None:
            self._finish(end)
        else:
            # Without a thread the loop reads, because the run has to come to its end.
            self._machine.aside(read, self._finish, lambda why: self._finish(read()))

    def _part_end(self, status: int) -> PartEnd:
        code = exit_code(status)
        return PartEnd(
            status=status,
            code=code,
            output=self.output.text() if self._reports or (code and self.workload.fail_fast) else "",
            stuck=self._stuck,
            began=self._began,
            ended=self._machine.wall(),
            launch=described(self._launch, self._pod.settings.secret_env) if self._reports else None,
        )

    def _unread(self, end: PartEnd, error: OSError) -> PartEnd:
        """The end without what could not be read: a failure stays what it is, but nobody knows whether all is well."""
        unread = refused(f"{error.filename or 'a file'}, which {self.context.run_id} left, cannot be read", error)
        self._pod.log.warning(str(unread))
        return end if end.code else end._replace(code=int(unread.code), what=str(unread))

    def _finish(self, end: PartEnd) -> None:
        self._phase = PartPhase.OVER
        self._fence.close()
        if self.context.keep_ranks:
            self._machine.remove_dir(self.context.ranks_output)  # not masked; what counts of it is in evidence.txt
        self._say(Done(self.context.run_id, end._replace(reading=self._health.reading)))
        self._ended()
        self.output.close()

    # What it prints

    def _say_progress(self) -> None:
        """Tell all who follow what the run is doing. For limits of silence it does not count as output."""
        if self._phase is not PartPhase.BEGUN:
            return
        now = self._machine.now()
        left = self.printed() + PROGRESS_SECONDS - now
        self._machine.later(left if left > 0 else PROGRESS_SECONDS, self._say_progress)
        if left <= 0 and (doing := self.workload.progress(self._files.record_so_far())):
            self.output.say(progress_text(self.context.run_id, now - self._begun_at, doing))
