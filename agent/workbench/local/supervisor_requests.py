"""What clients can ask of a supervisor. One connection carries one request and its answers."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from agent import wire
from agent.errors import SystemFault, UsageError
from agent.workbench.local.channel import Message, MessageChannel, encode
from agent.workbench.local.container import Container
from agent.workbench.local.namespaced_process import Program
from agent.workbench.local.pods import ABSENT, RUNNING, STARTING, WAITING, Follower, LocalPod
from agent.workbench.local.spec import MOST_TIME
from agent.workbench.local.supervisor import Supervisor
from agent.workbench.local.syscalls import open_within, parent_outside, pid_outside
from agent.workbench.local.waiting import Condition


class Command(NamedTuple):
    """What `exec` and `start_pod` ask for."""

    env: Mapping[str, str]
    argv: tuple[str, ...] = ()


class WaitRequest(NamedTuple):
    """What `wait` asks for."""

    timeout: float | None
    indices: tuple[int, ...] | None
    path: str = ""
    """A file that is to be there; empty: the pods are to end."""


class Requests:
    """Answers requests on behalf of a supervisor: "op": "exec" by `do_exec`, and so on."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def handle(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """Serve one request. What goes wrong before anything has been done is raised, and told to the client."""
        getattr(self, f"do_{message['op']}")(channel, message, descriptors)

    def _pod(self, index: int) -> LocalPod:
        if not 0 <= index < len(self._supervisor.pods):
            raise UsageError(f"there is no pod {index}, only 0 to {len(self._supervisor.pods) - 1}")
        return self._supervisor.pods[index]

    def _live(self, index: int) -> Container:
        """The container of a pod. Raises UsageError for one in which nothing can be done now."""
        pod = self._pod(index)
        if pod.info.state != RUNNING or pod.container is None:
            code = "" if pod.info.code is None else f" (exit code {pod.info.code})"
            raise UsageError(f"pod {index} is not running: {pod.info.state}{code}")
        if pod.container.pidfd < 0:  # what it has printed is still being read
            raise UsageError(f"pod {index} is not running: it just exited")
        return pod.container

    def _answer(self, channel: MessageChannel, **extra: Any) -> None:
        """Every answer tells of all pods, so that no client need ask again."""
        channel.send({"pods": [asdict(pod.info) for pod in self._supervisor.pods], **extra})

    def do_status(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """`holder` is the process that clients wait for when they end the cluster."""
        spec = self._supervisor.spec
        self._answer(channel, name=spec.name, spec=spec.to_json(), pid=pid_outside(), holder=parent_outside())

    def do_start(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """Answers when every pod that is due runs, or with why a sandbox could not be built."""
        supervisor = self._supervisor
        supervisor.start()

        def is_met() -> bool:
            return supervisor.fault is not None or all(pod.info.state != STARTING for pod in supervisor.pods)

        def then() -> None:
            if supervisor.fault:
                channel.fail(supervisor.fault)
            else:
                self._answer(channel)

        self._await(channel, Condition(is_met, then), None)

    def _await(self, channel: MessageChannel, condition: Condition, timeout: float | None) -> None:
        """Until it is met, the time is over or the client has gone."""
        timeout = None if timeout is None else _seconds(timeout)
        channel.on_close = lambda: self._supervisor.waiting.drop(condition)
        self._supervisor.waiting.add(condition, timeout)

    def do_start_pod(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """Raises UsageError for a pod that runs already."""
        pod, env = self._pod(message["index"]), wire.from_json(Command, message).env
        if pod.info.state in (STARTING, RUNNING):
            raise UsageError(f"pod {pod.info.index} is {pod.info.state}: it cannot be started")
        self._supervisor.start_pod(pod.info.index, env)
        self._supervisor.set_name(pod.info.index, True)
        self._answer(channel)

    def do_wait(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """Wait until pods have ended, or have a file; a pod that ends without it ends the wait, too. Those of which it
        did not come true, before the time was over, are `left` in the answer."""
        pods, asked = self._supervisor.pods, wire.from_json(WaitRequest, message)
        if asked.path:
            _try_to_look()
        coming = [pod.info.index for pod in pods if not asked.path or pod.info.state != ABSENT]
        chosen = {self._pod(n).info.index for n in (coming if asked.indices is None else asked.indices)}
        left = set(chosen)

        def is_met() -> bool:
            if asked.path:
                left.difference_update([n for n in left if _has_file(pods[n], asked.path)])
                return not left or any(pods[n].is_over for n in left)
            left.clear()  # a pod that was over may have been started since
            left.update(n for n in chosen if not pods[n].is_over)
            return not left

        condition = Condition(is_met, lambda: self._answer(channel, left=sorted(left)), poll=asked.path != "")
        self._await(channel, condition, asked.timeout)

    def do_logs(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """The client gets output as fast as it takes it, and no faster."""
        if message["index"] is not None:
            self._pod(message["index"])
        self._supervisor.logs.serve(Follower(channel, message["index"], message["follow"]))

    def do_exec(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """Start a command in a pod, pass signals on to it, and answer with its exit code."""
        index, asked = message["index"], wire.from_json(Command, message)
        container = self._live(index)
        if not asked.argv:
            raise UsageError("no command is given")
        env = self._supervisor.environment(index) | dict(asked.env)
        try:
            container.run(Program(asked.argv, env), descriptors, channel)
        except ProcessLookupError as error:  # the loop will hear of it in a moment
            raise UsageError(f"pod {index} is not running: it just exited") from error

    def do_read(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """The client reads, by a descriptor of the pod's root directory: a file system may hang."""
        pod = self._pod(message["index"])
        if not pod.files:
            raise UsageError(f"pod {pod.info.index} has no file system: {pod.info.state}")
        _try_to_look()
        socket.send_fds(channel.socket, [encode({})], pod.files[1:])

    def do_signal(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        self._live(message["index"]).signal(int(message["signal"]))
        self._answer(channel)

    def do_link(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        nic = self._supervisor.spec.nic(message["nic"])
        self._live(message["index"])
        self._supervisor.network.set_link(self._pod(message["index"]).info.machine, message["up"], nic)
        self._answer(channel)

    def do_name(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        self._supervisor.set_name(self._pod(message["index"]).info.index, message["visible"])
        self._answer(channel)

    def do_names(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """Raises UsageError for what would be more than one word in the file of names."""
        names = message["names"]
        words = [word for name, addresses in names.items() for word in (name, *addresses)]
        if any(len(word.split()) != 1 for word in words):
            raise UsageError(f"names and addresses: one word each, not {names}")
        self._supervisor.set_names(names)
        self._answer(channel)

    def do_metadata(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        self._supervisor.metadata[self._pod(message["index"]).info.index] = message["mode"]
        self._answer(channel)

    def do_terminate(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """SIGTERM to every pod, after the grace SIGKILL; answers when all have ended."""
        supervisor, grace = self._supervisor, _seconds(float(message["grace"]))
        supervisor.end_replacing()
        for pod in supervisor.pods:
            if pod.info.state == WAITING:
                pod.info.state = ABSENT  # it does not come any more by itself
        supervisor.end_pods(supervisor.containers(), grace)
        condition = Condition(lambda: all(pod.is_over for pod in supervisor.pods), lambda: self._answer(channel))
        self._await(channel, condition, None)
        supervisor.notify()

    def do_quit(self, channel: MessageChannel, message: Message, descriptors: list[int]) -> None:
        """Kill all that is in the cluster. Nobody gets the answer before that."""
        self._supervisor.close()
        self._answer(channel)
        sys.exit(0)


def _try_to_look() -> None:
    """Raises SystemFault where this machine, or the sandbox around it, refuses the call that it takes."""
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        os.close(open_within(root, "/", os.O_PATH))
    except OSError as error:
        hint = "it needs Linux 5.6; in a container, a seccomp filter that lets openat2 through"
        raise SystemFault(f"files in pods cannot be looked for: {error.strerror}", hint) from error
    finally:
        os.close(root)


def _has_file(pod: LocalPod, path: str) -> bool:
    if pod.info.state != RUNNING:
        return False
    with contextlib.suppress(OSError):
        os.close(open_within(pod.files[1], path, os.O_PATH | os.O_NOFOLLOW))
        return True
    return False


def _seconds(value: float) -> float:
    """Raises UsageError for what no clock takes."""
    if not 0 <= value < MOST_TIME:
        raise UsageError(f"seconds: 0 to {MOST_TIME:,.0f}, not {value:g}")
    return value
