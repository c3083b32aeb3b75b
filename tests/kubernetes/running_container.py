"""A container of a sandbox, as the process that holds both has it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from agent.errors import UsageError
from agent.local.cgroups import enter_cgroup
from agent.local.channel import Message, MessageChannel
from agent.local.container import Container, Events, shell_code
from agent.local.dns_server import resolv_conf
from agent.local.namespaced_process import Forker, Program
from agent.local.pod_plan import host_files
from agent.local.root import Bind, Root, enter_root
from agent.local.sandbox import Sandbox
from agent.local.spec import Mount, address
from agent.machine.loop import Loop
from tests.kubernetes.cri_log import CriLog
from tests.kubernetes.identity import take_identity
from tests.kubernetes.memory_cgroups import MemoryCgroups, remove_in
from tests.kubernetes.runtime_requests import Begin, NewCommand, NewContainer, NewSandbox

MOST_SAID = 4096
"""Bytes of a termination message: the last ones, as the kubelet takes them."""


class Machine(NamedTuple):
    """What all containers need."""

    loop: Loop
    forker: Forker
    begin: Begin
    cgroup: int
    """A descriptor of the holder's; -1: none."""
    memory: MemoryCgroups


class Joins(Protocol):
    def join(self) -> None: ...


class Surrounding(Protocol):
    """The sandbox of a container."""

    asked: NewSandbox
    plan: Sandbox
    directory: str

    @property
    def namespaces(self) -> Joins: ...


class RunningContainer:
    """Starts with its making. Tells the client on its channel of start and end, then `over` that nothing is left."""

    def __init__(
        self,
        machine: Machine,
        number: int,
        asked: NewContainer,
        pod: Surrounding,
        channel: MessageChannel,
        over: Callable[[], None],
    ) -> None:
        self._machine = machine
        self._asked = asked
        self._channel = channel
        self._over = over
        self._number = number
        self._cgroup = f"container-{number}"
        self._termination = f"{pod.directory}/termination-{number}"
        self._failed = ""
        self._log = CriLog(asked.log)
        try:
            self._prepare(asked)
            self._container = self._started(asked, pod)
        except BaseException:
            self._log.close()
            raise
        channel.on_more = lambda message: self._container.signal(int(message["signal"]))
        channel.on_close = self.kill

    def _prepare(self, asked: NewContainer) -> None:
        memory = self._machine.memory
        if asked.memory is not None and memory.directory < 0:
            raise UsageError("no cgroup with a memory controller can be written here: memory cannot be limited")
        if asked.memory is not None:
            memory.make(self._cgroup, asked.memory)
        with open(self._termination, "w"):
            os.chmod(self._termination, 0o666)

    def _started(self, asked: NewContainer, pod: Surrounding) -> Container:
        root = container_root(self._machine.begin, asked, pod, self._termination)
        if asked.memory is not None and self._machine.memory.shown:
            root = _with_cgroups(root, self._machine.memory, self._cgroup)

        def build() -> list[int]:
            pod.namespaces.join()
            return enter_root(root)

        events = Events(self._on_begun, self._on_printed, self._on_end)
        program = self._program(asked.argv, asked.env)
        return Container(self._machine.loop, self._machine.forker, self._enter, build, program, events)

    def _program(self, argv: tuple[str, ...], env: Mapping[str, str]) -> Program:
        return Program(argv, env, self._asked.cwd, partial(take_identity, self._asked.identity))

    def kill(self) -> None:
        self._container.signal(signal.SIGKILL)

    def run(self, channel: MessageChannel, asked: NewCommand, descriptors: list[int]) -> None:
        """Run a command beside its first process."""
        program = self._program(asked.argv, {**self._asked.env, **asked.env})
        try:
            self._container.run(program, descriptors, channel)
        except ProcessLookupError:
            raise UsageError("the container has ended") from None

    def _enter(self) -> None:
        """In the child: into its cgroups, before it charges memory."""
        for directory in self._cgroups():
            enter_cgroup(directory, self._cgroup)

    def _cgroups(self) -> set[int]:
        limited = {self._machine.memory.directory} if self._asked.memory is not None else set()
        return ({self._machine.cgroup} | limited) - {-1}

    def _on_begun(self, message: Message, files: list[int]) -> None:
        for descriptor in files:
            os.close(descriptor)
        self._failed = message.get("error") or message.get("missing") or ""
        if not self._failed and "pid" not in message:
            self._failed = "its first process was killed before its program: the memory limit may be too low"
        if not self._failed:
            self._channel.send({"pid": message["pid"], "container": self._number})

    def _on_printed(self, stream: str, data: bytes) -> None:
        self._log.add(f"std{stream}", data)

    def _on_end(self, status: int) -> None:
        self._log.close()
        answer = {"failed": self._failed} if self._failed else self._end(status)
        self._clean()
        self._channel.send(answer)
        self._over()

    def _end(self, status: int) -> Message:
        limited, memory = self._asked.memory is not None, self._machine.memory
        killed = bool(limited and status and memory.kills(self._cgroup))
        with open(self._termination, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MOST_SAID))
            message = file.read(MOST_SAID).decode(errors="replace")
        number = -status if status < 0 else None
        return {"code": shell_code(status), "signal": number, "oom_killed": killed, "message": message}

    def _clean(self) -> None:
        os.unlink(self._termination)
        for directory in self._cgroups():
            remove_in(directory, self._cgroup)


def container_root(begin: Begin, asked: NewContainer, pod: Surrounding, termination: str) -> Root:
    """A container's file system: its image, what the kubelet writes, its volumes."""
    names = pod.asked.names or pod.plan.hostname
    files = host_files(pod.plan.hostname, address(pod.plan.cable), names)
    files["/etc/resolv.conf"] = (0o644, resolv_conf(pod.asked.namespace).encode())
    is_machine = asked.root == "/"
    if is_machine:
        files["/usr/local/bin/a4-agent"] = (0o755, begin.command.encode())
    return Root(
        image=asked.root,
        file_systems=begin.file_systems if is_machine else (),
        files=files,
        emptied={"/root/.ssh": 0o700} if is_machine else {},
        mounts=tuple(_binds(begin if is_machine else None, asked, pod, termination)),
        cgroups=asked.privileged and bool(begin.cgroup),
    )


def _with_cgroups(root: Root, memory: MemoryCgroups, name: str) -> Root:
    """As nodes with version 1 show it: a container sees its own cgroup, and a privileged one version 2 beside it."""
    mounts: list[Bind | Mount] = [
        Mount("/sys/fs/cgroup"),
        Bind(f"{memory.shown}/{name}", "/sys/fs/cgroup/memory", read_only=True),
    ]
    if root.cgroups:
        mounts.append(Bind(memory.unified, "/sys/fs/cgroup/unified"))
    return root._replace(mounts=(*mounts, *root.mounts), cgroups=False)


def _binds(begin: Begin | None, asked: NewContainer, pod: Surrounding, termination: str) -> Iterator[Bind]:
    yield from (Bind(path, path, read_only=True) for path in (begin.installation if begin else ()))
    yield Bind(f"{pod.directory}/shm", "/dev/shm")
    yield Bind(termination, asked.termination_path)
    yield from sorted(asked.binds, key=lambda one: one.target.count("/"))  # a directory before those in it
