"""One pod on its node, from its binding until the API server may forget it: one thread, which acts on what it hears."""

from __future__ import annotations

import queue
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.kubernetes.kubelet import storage
from tests.kubernetes.kubelet.ending import Running
from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.heard import (
    Changed,
    Frozen,
    Gone,
    HasEnded,
    Heard,
    Probed,
    Rebooted,
    Refreshed,
    Thawed,
)
from tests.kubernetes.kubelet.images import NotPulled, pulled
from tests.kubernetes.kubelet.machine import Host, Machine
from tests.kubernetes.kubelet.plan import container_spec
from tests.kubernetes.kubelet.probes import KINDS, Prober, Target
from tests.kubernetes.kubelet.sources import Missing
from tests.kubernetes.kubelet.states import End, State, containers, ended
from tests.kubernetes.kubelet.status import pod_status, undated
from tests.kubernetes.runtime import Ended, Sandbox, StartFailed

SYNC_SECONDS = 2.0
"""Between tries of what may come about without a word."""
LEAVE_SECONDS = 60.0
"""For a pod that is killed to be gone."""
NO_PROGRAM = 128
LOST = End(137, "ContainerStatusUnknown", "The container could not be located when the pod was terminated")


class PodWorker(threading.Thread):
    def __init__(self, machine: Machine, host: Host, pod: Object, before: Sequence[PodWorker]) -> None:
        super().__init__(name=f"pod {pod['metadata']['name']}", daemon=True)
        self.machine = machine
        self.host = host
        self.pod = pod
        self._before = [each for each in before if each.host is host]
        self.inbox = queue.SimpleQueue[Heard]()
        self.running = dict[str, Running]()
        self.silent = False
        self._missed: list[Heard] | None = None
        """What a node that stands still will hear when it is there again."""
        self.phase = ""
        self.states = {name: State() for name in containers(pod)}
        self._sandbox: Sandbox | None = None
        self._began = time.time()
        self._told = ""
        self._problem = ""
        self._over = False

    def run(self) -> None:
        """Begins when pods that were deleted by force have left the node."""
        for each in self._before:
            each.join(LEAVE_SECONDS)
        try:
            while not self._over:
                self._advance()
                self._report()
                self._hear()
        except Exception:
            traceback.print_exc(file=sys.stderr)
        finally:
            self._stop_sandbox()

    def log_of(self, container: str) -> Path:
        return storage.log_of(self.machine, self.pod, container)

    @property
    def address(self) -> str:
        return getattr(self._sandbox, "address", "")

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.pod["metadata"]

    def _advance(self) -> None:
        """Do all that can be done now."""
        if self.silent:
            return
        if self.phase:
            self._finish(self.phase)
        elif not self._sandbox and not self.deleting and not self._prepare():
            return
        elif self.deleting or all(state.end for state in self.states.values()):
            self._end()
        else:
            for name in [name for name, state in self.states.items() if state.condition == "waiting"]:
                self._start(name)

    def _end(self) -> None:
        """Its containers, then the pod."""
        running = [name for name, state in self.states.items() if state.condition == "running"]
        for name in running:
            self.running[name].end(self._grace())
        if not running:
            well = all(state.end and state.end.code == 0 for state in self.states.values())
            self._finish("Succeeded" if well else "Failed")

    def _hear(self) -> None:
        """Everything that has come, and at least one thing unless it is time to try something again."""
        try:
            heard = self.inbox.get(timeout=SYNC_SECONDS)
            while True:
                self._apply(heard)
                heard = self.inbox.get_nowait()
        except queue.Empty:
            pass

    def _apply(self, heard: Heard) -> None:
        match heard:
            case Rebooted():
                self._come_back()
            case Frozen() | Thawed():
                self._stand_still(signal.SIGSTOP if isinstance(heard, Frozen) else signal.SIGCONT)
            case _ if self._missed is not None:
                self._missed.append(heard)
            case Changed(pod):
                self.pod = pod
            case HasEnded():
                self._ended(heard)
            case Probed():
                self._probed(heard)
            case Refreshed():
                self._refresh()
            case _:
                self.silent = True
                self._over = isinstance(heard, Gone)
                self._stop_sandbox()

    def _stand_still(self, number: signal.Signals) -> None:
        self._missed, self.silent = self._missed or [], True
        for running in self.running.values():
            running.signal_all(number)

    def _come_back(self) -> None:
        """Without containers; then hear what was said meanwhile."""
        self._stop_sandbox()
        self.silent, missed, self._missed = False, self._missed or (), None
        for heard in missed:
            self._apply(heard)
        for name, state in self.states.items():
            if state.condition != "terminated":
                self.states[name] = ended(state, LOST._replace(started=state.began, finished=time.time()))

    def _refresh(self) -> None:
        if self._sandbox and not self.phase:
            storage.refresh(self.machine, self.host, self.pod, self.machine.sources(self.pod))

    def _prepare(self) -> bool:
        """Volumes, then the sandbox. False: something is not there yet."""
        try:
            if self.pod["spec"].get("initContainers"):
                raise Missing("no init containers run on this node")
            storage.mount(self.machine, self.host, self.pod, self.machine.sources(self.pod))
        except Missing as missing:
            self._warn("FailedMount", str(missing))
            return False
        spec = self.pod["spec"]
        name = spec.get("hostname") or self.pod["metadata"]["name"]
        self._sandbox = self.machine.runtime.sandbox(
            self.pod["metadata"]["uid"],
            hostname=name,
            node=self.host.node,
            host_network=bool(spec.get("hostNetwork")),
        )
        storage.mount_memory(self.machine, self.pod, self._sandbox)
        storage.write_system_files(self.machine, self.pod, self._sandbox.address)
        return True

    def _start(self, name: str) -> None:
        container, before, now = containers(self.pod)[name], self.states[name], time.time()
        over = threading.Event()

        def has_ended(how: Ended) -> None:
            over.set()
            self.inbox.put(HasEnded(name, how))

        assert self._sandbox
        try:
            image = pulled(self.machine.images, container["image"])
            sources = self.machine.sources(self.pod)
            known = {**self.pod, "status": self._status(now)}
            home = storage.home(self.machine, self.pod)
            spec = container_spec(known, container, image, sources, home, self.log_of(name), self.machine.server)
            started = self._sandbox.start(spec, has_ended)
        except NotPulled as error:
            self.states[name] = replace(before, reason="ErrImagePull", message=str(error))
            self._warn("Failed", f'Failed to pull image "{container["image"]}": {error}')
            return
        except Missing as error:
            self.states[name] = replace(before, reason="CreateContainerConfigError", message=str(error))
            return
        except StartFailed as error:
            self.states[name] = ended(before, End(NO_PROGRAM, "StartError", str(error), 0.0, now))
            self._warn("Failed", f"Error: {error}")
            return
        started_at_once = "startupProbe" not in container
        self.states[name] = replace(
            before,
            condition="running",
            began=now,
            started=started_at_once,
            ready=started_at_once and "readinessProbe" not in container,
        )
        self.running[name] = Running(container, started, over)
        self._probe(name)

    def _probe(self, name: str) -> None:
        """Start the startup probe, or after it the others."""
        running, state = self.running[name], self.states[name]
        if "startupProbe" in running.spec and not state.started:
            wanted = ["startupProbe"]
        else:
            wanted = [kind for kind in KINDS[1:] if kind in running.spec]
        assert self._sandbox
        target = Target(running.spec, self._sandbox.address, running.execute)

        def tell(kind: str, well: bool) -> None:
            self.inbox.put(Probed(name, kind, well))

        for kind in wanted:
            prober = Prober(kind, running.spec[kind], target, tell)
            running.probers.append(prober)
            prober.start()

    def _probed(self, heard: Probed) -> None:
        running, state = self.running.get(heard.name), self.states[heard.name]
        if not running or running.asked.is_set():
            return
        if heard.kind == "readinessProbe":
            self.states[heard.name] = replace(state, ready=heard.well)
        elif not heard.well:
            words = heard.kind.removesuffix("Probe").capitalize()
            self._warn("Unhealthy", f"{words} probe failed, container {heard.name} will be killed")
            own = running.spec[heard.kind].get("terminationGracePeriodSeconds")
            running.end(float(self._grace() if own is None else own))
        elif heard.kind == "startupProbe":
            self.states[heard.name] = replace(state, started=True, ready="readinessProbe" not in running.spec)
            self._probe(heard.name)

    def _grace(self) -> float:
        given = self.pod["metadata"].get("deletionGracePeriodSeconds") if self.deleting else None
        return float(self.pod["spec"].get("terminationGracePeriodSeconds", 30) if given is None else given)

    def _ended(self, heard: HasEnded) -> None:
        self.running.pop(heard.name).stop_probing()
        how, state = heard.how, self.states[heard.name]
        reason = "Error" if how.code else "Completed"
        end = End(how.code, reason, how.message, state.began, time.time(), how.signal or 0)
        self.states[heard.name] = ended(state, end)

    def _finish(self, phase: str) -> None:
        """The end is told first, and then that nothing is left: controllers count in this order."""
        self._stop_sandbox()
        if self.deleting and not self.phase:
            for name, state in self.states.items():
                if state.condition == "waiting":
                    self.states[name] = ended(state, LOST._replace(finished=time.time()))
        self.phase = phase
        self._report()
        if self.deleting:
            self.machine.reports.gone(self.pod)
            self._over = True
            shutil.rmtree(storage.home(self.machine, self.pod), ignore_errors=True)

    def _stop_sandbox(self) -> None:
        for running in self.running.values():
            running.stop_probing()
        if self._sandbox:
            self._sandbox.stop()
            self._sandbox = None

    def _status(self, now: float) -> Object:
        address = self._sandbox.address if self._sandbox else (self.pod.get("status") or {}).get("podIP", "")
        return pod_status(
            self.pod,
            self.states,
            phase=self.phase,
            addresses=(self.host.node.address, address),
            began=self._began,
            now=now,
            sandboxed=self._sandbox is not None,
        )

    def _report(self) -> None:
        if self.silent:
            return
        status = self._status(time.time())
        if undated(status) != self._told:
            self._told = undated(status)
            # The last conditions are kept, so that they tell since when they hold.
            self.pod = {**self.pod, "status": {**(self.pod.get("status") or {}), **status}}
            self.machine.reports.status(self.pod, status)

    def _warn(self, reason: str, message: str) -> None:
        """Once, until something else is to be said."""
        if message != self._problem:
            self._problem = message
            self.machine.reports.event(self.pod, reason, message, time.time())
