"""Canaries in the environment, in a shell, in the job's secret: nothing that is shown or stored may hold them."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from agent.paths import SECRET_FILE
from tests.cluster.conftest import END_SECONDS, RUN_DIR, Start, Trial, all_codes
from tests.cluster.work import agent, metrics_of, result, sleeping, state
from tests.torch_environment import TORCH_PYTHON

MARK = secrets.token_hex(4)
"""Others may test on this machine."""
POD = f"canary-of-every-pod-{MARK}"
SHELL = f"canary-of-a-shell-{MARK}"
JOB = f"canary-of-the-job-secret-{MARK}"
LISTED = f"canary-of-a-quiet-name-{MARK}"
URL = f"canary-of-a-url-{MARK}"
ARGUMENT = f"canary-of-an-argument-{MARK}"
CANARIES = (POD, SHELL, JOB, LISTED, URL, ARGUMENT)
SECRET_ENV = {
    "HF_TOKEN": POD,
    "A4_SECRET_ENV": "QUIET SIZE",
    "QUIET": LISTED,
    "SIZE": "8",  # from a Secret, too, and too short to be looked for
    "INDEX_URL": f"https://user:{URL}@index.example/simple",
}
SHOWN_ENV = {
    "TOKENIZER_MODEL": "a-model-with-a-name",
    "MAX_NUM_TOKENS": "8589934592",
    "MY_TOKEN_LIMIT": "no-secret-at-all",
    "GOOGLE_APPLICATION_CREDENTIALS": "/etc/google/key.json",
    "SERVICE_TOKEN": "/var/run/secrets/tokens/service",
    "SIZE": "8",
}
RESULTS = "/mnt/results"

PROGRAM = """
import os, subprocess, sys

def hang_with(token):
    while True:
        os.read(os.pipe()[0], 1)

if os.environ.get("OMPI_COMM_WORLD_RANK") == "0":
    # mpirun would put its bytes between those of rank 1, which is on another pod than mpirun
    hang_with(os.environ["HF_TOKEN"]) if len(sys.argv) > 1 else sys.exit(0)
secrets = {name: os.environ[name] for name in ("HF_TOKEN", "MY_TOKEN", "QUIET") if name in os.environ}
secrets["URL"] = os.environ["INDEX_URL"].partition("user:")[2].partition("@")[0]
with open("/etc/a4-agent/secret/job-secret") as file:
    secrets["JOB"] = file.read()
for name, secret in secrets.items():
    for stream in (1, 2):
        os.write(stream, f"plain {name} {secret}\\n".encode())
        os.write(stream, f"split {name} ".encode())
        for byte in secret.encode():
            os.write(stream, bytes([byte]))
        os.write(stream, b" end\\n")
    subprocess.run(["sh", "-c", 'echo "child $0 $SECRET"', name], check=True, env={"SECRET": secret})
for name in SHOWN:
    print("shown", name, os.environ[name], flush=True)
print("from", os.environ["INDEX_URL"], *sys.argv[1:], flush=True)
if "fail" in sys.argv:
    raise RuntimeError(f"no access with {secrets}")
if "hang" in sys.argv:
    hang_with(secrets["HF_TOKEN"])
"""
PROGRAM = PROGRAM.replace("SHOWN", repr(tuple(SHOWN_ENV)))
TELL = f"{sys.executable} /workload/tell.py"


SAMPLER = """
import json, os, select, sys

def look():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", errors="replace") as file:
                line = file.read().replace("\\0", " ")
        except OSError:
            continue
        seen.update(word for word in wanted if word in line)

wanted, seen = json.loads(sys.stdin.readline()), set()
print("looking", flush=True)
while not select.select([sys.stdin], [], [], 0.1)[0]:  # between two looks
    look()
