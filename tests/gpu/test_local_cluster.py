"""Pods with real GPUs: what they see, that the agent runs on them, and that NCCL goes between them by sockets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster.work import hostnames, order
from tests.gpu.conftest import MULTICAST_OFF, Cluster, agent, python_in

PROGRAM = (Path(__file__).with_name("programs") / "all_reduce.py").read_bytes()
COUNT = "from agent.machine.resources import gpu_count; print(gpu_count())"
UUIDS = "from torch import cuda; print(*(cuda.get_device_properties(i).uuid for i in range(cuda.device_count())))"


def test_a_pod_has_its_own_gpus_only(cluster: Cluster, torch_python: Path) -> None:
    trial = cluster(2)
    uuids = [python_in(trial, index, torch_python, UUIDS).split() for index in range(2)]
    assert [len(found) for found in uuids] == [1, 1] and uuids[0] != uuids[1], uuids
    # As root, CUDA would have made the other device file by now.
    assert [python_in(trial, index, Path(sys.executable), COUNT) for index in range(2)] == ["1", "1"]


def test_multicast_stays_off_in_pods(cluster: Cluster) -> None:
    trial = cluster(1)
    shown = dict(line.split("=", 1) for line in trial.cluster.exec(0, ["env"]).stdout.splitlines() if "=" in line)
    assert MULTICAST_OFF.items() <= shown.items()


@pytest.mark.parametrize("pods", [1, 2])
def test_connectivity(cluster: Cluster, pods: int) -> None:
    done = agent(cluster(pods), pods - 1, "run", "connectivity")
    assert done.returncode == 0, done
    where = "1 rank on 1 pod" if pods == 1 else f"{pods} ranks on {pods} pods"
    assert f"connectivity of {where} " in done.stdout, done


@pytest.mark.parametrize(("pods", "gpus"), [(1, 1), (1, 2), (2, 1)])
def test_all_reduce_of_nccl(cluster: Cluster, pods: int, gpus: int) -> None:
    trial = cluster(pods, gpus, files={"/job/all_reduce.py": PROGRAM})
    done = agent(trial, pods - 1, "torchrun", "--", "/job/all_reduce.py")
    nodes = [node for node in hostnames(trial, *order(trial)) for _ in range(gpus)]
    total = float(2 ** len(nodes) - 1)
    wanted = [f"{rank} of {len(nodes)} on {node}: [{total}]" for rank, node in enumerate(nodes)]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, wanted), done
    notes = trial.cluster.read(0, "/tmp/nccl.log")
    assert ("via NET/Socket" in notes) == (pods > 1), notes
    assert "NVLS multicast support is available" not in notes, notes
