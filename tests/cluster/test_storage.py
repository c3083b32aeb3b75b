"""Logs and results on the real thing: kept while a run lasts and after it, and never in its way."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.cluster.conftest import RUN_DIR, Start, Trial, all_codes
from tests.cluster.storage import (
    BREAK,
    MEND,
    MOUNT,
    REASON,
    RESULTS,
    STORE,
    log_name,
    on_fuse,
    shell,
    stored,
    until_logged,
)
from tests.cluster.work import agent, sleeping, state

FAULTS = dict(enumerate(BREAK))
"""Each pod's results directory breaks in another way."""
OUTLIVING = "/mnt/results"
"""A directory that all pods share and that outlives them."""
LINES = 8500
MUCH = f"seq -f 'line %01000g of a long log' {LINES}"
"""More than 8 MiB: a piece is stored at once and not only after 30 s."""


def until_printed(trial: Trial, text: str) -> None:
    """Wait until every pod has printed a line in its run."""
    for index in range(trial.cluster.spec.pods):
        until_logged(trial, index, text)


def on_all(trial: Trial, script: str) -> None:
    for index in range(trial.cluster.spec.pods):
        shell(trial, index, script)


BREAKS_FOR_A_WHILE = f"""
echo begun
until test -e /tmp/broken; do sleep 0.05; done
{MUCH}
echo printed
until test -e /tmp/mended; do sleep 0.05; done
echo after
"""


def test_a_results_directory_that_breaks_for_a_while_holds_nothing_up_and_nothing_is_lost(start: Start) -> None:
    trial = start(len(FAULTS), script=BREAKS_FOR_A_WHILE, **on_fuse())
    until_printed(trial, "begun")
    for index, fault in FAULTS.items():
        shell(trial, index, BREAK[fault])
    on_all(trial, "touch /tmp/broken")
    until_printed(trial, "printed")
    for index, fault in FAULTS.items():
        until_logged(trial, index, f"this pod's log cannot be stored in {RESULTS}: {REASON[fault]};")
        assert "takes part in a run" in shell(trial, index, "a4-agent status")
        answers = json.loads(shell(trial, index, "a4-agent exec --json -- echo here"))
        assert {answer["pod"]: answer["stdout"] for answer in answers} == dict.fromkeys(FAULTS, "here\n")
    for index, fault in FAULTS.items():
        shell(trial, index, MEND[fault])
    on_all(trial, "touch /tmp/mended")
    all_codes(trial, 0)
    for index in FAULTS:
        workload, said = trial.cluster.logs(index, "out").splitlines(), trial.cluster.logs(index, "err")
        assert (len(workload), workload[-1]) == (LINES + 3, "after")
        kept = stored(trial, index, f"pod-logs/{log_name(index)}.log").splitlines()
        assert [line for line in kept if " a4-agent [" not in line] == workload
        assert f"is stored in {RESULTS} again" in said
        assert "could not be stored" not in said
    assert json.loads(stored(trial, 0, "result.json"))["verdict"]["code"] == 0


@pytest.mark.parametrize(
    ("before", "directory", "why"),
    [
        (f"mount -i -o remount,ro {MOUNT}", RESULTS, "Read-only file system"),
        ("pkill -STOP -x bindfs", RESULTS, "no answer for 10 s"),
        ("", "/etc/hostname", "Not a directory"),
    ],
    ids=["read-only", "stopped", "a file"],
)
def test_a_directory_that_was_asked_for_and_cannot_be_written_ends_the_job_before_its_run(
    start: Start, before: str, directory: str, why: str
) -> None:
    trial = start(2, script="echo begun", **on_fuse(before, {"A4_RESULTS_DIR": directory}))
    all_codes(trial, 73)
    for index in (0, 1):
        end = trial.said(index)
        assert (end["what"], end["origin"]) == (f"A4_RESULTS_DIR={directory} cannot be used: {why}", "agent")
        assert re.match("pod [01], ", end["where"])
        assert trial.cluster.logs(index, "out") == ""


