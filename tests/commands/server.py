"""An agent as commands see it: a real Unix socket, the protocol, and runs that do what a test says when it says so.

For what happens in the midst of a run. Where only its end counts, `agent.testing.FakeCluster` is nearer to the truth.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from agent import wire
from agent.decide.ending import JobEnd, Origin
from agent.decide.run_info import CertainEnd, Output, RunEnd, RunInfo
from agent.machine.unix_socket import _short

HEADER = 9
"""Bytes that a frame takes in a spool beside its data."""
PATIENCE = 150.0
"""For what must happen; only a broken test waits so long."""


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, what: str, hint: str = "", **more: Any) -> None:
        super().__init__(what)
        self.error = {"code": code, "what": what, "hint": hint, **more}


class FakeRun:
    """What pods print and how it ends. All methods may be called from any thread."""

    def __init__(self, agent: FakeAgent, run_id: str, spec: Mapping[str, Any], pods: list[int]) -> None:
        self._agent = agent
        self.id = run_id
        self.spec = spec
        self.pods = pods
        self.outputs = list(pods)
        self.frames: dict[int, list[tuple[int, bytes]]] = {pod: [] for pod in pods}
        self.old: dict[int, int] = {}
        """Pod → how many of its first frames were printed long ago."""
        self.kept_from: dict[int, int] = {}
        """Pod → number of the first frame that is still kept."""
        self.files: dict[tuple[int, str], bytes] = {}
        """What the run has left: (pod, name) → content."""
        self.broken: dict[int, Refused] = {}
        """Pods whose output cannot be read."""
        self.unread: dict[int, Refused] = {}
        """Pods whose files cannot be read."""
        self.silent: set[int] = set()
        """Pods whose `read` is never answered."""
        self.over: set[int] = set()
        self.verdict: dict[str, Any] | None = None
        self.ended: dict[str, Any] | None = None

    def say(self, pod: int, data: bytes, stream: int = 1) -> None:
        with self._agent.changed:
            self.frames[pod].append((stream, data))
            self._agent.changed.notify_all()

    def finish(self, pod: int) -> None:
        """This pod's part is over."""
        with self._agent.changed:
            self.over.add(pod)
            self._agent.changed.notify_all()

    def tell_end(self, code: int, what: str, waits: str) -> None:
        """How it ends is certain, though not all is over."""
        with self._agent.changed:
            self.verdict = wire.to_json(CertainEnd(JobEnd(code, what), waits))
            self._agent.changed.notify_all()

    def end(
        self,
        code: int = 0,
        what: str = "done",
        text: str = "",
        *,
        where: str = "",
        why: str = "",
        origin: Origin = "workload",
        codes: Mapping[int, int] | None = None,
        lost: Mapping[int, str] | None = None,
        results: str = "",
    ) -> None:
        """All is over."""
        end, lost = JobEnd(code, what, where, why, origin), lost or {}
        codes = dict.fromkeys(self.outputs, code) if codes is None else codes
        with self._agent.changed:
            self.over |= set(self.pods) - set(lost)
            self.broken |= {pod: Refused(75, f"pod {pod} is lost: {why}") for pod, why in lost.items()}
            self.ended = wire.to_json(RunEnd(end, text, codes, lost, results))
            self.verdict = self.verdict or wire.to_json(CertainEnd(end))
            self._agent.changed.notify_all()

    def about(self) -> RunInfo:
        names = {pod: f"job-{pod}.local" for pod in self.pods}
        labels = {name: self.spec.get(name, "") for name in ("name", "note", "command")}
        over = self.ended is not None
        return RunInfo(self.id, tuple(self.pods), self.pods[0], tuple(self.outputs), names, over, slots=2, **labels)

    def piece(self, pod: int, offset: int, most: int, since: float) -> Output:
        """The answer to `read` as things stand."""
        if since:
            offset = sum(HEADER + len(data) for _, data in self.frames[pod][: self.old.get(pod, 0)])
        frames: list[tuple[int, bytes]] = []
        at, size, begin, after = 0, 0, offset, offset
        for number, (stream, data) in enumerate(self.frames[pod]):
            if at >= offset and number >= self.kept_from.get(pod, 0) and (not frames or size < most):
                begin = begin if frames else at
                frames.append((stream, data))
                size += len(data)
                after = at + HEADER + len(data)
            at += HEADER + len(data)
        return Output(tuple(frames), after, begin - offset, over=pod in self.over and after >= at)


