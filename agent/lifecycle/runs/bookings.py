"""The coordinator's book of runs: what goes on, who waits for what, how each ended."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent.decide import messages
from agent.decide.ending import JobEnd, exit_code, masked, with_followers, with_out_of_memory
from agent.decide.messages import Alive, Done, Evidence, Prepare, Prepared, RanksOver, RunNoted, SaidOfPart
from agent.decide.plan import Plan
from agent.decide.pod_state import RunSummary
from agent.decide.runspec import RunSpec
from agent.decide.secret_variables import argument_secrets
from agent.decide.subset import subset
from agent.decide.words import did_you_mean
from agent.errors import AgentError, ClusterBusy, MissingProgram, UsageError
from agent.lifecycle.keeping.results import keep_results
from agent.lifecycle.once import Once
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.all_pods import AllPods
from agent.lifecycle.runs.own_parts import context_of
from agent.lifecycle.runs.preparations import Preparations
from agent.lifecycle.runs.running import Run
from agent.workloads import find_workload
from agent.workloads.base import Judgement, Workload

KEPT_BOOKINGS = 50
"""Runs that `a4-agent logs` and `wait` still know when they are over, of either sort."""
ID_CHARACTERS = 8
"""Of a run's id behind the workload's name: enough for the runs of one cluster, and short enough to be typed."""


class Booking:
    """One run from the wish to the end: what the run itself has no use for, but those who asked for it have."""

    def __init__(self, pod: Pod, run: Run, *, first: bool) -> None:
        self._pod = pod
        self.run = run
        self.first = first
        self.since = pod.machine.wall()
        """When it was booked, in seconds since 1970."""
        self.until: float | None = None
        """When it was over, and what came out was stored; None before."""
        self.judgement: Judgement | None = None
        """None while it goes on."""
        self.missing = ""
        """Which results are not stored and why, as far as that is known."""
        self.answerable = Once()
        """Everything that those who wait for it may look at next is written, or is known not to be."""

    @property
    def run_id(self) -> str:
        return self.run.run_id

    @property
    def exclusive(self) -> bool:
        return self.run.workload.exclusive

    @property
    def end(self) -> JobEnd:
        assert self.judgement is not None
        return self.judgement.end

    @property
    def results(self) -> str:
        """Directory on the coordinator; a run beside others keeps none."""
        return self._pod.run_logs.directory(self.run_id, first=self.first) if self.exclusive else ""

    def end_as(self, end: JobEnd) -> None:
        """Another end than the verdict's, as when the whole job was told to end meanwhile."""
        assert self.judgement is not None
        self.judgement = self.judgement._replace(end=end)

    def close(self, seconds: float) -> None:
        """Store what came out, files of the user's within this time."""
        assert self.judgement is not None
        self.until = self._pod.machine.wall()
        if self.exclusive:
            try:
                keep_results(self._pod, self.run, self.judgement, self.summary(), seconds)
            except Exception:  # the run has ended as it has, whatever is wrong with the files about it
                self._pod.log.warning(f"results of {self.run_id} are missing:\n{traceback.format_exc()}")
        self.run.forget_output()

    def kept(self, missing: str) -> None:
        """Its results are stored, but for those that are `missing`: who waits for it is answered."""
        self.missing = missing
        self.answerable.happen()

    def told(self) -> dict[str, Any]:
        """The answer to `wait`."""
        assert self.judgement is not None
        codes = {str(i): exit_code(end.status) for i, end in self.run.ends.items() if end.status is not None}
        mask = self._pod.log.masked
        lost = {str(index): mask(why) for index, why in self.run.lost.items()}
        text = mask(self.judgement.text)
        told = {"end": self.end.to_json(), "text": text, "codes": codes, "lost": lost, "results": self.results}
        return {**told, "missing": mask(self.missing)}

    def about(self) -> dict[str, Any]:
        """The answer to `submit` and `find`."""
        indices = self.run.indices
        outputs = list(self.run.workload.printing(indices))
        names = {str(peer.index): peer.name for peer in self.run.context.plan.peers}
        about = {"run": self.run_id, "pods": indices, "lead": indices[0], "outputs": outputs, "names": names}
        return {**about, "slots": self.run.context.per_pod}

    def summary(self) -> RunSummary:
        """The run for `status` on every pod, with `until` once it is over."""
        summary = RunSummary(
            id=self.run_id,
            workload=self.run.workload.name,
            by=self.run.context.spec.by,
            first=self.first,
            since=self.since,
            pods=tuple(self.run.indices),
            lead=self.run.indices[0],
            results=self.results,
        )
        if self.until is None:
            return summary
        end = self.end
        return summary._replace(until=self.until, code=end.code, what=end.what, where=end.where, origin=end.origin)


