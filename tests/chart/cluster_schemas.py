"""What Kueue, GKE's multi-networking and Prometheus take: the fields of their objects that a cluster for jobs can have.

Kueue's are of its API kueue.x-k8s.io/v1beta2 (0.19), GKE's of networking.gke.io/v1, Prometheus' of the schemas of
prometheus-operator 0.76 and of GKE's prometheus-engine 0.17. None of them has a package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.chart.helm import Object
from tests.chart.rules import SUBDOMAIN
from tests.chart.schemas import core_problems

NAME, TEXT = SUBDOMAIN.pattern, ".+"
FREE = {"labels", "matchLabels", "nodeLabels"}
"""Maps with keys of any name, which is * below."""
OF_ALL = {"apiVersion": TEXT, "kind": TEXT, "metadata.name": NAME, "metadata.labels.*": ".*"}
NEEDED = {
    "Topology": {"spec.levels[].nodeLabel": TEXT},
    "ResourceFlavor": {"spec.nodeLabels.*": ".*"},
    "ClusterQueue": {
        "spec.namespaceSelector": "{}",
        "spec.resourceGroups[].coveredResources[]": TEXT,
        "spec.resourceGroups[].flavors[].name": NAME,
        "spec.resourceGroups[].flavors[].resources[].name": TEXT,
        "spec.resourceGroups[].flavors[].resources[].nominalQuota": r"[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPE])?",
    },
    "Cohort": {
        "spec.resourceGroups[].coveredResources[]": TEXT,
        "spec.resourceGroups[].flavors[].name": NAME,
        "spec.resourceGroups[].flavors[].resources[].name": TEXT,
        "spec.resourceGroups[].flavors[].resources[].nominalQuota": r"[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPE])?",
    },
    "LocalQueue": {"spec.clusterQueue": NAME, "metadata.namespace": NAME},
    "GKENetworkParamSet": {
        "spec.vpc": TEXT,
        "spec.vpcSubnet": TEXT,
        "spec.deviceMode": "DPDK-VFIO|NetDevice|RDMA",
    },
    "Network": {
        "spec.type": "L2|L3|Device",
        "spec.parametersRef.group": TEXT,
        "spec.parametersRef.kind": TEXT,
        "spec.parametersRef.name": NAME,
    },
}
"""Fields that an object must have, and patterns of their values."""
POSSIBLE = {
    "ClusterQueue": {
        "spec.cohortName": NAME,
        "spec.preemption.reclaimWithinCohort": "Never|LowerPriority|Any",
        "spec.preemption.withinClusterQueue": "Never|LowerPriority|LowerOrNewerEqualPriority",
        "spec.fairSharing.weight": r"[0-9]+(\.[0-9]+)?m?",
        "spec.resourceGroups[].flavors[].resources[].borrowingLimit": r"[0-9]+",
    },
    "ResourceFlavor": {
        "spec.tolerations[].key": TEXT,
        "spec.tolerations[].operator": "Exists|Equal",
        "spec.tolerations[].value": ".*",
        "spec.tolerations[].effect": "NoSchedule|PreferNoSchedule|NoExecute",
        "spec.topologyName": NAME,
    },
}
NEEDED |= {
    kind: {
        "metadata.namespace": NAME,
        "spec.selector.matchLabels.*": ".*",
        f"spec.{endpoints}[].port": "[a-z0-9-]{1,15}",
        f"spec.{endpoints}[].interval": "[1-9][0-9]*[sm]",
    }
    for kind, endpoints in {"PodMonitoring": "endpoints", "PodMonitor": "podMetricsEndpoints"}.items()
}
GROUPS = {
    "PodMonitoring": "monitoring.googleapis.com/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "GKENetworkParamSet": "networking.gke.io/v1",
    "Network": "networking.gke.io/v1",
}


def problems(found: Object) -> Iterator[str]:
    """What is wrong with an object of the cluster's chart."""
    if found["apiVersion"] == "apps/v1":
        yield from core_problems(found)
        return
    kind, given = found["kind"], list(fields(found))
    needed = {**OF_ALL, **NEEDED[kind], "apiVersion": GROUPS.get(kind, "kueue.x-k8s.io/v1beta2")}
    possible = {**needed, **POSSIBLE.get(kind, {})}
    yield from (f"{kind} has no {path}" for path in needed.keys() - {path for path, _ in given})
    for path, value in given:
        if path not in possible:
            yield f"{kind} has {path}, which is not known"
        elif not re.fullmatch(possible[path], value if isinstance(value, str) else repr(value)):
            yield f"{kind}: {path} is {value!r}"


def fields(found: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All fields that hold no others, by their paths."""
    if isinstance(found, dict) and found:
        for key, value in found.items():
            name = "*" if path.rpartition(".")[2] in FREE else key
            yield from fields(value, f"{path}.{name}".lstrip("."))
    elif isinstance(found, list) and found:
        for value in found:
            yield from fields(value, f"{path}[]")
    else:
        yield path, found
