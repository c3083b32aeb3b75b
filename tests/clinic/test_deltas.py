"""What a run changed in a pod's devices: each check has a fault that it alone finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.clinic.doctor import deltas
from agent.clinic.doctor.counted import reduced
from agent.clinic.doctor.deltas import COUNTERS, LOOKED, STATES, compare, health_sentence
from agent.clinic.probes.pod_readings import read_counters
from agent.decide.facts import Finding
from tests.clinic.machine import NODES, PodMachine, nvidia_smi_xml

NODE = "gke-a4-7"
SECONDS = 100
PORT = {"counters": ["link_downed", "local_link_integrity_errors", "excessive_buffer_overrun_errors", "symbol_error",
                     "port_xmit_discards", "port_rcv_errors", "link_error_recovery", "port_xmit_data"],
        "hw_counters": ["rnr_nak_retry_err", "roce_slow_restart", "local_ack_timeout_err"]}  # fmt: skip
"""Some of what mlx5 shows for a RoCE port."""
SPENT = {"sw_power_cap": 11_479_366, "hw_therm_slowdown": 500, "hw_power_brake": 500}
"""µs that clocks were held down before the run."""
LINK_COUNTERS = ["Replay Errors", "Recovery Errors", "CRC Errors", "Link recovery failed events", "Symbol Errors"]
GPUS = 8
LOST = (
    "Unable to determine the device handle for GPU3: 0000:03:00.0: GPU is lost.  Reboot the system to recover this GPU"
)
XID_79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus."


BLACKWELL = """\
GPU 0: NVIDIA B300 SXM6 AC (UUID: GPU-0)
\t Link 0: Rx remote Errors: 0
\t Link 0: Link recovery successful events: {0}
\t Link 0: Link recovery failed events: 0
\t Link 0: Total link recovery events: {0}
\t Link 0: Effective Errors: 0
\t Link 0: Symbol Errors: 0
\t Link 0: FEC Errors - 0: 36140749276
"""


class CountingMachine(PodMachine):
    """Its devices have counted a lot before the run."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        for index in range(GPUS):
            for kind, names in PORT.items():
                for name in names:
                    self.count(f"mlx5_{index}", name, 7, kind)
            self.write(f"sys/class/net/eth{index}/carrier_changes", "20\n")
            self.write(f"sys/class/net/eth{index}/device/vendor", "0x15b3\n")
        self.write("sys/class/net/lo/carrier_changes", "0\n")
        self.nvidia_smi()

    def count(self, device: str, name: str, value: int, kind: str = "") -> None:
        kind = kind or next(each for each, names in PORT.items() if name in names)
        self.write(f"sys/class/infiniband/{device}/ports/1/{kind}/{name}", f"{value}\n")

    def nvidia_smi(self, nvlink: str = "", gpus: int = GPUS, clocks: Mapping[str, int] = {}, **faults: str) -> None:
        """GPU 3 says this; `nvlink`: of its first link."""
        recorded = nvidia_smi_xml(NODES["A4"]._replace(gpus=gpus))
        head, *rest = re.split(r"(?=\t<gpu id=)", recorded)
        for index in range(gpus):
            for name, spent in {**SPENT, **(clocks if index == 3 else {})}.items():
                rest[index] = re.sub(rf"(reasons_counters_{name}>)0 us", rf"\g<1>{spent} us", rest[index])
        for name, said in faults.items():
            rest[3] = re.sub(rf"<{name}>[^<]*", f"<{name}>{said}", rest[3], count=1)
        xml = "".join([head, *rest])
        links = "".join(self._links(index, nvlink if index == 3 else "") for index in range(gpus))
        self.smi(xml, links)

    @staticmethod
    def _links(gpu: int, changed: str) -> str:
        """As `nvidia-smi nvlink -e` prints it: of driver 580.159 for an H200, and of 595.91 for a B300."""
        lines = [f"GPU {gpu}: NVIDIA H200 (UUID: GPU-0)"]
        for link in range(18):
            lines += [f"\t Link {link}: {kind}: 2" for kind in LINK_COUNTERS] + [""]
        text = "\n".join(lines) + "\n"
        return re.sub(rf"(Link 0: {changed} \w+: )2", r"\g<1>90000", text) if changed else text

    def read(self, seconds: float = 20.0) -> dict[str, Any]:
        return read_counters({"PATH": str(self.bin)}, seconds, str(self.root))

    def counted(self, uptime: float = 1000.0, seconds: float = 20.0) -> dict[str, Any]:
        self.write("proc/uptime", f"{uptime} 1.00\n")
        return reduced(self.read(seconds))

    def found(self, break_it: Callable[[CountingMachine], Any]) -> list[Finding]:
        before = self.counted()
        break_it(self)
        return list(compare(before, self.counted(1000.0 + SECONDS), 4, NODE))


