"""LocalCluster: build, watch, disturb and end a local cluster from Python. The command line uses it, too.

    with LocalCluster(ClusterSpec(pods=4, entrypoint=("hostname",))) as cluster:
        cluster.start()
        ends = cluster.wait(timeout=30)

The cluster lives in a process of its own and ends with the LocalCluster that started it, also when the
process of that is killed; only `start(detached=True)` leaves it behind, to be found by `attach`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

from agent import errors
from agent.local import surroundings
from agent.local.calls import connect, expect, running_clusters
from agent.local.channel import Conversation, Message
from agent.local.pods import PodInfo
from agent.local.running import Running
from agent.local.spec import METADATA_MODES, ClusterSpec, check, check_rate

_SUPERVISOR = """\
import sys
sys.path.insert(0, {path!r})
from agent.local.holder import run_from_command_line
run_from_command_line()
"""
_END_DEADLINE = 30.0


class Output(NamedTuple):
    """A piece of what a pod has printed."""

    pod: int
    stream: str
    """`out` or `err`."""
    data: bytes


class LocalCluster:
    """A local cluster, either this object's own (`start`) or one that runs already (`attach`)."""

    def __init__(self, spec: ClusterSpec) -> None:
        check(spec)
        self.spec = spec if spec.name else spec.named(f"local-{secrets.token_hex(4)}")
        self.name = self.spec.name
        self._process: subprocess.Popen[bytes] | None = None
        self._owner: Conversation | None = None

    @classmethod
    def attach(cls, name: str = "") -> LocalCluster:
        """The running cluster `name`; without a name, the only one that runs."""
        running = running_clusters()
        if not name and len(running) == 1:
            name = running[0]
        if name not in running:
            what = f"no local cluster {name!r} runs" if name else "which local cluster?"
            which = ", ".join(running) if running else "none"
            raise errors.UsageError(what if running or name else "no local cluster runs", f"running: {which}")
        with contextlib.closing(connect(name)) as conversation:
            conversation.send({"op": "status"})
            return cls(ClusterSpec.from_json(expect(conversation)["spec"]))

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, *, detached: bool = False) -> list[PodInfo]:
        """Build the cluster; returns when every pod that is not late runs its program."""
        self.build(detached=detached)
        return self.start_pods()

    def start_pods(self) -> list[PodInfo]:
        """The second half of `start`: the pods of a cluster that `build` has built."""
        try:
            return self._pods({"op": "start"})
        except BaseException:
            self.quit()
            raise

    def build(self, *, detached: bool = False) -> None:
        """The first half of `start`: everything but the pods."""
        found = surroundings.survey(self.spec)
        own, theirs = socket.socketpair()
        code = _SUPERVISOR.format(path=surroundings.checkout())
        argv = [sys.executable, "-I", "-S", "-c", code, "a4-agent-local", self.name, str(theirs.fileno())]
        quiet = subprocess.DEVNULL
        with theirs:
            self._process = subprocess.Popen(
                argv,
                stdin=quiet,
                stdout=quiet,
                stderr=quiet if detached else None,
                cwd="/",
                pass_fds=[theirs.fileno()],
                # Away from the terminal: its Ctrl-C is for the client, which ends pods in good order.
                start_new_session=True,
            )
        self._owner = Conversation(own)
        self._owner.send({"spec": self.spec.to_json(), "surroundings": found, "detached": detached})
        try:
            expect(self._owner)
        except BaseException:
            self.close()
            raise
        if detached:
            self.close()

    def close(self) -> None:
        """End a cluster that this object has started (not a detached one), at once."""
        if self._owner:
            self._owner.close()
            self._owner = None
        if self._process:
            try:
                self._process.wait(_END_DEADLINE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def quit(self) -> None:
        """End the cluster at once, whoever has started it."""
        with contextlib.suppress(errors.AgentError, OSError):
            process = os.pidfd_open(self.supervisor_pid())
            try:
                self._ask({"op": "quit"})
                select.select([process], [], [], _END_DEADLINE)
            finally:
                os.close(process)
        self.close()

    def terminate(self, grace: float = 30.0) -> list[PodInfo]:
        """SIGTERM to every pod, SIGKILL after the grace time; the cluster itself stays readable."""
        return self._pods({"op": "terminate", "grace": grace})

    def pods(self) -> list[PodInfo]:
        """All pods as they are now."""
        return self._pods({"op": "status"})

    def supervisor_pid(self) -> int:
        """The process that holds the cluster."""
        return int(self._ask({"op": "status"})["pid"])

    def wait(self, timeout: float | None = None, indices: Iterable[int] | None = None) -> list[PodInfo]:
        """Until all pods (or those of `indices`) have ended; TimeoutError after `timeout` seconds."""
        chosen = None if indices is None else list(indices)
        answer = self._ask({"op": "wait", "timeout": timeout, "indices": chosen})
        if not answer["met"]:
            raise TimeoutError(f"pods have not ended after {timeout:g} s")
        return _infos(answer)

    def wait_for_file(
        self, path: str, timeout: float | None = None, indices: Iterable[int] | None = None
    ) -> None:
        """Until a file is there in all pods; TimeoutError, or PeerLost when a pod ends without it."""
        chosen = None if indices is None else list(indices)
        request = {"op": "wait_file", "path": path, "timeout": timeout, "indices": chosen}
        answer = self._ask(request)
        if answer["left"]:
            ended = [pod for pod in _infos(answer) if pod.index in answer["left"] and pod.state == "ended"]
            if ended:
                raise errors.PeerLost(f"pod {ended[0].index} has ended {ended[0].code} without {path}")
            raise TimeoutError(f"no {path} in pods {answer['left']} after {timeout} s")

    def exec(
        self,
        index: int,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod with the pod's environment, as `kubectl exec` does; its output as text.

        After `timeout` seconds it is killed, and TimeoutError raised.
        """
        content = input.encode() if isinstance(input, str) else input
        with self.popen(index, argv, env=env) as running:
            out, err = running.communicate(content or b"", timeout)
            return subprocess.CompletedProcess(list(argv), running.code or 0, out, err)

    def popen(self, index: int, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Running:
        """The same, started and left running: its pipes and its end."""
        return Running(lambda streams: self._exec(index, argv, env or {}, streams))

    def exec_with(
        self, index: int, argv: Sequence[str], streams: Sequence[int], env: Mapping[str, str] | None = None
    ) -> Conversation:
        """The same on three given descriptors; the conversation brings `code`, `signal` can be sent on it."""
        return self._exec(index, argv, env or {}, streams)

    def exec_on_terminal(self, index: int, argv: Sequence[str], env: Mapping[str, str]) -> Conversation:
        """The same on a new terminal of the pod's, whose other end comes as the first descriptor."""
        return self._exec(index, argv, env, ())

    def _exec(
        self, index: int, argv: Sequence[str], env: Mapping[str, str], streams: Sequence[int]
    ) -> Conversation:
        conversation = self._open()
        request = {"op": "exec", "index": index, "argv": list(argv), "env": dict(env)}
        conversation.send(request | {"terminal": not streams}, streams)
        return conversation

    def read_bytes(self, index: int, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Files of a pod, also of one that has ended; None for those that are not there."""
        files = json.loads(self._ask({"op": "read", "index": index, "paths": list(paths)})["files"])
        return {path: None if text is None else text.encode("latin-1") for path, text in files.items()}

    def read(self, index: int, path: str) -> str:
        """A text file of a pod, also of one that has ended; FileNotFoundError when it is not there."""
        content = self.read_bytes(index, [path])[path]
        if content is None:
            raise FileNotFoundError(f"{path} in pod {index}")
        return content.decode(errors="replace")

    def write(self, index: int, path: str, content: bytes | str) -> None:
        """Write a file in a running pod."""
        result = self.exec(index, ["sh", "-c", 'cat > "$1"', "sh", path], input=content)
        if result.returncode != 0:
            raise OSError(f"pod {index}: {result.stderr.strip()}")

    def output(self, index: int | None = None, *, follow: bool = False) -> Iterator[Output]:
        """What pods have printed, in order; with `follow` until all have ended."""
        with contextlib.closing(self._open()) as conversation:
            conversation.send({"op": "logs", "index": index, "follow": follow})
            while "end" not in (message := expect(conversation)):
                for pod, stream, text in message["output"]:
                    yield Output(pod, stream, text.encode("latin-1"))

    def logs(self, index: int, stream: str = "") -> str:
        """All that a pod has printed so far, on one of its streams (`out`, `err`) or on both."""
        pieces = [item.data for item in self.output(index) if stream in ("", item.stream)]
        return b"".join(pieces).decode(errors="replace")

    def kill_pod(self, index: int) -> None:
        """SIGKILL to the pod's PID 1, and so to all of the pod."""
        self.signal(index, signal.SIGKILL)

    def signal(self, index: int, number: int, pid: int = 1) -> None:
        """A signal to a process, numbered as the pod itself numbers it."""
        if pid == 1:
            self._ask({"op": "signal", "index": index, "signal": int(number)})
            return
        result = self.exec(index, ["sh", "-c", f"kill -{int(number)} {pid}"])
        if result.returncode != 0:
            raise ProcessLookupError(f"pod {index}: {result.stderr.strip()}")

    def start_pod(self, index: int, env: Mapping[str, str] | None = None) -> None:
        """Start a pod that is missing or has ended, with a fresh file system; `env` is added to its own."""
        self._ask({"op": "start_pod", "index": index, "env": dict(env or {})})

    def link(self, index: int, *, up: bool) -> None:
        """Pull (or plug again) the network cable of a pod."""
        self._ask({"op": "link", "index": index, "up": up})

    def slow_link(self, index: int, rate: str) -> None:
        """Limit a pod's network to `rate` (as `tc` writes it: `10mbit`); an empty rate ends that."""
        if rate:
            check_rate(rate)
        surroundings.find_program("tc")
        self._ask({"op": "slow_link", "index": index, "rate": rate})

    def set_name(self, index: int, *, visible: bool) -> None:
        """Have the pod's DNS name appear or vanish."""
        self._ask({"op": "name", "index": index, "visible": visible})

    def set_metadata(self, index: int, mode: str) -> None:
        """Change how the metadata server behaves towards one pod (METADATA_MODES)."""
        if mode not in METADATA_MODES:
            raise errors.UsageError(f"metadata: one of {', '.join(METADATA_MODES)}, not {mode}")
        self._ask({"op": "metadata", "index": index, "mode": mode})

    def _open(self) -> Conversation:
        return connect(self.name)

    def _ask(self, request: Message) -> Message:
        with contextlib.closing(self._open()) as conversation:
            conversation.send(request)
            return expect(conversation)

    def _pods(self, request: Message) -> list[PodInfo]:
        return _infos(self._ask(request))


def _infos(message: Message) -> list[PodInfo]:
    return [PodInfo(**pod) for pod in message["pods"]]
