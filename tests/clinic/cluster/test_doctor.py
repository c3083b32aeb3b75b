"""`a4-agent doctor` on real pods: what differs, and beside a run."""

from __future__ import annotations

import json

from tests.cluster.conftest import Start
from tests.cluster.work import agent, following, read_until, sleeping


def test_pods_of_a_cluster(start: Start) -> None:
    trial = sleeping(start, 3, pod_env={2: {"NCCL_ALGO": "Ring"}})

    done = agent(trial, 1, "doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3 pods: 1 degraded\n") and done.stdout.count("degraded: ") == 1
    assert "degraded: NCCL variables: NCCL_ALGO=Ring on pod 2, " in done.stdout

    with following(trial, 0, "run", "script", "--", "sh", "-c", "echo here; exec sleep 1000") as (run, _):
        read_until(run.stdout, b"here\n")
        found = json.loads(agent(trial, 1, "doctor", "--hosts", "0,1", "--json").stdout)
        assert {one["state"] for one in found["findings"]} == {"ok"} and found["silent"] == {}
        assert {one["pod"] for one in found["findings"]} == {0, 1}
        assert agent(trial, 0, "cancel").returncode == 0
        run.wait()