@pytest.fixture
def machine(tmp_path: Path) -> CountingMachine:
    return CountingMachine(tmp_path)


def rdma(name: str, value: int) -> Callable[[CountingMachine], Any]:
    return lambda m: m.count("mlx5_2", name, value)


FAULTS: dict[str, tuple[Callable[[CountingMachine], Any], str, str]] = {
    "RDMA link went down": (rdma("link_downed", 8), "mlx5_2/1", "1 in 100 s"),
    "RDMA link integrity errors": (rdma("local_link_integrity_errors", 8), "mlx5_2/1", "1 in 100 s"),
    "RDMA buffer overruns": (rdma("excessive_buffer_overrun_errors", 9), "mlx5_2/1", "2 in 100 s"),
    "RDMA receivers never ready": (rdma("rnr_nak_retry_err", 8), "mlx5_2/1", "1 in 100 s"),
    "RDMA symbol errors": (rdma("symbol_error", 1008), "mlx5_2/1", "1001 in 100 s"),
    "RDMA packets discarded": (rdma("port_xmit_discards", 10_008), "mlx5_2/1", "10001 in 100 s"),
    "RDMA slow restarts": (rdma("roce_slow_restart", 1008), "mlx5_2/1", "1001 in 100 s"),
    "RDMA receive errors": (rdma("port_rcv_errors", 1008), "mlx5_2/1", "1001 in 100 s"),
    "RDMA acknowledgements late": (rdma("local_ack_timeout_err", 108), "mlx5_2/1", "101 in 100 s"),
    "RDMA link recoveries": (rdma("link_error_recovery", 16), "mlx5_2/1", "9 in 100 s"),
    "carrier changes": (lambda m: m.write("sys/class/net/eth5/carrier_changes", "23\n"), "eth5", "3 in 100 s"),
    "GPU memory errors": (lambda m: m.nvidia_smi(dram_uncorrectable="1"), "GPU 3", "1 in 100 s"),
    "NVLink replays": (lambda m: m.nvidia_smi(nvlink="Replay"), "GPU 3", "89998 in 100 s"),
    "NVLink recoveries": (lambda m: m.nvidia_smi(nvlink="Recovery"), "GPU 3", "89998 in 100 s"),
    "NVLink CRC errors": (lambda m: m.nvidia_smi(nvlink="CRC"), "GPU 3", "89998 in 100 s"),
    "NVLink recoveries that failed": (lambda m: m.nvidia_smi(nvlink="Link recovery failed"), "GPU 3", "89998 in 100 s"),
    "NVLink symbol errors": (lambda m: m.nvidia_smi(nvlink="Symbol"), "GPU 3", "89998 in 100 s"),
    "GPU too hot": (lambda m: m.nvidia_smi(clocks={"hw_therm_slowdown": 1_100_500}), "GPU 3", "1100 ms in 100 s"),
    "GPU power brake": (lambda m: m.nvidia_smi(clocks={"hw_power_brake": 1_001_500}), "GPU 3", "1001 ms in 100 s"),
    "GPU recovery action": (lambda m: m.nvidia_smi(gpu_recovery_action="Reset"), "GPU 3", "Reset, before the run None"),
    "GPU memory rows to be replaced": (
        lambda m: m.nvidia_smi(remapped_row_pending="Yes"), "GPU 3", "Yes, before the run No"
    ),
    "GPU memory rows that cannot be replaced": (
        lambda m: m.nvidia_smi(remapped_row_failure="Yes"), "GPU 3", "Yes, before the run No"
    ),
    "GPU gone": (lambda m: m.nvidia_smi(gpus=7), "GPU 7", "nvidia-smi shows it no longer"),
    "XIDs": (
        lambda m: m.write("dev/kmsg", f"3,9,1050000000,-;{XID_79}\n"),
        "0000:1b:00",
        "XID 79: pid=1, GPU has fallen off the bus.",
    ),
}  # fmt: skip


def test_every_check_has_a_fault() -> None:
    named = [*(check.name for check in COUNTERS), *(one.check for one in (*STATES.values(), deltas.GONE))]
    assert [*named, "XIDs"] == [*FAULTS]


@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_is_found_by_its_check_alone(check: str, machine: CountingMachine) -> None:
    break_it, device, value = FAULTS[check]
    (found,) = machine.found(break_it)
    assert (found.check, found.state, found.device, found.value) == (check, "bad", device, value)
    assert NODE in found.action and found.limit and found.source
    said = health_sentence([found])
    assert said == f"health during the run: {found.severity}: {check}: {value} on {device} of pod 4, node {NODE}"


