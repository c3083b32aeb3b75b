"""A client of the agent that lives in this pod: submit runs, follow them, end them.

    with Client() as client:
        run = client.submit(RunSpec("exec", args=("hostname",), by="a notebook"))
        ended = client.follow(run, Lines(label=True))
        print(ended.end.code)

Everything raises AgentError: 69 where no agent lives, 75 when it ends meanwhile, and whatever the agent itself
answers (docs/maintainers/control-channel.md). A client that goes away ends nothing: a run goes on without it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from agent import wire
from agent.connection import ANSWER_SECONDS, Answer, Connection, content
from agent.decide.run_info import CertainEnd
from agent.decide.run_info import Output as Output
from agent.decide.run_info import RunEnd as RunEnd
from agent.decide.run_info import RunInfo as RunInfo
from agent.decide.runspec import RunSpec
from agent.errors import AgentError, ClusterBusy, MissingProgram, SystemFault, UsageError
from agent.output import Sink
from agent.paths import RESULT, RunDir

if TYPE_CHECKING:
    from agent.clinic.interface import Collected
    from agent.decide.diagnosis import RunDiagnosis
    from agent.decide.result import Result

MOST_READ, LEAST_READ = 65536, 4096
"""How many bytes one answer of `read` may have."""
MOST_OPEN = 16 * 1024 * 1024
"""How many bytes of answers may be under way to a reader that does not take them."""


class Client:
    """One connection to the agent of this pod, for one thread; a context manager. `run_dir`: by default A4_RUN_DIR.

    In all methods `run` is a RunInfo, an id or a name. They raise PeerLost when the agent ends meanwhile, UsageError
    for values of a wrong type and after `close`, and what the agent answers: an AgentError with its code.
    """

    def __init__(self, run_dir: str = "") -> None:
        """Raises PeersMissing where no agent listens, SystemFault for who may not ask it."""
        self._connection = Connection(RunDir(run_dir).socket)
        self.waits_its_turn = False
        """`submit` waits for another run to end: its own has not begun."""

    def close(self) -> None:
        """Leave; runs go on."""
        self._connection.close()

    def wake_by(self, fd: int) -> None:
        """Let bytes in this pipe interrupt whatever is waited for (see `signal.set_wakeup_fd`); -1: nothing."""
        self._connection.wake_by(fd)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def submit(self, spec: RunSpec, *, wait: float = 0.0) -> RunInfo:
        """Have a run started; where another goes on, after that, if it ends within `wait` seconds.

        Raises ClusterBusy when another goes on, UsageError for an invalid RunSpec, AgentError: 75 when a needed pod is
        lost, 69 before the cluster is formed, 2 for unknown pods and what else cannot be run, 78 when pods differ where
        they must not.
        """
        until = time.monotonic() + wait
        asked = _checked(spec)
        while True:
            try:
                return RunInfo.from_json(self._ask("submit", {"spec": asked}))
            except ClusterBusy:
                if time.monotonic() >= until:
                    raise
            self.waits_its_turn = True
            self._wait_for_end(until)
            self.waits_its_turn = False

    def _wait_for_end(self, until: float) -> None:
        """Wait until the run that goes on is over, or for a moment when there is none: the cluster is at its end."""
        try:
            run = self.find()
        except AgentError:
            run = None  # the first has not begun
        going_on = run is not None and not run.over
        if run is not None and going_on:
            self._connection.send("wait", {"run": run.id})
        left = max(0.0, until - time.monotonic())
        self._connection.next(left if going_on else min(left, 0.5))

    def find(self, run: str | RunInfo = "") -> RunInfo:
        """A run that goes on or was; by default the newest that had the cluster for itself.

        Raises AgentError 66 if there is none.
        """
        return RunInfo.from_json(self._ask("find", {"run": _id(run)}))

    def read(
        self, run: str | RunInfo, pod: int, offset: int = 0, *, most: int = MOST_READ, wait: bool = False
    ) -> Output:
        """What a pod printed from `offset` on, about `most` bytes (at most 65536); with `wait` not before there is
        something."""
        answer = self._ask("read", _reading(_id(run), pod, offset, most, wait), None if wait else ANSWER_SECONDS)
        return Output.from_json(answer)

    def file(self, run: str | RunInfo, name: str, pod: int = 0) -> Iterator[bytes]:
        """What a run has left, piece by piece: result.json or report.html of pod 0, evidence.txt of any pod, and as
        pod.log the log of any pod that stands among the results.

        Nothing where the run has no such file. Waits for a report that is being made. Raises AgentError 66 for a run
        that is not known.
        """
        piece, found = Output((), 0, 0, over=False), False
        while not piece.over:
            fields = _reading(_id(run), pod, piece.next, MOST_READ, False) | {"file": name}
            # Asking for the page may have begun to make it.
            piece = Output.from_json(self._ask("read", fields, 90.0))
            for _, data in piece.frames:
                found = True
                yield data
        if not found:
            self.find(_id(run))

    def result(self, run: str | RunInfo) -> Result:
        """The result.json of a run, as typed values. Raises AgentError: 66 for a run that has none, as it goes on, ran
        beside others, or its result is not kept any more; 71 for one that this release cannot read."""
        from agent.decide.result_reader import read_result

        text = b"".join(self.file(run, RESULT))
        if not text:
            raise MissingProgram(f"{_id(run)} has no {RESULT}", "runs that go on, and those of exec, have none")
        try:
            return read_result(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise SystemFault(f"{RESULT} of {_id(run)} cannot be read: {error}") from error

    def wait(self, run: str | RunInfo) -> RunEnd:
        """Wait until the run is over. Raises AgentError 66 for a run that is not known."""
        return RunEnd.from_json(self._ask("wait", {"run": _id(run)}, None))

    def why(self, run: str | RunInfo | None = None) -> RunDiagnosis:
        """Who holds a run up (docs/why.md), by default the newest that has the cluster for itself: `run`, `over` and
        `diagnosis`, as `WhyAnswer` in docs/answers.schema.json.

        Of a run that is over, what was said of it while it stood still. Raises AgentError 66 if there is none.
        """
        from agent.decide.diagnosis import RunDiagnosis

        return wire.from_json(RunDiagnosis, self._ask_why(run))

    def why_records(self, run: str | RunInfo | None = None) -> Collected:
        """What `why` decides on: all that pods saw of the processes of a run. That of many pods is refused, as it is
        too large for an answer. Raises AgentError 66."""
        from agent.clinic.interface import Collected

        return wire.from_json(Collected, self._ask_why(run, records=True))

    def _ask_why(self, run: str | RunInfo | None, *, records: bool = False) -> Any:
        # Pods may look for 9 s, and one look is made at a time.
        return self._ask("why", {"run": _id(run or ""), "records": records}, 30.0)

    def clocks(self) -> dict[int, dict[str, float]]:
        """For each worker that answers, by how many seconds its clock is ahead of pod 0's (`offset`), give or take
        half the time that question and answer took (`trip`). Takes half a second."""
        return {int(index): clock for index, clock in self._ask("clocks", {}).items()}

    def cancel(self, run: str | RunInfo, *, hurry: bool = False, why: str = "", answered: bool = True) -> None:
        """End a run on every pod within the grace time, or at once (`hurry`). Does not wait for its end.

        `answered=False` does not even wait until the agent has heard it: a signal handler may call that.
        """
        fields = {"run": _id(run), "hurry": hurry, "why": why}
        if answered:
            self._ask("cancel", fields)
        else:
            self._connection.send("cancel", fields)

    def release(self, *, force: bool = False) -> int:
        """End the cluster; returns the exit code of its job. Raises ClusterBusy while a run goes on (not `force`)."""
        return int(self._ask("release", {"force": force})["code"])

    def follow(
        self,
        run: RunInfo,
        sink: Sink,
        *,
        last_seconds: float = 10.0,
        offsets: Mapping[int, int] | None = None,
    ) -> RunEnd:
        """Hand everything that `run.outputs` print to `sink` until the run is over; from the beginning, or from the
        offset of the pod on, as `catch_up` returns them.

        Reads no further than the sink has come: slow is fine, nothing is lost and nothing piles up. When the run is
        over, output that does not come within `last_seconds` is given up, and said: a lost pod sends none.
        """
        self._connection.run = run.id
        try:
            ended = self._follow(run, sink, last_seconds, offsets or {})
        except AgentError:
            sink.close()  # what has come so far
            raise
        sink.close()
        return ended

    def _follow(self, run: RunInfo, sink: Sink, last_seconds: float, offsets: Mapping[int, int]) -> RunEnd:
        most = min(MOST_READ, max(LEAST_READ, MOST_OPEN // max(1, len(run.outputs))))

        def read_on(pod: int, offset: int, agent: str = "") -> int:
            return self._connection.send("read", _reading(run.id, pod, offset, most, True) | {"agent": agent})

        certain = self._connection.send("verdict", {"run": run.id})
        waiting = self._connection.send("wait", {"run": run.id})
        reads = {read_on(pod, offsets.get(pod, 0)): pod for pod in run.outputs}
        ended: RunEnd | None = None
        quiet_since = time.monotonic()
        while ended is None or reads:
            limits = (sink.idle(), last_seconds if ended else None)
            answer = self._connection.next(min((one for one in limits if one is not None), default=None))
            if answer is None:
                if ended and time.monotonic() - quiet_since >= last_seconds:
                    names = ",".join(map(str, sorted(reads.values())))
                    again = f"a4-agent logs {run.id} --pod {names}"
                    sink.note(f"the end of what pods {names} printed did not come; try: {again}")
                    break
                continue
            if answer["id"] == waiting:
                ended = RunEnd.from_json(content(answer))
            elif answer["id"] == certain:
                # An agent of an older release does not know the question.
                early = CertainEnd.from_json(answer["ok"]) if "ok" in answer else None
                if early and early.waits:
                    sink.note(early.line(run.title))
            elif answer["id"] in reads:
                pod = reads.pop(answer["id"])
                piece = _taken(sink, pod, answer)
                if piece is not None and not piece.over and sink.wants(pod):
                    reads[read_on(pod, piece.next, piece.agent)] = pod
            quiet_since = time.monotonic()
        return ended

    def catch_up(self, run: RunInfo, sink: Sink, *, since: float = 0.0) -> dict[int, int]:
        """Hand what `run.outputs` have printed so far to `sink`, one pod after another, and return where they are.

        Leaves out what was printed before `since`, in seconds since 1970.
        """
        self._connection.run = run.id
        offsets: dict[int, int] = {}
        for pod in run.outputs:
            fields, going_on = _reading(run.id, pod, 0, MOST_READ, False) | {"since": since}, True
            while going_on:
                answer = self._connection.answer(self._connection.send("read", fields), ANSWER_SECONDS)
                piece = _taken(sink, pod, answer)
                offsets[pod] = piece.next if piece else fields["offset"]
                going_on = piece is not None and not piece.over and piece.next != fields["offset"]
                fields = _reading(run.id, pod, offsets[pod], MOST_READ, False)
        sink.close()
        return offsets

    def _ask(self, op: str, fields: Mapping[str, Any], patience: float | None = ANSWER_SECONDS) -> dict[str, Any]:
        return content(self._connection.answer(self._connection.send(op, fields), patience))


def _checked(spec: RunSpec) -> dict[str, Any]:
    """As JSON. Raises UsageError for what only Python without types could give."""
    if not isinstance(spec, RunSpec):
        raise UsageError(f"submit takes a RunSpec, not {type(spec).__name__}")
    data = spec.to_json()
    try:
        RunSpec.from_json(data)
    except ValueError as error:
        tuples = re.search(r"\b(args|hosts|exclude)\b", str(error))
        hint = "args, hosts and exclude are tuples of texts" if tuples else "docs/api.md has every field"
        raise UsageError(f"this RunSpec cannot be run: {error}", hint) from None
    return data


def _id(run: str | RunInfo) -> str:
    return run.id if isinstance(run, RunInfo) else run


def _reading(run: str, pod: int, offset: int, most: int, wait: bool) -> dict[str, Any]:
    return {"run": run, "pod": pod, "offset": offset, "most": most, "wait": wait}


def _taken(sink: Sink, pod: int, answer: Answer) -> Output | None:
    """Give a piece to the sink and return it; None when nothing more of this pod can be read."""
    try:
        piece = Output.from_json(content(answer))
    except AgentError as error:
        sink.note(f"what pod {pod} printed cannot be read any further: {error}")
        sink.over(pod)
        return None
    hand_over(sink, pod, piece.frames, piece.skipped)
    if piece.over:
        sink.over(pod)
    return piece


def hand_over(sink: Sink, pod: int, frames: Iterable[tuple[int, bytes]], skipped: int) -> None:
    """Give the sink what a pod printed, and say how much is missing before it."""
    if skipped:
        lost = f"{skipped} bytes that pod {pod} printed"
        sink.note(f"{lost} are not kept any more (A4_LOG_LIMIT_MB sets how much is)")
    for stream, data in frames:
        sink.output(pod, stream, data)