def test_a_directory_that_one_worker_alone_cannot_write_ends_the_job_and_names_the_worker(start: Start) -> None:
    before = f'test "$JOB_COMPLETION_INDEX" = 0 || mount -i -o remount,ro {MOUNT}'
    trial = start(2, script="echo begun", **on_fuse(before))
    all_codes(trial, 73)
    for index in (0, 1):
        end = trial.said(index)
        assert end["what"] == f"A4_RESULTS_DIR={RESULTS} cannot be used: Read-only file system"
        assert end["where"].startswith("pod 1, ")
        assert trial.cluster.logs(index, "out") == ""


SMALL_RUN_DIR = f"mkdir -p {RUN_DIR} && mount -t tmpfs -o size=4m,mode=700 none {RUN_DIR}"


BALLAST = {RESULTS: STORE, f"{RUN_DIR}/results": RUN_DIR}
"""Results directories, and what is filled for each."""


def test_what_is_full_at_the_end_is_said_and_changes_no_code(start: Start) -> None:
    """The clusters wait for room at the same time."""
    together = "until test -e /mnt/0 -a -e /mnt/1; do sleep 0.05; done; exit 3"
    trials = {}
    for results, ballast in BALLAST.items():
        fill = f"echo begun; dd if=/dev/zero of={ballast}/ballast bs=1M 2>/dev/null; touch /mnt/$JOB_COMPLETION_INDEX"
        trials[results] = start(2, script=f"{fill}; {together}", **on_fuse(SMALL_RUN_DIR, {"A4_RESULTS_DIR": results}))
    for results, trial in trials.items():
        all_codes(trial, 3)
        for index in (0, 1):
            said = trial.cluster.logs(index, "err")
            # Where results lie on the pod's own disk, its log may already have been cut there.
            full = "No space left on device" + ("|the pod's own disk took no more" if results != RESULTS else "")
            lost = rf"\d+ bytes of this pod's log could not be stored in {results}: (?:{full})"
            assert re.search(lost, said) and "it did not answer" not in said, said
            assert (trial.said(index)["code"], trial.cluster.logs(index, "out")) == (3, "begun\n")
        assert f"not stored in {results}: result.json (No space left on device)" in trial.cluster.logs(0, "err")


STAYS_BROKEN = """
echo begun
until test -e /tmp/broken; do sleep 0.05; done
echo after
until test -e /tmp/over; do sleep 0.05; done
exit 7
"""


@pytest.mark.faults
def test_a_results_directory_that_stays_broken_changes_no_code_and_each_pod_says_what_is_lost(start: Start) -> None:
    trial = start(len(FAULTS), script=STAYS_BROKEN, **on_fuse())
    until_printed(trial, "begun")
    for index, fault in FAULTS.items():
        shell(trial, index, BREAK[fault])
    on_all(trial, "touch /tmp/broken")
    until_printed(trial, "after")
    shell(trial, 2, "touch /tmp/over")
    all_codes(trial, 7)
    for index, fault in FAULTS.items():
        said = trial.cluster.logs(index, "err")
        lost = re.findall(rf"(\d+) bytes of this pod's log could not be stored in {RESULTS}: {REASON[fault]}", said)
        assert len(lost) == 1 and int(lost[0]) > len("begun\nafter\n"), said
        assert f"{RESULTS} again" not in said
        assert (trial.said(index)["code"], trial.said(index)["where"][:6]) == (7, "pod 2,")
    assert f"not stored in {RESULTS}: result.json (no answer for 10 s)" in trial.cluster.logs(0, "err")
    for index in (1, 2, 3):
        # Not behind the mount, and not on the container's own disk where the mount was.
        paths = [f"{where}/pod-logs/{log_name(index)}.log" for where in (f"{STORE}/out", RESULTS)]
        assert trial.cluster.read_bytes(index, paths) == dict.fromkeys(paths)


