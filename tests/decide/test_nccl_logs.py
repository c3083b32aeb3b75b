from __future__ import annotations

import pytest

from agent import wire
from agent.workloads.nccl_logs import (
    MOST_WARNINGS,
    Transport,
    described,
    is_expected,
    transport,
    uneven,
    version,
    warnings,
    wrong_networks,
)


def log(*lines: str) -> str:
    """Lines as NCCL writes them: host, process, thread, device."""
    return "".join(f"node-0:77:{number} [0] {line}\n" for number, line in enumerate(lines, 90))


GIB = log(
    "NCCL INFO NCCL version 2.28.9+cuda13.0",
    "NCCL INFO NET/gIB : Initializing gIB v1.1.1",
    "NCCL INFO NET/gIB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [2]mlx5_2:1/RoCE [3]mlx5_3:1/RoCE [RO]; OOB eth0",
    "NCCL INFO Initialized NET plugin gIB",
    "NCCL INFO Assigned NET plugin gIB to comm",
    "NCCL INFO Using network gIB",
    "NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/gIB/0/GDRDMA",
    "NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/gIB/1(8)/GDRDMA(PCI)/Shared",
    "NCCL INFO Channel 02/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "NCCL INFO 16 coll channels, 16 collnet channels, 16 nvls channels, 32 p2p channels, 2 p2p channels per peer",
)
SOCKETS = log(
    "NCCL INFO NET/Plugin: Could not find: libnccl-net.so",
    "NCCL INFO NET/IB : No device found.",
    "NCCL INFO NET/Socket : Using [0]eth0:10.0.4.51<0> [1]eth1:10.1.4.51<0>",
    "NCCL INFO Using network Socket",
    "NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",
    "NCCL INFO 2 coll channels, 0 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer",
)
TCPX = log(
    "NCCL INFO Using network GPUDirectTCPX_v7",
    "NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/GPUDirectTCPX_v7/3/GDRDMA",
)
# Releases before 2.6 list every network that is there, and name the one that they use in its connections alone.
OF_2_4 = log(
    "NCCL INFO NET/Socket : Using [0]ib0:192.168.11.1<0>",
    "NCCL INFO NET/Plugin : No plugin found (libnccl-net.so).",
    "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB ib0:192.168.11.1<0>",
    "NCCL INFO Ring 00 : 7 -> 0 [receive] via NET/IB/0/GDRDMA",
    "NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/IPC",
)
OF_2_7 = log(
    "NCCL INFO NET/IB : Using [0]mlx5_8:1/IB [1]mlx5_9:1/IB ; OOB ib8:192.168.1.8<0>",
    "NCCL INFO Using network IB",
    "NCCL INFO Channel 00 : 7[c7000] -> 0[87000] [receive] via NET/IB/1",
    "NCCL INFO 8 coll channels, 8 p2p channels, 1 p2p channels per peer",
)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([GIB], Transport(("gIB",), 4, 2, 16, True)),
        ([GIB, GIB], Transport(("gIB",), 4, 2, 16, True)),
        ([SOCKETS], Transport(("Socket",), 2, 1, 2, False)),
        ([TCPX], Transport(("GPUDirectTCPX_v7",), 0, 1, 0, True)),
        ([OF_2_4], Transport(("IB",), 2, 1, 0, True)),
        ([OF_2_7], Transport(("IB",), 2, 1, 8, False)),
        ([GIB, SOCKETS], Transport(("gIB", "Socket"), 4, 3, 16, False)),
        ([log("NCCL INFO Using network AWS Libfabric")], Transport(("AWS Libfabric",))),
        (["[2026-01-01 00:00:00] " + log("NCCL INFO Using network IB")], Transport(("IB",))),
        (["", "no log at all\n"], Transport()),
    ],
)
def test_what_was_used(texts: list[str], expected: Transport) -> None:
    found = transport(texts)
    assert found == expected
    assert wire.from_json(Transport, wire.to_json(found)) == found


def test_version() -> None:
    assert (version(["", GIB]), version([SOCKETS])) == ("2.28.9", "")


@pytest.mark.parametrize(
    ("profile", "network", "good"),
    [
        ("a4-gib", "gIB", True),
        ("a4-gib", "gib_v2", True),
        ("a4-deepep", "gIB", True),
        ("a4-gib", "Socket", False),
        ("a4-gib", "IB", False),
        ("a3-tcpx", "GPUDirectTCPX_v7", True),
        ("a3-tcpx", "Socket", False),
        ("none", "Socket", True),
        ("", "IB", True),
    ],
)
def test_the_network_of_a_profile(profile: str, network: str, good: bool) -> None:
    assert is_expected(profile, network) == good
    if profile.startswith("a"):
        assert (wrong_networks(profile, {0: Transport((network,))}, "all_reduce") == []) == good


def test_pods_with_another_network_are_named() -> None:
    of_pods = {0: Transport(("gIB",)), 1: Transport(("Socket",)), 2: Transport(("Socket", "gIB")), 3: Transport()}
    assert wrong_networks("a4-gib", of_pods, "all_reduce") == [
        "profile a4-gib expects NCCL's network gIB, but all_reduce went over Socket on pods 1-2"
    ]


def test_in_words() -> None:
    assert described([transport([GIB])]) == "gIB (4 NICs found, 2 NICs used, 16 channels, GPUDirect)"
    one, other = Transport(("gIB",), 8, 8, 16, True), Transport(("gIB",), 7, 7, 14, False)
    assert (
        described([one, other])
        == "gIB (7 to 8 NICs found, 7 to 8 NICs used, 14 to 16 channels, GPUDirect on some pods only)"
    )
    assert described([transport([TCPX])]) == "GPUDirectTCPX_v7 (1 NICs used, 0 channels, GPUDirect)"
    assert described([Transport()]) == described([]) == ""
    assert uneven({0: one, 1: other}) == ["pod 1 has 7 NICs, others 8"]
    assert uneven({0: one, 1: one}) == uneven({}) == []


def test_warnings_come_back_once_each() -> None:
    odd = log("misc/socket.cc:484 NCCL WARN socketStartConnect: Connect failed")
    later = "\n[2026-02-03 12:30:01] node-0:77:99 [0] misc/socket.cc:484 (connectOnce) NCCL WARN Connect failed\n"
    assert warnings([later]) == ["Connect failed"]
    assert warnings([odd, odd + SOCKETS, GIB]) == ["socketStartConnect: Connect failed (2 times)"]
    many = log(*(f"NCCL WARN {number}" for number in range(MOST_WARNINGS + 5)))
    assert warnings([many])[-1] == "… and 5 others" and len(warnings([many])) == MOST_WARNINGS + 1
