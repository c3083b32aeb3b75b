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


@pytest.mark.parametrize("profile", ["none", "of-another-release"])
def test_without_a_profile_nothing_is_needed(profile: str) -> None:
    assert problems(profile, {"environ": {}}, 2) == []


@pytest.mark.parametrize("profile", GOOD)
def test_one_pod_alone_needs_no_fabric(profile: str) -> None:
    assert problems(profile, {"environ": {}}, 1) == []


@pytest.mark.parametrize("profile", GOOD)
def test_a_pod_that_knows_nothing_is_told_all_of_it(profile: str) -> None:
    said = problems(profile, {"environ": {}, "problems": {"libraries": "not found out within 30 s"}}, 2)
    assert said and all(": " in sentence for sentence in said)
    assert profile == "a4-deepep" or any("not found out within 30 s" in sentence for sentence in said)


def nic(name: str, **changes: Any) -> Callable[[Nested], None]:
    def change(inventory: Nested) -> None:
        next(nic for nic in inventory["nics"] if nic["name"] == name).update(changes)

    return change


def mig(inventory: Nested) -> None:
    for index in (2, 5):
        inventory["gpus"]["devices"][index]["mig"] = True


def no_nvml(inventory: Nested) -> None:
    inventory["gpus"].update(devices=[], problem="NVML did not answer within 25 s")


def without_nics(*names: str) -> Callable[[Nested], None]:
    return lambda found: found.update(nics=[nic for nic in found["nics"] if nic["name"] not in names])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda found: found["gpus"].update(files=4), ["/dev has 4 of the 8 GPUs", "nvidia.com/gpu: 8"]),
        (lambda found: found["gpus"].update(driver="525.105.17"), ["driver 525.105.17", "535 or later"]),
        (mig, ["MIG is on", "GPUs 2 and 5"]),
        (no_nvml, ["NVML did not answer within 25 s"]),
        (without_nics("eth3"), ["interface eth3 is not there (/sys/class/net)"]),
        (without_nics("eth2", "eth4"), ["interfaces eth2 and eth4 are not there"]),
        (nic("eth1", state="down"), ["interface eth1 is down"]),
        (nic("eth4", mtu=1460), ["MTU 8244, and eth4 has 1460 (/sys/class/net/…/mtu)", "--mtu=8244"]),
        (nic("eth4", mtu=None), ["eth4 has none"]),
        (
            lambda found: found.update(socket={"directory": "/tmp", "there": False, "waited": 60.0}),
            ["no socket of the TCPX daemon in /tmp, after 60 s", "tcpx-daemon"],
        ),
        (
            lambda found: found["libraries"]["libnccl.so.2"].update(path="/usr/lib/x86_64-linux-gnu/libnccl.so.2"),
            ["NCCL 2.28.9 is loaded from /usr/lib/x86_64-linux-gnu/libnccl.so.2", "/usr/local/nvidia/lib64"],
        ),
        (
            lambda found: found["libraries"].update({"libnccl.so.2": {"problem": "no such file"}}),
            ["libnccl.so.2 cannot be loaded (no such file)", "LD_LIBRARY_PATH=/usr/local/nvidia/lib64"],
        ),
    ],
)
def test_what_tcpx_needs(spoil: Callable[[Nested], None], words: list[str]) -> None:
    check("a3-tcpx", spoil, words)


def test_tcpx_over_other_interfaces() -> None:
    inventory = of_tcpx()
    inventory["environ"]["NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"] = "eth1,eth2"
    without_nics("eth3", "eth4")(inventory)
    assert problems("a3-tcpx", inventory, 2) == []


def test_a_newer_driver_and_an_interface_without_a_state_are_good() -> None:
    inventory = of_tcpx()
    inventory["gpus"]["driver"] = "1000.1"
    nic("eth1", state="unknown")(inventory)
    assert problems("a3-tcpx", inventory, 2) == []


def port_down(inventory: Nested) -> None:
    inventory["rdma"][5]["ports"][0]["state"] = "DOWN"


