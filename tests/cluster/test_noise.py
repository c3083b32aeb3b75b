"""How many lines a person sees on stderr of a run under torchrun, however it ends; the logs have the others."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import END_SECONDS, Trial, starting
from tests.cluster.work import agent, read_until, sleeping

NOISY = Path(__file__).with_name("programs") / "noisy.py"
PATIENT = "from agent.decide import noise; noise.WAITS_SECONDS = 600; from agent.cli import entry; entry()"
"""The agent, for a machine on which a run takes long to end: lines wait for that end, not for a while."""


@pytest.fixture(scope="module")
def trial(no_pod_around_fixtures: None, torch: Path) -> Iterator[Trial]:
    files = {"/job/noisy.py": NOISY.read_bytes()}
    with starting() as start:
        yield sleeping(start, 2, gpus_per_pod=2, env={"A4_PYTHON": str(torch)}, files=files)


def typed(*words: str) -> list[str]:
    return [sys.executable, "-c", PATIENT, "torchrun", *words]


def test_a_rank_that_raises(trial: Trial) -> None:
    done = trial.cluster.exec(1, typed("--", "/job/noisy.py", "raises"), timeout=END_SECONDS)
    shown = done.stderr.splitlines()
    assert (done.returncode, len(shown) <= 25) == (1, True), shown
    assert " ended with exit code 1: rank 3 failed: ValueError: the loss is nan (pod " in shown[1]
    assert '    [rank3]:     raise ValueError("the loss is nan")' in shown
    assert shown[-2] == "  3 ranks on 2 pods ended because of it: a4-agent logs RUN --rank N"
    assert " more lines of errors)" in shown[-1]
    logged = agent(trial, 0, "logs", "--rank", "2").stderr
    assert "[rank2]: RuntimeError" in logged and "Root Cause (first observed failure)" in logged


def test_a_run_that_is_interrupted(trial: Trial) -> None:
    with trial.cluster.popen(1, typed("--", "/job/noisy.py", "stays")) as run:
        for _ in range(4):
            read_until(run.stdout, b"here\n")
        run.signal(signal.SIGINT)
        assert run.wait() == 130
        shown = run.stderr.read().decode().splitlines()
    # Two ranks could not save: that is said, once.
    assert [line for line in shown if "OSError: [Errno 28] No space left on device: '/mnt/" in line], shown
    assert (len(shown) <= 20, sum("Traceback" in line for line in shown)) == (True, 1), shown
