"""The cluster's private networks as the supervisor sees them: a bridge for each NIC of a pod, one cable per pod."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable, Sequence

from agent.workbench.local.netlink import Netlink
from agent.workbench.local.spec import NIC, PREFIX_LENGTH, Nic

_GATEWAY = b"\x02\0\0\0\0\x02"
_BLACK_HOLE = b"\x02\0\0\0\0\x01"
"""A hardware address that nobody has."""
_SYSTEM = "/proc/sys/net/ipv4"


def cable(machine: int, nic: Nic) -> str:
    """Name of the end, at the bridge, of a machine's cable."""
    return f"{nic.bridge}{machine}"


class Network:
    """The bridges in this process's network namespace, which is the gateway between all pods."""

    def __init__(self, nics: Sequence[Nic] = (NIC,)) -> None:
        self._netlink = Netlink()
        self.nics = nics

    @classmethod
    def build(cls, nics: Sequence[Nic], silent: Iterable[str] = ()) -> Network:
        """Make the bridges in a namespace that has none. `silent` are addresses that are somebody's but answer
        nothing."""
        network = cls(nics)
        netlink = network._netlink
        netlink.set_link(socket.if_nametoindex("lo"), up=True)
        _set("ip_forward", "1")
        _set("conf/all/send_redirects", "0")
        for nic in nics:
            netlink.add_bridge(nic.bridge, _GATEWAY)
            bridge = socket.if_nametoindex(nic.bridge)
            netlink.add_address(bridge, nic.gateway, PREFIX_LENGTH)
            netlink.set_link(bridge, up=True)
            _set(f"conf/{nic.bridge}/send_redirects", "0")
        for address in silent:
            netlink.add_neighbour(socket.if_nametoindex(NIC.bridge), address, _BLACK_HOLE)
        return network

    def remove_cables(self, machine: int) -> None:
        """What is left of an ended pod's cables: the kernel takes namespaces down at its leisure."""
        for nic in self.nics:
            with contextlib.suppress(OSError):
                self._netlink.remove_link(socket.if_nametoindex(cable(machine, nic)))

    def set_link(self, machine: int, up: bool, nic: Nic = NIC) -> None:
        """Pull or plug a cable of a machine."""
        self._netlink.set_link(socket.if_nametoindex(cable(machine, nic)), up)


def _set(name: str, value: str) -> None:
    with open(f"{_SYSTEM}/{name}", "w", encoding="ascii") as file:
        file.write(value)


def limit_argv(program: str, link: str, rate: str) -> list[str]:
    """The `tc` command that slows what leaves `link` down to `rate`; an empty rate ends that."""
    if not rate:
        return [program, "qdisc", "del", "dev", link, "root"]
    # Room for what TCP puts there at a time, in segments of 64 kB: where that is lost, speeds scatter.
    shape = ["tbf", "rate", rate, "burst", "16kb", "limit", "256kb"]
    return [program, "qdisc", "replace", "dev", link, "root", "handle", "1:", *shape]


def way_script(link: str, addresses: Iterable[str], rate: str) -> str:
    """A script for a pod that slows what leaves `link`, which is limited, for these addresses down to `rate`; empty: it
    gets lost. It takes the place of an earlier one."""
    qdisc = f"tc qdisc replace dev {link}"
    return "\n".join(
        [
            f"{qdisc} parent 1:1 bfifo limit 256kb",
            f"{qdisc} parent 1:1 handle 2: htb",
            f"tc class add dev {link} parent 2: classid 2:1 htb rate {rate or '1mbit'}",
            f"{qdisc} parent 2:1 " + ("bfifo limit 256kb" if rate else "blackhole"),
            *(
                f"tc filter add dev {link} parent 2: protocol ip u32 match ip dst {network} flowid 2:1"
                for network in ipaddress.collapse_addresses(map(ipaddress.IPv4Network, addresses))
            ),
        ]
    )
