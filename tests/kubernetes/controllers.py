"""What the Helm charts of JobSet and Kueue say of their controllers, for programs that run without pods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml

Object = dict[str, Any]

WEBHOOK_PORT = 9443
FRAMEWORKS = ["batch/job", "jobset.x-k8s.io/jobset"]
"""Kueue's default list has a dozen whose kinds no chart of ours brings."""


def of(objects: Sequence[Object], kind: str, name: str) -> Object:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def configuration(name: str, objects: Sequence[Object]) -> str:
    """What the controller's ConfigMap has, without what needs a pod around it."""
    maps = [each["data"] for each in objects if each["kind"] == "ConfigMap"]
    (text,) = [data["controller_manager_config.yaml"] for data in maps if "controller_manager_config.yaml" in data]
    config = yaml.safe_load(text)
    config["leaderElection"]["leaderElect"] = False
    if name == "kueue":
        config["integrations"]["frameworks"] = FRAMEWORKS
        config["featureGates"] = {"VisibilityOnDemand": False}
    return json.dumps(config)


def endpoints(service: Object, where: str) -> Object:
    """The EndpointSlice that a controller of Kubernetes would make of the webhook's pods."""
    name = service["metadata"]["name"]
    (port,) = service["spec"]["ports"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": port.get("name", ""), "port": WEBHOOK_PORT, "protocol": "TCP"}],
        "endpoints": [{"addresses": [where], "conditions": {"ready": True}}],
    }
