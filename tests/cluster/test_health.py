"""GPUs that become sick during a run, and the gate before one: real pods with a stand-in for nvidia-smi."""

from __future__ import annotations

from agent.machine.health.pod_readings import SMI_DIRECTORY
from tests.cluster.conftest import Start
from tests.cluster.work import GATE, SHELL, agent, following, open_gate, read_until, result, result_of, sleeping
from tests.health.machine import NODES, nvidia_smi_xml

WELL = nvidia_smi_xml(NODES["H200"]._replace(gpus=1))
NVIDIA_SMI = b"""\
#!/bin/sh
case "$1" in
nvlink) echo "GPU 0: NVIDIA H200 (UUID: GPU-0)" ;;
*) if test -n "$SICK" -o -e /tmp/sick; then exec cat /job/sick.xml; else exec cat /job/well.xml; fi ;;
esac
"""
FILES = {
    "/dev/nvidia0": b"",
    f"{SMI_DIRECTORY}/nvidia-smi": NVIDIA_SMI,
    "/job/well.xml": WELL.encode(),
    "/job/sick.xml": WELL.replace("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<").encode(),
}
READ = "! grep -qs [r]uns.part_health /proc/[0-9]*/cmdline"
"""Nobody is reading devices any more."""


def test_a_gpu_that_becomes_sick_during_a_run(start: Start) -> None:
    trial = sleeping(start, 2, gpus_per_pod=1, files=FILES, env={"A4_REPORT": "false"})
    with following(trial, 0, "run", *SHELL, f"echo begun; {GATE}") as (run, run_id):
        read_until(run.stdout, b"begun\n")
        for index in range(2):
            trial.until(index, READ)
        trial.cluster.exec(1, ["touch", "/tmp/sick"])
        open_gate(trial)
        text = run.stdout.read().decode()
        assert run.wait() == 0
    node = trial.cluster.spec.node_name(1)
    said = f"fatal: GPU recovery action: Reset, before the run None on GPU 0 of pod 1, node {node}"
    assert f"health during the run: {said}" in text
    found = result(trial, f"/run/a4-agent/runs/{run_id}")
    bad = [(one["pod"], one["check"], one["severity"]) for one in found["findings"] if one["state"] == "bad"]
    assert bad == [(1, "GPU recovery action", "fatal")]
    # Links of which no errors are told, and no kernel log: what is not there is not ok.
    assert {one["check"] for one in found["findings"] if one["pod"] == 0} <= {"devices during the run", "XIDs"}


def test_the_gate(start: Start) -> None:
    """A job of three pods, one of which has a sick GPU: it ends before its script starts."""
    trial = start(
        3, gpus_per_pod=1, files=FILES, pod_env={1: {"SICK": "1"}}, env={"A4_GATE": "true", "A4_REPORT": "false"},
        arguments=("script",), script="echo started\n",
    )  # fmt: skip
    assert set(trial.codes().values()) == {65}, trial.log()
    said, node = trial.said(2), trial.cluster.spec.node_name(1)
    assert said["what"] == "the gate: pod 1 of 3 with a fatal finding"
    assert f"go on without: a4-agent run --exclude 1 …\nchart: --set 'avoidNodes={{{node}}}'\n" in said["why"]
    assert f"kubectl label node {node} cloud.google.com/fault-behavior=XID" in said["why"]
    assert "started" not in trial.log()


def test_the_gate_of_a_later_run(start: Start) -> None:
    trial = sleeping(start, 2, gpus_per_pod=1, files=FILES, pod_env={1: {"SICK": "1"}}, env={"A4_REPORT": "false"})
    refused = agent(trial, 0, "run", "--gate", *SHELL, "echo started")
    assert (refused.returncode, refused.stdout) == (65, ""), refused
    checks = {one["check"] for one in result_of(trial, refused)["findings"] if one["severity"] == "fatal"}
    assert "GPU recovery action" in checks
    without = agent(trial, 0, "run", "--gate", "--exclude", "1", *SHELL, "echo started")
    assert (without.returncode, without.stdout) == (0, "started\n"), without
    doctor = agent(trial, 0, "doctor")
    assert doctor.returncode == 65 and "\ngo on without: a4-agent run --exclude 1 …\n" in doctor.stdout