class FakeAgent:
    """Listens in `directory` as long as the `with` block lasts. `submitted(run)` says what becomes of a run."""

    def __init__(self, directory: Path, pods: int = 4, pid: int = 0) -> None:
        self.directory = directory
        self.pid = pid or os.getpid()
        self.changed = threading.Condition()
        self.requests: list[dict[str, Any]] = []
        self.runs: list[FakeRun] = []
        self.submitted: Callable[[FakeRun], None] = lambda run: None
        self.refuse: dict[str, Refused] = {}
        """Op → why it is refused."""
        self.code = 0
        """The job's code, for `release`."""
        self.stale: dict[str, str] = {}
        """Flags that were there before the run began."""
        self.facts: list[dict[str, Any]] = []
        self.awaited: list[dict[str, Any]] = []
        """What those who wait for facts are told, one after the other."""
        self._pods = pods
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closing = False

    def __enter__(self) -> FakeAgent:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f"pid {self.pid} since a moment ago\n".encode())
        self.write("state.json", {"phase": "sleeping", "index": 1, "pods": self._pods})
        self._listener = socket.socket(socket.AF_UNIX)
        with _short(str(self.directory / "agent.sock")) as path:  # an address has room for 107 bytes
            with suppress(FileNotFoundError):
                os.unlink(path)
            self._listener.bind(path)
        self._listener.listen(16)
        self._start(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.die()
        os.close(self._lock)
        for thread in self._threads:
            thread.join(PATIENCE)

    def write(self, name: str, data: Any) -> None:
        (self.directory / name).write_text(json.dumps(data))

    def die(self) -> None:
        """As by SIGKILL: every connection ends."""
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        for each in (self._listener, *self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that a client does."""
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), f"it did not happen; requests: {self.requests}"

    def asked(self, op: str) -> list[dict[str, Any]]:
        return [request for request in self.requests if request["op"] == op]

    # The protocol

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self.changed:
                self._connections.append(connection)
                if self._closing:
                    connection.close()
                    return
            self._start(lambda connection=connection: self._serve(connection))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        writing = threading.Lock()
        with suppress(OSError), connection.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                with self.changed:
                    self.requests.append(request)
                    self.changed.notify_all()
                self._start(lambda request=request: self._answer(connection, writing, request))  # type: ignore[misc]

    def _answer(self, connection: socket.socket, writing: threading.Lock, request: dict[str, Any]) -> None:
        try:
            if request["op"] in self.refuse:
                raise self.refuse[request["op"]]
            answer = {"ok": getattr(self, f"_{request['op']}")(request)}
        except Refused as refused:
            answer = {"error": refused.error}
        line = json.dumps({"id": request["id"], **answer}).encode() + b"\n"
        with writing, suppress(OSError):
            if not self._closing:
                connection.sendall(line)

    def _run(self, run_id: str) -> FakeRun:
        for run in reversed(self.runs):
            if run_id in ("", run.id):
                return run
        raise Refused(66, f"there is no run {run_id!r}", "a4-agent status lists the runs")

    def _submit(self, request: dict[str, Any]) -> dict[str, Any]:
        spec = request["spec"]
        run = FakeRun(self, f"{spec['workload']}-{len(self.runs)}", spec, list(range(self._pods)))
        self.submitted(run)
        self.runs.append(run)
        return run.about().to_json()

    def _find(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._run(request["run"]).about().to_json()

    def _read(self, request: dict[str, Any]) -> dict[str, Any]:
        run, pod = self._run(request["run"]), request["pod"]
        if "file" in request:
            if pod in run.unread:
                raise run.unread[pod]
            data = run.files.get((pod, request["file"]), b"")[request["offset"] :][: request["most"]]
            frames = ((1, data),) if data else ()
            return dict(wire.to_json(Output(frames, request["offset"] + len(data), 0, over=not data)))
        with self.changed:
            while True:
                piece = run.piece(pod, request["offset"], request["most"], request.get("since", 0.0))
                news = piece.frames or piece.skipped or piece.over or not request["wait"]
                if pod in run.broken and pod not in run.silent and not piece.frames:
                    raise run.broken[pod]
                if self._closing or (news and pod not in run.silent):
                    return dict(wire.to_json(piece))
                self.changed.wait(PATIENCE)

    def _begin(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"stale": self.stale}

    def _set(self, request: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _facts(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"facts": self.facts}

    def _await(self, request: dict[str, Any]) -> dict[str, Any]:
        return self.awaited.pop(0)

    def _forget(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"count": len(self.facts)}

    def _verdict(self, request: dict[str, Any]) -> dict[str, Any]:
        run = self._run(request["run"])
        with self.changed:
            self.changed.wait_for(lambda: run.verdict is not None or self._closing, PATIENCE)
            return run.verdict or {}

    def _wait(self, request: dict[str, Any]) -> dict[str, Any]:
        run = self._run(request["run"])
        with self.changed:
            self.changed.wait_for(lambda: run.ended is not None or self._closing, PATIENCE)
            return run.ended or {}

    def _cancel(self, request: dict[str, Any]) -> dict[str, Any]:
        self._run(request["run"])
        return {}

    def _why(self, request: dict[str, Any]) -> dict[str, Any]:
        run = self._run(request["run"])
        return {"run": run.id, "over": True, "diagnosis": None}

    def _release(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"code": self.code}
