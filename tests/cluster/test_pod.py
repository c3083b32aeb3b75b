"""What a pod is like from inside: init, sshd, keys, environment, commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import END_SECONDS, RUN_DIR, Start, all_codes
from tests.cluster.work import AGENT


def test_without_tini_pid_1_says_so(start: Start) -> None:
    trial = start(1, entrypoint=(*AGENT, "run", "none"), env={"PATH": "/nowhere"})
    all_codes(trial, 66)
    assert "apt-get install tini" in trial.log()


UNREAD = """
import os, sys
read, write = os.pipe()
os.set_inheritable(read, True)  # open for as long as the agent lives, and never read
os.set_blocking(write, False)
for size in (65536, 1):
    try:
        while True:
            os.write(write, bytes(size))
    except BlockingIOError:
        pass
os.set_blocking(write, True)
for stream in (1, 2):
    os.dup2(write, stream)
os.execvp("tini", ["tini", "--", *sys.argv[1:]])
"""


def test_a_pod_whose_output_nobody_reads_lives_on(start: Start) -> None:
    """Its stdout and stderr are full from the beginning, and an agent that wrote there itself would stand still."""
    program = (sys.executable, "-c", UNREAD, *AGENT, "run", "none")
    trial = start(2, entrypoint=program, env={"SLEEP_INFINITY": "true", "A4_NO_SUCH_SETTING": "a warning"})
    for pod in (0, 1):
        trial.until_event(pod, "result-known")
        trial.cluster.exec(pod, ["touch", "/run/now"])
    # A run that prints to the pods as well, more than their pipes hold.
    words = ["a4-agent", "mpirun", "--", "head", "-c", "300000", "/dev/zero"]
    done = trial.cluster.exec(1, words, timeout=END_SECONDS)
    assert (done.returncode, len(done.stdout)) == (0, 600_000), done.stderr
    for pod in (0, 1):
        trial.until(pod, f"test {RUN_DIR}/alive -nt /run/now")
        trial.until(pod, f"grep -rqs 'A4_NO_SUCH_SETTING is not a setting' {RUN_DIR}/runs")
    assert trial.cluster.exec(0, ["a4-agent", "release"], timeout=END_SECONDS).returncode == 0
    all_codes(trial, 0)


def test_a_foreign_run_directory_is_refused(start: Start) -> None:
    program = ("tini", "--", "bash", "-c", 'ln -s /tmp /run/a4-agent; exec "$@"', "sh", *AGENT, "run", "none")
    trial = start(1, entrypoint=program)
    all_codes(trial, 71)
    assert "/run/a4-agent is not a directory of this user's own" in trial.log()


READ_ONLY = "mount --bind /etc /etc && mount -o remount,bind,ro /etc || exit 3"
FULL = "mount -t tmpfs -o size=64k none /run; dd if=/dev/zero of=/run/fill 2>/dev/null; test -s /run/fill || exit 3"


@pytest.mark.parametrize(
    ("fault", "path", "why", "hint"),
    [
        (READ_ONLY, "/etc/job-worker-services.txt", "Read-only file system", "readOnlyRootFilesystem: false"),
        (FULL, "/run/a4-agent", "No space left on device", "A4_RUN_DIR"),
    ],
    ids=["read-only", "full"],
)
def test_where_nothing_can_be_written_the_pod_says_so_at_once(
    start: Start, fault: str, path: str, why: str, hint: str
) -> None:
    trial = start(1, entrypoint=("tini", "--", "bash", "-c", f'{fault}; exec "$@"', "sh", *AGENT, "run", "none"))
    all_codes(trial, 71)
    assert path in trial.log() and why in trial.log() and hint in trial.log()
    assert "Traceback" not in trial.log()
    said = trial.said(0)
    assert (said["code"], path in said["what"], hint in said["why"]) == (71, True, True)


def test_people_get_in_with_a_key_of_their_own(start: Start, tmp_path: Path) -> None:
    """Nor does sshd care for the modes of parents."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    deep = "/run/a4/deep/er"
    env = {"SSH_PUBLIC_KEY": key.with_suffix(".pub").read_text(), "A4_RUN_DIR": deep, "SLEEP_INFINITY": "true"}
    program = ("tini", "--", "bash", "-c", 'chmod 0777 /run; exec "$@"', "sh", *AGENT, "run", "none")
    trial = start(2, entrypoint=program, env=env)
    for index in range(2):
        trial.until(index, f"grep -qs result-known {deep}/events.jsonl")
    trial.cluster.write(0, "/tmp/key", key.read_text())
    trial.cluster.exec(0, ["chmod", "600", "/tmp/key"])
    # A person comes with a client that has no other key.
    came = trial.cluster.exec(
        0,
        ["ssh", "-F", "/dev/null", "-p", "2222", "-i", "/tmp/key", "-o", "IdentitiesOnly=yes",
         "-o", f"UserKnownHostsFile={deep}/ssh/known_hosts", trial.cluster.spec.pod_name(1), "echo here"],
        timeout=END_SECONDS,
    )  # fmt: skip
    assert came.stdout == "here\n", came


def test_verbs_answer_while_the_cluster_forms(start: Start) -> None:
    trial = start(2, missing=frozenset({1}), arguments=("none",))
    trial.until_event(0, "facts-ready")
    run = trial.cluster.exec
    assert "forming the cluster" in run(0, [*AGENT, "status"]).stdout
    hostfile = run(0, [*AGENT, "hostfile"])
    assert (hostfile.returncode, "not formed" in hostfile.stderr) == (69, True)
    by_index = run(0, [*AGENT, "hostfile", "--order", "index", "--slots", "1"])
    assert by_index.stdout == "".join(f"{trial.cluster.spec.pod_name(i)} slots=1\n" for i in range(2))
    dry = run(0, [*AGENT, "run", "connectivity", "--dry-run"])
    assert dry.returncode == 0, dry
    assert "--hostfile /run/a4-agent/runs/RUN-ID/hostfile" in dry.stdout


def test_signals_to_pid_1_reach_the_workload_or_end_nothing(start: Start) -> None:
    # A program that a trap starts would get the second signal, too, as all of the group do, and end of it.
    waits = "trap ':>/tmp/usr1' USR1; trap ':>/tmp/usr2' USR2; :>/tmp/ready; while :; do sleep 0.05; done"
    trial = start(2, script=waits)
    trial.until(1, "test -e /tmp/ready")
    for name in ("ALRM", "HUP", "TSTP", "TTIN", "TTOU", "USR1", "USR2"):
        trial.cluster.exec(1, ["kill", f"-{name}", "1"])
    trial.until(1, "test -e /tmp/usr1 -a -e /tmp/usr2")
    trial.cluster.exec(0, ["kill", "-QUIT", "1"])
    all_codes(trial, 130)
