"""What a run leaves: result.json as its schema says, report.html made beside everything else, progress of long runs."""

from __future__ import annotations

import errno
import io
import itertools
import json
import re
from typing import Any, NoReturn

import jsonschema
import pytest

from agent.decide.grace import MOST_STORE_SECONDS
from agent.lifecycle.keeping.run_logs import RunLogs
from agent.log import Log
from agent.machine.api import SERVER_SECONDS
from scripts.result_schema import result_schema
from tests.fake.pod import DIR
from tests.fake.process import FOREVER, Life
from tests.fake.world import FakeWorld, first_run
from tests.lifecycle.test_submitted import ends, printed, sleeping

SCHEMA = result_schema(strict=True)
RESULTS = "/gcs/testbed-logs/job/uid.0.0"
FULL = "No space left on device"
SILENT = f"no answer for {SERVER_SECONDS:g} s"
REPORT = {"A4_REPORT": "true", "A4_RESULTS_DIR": RESULTS}


def result(world: FakeWorld, directory: str = RESULTS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.pod(0).stored[f"{directory}/result.json"])
    jsonschema.validate(found, SCHEMA)
    return found


def test_a_bug_while_its_page_is_written_leaves_a_good_run_good(monkeypatch: pytest.MonkeyPatch) -> None:
    def reporting(pod: object, path: str) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr("agent.lifecycle.runs.results.Reporting", reporting)
    world = FakeWorld(3, "script", REPORT)
    assert set(world.run().values()) == {0}, world.dump()
    assert result(world)["verdict"]["code"] == 0
    assert "LookupError: a bug" in world.pod(0).log.getvalue()


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


@pytest.mark.parametrize(("life", "status"), [(Life(), "passed"), (Life(-9, 5), "failed"), (FOREVER, "ended")])
def test_the_end_of_the_log_says_where_they_are(life: Life, status: str) -> None:
    world = FakeWorld(3, "script", {"A4_RESULTS_DIR": RESULTS})
    world.pod(1).life = life
    world.at(20, world.signal)
    world.run()
    assert result(world)["verdict"]["status"] == status
    where = "results and logs of this attempt"
    assert [f"{where}: {RESULTS}\n" in pod.log.getvalue() for pod in world.pods] == [True, False, False]


def test_pods_that_differ_stand_in_it() -> None:
    world = FakeWorld(4, "script", {**REPORT, "A4_PODS_DIFFER": "warn"})
    world.pod(2).env = {"GPUS_PER_NODE": "4"}
    world.run()
    assert {"what": "GPUS_PER_NODE", "usual": "8", "odd": {"4": [2]}} in result(world)["differences"]
    assert "GPUS_PER_NODE" in world.pod(0).log.getvalue()


@pytest.mark.parametrize("is_slow", [False, True])
def test_results_of_an_earlier_start_of_the_same_attempt_stay_as_they_are(is_slow: bool) -> None:
    """As Kueue admits a job again that it has preempted: results and logs of every pod lie beside the first ones. Of a
    bucket that answers too late nobody knows whether there are some."""
    world, earlier = FakeWorld(2, "script"), f"{RESULTS}/pod-logs/coordinator.log"
    world.every(bucket=True, life=Life(seconds=40))
    world.pod(0).stored[earlier] = "of before"
    if is_slow:
        world.pod(0).storage = "stuck"
        world.at(20, lambda: setattr(world.pod(0), "storage", ""))
    assert set(world.run().values()) == {0}, world.dump()
    run = f"{RESULTS}/runs/{world.pod(0).said()['run']}"
    assert world.pod(0).stored[earlier] == "of before" and f"{RESULTS}/result.json" not in world.pod(0).stored
    assert result(world, run)["verdict"]["code"] == 0
    assert [*world.pod(1).stored] == [f"{run}/pod-logs/worker-1.log"]
    assert f"results and logs of this attempt: {run}" in world.pod(0).log.getvalue()


def test_a_start_that_comes_to_no_run_keeps_the_log_of_an_earlier_one() -> None:
    world, earlier = FakeWorld(2, "script", {"A4_PEER_TIMEOUT_SECONDS": "20"}), f"{RESULTS}/pod-logs/coordinator.log"
    world.pod(0).bucket = True
    world.pod(0).stored[earlier] = "of before"
    world.pod(1).starts = None
    assert world.run()[0] == 69
    stored = dict(world.pod(0).stored)
    assert stored.pop(earlier) == "of before"
    ((path, log),) = stored.items()
    assert re.fullmatch(f"{RESULTS}/pod-logs/coordinator-[0-9a-f]{{8}}.log", path) and "pods did not join" in log


# When they are announced


