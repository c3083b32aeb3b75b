"""The process that holds nodes, sandboxes and containers. Started by the runtime, with whose end it ends.

It is PID 1 of a namespace that all their processes are in, and stands in the network of a local cluster's bridge;
the other namespaces live by descriptors of this process. So the kernel ends everything with it.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from agent.errors import UsageError
from agent.machine.loop import READ, Loop
from agent.wire import from_json
from agent.workbench.local.cgroups import enter_cluster_cgroup, remove_cluster_cgroup
from agent.workbench.local.channel import Conversation, Message, MessageChannel
from agent.workbench.local.namespaced_process import Forker, fork_holder
from agent.workbench.local.network import Network
from agent.workbench.local.root import STATE, make_state
from agent.workbench.local.sandbox import Sandbox, make_sandbox
from agent.workbench.local.spec import address
from agent.workbench.local.syscalls import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWUTS,
    MS_NODEV,
    MS_NOSUID,
    mount,
    setns,
    unmount,
    unshare,
)
from tests.kubernetes.running_container import Machine, RunningContainer
from tests.kubernetes.runtime_requests import Begin, NewCommand, NewContainer, NewSandbox, NewVolume

SHM_SIZE = 64 << 20
"""As container runtimes have it."""


class Namespaces(NamedTuple):
    """Descriptors of what a sandbox or a node consists of."""

    net: int
    uts: int
    ipc: int

    def join(self) -> None:
        setns(self.net, CLONE_NEWNET)
        setns(self.uts, CLONE_NEWUTS)
        setns(self.ipc, CLONE_NEWIPC)

    def close(self) -> None:
        for descriptor in self:
            os.close(descriptor)


class Node(NamedTuple):
    """A simulated machine."""

    plan: Sandbox
    namespaces: Namespaces


@dataclass
class Pod:
    """A sandbox and what is in it."""

    asked: NewSandbox
    plan: Sandbox
    """With host network, the node's."""
    namespaces: Namespaces
    directory: str
    """What containers of the sandbox share, in the holder's own tmpfs."""
    containers: dict[int, RunningContainer] = field(default_factory=dict)
    on_empty: list[Callable[[], None]] = field(default_factory=list)
    """It is being stopped, and these want to know when its last container has ended."""


