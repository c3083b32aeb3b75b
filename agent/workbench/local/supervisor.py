"""One process that holds one local cluster: its namespaces, servers, pods and their output.

Single-threaded, because it forks into namespaces. When it ends, in whatever way, the kernel ends all else:
it is PID 1 of a namespace that all processes of the cluster are in, and the other namespaces and mounts live
by those processes and by descriptors only.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NoReturn

from agent.errors import AgentError, SystemFault
from agent.machine import files
from agent.machine.loop import Loop
from agent.workbench.local import dns_server as dns
from agent.workbench.local.cgroups import enter_cgroup
from agent.workbench.local.channel import Message
from agent.workbench.local.container import Container, Events, shell_code
from agent.workbench.local.metadata_server import serve_metadata
from agent.workbench.local.namespaced_process import Forker, Program
from agent.workbench.local.network import Network
from agent.workbench.local.pod_plan import SHARED, pod_root
from agent.workbench.local.podenv import Surroundings, pod_environment
from agent.workbench.local.pods import ABSENT, ENDED, RUNNING, STARTING, WAITING, LocalPod, LogBook, PodInfo
from agent.workbench.local.root import STATE, enter_root, make_state
from agent.workbench.local.sandbox import Sandbox, make_sandbox
from agent.workbench.local.spec import BRIDGE_ADDRESS, ClusterSpec, address
from agent.workbench.local.syscalls import CLONE_NEWNET, MS_NODEV, MS_NOSUID, mount, unshare
from agent.workbench.local.waiting import Conditions

_HOSTS_FILE = f"{STATE}/dns.hosts"


class Supervisor:
    """The cluster of one spec."""

    def __init__(self, spec: ClusterSpec, surroundings: Surroundings, cgroup: int) -> None:
        self.spec = spec
        self.surroundings = surroundings
        self.loop = Loop()
        self.forker = Forker()
        self.logs = LogBook(lambda pod: all(one.is_over for one in self.pods if pod in (None, one.info.index)))
        self.fault: AgentError | None = None
        self.cgroup = cgroup
        """A descriptor of the cluster's cgroup, whose path `build` hides; -1: it has none."""
        self._secret = spec.secret or os.urandom(32)
        self._visible: set[int] = set()
        """Pods that have a name."""
        self._names: Mapping[str, Sequence[str]] = {}
        """Further names, with their addresses."""
        self.metadata = dict(spec.pod_metadata)
        """How the metadata server answers a pod, if not as all."""
        self.waiting = Conditions(self.loop)
        self.pods = [LocalPod(self._info(index)) for index in range(spec.pods)]

    def _info(self, index: int, state: str = "") -> PodInfo:
        spec = self.spec
        state = state or (WAITING if spec.starts(index) else ABSENT)
        return PodInfo(index, spec.pod_name(index), spec.node_name(index), address(index), state)

    def build(self) -> None:
        """Build everything but the pods: namespaces, network, DNS, metadata."""
        unshare(CLONE_NEWNET)
        make_state()
        os.mkdir(SHARED)
        mount("a4-shared", SHARED, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0777")
        self.network = Network.build(self.spec.nics, (address(dead) for dead in sorted(self.spec.dead)))
        spec = self.spec
        waiting = {*spec.missing, *spec.late, *spec.late_names}
        self._visible = {pod.info.index for pod in self.pods} - waiting
        self._write_hosts()
        argv = dns.dnsmasq_argv(self.surroundings.dnsmasq, spec, _HOSTS_FILE)
        program = Program(argv, {"PATH": os.defpath})
        # In a PID namespace of its own, so that its helpers for TCP end with it.
        self._dnsmasq = self.forker.fork_first(lambda: program.become(self.forker.files_limit))
        pods = {address(index): index for index in range(spec.pods)}
        serve_metadata(
            self.loop,
            BRIDGE_ADDRESS,
            lambda client: spec.place(pods[client]) if client in pods else None,
            lambda client: self.metadata.get(pods.get(client, -1), spec.metadata),
        )
        dns.wait_until_it_listens()
        # Collections would only touch, and so copy, pages that the children share.
        gc.collect()
        gc.freeze()
        gc.disable()

    def start(self) -> None:
        """Start the pods that are due and set the clock for the others."""
        spec = self.spec
        for pod in self.pods:
            index = pod.info.index
            if pod.info.state != WAITING:
                continue
            delay = spec.late.get(index, 0.0)
            if delay > 0:
                self.loop.later(delay, partial(self._start_late, index))
            else:
                self.start_pod(index)
            if index in spec.late or index in spec.late_names:
                after = delay + spec.late_names.get(index, 0.0)
                self.loop.later(after, partial(self.set_name, index, True))

    def _start_late(self, index: int) -> None:
        if self.pods[index].info.state == WAITING:
            self.start_pod(index)

    def start_pod(self, index: int, env: Mapping[str, str] | None = None) -> None:
        """Start the container of a pod that has none running, with a file system of its own."""
        pod = self.pods[index]
        self.network.remove_cables(index)
        for descriptor in pod.files:
            os.close(descriptor)
        self.pods[index] = pod = LocalPod(self._info(index, STARTING))
        pod.info.created, pod.info.created_monotonic = time.time(), time.monotonic()
        secret = (self.spec.pod_secret.get(index) or self._secret) if self.spec.contract else b""
        root = pod_root(self.spec, self.surroundings, index, secret, self.cgroup >= 0)
        sandbox = Sandbox(self.spec.node_name(index), index, self.spec.nics)

        def build() -> list[int]:
            make_sandbox(sandbox)
            return enter_root(root)

        enter = partial(enter_cgroup, self.cgroup, f"pod-{index}")
        program = Program(self.surroundings.entrypoint, self.environment(index) | dict(env or {}))
        events = Events(partial(self._on_begun, pod), partial(self.logs.add, index), partial(self._on_end, pod))
        pod.container = Container(self.loop, self.forker, enter, build, program, events)

    def environment(self, index: int) -> dict[str, str]:
        """That of the container, for its program and for commands in it."""
        return pod_environment(self.spec, self.surroundings.job, index)

    def set_name(self, index: int, visible: bool) -> None:
        """Have the pod's name appear in or vanish from DNS."""
        visible_now = self._visible | {index} if visible else self._visible - {index}
        if visible_now != self._visible:
            self._visible = visible_now
            self._tell_dns()

    def set_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """All names in DNS beside those of pods, with their addresses."""
        self._names = names
        self._tell_dns()

    def _write_hosts(self) -> None:
        files.write(_HOSTS_FILE, dns.hosts_text(self.spec, self._visible, self._names))

    def _tell_dns(self) -> None:
        self._write_hosts()
        os.kill(self._dnsmasq, signal.SIGHUP)

    def _on_begun(self, pod: LocalPod, message: Message, files: list[int]) -> None:
        pod.files = files
        if "started" in message:
            pod.info.state, pod.info.pid = RUNNING, message["pid"]
            pod.info.started, pod.info.started_monotonic = message["started"], message["monotonic"]
        if "error" in message and self.fault is None:
            what = f"the sandbox of pod {pod.info.index} cannot be built: {message['error']}"
            hint = "it needs overlayfs over this root: not in a container that lies on overlayfs twice itself"
            self.fault = SystemFault(what, hint if "overlay" in message["error"] else "")
        self.notify()

    def _on_end(self, pod: LocalPod, code: int) -> None:
        pod.info.state, pod.info.code, pod.info.ended = ENDED, shell_code(code), time.time()
        self.notify()

    def notify(self) -> None:
        """Look whether something that a client waits for has come."""
        self.logs.advance()
        self.waiting.notify()

    def close_and_exit(self) -> NoReturn:
        self.close()
        sys.exit(0)

    def close(self) -> None:
        """End everything now; returns when no process of the cluster is left."""
        # This process is PID 1: -1 is all that is in its namespace and in those below.
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        # In whatever order they end: a pod's first process waits for those that `exec` brought into it.
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
