"""Nodes, sandboxes and containers on the bridge of a local cluster: what a kubelet asks of a container runtime.

All of it is held by one process, which ends with the one that made the Runtime, however that ends.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from agent.errors import AgentError
from agent.wire import to_json
from agent.workbench.local import host_survey
from agent.workbench.local.cgroups import cluster_cgroup
from agent.workbench.local.channel import Conversation, Message
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.root import Bind as MountedBind
from agent.workbench.local.sockets import running_clusters
from tests.kubernetes.command import Command
from tests.kubernetes.container_spec import LOST as LOST
from tests.kubernetes.container_spec import Bind as Bind
from tests.kubernetes.container_spec import ContainerSpec as ContainerSpec
from tests.kubernetes.container_spec import Ended as Ended
from tests.kubernetes.runtime_requests import Begin, NewContainer, NewSandbox, NewVolume

CHECKOUT = Path(__file__).resolve().parents[2]
END_SECONDS = 60.0
"""Until the process that holds everything must have ended."""
ANSWER_SECONDS = 120.0
_HOLDER = """\
import sys
sys.path.insert(0, {path!r})
from tests.kubernetes.runtime_holder import run_from_command_line
run_from_command_line()
"""


class StartFailed(Exception):
    """Why a container could not be started, in the kernel's words."""


class RuntimeLost(Exception):
    """The process that holds everything has ended."""


class Runtime:
    """Its methods, and those of all that it makes, may be called from any thread."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.cgroup = cluster_cgroup(f"{cluster.name}-runtime")
        """Path of its cgroup of version 2; empty where none can be made."""
        found = host_survey.survey(cluster.spec)
        self._threads: list[threading.Thread] = []
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, "-I", "-S", "-c", _HOLDER.format(path=str(CHECKOUT)), str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, cwd="/", pass_fds=[theirs.fileno()], start_new_session=True
            )
        begin = Begin(
            network=cluster.supervisor_pid(),
            first_cable=cluster.spec.pods,
            cgroup=self.cgroup,
            file_systems=tuple(found.file_systems),
            installation=tuple(found.installation),
            command=found.command,
        )
        try:
            self.ask(to_json(begin))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process that holds everything, and waits for the one inside the namespaces."""
        return self._process.pid

    def close(self) -> None:
        """End everything at once. Every container's `ended` has been called when it returns."""
        self._door.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(END_SECONDS)
        running_clusters()  # removes what is left of its cgroups, if it was killed

    def node(self, name: str) -> Node:
        """A new machine with a network and a host name of its own."""
        answer = self.ask({"op": "node", "name": name})
        return Node(name, answer["address"], answer["node"])

    def sandbox(
        self,
        uid: str,
        *,
        hostname: str,
        node: Node,
        host_network: bool = False,
    ) -> Sandbox:
        """What containers of a pod share: network, host name, IPC and /dev/shm."""
        asked = NewSandbox(hostname, node.number, host_network)
        answer = self.ask({"op": "sandbox", **to_json(asked)})
        return Sandbox(self, uid, node, answer["address"], answer["sandbox"])

    def ask(self, request: Message) -> Message:
        """What the holder answers."""
        conversation = self.connect()
        try:
            return self.expect(conversation, request)
        finally:
            conversation.close()

    def connect(self) -> Conversation:
        own, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._door, [b"+"], [theirs.fileno()])
            except OSError as error:
                own.close()
                raise RuntimeLost("the process that holds the containers has ended") from error
        own.settimeout(ANSWER_SECONDS)
        return Conversation(own)

    def expect(self, conversation: Conversation, request: Message) -> Message:
        """Raises RuntimeLost, TimeoutError or what the holder has refused."""
        conversation.send(request)
        return conversation.expect()

    def keep(self, thread: threading.Thread) -> None:
        """Wait for it in `close`."""
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]


class Node(NamedTuple):
    """A simulated machine: pods with hostNetwork share its network and its host name."""

    name: str
    address: str
    number: int


class Sandbox:
    """A pod's."""

    def __init__(self, runtime: Runtime, uid: str, node: Node, address: str, number: int) -> None:
        self.uid = uid
        self.node = node
        self.address = address
        self.number = number
        self._runtime = runtime

    def volume(self, name: str, size: int | None = None) -> Path:
        """A new directory in memory, for binds of containers of this sandbox; with `size`, so many bytes at most."""
        return Path(self._runtime.ask({"op": "volume", **to_json(NewVolume(self.number, name, size))})["path"])

    def start(self, spec: ContainerSpec, ended: Callable[[Ended], None]) -> Container:
        """Returns when its program has been started. `ended` is called in a thread of its own, once. Raises
        StartFailed."""
        binds = tuple(MountedBind(str(one.source), one.target, one.read_only) for one in spec.binds)
        asked = NewContainer(
            sandbox=self.number,
            argv=tuple(spec.argv),
            env=spec.env,
            cwd=spec.cwd,
            binds=binds,
            privileged=spec.privileged,
            termination_path=spec.termination_path,
            log=str(spec.log),
        )
        return Container(self._runtime, spec, to_json(asked), ended)

    def stop(self) -> None:
        """Kill its containers, remove all that it has. Nothing is left when it returns; their `ended` may still run."""
        self._runtime.ask({"op": "stop", "sandbox": self.number})


class Container:
    """Made by `Sandbox.start`."""

    def __init__(
        self, runtime: Runtime, spec: ContainerSpec, asked: Mapping[str, Any], ended: Callable[[Ended], None]
    ) -> None:
        self.spec = spec
        self._runtime = runtime
        self._ended = ended
        self._lock = threading.Lock()
        self._conversation = runtime.connect()
        try:
            answer = self._begin(asked)
        except BaseException:
            self._conversation.close()
            raise
        self.pid: int = answer["pid"]
        """As this machine numbers it."""
        self.number: int = answer["container"]
        self._conversation.socket.settimeout(None)
        thread = threading.Thread(target=self._wait, name=f"container {spec.name}", daemon=True)
        runtime.keep(thread)
        thread.start()

    def _begin(self, asked: Mapping[str, Any]) -> Message:
        try:
            answer = self._runtime.expect(self._conversation, {"op": "container", **asked})
        except AgentError as error:
            raise StartFailed(f"container {self.spec.name}: {error.what}") from error
        if "failed" in answer:
            raise StartFailed(f"container {self.spec.name}: {answer['failed']}")
        return answer

    def kill(self, number: int) -> None:
        """A signal to its first process; nothing if that has ended."""
        with self._lock:
            if self._conversation.socket.fileno() >= 0:
                try:
                    self._conversation.send({"signal": int(number)})
                except OSError:
                    return  # it, or the holder, has just ended

    def exec(self, argv: list[str], *, piped: bool = False, tty: bool = False) -> Command:
        """Run a command in it, with pipes, or with a terminal of its own, whose other end is `Command.terminal`."""
        asked = {"op": "exec", "container": self.number, "argv": argv}
        return Command(self._runtime.connect(), asked, piped, tty)

    def _wait(self) -> None:
        message = self._conversation.read()
        with self._lock:
            self._conversation.close()
        self._ended(Ended(**message) if message else LOST)