class Bookings:
    """Every run by its id; one exclusive run at a time."""

    def __init__(
        self,
        pod: Pod,
        preparations: Preparations,
        pods: AllPods,
        over: Callable[[Booking], None],
    ) -> None:
        self._pod = pod
        self._preparations = preparations
        self._pods = pods
        self._over = over
        self._bookings: dict[str, Booking] = {}
        self._current: Booking | None = None
        """The exclusive run that goes on."""
        self._when_idle: Callable[[], object] | None = None

    @property
    def going_on(self) -> bool:
        """Has a run the cluster for itself?"""
        return self._current is not None

    @property
    def idle(self) -> bool:
        """Does nothing run at all?"""
        return self._current is None and all(booking.run.over for booking in self._bookings.values())

    def book(self, spec: RunSpec, *, first: bool) -> Booking:
        """A run on those pods of the plan that `spec` chooses. Raises UsageError, or PeerLost when it needs one."""
        workload = find_workload(spec.workload)
        pod, plan = self._pod, self.chosen(spec, workload)
        run_id = f"{workload.name}-{pod.machine.draw_nonce()[:ID_CHARACTERS]}"
        spec = self._preparations.with_limits(spec, workload)
        length = len(messages.encode(messages.message(Prepare(run_id, spec, tuple(peer.index for peer in plan.peers)))))
        if length > (most := messages.MOST_BYTES):
            what = f"the arguments and variables of this run are {length} bytes in a message, {most} are the most"
            raise UsageError(what, "put long ones into a file")
        pod.log.add_secrets(pod.secrets(spec.env).union(argument_secrets(spec.args)))
        run = Run(
            pod,
            workload,
            replace(context_of(pod, plan, run_id, spec), index=plan.peers[0].index),
            preparations=self._preparations,
            pods=self._pods,
            over=lambda judgement: self._judged(booking, judgement),
        )
        booking = Booking(pod, run, first=first)
        self._bookings[run_id] = booking
        if workload.exclusive:
            self._current = booking
        # Runs with the cluster for themselves and those beside them apart: many of these must not push out those.
        alike = [other for other in self._bookings.values() if other.exclusive is workload.exclusive]
        for other in alike[: max(0, len(alike) - KEPT_BOOKINGS)]:
            if other.run.over:
                del self._bookings[other.run_id]
        return booking

    def begin(self, booking: Booking) -> None:
        """Start it once everything that it needs to know of its pods is here, unless it has ended by then."""
        run = booking.run
        if booking.exclusive:
            self._note(booking)
            if not booking.first:
                self._pod.log.info(f"{run.context.spec.by} runs {booking.run_id}")
        self._preparations.when_ready(run.indices, run.start, baselines=run.workload.uses_baselines)

    def close(self, booking: Booking, seconds: float) -> None:
        """Store what came of it, files of the user's within that time, and let every pod note that it is over."""
        booking.close(seconds)
        self._note(booking)

    def _note(self, booking: Booking) -> None:
        self._pod.note_run(booking.summary())
        self._pods.roster.say(RunNoted(booking.summary()))

    def chosen(self, spec: RunSpec, workload: Workload) -> Plan:
        """The pods of a run. Raises PeerLost, and UsageError for all that is wrong with the wish itself."""
        whole = self._pod.known.plan
        assert whole is not None
        plan = subset(whole, nodes=spec.nodes, hosts=spec.hosts, exclude=spec.exclude, lost=self._pods.lost.reasons())
        lead = plan.peers[0].index
        context = replace(context_of(self._pod, plan, "", spec), index=lead, mpi=self._preparations.mpi(lead))
        try:
            workload.launch(context)
        except UsageError:
            raise
        except AgentError:
            pass  # that is for the pod to say whom it concerns
        return plan

    def knows(self, run_id: str) -> bool:
        return run_id in self._bookings

    def find(self, run_id: str) -> Booking:
        """That run, or the newest exclusive one. Raises MissingProgram (66)."""
        if run_id in self._bookings:
            return self._bookings[run_id]
        if run_id:
            meant, known = did_you_mean(run_id, self._bookings), ", ".join([*self._bookings][-5:]) or "none"
            hint = f"the newest: {known}; a4-agent status lists the runs of this cluster"
            raise MissingProgram(f"there is no run {run_id!r}{meant}", hint)
        newest = [booking for booking in self._bookings.values() if booking.exclusive]
        if not newest:
            raise MissingProgram("there has been no run yet")
        return newest[-1]

    def busy(self) -> ClusterBusy:
        """The error that says who runs what since when."""
        if self._current is None:
            return ClusterBusy("the job's first run has not begun yet", "a4-agent status shows what it waits for")
        booking = self._current
        seconds = self._pod.machine.wall() - booking.since
        since = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        return ClusterBusy(
            f"the cluster is busy: {booking.run.context.spec.by} runs {booking.run_id} since {since}",
            f"follow it: a4-agent logs {booking.run_id}; end it: a4-agent cancel; a4-agent exec works beside it",
        )

    # What pods say

    def heard(self, index: int, said: SaidOfPart) -> None:
        """A pod says something of its part. Of a run that is forgotten by now, a late word is no error."""
        if said.run not in self._bookings:
            return
        run = self._bookings[said.run].run
        match said:
            case Prepared():
                run.part_prepared(index)
            case RanksOver():
                run.ranks_over(index)
            case Evidence():
                run.why.heard(index, said)
            case Alive():
                run.alive(index)
            case Done(_, end):
                run.part_done(index, end)

    def waits_for(self, index: int) -> bool:
        """Does some run wait for this pod?"""
        return any(booking.run.waits_for(index) for booking in self._bookings.values())

    def lost(self, index: int, reason: str) -> None:
        """A pod is gone."""
        for booking in list(self._bookings.values()):
            booking.run.worker_lost(index, reason)

    # Ending runs

    def cancel_those_with(self, index: int, end: JobEnd, *, told: bool) -> None:
        for booking in list(self._bookings.values()):
            if booking.run.waits_for(index):
                booking.run.cancel(end, told=told)

    def cancel_all(self, end: JobEnd) -> None:
        for booking in list(self._bookings.values()):
            if not booking.run.over:
                booking.run.cancel(end)

    def when_idle(self, action: Callable[[], object]) -> None:
        """Call it when no run is left, at once if there is none."""
        self._when_idle = action
        self._act_if_idle()

    def hurry(self) -> None:
        if self._current is not None:
            self._current.run.hurry()

    def abandon(self, end: JobEnd) -> None:
        """After a bug: ask the run to end, and wait for nothing."""
        current, self._current = self._current, None
        if current is not None:
            current.run.cancel(end)

    def _judged(self, booking: Booking, judgement: Judgement) -> None:
        end, parts = judgement.end, booking.run.ends
        if booking.run.workload.fail_fast and not booking.run.workload.led:
            end = with_followers(end, [index for index, part in parts.items() if part.status])
        end = with_out_of_memory(end, [index for index, part in parts.items() if part.out_of_memory])
        booking.judgement = judgement._replace(end=masked(end, self._pod.log.masked))
        if booking.exclusive:
            self._over(booking)
        else:
            booking.close(0.0)
            booking.kept("")
        if booking is not self._current:
            self._act_if_idle()

    def closed(self, booking: Booking) -> None:
        """The run's end is known everywhere: the next one may come."""
        if booking is self._current:
            self._current = None
        self._act_if_idle()

    def _act_if_idle(self) -> None:
        if self._when_idle is not None and self.idle:
            action, self._when_idle = self._when_idle, None
            action()
