"""`a4-agent doctor`: each check has a fault that it alone finds, and none finds anything on a healthy pod."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.clinic.doctor import checks, deltas, fleet, nccl_diag, nvidia_smi, xids
from agent.clinic.doctor.checks import examine
from agent.clinic.doctor.telling import report
from agent.clinic.probes.pod_readings import nic_counters
from agent.commands.doctor import exit_code
from agent.decide.facts import Finding
from agent.machine.api import Search
from tests.clinic.machine import DIAG, HEALTHY_NCCL, NODES, RECORDED, Break, PodMachine

NODE = "node-7"
XID_79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus."
INACTIVE = "[INFO] NVLink: inactive link(s) on rank(s) {1} across 2 ranks in comm 0x1234"
EVERY_GPU = " ".join(f"GPU {index}" for index in range(8))
_, PROCESS, *_ = re.split(
    r"(<process_info>.*?</process_info>)", (RECORDED / "h200-load.xml").read_text(), flags=re.DOTALL
)


@pytest.fixture
def machine(tmp_path: Path) -> PodMachine:
    return PodMachine(tmp_path)


def override(name: str, value: Any) -> Break:
    return lambda m: m.overrides.update({name: value})


def element(path: str, value: str) -> Break:
    return lambda m: m.element(path, value)


FAULTS: dict[str, tuple[Break, str, str]] = {
    "GPUs": (lambda m: (m.root / "dev/nvidia5").unlink(), "", "7 of 8"),
    "GPU model": (override("accelerator", "nvidia-h200-141gb"), EVERY_GPU, "NVIDIA B200, 183359 MiB"),
    "driver of B200": (lambda m: m.replace(">12.8<", ">12.4<"), "", "570.133.20 with CUDA 12.4"),
    "GPU recovery action": (element("gpu_recovery_action", "Drain and Reset"), "GPU 1", "Drain and Reset"),
    "GPU memory errors": (element("ecc_errors/volatile/dram_uncorrectable", "2"), "GPU 1", "2"),
    "GPU memory errors ever": (element("ecc_errors/aggregate/sram_uncorrectable_parity", "5"), "GPU 1", "5"),
    "GPU memory rows to be replaced": (element("remapped_rows/remapped_row_pending", "Yes"), "GPU 1", "Yes"),
    "GPU memory rows that cannot be replaced": (element("remapped_rows/remapped_row_failure", "Yes"), "GPU 1", "Yes"),
    "GPU clock": (
        element("clocks_event_reasons/clocks_event_reason_hw_slowdown", "Active"), "GPU 1", "hardware slowdown"
    ),
    "GPU PCIe link": (
        element("pci/pci_gpu_link_info/link_widths/current_link_width", "8x"), "GPU 1", "8 of 16 lanes"
    ),
    "NVLinks": (lambda m: m.replace("Link 4: 53.125 GB/s", "Link 4: <inactive>"), EVERY_GPU, "17 of 18 links"),
    "NVLink fabric": (element("fabric/state", "In Progress"), "GPU 1", "In Progress, Success"),
    "GPU processes": (lambda m: m.replace("<processes>", f"<processes>{PROCESS}"), EVERY_GPU, "1"),
    "XIDs": (
        lambda m: m.write("dev/kmsg", f"3,9,4900000000,-;{XID_79}\n"),
        "0000:1b:00",
        "XID 79 100 s ago: pid=1, GPU has fallen off the bus.",
    ),
    "GPU computes": (
        lambda m: m.probe("computing\n", problem="3 elements of a product are wrong"),
        EVERY_GPU,
        "3 elements of a product are wrong",
    ),
    "NCCL's diagnostics": (
        lambda m: m.probe("", nccl=f"{HEALTHY_NCCL}{DIAG}{INACTIVE}\n"), "NVLink", INACTIVE.partition(" ")[2]
    ),
    "NCCL version": (
        override("torch", {"nccl": {"version": "2.28.9"}}),
        "",
        "2.28.9: a transfer between nodes of a buffer that is registered with the network can stand still "
        "(NVIDIA/nccl#2389)",
    ),
    "RDMA ports": (
        lambda m: m.write("sys/class/infiniband/mlx5_2/ports/1/state", "1: DOWN\n"), "mlx5_2/1", "DOWN"
    ),
    "fabric": (override("fabric", ["gIB is not installed"]), "", "gIB is not installed"),
    "/dev/shm": (override("shm", {"size": 64 << 20, "free": 0}), "", "64 MiB"),
    "memory that can be locked": (
        override("limits", {"memlock": [65536, 65536], "nofile": [1, 1]}), "", "64 KiB"
    ),
    "disk space": (
        override(
            "disks",
            [{"path": "/d", "problem": "", "bytes": 1000, "bytes_free": 50, "files": 10, "files_free": 9}],
        ),
        "/d", "95 % of its bytes used",
    ),
    "clock": (override("clock", {"offset": -0.25, "trip": 0.1}), "", "-0.250 s from that of pod 0, ± 0.050 s"),
    "names of peers": (lambda m: m.peers.append("a.invalid"), "a.invalid", "*"),
}  # fmt: skip
"""By check: what breaks an A4 node, on which device it is found, and what is said of it."""


def bad(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.state != "ok"]


@pytest.mark.parametrize("node", NODES)
def test_a_healthy_pod_has_no_finding_and_every_check_has_looked(node: str, tmp_path: Path) -> None:
    found = examine(PodMachine(tmp_path, NODES[node]).readings(), 0, NODE)
    computing = {"GPU computes", "NCCL's diagnostics"} if NODES[node].run else set()
    assert {(one.check, one.state) for one in bad(found)} == {(check, "unknown") for check in computing}
    gone = {"driver of B200"} if node != "A4" else set()
    gone |= {"RDMA ports", "memory that can be locked"} if not NODES[node].nics else set()
    gone |= {"GPU processes"} if NODES[node].run else set()
    assert {one.check for one in found} == {check.name for check in checks.CHECKS} - gone


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


def test_what_another_container_holds_is_seen(tmp_path: Path) -> None:
    """With PIDs of its own, a container is told of no process: on two H100 nothing was listed beside a busy program,
    and its memory shows it."""
    machine = PodMachine(tmp_path, NODES["H200 with a run"]._replace(run=""))
    seen = [("GPU processes", f"GPU {gpu}", "information") for gpu in (0, 1)]
    assert [(one.check, one.device, one.severity) for one in bad(examine(machine.readings(), 0, NODE))] == seen
    machine.smi(machine.xml.replace(PROCESS, ""), machine.links)
    found = bad(examine(machine.readings(), 0, NODE))
    assert [(one.check, one.device, one.severity) for one in found] == seen
    assert found[0].value == "none is listed, and 883 MiB are in use"


def test_a_pod_without_gpus_and_rdma_is_asked_nothing_about_them(tmp_path: Path) -> None:
    machine = PodMachine(tmp_path)
    for each in ("dev", "proc", "sys"):
        (machine.root / each).rename(machine.root / f"no-{each}")
    (machine.root / "dev").mkdir()
    machine.overrides = {"disks": machine.overrides["disks"]}
    assert {one.check for one in examine(machine.readings(), 0, "")} == {"disk space", "names of peers"}
    machine.overrides["accelerator"] = "nvidia-b200"
    (gone,) = bad(examine(machine.readings(), 0, ""))
    assert (gone.check, gone.severity, gone.value) == ("GPU model", "fatal", "neither a GPU nor a driver")


def test_lanes_are_judged_of_models_whose_number_is_known(tmp_path: Path) -> None:
    """Not by the most that nvidia-smi knows: that is also what the slot allows."""
    width = "pci/pci_gpu_link_info/link_widths/{}_link_width"
    machine = PodMachine(tmp_path, NODES["H200"])
    machine.element(width.format("max"), "8x")
    machine.element(width.format("current"), "8x")
    found = bad(examine(machine.readings(), 0, NODE))
    assert [(one.check, one.value) for one in found] == [("GPU PCIe link", "8 of 16 lanes")]
    machine.replace(machine.node.gpu, "NVIDIA L4")
    machine.overrides["accelerator"] = ""
    assert "GPU PCIe link" not in {one.check for one in examine(machine.readings(), 0, NODE)}


@pytest.mark.parametrize("said", ["SMDL=SW_MNG", "SMDL=", ""])
def test_a_device_that_leads_to_nvswitches_is_no_nic(said: str, machine: PodMachine) -> None:
    bridge = "sys/class/infiniband/mlx5_8"
    machine.write(f"{bridge}/ports/1/state", "1: DOWN\n")
    machine.write(f"{bridge}/ports/1/link_layer", "InfiniBand\n")
    machine.write(f"{bridge}/ports/1/counters/link_downed", "3\n")
    if said:
        machine.write(f"{bridge}/device/vpd", f"\x82\x02\x00NV\x90{said}\x78")
    is_nic = said != "SMDL=SW_MNG"
    assert [(one.check, one.device) for one in bad(examine(machine.readings(), 0, NODE))] == [
        ("RDMA ports", "mlx5_8/1")
    ] * is_nic
    assert ("mlx5_8/1" in nic_counters(str(machine.root))) == is_nic


def test_a_gpu_that_is_alone_has_no_links(tmp_path: Path) -> None:
    found = examine(PodMachine(tmp_path, NODES["A3"]._replace(gpus=2)).readings(), 0, NODE)
    alone = PodMachine(tmp_path / "alone", NODES["A3"]._replace(gpus=1)).readings()
    assert {one.check for one in found} - {one.check for one in examine(alone, 0, NODE)} == {
        "NVLinks", "NCCL's diagnostics"
    }  # fmt: skip


def test_the_libraries_of_a_fabric_are_looked_for(machine: PodMachine) -> None:
    found = machine.readings(Search("", libraries=("libnccl-net-none.so",), files=("/nowhere",), socket_dir="/nowhere"))
    assert "cannot open" in found["libraries"]["libnccl-net-none.so"]["problem"]
    assert (found["files"], found["socket"]["there"]) == ({"/nowhere": False}, False)


# Could not look: never ok, and it says why


@pytest.mark.parametrize(
    ("break_it", "checks_blind", "why"),
    [
        (lambda m: (m.bin / "nvidia-smi").unlink(), 12, "nvidia-smi is not on PATH"),
        (lambda m: m.says("nvidia-smi", "Failed to initialize NVML: Unknown Error", 255), 12, "255; Failed"),
        (lambda m: m.says("nvidia-smi", m.xml[:500], 1), 12, "nvidia-smi ended with 1"),
        (lambda m: m.smi("<nvidia_smi_log><gpu>", m.links), 11, "printed no XML"),
        (lambda m: m.smi(m.xml, "NVML: Unable to retrieve NVLink information"), 1, "nothing says it"),
        (element("gpu_recovery_action", "N/A"), 1, "nvidia-smi does not say it"),
        (element("remapped_rows/remapped_row_failure", "[ERR!]"), 1, "nvidia-smi does not say it"),
        (element("fb_memory_usage/total", "ERR!"), 1, "nvidia-smi does not say it"),
        (lambda m: m.replace(">12.8<", ">ERR!<"), 1, "nvidia-smi does not say it"),
        (lambda m: (m.root / "dev/kmsg").unlink(), 1, "No such file or directory"),
        (lambda m: (m.root / "sys/class/infiniband/mlx5_2/ports/1/state").unlink(), 1, "its state cannot be read"),
        (lambda m: m.probe("", unknown="torch cannot be imported: no"), 1, "torch cannot be imported: no"),
        (lambda m: m.says("python", "", 3), 2, "probe ended with 3"),
        (lambda m: setattr(m, "run", "ddp-1"), 2, "ddp-1 has the cluster"),
        (lambda m: m.probe("", blind="NCCL 2.23.4 has no diagnostics"), 1, "NCCL 2.23.4 has no diagnostics"),
        (lambda m: m.probe("", nccl=HEALTHY_NCCL.rpartition("vm:")[0]), 1, "did not end its diagnostics in time"),
        (lambda m: m.overrides.pop("torch"), 1, "torch names no NCCL"),
        (override("torch", {"problem": "A4_PYTHON=python9 is not on PATH (/bin)"}), 1, "python9 is not on PATH"),
        (override("clock", {}), 1, "did not say within 0.5 s"),
        (override("clock", {"offset": 0.1, "trip": 0.4}), 1, "answers took 0.4 s"),
    ],
)
def test_what_could_not_be_seen_is_not_ok(break_it: Break, checks_blind: int, why: str, machine: PodMachine) -> None:
    break_it(machine)
    found = bad(examine(machine.readings(), 0, NODE))
    assert {one.state for one in found} == {"unknown"} and len({one.check for one in found}) == checks_blind
    assert all(why in one.value and "<" not in one.value for one in found)


def test_a_probe_that_began_to_compute_and_does_not_end_is_a_fault(machine: PodMachine) -> None:
    machine.says("python", "computing", 1)
    found = bad(examine(machine.readings(), 0, NODE))
    assert {(one.check, one.state) for one in found} == {("GPU computes", "bad"), ("NCCL's diagnostics", "unknown")}


# XIDs and nvidia-smi


LINK = "NETIR_LINK_EVT {} XC0 i0 Link 17"


@pytest.mark.parametrize(
    ("number", "text", "severity"),
    [
        *((number, "", "fatal") for number in (79, 48, 145, 156)),
        *((number, "", "degraded") for number in (92, 94)),
        *((number, "", "information") for number in (63, 154, 13, 999)),
        (145, LINK.format("Nonfatal"), "degraded"),
        (149, LINK.format("Fatal"), "fatal"),
        (20034, "Fatal, Link 30 LTSSM Fault Up", "fatal"),
        (20009, "Non-fatal, Link 04 RX Short Error Rate", "information"),
    ],
)
def test_severities_of_xids(number: int, text: str, severity: str) -> None:
    assert xids.severity(number, text) == severity
    assert not xids.FATAL & xids.DEGRADED and not xids.PROGRAMS & (xids.FATAL | xids.DEGRADED)


def test_only_xids_of_the_last_minutes_count() -> None:
    records = [f"3,{n},{n * 1_000_000},-;{XID_79}" for n in (10, 50)] + ["nonsense", "3,1;x", "a,b,c,-;NVRM: Xid"]
    assert [one.seconds_ago for one in xids.parse(records, 60.0, 20.0)] == [10.0]


def test_a_gpu_that_has_fallen_off_the_bus_is_said_once() -> None:
    """The driver says it in one or two lines, with and without the number."""
    lost = "3,9,1000000,-;NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus."
    alone = xids.Xid(79, "0000:1b:00", "GPU has fallen off the bus.", 1.0)
    assert xids.parse([lost, lost], 2.0, 60.0) == [alone]
    numbered = xids.parse([f"3,9,1000000,-;{XID_79}", lost, lost.replace("1b", "c3")], 2.0, 60.0)
    assert [(one.number, one.device) for one in numbered] == [(79, "0000:1b:00"), (79, "0000:c3:00")]


def test_a_fault_of_a_switch_is_read_once_of_its_lines(machine: PodMachine) -> None:
    said = ["Fatal, Link 30 LTSSM Fault Up", "Severity 1 Engine instance 30 Sub-engine instance 00", "Data {0x30}"]
    lines = [f"3,9,4900000000,-;nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, {words}\n" for words in said]
    machine.write("dev/kmsg", "".join(lines))
    (found,) = bad(examine(machine.readings(), 0, NODE))
    assert (found.severity, found.device) == ("fatal", "0000:05:00.0")
    assert found.value == "SXid 20034 100 s ago: Fatal, Link 30 LTSSM Fault Up"


def test_a_gpu_that_was_lost_before_the_driver_came_is_read(machine: PodMachine) -> None:
    """As rm_is_supported_device of NVIDIA's open kernel modules prints it, and the kernel escapes its line feeds."""
    lines = ["The NVIDIA GPU 0000:1b:00.0", "(PCI ID: 10de:2901) installed in this system has"]
    lines.append("fallen off the bus and is not responding to commands.")
    record = "3,9,4900000000,-;" + r"\x0a".join(f"NVRM: {line}" for line in lines) + "\n"
    machine.write("dev/kmsg", record * 2 + "3,9,4900000000,-;NVRM: The NVIDIA GPU 0000:c3:00.0 is not supported\n")
    (found,) = bad(examine(machine.readings(), 0, NODE))
    assert (found.severity, found.device) == ("fatal", "0000:1b:00")
    assert "XID 79 100 s ago: (PCI ID: 10de:2901) installed in this system has fallen off the bus" in found.value


