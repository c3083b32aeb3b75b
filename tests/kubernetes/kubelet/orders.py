"""Pods that are bound to our nodes, each with its worker; and what a test may do to a node."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.kubernetes.kubelet.api import Change
from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.heard import Changed, Died, Frozen, Gone, Heard, Rebooted, Refreshed, Thawed
from tests.kubernetes.kubelet.images import Images
from tests.kubernetes.kubelet.machine import Host, Machine
from tests.kubernetes.kubelet.nodes import Beats, NodeSpec
from tests.kubernetes.kubelet.pod import PodWorker
from tests.kubernetes.kubelet.server import Find
from tests.kubernetes.kubelet.volumes import KINDS

REFRESH_SECONDS = 2.0
ORDERS: dict[str, Heard] = {"die": Died(), "reboot": Rebooted(), "freeze": Frozen(), "thaw": Thawed()}


@dataclass(frozen=True)
class Config:
    """What the kubelet's process is told when it starts."""

    cluster: str
    """Name of the local cluster on whose bridge the nodes are."""
    kubeconfig: str
    """What stands in it, as in the files that are named next."""
    certificate: str
    key: str
    authority: str
    version: str
    nodes: Sequence[NodeSpec]
    images: Images
    places: Mapping[str, tuple[str, str, str, str]]
    """Where nodes stand, by name."""


class Kubelet:
    def __init__(self, machine: Machine, hosts: Mapping[str, Host], beats: Beats) -> None:
        self._machine = machine
        self._hosts = hosts
        self._beats = beats
        self._workers = dict[str, PodWorker]()
        self._leaving = list[PodWorker]()
        """Workers of pods that the API server has forgotten: they may still hold ports of their node."""
        self._lock = threading.Lock()

    def start(self) -> None:
        for work in (self._follow, self._refresh):
            threading.Thread(target=_work_or_exit, args=(work,), name=work.__name__, daemon=True).start()

    def node_at(self, address: str) -> str:
        """The node that has this address, itself or by a pod; empty: none."""
        with self._lock:
            pods = {worker.address: worker.pod["spec"]["nodeName"] for worker in self._workers.values()}
        return str({**pods, **{host.node.address: name for name, host in self._hosts.items()}}.get(address, ""))

    def finder(self, node: str) -> Find:
        """How the server of a node finds its pods."""

        def find(namespace: str, name: str) -> PodWorker | None:
            with self._lock:
                for worker in self._workers.values():
                    about = worker.pod["metadata"]
                    if (about["namespace"], about["name"]) == (namespace, name) and not worker.silent:
                        return worker if worker.pod["spec"]["nodeName"] == node else None
            return None

        return find

    def obey(self, order: Object) -> Object:
        """`die`: the node's processes are gone and nothing is said any more. `reboot`: the node is there again.
        `freeze`: all of it stands still. `thaw`: the containers go on, and the kubelet does not yet. `look`: nothing is
        done. Returns the names of its pods, and how many of their containers run."""
        node, what = order["node"], order["what"]
        if node not in self._hosts:
            return {"error": f"there is no node {node}"}
        with self._lock:
            workers = [*self._workers.values(), *self._leaving]
        of_node = [worker for worker in workers if worker.pod["spec"]["nodeName"] == node]
        if what == "reboot":
            self._beats.silent.discard(node)
        elif what != "look":
            self._beats.silent.add(node)
        for worker in of_node if what in ORDERS else ():
            worker.inbox.put(ORDERS[what])
        running = [one for worker in of_node for one in [*worker.running.values()] if not one.over.is_set()]
        return {"pods": [worker.pod["metadata"]["name"] for worker in of_node], "running": len(running)}

    def close(self) -> None:
        """Every pod of every node ends now."""
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.inbox.put(Gone())
        for worker in workers:
            worker.join(10)

    def _follow(self) -> None:
        for change in self._machine.api.watch("/api/v1/pods"):
            ours = {pod["metadata"]["uid"]: pod for pod in change.objects if self._is_ours(pod)}
            with self._lock:
                self._heard(change, ours)

    def _is_ours(self, pod: Object) -> bool:
        return pod["spec"].get("nodeName") in self._hosts

    def _heard(self, change: Change, ours: Mapping[str, Object]) -> None:
        gone = set(ours) if change.kind == "DELETED" else set[str]()
        if change.kind == "LISTED":
            gone = self._workers.keys() - ours.keys()
        for uid in gone & self._workers.keys():
            worker = self._workers.pop(uid)
            worker.inbox.put(Gone())
            self._leaving.append(worker)
        for uid, pod in ours.items():
            if uid not in gone:
                self._see(uid, pod)

    def _see(self, uid: str, pod: Object) -> None:
        over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if uid in self._workers:
            self._workers[uid].inbox.put(Changed(pod))
        elif not over:
            host = self._hosts[pod["spec"]["nodeName"]]
            self._leaving = [each for each in self._leaving if each.is_alive()]
            worker = self._workers[uid] = PodWorker(self._machine, host, pod, [*self._leaving])
            worker.silent = pod["spec"]["nodeName"] in self._beats.silent
            worker.start()
        elif "deletionTimestamp" in pod["metadata"]:
            self._machine.reports.gone(pod)

    def _refresh(self) -> None:
        while True:
            time.sleep(REFRESH_SECONDS)
            with self._lock:
                workers = list(self._workers.values())
            for worker in workers:
                volumes = worker.pod["spec"].get("volumes") or ()
                if worker.running and any(KINDS & set(volume) for volume in volumes):
                    worker.inbox.put(Refreshed())


def _work_or_exit(work: Callable[[], None]) -> None:
    """Without this thread no pod would ever start again: the tests shall see that at once."""
    try:
        work()
    except Exception:
        traceback.print_exc(file=sys.stderr)
        os._exit(1)