@pytest.mark.faults
def test_a_log_is_there_in_pieces_while_its_run_lasts_and_whole_at_its_end(start: Start) -> None:
    """If a pod is killed, its pieces stay."""
    script = f"{MUCH}; until test -e /tmp/over; do sleep 0.05; done"
    trial = start(2, script=script, env={"A4_RESULTS_DIR": OUTLIVING})
    logs = [f"{OUTLIVING}/pod-logs/{log_name(index)}.log" for index in (0, 1)]
    pieces = [f"{log}.0001" for log in logs]
    for index in (0, 1):
        trial.until(index, f"test -e {pieces[index]}")
    assert trial.cluster.read(0, pieces[0]).endswith(" of a long log\n")
    trial.cluster.kill_pod(1)
    assert trial.codes() == {0: 75, 1: 137}
    kept = trial.cluster.read_bytes(0, [*logs, *pieces])
    assert [kept[path] is not None for path in (*logs, *pieces)] == [True, False, False, True]
    whole = kept[logs[0]] or b""
    assert whole.count(b" of a long log\n") == LINES
    assert b"exit code 75: a pod was lost during the run" in whole


EXIT_TOGETHER = """
echo "run with $#"
touch /mnt/$#.$JOB_COMPLETION_INDEX
until test -e /mnt/$#.0 -a -e /mnt/$#.1; do sleep 0.02; done
exit $#
"""


def test_every_run_has_results_of_its_own(start: Start) -> None:
    trial = sleeping(
        start,
        2,
        arguments=("script",),
        script=EXIT_TOGETHER,
        env={"A4_RESULTS_DIR": OUTLIVING, "JOB_IDENTIFIER": "my-job"},
    )
    assert agent(trial, 1, "run", "script", "--", "one", "two").returncode == 2
    (run,) = [run for run in state(trial)["runs"] if not run["first"]]
    assert run["results"] == f"{OUTLIVING}/runs/{run['id']}"
    trial.cluster.terminate()
    all_codes(trial, 143)
    for directory, code in ((OUTLIVING, 0), (run["results"], 2)):
        for index in (0, 1):
            log = trial.cluster.read(0, f"{directory}/pod-logs/{log_name(index)}.log")
            assert f"run with {code}\n" in log
            assert f"run with {2 - code}\n" not in log
        result = json.loads(trial.cluster.read(0, f"{directory}/result.json"))
        assert (result["job"], result["workload"]) == ("my-job", "script")
        assert (result["verdict"]["code"], result["verdict"]["origin"]) == (code, "workload")
        assert result["by"].startswith("pod 1 (pid " if code else "ENTRYPOINT")
        assert result["since"] <= result["until"]
        assert [pod["index"] for pod in result["pods"]] == [0, 1]
    said = trial.said(1)
    assert said["run"] != run["id"]  # Kubernetes hears of the job, not of what people do later
    assert (said["code"], said["job_code"]) == (143, 0)


def test_every_line_of_an_agent_is_an_object_for_cloud_logging(start: Start) -> None:
    env = {"A4_LOG_FORMAT": "json", "JOB_IDENTIFIER": "my-job"}
    trial = sleeping(start, 2, env=env, pod_env={1: {"A4_NO_SUCH_SETTING": "x"}})
    assert agent(trial, 1, "run", "script", "--", "false").returncode == 1
    first, second = (run["id"] for run in state(trial)["runs"])
    trial.cluster.terminate()
    all_codes(trial, 143)
    said: list[dict[str, Any]] = []
    for index in (0, 1):
        lines = [json.loads(line) for line in trial.cluster.logs(index, "err").splitlines()]
        assert {(line["pod"], line["job"]) for line in lines} == {(f"{index}/2", "my-job")}
        said += lines
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["time"]) for line in said)
    assert {line["run"] for line in said if "run" in line} <= {first, second}
    assert {line["severity"] for line in said if "A4_NO_SUCH_SETTING" in line["message"]} == {"WARNING"}
    (begun,) = (line for line in said if line["message"].endswith(f" runs {second}"))
    assert (begun["severity"], begun["run"]) == ("INFO", second)
