"""What a run leaves: result.json as its schema says, report.html made beside everything else, progress of long runs."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from scripts.result_schema import result_schema
from tests.fake.process import FOREVER, Life
from tests.fake.world import FakeWorld
from tests.lifecycle.test_submitted import ends, printed, sleeping

SCHEMA = result_schema(strict=True)
RESULTS = "/gcs/testbed-logs/job/uid.0.0"
REPORT = {"A4_REPORT": "true", "A4_RESULTS_DIR": RESULTS}


def result(world: FakeWorld, directory: str = RESULTS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.pod(0).stored[f"{directory}/result.json"])
    jsonschema.validate(found, SCHEMA)
    return found


def test_a_run_that_ends_well() -> None:
    world = FakeWorld(3, "script", REPORT)
    assert set(world.run().values()) == {0}, world.dump()
    found = result(world)
    assert found["verdict"] == {
        "status": "passed",
        "code": 0,
        "what": "/workload/task/task-script.sh done",
        "where": "",
        "why": "",
        "origin": "workload",
        "reasons": [],
    }
    assert [pod["status"] for pod in found["pods"]] == [0, 0, 0]
    assert found["launch"]["argv"] == ["bash", "/workload/task/task-script.sh"]
    assert found["launch"]["environment"]["A4_RUN"] == found["run"]
    for pod in found["pods"]:
        phases = pod["phases"]
        assert {"agent-started", "facts-ready", "plan-ready"} <= set(phases)
        assert phases["plan-ready"] <= phases["process-started"] < phases["process-ended"]


@pytest.mark.parametrize(
    ("life", "status"),
    [(Life(3, 5), "failed"), (Life(-9, 5), "failed"), (FOREVER, "ended")],
)
def test_a_run_that_does_not(life: Life, status: str) -> None:
    world = FakeWorld(3, "script", REPORT)
    world.pod(1).life = life
    world.until_event("run-started")
    if life is FOREVER:
        for pod in world.pods:
            pod.signal()
    world.run()
    assert result(world)["verdict"]["status"] == status


def test_pods_that_differ_stand_in_it() -> None:
    world = FakeWorld(4, "script", {**REPORT, "A4_PODS_DIFFER": "warn"})
    world.pod(2).env = {"GPUS_PER_NODE": "4"}
    world.run()
    assert {"what": "GPUS_PER_NODE", "usual": "8", "odd": {"4": [2]}} in result(world)["differences"]


# report.html


def test_the_report_is_stored_beside_the_result_and_holds_nobody_up() -> None:
    world = FakeWorld(3, "script", REPORT)
    world.pod(0).report_life = Life(seconds=8.0)
    assert set(world.run().values()) == {0}, world.dump()
    run = result(world)["run"]
    assert world.pod(0).stored[f"{RESULTS}/report.html"] == f"page of /run/a4-agent/runs/{run}/result.json"
    ended = [pod.ended_at or 0.0 for pod in world.pods]
    assert ended[0] > ended[1] + 5 and ended[0] > ended[2] + 5, "the workers did not wait for it"


@pytest.mark.parametrize(("status", "level"), [(66, ""), (1, "warning: ")])
def test_without_a_report_the_result_is_still_there(status: int, level: str) -> None:
    world = FakeWorld(2, "script", REPORT)
    world.pod(0).report_life = Life(status, 1.0, output=b"Jinja2 is missing")
    assert set(world.run().values()) == {0}
    assert result(world)["verdict"]["code"] == 0
    assert f"{level}there is no report.html of this run, but result.json is there: Jinja2 is missing" in (
        world.pod(0).log.getvalue()
    )
    assert f"{RESULTS}/report.html" not in world.pod(0).stored


def test_a_report_that_takes_for_ever_ends_with_the_pods_patience() -> None:
    world = FakeWorld(2, "script", REPORT)
    world.pod(0).report_life = FOREVER
    assert set(world.run().values()) == {0}
    assert world.last() < 10 + 45
    assert f"not stored in {RESULTS}: report.html" in world.pod(0).log.getvalue()


def test_told_to_end_the_pod_does_not_wait_for_a_report() -> None:
    world = FakeWorld(2, "script", {**REPORT, "A4_GRACE_SECONDS": "10"})
    world.pod(0).report_life = FOREVER
    world.until_event("result-known")
    before = world.seconds
    for pod in world.pods:
        pod.signal()
    assert set(world.run().values()) == {0}
    assert world.last() - before < 10


def test_the_report_of_a_later_run_is_its_own() -> None:
    world = sleeping(3, REPORT)
    world.pod(0).report_life = Life(seconds=30.0)
    first = world.submit(1, "script")
    ends(world, 1, first)
    second = world.submit(1, "script")  # while the page of the first is still made
    ends(world, 1, second)
    world.wait(80)
    for run in (first, second):
        assert (
            world.pod(0).stored[f"{RESULTS}/runs/{run}/report.html"] == f"page of /run/a4-agent/runs/{run}/result.json"
        )
    assert f"{RESULTS}/report.html" not in world.pod(0).stored, "forming alone needs no page"


# Progress


def test_a_long_run_says_what_it_does_and_is_still_silent() -> None:
    world = sleeping(2, {"A4_STALL_TIMEOUT_SECONDS": "24"})
    for pod in world.pods:
        pod.life = FOREVER
    run = world.submit(1, "collectives")
    world.wait(3)
    doing = {"step": "doing", "what": "all_reduce, 1 GiB", "number": 31, "of": 120}
    start = {"step": "start", "version": 1, "program": "collectives", "ranks": 16, "backend": "nccl", "versions": {}}
    record = f"/run/a4-agent/runs/{run}/record.jsonl"
    world.pod(0).agent.files[record] = "".join(json.dumps(line) + "\n" for line in (start, doing))
    told = ends(world, 1, run)
    assert told["end"]["code"] == 124, world.dump()
    said = printed(world, 1, run, 0).decode()
    assert f"a4-agent: {run}, 20 s: all_reduce, 1 GiB (31 of 120)\n" in said
    assert said.count(run) >= 2, said


# Baselines


@pytest.mark.parametrize("hangs", [False, True])
def test_a_file_of_baselines_on_a_dead_server_holds_nobody_up(hangs: bool) -> None:
    world = sleeping(2, {"A4_BASELINES": "/mnt/baselines.json"})
    world.pod(0).hanging = {"/mnt/baselines.json"} if hangs else set()
    about = world.ask(1, "submit", spec={"workload": "exec", "args": ["hostname"]})["ok"]
    before = world.seconds
    assert ends(world, 1, about["run"])["end"]["code"] == 0 and world.seconds - before < 15
    told = ends(world, 1, world.submit(1, "nccl"))["end"]
    assert told["code"] == 78 and "A4_BASELINES=/mnt/baselines.json: it is empty or cannot be read" in told["what"], (
        told
    )


@pytest.mark.parametrize("byte", [b"\xff", b"\x00", b"\x1b"])
def test_a_megabyte_that_is_no_text_neither_hangs_the_job_nor_hides_its_code(byte: bytes) -> None:
    """As JSON it takes six bytes for one: more than a message of the control channel may have."""
    world = FakeWorld(2, "collectives")
    world.pod(0).life = FOREVER
    world.pod(1).life = Life(1, 5, output=byte * 1_400_000)
    assert set(world.run().values()) == {1}, world.dump()
    assert world.seconds < 60
    assert "is too long for a message" in world.dump()