class Holder:
    """Answers requests: "op": "sandbox" by `do_sandbox`, and so on."""

    def __init__(self, loop: Loop, begin: Begin, machine: Machine) -> None:
        self.loop = loop
        self._machine = machine
        self._network = Network()
        self._cable = begin.first_cable
        self._nodes: dict[int, Node] = {}
        self._pods: dict[int, Pod] = {}
        self._count = 0

    def handle(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """Serve one request. What goes wrong before anything has been done is raised, and told to the client."""
        getattr(self, f"do_{message['op']}")(channel, message, descriptors)

    def do_node(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        plan = self._next_sandbox(message["name"])
        self._nodes[plan.cable] = Node(plan, self._new_namespaces(partial(make_sandbox, plan)))
        channel.send({"node": plan.cable, "address": address(plan.cable)})

    def do_sandbox(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        asked = from_json(NewSandbox, message)
        node = self._nodes[asked.node]
        plan = node.plan if asked.host_network else self._next_sandbox(asked.hostname)

        def build() -> None:
            if asked.host_network:
                setns(node.namespaces.net, CLONE_NEWNET)
                setns(node.namespaces.uts, CLONE_NEWUTS)
                unshare(CLONE_NEWIPC)
            else:
                make_sandbox(plan)

        self._count += 1
        directory = f"{STATE}/sandbox-{self._count}"
        self._pods[self._count] = Pod(asked, plan, self._new_namespaces(build), directory)
        os.mkdir(directory)
        _mount_memory(f"{directory}/shm", SHM_SIZE)
        channel.send({"sandbox": self._count, "address": address(plan.cable)})

    def do_volume(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        asked = from_json(NewVolume, message)
        path = f"{self._pod(asked.sandbox).directory}/volume-{asked.name}"
        _mount_memory(path, asked.size)
        channel.send({"path": path})

    def do_container(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """Answers when its program has been started and, on the same connection, when it has ended."""
        asked = from_json(NewContainer, message)
        pod = self._pod(asked.sandbox)
        self._count += 1
        number = self._count

        def over() -> None:
            del pod.containers[number]
            if not pod.containers:
                for told in pod.on_empty:
                    told()

        pod.containers[number] = RunningContainer(self._machine, number, asked, pod, channel, over)

    def do_exec(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        asked = from_json(NewCommand, message)
        for pod in self._pods.values():
            if container := pod.containers.get(asked.container):
                container.run(channel, asked, descriptors)
                return
        raise UsageError("the container has ended")

    def do_stop(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """Answers when nothing of the sandbox is left, also when there was nothing."""
        number = message["sandbox"]
        pod = self._pods.get(number)
        if not pod:
            channel.send({})
            return

        def remove() -> None:
            if self._pods.pop(number, None):
                self._release(pod)
            channel.send({})

        pod.on_empty.append(remove)
        for container in pod.containers.values():
            container.kill()
        if not pod.containers:
            remove()

    def _pod(self, number: int) -> Pod:
        """Raises UsageError for one in which nothing can be started any more."""
        pod = self._pods.get(number)
        if not pod or pod.on_empty:
            raise UsageError("the sandbox has been stopped")
        return pod

    def _next_sandbox(self, hostname: str) -> Sandbox:
        # No address is given twice: what still thinks of the last one to have it must not find another.
        self._cable += 1
        return Sandbox(hostname, self._cable - 1, self._network.nics)

    def _new_namespaces(self, build: Callable[[], None]) -> Namespaces:
        """Those of a process that has built them and ended. Raises UsageError with why it could not."""
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def child() -> None:
            try:
                build()
            except OSError as error:
                theirs.send(str(error).encode())
                os._exit(1)
            held = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in Namespaces._fields]
            socket.send_fds(theirs, [b"\0"], held)
            os._exit(0)

        with own:
            with theirs:
                pid = self._machine.forker.fork(child)
            said, descriptors, _, _ = socket.recv_fds(own, 4096, len(Namespaces._fields))
            os.waitpid(pid, 0)
        if len(descriptors) < len(Namespaces._fields):
            raise UsageError(f"the sandbox cannot be built: {said.decode() or 'its process was killed'}")
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        return Namespaces(*descriptors)

    def _release(self, pod: Pod) -> None:
        for entry in os.listdir(pod.directory):
            if os.path.ismount(f"{pod.directory}/{entry}"):
                unmount(f"{pod.directory}/{entry}")
        shutil.rmtree(pod.directory)
        pod.namespaces.close()
        if not pod.asked.host_network:
            self._network.remove_cables(pod.plan.cable)


def _mount_memory(path: str, size: int | None) -> None:
    """An empty directory in memory, for everybody."""
    os.mkdir(path)
    limit = "" if size is None else f",size={size}"
    mount("a4-memory", path, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777{limit}")


def main(descriptor: int) -> None:
    """Build what the owner asks for on new connections, which it sends on this one, until it is gone."""
    door = socket.socket(fileno=descriptor)
    door.set_inheritable(False)
    (first,) = _connections(door)
    conversation = Conversation(first)
    message = conversation.read()
    if message is None:
        return
    begin = from_json(Begin, message)
    child = fork_holder()
    if child:
        door.close()
        first.close()
        os.waitpid(child, 0)
        remove_cluster_cgroup(begin.cgroup)
        return
    cluster = enter_cluster_cgroup(begin.cgroup)
    setns(os.open(f"/proc/{begin.network}/ns/net", os.O_RDONLY | os.O_CLOEXEC), CLONE_NEWNET)
    make_state()
    loop = Loop()
    machine = Machine(loop, Forker(), begin, cluster)
    holder = Holder(loop, begin, machine)

    def opened() -> None:
        found = _connections(door)
        if not found:
            os._exit(0)  # the kernel ends all else
        for connection in found:
            connection.setblocking(False)
            MessageChannel(loop, connection, holder.handle)

    loop.watch(door.fileno(), READ, opened)
    conversation.send({})
    loop.run()


def _connections(door: socket.socket) -> list[socket.socket]:
    """What the owner has sent; none when it has gone."""
    _, descriptors, _, _ = socket.recv_fds(door, 16, 1, socket.MSG_CMSG_CLOEXEC)
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]


def run_from_command_line() -> None:
    main(int(sys.argv[-1]))
    os._exit(0)
