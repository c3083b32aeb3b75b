"""One run of one workload on a formed cluster, as the coordinator leads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.decide.ending import JobEnd, merged
from agent.decide.mpirun import parse_version
from agent.decide.plan import Plan
from agent.errors import Exit, MissingProgram, SystemFault
from agent.lifecycle.part import KILL_SECONDS, Part, term_seconds
from agent.lifecycle.pod import Pod
from agent.workloads.base import Judgement, Mpi, Outcome, RunContext, Workload

TAIL_BYTES = 65536
LOOK_SECONDS = 5.0
ENDING_SECONDS = 10.0
"""For a process that has reported its end to come to it."""
AFTERWARDS_SECONDS = 8.0
"""Of the pod's grace time, for telling all pods and the three seconds that are kept free."""
ANSWER_SECONDS = 7.0
"""For a worker to clean up and answer, beyond what its workload may take to end."""


def find_mpi(pod: Pod) -> Mpi:
    """The pod's mpirun and its version. Raises MissingProgram or SystemFault."""
    path = pod.search_path()
    program = pod.machine.find_program("mpirun", path)
    if program is None:
        raise MissingProgram(f"mpirun is not on PATH ({path})", "the image needs Open MPI 4 or 5")
    try:
        text = pod.machine.run_briefly([program, "--version"])
    except (OSError, TimeoutError) as error:
        raise SystemFault(f"{program} --version failed: {error}") from error
    version = parse_version(text)
    if version is None:
        first = text.strip().splitlines()[:1]
        raise MissingProgram(f"{program} is not Open MPI's mpirun; it says {first}", "Open MPI 4 or 5 is needed")
    if version.major < 4:
        raise MissingProgram(f"{program} is Open MPI {version}", "Open MPI 4 or 5 is needed")
    return Mpi(program, version)


def run_context(pod: Pod, run_id: str, args: Sequence[str], mpi: Mpi | None = None) -> RunContext:
    """What a launch on this pod may depend on."""
    assert pod.plan is not None
    settings = pod.settings
    run_dir = pod.dir.run(run_id)
    pod.make_dir(run_dir, 0o700)
    return context_for(pod, pod.plan, run_id, run_dir, args, mpi, settings.task_script)


def context_for(
    pod: Pod, plan: Plan, run_id: str, run_dir: str, args: Sequence[str], mpi: Mpi | None, script: str
) -> RunContext:
    return RunContext(
        run_id=run_id,
        plan=plan,
        index=pod.settings.index,
        environ=pod.job.environ,
        master_port=pod.settings.master_port,
        run_dir=run_dir,
        token_file=pod.dir.token,
        ssh_config=pod.dir.ssh_config,
        interface=pod.interface.name,
        python=pod.job.python,
        cores=pod.machine.core_count(),
        script=script,
        args=tuple(args),
        mpi=mpi,
    )


