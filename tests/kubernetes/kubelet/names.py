"""Names of headless Services, from the EndpointSlices that Kubernetes makes, for the cluster's DNS server."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path

from agent.machine import files
from tests.kubernetes.kubelet.api import Api
from tests.kubernetes.kubelet.fields import Object


def records(slices: Iterable[Object], headless: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of a hosts file: the Service's name for each address, and `hostname.service` for those with one. An
    endpoint that is not ready has none; controllers call it ready where `publishNotReadyAddresses` asks for that."""
    known = set(headless)
    lines = list[str]()
    for each in slices:
        namespace = each["metadata"]["namespace"]
        service = (each["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")
        if (namespace, service) not in known:
            continue
        whole = f"{service}.{namespace}.svc.cluster.local"
        for endpoint in each.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            names = [f"{endpoint['hostname']}.{whole}"] if endpoint.get("hostname") else []
            lines += [f"{address} {name}" for address in endpoint["addresses"] for name in (*names, whole)]
    return sorted(set(lines))


def is_headless(service: Object) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


class Names:
    """Keeps the hosts file of a DNS server true. `fixed` are lines that are always there."""

    def __init__(self, api: Api, hosts: Path, server: subprocess.Popen[bytes], fixed: Iterable[str]) -> None:
        self._api = api
        self._hosts = hosts
        self._server = server
        self._fixed = list(fixed)
        self._slices = dict[str, Object]()
        self._services = dict[str, Object]()
        self._lock = threading.Lock()

    def start(self) -> None:
        for path, kept in (
            ("/apis/discovery.k8s.io/v1/endpointslices", self._slices),
            ("/api/v1/services", self._services),
        ):
            threading.Thread(target=self._follow, args=(path, kept), name=path, daemon=True).start()

    def _follow(self, path: str, kept: dict[str, Object]) -> None:
        for change in self._api.watch(path):
            with self._lock:
                if change.kind == "LISTED":
                    kept.clear()
                for each in change.objects:
                    key = each["metadata"]["uid"]
                    kept.pop(key, None)
                    if change.kind != "DELETED":
                        kept[key] = each
                self._write()

    def _write(self) -> None:
        headless = [
            (each["metadata"]["namespace"], each["metadata"]["name"])
            for each in self._services.values()
            if is_headless(each)
        ]
        text = "\n".join([*self._fixed, *records(self._slices.values(), headless)]) + "\n"
        if self._hosts.read_text() != text:
            files.write(str(self._hosts), text)
            self._server.send_signal(signal.SIGHUP)
