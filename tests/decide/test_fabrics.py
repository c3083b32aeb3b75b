"""What a fabric profile needs of a pod."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from agent.fabrics import needs, problems
from agent.fabrics.fabric import plugin
from tests.fabrics import GOOD, NIC_MAP, PRELOAD, Nested, of_tcpx


@pytest.mark.parametrize("profile", GOOD)
def test_nothing_is_wrong_with_a_good_pod(profile: str) -> None:
    assert problems(profile, GOOD[profile](), 2) == []


@pytest.mark.parametrize(
    ("profile", "pods"), [("none", 2), ("of-another-release", 2), *((profile, 1) for profile in GOOD)]
)
def test_without_a_profile_and_on_one_pod_nothing_is_needed(profile: str, pods: int) -> None:
    assert problems(profile, {"environ": {}}, pods) == []


@pytest.mark.parametrize("profile", GOOD)
def test_a_pod_that_knows_nothing_is_told_all_of_it(profile: str) -> None:
    said = problems(profile, {"environ": {}, "problems": {"libraries": "not found out within 30 s"}}, 2)
    assert said and all(": " in sentence for sentence in said)
    assert profile == "a4-deepep" or any("not found out within 30 s" in sentence for sentence in said)


MAPPING = "DEEP_EP_DEVICE_TO_HCA_MAPPING"
Spoil = Callable[[Nested], Any]


def at(*path: str | int, **changes: Any) -> Spoil:
    """What lies there in the inventory has these values."""

    def change(inventory: Nested) -> None:
        inside: Any = inventory
        for part in path:
            inside = inside[part]
        inside.update(changes)

    return change


def lib(name: str, **found: str) -> Spoil:
    return lambda inventory: inventory["libraries"].update({name: found})


def no_gid(index: int) -> Spoil:
    return lambda found: found["rdma"][index]["ports"][0]["gids"].pop()


def without_nics(*names: str) -> Spoil:
    return lambda found: found.update(nics=[nic for nic in found["nics"] if nic["name"] not in names])


NO_GIB = {"/usr/local/gib/lib64/libnccl-net.so": False}


@pytest.mark.parametrize(
    ("profile", "spoil", "words"),
    [
        ("a3-tcpx", at("gpus", files=4), ["/dev has 4 of the 8 GPUs", "nvidia.com/gpu: 8"]),
        ("a3-tcpx", at("gpus", driver="525.105.17"), ["driver 525.105.17", "535 or later"]),
        ("a3-tcpx", at("gpus", "devices", 5, mig=True), ["MIG is on", "GPU 5"]),
        ("a3-tcpx", at("gpus", devices=[], problem="NVML did not answer"), ["NVML did not answer"]),
        ("a3-tcpx", without_nics("eth3"), ["interface eth3 is missing (/sys/class/net)"]),
        ("a3-tcpx", without_nics("eth2", "eth4"), ["interfaces eth2 and eth4 are missing"]),
        ("a3-tcpx", at("nics", 1, state="down"), ["interface eth1 is down"]),
        ("a3-tcpx", at("nics", 4, mtu=1460), ["8244, and eth4 has 1460 (/sys/class/net/…/mtu)", "--mtu=8244"]),
        ("a3-tcpx", at("nics", 4, mtu=None), ["eth4 has none"]),
        (
            "a3-tcpx",
            at(socket={"directory": "/tmp", "there": False, "waited": 60.0}),
            ["no socket of the TCPX daemon in /tmp, after 60 s", "tcpx-daemon"],
        ),
        (
            "a3-tcpx",
            lib("libnccl.so.2", path="/usr/lib/libnccl.so.2", version="2.28.9"),
            ["NCCL 2.28.9 is loaded from /usr/lib/libnccl.so.2", "/usr/local/nvidia/lib64"],
        ),
        (
            "a3-tcpx",
            lib("libnccl.so.2", problem="no such file"),
            ["libnccl.so.2 cannot be loaded (no such file)", "LD_LIBRARY_PATH=/usr/local/nvidia/lib64"],
        ),
        ("a4-gib", at("files", **NO_GIB), ["gIB is not installed", f"{next(iter(NO_GIB))} is missing", "init"]),
        ("a4-gib", lambda found: found["rdma"].pop(3), ["7 active RDMA NICs in /sys/class", "there must be 8"]),
        ("a4-gib", at("rdma", 5, "ports", 0, state="DOWN"), ["7 active RDMA NICs", "mlx5_5 is not active"]),
        ("a4-gib", at(rdma=[]), ["0 active RDMA NICs", "(none)"]),
        ("a4-gib", no_gid(2), ["GID 3 of mlx5_2 is no RoCE v2", "NCCL_IB_GID_INDEX another index"]),
        (
            "a4-gib",
            at("environ", NCCL_IB_GID_INDEX="1"),
            ["GID 1 of mlx5_0,", "no RoCE v2 address with IPv4"],
        ),
        ("a4-gib", at("environ", NCCL_IB_GID_INDEX="2"), ["GID 2 of mlx5_0,"]),
        (
            "a4-gib",
            lib("libnccl-net.so", path="/opt/hpcx/lib/libnccl-net.so"),
            ["the plugin /opt/hpcx/lib/libnccl-net.so, not that of /usr/local/gib/lib64", "LD_LIBRARY_PATH="],
        ),
        ("a4-gib", lib("libnccl-net.so", problem="not found"), ["libnccl-net.so cannot be loaded (not found)"]),
        ("a4-deepep", at("environ", DEEP_EP_DEVICE_TO_HCA_MAPPING=""), [f"{MAPPING} is not set", "0:mlx5_0:1"]),
        ("a4-deepep", at("environ", DEEP_EP_DEVICE_TO_HCA_MAPPING=NIC_MAP[:-11]), ["no NIC for GPU 7:"]),
        ("a4-deepep", lambda found: found["rdma"].pop(3), ["names mlx5_3, and /sys/", "has mlx5_0,", "and mlx5_7"]),
        ("a4-deepep", no_gid(7), ["GID 3 of mlx5_7", "NVSHMEM_IB_GID_INDEX"]),
        ("a4-deepep", at("environ", LD_PRELOAD=""), ["LD_PRELOAD names no libnvshmem_host"]),
        ("a4-deepep", at("environ", LD_PRELOAD="/lib/libjemalloc.so.2"), ["LD_PRELOAD names no libnvshmem_host"]),
        ("a4-deepep", lib(PRELOAD, problem="gone"), [f"{PRELOAD}, which LD_PRELOAD names, cannot be loaded (gone)"]),
    ],
)
def test_one_thing_is_wrong_and_is_said_in_one_sentence(profile: str, spoil: Spoil, words: list[str]) -> None:
    inventory = copy.deepcopy(GOOD[profile]())
    spoil(inventory)
    (said,) = problems(profile, inventory, 2)
    assert [word for word in words if word not in said] == [], said


@pytest.mark.parametrize(
    "changes",
    [
        [at("gpus", driver="1000.1"), at("nics", 1, state="unknown")],
        [at("environ", NCCL_GPUDIRECTTCPX_SOCKET_IFNAME="eth1,eth2"), without_nics("eth3", "eth4")],
    ],
    ids=["a newer driver and an interface without a state", "other interfaces"],
)
def test_what_is_good_for_tcpx(changes: list[Spoil]) -> None:
    inventory = of_tcpx()
    for change in changes:
        change(inventory)
    assert problems("a3-tcpx", inventory, 2) == []


@pytest.mark.parametrize("profile", ["a4-gib", "a4-deepep"])
def test_a4x_is_refused_in_one_sentence(profile: str) -> None:
    inventory = GOOD[profile]()
    inventory["rdma"][4:] = []
    for device in inventory["gpus"]["devices"]:
        device["model"] = "NVIDIA GB200"
    (said,) = problems(profile, inventory, 2)
    assert said.startswith("nodes with NVIDIA GB200 (A4X) are not supported: ")


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("", "libnccl-net.so"),
        ("gib", "libnccl-net-gib.so"),
        ("libnccl-net-x.so", "libnccl-net-x.so"),
        ("/opt/x/net.so.1", "/opt/x/net.so.1"),
    ],
)
def test_the_plugin_that_nccl_loads(wanted: str, name: str) -> None:
    assert plugin({"NCCL_NET_PLUGIN": wanted}) == name
    assert needs("a4-gib", {"NCCL_NET_PLUGIN": wanted}).libraries == ["libnccl.so.2", name]


def test_what_to_look_for() -> None:
    preloaded = {"LD_PRELOAD": f"/lib/libjemalloc.so.2:{PRELOAD}"}
    assert needs("a4-deepep", preloaded).libraries == ["libnccl.so.2", "libnccl-net.so", PRELOAD]
    assert needs("none", preloaded).libraries == ["libnccl.so.2", "libnccl-net.so"]
    assert needs("a4-gib", {"NCCL_TUNER_CONFIG_PATH": "/t"}).files == ["/usr/local/gib/lib64/libnccl-net.so", "/t"]
    assert needs("a4-gib", {"NCCL_PLUGIN_PATH": "/gib"}).files == ["/gib/libnccl-net.so"]
    assert needs("a3-tcpx", {}).files == ()
    assert needs("a3-tcpx", {}).socket_dir == "/run/tcpx"
    assert needs("a3-tcpx", {"NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": "/tmp"}).socket_dir == "/tmp"
    assert needs("a4-gib", {}).socket_dir == ""
