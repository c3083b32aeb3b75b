"""The cluster's DNS server: dnsmasq with the names of a headless service."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping, Sequence

from agent.errors import SystemFault
from agent.workbench.local.spec import BRIDGE_ADDRESS, METADATA_NAME, NAMESPACE, ClusterSpec

_DEADLINE = 10.0


def hosts_text(spec: ClusterSpec, pods: Mapping[int, Sequence[str]], names: Mapping[str, Sequence[str]]) -> str:
    """What dnsmasq reads: A records of the pods' names, by index, and of further names, each with its addresses."""
    lines = [f"{BRIDGE_ADDRESS} {METADATA_NAME}"]
    lines += [f"{one} {spec.pod_name(index)}" for index, addresses in sorted(pods.items()) for one in addresses]
    lines += [f"{one} {name}" for name, addresses in sorted(names.items()) for one in addresses]
    return "\n".join(lines) + "\n"


def resolv_conf(namespace: str = NAMESPACE, server: str = BRIDGE_ADDRESS) -> str:
    """What the kubelet writes into a pod."""
    search = f"{namespace}.svc.cluster.local svc.cluster.local cluster.local"
    return f"search {search}\nnameserver {server}\noptions ndots:5\n"


def dnsmasq_argv(program: str, spec: ClusterSpec, hosts_file: str, listen: str = BRIDGE_ADDRESS) -> list[str]:
    """dnsmasq that knows `hosts_file`, which it reads again at SIGHUP, and nothing else, and writes no file."""
    return [
        program,
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--log-facility=/dev/null",
        "--pid-file=",
        "--user=root",
        "--group=root",
        "--no-resolv",
        "--no-hosts",
        f"--addn-hosts={hosts_file}",
        "--local=/#/",
        f"--listen-address={listen}",
        "--bind-interfaces",
        "--cache-size=10000",
        f"--local-ttl={spec.local_ttl}",
        f"--neg-ttl={spec.neg_ttl}",
    ]


def wait_until_it_listens() -> None:
    """Return when the server takes connections, as it then takes queries: a pod must never find it missing."""
    deadline = time.monotonic() + _DEADLINE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection((BRIDGE_ADDRESS, 53), 0.5).close()
            return
        time.sleep(0.002)
    raise SystemFault(f"dnsmasq does not answer on {BRIDGE_ADDRESS}", "run the command again; if it repeats, report it")