@pytest.mark.parametrize("instance", ["", " GPU-I:05", " GPU-I:05 GPU-CI:00"])
def test_an_xid_of_an_instance_of_a_gpu_is_read(instance: str) -> None:
    record = f"3,9,1000000,-;NVRM: Xid (PCI:0000:1b:00{instance}): 48, pid=1, DBE"
    assert xids.parse([record], 2.0, 60.0) == [xids.Xid(48, f"0000:1b:00{instance}", "pid=1, DBE", 1.0)]


def test_xids_of_programs_are_no_fault_of_the_gpu(machine: PodMachine) -> None:
    machine.write("dev/kmsg", f"3,9,4900000000,-;{XID_79.replace('79', '31')}\n")
    assert not bad(examine(machine.readings(), 0, NODE))


@pytest.mark.parametrize("path", ["fb_memory_usage/total", "product_name", "ecc_errors/volatile/dram_uncorrectable"])
@pytest.mark.parametrize("words", ["GPU requires reset", "[GPU requires reset]"])
def test_a_gpu_that_says_that_it_requires_a_reset_is_bad(path: str, words: str, machine: PodMachine) -> None:
    machine.element(path, words)
    found = [one for one in bad(examine(machine.readings(), 0, NODE)) if one.state == "bad"]
    assert [(one.check, one.severity, one.device) for one in found] == [("GPU recovery action", "fatal", "GPU 1")]
    assert found[0].value == "GPU requires reset"


