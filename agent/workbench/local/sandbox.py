"""What containers of one pod share: a network with a cable to each bridge, a host name, IPC.

A node is the same thing: pods with hostNetwork share its network and its host name.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from typing import NamedTuple

from agent.workbench.local.netlink import Netlink
from agent.workbench.local.network import cable
from agent.workbench.local.spec import NIC, PREFIX_LENGTH, Nic, address
from agent.workbench.local.syscalls import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWUTS, unshare


class Sandbox(NamedTuple):
    """A sandbox as it shall be."""

    hostname: str
    cable: int
    """The machine whose cables, and so whose addresses, it has."""
    nics: Sequence[Nic]


def make_sandbox(sandbox: Sandbox) -> None:
    """Make its namespaces and move this process, which stands in that of the bridge, into them."""
    outside = Netlink()
    bridges = [socket.if_nametoindex(nic.bridge) for nic in sandbox.nics]
    unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET)
    socket.sethostname(sandbox.hostname)
    # No IPv6: its address detection would flood the bridge with multicast from every pod. TCP that slows down when
    # packets are lost, as on most nodes: with this machine's BBR, speeds on slowed links would scatter.
    for name, value in (("ipv6/conf/default/disable_ipv6", b"1"), ("ipv4/tcp_congestion_control", b"reno")):
        with contextlib.suppress(OSError), open(f"/proc/sys/net/{name}", "wb") as file:
            file.write(value)
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    inside = Netlink()
    inside.set_link(socket.if_nametoindex("lo"), up=True)
    for nic, bridge in zip(sandbox.nics, bridges, strict=True):
        outside.add_veth(cable(sandbox.cable, nic), bridge, nic.name, own)
        link = socket.if_nametoindex(nic.name)
        # An address of its own and one gateway, as on a GCE node. With neighbours instead, all pods together
        # would need more ARP entries than the kernel has (1,024 for all namespaces): a ring of 70 pods hangs.
        inside.add_address(link, address(sandbox.cable, nic), 32)
        inside.set_link(link, up=True)
        inside.add_route(nic.gateway, link, 0 if nic == NIC else PREFIX_LENGTH)
    outside.close()
    inside.close()
    os.close(own)
