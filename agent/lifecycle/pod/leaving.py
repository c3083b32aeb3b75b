"""How a pod ends: the job's end recorded, what is left stored, the exit code."""

from __future__ import annotations

from collections.abc import Callable

from agent.decide.ending import JobEnd, masked, termination_message
from agent.decide.grace import store_seconds
from agent.decide.pod_state import RecordedEnd
from agent.decide.words import lines
from agent.errors import Exit
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.pod.preparing import Preparing
from agent.lifecycle.waits import Once
from agent.paths import TERMINATION_LOG


class Leaving:
    """`finish` is the last thing that a pod does."""

    def __init__(self, pod: Pod, preparing: Preparing) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._preparing = preparing
        self._recorded: tuple[JobEnd, str] | None = None
        """The job's end and the run that it is of."""
        self._leave_by: float | None = None
        """When the pod has to be gone, on the machine's clock; None while nobody has told it to end."""
        self._store: Callable[[], None] | None = None
        """Set while the end waits for nothing but the results directory, and then for commands; sets a new limit."""

    def record_end(self, end: JobEnd, run_id: str = "", code: int | None = None) -> None:
        """Leave the job's end where Kubernetes and people look; `code` is this pod's own if it differs."""
        pod = self._pod
        self._recorded = (end, run_id)
        end = masked(end, pod.log.masked)
        settings, facts = pod.settings, pod.known.facts
        message = termination_message(
            end,
            epoch=settings.epoch,
            pod=settings.index,
            pod_name=settings.pod_name,
            node=facts.node if facts else settings.node_name,
            run=run_id,
            code=code,
        )
        # In place, because Kubernetes mounts this file alone, and nothing can be renamed onto a mount.
        pod.state.attempt(TERMINATION_LOG, lambda: self._machine.overwrite(TERMINATION_LOG, message))
        pod.state.update(end=RecordedEnd(**end._asdict(), run=run_id))
        pod.state.event("result-known", detail=f"{end.code} {end.what}")

    def report_end(self, end: JobEnd, run_id: str = "", *, brief: bool = False, missing: str = "") -> None:
        """Say it in the log; when `brief`, without what a program printed, which the log of pod 0 has. `missing`: what
        is known not to be among the results."""
        if brief and end.origin == "workload":
            end = end._replace(why="")
        if self._pod.settings.is_coordinator and self._pod.run_logs.outlive_the_pod:
            without = f", without {missing}" if missing else ""
            self._pod.log.info(f"results and logs of this attempt: {self._pod.run_logs.place}{without}")
        if end.code == Exit.OK:
            self._pod.log.info(f"done: {end}", end, run_id)
        else:
            self._pod.log.error(f"the job ends with exit code {end.code}: {end}", end, run_id)

    def told_to_end(self) -> bool:
        """SIGTERM or SIGINT has come: the pod has its grace time from now on. Returns whether it is the first."""
        first = self._leave_by is None
        if first:
            self._leave_by = self._machine.now() + self._pod.shares.leave
        if self._store is not None:
            self._store()
        return first

    def store_seconds(self) -> float:
        """How long may be waited for the results directory."""
        return store_seconds(self.seconds_left())

    def seconds_left(self) -> float | None:
        """Until the pod has to be gone; None while nobody has told it to end."""
        return None if self._leave_by is None else max(0.0, self._leave_by - self._machine.now())

    def when_kept(self, action: Callable[[str], None]) -> None:
        """Call it when the results of the run that has ended are stored or given up, with what is missing."""
        self._pod.run_logs.when_kept(self.store_seconds(), action)

    def finish(
        self,
        code: int,
        when_left: Callable[[float | None, Callable[[], None]], None],
        woken: JobEnd | None = None,
    ) -> None:
        """Store what is left, stop sshd, let commands say their last words (`when_left`, as that of a CommandSocket),
        leave the loop with this pod's exit code. `woken` is what has ended its sleep. Later calls do nothing."""
        if self._store is not None:
            return
        pod = self._pod
        # A success that is recorded would contradict the code that this pod ends with.
        if self._recorded and woken and self._recorded[0].code == Exit.OK != code:
            end, run_id = self._recorded
            self.record_end(end._replace(why=lines(end.why, f"its sleep was ended: {woken}")), run_id, code)
        pod.state.phase("ended", code=code)
        self._preparing.stop_sshd()
        pod.run_logs.begin_without_run()
        gone = Once()
        gone.when(lambda: pod.finished(code))

        def store() -> None:
            # Nothing can be stored in a directory that is unusable: why wait for it?
            seconds = store_seconds(0.0) if code == Exit.DIRECTORY else self.store_seconds()
            pod.run_logs.close(seconds, lambda: when_left(self.seconds_left(), gone.happen))

        self._store = store
        store()