def test_names_of_older_drivers(machine: PodMachine) -> None:
    machine.element("clocks_event_reasons/clocks_event_reason_hw_slowdown", "Active")
    machine.element("ecc_errors/volatile/dram_uncorrectable", "4")
    _, gpu, *_ = nvidia_smi.parse(machine.xml.replace("_event_reason", "_throttle_reason"))
    assert gpu["slow"] == ["hardware slowdown"] and gpu["uncorrected"] == 4


# NCCL's diagnostics


@pytest.mark.parametrize(
    ("line", "check", "good", "severity"),
    [
        ("[OK]   p2p: all 2 directed GPU P2P edges verified", "p2p", True, "fatal"),
        ("[INFO] p2p: only 1/2 GPU-to-GPU peer accesses passed verification", "p2p", False, "fatal"),
        ("[INFO] p2p: temporarily enabled context-wide CUDA peer access rank=0 cudaDev=0", "p2p", True, "fatal"),
        ("[INFO] p2p: setup failed on rank 1 result=3", "p2p", None, "fatal"),
        ("[INFO] p2p: active check returned 3", "p2p", None, "fatal"),
        ("[INFO] ECC: unavailable via NVML across 2 ranks in comm 0x1", "ECC", None, "degraded"),
        ("[INFO] ECC: uncorrected volatile errors on rank(s) {0} (worst=2) across 2 ranks in comm 0x1",
         "ECC", False, "degraded"),
        ("[INFO] NVLink: diagnostics incomplete, gathered 1/2 ranks in comm 0x1/0x2/0x3", "NVLink", None, "fatal"),
        ("[INFO] NCCL environment: NCCL_DEBUG=INFO on rank(s) {0}", "NCCL environment", False, "degraded"),
        ("[INFO] Xid/SXid: no kernel-log source was available on host n", "Xid/SXid", None, "information"),
        ("[INFO] Paths: something new", "Paths", False, "information"),
    ],
)  # fmt: skip
def test_lines_of_nccl(line: str, check: str, good: bool | None, severity: str) -> None:
    text = f"Hello\n{DIAG}{line}\n{DIAG}RAS diagnostics completed in 12.3 ms across 2 ranks\n"
    (found,) = nccl_diag.parse(text)
    assert (found.check, found.good, found.severity) == (check, good, severity)
    assert found.text == line.partition("]")[2].strip()


