"""All that a pod, coordinator or worker, has to do with runs: its parts in them, and what they printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agent import wire
from agent.catalogue import WORKLOADS
from agent.decide import messages
from agent.decide.os_refusals import refused
from agent.decide.part_end import PartEnd
from agent.decide.plan import Plan
from agent.decide.run_info import Output
from agent.decide.run_names import run_of
from agent.decide.runspec import RunSpec
from agent.errors import AgentError, MissingProgram, PeerLost, UsageError
from agent.lifecycle.channel.questions import Answer, refusal
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.context import run_context
from agent.lifecycle.runs.gate import look
from agent.lifecycle.runs.looks import look_at, ras_port
from agent.lifecycle.runs.part import RunPart
from agent.lifecycle.waits import Once
from agent.machine.api import SERVER_SECONDS
from agent.paths import POD_LOG, RESULT
from agent.workloads import find_workload

MOST_READ = 65536
"""Bytes of output in one answer: as text in JSON it passes through the control channel with everything else."""
KEPT_RUNS, KEPT_BESIDE = 10, 20
"""Directories of earlier runs that stay in the run directory: with the cluster for themselves, and beside those. Lives
of runs are counted by themselves, and as many of them stay: they push no run out."""
AGENT_CHARACTERS = 8
BETWEEN_SECONDS = 0.3
"""Between two answers to who reads the output of a run of which nothing runs here at present."""
FILES = {RESULT: RESULT, "report.html": "result.html", "evidence.txt": "evidence.txt", POD_LOG: ""}
"""What commands may read of a run beside its output: name → name in the run's directory of this pod; empty: it is only
among the results, where all of them still are when that directory has made room for newer runs."""


class Parts:
    """This pod's parts of runs, by run id. `say` gets what the coordinator is to hear of them."""

    def __init__(self, pod: Pod, say: Callable[[messages.SaidOfPart], None]) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._say = say
        self._parts: dict[str, RunPart] = {}
        self._waiting: dict[str, messages.Prepare] = {}
        """A life of a run that begins here when what is left of the one before is over."""
        self._when_idle: Callable[[], None] | None = None

    def told(self, said: messages.Said) -> None:
        """The coordinator says something of a run. What this pod cannot do is an end of its part, not of the pod: the
        coordinator judges the run by it."""
        match said:
            case messages.Prepare(run, spec, pods):
                try:
                    self._prepare(run, spec, pods)
                except (AgentError, OSError) as error:  # such as too many open files
                    self._say(messages.Done(run, cannot_begin(run, spec, error)))
            # Of `exec` it follows at once, also where this pod's part could not be made.
            case messages.Go(run) if run in self._parts:
                self._parts[run].go()
            case messages.Stop(run, ranks_over=True) if run in self._parts:
                self._parts[run].hanging.all_ranks_over()
            case messages.Stop(run, hurry, told):
                self.stop(run, hurry=hurry, told=told)
            case messages.AskEvidence(run, seconds):
                self._gather_evidence(run, seconds)
            case messages.AskReadings():
                look(self._pod, said, self._say)
            case messages.AskAlive(run):
                self._say(messages.Alive(run))

    def _prepare(self, run_id: str, spec: RunSpec, indices: Sequence[int]) -> None:
        """Make this pod's part ready to begin. Raises UsageError for a workload of another release or an id that names
        no directory, PeerLost."""
        if not run_id.isascii():  # JSON may hold half of a character, which no path can
            raise UsageError(f"{run_id!r} is not a valid run id")
        pod, workload = self._pod, find_workload(spec.workload)
        earlier = self._running(run_of(run_id))
        if earlier is not None:  # this pod was given up, and comes back
            self._waiting = {run_id: messages.Prepare(run_id, spec, tuple(indices))}
            earlier.kill()
            return
        self._prune()
        plan, cores = subset_of(pod, indices), pod.machine.core_count()
        port = ras_port(pod.machine, run_id)
        context = run_context(
            pod.settings, pod.known, plan, run_id, spec, python=pod.job.python, cores=cores, ras_port=port
        )
        part = self._parts[run_id] = RunPart(pod, workload, context, self._say, self._part_over)
        part.prepare()

    def _part_over(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for said in waiting.values():
            self.told(said)
        self._done_if_idle()

    def stop(self, run_id: str, *, hurry: bool = False, told: bool = False) -> None:
        if self._waiting.pop(run_id, None):
            self._say(messages.Done(run_id, PartEnd(None)))
        elif part := self._parts.get(run_id):
            if hurry:
                part.kill()
            elif told:
                part.tell()
            else:
                part.stop()

    def stop_all(self, done: Callable[[], None], *, told: bool = False, most: float | None = None) -> None:
        """End every part; `done` when none is left, at once if there is none, or when that has taken too long: `most`
        seconds, if that is less than parts may take anyway."""
        self._when_idle = done
        for run_id in [*self._waiting, *self._parts]:
            self.stop(run_id, told=told)
        self._done_if_idle()
        if self._when_idle is not None:
            shares = self._pod.shares
            usual = (shares.part if told else shares.own_part) + shares.announce
            self._machine.later(usual if most is None else min(usual, most), self._leave_behind)

    def signal(self, number: int) -> None:
        """Send a signal that ends nothing by itself to the process of each part that has one."""
        for part in self._parts.values():
            if part.process is not None:
                part.process.signal(number)

    def hurry(self) -> None:
        """No more patience with any."""
        for part in self._parts.values():
            part.kill()

    def has(self, run_id: str) -> bool:
        """Has this pod's part of that run begun, lately?"""
        return any(run_of(life) == run_id for life in self._parts)

    def printed(self) -> float | None:
        """When a part of an exclusive run last printed; None when there is none."""
        times = [part.printed() for part in self._parts.values() if part.workload.exclusive and not part.over]
        return max(times) if times else None

    def _done_if_idle(self) -> None:
        if self._when_idle is not None and all(part.over for part in self._parts.values()):
            done, self._when_idle = self._when_idle, None
            done()

    def _leave_behind(self) -> None:
        """The pod must end, whatever is broken here."""
        if self._when_idle is not None:
            left = ", ".join(run_id for run_id, part in self._parts.items() if not part.over)
            self._pod.log.error(f"this pod's part of {left} does not end, and is left behind")
            self._parts = {}
            self._done_if_idle()

    def _prune(self) -> None:
        """Room for one more run: the oldest go, but never one that goes on."""
        self._parts = {run_id: part for run_id, part in self._parts.items() if not part.over}
        # What is not stored yet is still read from the spool in that directory.
        needed = self._parts.keys() | self._pod.run_logs.unstored()
        old = [name for name in self._machine.list_dir(self._pod.dir.runs) if name not in needed]
        lives = [name for name in old if run_of(name) != name]
        beside = [name for name in old if name.startswith("exec-")]
        runs = [name for name in old if name not in {*lives, *beside}]
        for names, kept in ((lives, KEPT_RUNS), (beside, KEPT_BESIDE), (runs, KEPT_RUNS)):
            for name in names[: max(0, len(names) - kept + 1)]:
                self._machine.remove_dir(self._pod.dir.run(name))

    def _gather_evidence(self, run_id: str, seconds: float) -> None:
        """Where the run's processes are and what their ranks said last; when they are gone, what torch's watchdog has
        left of them."""
        part = self._parts.get(run_id)
        if part is None or (part.over and not part.dumps):
            self._say(messages.Evidence(run_id, ""))
        else:
            look_at(self._pod, part, seconds, self._say)

    # Reading what was printed

    def read(self, fields: dict[str, Any], answer: Answer) -> None:
        """Op `read` for this pod. Answers later when `wait` is set and there is nothing new yet."""
        run_id, name = str(fields.get("run", "")), str(fields.get("file", ""))
        running = self._running(run_id)
        # The offset comes from a client, and `seek` raises OverflowError beyond 63 bits.
        offset, since = min(max(0, int(fields.get("offset", 0))), 1 << 62), float(fields.get("since", 0.0))
        agent = self._pod.nonce[:AGENT_CHARACTERS]
        if fields.get("agent", agent) not in ("", agent):
            offset = 0  # it was counted in the output of the pod that was here before
        most = max(1, min(int(fields.get("most", MOST_READ)), MOST_READ))
        is_name = run_id and "/" not in run_id and not run_id.startswith(".")
        if is_name and name:
            self._read_file(run_id, name, offset, most, answer)
            return
        piece = self._machine.read_spool(self._pod.dir.spool(run_id), offset, most, since) if is_name else None
        if piece is None:
            answer(refusal(MissingProgram(f"no run named {run_id!r} on {self._pod.where(self._pod.settings.index)}")))
        elif running and fields.get("wait") and not piece.frames and not piece.skipped:
            # Without `wait`, so that the next time it is answered even if nothing has come.
            again = {**fields, "offset": piece.next, "agent": agent, "since": 0.0, "wait": False}
            running.output.when_more(lambda: self.read(again, answer))
        elif not running and not piece.frames and self._pod.state.has_lives(run_id):
            # Between two lives. Not at once: who reads would ask again and again.
            nothing = Output(*piece, over=False, agent=agent)
            self._machine.later(BETWEEN_SECONDS, lambda: answer({"ok": wire.to_json(nothing)}))
        else:
            answer({"ok": wire.to_json(Output(*piece, over=not running and not piece.frames, agent=agent))})

    def _running(self, run_id: str) -> RunPart | None:
        """This pod's part of the run, in the life that goes on; None: it has none that does."""
        parts = (part for life, part in self._parts.items() if run_of(life) == run_id and not part.over)
        return next(parts, None)

    def _read_file(self, run_id: str, name: str, offset: int, most: int, answer: Answer) -> None:
        """Answers with no frame where there is no such file; later, when it is still being made."""
        if name not in FILES:
            answer(refusal(UsageError(f"runs have no file named {name!r}", f"available: {', '.join(FILES)}")))
            return

        def answered(data: bytes) -> None:
            frames = ((1, data),) if data else ()
            answer({"ok": wire.to_json(Output(frames, offset + len(data), 0, over=not data))})

        def read() -> None:
            path = f"{self._pod.dir.run(run_id)}/{FILES[name]}"
            if FILES[name] and self._machine.exists(path):
                answered(self._machine.read_part(path, offset, most))
            else:
                self._read_stored(self._pod.run_logs.stored(run_id, name), offset, most, answered)

        self._pod.run_logs.when_made(run_id, name, read)

    def _read_stored(self, path: str, offset: int, most: int, have: Callable[[bytes], None]) -> None:
        """A piece of a file among the results, nothing if it does not come in time: its server may not answer."""
        came = Once()

        def first(data: bytes) -> None:
            if not came.happened:
                came.happen()
                have(data)

        self._machine.aside(lambda: self._machine.read_part(path, offset, most), first, lambda why: first(b""))
        self._machine.later(SERVER_SECONDS, lambda: first(b""))


def subset_of(pod: Pod, indices: Sequence[int]) -> Plan:
    """The plan of those pods alone, in the order given. Raises PeerLost where this cannot be meant for this pod."""
    plan = pod.known.plan
    peers = {peer.index: peer for peer in plan.peers} if plan is not None else {}
    if plan is None or not {pod.settings.index, *indices} <= peers.keys() or pod.settings.index not in indices:
        what = f"the coordinator named pods {list(indices)}, which are not in this pod's plan"
        raise PeerLost(what, "do all pods run the same release?")
    return plan._replace(peers=tuple(peers[index] for index in indices))


def cannot_begin(run_id: str, spec: RunSpec, error: AgentError | OSError) -> PartEnd:
    """The end of a part that could not even be made. Where the first part that fails does not end the others, this is
    as if its command had failed, so that they go on."""
    if isinstance(error, OSError):
        error = refused(f"{run_id} cannot be prepared", error)
    code = int(error.code)
    fail_fast = spec.workload not in WORKLOADS or find_workload(spec.workload).fail_fast
    return PartEnd(None if fail_fast else code, code, str(error))
