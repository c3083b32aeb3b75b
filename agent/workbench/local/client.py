"""LocalCluster: build, watch, disturb and end a local cluster from Python. The command line uses it, too.

    with LocalCluster(ClusterSpec(pods=4, entrypoint=("hostname",))) as cluster:
        cluster.start()
        ends = cluster.wait(timeout=30)

The cluster lives in a process of its own and ends with the LocalCluster that started it, also when the
process of that is killed; only `start(detached=True)` leaves it behind, to be found by `attach`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import subprocess
import sys
from collections.abc import Sequence

from agent import errors
from agent.paths import package_home
from agent.wire import to_json
from agent.workbench.local import DEFAULT_NAME, host_survey
from agent.workbench.local.access import ClusterAccess, Output, ask
from agent.workbench.local.channel import Conversation
from agent.workbench.local.pods import PodInfo
from agent.workbench.local.sockets import running_clusters
from agent.workbench.local.spec import ClusterSpec, check

_SUPERVISOR = """\
import sys
sys.path.insert(0, {path!r})
from agent.workbench.local.holder import run_from_command_line
run_from_command_line()
"""
_END_DEADLINE = 30.0


__all__ = ["ClusterSpec", "LocalCluster", "Output", "PodInfo", "running_clusters"]


def default_cluster(running: Sequence[str]) -> str:
    """The one that is meant where nobody names one: the only one that runs, else `local`."""
    return running[0] if len(running) == 1 else DEFAULT_NAME


class LocalCluster(ClusterAccess):
    """A local cluster, either this object's own (`start`) or one that runs already (`attach`); needs root.

    A context manager that ends its own cluster on exit. Raises UsageError for an invalid spec, MissingProgram,
    SystemFault.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        check(spec)
        super().__init__(spec if spec.name else spec.named(f"local-{secrets.token_hex(4)}"))
        self._process: subprocess.Popen[bytes] | None = None
        self._owner: Conversation | None = None

    @classmethod
    def attach(cls, name: str = "") -> LocalCluster:
        """The running cluster `name`; without a name `local`, or else the only one that runs."""
        running = running_clusters()
        name = name or default_cluster(running)
        if name not in running:
            hint = " or ".join(f"--name {one}" for one in running) or "start one: a4-agent local up --pods 4"
            raise errors.UsageError(f"no local cluster {name!r} runs", hint)
        return cls(ClusterSpec.from_json(ask(name, {"op": "status"})["spec"]))

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *, detached: bool = False) -> list[PodInfo]:
        """Build the cluster; returns when every pod that is not late runs its program."""
        self.build(detached=detached)
        return self.start_pods()

    def start_pods(self) -> list[PodInfo]:
        """The second half of `start`: the pods of a cluster that `build` has built."""
        try:
            return self.ask_pods({"op": "start"})
        except BaseException:
            self.quit()
            raise

    def build(self, *, detached: bool = False) -> None:
        """The first half of `start`: everything but the pods."""
        found = host_survey.survey(self.spec)
        own, theirs = socket.socketpair()
        code = _SUPERVISOR.format(path=package_home())
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
        self._owner.send({"spec": self.spec.to_json(), "surroundings": to_json(found), "detached": detached})
        try:
            self._owner.expect()
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
            holder = os.pidfd_open(self.ask({"op": "status"})["holder"])
            try:
                self.ask({"op": "quit"})
                select.select([holder], [], [], _END_DEADLINE)
            finally:
                os.close(holder)
        self.close()
