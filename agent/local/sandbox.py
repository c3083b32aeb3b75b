"""What containers of one pod share: a network with one cable to the bridge, a host name, IPC.

A node is the same thing: pods with hostNetwork share its network and its host name.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import NamedTuple

from agent.local.netlink import Netlink
from agent.local.network import cable
from agent.local.spec import BRIDGE_ADDRESS, address
from agent.local.syscalls import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWUTS, unshare


class Sandbox(NamedTuple):
    """A sandbox as it shall be."""

    hostname: str
    cable: int
    """The number of its cable, which gives it its address."""
    bridge: int

    @property
    def address(self) -> str:
        return address(self.cable)


def make_sandbox(sandbox: Sandbox) -> None:
    """Make its namespaces and move this process, which stands in that of the bridge, into them."""
    outside = Netlink()
    unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET)
    socket.sethostname(sandbox.hostname)
    # No IPv6 on eth0: its address detection would flood the bridge with multicast from every pod.
    with contextlib.suppress(OSError), open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "wb") as file:
        file.write(b"1")
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    outside.add_veth(cable(sandbox.cable), sandbox.bridge, "eth0", own)
    outside.close()
    os.close(own)
    inside = Netlink()
    eth0 = socket.if_nametoindex("eth0")
    inside.set_link(socket.if_nametoindex("lo"), up=True)
    # An address of its own and one gateway, as on a GCE node. With neighbours instead, all pods together
    # would need more ARP entries than the kernel has (1,024 for all namespaces): a ring of 70 pods hangs.
    inside.add_address(eth0, sandbox.address, 32)
    inside.set_link(eth0, up=True)
    inside.add_default_route(BRIDGE_ADDRESS, eth0)
    inside.close()
