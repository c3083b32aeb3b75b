"""The main program of a supervisor's process. Started by the client, which holds its other end."""

from __future__ import annotations

import os
import socket
import sys

from agent.errors import AgentError, SystemFault
from agent.machine.unix_socket import take_connections
from agent.wire import from_json
from agent.workbench.local.cgroups import cluster_cgroup, enter_cluster_cgroup, remove_cluster_cgroup
from agent.workbench.local.channel import Conversation, MessageChannel, error_message, peer_is_root
from agent.workbench.local.namespaced_process import fork_holder
from agent.workbench.local.podenv import Surroundings
from agent.workbench.local.sockets import listen, running_clusters
from agent.workbench.local.spec import ClusterSpec
from agent.workbench.local.supervisor import Supervisor
from agent.workbench.local.supervisor_requests import Requests

_PRIVILEGED = "it needs the rights of root on the machine: inside a container, start that with --privileged"


def main(owner_descriptor: int) -> None:
    """Build the cluster that the owner asks for and serve it until the owner is gone, or for ever."""
    owner = socket.socket(fileno=owner_descriptor)
    owner.set_inheritable(False)
    first = Conversation(owner)
    message = first.read()
    if message is None or (message["detached"] and os.fork()):
        return
    try:
        spec = ClusterSpec.from_json(message["spec"])
        listener = listen(spec.name)
        cgroup = cluster_cgroup(spec.name)
        child = fork_holder()
        if child:
            listener.close()
            os.waitpid(child, 0)
            # However the supervisor has ended, its socket and cgroups are removed.
            running_clusters()
            remove_cluster_cgroup(cgroup)
            return
        surroundings = from_json(Surroundings, message["surroundings"])
        supervisor = Supervisor(spec, surroundings, enter_cluster_cgroup(cgroup))
        supervisor.build()
    except (AgentError, OSError) as error:
        if isinstance(error, OSError):
            error = SystemFault(f"the local cluster cannot be built: {error}", _PRIVILEGED)
        first.send(error_message(error))
        return
    requests = Requests(supervisor)

    def opened(connection: socket.socket) -> None:
        if peer_is_root(connection):
            MessageChannel(supervisor.loop, connection, requests.handle)
        else:
            connection.close()

    take_connections(supervisor.loop, listener, opened)
    if message["detached"]:
        first.send({"ready": True})
        owner.close()
    else:
        channel = MessageChannel(supervisor.loop, owner, requests.handle)
        channel.on_close = supervisor.close_and_exit
        channel.send({"ready": True})
    supervisor.loop.run()


def run_from_command_line() -> None:
    """`python -c … NAME DESCRIPTOR`: the name is there for people who look at `ps`."""
    main(int(sys.argv[-1]))
    os._exit(0)