print(json.dumps(sorted(seen)), flush=True)
"""


@dataclass
class Sampled:
    """Which of some words stood on a command line of any process of this machine, and so of any pod."""

    seen: list[str] = field(default_factory=list)


@contextmanager
def sampled(*words: str) -> Iterator[Sampled]:
    """Looks at /proc/*/cmdline about ten times a second while the block lasts."""
    found = Sampled()
    with subprocess.Popen(
        [sys.executable, "-ISc", SAMPLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as sampler:
        assert sampler.stdin is not None and sampler.stdout is not None
        try:
            sampler.stdin.write(json.dumps(words) + "\n")
            sampler.stdin.flush()
            assert sampler.stdout.readline() == "looking\n"
            yield found
            found.seen = json.loads(sampler.communicate("\n", timeout=END_SECONDS)[0])
        finally:
            sampler.kill()


def typed(trial: Trial, line: str) -> subprocess.CompletedProcess[str]:
    """A line typed into a shell of pod 1 in which a token has been exported."""
    script = f"export MY_TOKEN={SHELL}; {line}\n"
    return trial.cluster.exec(1, ["bash", "-s"], input=script, timeout=END_SECONDS)


def hits(text: str) -> list[str]:
    return [canary for canary in CANARIES if canary in text]


def files_with_canaries(trial: Trial, index: int) -> list[str]:
    """In which files of a pod there is one."""
    places = [RUN_DIR, "/mnt", "/tmp", "/etc", "/root/.ssh", "/dev/shm", "/dev/termination-log"]
    command = ["grep", "-rlaF", "--devices=skip", "--file=-", *places]
    return sorted(
        trial.cluster.exec(index, command, input="\n".join(CANARIES), timeout=END_SECONDS).stdout.splitlines()
    )


def secretive(start: Start) -> Trial:
    """A sleeping cluster whose first run has told everything it knows."""
    return sleeping(
        start,
        2,
        arguments=("script",),
        script=f"exec {TELL}\n",
        files={"/workload/tell.py": PROGRAM.encode()},
        secret=JOB.encode(),
        env={
            **SECRET_ENV,
            **SHOWN_ENV,
            "A4_LOG_LEVEL": "debug",
            "A4_METRICS_PORT": "9400",
            "A4_RESULTS_DIR": RESULTS,
            "A4_PYTHON": str(TORCH_PYTHON),
        },
    )


def expect_masked(trial: Trial, lines: Mapping[str, int]) -> None:
    """These lines, typed in a shell, end with these codes and show no secret, though the program tells them all."""
    for line, code in lines.items():
        shown = typed(trial, line)
        assert (shown.returncode, hits(shown.stdout + shown.stderr)) == (code, []), f"{line}: {shown}"
        if "tell.py" in line or line == "a4-agent run script":
            expect_marks(shown.stdout, children=True)
            expect_marks(shown.stderr, children=False)
        if "fail" in line:
            told = "{'HF_TOKEN': '***', 'MY_TOKEN': '***', 'QUIET': '***', 'URL': '***', 'JOB': '***'}"
            assert f"no access with {told}" in shown.stderr


def expect_marks(text: str, *, children: bool) -> None:
    """All of it was printed, and what is secret was masked."""
    for name in ("HF_TOKEN", "MY_TOKEN", "QUIET", "URL", "JOB"):
        assert f"plain {name} ***\n" in text
        assert f"split {name} *** end\n" in text
        assert not children or f"child {name} ***\n" in text
    if children:
        assert all(f"shown {name} {value}\n" in text for name, value in SHOWN_ENV.items())
        assert "from https://user:***@index.example/simple" in text


def expect_nothing_left(trial: Trial) -> None:
    """No secret in any file of a pod but its own, in no log, and in nothing that the pods have printed."""
    for run in state(trial)["runs"]:
        logs = agent(trial, 0, "logs", run["id"])
        assert (logs.returncode, hits(logs.stdout + logs.stderr)) == (0, [])
        got = agent(trial, 1, "get", run["id"], "-o", f"/tmp/got/{run['id']}")
        assert (got.returncode, hits(got.stdout + got.stderr)) == (0, [])
        launch = result(trial, f"{RUN_DIR}/runs/{run['id']}")["launch"] or {"environment": {}}
        assert launch["environment"].keys() & {*SECRET_ENV, *SHOWN_ENV} <= {"A4_SECRET_ENV"}
    for index in (0, 1):
        assert files_with_canaries(trial, index) == [SECRET_FILE]
        metrics = metrics_of(trial, index)
        assert "a4_pod_phase" in metrics and hits(metrics) == []
    trial.cluster.terminate()
    all_codes(trial, 143)
    for index in (0, 1):
        for stream in ("out", "err"):
            log = trial.cluster.logs(index, stream)
            assert hits(log) == []
            assert "plain HF_TOKEN ***\n" in log and "plain QUIET ***\n" in log
        assert hits(trial.cluster.read(index, "/dev/termination-log")) == []


def test_no_secret_is_shown_or_stored_or_on_a_command_line(start: Start) -> None:
    programs = ["connectivity.py", "orted", "tell.py fail", "torch.distributed.run"]
    with sampled(*CANARIES, *programs) as command_lines:
        trial = secretive(start)
        expect_masked(
            trial,
            {
                f"a4-agent exec -- {TELL}": 0,
                f"a4-agent exec --no-fold -- {TELL} fail": 1,
                f"a4-agent mpirun --label -- {TELL}": 0,
                "a4-agent torchrun -- /workload/tell.py fail": 1,
                "a4-agent run script": 0,
                "a4-agent run connectivity -- --repeats 1": 0,
                "a4-agent mpirun --dry-run -- ./a.out": 0,
                "a4-agent torchrun --dry-run -- train.py": 0,
                "a4-agent exec --dry-run -- env": 0,
                "a4-agent settings": 0,
                "a4-agent status --json": 0,
            },
        )
    assert command_lines.seen == programs
    expect_nothing_left(trial)


@pytest.mark.faults
def test_no_secret_comes_with_the_evidence_of_a_run_that_hangs_or_with_its_arguments(start: Start) -> None:
    # A token that somebody puts on a command line stands there: it is not looked for.
    with sampled(POD, JOB, LISTED, URL, "orted", "tell.py hang") as command_lines:
        trial = secretive(start)
        expect_masked(
            trial,
            {
                f'a4-agent mpirun --stall-timeout 30 -- {TELL} hang "$MY_TOKEN"': 124,
                f'a4-agent exec -- {TELL} --bearer "$MY_TOKEN"': 0,
                'a4-agent mpirun -- ./no-such-program "$MY_TOKEN"': 66,
                'a4-agent exec --dry-run -- echo "$MY_TOKEN"': 0,
                f'a4-agent exec -- sh -c \'echo "$2"; printf %s "$2" | base64\' sh --password {ARGUMENT}': 0,
            },
        )
    assert command_lines.seen == ["orted", "tell.py hang"]
    found = trial.cluster.exec(0, ["bash", "-c", f"cat {RESULTS}/runs/*/evidence/*.txt"]).stdout
    # Once or twice: the last lines of a rank may be of one stream alone, as they are kept in the order of reading.
    assert "plain JOB ***" in found
    assert found.count("tell.py hang ***\n") >= 2
    expect_nothing_left(trial)
