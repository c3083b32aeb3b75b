"""Names of headless Services, from the EndpointSlices that Kubernetes makes, for the cluster's DNS server."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.kubernetes.kubelet.api import Api
from tests.kubernetes.kubelet.fields import Object

DOMAIN = "cluster.local"


def records(slices: Iterable[Object], headless: Iterable[tuple[str, str]], domain: str = DOMAIN) -> list[str]:
    """Lines of a hosts file: the Service's name for each address, and `hostname.service` for those with one. An
    endpoint that is not ready has none; controllers call it ready where `publishNotReadyAddresses` asks for that."""
    known = set(headless)
    lines = list[str]()
    for each in slices:
        namespace = each["metadata"]["namespace"]
        service = (each["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")
        if (namespace, service) not in known:
            continue
        whole = f"{service}.{namespace}.svc.{domain}"
        for endpoint in each.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            names = [f"{endpoint['hostname']}.{whole}"] if endpoint.get("hostname") else []
            lines += [f"{address} {name}" for address in endpoint["addresses"] for name in (*names, whole)]
    return sorted(set(lines))


def is_headless(service: Object) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def resolv_conf(namespace: str, server: str, domain: str = DOMAIN) -> str:
    return f"search {namespace}.svc.{domain} svc.{domain} {domain}\nnameserver {server}\noptions ndots:5\n"


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
        if not self._hosts.exists() or self._hosts.read_text() != text:
            new = self._hosts.with_suffix(".new")
            new.write_text(text)
            os.replace(new, self._hosts)
            self._server.send_signal(signal.SIGHUP)


def dns_argv(program: str, address: str, hosts: Path) -> list[str]:
    """dnsmasq that knows the hosts file and nothing else, and answers with how CoreDNS lets answers be kept."""
    options: Mapping[str, str] = {
        "conf-file": "/dev/null",
        "log-facility": "/dev/null",
        "pid-file": "",
        "user": "root",
        "group": "root",
        "addn-hosts": str(hosts),
        "local": "/#/",
        "listen-address": address,
        "cache-size": "10000",
        "local-ttl": "30",
        "neg-ttl": "5",
    }
    flags = ["--keep-in-foreground", "--no-resolv", "--no-hosts", "--bind-interfaces"]
    return [program, *flags, *(f"--{name}={value}" for name, value in options.items())]
