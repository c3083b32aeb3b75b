"""The coordinator (index 0): forms the cluster, leads the run, tells every pod the one result."""

from __future__ import annotations

from typing import Any

from agent import __version__
from agent.decide.ending import JobEnd, from_bug, from_error, from_signal, merged
from agent.decide.messages import Message
from agent.decide.peers import peer_name
from agent.errors import AgentError, Exit, IdentityRefused, PeerLost, PeersMissing
from agent.lifecycle.announcing import EARLY_SECONDS, EARLY_SIGNAL_SECONDS, SIGNAL_SECONDS, Announcement
from agent.lifecycle.forming import Forming
from agent.lifecycle.pod import Pod
from agent.lifecycle.results import check_results_dir, keep_results
from agent.lifecycle.roster import Callbacks, Peer, Roster
from agent.lifecycle.running import Run, find_mpi, run_context
from agent.machine.api import Target
from agent.workloads.base import Judgement, Mpi, Workload
from agent.workloads.registry import find_workload

SETTLE_SECONDS = 2.0
"""After a worker says that it was told to end: time for our own SIGTERM to arrive, when all go."""


class Coordinator:
    """The only pod that decides for the job."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._workload: Workload = find_workload(pod.settings.workload)
        self._mpi: Mpi | None = None
        self._roster: Roster | None = None
        self._forming: Forming | None = None
        self._run: Run | None = None
        self._run_id = ""
        self._announcement: Announcement | None = None
        self._end: JobEnd | None = None
        """The job's end, fixed once."""
        self._signal: JobEnd | None = None
        self._settle_until = 0.0
        self._leaving: set[int] = set()
        """Workers that said that they end by themselves."""
        self._gone: dict[str, str] = {}
        """Workers lost while the cluster sleeps: index → why."""
        self._sleeping = False
        self._over = False

    def start(self) -> None:
        """Raises AgentError; `fail` then tells the other pods, so the way to them is opened first."""
        if self._signal is not None:
            return
        pod = self._pod
        if not pod.alone:
            self._machine.raise_file_limit()
            self._roster = self._make_roster()
            self._roster.start()
        pod.prepare()
        if not pod.alone:
            pod.start_sshd(lambda: None)
        self._forming = Forming(pod, self._roster, self._start_run)
        self._check_needs()
        self._forming.start()

    def _check_needs(self) -> None:
        """What the run will need, before anybody waits for it. Raises AgentError."""
        if self._workload.kind == "mpi":
            self._mpi = find_mpi(self._pod)
        check_results_dir(self._pod)

    def _make_roster(self) -> Roster:
        from agent.decide.keys import JobKeys

        settings = self._pod.settings
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
        tell = Callbacks(self._message, self._worker_lost, self._worker_greeted)
        return Roster(self._machine, self._pod.log, targets, hello, settings.lease, tell)

    # What workers say

    def _message(self, peer: Peer, message: Message) -> None:
        kind, index = message["type"], peer.index
        if kind in ("facts", "planned") and self._forming is not None:
            self._forming.message(index, message)
        elif kind == "done" and self._run is not None:
            self._run.worker_done(index, int(message["code"]), int(message["status"]), str(message["what"]))
            if index in self._leaving:
                self._let_go(index)
        elif kind == "stopping":
            self._worker_stopping(index, JobEnd.from_json(message["end"]))
        elif kind == "bye" and self._announcement is not None:
            self._announcement.confirmed(index)

    def _worker_stopping(self, index: int, end: JobEnd) -> None:
        """A worker ends by itself: it was told to, or it cannot go on."""
        self._pod.log.warning(f"peer {index}: {end.what}")
        if self._run is not None and self._run.waits_for(index):
            self._leaving.add(index)
        else:
            self._let_go(index)
        if end.code in (Exit.TERMINATED, Exit.INTERRUPTED):
            self._settle_until = self._machine.now() + SETTLE_SECONDS
            end = JobEnd(Exit.TRY_AGAIN, f"a worker pod was {end.what}", self._pod.where(index))
        self._job_fails(end)

    def _let_go(self, index: int) -> None:
        """This worker ends with a code of its own and needs nothing more from us."""
        assert self._roster is not None
        self._roster.drop(index, "it ended by itself")
        if self._announcement is not None:
            self._announcement.confirmed(index)

    def _worker_greeted(self, peer: Peer, anew: bool) -> None:
        if self._forming is not None:
            self._forming.greeted(peer.index, anew)

    def _worker_lost(self, peer: Peer, reason: str) -> None:
        if self._announcement is not None:
            self._announcement.confirmed(peer.index)
        if self._sleeping:
            self._gone[str(peer.index)] = reason
            left = self._pod.settings.nnodes - len(self._gone)
            self._pod.log.warning(f"peer {peer.index} is lost ({reason}); {left} pods are left")
            self._pod.update_state(lost=self._gone)
        elif self._end is not None:
            return
        elif self._run is not None:
            self._run.worker_lost(peer.index, reason)
        else:
            lost = PeerLost("a pod was lost before the run", reason)
            self._job_fails(from_error(lost, self._pod.where(peer.index)))

    # The run

    def _start_run(self) -> None:
        if self._end is not None or self._signal is not None:
            return
        pod = self._pod
        assert pod.plan is not None
        assert self._forming is not None
        self._run_id = f"{self._workload.name}-{self._machine.draw_nonce()[:8]}"
        self._run = Run(
            pod,
            self._workload,
            run_context(pod, self._run_id, pod.job.args, self._mpi),
            workers=[i for i, peer in self._roster.peers.items() if not peer.lost] if self._roster else [],
            tokens=[self._forming.facts[peer.index].nonce for peer in pod.plan.peers],
            say=self._say,
            over=self._run_over,
        )
        pod.event("run-started", detail=self._run_id)
        pod.phase("running", run={"id": self._run_id, "workload": self._workload.name})
        self._run.start()

    def _say(self, message: dict[str, Any]) -> None:
        if self._roster is not None:
            self._roster.say(message)

    def _run_over(self, judgement: Judgement) -> None:
        self._pod.event("run-ended", detail=str(int(judgement.end.code)))
        self._when_settled(lambda: self._close_run(judgement))

    def _when_settled(self, action: Any) -> None:
        self._machine.later(max(0.0, self._settle_until - self._machine.now()), action)

    def _close_run(self, judgement: Judgement) -> None:
        end = merged(judgement.end, self._signal) if self._signal else judgement.end
        keep_results(self._pod, self._run_id, Judgement(end, judgement.text, judgement.data, judgement.log_name))
        self._announce(end)

    # Ends

    def fail(self, error: AgentError) -> None:
        """The job cannot go on."""
        others = isinstance(error, (PeersMissing, IdentityRefused, PeerLost))
        self._job_fails(from_error(error, "" if others else self._pod.where(0)))

    def bug(self, traceback: str) -> None:
        end = from_bug(traceback, self._pod.where(0))
        if self._run is not None:
            self._run.cancel(end)  # what may itself be broken gets one chance to end the run in order
            self._run = None
        self._announce(end)

    def signalled(self, number: int) -> None:
        """SIGTERM or SIGINT: end the job; when its result is known, only end sooner."""
        if self._end is not None:
            self._say({"type": "end"})
            self._leave()
        elif self._signal is not None and self._run is not None:
            self._run.hurry()
        else:
            self._signal = from_signal(number, self._pod.where(0))
            self._settle_until = 0.0
            self._job_fails(self._signal)

    def _job_fails(self, end: JobEnd) -> None:
        if self._end is not None:
            return
        if self._run is not None:
            self._run.cancel(end)
            return
        if self._forming is not None:
            self._forming.close()
        self._when_settled(lambda: self._announce(merged(end, self._signal) if self._signal else end))

    def _announce(self, end: JobEnd) -> None:
        """Fix the job's end, record it, tell every worker, and go when they have it."""
        if self._end is not None:
            return
        self._end = end
        self._pod.report_end(end)
        self._pod.record_end(end, self._run_id)
        stay = self._pod.settings.sleep and self._run is not None and self._signal is None
        if self._roster is None:
            self._told(stay)
            return
        self._announcement = Announcement(self._pod, self._roster, stay, lambda: self._told(stay))
        patience, known_only = self._patience(end)
        self._announcement.start(end, self._run_id, patience=patience, known_only=known_only)

    def _patience(self, end: JobEnd) -> tuple[float, bool]:
        """How long workers may take to hear of the end, and whether only those that have been there count."""
        waited_already = end.code in (Exit.PEERS_MISSING, Exit.IDENTITY)
        if self._pod.plan is not None or waited_already:
            return (SIGNAL_SECONDS if self._signal else max(self._pod.settings.lease, SIGNAL_SECONDS)), True
        return (EARLY_SIGNAL_SECONDS if self._signal else EARLY_SECONDS), False

    def _told(self, stay: bool) -> None:
        assert self._end is not None
        if not stay:
            self._leave()
            return
        self._sleeping = True
        self._pod.phase("sleeping", code=self._end.code)
        self._pod.log.info("the cluster stays (SLEEP_INFINITY) until it gets SIGTERM, then ends with that code")

    def _leave(self) -> None:
        assert self._end is not None
        if self._over:
            return
        self._over = True
        if self._roster is not None:
            self._roster.close()
        self._pod.finish(self._end.code)
