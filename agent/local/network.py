"""The cluster's private network as the supervisor sees it: a bridge, one cable per pod."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable

from agent.local.netlink import Netlink
from agent.local.spec import BRIDGE_ADDRESS, PREFIX_LENGTH

_BRIDGE = "pods"
_GATEWAY = b"\x02\0\0\0\0\x02"
_BLACK_HOLE = b"\x02\0\0\0\0\x01"
"""A hardware address that nobody has."""
_SYSTEM = "/proc/sys/net/ipv4"
_REDIRECTS = f"conf/{_BRIDGE}/send_redirects"


def cable(index: int) -> str:
    """Name of the end, at the bridge, of the pod's cable."""
    return f"pod{index}"


class Network:
    """The bridge in this process's network namespace, which is the gateway between all pods."""

    def __init__(self) -> None:
        self._netlink = Netlink()
        self.bridge = socket.if_nametoindex(_BRIDGE)

    @classmethod
    def build(cls, silent: Iterable[str] = ()) -> Network:
        """Make the bridge in a namespace that has none. `silent` are addresses that are somebody's but answer
        nothing."""
        netlink = Netlink()
        netlink.set_link(socket.if_nametoindex("lo"), up=True)
        netlink.add_bridge(_BRIDGE, _GATEWAY)
        bridge = socket.if_nametoindex(_BRIDGE)
        netlink.add_address(bridge, BRIDGE_ADDRESS, PREFIX_LENGTH)
        netlink.set_link(bridge, up=True)
        for name, value in (("ip_forward", "1"), ("conf/all/send_redirects", "0"), (_REDIRECTS, "0")):
            with open(f"{_SYSTEM}/{name}", "w", encoding="ascii") as file:
                file.write(value)
        for address in silent:
            netlink.add_neighbour(bridge, address, _BLACK_HOLE)
        netlink.close()
        return cls()

    def remove_cable(self, index: int) -> None:
        """What is left of an ended pod's cable: the kernel takes namespaces down at its leisure."""
        with contextlib.suppress(OSError):
            self._netlink.remove_link(socket.if_nametoindex(cable(index)))

    def set_link(self, index: int, up: bool) -> None:
        """Pull or plug the cable of a pod."""
        self._netlink.set_link(socket.if_nametoindex(cable(index)), up)


def limit_argv(program: str, link: str, rate: str) -> list[str]:
    """The `tc` command that slows what leaves `link` down to `rate`; an empty rate ends that."""
    if not rate:
        return [program, "qdisc", "del", "dev", link, "root"]
    shape = ["tbf", "rate", rate, "burst", "64kb", "latency", "100ms"]
    return [program, "qdisc", "replace", "dev", link, "root", *shape]
