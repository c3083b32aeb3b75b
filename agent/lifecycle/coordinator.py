"""The coordinator (index 0): forms the cluster, leads the run, tells every pod the one result."""

from __future__ import annotations

import json
from typing import Any

from agent import __version__
from agent.decide.ending import RESULT_VERSION, JobEnd, from_bug, from_error, from_signal
from agent.decide.facts import Facts
from agent.decide.keys import JobKeys
from agent.decide.messages import Message
from agent.decide.peers import peer_name
from agent.decide.plan import to_wire
from agent.decide.planning import make_plan
from agent.errors import AgentError, DirectoryUnusable, Exit, IdentityRefused, MissingProgram, PeersMissing
from agent.lifecycle.pod import Pod
from agent.lifecycle.roster import Callbacks, Peer, Roster
from agent.lifecycle.running import Run, find_mpi, run_context
from agent.machine.api import Target, Timer
from agent.workloads.base import Judgement, Mpi, Workload
from agent.workloads.registry import find_workload

FIRST_REPORT_SECONDS = 10.0
REPORT_SECONDS = 30.0
SETTLE_SECONDS = 2.0
"""After a worker says that it was told to end: time for our own SIGTERM to arrive, when all go."""
ANNOUNCE_SECONDS = 5.0
"""For connected workers to confirm the result."""
ANNOUNCE_EARLY_SECONDS = 20.0
"""For workers that are still starting to hear of an early failure."""
SHOWN_MISSING = 12