def test_a_slow_results_directory_delays_the_words_and_nobody_else() -> None:
    world = first_run(3, REPORT, life=Life())
    world.pod(0).storage = "stuck"
    world.until_event("run-ended", 0)
    world.wait(7)
    assert "done: " not in world.pod(0).log.getvalue()
    assert world.pod(0).said()["code"] == 0, "Kubernetes hears of it at once"
    assert [pod.code for pod in world.others(0)] == [0, 0], "they do not wait for it"
    world.pod(0).storage = ""
    world.until(lambda: "done: " in world.pod(0).log.getvalue())
    assert f"{RESULTS}/result.json" in world.pod(0).stored
    assert set(world.run().values()) == {0}
    assert "done: " in world.pod(0).stored[f"{RESULTS}/pod-logs/coordinator.log"], "and it is part of the log"
    assert "not stored" not in world.pod(0).log.getvalue()


@pytest.mark.parametrize(("storage", "why"), [("stuck", SILENT), (FULL, FULL)])
def test_or_which_results_are_missing(storage: str, why: str) -> None:
    world = sleeping(2, {"A4_RESULTS_DIR": RESULTS})
    world.every(storage=storage)
    run = world.submit(1, "script")
    before = world.seconds
    log = "pod-logs/coordinator.log, " if storage == "stuck" else ""  # of a short run it is stored afterwards
    assert ends(world, 1, run)["missing"] == f"{log}result.json ({why})"
    assert world.seconds - before < (20 if why == FULL else MOST_STORE_SECONDS + 15)
    assert f"not stored in {RESULTS}/runs/{run}: result.json ({why})" in world.pod(0).log.getvalue()
    about = world.ask(1, "submit", spec={"workload": "exec", "args": ["hostname"]})["ok"]
    assert ends(world, 1, about["run"])["missing"] == ""
    world.every(storage="")
    world.wait(60)
    assert f"{RESULTS}/runs/{run}/result.json" in world.pod(0).stored, "it was tried again"


@pytest.mark.parametrize(
    ("problem", "why", "most"), [(FULL, FULL, 15), ("stuck", "3 processes hang", MOST_STORE_SECONDS + 5)]
)
@pytest.mark.parametrize("code", [0, 7])
def test_a_results_directory_that_takes_nothing_any_more_does_not_change_the_end(
    problem: str, why: str, most: float, code: int
) -> None:
    world = FakeWorld(3, "script", {"A4_RESULTS_DIR": RESULTS}, life=Life(seconds=100, output=b"words\n"))
    world.pod(1).life = Life(code, 100, output=b"words\n")
    world.until_event("run-started")
    world.every(storage=problem)
    assert set(world.run().values()) == {code}, world.dump()
    assert world.last() < 100 + most
    for pod in world.pods:
        assert f"bytes of this pod's log could not be stored in {RESULTS}: {why}" in pod.log.getvalue()
    assert f"not stored in {RESULTS}: result.json ({why}" in world.pod(0).log.getvalue()


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("room", "others"), [(10_000, ""), (10, ", result.json")])
def test_a_results_directory_that_fills_up_lacks_what_does_not_fit_any_more(
    room: int, others: str, is_first: bool
) -> None:
    """The log's pieces fail before the run ends; a file that is stored all the same is not named."""
    settings, life = {"A4_RESULTS_DIR": RESULTS}, Life(seconds=100, output=b"words\n" * 2000)
    world = FakeWorld(3, "script", settings, life=life) if is_first else sleeping(3, settings, life=life)
    run = "" if is_first else world.submit(1, "script")
    world.until_event("run-started")
    world.every(room=room)
    missing = f"pod-logs/coordinator.log{others} ({FULL})"
    if is_first:
        assert set(world.run().values()) == {0}, world.dump()
        log = world.pod(0).log.getvalue()
        assert f"results and logs of this attempt: {RESULTS}, without {missing}\n" in log
    else:
        assert ends(world, 1, run)["missing"] == missing
    stored = [path.rpartition("/")[2] for path in world.pod(0).stored if run in path]
    assert ("result.json" in stored) != bool(others)


def test_neither_does_a_run_directory_that_is_full() -> None:
    """Results are in it, too, unless another directory is set."""
    world = first_run(3, life=Life(seconds=100, output=b"words\n"))
    world.wait(5)
    world.every(storage=FULL, failing={f"{DIR.path}/": errno.ENOSPC})
    assert set(world.run().values()) == {0}, world.dump()
    assert world.last() < 100 + 15
    log = world.pod(0).log.getvalue()
    assert "not stored in /run/a4-agent/results: result.json" in log
    assert "results and logs of this attempt" not in log, "they go with the pod"


