"""What can be asked of a running local cluster, whoever has started it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent import errors
from agent.machine.stream import MOST_BYTES
from agent.workbench.local import host_survey, sockets
from agent.workbench.local.channel import Conversation, Message
from agent.workbench.local.network import cable, limit_argv, way_script
from agent.workbench.local.pods import PodInfo
from agent.workbench.local.running_command import Running
from agent.workbench.local.spec import METADATA_MODES, NIC, ClusterSpec, address, check_rate
from agent.workbench.local.syscalls import open_within

ANSWER_SECONDS = 60.0
"""How long a supervisor may take for what it can answer at once, and a copy may neither send, take nor end."""
_FILE_LIMIT = 64 << 20
_WAITS = {"start", "terminate", "wait"}
"""Requests that are answered when something has come about."""


def connect(name: str) -> Conversation:
    """A conversation with the supervisor of a cluster. Raises UsageError when there is no such cluster."""
    try:
        return Conversation(sockets.connect(name), most_request=MOST_BYTES)
    except OSError as error:
        running = ", ".join(sockets.running_clusters()) or "none"
        raise errors.UsageError(f"no local cluster {name} runs", f"running: {running}") from error


def ask(name: str, request: Message, patience: float | None = ANSWER_SECONDS) -> Message:
    """The answer of a cluster's supervisor to one request. Raises SystemFault when it takes too long."""
    with _asked(name, request, patience) as (answer, _):
        return answer


@contextlib.contextmanager
def _asked(name: str, request: Message, patience: float | None) -> Iterator[tuple[Message, list[int]]]:
    """The same with the descriptors that came with it, which are open in the block."""
    with contextlib.closing(connect(name)) as conversation:
        conversation.socket.settimeout(patience)
        try:
            conversation.send(request)
            answer = conversation.expect()
        except OSError as error:
            late = isinstance(error, TimeoutError)
            how = f"has not answered for {patience:g} s" if late else f"cannot be asked: {error.strerror}"
            raise errors.SystemFault(f"the supervisor of the local cluster {name} {how}") from error
        yield answer, conversation.descriptors


class Output(NamedTuple):
    """A piece of what a pod has printed."""

    pod: int
    stream: str
    """`out` or `err`."""
    data: bytes


def read_output(
    name: str, index: int | None = None, *, follow: bool, idle: Callable[[], float | None]
) -> Iterator[Output]:
    """What pods of a cluster have printed, in order; with `follow` until all have ended. `idle` is called before each
    wait for more, and says how long that may take at most (None: for ever)."""
    with contextlib.closing(connect(name)) as conversation:
        conversation.send({"op": "logs", "index": index, "follow": follow})
        message: Message = {"output": ()}
        while "end" not in message:
            for pod, stream, text in message["output"]:
                yield Output(pod, stream, text.encode("latin-1"))
            conversation.socket.settimeout(idle())
            try:
                message = conversation.expect()
            except (TimeoutError, BlockingIOError):
                message = {"output": ()}


