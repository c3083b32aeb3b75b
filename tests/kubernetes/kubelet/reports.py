"""What the kubelet tells the API server of a pod: status, events, and that it is gone."""

from __future__ import annotations

import secrets
from typing import Any

from tests.kubernetes.kubelet.api import STRATEGIC, Api, Refusal
from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.status import rfc3339

GONE = {404, 409}
"""The pod is not there any more, or another one has its name."""


class Reports:
    def __init__(self, api: Api) -> None:
        self._api = api

    def status(self, pod: Object, status: Object) -> bool:
        """False: there is no such pod any more."""
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        return self._told("PATCH", f"{path(pod)}/status", body, STRATEGIC)

    def gone(self, pod: Object) -> None:
        """Nothing of it is left on the node: the API server may forget it."""
        self._told(
            "DELETE",
            path(pod),
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "gracePeriodSeconds": 0,
                "preconditions": {"uid": pod["metadata"]["uid"]},
            },
        )

    def event(self, pod: Object, reason: str, message: str, now: float, *, warning: bool = True) -> None:
        """As `kubectl describe pod` and `kubectl get events` show it."""
        about = pod["metadata"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about['name']}.{secrets.token_hex(8)}", "namespace": about["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": about["name"],
                "namespace": about["namespace"],
                "uid": about["uid"],
            },
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "firstTimestamp": rfc3339(now),
            "lastTimestamp": rfc3339(now),
            "count": 1,
            "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
        }
        # A namespace that is ending takes no more events.
        self._told("POST", f"/api/v1/namespaces/{about['namespace']}/events", event, also=403)

    def _told(self, method: str, where: str, body: Any, kind: str = "application/json", also: int = 0) -> bool:
        try:
            self._api.ask(method, where, body, kind)
        except Refusal as refusal:
            if refusal.code not in GONE | {also}:
                raise
            return False
        return True


def path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
