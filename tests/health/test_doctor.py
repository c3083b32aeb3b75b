"""`a4-agent doctor`: each check has a fault that it alone finds, and none finds anything on a healthy pod."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.commands.doctor import exit_code
from agent.decide.finding import Finding
from agent.health.doctor import checks, deltas, fleet, nvidia_smi, xids
from agent.health.doctor.checks import examine
from agent.health.doctor.telling import report
from tests.health.machine import GPUS, PROCESS, PodMachine, nvidia_smi_xml

NODE = "node-7"
XID_79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus."
Break = Callable[[PodMachine], Any]


@pytest.fixture
def machine(tmp_path: Path) -> PodMachine:
    return PodMachine(tmp_path)


def set_override(name: str, value: Any) -> Break:
    return lambda m: m.overrides.update({name: value})


FAULTS: dict[str, tuple[Break, str, str]] = {
    "GPUs": (lambda m: (m.root / "dev/nvidia5").unlink(), "", "7 of 8"),
    "GPU recovery action": (lambda m: m.gpu(gpu_recovery_action="Drain and Reset"), "GPU 3", "Drain and Reset"),
    "GPU memory errors": (lambda m: m.gpu(dram_uncorrectable="2"), "GPU 3", "2"),
    "GPU memory errors ever": (lambda m: m.gpu(aggregate_dram_uncorrectable="5"), "GPU 3", "5"),
    "GPU memory rows to be replaced": (lambda m: m.gpu(remapped_row_pending="Yes"), "GPU 3", "Yes"),
    "GPU memory rows that cannot be replaced": (lambda m: m.gpu(remapped_row_failure="Yes"), "GPU 3", "Yes"),
    "GPU clock": (lambda m: m.gpu(hw_slowdown="Active"), "GPU 3", "hardware slowdown"),
    "GPU PCIe link": (lambda m: m.gpu(current_link_width="8x"), "GPU 3", "8 of 16 lanes"),
    "NVLink fabric": (lambda m: m.gpu(fabric_state="In Progress"), "GPU 3", "In Progress, Success"),
    "GPU processes": (lambda m: m.gpu(processes=PROCESS), "GPU 3", "1"),
    "XIDs": (
        lambda m: m.write("dev/kmsg", f"3,9,4900000000,-;{XID_79}\n"),
        "0000:1b:00",
        "XID 79 100 s ago: pid=1, GPU has fallen off the bus.",
    ),
    "GPU computes": (
        lambda m: m.probe("computing\n", problem="3 elements of a product are wrong"),
        " ".join(f"GPU {index}" for index in range(GPUS)),
        "3 elements of a product are wrong",
    ),
    "RDMA ports": (
        lambda m: m.write("sys/class/infiniband/mlx5_2/ports/1/state", "1: DOWN\n"), "mlx5_2/1", "DOWN"
    ),
    "/dev/shm": (set_override("shm", {"size": 64 << 20, "free": 0}), "", "64 MiB"),
    "memory that can be locked": (
        set_override("limits", {"memlock": [65536, 65536], "nofile": [1, 1]}), "", "64 KiB"
    ),
    "disk space": (
        set_override(
            "disks",
            [{"path": "/d", "problem": "", "bytes": 1000, "bytes_free": 50, "files": 10, "files_free": 9}],
        ),
        "/d", "95 % of its bytes used",
    ),
    "names of peers": (lambda m: m.peers.append("a.invalid"), "a.invalid", "*"),
}  # fmt: skip
"""By check: what breaks, on which device it is found, and what is said of it."""


def bad(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.state != "ok"]


def test_a_healthy_pod_has_no_finding_and_every_check_has_looked(machine: PodMachine) -> None:
    found = examine(machine.readings(), 0, NODE)
    assert not bad(found)
    assert {one.check for one in found} == {check.name for check in checks.CHECKS}


def test_every_check_has_a_fault() -> None:
    assert [check.name for check in checks.CHECKS] == [*FAULTS]


@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_is_found_by_its_check_alone(check: str, machine: PodMachine) -> None:
    break_it, device, value = FAULTS[check]
    break_it(machine)
    found = bad(examine(machine.readings(), 4, NODE))
    assert {(one.check, one.state) for one in found} == {(check, "bad")}
    assert " ".join(one.device for one in found) == device
    assert all(value in ("*", one.value) and one.action and "{" not in one.action for one in found)


def test_a_pod_without_gpus_and_rdma_is_asked_nothing_about_them(tmp_path: Path) -> None:
    machine = PodMachine(tmp_path)
    for each in ("dev", "proc", "sys"):
        (machine.root / each).rename(machine.root / f"no-{each}")
    (machine.root / "dev").mkdir()
    assert {one.check for one in examine(machine.readings(), 0, "")} == {"disk space", "names of peers"}


# Could not look: never ok, and it says why


@pytest.mark.parametrize(
    ("break_it", "checks_blind", "why"),
    [
        (lambda m: (m.bin / "nvidia-smi").unlink(), 9, "nvidia-smi is not on PATH"),
        (lambda m: m.program("nvidia-smi", "Failed to initialize NVML: Unknown Error", 255), 9, "ended with 255"),
        (lambda m: m.program("nvidia-smi", "<nvidia_smi_log><gpu>"), 9, "printed no XML"),
        (lambda m: m.gpu(gpu_recovery_action="N/A"), 1, "nvidia-smi does not say it"),
        (lambda m: (m.root / "dev/kmsg").unlink(), 1, "No such file or directory"),
        (lambda m: m.probe("", unknown="torch cannot be imported: no"), 1, "torch cannot be imported: no"),
        (lambda m: m.program("python", "", 3), 1, "the probe ended with 3"),
        (lambda m: setattr(m, "run", "ddp-1"), 1, "ddp-1 has the cluster"),
    ],
)
def test_what_could_not_be_seen_is_not_ok(break_it: Break, checks_blind: int, why: str, machine: PodMachine) -> None:
    break_it(machine)
    found = bad(examine(machine.readings(), 0, NODE))
    assert {one.state for one in found} == {"unknown"} and len({one.check for one in found}) == checks_blind
    assert all(why in one.value for one in found)


def test_a_probe_that_began_to_compute_and_does_not_end_is_a_fault(machine: PodMachine) -> None:
    machine.program("python", "computing", 1)
    assert {one.state for one in bad(examine(machine.readings(), 0, NODE))} == {"bad"}


# XIDs and nvidia-smi


@pytest.mark.parametrize(
    ("number", "severity"),
    [(79, "fatal"), (48, "fatal"), (92, "degraded"), (94, "degraded"), (63, "information"), (154, "information"),
     (13, "information"), (999, "information")],
)  # fmt: skip
def test_severities_of_xids(number: int, severity: str) -> None:
    assert xids.severity(number) == severity


def test_only_xids_of_the_last_minutes_count() -> None:
    records = [f"3,{n},{n * 1_000_000},-;{XID_79}" for n in (10, 50)] + ["nonsense", "3,1;x", "a,b,c,-;NVRM: Xid"]
    assert [one.seconds_ago for one in xids.parse(records, 60.0, 20.0)] == [10.0]


def test_xids_of_programs_are_no_fault_of_the_gpu(machine: PodMachine) -> None:
    machine.write("dev/kmsg", f"3,9,4900000000,-;{XID_79.replace('79', '31')}\n")
    assert not bad(examine(machine.readings(), 0, NODE))


def test_names_of_older_drivers() -> None:
    text = nvidia_smi_xml({"hw_slowdown": "Active"}, gpu=0, count=1).replace("_event_reason", "_throttle_reason")
    text = text.replace("dram_uncorrectable>0", "dram_uncorrectable>4")
    (gpu,) = nvidia_smi.parse(text)
    assert gpu["slow"] == ["hardware slowdown"] and gpu["uncorrected"] == 4


# Pods that differ


FLEET: dict[str, Callable[[dict[str, Any]], Any]] = {
    "NVIDIA driver": lambda readings: readings.update(driver="535.1"),
    "GPU models": lambda readings: readings["gpus"].pop(),
    "kernel": lambda readings: readings.update(kernel="6.1"),
    "MTUs": lambda readings: readings["nics"][0].update(mtu=1500),
    "RDMA devices": lambda readings: readings.update(rdma=[]),
    "NCCL variables": lambda readings: readings["environment"].update(NCCL_ALGO="Ring"),
    "NVSHMEM variables": lambda readings: readings["environment"].pop("NVSHMEM_X"),
    "nofile": lambda readings: readings["limits"].update(nofile=[1024, 1024]),
    "memlock": lambda readings: readings["limits"].update(memlock=[1024, 1024]),
}


def three_pods(tmp_path: Path) -> dict[int, dict[str, Any]]:
    found = {}
    for pod in range(3):
        readings = PodMachine(tmp_path / str(pod)).readings()
        nics = [{"name": "eth1", "mtu": 8896}, {"name": "cali12", "mtu": 1000 + pod}]
        found[pod] = readings | {"nics": nics, "environment": {"NVSHMEM_X": "1"}}
    return found


def test_equal_pods_differ_in_nothing(tmp_path: Path) -> None:
    found = fleet.compare(three_pods(tmp_path), {})
    assert not bad(found) and {one.check for one in found} == {*FLEET} - {"NCCL variables"}


@pytest.mark.parametrize("check", FLEET)
def test_the_minority_is_named(check: str, tmp_path: Path) -> None:
    readings = three_pods(tmp_path)
    FLEET[check](readings[2])
    (found,) = bad(fleet.compare(readings, {2: NODE}))
    assert (found.check, found.pod, found.node) == (check, 2, NODE) and found.limit.endswith(", as on most pods")


def test_every_comparison_has_a_fault() -> None:
    assert [check.name for check in fleet.CHECKS] == [*FLEET]


def test_one_pod_is_compared_with_nobody(machine: PodMachine) -> None:
    assert fleet.compare({0: machine.readings()}, {}) == []


# What people read


PODS = {0: "pod 0, job-0-0, node a", 1: "pod 1, job-0-1, node b", 2: "pod 2, job-0-2, node c"}


def test_the_report(tmp_path: Path) -> None:
    machines = [PodMachine(tmp_path / str(pod)) for pod in range(2)]
    machines[1].gpu(gpu_recovery_action="Reset")
    for machine in machines:
        machine.overrides["shm"] = {"size": 64 << 20, "free": 0}
        machine.overrides["problems"] = {"xids": "/dev/kmsg: Operation not permitted"}
    found = [one for pod, machine in enumerate(machines) for one in examine(machine.readings(), pod, f"node-{pod}")]
    text = report(found, {2: "it ended"}, PODS, 80)
    assert (
        text
        == """\
