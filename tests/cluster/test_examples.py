"""What examples/ has, run in local clusters. The values file is rendered in tests/chart."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cluster.conftest import Start, all_codes
from tests.cluster.work import agent, hostnames, sleeping

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> bytes:
    return (EXAMPLES / name).read_bytes()


def test_training_and_mpi(start: Start, torch: Path) -> None:
    files = {f"/job/{name}": example(name) for name in ("train.py", "hello_mpi.py")}
    trial = sleeping(start, 2, gpus_per_pod=2, env={"A4_PYTHON": str(torch)}, files=files)

    trained = agent(
        trial, 1, "torchrun", "--", "train.py", "--steps", "12", "--checkpoint", "/mnt/model.pt", cwd="/job"
    )
    assert trained.returncode == 0, trained
    *steps, last = trained.stdout.splitlines()
    assert [line.partition(": ")[0] for line in steps] == ["step 10 of 12", "step 12 of 12"]
    assert last == "trained on 4 ranks"
    assert trial.cluster.read_bytes(0, ["/mnt/model.pt"])["/mnt/model.pt"]

    hello = agent(trial, 1, "mpirun", "--", sys.executable, "hello_mpi.py", cwd="/job")
    nodes = [node for node in hostnames(trial, 0, 1) for _ in range(2)]
    wanted = [f"hello from rank {rank} of 4 on {node}" for rank, node in enumerate(nodes)]
    assert (hello.returncode, sorted(hello.stdout.splitlines())) == (0, [*wanted, "the ranks add up to 6"]), hello


def test_a_script_on_every_pod(start: Start) -> None:
    trial = start(2, arguments=("script",), script=example("task-script.sh").decode())
    all_codes(trial, 0)
    names = [trial.cluster.spec.pod_name(index) for index in range(2)]
    for index, further in (
        (0, ["the pods in order of their places:", *(f"{name} slots=1" for name in names)]),
        (1, []),
    ):
        first = f"pod {index} is node rank {index} of 2 and meets the others at {names[0]}:6002"
        assert trial.cluster.logs(index, "out").splitlines() == [first, *further]
