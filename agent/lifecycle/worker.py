"""A worker pod: wait for the coordinator, do one's part, end with the job's code."""

from __future__ import annotations

from agent import __version__
from agent.decide.ending import JobEnd, exit_code, from_bug, from_error, from_signal
from agent.decide.facts import Facts
from agent.decide.messages import CHANNEL_VERSION, BadMessage, Message, decode
from agent.decide.plan import from_wire
from agent.errors import AgentError, Exit, PeerLost, PeersMissing
from agent.lifecycle.link import Link
from agent.lifecycle.part import Part
from agent.lifecycle.pod import Pod
from agent.lifecycle.roster import beat_seconds
from agent.lifecycle.running import run_context
from agent.machine.api import Channel, Timer
from agent.workloads.registry import find_workload

REPORT_SECONDS = 30.0
EARLY_SECONDS = 20.0
"""How long a pod that cannot go on waits to tell a coordinator that has not come yet."""
LAST_WORDS_SECONDS = 2.0
"""The most that this pod's end waits for the coordinator to close the channel, having read all."""


class Worker:
    """Answers the coordinator; decides nothing for the job."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._settings = pod.settings
        self._link = Link()
        self._coordinator = ""
        self._part: Part | None = None
        self._run_id = ""
        self._end: JobEnd | None = None
        self._own_end: JobEnd | None = None
        """Why this pod ends by itself, when it does."""
        self._deadline: Timer | None = None
        self._beat = beat_seconds(pod.settings.lease, pod.settings.nnodes)
        self._signalled = False
        self._over = False

    def start(self) -> None:
        """Raises AgentError."""
        if self._over:
            return
        pod = self._pod
        pod.prepare()
        self._machine.accept(pod.dir.channels, self._opened)
        pod.start_sshd(lambda: pod.phase("waiting"))
        pod.gather_facts(self._facts_ready)
        self._deadline = self._machine.later(self._settings.peer_timeout, self._nobody_came)
        self._machine.later(REPORT_SECONDS, self._report)
        self._machine.later(self._beat, self._beats)

    # Channels

    def _opened(self, channel: Channel) -> None:
        channel.receive(lambda line: self._line(channel, line), lambda reason: self._closed(channel, reason))

    def _closed(self, channel: Channel, reason: str) -> None:
        if self._link.channel is channel:
            self._link.detach()
            if self._over:
                self._pod.finish(self._code())
            elif self._end is None:
                self._pod.log.warning(f"lost the channel to the coordinator: {reason}")

    def _line(self, channel: Channel, line: bytes) -> None:
        try:
            message = decode(line)
        except BadMessage as error:
            self._pod.log.warning(f"the coordinator sent what is no message: {error}")
            channel.close()
            return
        if message["type"] == "hello":
            self._hello(channel, message)
        elif channel is self._link.channel and self._link.take(message, self._machine.now()):
            self._message(message)

    def _hello(self, channel: Channel, message: Message) -> None:
        if message.get("v") != CHANNEL_VERSION or message.get("index") != self._settings.index:
            self._pod.log.warning(
                f"a coordinator with control channel {message.get('v')} for pod {message.get('index')} was turned away"
            )
            channel.close()
            return
        nonce = str(message.get("nonce"))
        if nonce != self._coordinator:
            if self._coordinator and (self._run_id or self._end is not None):
                channel.close()
                self.fail(PeerLost("another coordinator took over: the one of this run is gone"))
                return
            self._coordinator = nonce
            self._link.detach()
            self._link = Link()
            if self._own_end is not None:
                self._link.say({"type": "stopping", "end": self._own_end.to_json()})
            elif self._pod.facts is not None:
                self._link.say({"type": "facts", "facts": self._pod.facts.to_json()})
        if self._deadline is not None:
            self._end_waiting()
            self._pod.event("coordinator-connected")
            self._pod.phase("forming")
        self._link.attach(channel)
        if message.get("knows") != self._pod.nonce:
            message = {**message, "seen": 0}  # it has heard an earlier agent of this pod, not this one
        self._link.take(message, self._machine.now())
        self._link.mention({"type": "hello", "v": CHANNEL_VERSION, "nonce": self._pod.nonce, "version": __version__})
        self._link.resend()

    def _facts_ready(self, facts: Facts) -> None:
        if self._coordinator:
            self._link.say({"type": "facts", "facts": facts.to_json()})

    # What the coordinator says

    def _message(self, message: Message) -> None:
        kind = message["type"]
        if kind == "plan":
            self._plan(message)
        elif kind == "start":
            self._start_part(message)
        elif kind == "stop":
            self._stop_part()
        elif kind == "result":
            self._result(message)
        elif kind == "end":
            self._leave()

    def _plan(self, message: Message) -> None:
        settings = self._settings
        self._pod.keep_plan(from_wire(message["plan"], settings.hostname_prefix, settings.domain_name))
        self._pod.phase("formed")
        self._link.say({"type": "planned"})

    def _start_part(self, message: Message) -> None:
        self._run_id = str(message["run"])
        self._pod.event("run-started", detail=self._run_id)
        workload = find_workload(str(message["workload"]))
        self._pod.phase("running", run={"id": self._run_id, "workload": workload.name})
        part = Part(self._machine, self._pod.log, self._run_id, self._settings.grace, self._part_over)
        self._part = part
        if workload.kind != "everywhere":
            part.start(None)
            return
        context = run_context(self._pod, self._run_id, message.get("args", ()))
        try:
            part.start(workload.launch(context))
        except (OSError, AgentError) as error:
            what = error.what if isinstance(error, AgentError) else f"{workload.name} cannot be started: {error}"
            self._pod.log.error(what)
            self._part = None
            self._say_done(Exit.MISSING_PROGRAM, what)

    def _stop_part(self) -> None:
        if self._part is not None:
            self._part.stop()

    def _part_over(self, status: int) -> None:
        self._part = None
        self._pod.event("run-ended", detail=str(status))
        self._say_done(exit_code(status), "", status)
        if self._own_end is not None:
            self._give_up()

    def _say_done(self, code: int, what: str, status: int = 0) -> None:
        self._link.say({"type": "done", "run": self._run_id, "code": code, "status": status, "what": what})

    def _result(self, message: Message) -> None:
        self._end = JobEnd.from_json(message["end"])
        if self._own_end is None:
            self._pod.report_end(self._end)
        self._pod.record_end(self._end, str(message.get("run", "")), self._code())
        self._link.say({"type": "bye"})
        if message.get("stay") and self._own_end is None:
            self._pod.phase("sleeping", code=self._end.code)
            self._pod.log.info(f"the run ended with exit code {self._end.code}; the pod stays (SLEEP_INFINITY)")
        else:
            self._leave()

    # Ends

    def fail(self, error: AgentError) -> None:
        """This pod cannot go on."""
        self._end_by_oneself(from_error(error, self._pod.where(self._settings.index)))

    def bug(self, traceback: str) -> None:
        self._end_by_oneself(from_bug(traceback, self._pod.where(self._settings.index)))

    def signalled(self, number: int) -> None:
        """SIGTERM or SIGINT for this pod; again: no more patience."""
        if self._over:
            self._pod.finish(self._code())
        elif self._end is not None:
            self._leave()
        elif self._signalled and self._part is not None:
            self._part.kill()
        else:
            self._signalled = True
            self._end_by_oneself(from_signal(number, self._pod.where(self._settings.index)))

    def _end_by_oneself(self, end: JobEnd) -> None:
        if self._end is not None:
            self._pod.log.error(f"after the job's end: {end}")
            self._leave()
            return
        if self._own_end is None:
            self._own_end = end
            self._pod.report_end(end)
            self._link.say({"type": "stopping", "end": end.to_json()})
        if self._part is not None:
            self._part.stop()
        else:
            self._give_up()

    def _give_up(self) -> None:
        """Part over, or none: this pod's own end stands unless the job's is known by now."""
        assert self._own_end is not None
        if self._end is None:
            self._end = self._own_end
            self._pod.record_end(self._own_end, self._run_id)
        self._leave()

    def _leave(self) -> None:
        if self._over:
            return
        self._over = True
        self._end_waiting()
        if self._part is not None:
            self._part.stop()
        if self._link.channel is not None:
            self._machine.later(LAST_WORDS_SECONDS, lambda: self._pod.finish(self._code()))
        elif self._can_still_be_heard():
            self._machine.later(EARLY_SECONDS, lambda: self._pod.finish(self._code()))
        else:
            self._pod.finish(self._code())

    def _can_still_be_heard(self) -> bool:
        """This pod failed, no coordinator knows of it, and one may be about to connect."""
        told_to_end = self._code() in (Exit.TERMINATED, Exit.INTERRUPTED, Exit.PEERS_MISSING)
        return not self._coordinator and not told_to_end and self._pod.sshd_listens

    def _code(self) -> int:
        """The job's code, except for a pod that was itself told to end, or failed, before there was one."""
        if self._own_end is not None:
            return self._own_end.code
        assert self._end is not None
        return self._end.code

    def _nobody_came(self) -> None:
        address = f"{self._pod.interface.address}:{self._settings.ssh_port}"
        self.fail(
            PeersMissing(
                f"the coordinator did not come within {self._settings.peer_timeout:.0f} s",
                f"sshd listens on {address}. Why it was not reached stands in the log of {self._pod.where(0)}; "
                "a pod whose secret or epoch differs from the others' is refused",
            )
        )

    def _end_waiting(self) -> None:
        """The coordinator has come, or this pod no longer waits for it."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _report(self) -> None:
        if self._deadline is None:
            return
        self._pod.log.info("waiting for the coordinator to connect")
        self._machine.later(REPORT_SECONDS, self._report)

    def _beats(self) -> None:
        if self._over:
            return
        self._link.mention({"type": "beat"})
        silent = self._machine.now() - self._link.heard
        if self._coordinator and self._own_end is None and silent > self._settings.lease:
            self._coordinator_lost(silent)
        self._machine.later(self._beat, self._beats)

    def _coordinator_lost(self, silent: float) -> None:
        if self._end is not None:
            self._pod.log.info("the coordinator is gone and the result is known: this pod ends too")
            self._leave()
            return
        self.fail(PeerLost(f"the coordinator has not been heard for {silent:.0f} s"))
