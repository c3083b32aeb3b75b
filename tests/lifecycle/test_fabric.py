"""Runs over a fabric are refused where it cannot be used; what pods have is told and kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fabrics import of_tcpx
from tests.fake.pod import DIR, INVENTORY
from tests.fake.world import FakeWorld
from tests.lifecycle.test_submitted import printed, sleeping

TCPX = {"A4_PROFILE": "a3-tcpx"}


def tcpx_world(pods: int, workload: str, **spoil: Any) -> FakeWorld:
    """Pods with TCPX, of which the last has these other things."""
    world = FakeWorld(pods, workload, TCPX, inventory={**INVENTORY, **of_tcpx()})
    world.pod(pods - 1).inventory = {**INVENTORY, **of_tcpx(), **spoil}
    return world


def refused(world: FakeWorld) -> bool:
    world.run()
    said = [pod.said() for pod in world.pods]
    assert len({(end["code"], end["what"]) for end in said}) == 1, world.dump()
    return said[0]["code"] == 78 and "fabric profile" in said[0]["what"]


def test_a_fabric_that_cannot_be_used() -> None:
    socket = {"directory": "/run/tcpx", "there": False, "waited": 60.0}
    world = tcpx_world(4, "ddp", socket=socket, nics=[{**nic, "mtu": 8244} for nic in of_tcpx()["nics"][:4]])
    assert refused(world), world.dump()
    for pod in world.pods:
        end = pod.said()
        assert end["what"] == "the fabric profile a3-tcpx cannot be used on 1 of 4 pods"
        first, second, hint = end["why"].splitlines()
        assert first.startswith(f"{world.pod(3).where}: interface eth4 is missing")
        assert second.startswith(f"{world.pod(3).where}: no socket of the TCPX daemon in /run/tcpx, after 60 s")
        assert "--exclude" in hint and "A4_PROFILE=none" in hint
        assert not pod.workloads()


def test_a_fabric_that_can_be_used() -> None:
    assert not refused(tcpx_world(3, "ddp"))


@pytest.mark.parametrize(("pods", "workload"), [(1, "ddp"), (3, "script"), (3, "connectivity"), (3, "none")])
def test_what_does_not_use_the_fabric_is_not_refused(pods: int, workload: str) -> None:
    assert not refused(tcpx_world(pods, workload, socket={}))


def test_without_the_profile_nothing_is_refused() -> None:
    world = tcpx_world(2, "ddp", socket={})
    world.env["A4_PROFILE"] = "none"
    assert not refused(world)


LACKS = ["ncclCommInitRankScalable", "ncclCommWindowRegister"]
TORCH = {"version": "2.8.0a0", "nccl": {**of_tcpx()["libraries"]["libnccl.so.2"], "version": "2.19.4", "lacks": LACKS}}


@pytest.mark.parametrize(("pods", "workload"), [(1, "ddp"), (3, "ddp"), (3, "collectives")])
def test_a_torch_that_cannot_be_imported(pods: int, workload: str) -> None:
    world = tcpx_world(pods, workload, torch=TORCH)
    world.run()
    for pod in world.pods:
        end = pod.said()
        assert (end["code"], end["what"]) == (
            78,
            f"torch and the NCCL that it loads are incompatible on 1 of {pods} pods",
        )
        first, hint = end["why"].splitlines()
        assert first.startswith(f"{world.pod(pods - 1).where}: torch 2.8.0a0 needs NCCL 2.27 or later")
        assert "docs/images.md" in hint
        assert not pod.workloads()


@pytest.mark.parametrize("workload", ["script", "connectivity"])
def test_what_does_not_import_torch_is_not_asked_for_its_nccl(workload: str) -> None:
    world = tcpx_world(1, workload, torch=TORCH)
    world.run()
    assert world.pod(0).workloads(), world.dump()


def test_facts_hold_the_inventory_once_it_is_there() -> None:
    world = tcpx_world(2, "script", socket={})
    world.pod(1).inventory_seconds = 5
    world.until_event("plan-ready")
    assert json.loads(world.pod(1).files_now[DIR.facts])["inventory"] is None
    world.run()
    for pod in world.pods:
        facts = json.loads(pod.files_now[DIR.facts])
        assert facts["nonce"] == "" and facts["index"] == pod.index
        assert facts["inventory"]["gpus"]["driver"] == "535.183.01"
        assert facts["inventory"]["profile"] == "a3-tcpx"
        assert facts["inventory"]["environ"]["NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX"] == "/run/tcpx"
        assert bool(facts["inventory"]["profile_problems"]) == (pod.index == 1)


@pytest.mark.parametrize(
    ("pods", "submitted", "refused"),
    [
        ({"NCCL_PROFILER_PLUGIN": "libcomma.so"}, {}, ""),
        ({"NCCL_PROFILER_PLUGIN": "libcomma.so", "NCCL_INSPECTOR_ENABLE": "1"}, {}, "libcomma.so"),
        ({"NCCL_TELEMETRY_MODE": "3"}, {"NCCL_INSPECTOR_ENABLE": "1"}, "NCCL_TELEMETRY_MODE=3"),
        ({"NCCL_TELEMETRY_MODE": "0"}, {"NCCL_PROFILER_PLUGIN": "libnccl-profiler-inspector.so"}, ""),
    ],
)
def test_two_profilers_of_nccl_are_refused(pods: dict[str, str], submitted: dict[str, str], refused: str) -> None:
    world = sleeping(2, pods)
    number = world.submit(1, "ddp", env=submitted)
    end = world.ask(0, "wait", run=number)["ok"]["end"]
    assert (end["code"] == 78) == bool(refused) and refused in end["what"], end
    assert not refused or printed(world, 1, number, 0) == b"", "who reads a run that never begins is answered"
