"""Pods that differ where they must not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.differences import compare
from agent.decide.facts import Facts

MPI = {"mpirun": "/usr/bin/mpirun", "mpirun_version_text": "mpirun (Open MPI) 4.1.4\n"}


def pod(index: int, **changes: Any) -> Facts:
    facts = Facts(index, f"nonce-{index}", "1.0", f"node-{index}", f"10.0.0.{index}", "eth0", 8, 8)
    return facts._replace(addresses={"eth0": facts.address, "gpu0rdma0": f"10.1.0.{index}"})._replace(**changes)


def pods(count: int, changes: Mapping[int, Mapping[str, Any]]) -> dict[int, Facts]:
    return {index: pod(index, **changes.get(index, {})) for index in range(count)}


def all_alike(count: int) -> dict[int, Mapping[str, str]]:
    return dict.fromkeys(range(count), MPI)


@pytest.mark.parametrize("kind", ["nothing", "everywhere", "mpi"])
def test_pods_that_are_alike(kind: str) -> None:
    found = compare(pods(4, {}), all_alike(4), kind)
    assert (found.odd, found.table, found.sentence, found.warning) == ({}, "", "", "")


@pytest.mark.parametrize(
    ("changes", "what", "usual", "cell"),
    [
        ({2: {"slots": 4}}, "GPUS_PER_NODE", "8", "4 on pod 2"),
        ({3: {"gpus": 7}}, "GPUs that it can open", "8", "7 on pod 3"),
        ({1: {"version": "0.9"}, 3: {"version": "0.8"}}, "a4-agent", "1.0", "0.9 on pod 1, 0.8 on pod 3"),
        ({1: {"interface": "ens5"}}, "interface for MPI", "eth0", "ens5 on pod 1"),
        ({1: {"addresses": {"eth0": "10.0.0.1"}}}, "interfaces with IPv4", "eth0 gpu0rdma0", "eth0 on pod 1"),
        ({1: {"address": "10.0.0.3"}}, "pod address", "one each", "10.0.0.3 on pods 1,3"),
    ],
)
def test_one_odd_thing(changes: Mapping[int, Mapping[str, Any]], what: str, usual: str, cell: str) -> None:
    found = compare(pods(5, changes), all_alike(5), "mpi")
    header, row, *more = found.table.splitlines()
    assert header.split() == ["what", "most", "pods", "odd", "pods"]
    assert row.split() == f"{what} {usual} {cell}".split() and not more
    assert set(found.odd) == (set(changes) if what != "pod address" else {1, 3})
    assert all(things == [what] for things in found.odd.values())
    assert found.sentence.startswith("pods differ where they must not: pod") and what in found.sentence


def test_pods_that_are_odd_in_the_same_are_named_together() -> None:
    found = compare(pods(6, {1: {"slots": 4}, 2: {"slots": 4}, 5: {"slots": 2, "gpus": 2}}), {}, "everywhere")
    assert found.sentence == (
        "pods differ where they must not: pods 1-2 in GPUS_PER_NODE; pod 5 in GPUS_PER_NODE, GPUs that it can open"
    )
    assert len(found.table.splitlines()) == 3


def test_of_equal_numbers_the_lowest_index_is_normal() -> None:
    assert set(compare(pods(2, {0: {"slots": 4}}), {}, "everywhere").odd) == {1}
    assert set(compare(pods(4, {1: {"slots": 4}, 2: {"slots": 4}}), {}, "everywhere").odd) == {1, 2}
    three = pods(5, {0: {"slots": 1}, 1: {"slots": 2}, 2: {"slots": 2}})
    assert set(compare(three, {}, "everywhere").odd) == {0, 3, 4}, "0 has neither of the two that most have"


@pytest.mark.parametrize(
    ("inventory", "what", "odd"),
    [
        ({**MPI, "mpirun_version_text": "mpirun (Open MPI) 5.0.8"}, ["Open MPI"], "5.0.8 on pod 2"),
        ({**MPI, "mpirun": "/opt/hpcx/bin/mpirun"}, ["mpirun"], "/opt/hpcx/bin/mpirun on pod 2"),
        ({**MPI, "mpirun_version_text": "HYDRA build details"}, ["Open MPI"], "none on pod 2"),
        ({"mpirun_problem": "mpirun is not on PATH (/bin)"}, ["Open MPI", "mpirun"], "none on pod 2"),
    ],
)
def test_another_mpirun_matters_to_mpi_runs_only(inventory: Mapping[str, str], what: list[str], odd: str) -> None:
    inventories = {**all_alike(4), 2: inventory}
    found = compare(pods(4, {}), inventories, "mpi")
    assert found.odd == {2: what} and odd in found.table
    assert not compare(pods(4, {}), inventories, "everywhere").odd


def test_what_is_not_known_is_a_warning_only() -> None:
    found = compare(pods(4, {}), {0: MPI, 1: MPI}, "mpi")
    assert not found.odd
    assert found.warning == (
        "not compared, because it is not known: pods 2-3 in Open MPI, mpirun, GPU model, MIG, NVIDIA driver, NCCL, "
        "fabric profile, MTU, memory that can be locked"
    )
    assert not compare(pods(4, {}), {}, "nothing").warning, "nothing of it matters there"


def test_what_could_not_be_had_on_one_pod_is_a_warning_only() -> None:
    gpus = {**MPI, "gpus": "8 × NVIDIA B200", "driver": "580.95.05"}
    found = compare(pods(3, {}), {0: gpus, 1: {**MPI, "gpus_problem": "NVML did not answer"}, 2: gpus}, "everywhere")
    assert not found.odd
    assert found.warning == "not compared, because it is not known: pod 1 in GPU model, MIG, NVIDIA driver"


@pytest.mark.parametrize(
    ("name", "usual", "odd", "what"),
    [
        ("gpus", "8 × NVIDIA B200", "7 × NVIDIA B200", "GPU model"),
        ("driver", "580.95.05", "570.133.20", "NVIDIA driver"),
        ("mig", "", "on", "MIG"),
        ("nccl", "2.28.9 at /gib/libnccl.so.2", "2.27.3 at /gib/libnccl.so.2", "NCCL"),
        ("nccl_torch", "2.28.9 at /torch/libnccl.so.2", "2.27.3 at /torch/libnccl.so.2", "NCCL"),
        ("torch", "2.9.0", "2.8.0", "torch"),
        ("torch", "2.9.0", "", "torch"),
        ("profile", "a4-gib", "none", "fabric profile"),
        ("mtu", "eth0 1460, eth1 8244", "eth0 1460, eth1 1460", "MTU"),
        ("memlock", "unlimited", "64 KiB", "memory that can be locked"),
    ],
)
def test_what_a_pod_says_of_its_gpus_and_its_network(name: str, usual: str, odd: str, what: str) -> None:
    inventories = {
        index: {**MPI, **({name: value} if value else {})} for index, value in enumerate([usual, odd, usual])
    }
    found = compare(pods(3, {}), inventories, "everywhere")
    assert found.odd == {1: [what]} and not found.warning
    assert not compare(pods(3, {}), inventories, "nothing").odd
    assert bool(compare(pods(3, {}), inventories, "mpi").odd) == (what != "torch")


def test_what_may_differ() -> None:
    """Where NCCL lies, what no pod could find out, and interfaces that a node makes for its pods."""
    addresses = {"eth0": "10.0.0.1", "gpu0rdma0": "10.1.0.1", "docker0": "172.17.0.1", "gke0123456789a": "10.4.0.1"}
    known = {
        index: {**MPI, "nccl": f"2.28.9 at /{index}/libnccl.so.2", "torch_problem": "no python3"} for index in range(3)
    }
    found = compare(pods(3, {1: {"addresses": addresses}}), known, "everywhere")
    assert not found.odd and not found.warning


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=20))
def test_what_most_pods_have_is_never_odd(versions: list[str]) -> None:
    found = compare({i: pod(i, version=version) for i, version in enumerate(versions)}, {}, "everywhere")
    normal = {versions[i] for i in range(len(versions)) if i not in found.odd}
    assert len(normal) == 1
    assert versions.count(normal.pop()) == max(map(versions.count, versions))
