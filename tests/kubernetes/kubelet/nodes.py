"""Node objects and their leases."""

from __future__ import annotations

import datetime
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.kubernetes.kubelet.api import MERGE, STRATEGIC, Api, Refusal
from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.status import rfc3339

LEASE_SECONDS = 8
"""Less than the 50 s of `--node-monitor-grace-period`, for which an API server may be away and cores busy."""
BEAT_SECONDS = 2.0
CAPACITY = {"cpu": "192", "memory": "2000Gi", "pods": "110", "nvidia.com/gpu": "8", "ephemeral-storage": "1000Gi"}
"""That of a machine with eight GPUs."""
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
"""GKE sets it on nodes with GPUs."""
FEATURES = ["ExtendWebSocketsToKubelet"]


@dataclass(frozen=True)
class NodeSpec:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=lambda: dict(CAPACITY))


def node_object(spec: NodeSpec) -> Object:
    labels = {"kubernetes.io/hostname": spec.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": {**labels, **spec.labels}},
        "spec": {"taints": [TAINT]},
    }


def node_status(spec: NodeSpec, address: str, server: tuple[str, int], version: str, now: float) -> Object:
    """`server` is where its logs are asked for: the address that Kubernetes calls external."""
    beat = rfc3339(now)
    quiet = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [_condition("Ready", "True", "KubeletReady", beat)]
    conditions += [_condition(kind, "False", f"KubeletHasNo{kind}", beat) for kind in quiet]
    return {
        "capacity": dict(spec.capacity),
        "allocatable": dict(spec.capacity),
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "ExternalIP", "address": server[0]},
            {"type": "Hostname", "address": spec.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": server[1]}},
        "declaredFeatures": FEATURES,
        "nodeInfo": {
            "kubeletVersion": version,
            "containerRuntimeVersion": "testbed://1",
            "operatingSystem": "linux",
            "architecture": "amd64",
            "kernelVersion": "",
            "osImage": "",
            "machineID": spec.name,
            "systemUUID": spec.name,
            "bootID": spec.name,
            "kubeProxyVersion": "",
        },
    }


def _condition(kind: str, status: str, reason: str, beat: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": beat, "lastTransitionTime": beat}


def lease(name: str, now: float) -> Object:
    moment = datetime.datetime.fromtimestamp(now, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": moment},
    }


class Beats(threading.Thread):
    """Keeps nodes alive for the API server, but for those of `silent`."""

    def __init__(self, api: Api, nodes: Mapping[str, tuple[NodeSpec, str, tuple[str, int]]], version: str) -> None:
        super().__init__(name="beats", daemon=True)
        self._api = api
        self._nodes = nodes
        self._version = version
        self.silent = set[str]()

    def run(self) -> None:
        while True:
            began = time.monotonic()
            for name in self._nodes.keys() - self.silent:
                self._beat(name)
            time.sleep(max(0.0, began + BEAT_SECONDS - time.monotonic()))

    def _beat(self, name: str) -> None:
        spec, address, server = self._nodes[name]
        status = {"status": node_status(spec, address, server, self._version, time.time())}
        renewed = lease(name, time.time())
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        try:
            self._api.ask("PATCH", f"{leases}/{name}", {"spec": renewed["spec"]}, MERGE)
            self._api.ask("PATCH", f"/api/v1/nodes/{name}/status", status, STRATEGIC)
        except Refusal as refusal:
            if refusal.code == 404:
                self.register(name)
            else:  # the next beat may be taken: without any, all nodes are given up
                print(f"node {name}: {refusal}", file=sys.stderr)

    def register(self, name: str) -> None:
        """Also a node that was deleted comes again, as a kubelet that is restarted brings it."""
        spec, address, server = self._nodes[name]
        for path, body in (
            ("/api/v1/nodes", node_object(spec)),
            ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease(name, time.time())),
        ):
            try:
                self._api.ask("POST", path, body)
            except Refusal as refusal:
                if refusal.code != 409:
                    raise
        status = {"status": node_status(spec, address, server, self._version, time.time())}
        self._api.ask("PATCH", f"/api/v1/nodes/{name}/status", status, STRATEGIC)
