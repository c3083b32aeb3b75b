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
from agent.workbench.local.podenv import Surroundings, kubernetes_name, pod_environment
from agent.workbench.local.pods import ABSENT, ENDED, RUNNING, STARTING, WAITING, LocalPod, LogBook, PodInfo
from agent.workbench.local.replacing import Follows, addresses_between, name_steps, own_end_seconds, what_follows
from agent.workbench.local.root import STATE, enter_root, make_state
from agent.workbench.local.sandbox import Sandbox, make_sandbox
from agent.workbench.local.spec import BRIDGE_ADDRESS, ClusterSpec, address
from agent.workbench.local.syscalls import CLONE_NEWNET, MS_NODEV, MS_NOSUID, mount, unshare
from agent.workbench.local.waiting import Conditions

_GRACE = 30.0
"""Seconds that Kubernetes gives a pod from SIGTERM to SIGKILL."""
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
        self._addresses: dict[int, tuple[str, ...]] = {}
        """What the names of pods are answered with; a pod that is not in it has no name."""
        self._names: Mapping[str, Sequence[str]] = {}
        """Further names, with their addresses."""
        self.metadata = dict(spec.pod_metadata)
        """How the metadata server answers a pod, if not as all."""
        self.waiting = Conditions(self.loop)
        self._is_over = False
        """The job has ended or is being ended: lost pods are not replaced."""
        self._spares = 0
        """Machines that replacements have taken."""
        self.pods = [
            LocalPod(self._info(index, index, WAITING if spec.starts(index) else ABSENT)) for index in range(spec.pods)
        ]

    def _info(self, index: int, machine: int, state: str) -> PodInfo:
        name, node = self.spec.pod_name(index), self.spec.node_name(machine)
        return PodInfo(index, name, node, address(machine), state, machine=machine)

    def build(self) -> None:
        """Build everything but the pods: namespaces, network, DNS, metadata."""
        unshare(CLONE_NEWNET)
        make_state()
        os.mkdir(SHARED)
        mount("a4-shared", SHARED, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0777")
        self.network = Network.build(self.spec.nics, (address(dead) for dead in sorted(self.spec.dead)))
        spec = self.spec
        waiting = {*spec.missing, *spec.late, *spec.late_names}
        self._addresses = {index: (address(index),) for index in range(spec.pods) if index not in waiting}
        self._write_hosts()
        argv = dns.dnsmasq_argv(self.surroundings.dnsmasq, spec, _HOSTS_FILE)
        program = Program(argv, {"PATH": os.defpath})
        # In a PID namespace of its own, so that its helpers for TCP end with it.
        self._dnsmasq = self.forker.fork_first(lambda: program.become(self.forker.files_limit))
        clients = self._clients = {pod.info.address: pod.info for pod in self.pods}
        serve_metadata(
            self.loop,
            BRIDGE_ADDRESS,
            lambda client: spec.place(clients[client].machine) if client in clients else None,
            lambda client: self.metadata.get(clients[client].index if client in clients else -1, spec.metadata),
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

    def start_pod(self, index: int, env: Mapping[str, str] | None = None, machine: int | None = None) -> None:
        """Start the container of a pod that has none running, with a file system of its own; `machine`: a spare one
        that it moves to."""
        old = self.pods[index]
        self.network.remove_cables(old.info.machine)
        for descriptor in old.files:
            os.close(descriptor)
        where = old.info.machine if machine is None else machine
        self.pods[index] = pod = LocalPod(self._info(index, where, STARTING))
        pod.info.replaced = old.info.replaced + (machine is not None)
        self._clients[pod.info.address] = pod.info
        pod.info.created, pod.info.created_monotonic = time.time(), time.monotonic()
        secret = (self.spec.pod_secret.get(index) or self._secret) if self.spec.contract else b""
        root = pod_root(self.spec, self.surroundings, index, where, secret=secret, cgroups=self.cgroup >= 0)
        sandbox = Sandbox(pod.info.node, where, self.spec.nics)

        def build() -> list[int]:
            make_sandbox(sandbox)
            return enter_root(root)

        enter = partial(enter_cgroup, self.cgroup, f"pod-{where}")
        program = Program(self.surroundings.entrypoint, self.environment(index) | dict(env or {}))
        events = Events(partial(self._on_begun, pod), partial(self.logs.add, index), partial(self._on_end, pod))
        pod.container = Container(self.loop, self.forker, enter, build, program, events)

    def environment(self, index: int) -> dict[str, str]:
        """That of the container, for its program and for commands in it."""
        return pod_environment(self.spec, self.surroundings.job, index, self.pods[index].info.machine)

    def set_name(self, index: int, visible: bool) -> None:
        """Have the pod's name appear in or vanish from DNS."""
        self._set_addresses(index, (self.pods[index].info.address,) if visible else ())

    def _set_addresses(self, index: int, addresses: tuple[str, ...]) -> None:
        if addresses != self._addresses.get(index, ()):
            self._addresses[index] = addresses
            self._tell_dns()

    def set_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """All names in DNS beside those of pods, with their addresses."""
        self._names = names
        self._tell_dns()

    def _write_hosts(self) -> None:
        files.write(_HOSTS_FILE, dns.hosts_text(self.spec, self._addresses, self._names))

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
            self.logs.add(pod.info.index, "err", f"a4-agent local: {what}\n".encode())
            hint = "it needs overlayfs over this root: not in a container that lies on overlayfs twice itself"
            self.fault = SystemFault(what, hint if "overlay" in message["error"] else "")
        self.notify()

    def _on_end(self, pod: LocalPod, code: int) -> None:
        info, code = pod.info, shell_code(code)
        info.state, info.code, info.ended = ENDED, code, time.time()
        follows = what_follows(self.spec, info.index, code, is_over=self._is_over)
        if follows == Follows.REPLACEMENT:
            info.state = WAITING
            self._set_addresses(info.index, addresses_between(self.spec.replaced_name, info.address))
            self.loop.later(self.spec.replace_after, partial(self._replace, pod))
        elif follows == Follows.JOB_END:
            self.end_replacing()
            self.loop.later(own_end_seconds(code), partial(self.end_pods, self.containers(), _GRACE))
        self.notify()

    def _replace(self, lost: LocalPod) -> None:
        """Unless somebody has started it, or the job has ended meanwhile."""
        index = lost.info.index
        if self.pods[index] is not lost or not lost.is_lost:
            return
        machine = self.spec.spare(self._spares)
        self._spares += 1
        name = kubernetes_name(self.spec, self.surroundings.job, index, machine)
        where = f"on {self.spec.node_name(machine)}, {address(machine)}"
        text = f"a4-agent local: pod {index} has ended {lost.info.code} and is replaced: {name} {where}\n"
        self.logs.add(index, "err", text.encode())
        self.start_pod(index, machine=machine)
        pod = self.pods[index]
        for step in name_steps(self.spec.replaced_name, lost.info.address, pod.info.address):
            self.loop.later(step.after, partial(self._take_name_step, pod, step.addresses))

    def _take_name_step(self, pod: LocalPod, addresses: tuple[str, ...]) -> None:
        if self.pods[pod.info.index] is pod and not pod.is_lost:
            self._set_addresses(pod.info.index, addresses)

    def end_replacing(self) -> None:
        """The job ends: what was lost stays away."""
        self._is_over = True
        for pod in self.pods:
            if pod.is_lost:
                pod.info.state = ENDED

    def containers(self) -> list[Container]:
        """Those of now: a pod that is started again later is not meant by what is done with them."""
        return [pod.container for pod in self.pods if pod.container]

    def end_pods(self, containers: Sequence[Container], grace: float) -> None:
        """SIGTERM, after the grace time SIGKILL, to what has not ended by then."""

        def tell(number: int) -> None:
            for container in containers:
                container.signal(number)

        tell(signal.SIGTERM)
        self.loop.later(grace, partial(tell, signal.SIGKILL))

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