class ClusterAccess:
    """Watches, uses and disturbs the cluster `spec.name`."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.name = spec.name

    def terminate(self, grace: float = 30.0) -> list[PodInfo]:
        """SIGTERM to every pod, SIGKILL after the grace time; the cluster itself stays readable."""
        return self.ask_pods({"op": "terminate", "grace": grace})

    def pods(self) -> list[PodInfo]:
        """All pods as they are now."""
        return self.ask_pods({"op": "status"})

    def index_of(self, word: str) -> int:
        """The pod that a word names: its index, its name in DNS or in Kubernetes, or its node. Raises UsageError."""
        nodes = {pod.index: pod.node for pod in self.pods()} if self.spec.lives else {}  # others keep those of the spec
        return self.spec.index_of(word, nodes)

    def supervisor_pid(self) -> int:
        """The process that holds the cluster."""
        return int(self.ask({"op": "status"})["pid"])

    def wait(self, timeout: float | None = None, indices: Iterable[int] | None = None) -> list[PodInfo]:
        """Until all pods (or those of `indices`) have ended; TimeoutError after `timeout` seconds."""
        answer = self._wait(timeout, indices)
        if answer["left"]:
            raise TimeoutError(f"pods have not ended after {timeout:g} s")
        return _infos(answer)

    def wait_for_file(self, path: str, timeout: float | None = None, indices: Iterable[int] | None = None) -> None:
        """Until a file is there in all pods; TimeoutError, or PeerLost when a pod ends without it."""
        answer = self._wait(timeout, indices, path)
        if answer["left"]:
            ended = [pod for pod in _infos(answer) if pod.index in answer["left"] and pod.state == "ended"]
            if ended:
                raise errors.PeerLost(f"pod {ended[0].index} has ended {ended[0].code} without {path}")
            raise TimeoutError(f"no {path} in pods {answer['left']} after {timeout} s")

    def _wait(self, timeout: float | None, indices: Iterable[int] | None, path: str = "") -> Message:
        chosen = None if indices is None else list(indices)
        return self.ask({"op": "wait", "path": path, "timeout": timeout, "indices": chosen})

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
        return Running(lambda streams: self.exec_with(index, argv, streams, env))

    def exec_with(
        self, index: int, argv: Sequence[str], streams: Sequence[int], env: Mapping[str, str] | None = None
    ) -> Conversation:
        """The same on three given descriptors; the conversation brings `code`, `signal` can be sent on it."""
        if isinstance(argv, str):
            raise errors.UsageError("a command is a list of words, not a text", f"such as {['sh', '-c', argv]}")
        conversation = connect(self.name)
        request = {"op": "exec", "index": index, "argv": list(argv), "env": dict(env or {})}
        try:
            conversation.send(request, streams)
        except BaseException:
            conversation.close()
            raise
        return conversation

    def exec_on_terminal(self, index: int, argv: Sequence[str], env: Mapping[str, str]) -> Conversation:
        """The same on a new terminal of the pod's, whose other end comes as the first descriptor."""
        return self.exec_with(index, argv, (), env)

    def read_bytes(self, index: int, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Files of a pod, also of one that has ended; None for those that are not there."""
        with _asked(self.name, {"op": "read", "index": index}, ANSWER_SECONDS) as (_, (root,)):
            return {path: _content(root, path) for path in paths}

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
        return read_output(self.name, index, follow=follow, idle=lambda: None)

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
            self.ask({"op": "signal", "index": index, "signal": int(number)})
            return
        result = self.exec(index, ["sh", "-c", f"kill -{int(number)} {pid}"])
        if result.returncode != 0:
            raise ProcessLookupError(f"pod {index}: {result.stderr.strip()}")

    def start_pod(self, index: int, env: Mapping[str, str] | None = None) -> None:
        """Start a pod that is missing or has ended, with a fresh file system; `env` is added to its own."""
        self.ask({"op": "start_pod", "index": index, "env": dict(env or {})})

    def link(self, index: int, *, up: bool, nic: str = NIC.name) -> None:
        """Pull (or plug again) a network cable of a pod."""
        self.ask({"op": "link", "index": index, "up": up, "nic": nic})

    def slow_link(self, index: int, rate: str, nic: str = NIC.name) -> None:
        """Limit a pod's NIC to `rate` (as `tc` writes it: `10mbit`), in both directions; an empty rate ends that."""
        if rate:
            check_rate(rate)
        link = self.spec.nic(nic)
        tc, nsenter = map(host_survey.find_program, ("tc", "nsenter"))
        # In the pod what comes from it, at the bridge what goes to it.
        inner = self.exec(index, limit_argv(tc, link.name, rate), timeout=ANSWER_SECONDS)
        end = cable(self._machines()[index], link)
        bridge = [nsenter, f"--net=/proc/{self.supervisor_pid()}/ns/net", *limit_argv(tc, end, rate)]
        outer = subprocess.run(bridge, capture_output=True, text=True, timeout=ANSWER_SECONDS)
        for result in (inner, outer):
            if result.returncode:
                hint = "" if rate else f"is {nic} of the pod slowed? slow_link with a rate does that"
                raise errors.UsageError(f"pod {index}: tc: {result.stderr.strip()}", hint)

    def slow_way(self, index: int, to: Collection[int], rate: str = "", nic: str = NIC.name) -> None:
        """Limit what a pod's NIC sends to those of some pods, all together, to `rate`; with an empty rate none of it
        arrives. `slow_link` comes first. The next call takes the place of this one: without pods, it ends it."""
        if rate:
            check_rate(rate)
        host_survey.find_program("tc")
        machines = self._machines()
        addresses = [address(machines[pod], self.spec.nic(nic)) for pod in to]
        result = self.exec(index, ["sh", "-ec", way_script(nic, addresses, rate)], timeout=ANSWER_SECONDS)
        if result.returncode != 0:
            hint = f"is {nic} of the pod not slowed yet? slow_link first"
            raise errors.UsageError(f"pod {index}: tc: {result.stderr.strip()}", hint)

    def _machines(self) -> dict[int, int]:
        """On which machine each pod is."""
        return {pod.index: pod.machine for pod in self.pods()}

    def set_name(self, index: int, *, visible: bool) -> None:
        """Have the pod's DNS name appear or vanish."""
        self.ask({"op": "name", "index": index, "visible": visible})

    def set_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """All names in DNS beside those of pods, each with its IPv4 addresses; replaces those set before."""
        self.ask({"op": "names", "names": {name: list(addresses) for name, addresses in names.items()}})

    def set_metadata(self, index: int, mode: str) -> None:
        """Change how the metadata server behaves towards one pod: a mode as `metadata` of the spec."""
        if mode not in METADATA_MODES:
            raise errors.UsageError(f"metadata: one of {', '.join(METADATA_MODES)}, not {mode}")
        self.ask({"op": "metadata", "index": index, "mode": mode})

    def ask(self, request: Message) -> Message:
        """What the supervisor answers."""
        return ask(self.name, request, None if request["op"] in _WAITS else ANSWER_SECONDS)

    def ask_pods(self, request: Message) -> list[PodInfo]:
        """The pods in the answer."""
        return _infos(self.ask(request))


def _content(root: int, path: str) -> bytes | None:
    def opener(path: str, flags: int) -> int:
        return open_within(root, path, flags | os.O_NONBLOCK)

    with contextlib.suppress(OSError), open(path, "rb", opener=opener) as file:
        return file.read(_FILE_LIMIT) or b""
    return None


def _infos(message: Message) -> list[PodInfo]:
    return [PodInfo(**pod) for pod in message["pods"]]