def test_without_a_spool_the_files_are_stored_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def spool(directory: str, limit: int) -> NoReturn:
        raise OSError(errno.ENOSPC, FULL, directory)

    world = sleeping(2, {"A4_RESULTS_DIR": RESULTS})
    monkeypatch.setattr(world.pod(0).agent, "spool", spool)
    run = world.submit(1, "script")
    assert ends(world, 1, run)["missing"] == ""
    assert f"{RESULTS}/runs/{run}/result.json" in world.pod(0).stored
    assert f"the output of {run} cannot be kept in this pod" in world.pod(0).log.getvalue()


def test_too_many_runs_whose_results_cannot_be_stored() -> None:
    """The oldest is given up, and what is lost of it is said."""
    world = sleeping(2, {"A4_RESULTS_DIR": RESULTS})
    world.every(storage=FULL)
    runs = []
    for _ in range(12):
        runs.append(world.submit(1, "script"))
        ends(world, 1, runs[-1])
    for pod in world.pods:
        said = [run for run in runs if f"could not be stored in {RESULTS}/runs/{run}: {FULL}" in pod.log.getvalue()]
        assert said == runs[:2]
        assert len([keeper for keeper in pod.agent.keepers if keeper.is_living]) == 10


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


@pytest.mark.parametrize(("is_told", "most"), [(False, MOST_STORE_SECONDS + 15), (True, 10)])
def test_a_report_that_takes_for_ever_ends_with_the_pods_patience(is_told: bool, most: float) -> None:
    """Told to end, the pod does not wait for it."""
    world = FakeWorld(2, "script", {**REPORT, "A4_GRACE_SECONDS": "10"})
    world.pod(0).report_life = FOREVER
    world.until_event("result-known")
    before = world.seconds
    if is_told:
        world.signal()
    assert set(world.run().values()) == {0}
    assert world.last() - before < most
    assert f"not stored in {RESULTS}: report.html" in world.pod(0).log.getvalue()


def test_the_report_of_a_later_run_is_its_own() -> None:
    world = sleeping(3, REPORT)
    world.pod(0).report_life = Life(seconds=30.0)
    runs = []
    for _ in range(2):  # the page of the first is still made
        runs.append(world.submit(1, "script"))
        told = ends(world, 1, runs[-1])
        assert (told["results"], told["missing"]) == (f"{RESULTS}/runs/{runs[-1]}", "")
        assert f"{RESULTS}/runs/{runs[-1]}/result.json" in world.pod(0).stored, "whoever waits hears of it then"
    world.wait(80)
    pages = [world.pod(0).stored[f"{RESULTS}/runs/{run}/report.html"] for run in runs]
    assert pages == [f"page of /run/a4-agent/runs/{run}/result.json" for run in runs]
    assert f"{RESULTS}/report.html" not in world.pod(0).stored, "forming alone needs no page"


def file_of(world: FakeWorld, index: int, run: str, name: str, pod: int = 0) -> str:
    """A file that a run has left, read in small pieces by a command of pod `index`."""
    return printed(world, index, run, pod, file=name, most=300).decode()


@pytest.mark.parametrize("index", [0, 2])
def test_what_a_run_has_left_is_read_from_any_pod(index: int) -> None:
    """Also where results are stored elsewhere, or nowhere. A page that is being made is waited for."""
    world = sleeping(3, {**REPORT, "A4_WORKLOAD_TIMEOUT_SECONDS": "9"})
    world.pod(0).report_life = Life(seconds=30.0)
    world.pod(2).life = FOREVER
    run = world.submit(1, "script")
    assert [file_of(world, index, run, name) for name in ("result.json", "report.html")] == ["", ""], "it goes on"
    assert ends(world, 1, run)["end"]["code"] == 124
    assert json.loads(file_of(world, index, run, "result.json"))["run"] == run
    assert file_of(world, index, run, "report.html") == f"page of /run/a4-agent/runs/{run}/result.json"
    assert "stacks of pod 2" in file_of(world, index, run, "evidence.txt", pod=2)
    assert file_of(world, index, run, "result.json", pod=1) == ""


def test_a_page_that_is_given_up_is_not_waited_for() -> None:
    world = sleeping(2, REPORT)
    world.pod(0).report_life = FOREVER
    run = world.submit(1, "script")
    ends(world, 1, run)
    before = world.seconds
    assert file_of(world, 1, run, "report.html") == ""
    assert world.seconds - before < 90


@pytest.mark.parametrize("hangs", [False, True])
def test_what_made_room_in_the_run_directory_is_read_where_it_is_stored(hangs: bool) -> None:
    """Not for longer than a server may take."""
    world = sleeping(3)
    run = world.submit(1, "script")
    ends(world, 1, run)
    agent = world.pod(0).agent
    stored = f"{DIR.path}/results/runs/{run}/result.json"
    agent.files[stored] = agent.files.pop(f"{DIR.path}/runs/{run}/result.json")
    world.pod(0).hanging = {stored} if hangs else set()
    before = world.seconds
    assert bool(file_of(world, 2, run, "result.json")) != hangs
    assert world.seconds - before <= SERVER_SECONDS + 1