3 pods: 1 with a fatal finding, 1 degraded and 1 without an answer
pod 2, job-0-2, node c did not answer: it ended

fatal: GPU recovery action: Reset on GPU 3 of pod 1, job-0-1, node b
  right is: None
  drain the node and reset the GPU or restart the node; on GKE: kubectl label
    node node-1 cloud.google.com/fault-behavior=XID

degraded: /dev/shm: 64 MiB on pods 0-1
  right is: 8 GiB or more
  set the chart's volumes.sharedMemory, or mount an emptyDir of medium Memory
    there

could not look:
  XIDs: /dev/kmsg: Operation not permitted on pods 0-1

ok: GPUs, GPU memory errors, GPU memory errors ever, GPU memory rows to be
  replaced, GPU memory rows that cannot be replaced, GPU clock, GPU PCIe link,
  NVLink fabric, GPU processes, GPU computes, RDMA ports, memory that can be
  locked, disk space, names of peers
"""
    )


def one(state: Any, severity: Any = "fatal") -> Finding:
    return Finding("x", state, severity, 0)


@pytest.mark.parametrize(
    ("found", "silent", "strict", "code"),
    [
        ([one("ok")], {}, True, 0),
        ([one("bad", "degraded")], {}, True, 0),
        ([one("bad")], {1: "lost"}, False, 65),
        ([one("ok")], {1: "lost"}, False, 69),
        ([one("unknown")], {}, False, 0),
        ([one("unknown")], {}, True, 65),
    ],
)
def test_exit_codes(found: list[Finding], silent: dict[int, str], strict: bool, code: int) -> None:
    assert exit_code(found, silent, strict=strict) == code


def test_the_page_has_every_row() -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    rows = [f"| {check.name} | {check.limit} | {check.severity} | {check.source} |" for check in checks.CHECKS]
    rows += [f"| {check.name} | {check.severity} |" for check in fleet.CHECKS]
    rows += [f"| {one.name} | {one.limit} | {one.severity} | {one.source} | " for one in deltas.COUNTERS]
    rows += [f"| {one.name} | {one.good} | {one.severity} | {one.source} | " for one in (*deltas.STATES, deltas.GONE)]
    assert [row for row in rows if row not in page] == []
    assert len(re.findall(r"(?m)^\| (?!check|exit code|\d)", page)) == len(rows)
