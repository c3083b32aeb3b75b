"""The kubelet of all nodes, as one process: the first line of stdin says what it is to do, the others are orders.

It lives in the network of the control plane's local cluster, and ends, with every pod, when stdin does, or with its
parent.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from agent.wire import from_json
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.dns_server import dnsmasq_argv
from agent.workbench.local.host_survey import find_program
from agent.workbench.local.netlink import Netlink
from agent.workbench.local.spec import METADATA_NAME, ClusterSpec
from agent.workbench.local.syscalls import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    die_with_parent,
    mount,
    parent_outside,
    pid_outside,
    setns,
    unshare,
)
from tests.kubernetes.kubelet.api import Api
from tests.kubernetes.kubelet.machine import Host, Machine
from tests.kubernetes.kubelet.metadata import serve_places
from tests.kubernetes.kubelet.names import Names
from tests.kubernetes.kubelet.nodes import Beats
from tests.kubernetes.kubelet.orders import Config, Kubelet
from tests.kubernetes.kubelet.reports import Reports
from tests.kubernetes.kubelet.server import Keys, NodeServer
from tests.kubernetes.runtime import Runtime

ADDRESS = "198.18.0.2"
"""On the bridge: names are asked there, metadata and logs."""
STATE = Path("/mnt")
"""A file system in memory, which this process and its pods see alone."""
FIRST_PORT = 10250
"""The first node's server listens here, each further one on the next."""


def main() -> None:
    die_with_parent(parent_outside())
    config = from_json(Config, json.loads(sys.stdin.readline()))
    _make_state()
    cluster = LocalCluster.attach(config.cluster)
    with Runtime(cluster) as runtime:
        _enter_network(cluster.supervisor_pid())
        serve(config, runtime)


def serve(config: Config, runtime: Runtime) -> None:
    """Until stdin ends."""
    api = Api(json.loads(config.kubeconfig))
    host, _, port = api.host.partition(":")
    machine = Machine(api, Reports(api), runtime, config.images, _directory("pods"), ADDRESS, (host, int(port)))
    hosts = {spec.name: Host(runtime.node(spec.name), _directory("nodes", spec.name)) for spec in config.nodes}
    servers = {spec.name: (ADDRESS, FIRST_PORT + at) for at, spec in enumerate(config.nodes)}
    known = {spec.name: (spec, hosts[spec.name].node.address, servers[spec.name]) for spec in config.nodes}
    beats = Beats(api, known, config.version)
    kubelet = Kubelet(machine, hosts, beats)
    _serve_names(api, runtime.cluster.spec)
    serve_places((ADDRESS, 80), lambda address: config.places.get(kubelet.node_at(address)))
    keys = Keys(*(_file(name, getattr(config, name)) for name in ("certificate", "key", "authority")))
    for name, address in servers.items():
        NodeServer(address, keys, kubelet.finder(name)).start()
    for name in known:
        beats.register(name)
    beats.start()
    kubelet.start()
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        print(json.dumps(kubelet.obey(json.loads(line))), flush=True)
    kubelet.close()


def _make_state() -> None:
    unshare(CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("test-bed", str(STATE), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")


def _enter_network(process: int) -> None:
    """That of the bridge, before there are threads."""
    with open(f"/proc/{process}/ns/net") as namespace:
        setns(namespace.fileno(), CLONE_NEWNET)
    netlink = Netlink()
    netlink.add_address(socket.if_nametoindex("pods"), ADDRESS, 32)
    netlink.close()


def _directory(*names: str) -> Path:
    path = STATE.joinpath(*names)
    path.mkdir(parents=True)
    return path


def _file(name: str, text: str) -> Path:
    path = STATE / name
    path.write_text(text)
    return path


def _serve_names(api: Api, spec: ClusterSpec) -> None:
    hosts = STATE / "hosts"
    hosts.touch()
    own = pid_outside()
    argv = dnsmasq_argv(find_program("dnsmasq"), spec, str(hosts), ADDRESS)
    server = subprocess.Popen(argv, preexec_fn=lambda: die_with_parent(own), stdout=sys.stderr)
    Names(api, hosts, server, [f"{ADDRESS} {METADATA_NAME}"]).start()


if __name__ == "__main__":
    main()
    os._exit(0)