class Run:
    """Starts every part, ends all when one fails, judges when all are over.

    `say` reaches every worker; `over` gets the judgement once.
    """

    def __init__(
        self,
        pod: Pod,
        workload: Workload,
        context: RunContext,
        *,
        workers: Sequence[int],
        tokens: Sequence[str],
        say: Callable[[dict[str, object]], None],
        over: Callable[[Judgement], None],
    ) -> None:
        self._pod = pod
        self._workload = workload
        self._context = context
        self._tokens = tokens
        self._say = say
        self._over = over
        self._open = set(workers)
        """Workers whose part is not over."""
        self._lost: dict[int, str] = {}
        self._cause: JobEnd | None = None
        self._status: int | None = None
        self._tail = b""
        self._stopped = False
        self._stuck = False
        self._judged = False
        output = self._output if workload.kind == "mpi" else None
        self._part = Part(pod.machine, pod.log, context.run_id, pod.settings.grace, self._local_over, output)

    def start(self) -> None:
        """A part that cannot be started ends the run with 66."""
        launch = self._workload.launch(self._context)
        self._say(
            {
                "type": "start",
                "run": self._context.run_id,
                "workload": self._workload.name,
                "args": list(self._context.args),
            }
        )
        if launch is None:
            self._status = 0
            self._stop()
            return
        self._pod.log.debug(f"starting:\n{launch}")
        if self._workload.kind == "mpi":
            self._pod.machine.later(LOOK_SECONDS, self._look_for_the_end)
        try:
            self._part.start(launch)
        except OSError as error:
            self._status = int(Exit.MISSING_PROGRAM)
            what = f"{self._workload.name} cannot be started: {error}"
            self.cancel(JobEnd(Exit.MISSING_PROGRAM, what, self._pod.where(self._context.index)))

    def worker_done(self, index: int, code: int, status: int, what: str) -> None:
        self._open.discard(index)
        if code and not self._stopped and self._workload.kind == "everywhere":
            judged = self._workload.judge(self._of(index), Outcome(status))
            end = JobEnd(code, what, self._pod.where(index)) if what else judged.end
            self.cancel(end)
        self._judge_if_over()

    def worker_lost(self, index: int, reason: str) -> None:
        self._lost[index] = reason
        self._open.discard(index)
        self.cancel(JobEnd(Exit.TRY_AGAIN, "a pod was lost during the run", self._pod.where(index), reason))
        self._judge_if_over()

    def waits_for(self, index: int) -> bool:
        """Is this worker's part not over?"""
        return index in self._open

    def cancel(self, end: JobEnd) -> None:
        """End the run for this reason, unless one stands already."""
        self._cause = merged(self._cause, end)
        self._stop()

    def hurry(self) -> None:
        """No more patience with our own part."""
        self._part.kill()

    def _stop(self) -> None:
        """End every part that is still going."""
        if self._stopped:
            return
        self._stopped = True
        if self._status is None:
            self._part.stop()
        if self._status is not None or self._workload.kind != "mpi":
            self._say_stop()
        grace = self._pod.settings.grace
        patience = min(term_seconds(grace) + KILL_SECONDS + ANSWER_SECONDS, max(2.0, grace - AFTERWARDS_SECONDS))
        self._pod.machine.later(patience, self._stop_waiting)
        self._judge_if_over()

    def _say_stop(self) -> None:
        """To the workers. In an MPI run only when mpirun has ended: it gives remote ranks their time, too."""
        self._say({"type": "stop", "run": self._context.run_id})

    def _stop_waiting(self) -> None:
        for index in sorted(self._open):
            self._lost[index] = "it did not answer when the run was ended"
        self._open.clear()
        self._judge_if_over()

    def _local_over(self, status: int) -> None:
        self._status = status
        if self._stopped and self._workload.kind == "mpi":
            self._say_stop()
        elif self._workload.kind == "mpi":
            self._stop()
        elif status and self._cause is None:
            self.cancel(self._workload.judge(self._context, Outcome(status)).end)
        self._judge_if_over()

    def _judge_if_over(self) -> None:
        if self._judged or self._status is None or self._open:
            return
        self._judged = True
        outcome = Outcome(
            status=self._status,
            record=self._record(),
            output=self._tail.decode(errors="replace"),
            tokens=self._tokens,
            lost=dict(self._lost),
            cause=self._cause,
            stuck=self._stuck,
        )
        judgement = self._workload.judge(self._context, outcome)
        if self._cause is not None and self._workload.kind != "mpi":
            judgement = Judgement(self._cause, judgement.text, judgement.data, judgement.log_name)
        self._over(judgement)

    def _output(self, stream: int, data: bytes) -> None:
        self._pod.machine.emit(stream, data)
        self._pod.attempt(lambda: self._pod.machine.append(f"{self._context.run_dir}/output.log", data))
        self._tail = (self._tail + data)[-TAIL_BYTES:]

    def _look_for_the_end(self) -> None:
        """A process that says that it is at its end has ENDING_SECONDS to get there."""
        if self._status is not None or self._stopped:
            return
        if self._workload.is_ending(self._tail.decode(errors="replace"), self._record()):
            self._pod.machine.later(ENDING_SECONDS, self._end_if_stuck)
        else:
            self._pod.machine.later(LOOK_SECONDS, self._look_for_the_end)

    def _record(self) -> str:
        """What the rank programs have written of themselves so far."""
        return self._pod.machine.read(f"{self._context.run_dir}/record.jsonl") or ""

    def _end_if_stuck(self) -> None:
        if self._status is None and not self._stopped:
            self._pod.log.warning(f"the run reported its end {ENDING_SECONDS:.0f} s ago and hangs: it is ended")
            self._stuck = True
            self._part.stop()

    def _of(self, index: int) -> RunContext:
        return RunContext(**{**vars(self._context), "index": index})
