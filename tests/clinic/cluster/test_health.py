"""GPUs that become sick during a run, and the gate before one: real pods with a stand-in for nvidia-smi."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent.paths import SMI_DIRECTORY
from tests.clinic.machine import NODES, nvidia_smi_xml
from tests.cluster.conftest import RUN_DIR, Trial
from tests.cluster.work import GATE, SHELL, agent, asleep, following, open_gate, read_until, result, result_of

WELL = nvidia_smi_xml(NODES["H200"]._replace(gpus=1))
NVIDIA_SMI = b"""\
#!/bin/sh
case "$1" in
nvlink) echo "GPU 0: NVIDIA H200 (UUID: GPU-0)" ;;
*) if test -e /tmp/sick; then exec cat /job/sick.xml; else exec cat /job/well.xml; fi ;;
esac
"""
FILES = {
    "/dev/nvidia0": b"",
    f"{SMI_DIRECTORY}/nvidia-smi": NVIDIA_SMI,
    "/job/well.xml": WELL.encode(),
    "/job/sick.xml": WELL.replace("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<").encode(),
}
READ = "! grep -qs [p]robes.counters /proc/[0-9]*/cmdline"
"""Nobody is reading devices any more."""


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with asleep(2, files=FILES) as trial:
        yield trial


@contextmanager
def sick(trial: Trial) -> Iterator[None]:
    """A GPU of pod 1 is."""
    trial.cluster.exec(1, ["touch", "/tmp/sick"])
    yield
    trial.cluster.exec(1, ["rm", "/tmp/sick"])


def test_a_gpu_that_becomes_sick_during_a_run(trial: Trial) -> None:
    with following(trial, 0, "run", *SHELL, f"echo begun; {GATE}") as (run, run_id):
        read_until(run.stdout, b"begun\n")
        for index in range(2):
            trial.until(index, READ)
        with sick(trial):
            open_gate(trial)
            text = run.stdout.read().decode()
        assert run.wait() == 0
    node = trial.cluster.spec.node_name(1)
    said = f"fatal: GPU recovery action: Reset, before the run None on GPU 0 of pod 1, node {node}"
    assert f"health during the run: {said}" in text
    found = result(trial, f"{RUN_DIR}/runs/{run_id}")
    bad = [(one["pod"], one["check"], one["severity"]) for one in found["findings"] if one["state"] == "bad"]
    assert bad == [(1, "GPU recovery action", "fatal")]
    # Links of which no errors are told, and no kernel log: what is not there is not ok.
    assert {one["check"] for one in found["findings"] if one["pod"] == 0} <= {"devices during the run", "XIDs"}


def test_the_gate(trial: Trial) -> None:
    with sick(trial):
        refused = agent(trial, 0, "run", "--gate", *SHELL, "echo started")
        without = agent(trial, 0, "run", "--gate", "--exclude", "1", *SHELL, "echo started")
        doctor = agent(trial, 0, "doctor")
    assert (refused.returncode, refused.stdout) == (65, ""), refused
    checks = {one["check"] for one in result_of(trial, refused)["findings"] if one["severity"] == "fatal"}
    assert "GPU recovery action" in checks
    assert (without.returncode, without.stdout) == (0, "started\n"), without
    assert doctor.returncode == 65 and "\ncontinue without: a4-agent run --exclude 1 …\n" in doctor.stdout