def no_gid(index: int) -> Callable[[Nested], None]:
    return lambda found: found["rdma"][index]["ports"][0]["gids"].pop()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda found: found["files"].update({"/usr/local/gib/lib64/libnccl-net.so": False}),
            ["gIB is not installed", "/usr/local/gib/lib64/libnccl-net.so is not there", "init container"],
        ),
        (lambda found: found["rdma"].pop(3), ["7 active RDMA NICs in /sys/class/infiniband", "there must be 8"]),
        (port_down, ["7 active RDMA NICs", "mlx5_5 is not active"]),
        (lambda found: found.update(rdma=[]), ["0 active RDMA NICs", "(none)"]),
        (no_gid(2), ["GID 3 of mlx5_2 is no RoCE v2", "NCCL_IB_GID_INDEX another index"]),
        (
            lambda found: found["environ"].update(NCCL_IB_GID_INDEX="1"),
            ["GID 1 of mlx5_0, mlx5_1,", "mlx5_6 and mlx5_7 is no RoCE v2 address with IPv4"],
        ),
        (lambda found: found["environ"].update(NCCL_IB_GID_INDEX="2"), ["GID 2 of mlx5_0,"]),
        (
            lambda found: found["libraries"]["libnccl-net.so"].update(path="/opt/hpcx/lib/libnccl-net.so"),
            ["the plugin /opt/hpcx/lib/libnccl-net.so, not that of /usr/local/gib/lib64", "LD_LIBRARY_PATH="],
        ),
        (
            lambda found: found["libraries"].update({"libnccl-net.so": {"problem": "libibverbs.so.1: not found"}}),
            ["libnccl-net.so cannot be loaded (libibverbs.so.1: not found)"],
        ),
    ],
)
def test_what_gib_needs(spoil: Callable[[Nested], None], words: list[str]) -> None:
    check("a4-gib", spoil, words)


@pytest.mark.parametrize("profile", ["a4-gib", "a4-deepep"])
def test_a4x_is_refused_in_one_sentence(profile: str) -> None:
    inventory = GOOD[profile]()
    inventory["rdma"][4:] = []
    for device in inventory["gpus"]["devices"]:
        device["model"] = "NVIDIA GB200"
    (said,) = problems(profile, inventory, 2)
    assert said.startswith("nodes with NVIDIA GB200 (A4X) are not supported: ")


def environ(**changes: str) -> Callable[[Nested], None]:
    return lambda found: found["environ"].update(changes)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (environ(DEEP_EP_DEVICE_TO_HCA_MAPPING=""), ["DEEP_EP_DEVICE_TO_HCA_MAPPING is not set", "0:mlx5_0:1"]),
        (environ(DEEP_EP_DEVICE_TO_HCA_MAPPING=NIC_MAP[:-11]), ["no NIC for GPU 7:"]),
        (lambda found: found["rdma"].pop(3), ["names mlx5_3, and /sys/class/infiniband has mlx5_0,", "and mlx5_7"]),
        (no_gid(7), ["GID 3 of mlx5_7", "NVSHMEM_IB_GID_INDEX"]),
        (environ(LD_PRELOAD=""), ["LD_PRELOAD names no libnvshmem_host"]),
        (environ(LD_PRELOAD="/lib/libjemalloc.so.2"), ["LD_PRELOAD names no libnvshmem_host"]),
        (
            lambda found: found["libraries"].update({PRELOAD: {"problem": "no such file"}}),
            [f"{PRELOAD}, which LD_PRELOAD names, cannot be loaded (no such file)"],
        ),
    ],
)
def test_what_deepep_needs(spoil: Callable[[Nested], None], words: list[str]) -> None:
    check("a4-deepep", spoil, words)


def check(profile: str, spoil: Callable[[Nested], None], words: list[str]) -> None:
    """One thing is wrong and is said in one sentence."""
    inventory = copy.deepcopy(GOOD[profile]())
    spoil(inventory)
    (said,) = problems(profile, inventory, 2)
    assert [word for word in words if word not in said] == [], said


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
