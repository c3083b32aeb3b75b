"""The cluster's private network as the supervisor sees it: a bridge, one cable per pod."""

from __future__ import annotations

import contextlib
import socket

from agent.local.netlink import Netlink
from agent.local.spec import BRIDGE_ADDRESS, PREFIX_LENGTH

_BRIDGE = "pods"


def cable(index: int) -> str:
    """Name of the end, at the bridge, of the pod's cable."""
    return f"pod{index}"


class Network:
    """The bridge in the supervisor's own network namespace."""

    def __init__(self) -> None:
        self._netlink = Netlink()
        self._netlink.set_link(socket.if_nametoindex("lo"), up=True)
        self._netlink.add_bridge(_BRIDGE)
        self.bridge = socket.if_nametoindex(_BRIDGE)
        self._netlink.add_address(self.bridge, BRIDGE_ADDRESS, PREFIX_LENGTH)
        self._netlink.set_link(self.bridge, up=True)

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
