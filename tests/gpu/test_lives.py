"""A run that starts again on GPUs: their memory is free by then, or the log says who has it."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.conftest import RUN_DIR
from tests.cluster.work import agent, result
from tests.fake.world import USUAL
from tests.gpu.conftest import RUN_SECONDS, Cluster

HOLDS = """\
import os, sys, time, torch
kept = torch.empty(int(sys.argv[1]) << 30, dtype=torch.uint8, device="cuda").fill_(1)
torch.cuda.synchronize()
open(f"/tmp/holds-{os.environ.get('A4_LIFE', 'other')}", "w").close()
while not os.path.exists("/tmp/done"):
    time.sleep(0.1)
"""
LEASE = USUAL.lease


def test_memory_of_a_killed_rank_is_free_and_that_of_others_is_told(cluster: Cluster, torch_python: Path) -> None:
    files = {"/job/holds.py": HOLDS.encode()}
    trial = cluster(2, 1, files=files, lives=2)
    begun = agent(trial, 0, "run", "--detach", "script", "--", str(torch_python), "/job/holds.py", "40")
    assert begun.returncode == 0, begun
    for index in range(2):
        trial.until(index, "test -e /tmp/holds-1")

    trial.cluster.exec(1, ["pkill", "-KILL", "-f", "holds.py 40"])
    for index in range(2):
        trial.until(index, "test -e /tmp/holds-2")
    assert "in use" not in trial.log(), trial.log()

    with trial.cluster.popen(1, [str(torch_python), "/job/holds.py", "2"]) as other:
        trial.until(1, "test -e /tmp/holds-other")
        trial.cluster.exec(1, ["pkill", "-KILL", "-f", "holds.py 40"])
        for index in range(2):
            trial.until(index, "test -e /tmp/holds-3")
            trial.cluster.write(index, "/tmp/done", "")
        assert other.wait(RUN_SECONDS) == 0
    warned = [line for line in trial.log().splitlines() if f"in use after {LEASE / 2:g} s" in line]
    assert warned and all("MiB of GPU 0, by " in line for line in warned), trial.log()
    assert any(" python" in line.partition(", by ")[2] for line in warned), warned
    directory = f"{RUN_DIR}/runs/{begun.stdout.strip()}"
    trial.until(0, f"test -e {directory}/result.json")
    found = result(trial, directory)
    assert (found["verdict"]["code"], len(found["lives"])) == (0, 2), found
