"""The main program of a supervisor's process. Started by the client, which holds its other end."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from typing import Any

from agent.errors import AgentError, SystemFault, UsageError
from agent.local.channel import Channel, Conversation, Message, peer_is_root, socket_address
from agent.local.dealt_gpus import Gpus
from agent.local.podenv import Job
from agent.local.spec import ClusterSpec
from agent.local.supervisor import Supervisor, Surroundings
from agent.local.supervisor_requests import Requests
from agent.local.syscalls import CLONE_NEWPID, die_with_parent, pid_outside, unshare
from agent.machine.loop import READ

_PRIVILEGED = "it needs the rights of root on the machine: inside a container, start that with --privileged"


def main(owner_descriptor: int) -> None:
    """Build the cluster that the owner asks for and serve it until the owner is gone, or for ever."""
    owner = socket.socket(fileno=owner_descriptor)
    owner.set_inheritable(False)
    first = Conversation(owner)
    message = first.read()
    if message is None:
        return
    try:
        if _fork(message["detached"]):
            return
        listener, supervisor = _build(message)
    except AgentError as error:
        first.send({"error": type(error).__name__, "what": error.what, "hint": error.hint})
        return
    requests = Requests(supervisor)
    _serve(supervisor, requests, listener)
    if message["detached"]:
        first.send({"ready": True})
        owner.close()
    else:
        channel = Channel(supervisor.loop, owner, requests.handle)
        channel.on_close = lambda: _end(supervisor)
        channel.send({"ready": True})
    supervisor.loop.run()


def _fork(detached: bool) -> bool:
    """Go on in a child that is PID 1 of a new namespace; True in the process that was started."""
    parent = pid_outside()
    try:
        unshare(CLONE_NEWPID)
    except OSError as error:
        raise SystemFault(f"the local cluster cannot be built: {error}", _PRIVILEGED) from error
    child = os.fork()
    if child == 0:
        if not detached:
            die_with_parent(parent)
        # A PID 1 is deaf to signals that it does not handle.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
        return False
    if not detached:
        os.waitpid(child, 0)
    return True


def _end(supervisor: Supervisor) -> None:
    supervisor.close()
    sys.exit(0)


def _build(message: Message) -> tuple[socket.socket, Supervisor]:
    spec = ClusterSpec.from_json(message["spec"])
    # Before the process enters its own network namespace: abstract sockets belong to one.
    listener = _listen(spec.name)
    supervisor = Supervisor(spec, _surroundings(message["surroundings"]))
    try:
        supervisor.build()
    except OSError as error:
        raise SystemFault(f"the local cluster cannot be built: {error}", _PRIVILEGED) from error
    return listener, supervisor


def _surroundings(data: dict[str, Any]) -> Surroundings:
    job = Job(**data.pop("job"))
    gpus = Gpus(**{kind: tuple(paths) for kind, paths in data.pop("gpus").items()})
    return Surroundings(job=job, gpus=gpus, **data)


def _listen(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(socket_address(name))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        hint = f"take another --name, or end it: a4-agent local down --name {name}"
        raise UsageError(f"a local cluster named {name} runs already", hint) from error
    listener.listen(128)
    listener.setblocking(False)
    return listener


def _serve(supervisor: Supervisor, requests: Requests, listener: socket.socket) -> None:
    def accept() -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        if peer_is_root(connection):
            Channel(supervisor.loop, connection, requests.handle)
        else:
            connection.close()

    supervisor.loop.watch(listener.fileno(), READ, accept)


def run_from_command_line() -> None:
    """`python -c … NAME DESCRIPTOR`: the name is there for people who look at `ps`."""
    main(int(sys.argv[-1]))
    os._exit(0)