def test_the_text_of_an_xid_of_nvlink_says_how_bad_it_is(machine: CountingMachine) -> None:
    line = "NVRM: Xid (PCI:0000:1b:00): 145, RLW_REMAP Nonfatal XC1 i0 Link 17"
    (found,) = machine.found(lambda m: m.write("dev/kmsg", f"3,9,1050000000,-;{line}\n"))
    assert (found.check, found.severity) == ("XIDs", "degraded")


def test_a_recovery_of_a_link_of_blackwell_is_found(machine: CountingMachine) -> None:
    """Its counter has another name there."""
    before = {**machine.read(), "nvlink": BLACKWELL.format(4)}
    assert [one.state for one in compare(reduced(before), reduced(before), 4, NODE)] == ["ok"]
    (found,) = compare(reduced(before), reduced({**before, "nvlink": BLACKWELL.format(5)}), 4, NODE)
    assert (found.check, found.device, found.severity) == ("NVLink recoveries", "GPU 0", "degraded")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: None,
        # As much as is allowed, and an XID of before the run, and one that a program has caused.
        rdma("symbol_error", 1007),
        rdma("port_xmit_data", 1 << 60),
        lambda m: m.write("sys/class/net/eth5/carrier_changes", "22\n"),
        lambda m: m.nvidia_smi(clocks={"hw_therm_slowdown": 1_000_500}),
        lambda m: m.write("dev/kmsg", f"3,9,900000000,-;{XID_79}\n"),
        lambda m: m.write("dev/kmsg", "3,9,1050000000,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=1, MMU Fault\n"),
    ],
)
def test_what_was_before_and_what_is_allowed_is_no_finding(
    change: Callable[[CountingMachine], Any], machine: CountingMachine
) -> None:
    (found,) = machine.found(change)
    assert (found.check, found.state) == (LOOKED, "ok") and found.value == "nothing on 24 devices in 100 s"
    assert health_sentence([found]) == ""


@pytest.mark.parametrize(
    ("change", "check", "why"),
    [
        (rdma("link_downed", 0), "RDMA link went down", "its counter was set back during the run"),
        (
            lambda m: (m.root / "sys/class/infiniband/mlx5_2/ports/1/counters/link_downed").unlink(),
            "RDMA link went down",
            "its counter was not there any more",
        ),
        (lambda m: (m.root / "dev/kmsg").unlink(), "XIDs", "No such file or directory"),
        (lambda m: m.nvidia_smi(dram_uncorrectable="N/A"), "GPU memory errors", ""),
    ],
)
def test_what_cannot_be_compared_is_not_ok(
    change: Callable[[CountingMachine], Any], check: str, why: str, machine: CountingMachine
) -> None:
    found = machine.found(change)
    if not why:  # the memory of other kinds is still counted
        assert found[0].state == "ok"
        return
    assert {(one.check, one.state) for one in found} == {(check, "unknown")}
    assert found[0].value.endswith(why)


def test_a_full_counter_shows_nothing(machine: CountingMachine) -> None:
    """Those of InfiniBand's PMA stay where they are full (drivers/infiniband/core/sysfs.c has their widths)."""
    machine.count("mlx5_2", "local_link_integrity_errors", 15)
    (found,) = machine.found(lambda m: None)
    assert (found.state, found.value) == ("unknown", "its counter was full at 15 before the run")


def test_a_gpu_that_nvidia_smi_calls_lost_is_a_fault_unless_it_was_lost_before_the_run(
    machine: CountingMachine,
) -> None:
    found = machine.found(lambda m: m.says("nvidia-smi", LOST, 15))
    assert (found[0].check, found[0].state, found[0].severity) == ("GPU gone", "bad", "fatal")
    assert LOST in found[0].value
    found = machine.found(lambda m: None)
    assert {(one.state, one.severity) for one in found} == {("unknown", "information")}
    assert LOST in found[0].value


def test_an_nvidia_smi_that_hangs_costs_its_time_and_nothing_else(machine: CountingMachine) -> None:
    before = machine.counted()
    machine.program("nvidia-smi", "import signal\nsignal.pause()")
    machine.count("mlx5_2", "link_downed", 9)
    found = compare(before, machine.counted(1100.0, seconds=1.5), 4, NODE)
    assert [(one.check, one.state) for one in found] == [
        ("RDMA link went down", "bad"), ("GPUs", "unknown"), ("NVLink", "unknown")
    ]  # fmt: skip
    assert "did not answer within" in found[1].value


def test_links_whose_errors_are_not_known_are_said(machine: CountingMachine) -> None:
    """Drivers for Blackwell print others."""
    before = {**machine.read(), "nvlink": "GPU 0: B200\n\t Link 0: BER: 1\n"}
    found = compare(reduced(before), reduced(before), 4, NODE)
    assert [(one.check, one.state) for one in found] == [("NVLink", "unknown")]
