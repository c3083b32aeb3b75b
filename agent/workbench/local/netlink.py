"""rtnetlink: links, addresses and routes by a few messages instead of a process `ip` for each pod.

A netlink socket stays with the network namespace that it was opened in, wherever its process moves.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct

_RTM_NEWLINK, _RTM_DELLINK, _RTM_NEWADDR, _RTM_NEWROUTE, _RTM_NEWNEIGH = 16, 17, 20, 24, 28
_REQUEST, _ACK, _REPLACE, _EXCL, _CREATE = 0x1, 0x4, 0x100, 0x200, 0x400
_NLMSG_ERROR = 2
_IFF_UP = 1

_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 3, 10, 18, 28
_IFLA_INFO_KIND, _IFLA_INFO_DATA = 1, 2
_VETH_INFO_PEER = 1
_IFLA_BR_MCAST_SNOOPING = 23
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST = 1, 2, 4
_RTA_DST, _RTA_OIF, _RTA_GATEWAY = 1, 4, 5
_RTNH_F_ONLINK = 4
_NDA_DST, _NDA_LLADDR = 1, 2
_NUD_PERMANENT = 0x80
_RT_TABLE_MAIN, _RTPROT_BOOT, _RTN_UNICAST = 254, 3, 1


def _attribute(kind: int, value: bytes) -> bytes:
    size = 4 + len(value)
    return struct.pack("=HH", size, kind) + value + b"\0" * (-size % 4)


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, change)


def _link_kind(kind: str, data: bytes) -> bytes:
    return _attribute(_IFLA_LINKINFO, _text(_IFLA_INFO_KIND, kind) + _attribute(_IFLA_INFO_DATA, data))


class Netlink:
    """A conversation with the kernel about the network namespace in which it was opened."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))

    def close(self) -> None:
        self._socket.close()

    def _ask(self, kind: int, flags: int, body: bytes, what: str) -> None:
        """Send one request and wait for the kernel to confirm it. Raises OSError with `what` in it."""
        header = struct.pack("=IHHII", 16 + len(body), kind, flags | _REQUEST | _ACK, 1, 0)
        self._socket.send(header + body)
        answer = self._socket.recv(65536)
        _, answer_kind, _, _, _, error = struct.unpack_from("=IHHIIi", answer)
        if answer_kind == _NLMSG_ERROR and error:
            raise OSError(-error, f"{what}: {os.strerror(-error)}")

    def add_bridge(self, name: str, hardware: bytes) -> None:
        """A bridge that floods multicast: with only broadcasts to carry, learning groups costs time.

        Its hardware address is given: else it is the lowest of all its ports', changes with each new
        port, and pods that know the old one are cut off until they ask again, some 40 s later.
        """
        data = _attribute(_IFLA_BR_MCAST_SNOOPING, b"\0")
        body = _link() + _attribute(_IFLA_ADDRESS, hardware) + _text(_IFLA_IFNAME, name)
        body += _link_kind("bridge", data)
        self._ask(_RTM_NEWLINK, _CREATE | _EXCL, body, f"bridge {name}")

    def add_veth(self, name: str, bridge: int, peer: str, peer_namespace: int) -> None:
        """A cable: `name` here, up and plugged into `bridge`, the end `peer` in the other namespace."""
        other = _link() + _text(_IFLA_IFNAME, peer) + _number(_IFLA_NET_NS_FD, peer_namespace)
        body = _link(flags=_IFF_UP, change=_IFF_UP) + _text(_IFLA_IFNAME, name) + _number(_IFLA_MASTER, bridge)
        body += _link_kind("veth", _attribute(_VETH_INFO_PEER, other))
        self._ask(_RTM_NEWLINK, _CREATE | _EXCL, body, f"veth {name}")

    def set_link(self, index: int, up: bool) -> None:
        self._ask(_RTM_NEWLINK, 0, _link(index, _IFF_UP if up else 0, _IFF_UP), f"link {index}")

    def remove_link(self, index: int) -> None:
        self._ask(_RTM_DELLINK, 0, _link(index), f"link {index}")

    def add_address(self, link: int, address: str, prefix: int) -> None:
        raw = socket.inet_aton(address)
        last = (int.from_bytes(raw, "big") | (1 << (32 - prefix)) - 1).to_bytes(4, "big")
        body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, link)
        body += _attribute(_IFA_LOCAL, raw) + _attribute(_IFA_ADDRESS, raw) + _attribute(_IFA_BROADCAST, last)
        self._ask(_RTM_NEWADDR, _CREATE | _EXCL, body, f"address {address}")

    def add_route(self, gateway: str, link: int, prefix: int) -> None:
        """Send what goes to this prefix of the gateway's address, 0 for everything, through `gateway`, which is on
        `link` although no address range says so."""
        body = struct.pack(
            "=BBBBBBBBI", socket.AF_INET, prefix, 0, 0, _RT_TABLE_MAIN, _RTPROT_BOOT, 0, _RTN_UNICAST, _RTNH_F_ONLINK
        )
        network = ipaddress.IPv4Network((gateway, prefix), strict=False).network_address
        body += _attribute(_RTA_DST, network.packed) + _attribute(_RTA_GATEWAY, socket.inet_aton(gateway))
        body += _number(_RTA_OIF, link)
        self._ask(_RTM_NEWROUTE, _CREATE | _EXCL, body, f"route through {gateway}")

    def add_neighbour(self, link: int, address: str, hardware: bytes) -> None:
        """A fixed hardware address, so that nobody asks for it."""
        body = struct.pack("=BxHiHBB", socket.AF_INET, 0, link, _NUD_PERMANENT, 0, 0)
        body += _attribute(_NDA_DST, socket.inet_aton(address)) + _attribute(_NDA_LLADDR, hardware)
        self._ask(_RTM_NEWNEIGH, _CREATE | _REPLACE, body, f"neighbour {address}")