@pytest.mark.parametrize("version", ["2.31.2", "2.32.3"])
def test_what_nccl_said_of_two_healthy_gpus(version: str) -> None:
    found = list(nccl_diag.parse((RECORDED / f"nccl-{version}-diagnostics.txt").read_text()))
    assert {"p2p", "NVLink", "ECC", "GPU inventory", "NCCL environment"} < {one.check for one in found}
    assert all(one.good for one in found)


# Pods that differ


FLEET: dict[str, Callable[[dict[str, Any]], Any]] = {
    "NVIDIA driver": lambda readings: readings.update(driver="535.1"),
    "GPU models": lambda readings: readings["gpus"].pop(),
    "kernel": lambda readings: readings.update(kernel="6.1"),
    "MTUs": lambda readings: readings["nics"][0].update(mtu=1500),
    "RDMA devices": lambda readings: readings.update(rdma=[]),
    "NCCL variables": lambda readings: readings["environment"].update(NCCL_ALGO="Ring"),
    "NVSHMEM variables": lambda readings: readings["environment"].pop("NVSHMEM_X"),
    "NCCL profiler": lambda readings: readings["environment"].update(NCCL_TELEMETRY_MODE="1"),
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
    readings = three_pods(tmp_path)
    readings[0]["gpus"][0]["memory"] = None  # what cannot be read differs from nothing
    found = fleet.compare(readings, {})
    assert not bad(found) and {one.check for one in found} == {*FLEET} - {"NCCL variables", "NCCL profiler"}


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
    machines[1].element("gpu_recovery_action", "Reset")
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

fatal: GPU recovery action: Reset on GPU 1 of pod 1, job-0-1, node b
  expected: None
  drain the node and reset the GPU or restart the node; on GKE: kubectl label
    node node-1 cloud.google.com/fault-behavior=XID

degraded: /dev/shm: 64 MiB on pods 0-1
  expected: 8 GiB or more
  set the chart's volumes.sharedMemory, or mount an emptyDir of medium Memory
    there

not checked:
  XIDs: /dev/kmsg: Operation not permitted on pods 0-1

ok: GPUs, GPU model, driver of B200, GPU memory errors, GPU memory errors ever,
  GPU memory rows to be replaced, GPU memory rows that cannot be replaced, GPU
  clock, GPU PCIe link, NVLinks, NVLink fabric, GPU processes, GPU computes,
  NCCL's diagnostics, NCCL version, RDMA ports, fabric, memory that can be
  locked, disk space, clock, names of peers
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
    states = (*deltas.STATES.values(), deltas.GONE)
    rows += [f"| {one.check} | {one.limit} | {one.severity} | {one.source} | " for one in states]
    assert [row for row in rows if row not in page] == []
    assert len(re.findall(r"(?m)^\| (?!check|exit code|\d)", page)) == len(rows)