class Coordinator:
    """The only pod that decides."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._settings = pod.settings
        self._workload: Workload = find_workload(pod.settings.workload)
        self._mpi: Mpi | None = None
        self._roster: Roster | None = None
        self._facts: dict[int, Facts] = {}
        self._to_plan: set[int] = set()
        """Workers that have not confirmed the plan."""
        self._to_confirm: set[int] = set()
        """Workers that have not confirmed the result."""
        self._deadline: Timer | None = None
        self._run: Run | None = None
        self._run_id = ""
        self._end: JobEnd | None = None
        self._settle_until = 0.0
        self._leaving: set[int] = set()
        """Workers that said that they end by themselves."""
        self._stay = False
        self._over = False
        self._sleeping = False

    # Forming

    def start(self) -> None:
        pod = self._pod
        pod.prepare()
        if not pod.alone:
            self._roster = self._make_roster()
            self._roster.start()
        self._check_needs()
        pod.phase("forming")
        pod.gather_facts(self._own_facts)
        if not pod.alone:
            pod.start_sshd(lambda: None)
            self._deadline = self._machine.later(self._settings.peer_timeout, self._peers_missing)
            self._machine.later(FIRST_REPORT_SECONDS, self._report)

    def _check_needs(self) -> None:
        """What the run will need, before anybody waits for it. Raises AgentError."""
        settings = self._settings
        if self._workload.kind == "mpi":
            self._mpi = find_mpi(self._pod)
        if self._workload.name == "script" and not settings.task_script:
            raise MissingProgram(
                "no task script is mounted", "mount one at /workload/task/task-script.sh (chart: task_script)"
            )
        probe = f"{settings.results_dir}/.a4-agent-probe"
        try:
            self._machine.make_dir(settings.results_dir)
            self._machine.write(probe, "")
        except OSError as error:
            raise DirectoryUnusable(
                f"A4_RESULTS_DIR={settings.results_dir} cannot be written: {error.strerror}"
            ) from error

    def _make_roster(self) -> Roster:
        settings = self._settings
        keys = JobKeys(self._pod.job.secret, settings.epoch)
        client = keys.client_private()
        command = f"exec sh {self._pod.dir.path}/control-channel.sh {self._pod.dir.path}"
        targets = [
            Target(
                index=index,
                name=peer_name(settings.hostname_prefix, index, settings.domain_name),
                address="",
                port=settings.ssh_port,
                host_key=keys.host_public(index),
                client_key=client,
                command=command,
            )
            for index in range(1, settings.nnodes)
        ]
        hello = {"nonce": self._pod.nonce, "version": __version__, "epoch": settings.epoch}
        tell = Callbacks(self._message, self._worker_lost)
        return Roster(self._machine, self._pod.log, targets, hello, settings.lease, tell)

    def _own_facts(self, facts: Facts) -> None:
        self._add_facts(facts)

    def _add_facts(self, facts: Facts) -> None:
        self._facts[facts.index] = facts
        if len(self._facts) == self._settings.nnodes and self._pod.plan is None and self._end is None:
            self._pod.event("peers-ready")
            self._make_plan()

    def _make_plan(self) -> None:
        settings = self._settings
        plan = make_plan(
            self._facts.values(),
            epoch=settings.epoch,
            prefix=settings.hostname_prefix,
            domain=settings.domain_name,
            slots=settings.gpus_per_node,
            topology=self._pod.job.topology,
        )
        for warning in plan.warnings:
            self._pod.log.warning(warning)
        if self._roster is not None:
            self._roster.committed = True
            self._roster.say({"type": "plan", "plan": to_wire(plan)})
            self._to_plan = set(self._roster.peers)
        self._pod.keep_plan(plan)
        self._start_run_if_formed()

    def _start_run_if_formed(self) -> None:
        if self._to_plan or self._run is not None or self._end is not None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        pods = self._settings.nnodes
        since = self._machine.now() - self._pod.job.started
        self._pod.event("cluster-formed")
        self._pod.log.info(f"the cluster is formed: {pods} of {pods} pods, {since:.1f} s after this pod's start")
        self._start_run()

    def _peers_missing(self) -> None:
        """The deadline: end the job with every missing pod's name and reason."""
        assert self._roster is not None
        absent = self._waiting_for()
        if not absent:
            return
        seconds = self._settings.peer_timeout
        text = f"{len(absent)} of {self._settings.nnodes} pods did not come within {seconds:.0f} s"
        reasons = "\n".join(f"peer {index} ({self._pod.where(index)}): {why}" for index, why in absent.items())
        kind = IdentityRefused if self._roster.identity_problems() else PeersMissing
        self.fail(kind(text, reasons))

    def _waiting_for(self) -> dict[int, str]:
        """Pods without which the cluster is not formed, and why they are missing."""
        assert self._roster is not None
        absent = self._roster.absent()
        for index in self._roster.peers:
            if index not in absent and index not in self._facts:
                absent[index] = "connected, still finding its place"
            elif index not in absent and index in self._to_plan:
                absent[index] = "connected, has not confirmed the plan"
        if 0 not in self._facts:
            absent[0] = "this pod itself is still finding its place"
        return dict(sorted(absent.items()))

    def _report(self) -> None:
        if self._run is not None or self._end is not None:
            return
        absent = self._waiting_for()
        shown = [f"peer {index}: {why}" for index, why in list(absent.items())[:SHOWN_MISSING]]
        more = [f"and {len(absent) - SHOWN_MISSING} more"] if len(absent) > SHOWN_MISSING else []
        self._pod.log.info(f"waiting for {len(absent)} of {self._settings.nnodes} pods:")
        for line in shown + more:
            self._pod.log.info(f"  {line}")
        self._pod.update_state(missing={str(index): why for index, why in absent.items()})
        self._machine.later(REPORT_SECONDS, self._report)

    # What workers say

    def _message(self, peer: Peer, message: Message) -> None:
        kind, index = message["type"], peer.index
        if kind == "facts":
            self._add_facts(Facts.from_json(message["facts"]))
        elif kind == "planned":
            self._to_plan.discard(index)
            self._start_run_if_formed()
        elif kind == "done" and self._run is not None:
            self._run.worker_done(index, int(message["code"]), int(message["status"]), str(message["what"]))
            self._drop_if_leaving(index)
        elif kind == "stopping":
            self._worker_stopping(index, JobEnd.from_json(message["end"]))
        elif kind == "bye":
            self._confirmed(index)

    def _worker_stopping(self, index: int, end: JobEnd) -> None:
        """A worker ends by itself: by a signal, or because it cannot go on."""
        assert self._roster is not None
        self._pod.log.warning(f"peer {index}: {end.what}")
        if self._end is not None:
            self._confirmed(index)
            return
        if end.code in (Exit.TERMINATED, Exit.INTERRUPTED):
            self._settle_until = self._machine.now() + SETTLE_SECONDS
            end = JobEnd(Exit.TRY_AGAIN, f"a worker pod was {end.what}", self._pod.where(index))
        self._leaving.add(index)
        self._job_fails(end)

    def _drop_if_leaving(self, index: int) -> None:
        assert self._roster is not None
        if index in self._leaving:
            self._roster.drop(index, "it ended by itself")

    def _worker_lost(self, peer: Peer, reason: str) -> None:
        self._to_confirm.discard(peer.index)
        if self._sleeping:
            assert self._roster is not None
            left = self._settings.nnodes - sum(other.lost for other in self._roster.peers.values())
            self._pod.log.warning(f"peer {peer.index} is lost ({reason}); {left} pods are left")
        elif self._end is not None:
            self._leave_if_confirmed()
        elif self._run is not None:
            self._run.worker_lost(peer.index, reason)
        else:
            self.fail(PeersMissing(f"{self._pod.where(peer.index)} was lost before the run", reason))

    # The run

    def _start_run(self) -> None:
        self._run_id = f"{self._workload.name}-{self._machine.draw_nonce()[:8]}"
        pod = self._pod
        assert pod.plan is not None
        context = run_context(pod, self._run_id, pod.job.args, self._mpi)
        self._run = Run(
            pod,
            self._workload,
            context,
            workers=sorted(self._roster.peers) if self._roster else [],
            tokens=[self._facts[peer.index].nonce for peer in pod.plan.peers],
            say=self._say,
            over=self._run_over,
        )
        pod.event("run-started", detail=self._run_id)
        pod.phase("running", run={"id": self._run_id, "workload": self._workload.name})
        try:
            self._run.start()
        except OSError as error:
            self._run.cancel(JobEnd(Exit.MISSING_PROGRAM, f"{self._workload.name} cannot be started: {error}"))

    def _say(self, message: dict[str, Any]) -> None:
        if self._roster is not None:
            self._roster.say(message)

    def _run_over(self, judgement: Judgement) -> None:
        self._pod.event("run-ended", detail=str(judgement.end.code))
        wait = self._settle_until - self._machine.now()
        if wait > 0:
            self._machine.later(wait, lambda: self._close_run(judgement))
        else:
            self._close_run(judgement)

    def _close_run(self, judgement: Judgement) -> None:
        if self._end is None:
            self._keep_results(judgement)
            self._announce(judgement.end)

    def _keep_results(self, judgement: Judgement) -> None:
        """Show the table, store it with result.json; a full disk costs the file, not the job's code."""
        if judgement.text:
            self._machine.emit(1, judgement.text.encode())
        plan = self._pod.plan
        result = {
            "version": RESULT_VERSION,
            "agent": __version__,
            "job": self._settings.job_identifier,
            "epoch": self._settings.epoch,
            "run": self._run_id,
            "workload": self._workload.name,
            "end": judgement.end.to_json(),
            "plan": plan.to_json() if plan else None,
            "data": judgement.data,
        }
        directory = self._settings.results_dir
        output = self._machine.read(f"{self._pod.dir.run(self._run_id)}/output.log") or ""
        try:
            self._machine.write(f"{self._pod.dir.run(self._run_id)}/result.json", json.dumps(result, indent=1))
            self._machine.write(f"{directory}/result.json", self._pod.log.masked(json.dumps(result, indent=1)))
            if judgement.log_name:
                text = f"{judgement.text}\n{output}" if output else judgement.text
                self._machine.write(f"{directory}/{judgement.log_name}", self._pod.log.masked(text))
        except OSError as error:
            self._pod.log.error(f"the results could not be stored in {directory}: {error.strerror}")

    # Ends

    def fail(self, error: AgentError) -> None:
        """The job cannot go on."""
        self._job_fails(from_error(error))

    def bug(self, traceback: str) -> None:
        self._job_fails(from_bug(traceback, self._pod.where(0)))

    def signalled(self, number: int) -> None:
        """SIGTERM or SIGINT: end the job; when its result is known, only end sooner."""
        if self._end is not None:
            self._release()
        else:
            self._settle_until = 0.0
            self._job_fails(from_signal(number, self._pod.where(0)))

    def _job_fails(self, end: JobEnd) -> None:
        if self._end is not None:
            return
        if self._run is not None:
            self._run.cancel(end)
        elif self._settle_until > self._machine.now():
            wait = self._settle_until - self._machine.now()
            self._machine.later(wait, lambda: self._announce(end))
        else:
            self._announce(end)

    def _announce(self, end: JobEnd) -> None:
        """Fix the job's end, record it, tell every worker, and go when they have confirmed."""
        if self._end is not None:
            return
        self._end = end
        self._stay = self._settings.sleep and self._run is not None
        self._pod.report_end(end)
        self._pod.record_end(end, self._run_id)
        if self._roster is None:
            self._told()
            return
        self._to_confirm = {index for index, peer in self._roster.peers.items() if not peer.lost}
        self._say({"type": "result", "end": end.to_json(), "run": self._run_id, "stay": self._stay})
        patience = ANNOUNCE_SECONDS
        if self._roster.absent().keys() & self._to_confirm and self._early():
            patience = ANNOUNCE_EARLY_SECONDS
        self._machine.later(patience, self._stop_announcing)
        self._leave_if_confirmed()

    def _early(self) -> bool:
        """Did the job end before its pods could all be there?"""
        assert self._end is not None
        return self._pod.plan is None and self._end.code not in (Exit.PEERS_MISSING, Exit.IDENTITY)

    def _stop_announcing(self) -> None:
        if self._to_confirm:
            missed = ", ".join(map(str, sorted(self._to_confirm)))
            self._pod.log.warning(f"these pods did not confirm the result: {missed}")
            self._to_confirm.clear()
            self._leave_if_confirmed()

    def _confirmed(self, index: int) -> None:
        assert self._roster is not None
        self._to_confirm.discard(index)
        if not self._stay:
            self._roster.drop(index, "it has the result")
        self._leave_if_confirmed()

    def _leave_if_confirmed(self) -> None:
        if not self._to_confirm and not self._over and not self._sleeping:
            self._told()

    def _told(self) -> None:
        assert self._end is not None
        if self._stay:
            self._sleeping = True
            self._pod.phase("sleeping", code=self._end.code)
            self._pod.log.info(
                f"the run ended with exit code {self._end.code}; the cluster stays (SLEEP_INFINITY) until SIGTERM"
            )
        else:
            self._leave()

    def _release(self) -> None:
        self._say({"type": "end"})
        self._leave()

    def _leave(self) -> None:
        assert self._end is not None
        if self._over:
            return
        self._over = True
        if self._roster is not None:
            self._roster.close()
        self._pod.finish(self._end.code)
