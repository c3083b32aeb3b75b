"""A pod with eight GPUs and RDMA devices, as files and programs that the readers of `doctor` find.

Elements of nvidia-smi's XML as drivers 535 to 580 print them for an H100; /sys/class/infiniband as mlx5 shows RoCE
ports (no umad). Nobody of us has run `doctor` on a B200 or an A3.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.health.doctor.reading import reduced
from agent.machine.health.pod_readings import Question, read_pod

GPUS = 8
GPU = {
    "gpu_recovery_action": "None",
    "dram_uncorrectable": "0",
    "aggregate_dram_uncorrectable": "0",
    "remapped_row_pending": "No",
    "remapped_row_failure": "No",
    "hw_slowdown": "Not Active",
    "current_link_width": "16x",
    "fabric_state": "Completed",
    "fabric_status": "Success",
    "processes": "",
}
PROCESS = "<process_info><pid>4711</pid><type>C</type></process_info>"
XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>570.133.20</driver_version>
	<attached_gpus>{count}</attached_gpus>
{gpus}
</nvidia_smi_log>
"""
GPU_XML = """\
	<gpu id="00000000:0{index}:00.0">
		<product_name>NVIDIA H100 80GB HBM3</product_name>
		<minor_number>{index}</minor_number>
		<gpu_recovery_action>{gpu_recovery_action}</gpu_recovery_action>
		<pci><pci_gpu_link_info>
			<pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>
			<link_widths><max_link_width>16x</max_link_width><current_link_width>{current_link_width}</current_link_width></link_widths>
		</pci_gpu_link_info></pci>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_hw_slowdown>{hw_slowdown}</clocks_event_reason_hw_slowdown>
			<clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
			<clocks_event_reason_hw_power_brake_slowdown>Not Active</clocks_event_reason_hw_power_brake_slowdown>
		</clocks_event_reasons>
		<fb_memory_usage><total>81559 MiB</total></fb_memory_usage>
		<ecc_errors>
			<volatile>
				<sram_correctable>3</sram_correctable>
				<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>0</sram_uncorrectable_secded>
				<dram_correctable>7</dram_correctable>
				<dram_uncorrectable>{dram_uncorrectable}</dram_uncorrectable>
			</volatile>
			<aggregate>
				<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
				<dram_uncorrectable>{aggregate_dram_uncorrectable}</dram_uncorrectable>
				<sram_threshold_exceeded>No</sram_threshold_exceeded>
			</aggregate>
		</ecc_errors>
		<remapped_rows>
			<remapped_row_corr>0</remapped_row_corr>
			<remapped_row_pending>{remapped_row_pending}</remapped_row_pending>
			<remapped_row_failure>{remapped_row_failure}</remapped_row_failure>
		</remapped_rows>
		<processes>{processes}</processes>
		<fabric><state>{fabric_state}</state><status>{fabric_status}</status></fabric>
	</gpu>
"""


def nvidia_smi_xml(faults: Mapping[str, str] = {}, gpu: int = 3, count: int = GPUS) -> str:
    """What `nvidia-smi -q -x` prints where one GPU has these values instead."""
    gpus = (GPU_XML.format(index=each, **{**GPU, **(faults if each == gpu else {})}) for each in range(count))
    return XML.format(count=count, gpus="".join(gpus))


class PodMachine:
    """Its files are below a directory; each method breaks something."""

    def __init__(self, directory: Path) -> None:
        self.root, self.bin = directory / "root", directory / "bin"
        for index in range(GPUS):
            self.write(f"dev/nvidia{index}", "")
            port = f"sys/class/infiniband/mlx5_{index}/ports/1"
            self.write(f"{port}/state", "4: ACTIVE\n")
            self.write(f"{port}/link_layer", "Ethernet\n")
            self.write(f"{port}/rate", "400 Gb/sec (4X NDR)\n")
        self.write("dev/shm/x", "")
        self.write("dev/kmsg", "6,1,1000000,-;NVRM: loading\n")
        self.write("proc/uptime", "5000.00 1.00\n")
        self.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun\n")
        self.program("nvidia-smi", nvidia_smi_xml())
        self.program("python", '{"problem": "", "unknown": ""}')
        self.overrides: dict[str, Any] = {
            "shm": {"size": 16 << 30, "free": 16 << 30},
            "limits": {"memlock": ["unlimited"] * 2, "nofile": [1 << 20] * 2},
            "disks": [{"path": "/", "problem": "", "bytes": 100, "bytes_free": 50, "files": 0, "files_free": 0}],
        }
        """What depends on the machine of the test."""
        self.peers = ["localhost"]
        self.run = ""

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def program(self, name: str, output: str, code: int = 0) -> None:
        """One that prints this, and ends so."""
        self.bin.mkdir(exist_ok=True)
        script = f"#!{sys.executable} -IS\nimport sys\nprint({output!r})\nsys.exit({code})\n"
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def gpu(self, **faults: str) -> None:
        """Values of GPU 3."""
        self.program("nvidia-smi", nvidia_smi_xml(faults))

    def probe(self, text: str, **answer: str) -> None:
        self.program("python", f"{text}{json.dumps({'problem': '', 'unknown': ''} | answer)}")

    def readings(self) -> dict[str, Any]:
        environ = {"PATH": str(self.bin), "A4_PYTHON": str(self.bin / "python")}
        raw = read_pod(Question(environ, ["/"], self.peers, self.run), str(self.root))
        return reduced(raw, environ, GPUS, self.run) | self.overrides
