"""What a test can say of the runs of a fake cluster; tests/cluster/test_testing.py compares it with a real one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import agent
from agent.testing import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(pods=2, gpus_per_pod=4) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[agent.Client]:
    with agent.Client() as client:
        yield client


def ended(client: agent.Client, workload: str = "torchrun", **more: object) -> agent.RunEnd:
    spec = agent.RunSpec(workload, ("train.py",), by="a test")._replace(**more)  # type: ignore[arg-type]
    return client.wait(client.submit(spec))


def printed(client: agent.Client, run: str, pod: int) -> bytes:
    return b"".join(data for stream, data in client.read(run, pod).frames if stream == 1)


def test_runs_end_well_where_nothing_is_said(cluster: FakeCluster, client: agent.Client) -> None:
    assert [ended(client, workload).end.code for workload in ("exec", "torchrun", "mpirun")] == [0, 0, 0]
    assert [(run.spec.workload, run.info.pods) for run in cluster.runs] == [
        ("exec", (0, 1)), ("torchrun", (0, 1)), ("mpirun", (0, 1))
    ]  # fmt: skip


def test_what_is_said_is_for_one_run_after_the_other(cluster: FakeCluster, client: agent.Client) -> None:
    cluster.will_end("torchrun", code=9)
    cluster.will_end("nightly", code=3)
    cluster.will_end("nightly")
    assert [ended(client, name="nightly").end.code for _ in range(3)] == [3, 0, 0]
    assert ended(client).end.code == 9


def test_pods_differ(cluster: FakeCluster, client: agent.Client) -> None:
    cluster.will_end(code={1: 7}, output={0: "of 0", 1: "of 1"})
    end = ended(client, name="each")
    assert (end.end.code, end.codes) == (7, {0: 0, 1: 7})
    assert [printed(client, "each", pod) for pod in range(2)] == [b"of 0", b"of 1"]


def test_a_rank_that_fails(cluster: FakeCluster, client: agent.Client) -> None:
    cluster.will_end(code=5)
    end = ended(client, "mpirun").end
    assert (end.code, end.what, end.where[:6]) == (5, "train.py: rank 0 failed", "pod 0,")


def test_results(cluster: FakeCluster, client: agent.Client) -> None:
    table = {"name": "t", "title": "", "columns": [{"name": "busbw", "unit": "GB/s"}], "rows": [[410.5]]}
    cluster.will_end(files={"report.html": "<p>"}, result={"tables": [table]})
    end = ended(client, name="measures")
    result = client.result("measures")
    assert (result.numbers("t", "busbw"), result.verdict.status, result.name) == ([410.5], "passed", "measures")
    assert b"".join(client.file("measures", "report.html")) == b"<p>"
    assert {path.name for path in Path(end.results).iterdir()} == {"result.json", "report.html", "pod-logs"}
    with pytest.raises(agent.UsageError, match=r"^result.json has no tabels"):
        cluster.will_end(result={"tabels": []})


def test_a_run_that_goes_on_until_it_is_cancelled(cluster: FakeCluster, client: agent.Client) -> None:
    cluster.will_go_on("long", output="first")
    run = client.submit(agent.RunSpec("torchrun", ("train.py",), name="long", by="a test"))
    with pytest.raises(agent.ClusterBusy, match="a test has been running"):
        ended(client)
    assert (client.find(run).over, printed(client, "long", 0)) == (False, b"first")
    client.cancel(run)
    assert client.wait(run).end.code == 130


def test_an_hour_passes_at_once(cluster: FakeCluster, client: agent.Client) -> None:
    cluster.will_end("slow", seconds=3600.0)
    cluster.will_go_on("limited")
    run = client.submit(agent.RunSpec("torchrun", ("train.py",), name="slow"))
    assert not client.find(run).over
    client.wait(run)
    result = client.result("slow")
    assert result.until - result.since >= 3600.0
    assert ended(client, name="limited", timeout=7200.0).end.code == 124


def test_each_life_takes_the_next_that_was_said(cluster: FakeCluster, client: agent.Client) -> None:
    cluster.will_end("lives", code=75)
    cluster.will_end("lives", result={"warnings": ["a warning"]})
    assert ended(client, name="lives", lives=1).end.code == 0
    result = client.result("lives")
    assert ([life.verdict.code for life in result.lives], result.warnings) == ([75], ("a warning",))


def test_a_lost_pod(cluster: FakeCluster, client: agent.Client) -> None:
    cluster.lose_pod(1)
    with pytest.raises(agent.AgentError, match=r"^pod 1 is needed but lost") as error:
        ended(client)
    assert error.value.code == 75
    assert ended(client, exclude=("1",)).end.code == 0
    with pytest.raises(agent.UsageError, match="pod 2 is unknown"):
        cluster.lose_pod(2)


def test_an_agent_that_is_gone(cluster: FakeCluster, client: agent.Client) -> None:
    cluster.lose_pod(0)
    with pytest.raises(agent.PeerLost):
        client.find()
    with pytest.raises(agent.PeersMissing):
        agent.Client()


def test_what_else_the_library_reads_there_is_there(cluster: FakeCluster) -> None:
    assert [peer.index for peer in agent.read_plan().peers] == [0, 1]
    assert (agent.read_facts().slots, agent.read_facts().gpus) == (4, 4)


def test_nothing_of_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A4_RUN_DIR", "/before")
    with FakeCluster(pods=1) as cluster:
        assert os.environ["A4_RUN_DIR"] == cluster.run_dir
    assert (os.environ["A4_RUN_DIR"], Path(cluster.run_dir).exists()) == ("/before", False)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(agent.SettingsError, match="A4_GRACE_SECONDS"), FakeCluster(env={"A4_GRACE_SECONDS": "no"}):
        pass
    with pytest.raises(agent.SystemFault, match="does not sleep"), FakeCluster(env={"SLEEP_INFINITY": "false"}):
        pass
