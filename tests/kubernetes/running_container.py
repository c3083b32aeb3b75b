"""A container of a sandbox, as the process that holds both has it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

from agent.errors import UsageError
from agent.machine.loop import Loop
from agent.workbench.local.cgroups import enter_cgroup
from agent.workbench.local.channel import Message, MessageChannel
from agent.workbench.local.container import Container, Events, shell_code
from agent.workbench.local.namespaced_process import Forker, Program
from agent.workbench.local.root import Bind, Root, enter_root
from tests.kubernetes.cri_log import CriLog
from tests.kubernetes.runtime_requests import Begin, NewCommand, NewContainer

MOST_SAID = 4096
"""Bytes of a termination message: the last ones, as the kubelet takes them."""


class Machine(NamedTuple):
    """What all containers need."""

    loop: Loop
    forker: Forker
    begin: Begin
    cgroup: int
    """A descriptor of the holder's; -1: none."""


class Joins(Protocol):
    def join(self) -> None: ...


class Surrounding(Protocol):
    """The sandbox of a container."""

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
            with open(self._termination, "w"):
                os.chmod(self._termination, 0o666)
            self._container = self._started(asked, pod)
        except BaseException:
            self._log.close()
            raise
        channel.on_more = lambda message: self._container.signal(int(message["signal"]))
        channel.on_close = self.kill

    def _started(self, asked: NewContainer, pod: Surrounding) -> Container:
        root = container_root(self._machine.begin, asked, pod, self._termination)

        def build() -> list[int]:
            pod.namespaces.join()
            return enter_root(root)

        events = Events(self._on_begun, self._on_printed, self._on_end)
        program = Program(asked.argv, asked.env, asked.cwd)
        return Container(self._machine.loop, self._machine.forker, self._enter, build, program, events)

    def kill(self) -> None:
        self._container.signal(signal.SIGKILL)

    def run(self, channel: MessageChannel, asked: NewCommand, descriptors: list[int]) -> None:
        """Run a command beside its first process."""
        program = Program(asked.argv, self._asked.env, self._asked.cwd)
        try:
            self._container.run(program, descriptors, channel)
        except ProcessLookupError:
            raise UsageError("the container has ended") from None

    def _enter(self) -> None:
        """In the child: into its cgroup, if there is one."""
        if self._machine.cgroup >= 0:
            enter_cgroup(self._machine.cgroup, self._cgroup)

    def _on_begun(self, message: Message, files: list[int]) -> None:
        for descriptor in files:
            os.close(descriptor)
        self._failed = message.get("error") or message.get("missing") or ""
        if not self._failed and "pid" not in message:
            self._failed = "its first process was killed before its program"
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
        with open(self._termination, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MOST_SAID))
            message = file.read(MOST_SAID).decode(errors="replace")
        number = -status if status < 0 else None
        return {"code": shell_code(status), "signal": number, "message": message}

    def _clean(self) -> None:
        os.unlink(self._termination)
        if self._machine.cgroup >= 0:
            remove_in(self._machine.cgroup, self._cgroup)


def container_root(begin: Begin, asked: NewContainer, pod: Surrounding, termination: str) -> Root:
    """A container's file system: this machine's, what the kubelet writes, its volumes."""
    return Root(
        file_systems=begin.file_systems,
        files={"/usr/local/bin/a4-agent": (0o755, begin.command.encode())},
        emptied={"/root/.ssh": 0o700},
        mounts=tuple(_binds(begin, asked, pod, termination)),
        cgroups=asked.privileged and bool(begin.cgroup),
    )


def _binds(begin: Begin, asked: NewContainer, pod: Surrounding, termination: str) -> Iterator[Bind]:
    yield from (Bind(path, path, read_only=True) for path in begin.installation)
    yield Bind(f"{pod.directory}/shm", "/dev/shm")
    yield Bind(termination, asked.termination_path)
    yield from sorted(asked.binds, key=lambda one: one.target.count("/"))  # a directory before those in it


def remove_in(directory: int, name: str) -> None:
    """Remove an empty cgroup and those that its processes have made in it."""
    with suppress(FileNotFoundError):
        for _, directories, _, above in os.fwalk(name, topdown=False, dir_fd=directory):
            for each in directories:
                with suppress(OSError):
                    os.rmdir(each, dir_fd=above)
        os.rmdir(name, dir_fd=directory)