def test_nothing_else_is_read() -> None:
    world = sleeping(2)
    for run, name in itertools.product(["../runs/x", ".", "", "no-such"], ["result.json", "../../secret", "token"]):
        answer = world.ask(0, "read", run=run, pod=0, file=name, offset=0, most=300)
        assert answer.get("error") or answer["ok"]["frames"] == [], answer
        if run == "no-such" and name != "result.json":
            assert answer["error"]["what"] == f"runs have no file named {name!r}"


# Baselines


@pytest.mark.parametrize("hangs", [False, True])
def test_a_file_of_baselines_on_a_dead_server_holds_nobody_up(hangs: bool) -> None:
    world = sleeping(2, {"A4_BASELINES": "/mnt/baselines.json"})
    world.pod(0).hanging = {"/mnt/baselines.json"} if hangs else set()
    world.pod(0).unreadable = {} if hangs else {"/mnt/baselines.json": errno.EIO}
    about = world.ask(1, "submit", spec={"workload": "exec", "args": ["hostname"]})["ok"]
    before = world.seconds
    assert ends(world, 1, about["run"])["end"]["code"] == 0 and world.seconds - before < 15
    told = ends(world, 1, world.submit(1, "nccl"))["end"]
    assert told["code"] == 78 and "A4_BASELINES=/mnt/baselines.json: it is empty or cannot be read" in told["what"], (
        told
    )


def test_a_file_of_baselines_that_is_not_there_yet_refuses_no_run() -> None:
    """The run may be the one that makes it."""
    world = sleeping(2, {"A4_BASELINES": "/mnt/baselines.json"})
    told = ends(world, 1, world.submit(1, "nccl", args=["--save-baseline", "first"]))["end"]
    assert (told["code"], told["what"]) == (65, "the output of nccl-tests is not complete"), told


def test_a_baseline_is_saved_only_over_what_was_read_and_nobody_waits_for_its_directory() -> None:
    world = sleeping(2)
    pod, said, heard = world.pod(0), io.StringIO(), list[str]()
    logs = RunLogs(pod.agent, Log(stream=said), pod.settings)
    pod.stored.update({"/mnt/own.json": "old", "/mnt/other.json": "old"})
    logs.keep_elsewhere("/mnt/own.json", "text", 30.0, new=False)
    logs.keep_elsewhere("/mnt/other.json", "text", 30.0, new=True)
    logs.when_kept(30.0, heard.append)
    world.wait(10)
    assert heard == ["other.json (it is there already, and left as it is)"]
    assert (pod.stored["/mnt/own.json"], pod.stored["/mnt/other.json"]) == ("text", "old")
    pod.storage = "stuck"
    logs.keep_elsewhere("/mnt/own.json", "new text", 30.0, new=False)
    logs.when_kept(30.0, heard.append)
    world.wait(25)
    assert len(heard) == 1 and world.asleep()
    world.wait(10)
    assert heard[1:] == [f"own.json ({SILENT})"]
    assert f"error: not stored in /mnt: own.json ({SILENT})" in said.getvalue()


@pytest.mark.parametrize("byte", [b"\xff", b"\x00", b"\x1b"])
def test_a_megabyte_that_is_no_text_neither_hangs_the_job_nor_hides_its_code(byte: bytes) -> None:
    """As JSON it takes six bytes for one: more than a message of the control channel may have."""
    world = FakeWorld(2, "collectives")
    world.pod(0).life = FOREVER
    world.pod(1).life = Life(1, 5, output=byte * 1_400_000)
    assert set(world.run().values()) == {1}, world.dump()
    assert world.seconds < 60
    assert "is too long for a message" in world.dump()


@pytest.mark.parametrize("outlives", [False, True])
def test_results_in_the_pod_make_room_for_newer_ones(outlives: bool) -> None:
    directory = "/results" if outlives else f"{DIR.path}/results"
    world = sleeping(2, {"A4_LOG_LIMIT_MB": "1", **({"A4_RESULTS_DIR": directory} if outlives else {})})
    agent = world.pod(0).agent
    for number in range(3):
        place = f"{directory}/runs/old-{number}"
        agent.make_dir(f"{place}/pod-logs")
        agent.files[f"{place}/pod-logs/coordinator.log"] = "x" * 600_000
        agent.files[f"{place}/result.json"] = "{}"
    ends(world, 1, world.submit(1, "script"))
    left = [name for name in agent.files if name.startswith(f"{directory}/runs/old-")]
    logs = [name for name in left if name.endswith(".log")]
    assert len(left) - len(logs) == 3 and len(logs) == (3 if outlives else 1), left
    assert ("logs of 2 earlier runs are removed" in world.pod(0).log.getvalue()) != outlives
