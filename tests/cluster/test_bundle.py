"""`a4-agent bundle` in real clusters: of a run with secrets, a pod that is gone, dead agents, a job that is over."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.cluster.conftest import END_SECONDS, RUN_DIR, Start, Trial, all_codes
from tests.cluster.test_secrets import CANARIES, JOB, POD, SHOWN_ENV, TELL, expect_marks, secretive, typed
from tests.cluster.work import AGENT, SCRIPT, agent, sleeping, state, until_phase

LOG = ("script", "--", "sh", "-c", "echo from $JOB_COMPLETION_INDEX")


def bundle(trial: Trial, index: int, *words: str) -> tuple[str, dict[str, bytes]]:
    """What the command says, and name → content of what a pod's bundle has."""
    made = agent(trial, index, "bundle", *words, "-o", "/tmp/bundle.tar.gz")
    assert made.returncode == 0, made
    content = trial.cluster.read_bytes(index, ["/tmp/bundle.tar.gz"])["/tmp/bundle.tar.gz"]
    return made.stderr, unpacked(content or b"")


def unpacked(content: bytes) -> dict[str, bytes]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read()
    return found


def test_no_secret_is_in_the_bundle_of_a_run_that_goes_on(start: Start) -> None:
    trial = secretive(start)
    began = typed(trial, f"a4-agent mpirun --detach -- {TELL} hang")
    assert began.returncode == 0, began
    run = state(trial)["run"]["id"]
    trial.until(0, f"grep -qa 'shown SIZE' {RUN_DIR}/runs/{run}/spool/*")
    # As another program would write them, which masks nothing.
    told = "".join(f"{secret} and more\n" for secret in (POD, JOB))
    trial.cluster.exec(0, ["sh", "-c", f"mkdir -p {RUN_DIR}/runs/{run}/why"])
    trial.cluster.write(0, f"{RUN_DIR}/runs/{run}/why/ras.txt", told)
    trial.cluster.write(0, f"{RUN_DIR}/runs/{run}/series.jsonl", told)
    said, files = bundle(trial, 1)
    assert said == "a4-agent: 2 pods: /tmp/bundle.tar.gz\n"
    assert [name for name, content in files.items() if any(word.encode() in content for word in CANARIES)] == []
    assert files[f"pod-0/runs/{run}/why/ras.txt"] == b"*** and more\n" * 2
    output = files[f"pod-0/runs/{run}/output.log"].decode()
    expect_marks(output, children=False)
    assert all(f"shown {name} {value}\n" in output for name, value in SHOWN_ENV.items())
    of_pod = {"plan.json", "facts.json", "state.json", "events.jsonl", "environment.json", "readings.json"}
    assert {f"pod-{pod}/{name}" for pod in (0, 1) for name in of_pod} <= files.keys()
    assert not {name for name in files if name.endswith((".jsonl", "token", "key")) and "events" not in name}
    assert state(trial)["run"]["id"] == run  # it goes on
    assert agent(trial, 0, "cancel").returncode == 0
    trial.cluster.terminate()
    all_codes(trial, 143)


def test_a_pod_that_is_gone_and_an_agent_that_hangs(start: Start, tmp_path: Path) -> None:
    share = {"/mnt/results": str(tmp_path)}
    trial = sleeping(start, 3, arguments=LOG, env={"A4_RESULTS_DIR": "/mnt/results"}, directories=share)
    trial.until(0, "test -s /mnt/results/pod-logs/worker-2.log")
    run = state(trial)["runs"][0]["id"]
    trial.cluster.kill_pod(2)
    pid = trial.cluster.read(0, f"{RUN_DIR}/lock").split()[1]
    stop = f"kill -STOP {pid}; touch -d '1 minute ago' {RUN_DIR}/alive"
    assert trial.cluster.exec(0, ["sh", "-c", stop]).returncode == 0
    try:
        said, files = bundle(trial, 0)
    finally:
        trial.cluster.exec(0, ["kill", "-CONT", pid])
    assert said == "a4-agent: 2 pods, without pod 2: /tmp/bundle.tar.gz\n"
    assert b"from 2\n" in files["pod-0/results/pod-logs/worker-2.log"]
    assert b"from 1\n" in files[f"pod-1/runs/{run}/output.log"]
    missing = files["missing.txt"].decode()
    assert "pod 0: the agent of this pod has not shown life for 6" in missing
    assert "pod 2: ssh: connect to host " in missing
    assert not any(name.startswith("pod-2/") for name in files)
    ticket = files["ticket.txt"].decode()
    assert f"run {run}, " in ticket and all(f"\npod {pod}, " in ticket for pod in (0, 1, 2))


def test_an_agent_that_was_killed_and_a_job_that_is_over(start: Start, tmp_path: Path) -> None:
    """The container goes on without its agent; then only the results are left."""
    entrypoint = ("bash", "-c", f"{' '.join(AGENT)} run script -- echo hello; exec sleep infinity")
    trial = start(
        2,
        entrypoint=entrypoint,
        script=SCRIPT,
        env={"SLEEP_INFINITY": "true", "A4_RESULTS_DIR": "/mnt/results", "HF_TOKEN": POD},
        directories={"/mnt/results": str(tmp_path)},
    )
    until_phase(trial, "sleeping", 0, 1)
    run = state(trial)["runs"][0]["id"]
    for index in (0, 1):
        trial.kill_agent(index)
    trial.cluster.write(1, f"{RUN_DIR}/runs/{run}/evidence.txt", f"{POD} and more\n")
    said, files = bundle(trial, 0)  # the sshd of the other pod still lets us in
    assert said == "a4-agent: 2 pods: /tmp/bundle.tar.gz\n"
    assert files[f"pod-1/runs/{run}/evidence.txt"] == b"*** and more\n"  # only PID 1 has its secrets now
    assert b"hello\n" in files[f"pod-1/runs/{run}/output.log"]
    trial.cluster.kill_pod(1)
    said, files = bundle(trial, 0)
    assert said == "a4-agent: this pod alone (no other pod answers), without pod 1: /tmp/bundle.tar.gz\n"
    missing = files["missing.txt"].decode()
    assert "pod 0: no a4-agent runs in this pod: what is here is what it left\n" in missing
    assert b"hello\n" in files[f"pod-0/runs/{run}/output.log"]

    argv = [*AGENT, "bundle", "--results", str(tmp_path), "-o", "-"]
    made = subprocess.run(argv, capture_output=True, timeout=END_SECONDS, check=False)
    assert made.returncode == 0, made
    files = unpacked(made.stdout)
    assert {"pod-0/results/result.json", "pod-0/results/pod-logs/worker-1.log"} <= files.keys()
    assert f"run {run}, " in files["ticket.txt"].decode() and "\npod 1, " in files["ticket.txt"].decode()
