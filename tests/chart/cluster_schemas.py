"""What Kueue and GKE's multi-networking take: the fields of their objects that a cluster for jobs can have.

Kueue's are of its API kueue.x-k8s.io/v1beta2 (0.19), GKE's of networking.gke.io/v1. There is no package of either.
"""

from __future__ import annotations

from typing import Any

import jsonschema

from tests.chart.schemas import Object, core_problems

Schema = dict[str, Any]

NAME: Schema = {
    "type": "string",
    "maxLength": 253,
    "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
}
TEXT: Schema = {"type": "string", "minLength": 1}
LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
QUANTITY: Schema = {"type": ["integer", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPE])?$"}
EFFECT = {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}
TOLERATION: Schema = {
    "key": TEXT,
    "operator": {"enum": ["Exists", "Equal"]},
    "value": {"type": "string"},
    "effect": EFFECT,
}


def fields(required: str, **properties: Schema) -> Schema:
    """An object with these properties and no others."""
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


def items(schema: Schema, most: int) -> Schema:
    return {"type": "array", "items": schema, "minItems": 1, "maxItems": most}


KUEUE = "kueue.x-k8s.io/v1beta2"
GKE = "networking.gke.io/v1"
SPECS = {
    (KUEUE, "Topology"): fields("levels", levels=items(fields("nodeLabel", nodeLabel=TEXT), 16)),
    (KUEUE, "ResourceFlavor"): fields(
        "",
        nodeLabels={**LABELS, "maxProperties": 8, "minProperties": 1},
        tolerations=items(fields("", **TOLERATION), 8),
        topologyName=NAME,
    ),
    (KUEUE, "ClusterQueue"): fields(
        "namespaceSelector resourceGroups",
        namespaceSelector=fields("", matchLabels=LABELS),
        resourceGroups=items(
            fields(
                "coveredResources flavors",
                coveredResources=items(TEXT, 64),
                flavors=items(
                    fields(
                        "name resources",
                        name=NAME,
                        resources=items(
                            fields(
                                "name nominalQuota",
                                name=TEXT,
                                nominalQuota=QUANTITY,
                                borrowingLimit=QUANTITY,
                                lendingLimit=QUANTITY,
                            ),
                            64,
                        ),
                    ),
                    64,
                ),
            ),
            16,
        ),
    ),
    (KUEUE, "LocalQueue"): fields("clusterQueue", clusterQueue=NAME),
    (GKE, "GKENetworkParamSet"): fields(
        "vpc vpcSubnet deviceMode", vpc=TEXT, vpcSubnet=TEXT, deviceMode={"enum": ["DPDK-VFIO", "NetDevice", "RDMA"]}
    ),
    (GKE, "Network"): fields(
        "type parametersRef",
        type={"enum": ["L2", "L3", "Device"]},
        parametersRef=fields("group kind name", group=TEXT, kind=TEXT, name=NAME),
    ),
}
NAMESPACED = {"DaemonSet", "LocalQueue"}


def problems(found: Object) -> list[str]:
    """What is wrong with an object of the cluster's chart."""
    if found["apiVersion"] == "apps/v1":
        return core_problems(found)
    named: Schema = {"name": NAME, "labels": LABELS}
    if found["kind"] in NAMESPACED:
        named["namespace"] = NAME
    whole = fields(
        "apiVersion kind metadata spec",
        apiVersion=TEXT,
        kind=TEXT,
        metadata=fields("name" + " namespace" * (found["kind"] in NAMESPACED), **named),
        spec=SPECS[found["apiVersion"], found["kind"]],
    )
    judge = jsonschema.Draft202012Validator(whole)
    return [f"{found['kind']} {found['metadata']['name']}: {wrong.message}" for wrong in judge.iter_errors(found)]
