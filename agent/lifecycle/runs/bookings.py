"""The coordinator's book of runs: what goes on, who waits for what, how each ended."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agent.decide import messages
from agent.decide.ending import JobEnd
from agent.decide.fence import check_lease
from agent.decide.plan import Plan
from agent.decide.run_names import check_labels, free_name, life_id, run_of
from agent.decide.runspec import RunSpec
from agent.decide.secret_variables import argument_secrets
from agent.decide.subset import subset
from agent.decide.words import count_text, did_you_mean
from agent.errors import ClusterBusy, MissingProgram, UsageError
from agent.lifecycle.channel.roster import Roster
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.context import run_context
from agent.lifecycle.runs.course import Phase
from agent.lifecycle.runs.facts import Facts
from agent.lifecycle.runs.old_flags import OldFlags
from agent.lifecycle.runs.preparations import Preparations
from agent.lifecycle.runs.results import keep_early, keep_results
from agent.lifecycle.runs.run_values import certain_end, run_summary
from agent.lifecycle.runs.running import Run
from agent.workloads import find_workload
from agent.workloads.base import RunContext

KEPT_RUNS = 50
"""Runs that `a4-agent logs` and `wait` still know when they are over, of either sort."""
NOT_BOTH = "--without and --lives exclude each other: a rank that somebody starts would have to be started again"
ID_CHARACTERS = 8
"""How many random characters follow the workload's name in a run's id: enough for one cluster, and few to type."""


class Bookings:
    """Every run by its id; one exclusive run at a time."""

    def __init__(self, pod: Pod, preparations: Preparations, roster: Roster, over: Callable[[Run], None]) -> None:
        """`over` gets each exclusive run that is judged: it is closed, and then `closed`, by who has it."""
        self._pod = pod
        self._preparations = preparations
        self._roster = roster
        self._over = over
        self._runs: dict[str, Run] = {}
        self._names: dict[str, str] = {}
        """Name → id, of all runs there have been: a name never comes to mean another run."""
        self.current: Run | None = None
        """The run that has the cluster for itself."""
        self._when_idle: Callable[[], object] | None = None
        self.facts = Facts(pod.machine, lambda indices: {})
        """Those of the job. Nobody waits for a pod that is lost: then the job ends."""
        self._flags = OldFlags(pod)

    def start(self) -> None:
        """What old scripts have left does not count."""
        self._flags.look(lambda: self._flags.follow(self.facts, 0))

    def facts_of(self, called: str) -> Facts:
        """Those of a run or, without a name, of the job. Raises MissingProgram (66)."""
        return self.find(called).facts if called else self.facts

    @property
    def idle(self) -> bool:
        """Does nothing run at all?"""
        return self.current is None and all(run.over for run in self._runs.values())

    def checked(self, spec: RunSpec) -> RunContext:
        """The run that is wished for, on the lead of those pods of the plan that `spec` chooses. Raises PeerLost when
        it needs one that is lost, SettingsError when the lease is too short for its lives, and UsageError for all that
        is wrong with the wish itself."""
        workload, pod, whole = find_workload(spec.workload), self._pod, self._pod.known.plan
        check_labels(spec)
        if spec.without is not None and not workload.takes_without:
            raise UsageError(f"{workload.name} does not support --without", "torchrun and mpirun do")
        assert whole is not None
        chosen = subset(
            whole, nodes=spec.nodes, hosts=spec.hosts, exclude=spec.exclude, lost=self._roster.lost.reasons()
        )
        run_id = f"{workload.name}-{pod.machine.draw_nonce()[:ID_CHARACTERS]}"
        spec = self._preparations.with_limits(spec, workload)
        check_lease(pod.settings.lease, spec.lives)
        if spec.lives and not (workload.has_lives and spec.without is None):
            raise UsageError(f"{workload.name} does not support --lives" if spec.without is None else NOT_BOTH)
        context = self._context(chosen, life_id(run_id, 1) if spec.lives else run_id, spec)
        workload.check(context)
        # Here, because the command has its answer before pods are told, and a long message is refused only then.
        length = len(messages.encode(messages.message(messages.Prepare(run_id, spec, tuple(context.indices)))))
        if length > (most := messages.MOST_BYTES):
            what = f"the arguments and variables of this run take {length} bytes in a message; the limit is {most}"
            raise UsageError(what, "put long ones into a file")
        return context

    def _context(self, plan: Plan, run_id: str, spec: RunSpec) -> RunContext:
        """What the lead of that plan has, as far as it is known here."""
        pod = self._pod
        cores = pod.machine.core_count()
        context = run_context(pod.settings, pod.known, plan, run_id, spec, python=pod.job.python, cores=cores)
        return replace(context, index=plan.peers[0].index)

    def _present(self, context: RunContext) -> RunContext:
        """The same of those pods as they are in the plan now."""
        assert self._pod.known.plan is not None
        pods = set(context.indices)
        peers = tuple(peer for peer in self._pod.known.plan.peers if peer.index in pods)
        return self._context(self._pod.known.plan._replace(peers=peers), context.run_id, context.spec)

    def book(self, context: RunContext, *, first: bool) -> Run:
        """A run that has been `checked`."""
        pod, spec = self._pod, context.spec
        pod.log.add_secrets(pod.secrets(spec.env).union(argument_secrets(spec.args), argument_secrets([spec.note])))
        if spec.name:
            context = replace(context, spec=spec._replace(name=free_name(spec.name, self._names)))
            self._names[context.spec.name] = run_of(context.run_id)
        run = self._run(context, first)
        self._flags.follow(run.facts, context.indices[0])
        self._runs[run.run_id] = run
        if run.workload.exclusive:
            self.current = run
        # Runs with the cluster for themselves and those beside them apart: many of these must not push out those.
        alike = [other for other in self._runs.values() if other.workload.exclusive is run.workload.exclusive]
        for other in alike[: max(0, len(alike) - KEPT_RUNS)]:
            if other.over:
                del self._runs[other.run_id]
        return run

    def _run(self, context: RunContext, first: bool, before: Run | None = None) -> Run:
        preparations, roster = self._preparations, self._roster
        return Run(self._pod, context, preparations, roster, self._early, self._judged, self._present, first, before)

    def next_life(self, before: Run) -> None:
        """Let a run whose life is over start again, once all its pods are there."""
        context = before.context
        life = replace(context, run_id=life_id(before.run_id, context.life + 1))
        run = self._run(life, before.first, before)
        left = count_text(context.lives_left - 1, "more time")
        self._pod.log.warning(f"{before.title} starts again, {left} after this: {before.verdict.end._replace(why='')}")
        self._flags.over(before.facts)
        self._flags.follow(run.facts, context.indices[0])
        self._runs[run.run_id] = run
        if self.current is before:
            self.current = run
        before.verdict.forget_output()
        if not run.await_pods():
            self._preparations.when_ready(context.indices, run.start, baselines=run.workload.uses_baselines)
        self._note(run)

    def welcome(self, index: int) -> None:
        """Tell a pod that came later which run has the cluster for itself."""
        if self.current is not None:
            self._roster.say(messages.TellRun(run_summary(self._pod, self.current)), [index])

    def pods_joined(self) -> None:
        """Every pod that came later has the plan."""
        for run in self._runs.values():
            if run.awaited.are_waited_for and run.course.phase is Phase.BOOKED:
                self._preparations.when_ready(run.context.indices, partial(self._begin_again, run))

    def _begin_again(self, run: Run) -> None:
        run.start()
        if not run.over:
            self._note(run)

    def begin(self, run: Run) -> None:
        """Start it once everything that it needs to know of its pods is here, unless it has ended by then."""
        if run.workload.exclusive:
            self._note(run)
            if not run.first:
                self._pod.log.info(f"{run.context.spec.by} runs {run.title}")
        prepare, indices, baselines = self._preparations.when_ready, run.context.indices, run.workload.uses_baselines
        if run.first or not run.workload.exclusive:  # the job has just looked; a short command looks for nothing
            prepare(indices, run.start, baselines=baselines)
            return

        def looked() -> None:
            self._flags.follow(run.facts, indices[0])
            prepare(indices, run.start, baselines=baselines)

        self._flags.look(looked)

    def close(self, run: Run, seconds: float) -> None:
        """Store what came of it, files of the user's within that time, and let every pod note that it is over."""
        run.certain.happen()
        run.until = run.until or self._pod.machine.wall()
        if run.workload.exclusive:
            self._keep(run, lambda: keep_results(self._pod, run, seconds))
            self._note(run)
        run.verdict.forget_output()
        self._flags.over(run.facts)

    def _early(self, run: Run) -> None:
        """Pods still read their devices: its end is said and stored meanwhile."""
        run.until = self._pod.machine.wall()
        self._pod.log.info(certain_end(run).line(run.title))
        self._keep(run, lambda: keep_early(self._pod, run))

    def _keep(self, run: Run, keep: Callable[[], object]) -> None:
        try:
            keep()
        except Exception:  # the run has ended as it has, whatever is wrong with the files about it
            self._pod.log.warning(f"results of {run.run_id} are missing:\n{traceback.format_exc()}")

    def _note(self, run: Run) -> None:
        summary = run_summary(self._pod, run)
        self._pod.note_run(summary)
        self._roster.say(messages.TellRun(summary))

    def known(self, called: str) -> Run | None:
        """The run of that name or id."""
        return self._runs.get(run_of(self._names.get(called, called)))

    def find(self, called: str) -> Run:
        """The run of that name or id, or the newest exclusive one. Raises MissingProgram (66)."""
        run = self.known(called)
        # Programs name their life, and must not get the facts and meetings of the next one.
        if run is not None and called != run_of(called) and called != run.context.run_id:
            raise MissingProgram(f"{called} is over: the run is {run.context.run_id} now")
        if run is not None:
            return run
        if called:
            known = [run.context.spec.name or run_id for run_id, run in self._runs.items()]
            hint = f"the newest: {', '.join(known[-5:]) or 'none'}; a4-agent status lists the runs of this cluster"
            raise MissingProgram(f"there is no run {called!r}{did_you_mean(called, [*self._runs, *known])}", hint)
        newest = [run for run in self._runs.values() if run.workload.exclusive]
        if not newest:
            raise MissingProgram("there has been no run yet")
        return newest[-1]

    def busy(self) -> ClusterBusy:
        """The error that says who has been running what, and for how long."""
        run = self.current
        if run is None:
            return ClusterBusy("the job's first run has not begun yet", "a4-agent status shows what it waits for")
        seconds = self._pod.machine.wall() - run.since
        so_long = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        return ClusterBusy(
            f"the cluster is busy: {run.context.spec.by} has been running {run.title} for {so_long}",
            f"follow it: a4-agent logs {run.run_id}; end it: a4-agent cancel; a4-agent exec works beside it",
        )

    # What pods say

    def heard(self, index: int, said: messages.SaidOfPart) -> None:
        """A pod says something of its part. A late word of an earlier life, or of a forgotten run, changes nothing."""
        run = self._runs.get(run_of(said.run))
        if run is None or run.context.run_id != said.run:
            return
        match said:
            case messages.Prepared():
                run.part_prepared(index)
            case messages.RanksOver():
                run.ranks_over(index)
            case messages.Evidence():
                run.why.heard(index, said)
            case messages.Alive():
                run.alive(index)
            case messages.TellReadings(_, readings):
                run.gate.heard(index, readings)
            case messages.TellHealth(_, found):
                run.afterwards.heard(index, found)
            case messages.TellSeries(_, series):
                run.verdict.series[index] = series
            case messages.Done(_, end):
                run.part_done(index, end)

    def waits_for(self, index: int) -> bool:
        """Does some run wait for this pod?"""
        return any(run.course.waits_for(index) for run in self._runs.values())

    def lost(self, index: int, reason: str) -> None:
        """A pod is gone."""
        for run in list(self._runs.values()):
            run.worker_lost(index, reason)

    def left(self, index: int) -> None:
        """A pod whose parts are over has ended."""
        for run in self._runs.values():
            if not run.over:
                run.pod_left(index)

    # Ending runs

    def cancel_those_with(self, index: int, end: JobEnd, *, told: bool) -> None:
        for run in list(self._runs.values()):
            if run.course.waits_for(index):
                run.cancel(end, told=told)

    def cancel_all(self, end: JobEnd) -> None:
        for run in list(self._runs.values()):
            if not run.over:
                run.cancel(end)

    def when_idle(self, action: Callable[[], object]) -> None:
        """Call it when no run is left, at once if there is none."""
        self._when_idle = action
        self._act_if_idle()

    def abandon(self, end: JobEnd) -> None:
        """After a bug: ask the run to end, and wait for nothing."""
        current, self.current = self.current, None
        if current is not None:
            current.cancel(end)

    def _judged(self, run: Run) -> None:
        if run.workload.exclusive:
            self._over(run)
        else:
            self.close(run, 0.0)
            run.kept("")
        self._act_if_idle()

    def closed(self, run: Run) -> None:
        """The run's end is known everywhere: the next one may come."""
        if run is self.current:
            self.current = None
        self._act_if_idle()

    def _act_if_idle(self) -> None:
        if self._when_idle is not None and self.idle:
            action, self._when_idle = self._when_idle, None
            action()
