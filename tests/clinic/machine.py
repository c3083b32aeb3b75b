"""A pod with GPUs and RDMA devices, as files and programs that the readers of `doctor` find.

recorded/h200-idle.xml, -load.xml, -nvlink.txt and h100-idle.xml: two NVIDIA H200 and two H100 with driver 580.159.04,
`nvidia-smi -q -x` and `nvidia-smi nvlink -s` on 2026-11-26, without serial numbers and tables of clocks. The other
machines are made from them, with published values in place of recorded ones:

- A4 (B200): memory and driver as people quote `nvidia-smi` (NVIDIA/GPUStressTest#13: 570.133.20 and CUDA 12.8; 183359
  MiB), links of 53.125 GB/s (NVIDIA/k8s-test-infra#371), the text of ports with mlx5's RoCE (nccl#1866: ibstatus;
  Mooncake#1999: ibstat), GIDs by docs/environment.md.
- A3 High: eight of the H100, links of 26.562 GB/s as an H200 has them; no RDMA devices.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from agent.clinic.doctor.counted import readings_of
from agent.clinic.probes.pod_readings import read_pod
from agent.machine.api import Search

RECORDED = Path(__file__).parent / "recorded"


class Node(NamedTuple):
    """What a node has. `recording`: of nvidia-smi -q -x, of two H200."""

    gpu: str
    memory: str
    architecture: str
    driver: str
    cuda: str
    speed: str
    gpus: int
    accelerator: str
    nics: int = 0
    recording: str = "h200-idle"
    run: str = ""


H200 = Node("NVIDIA H200", "143771 MiB", "Hopper", "580.159.04", "13.0", "26.562", 2, "nvidia-h200-141gb")
H100 = H200._replace(
    gpu="NVIDIA H100 80GB HBM3", memory="81559 MiB", accelerator="nvidia-h100-80gb", recording="h100-idle"
)
NODES = {
    "H200": H200,
    "H200 with a run": H200._replace(recording="h200-load", run="ddp-1"),
    "A4": Node("NVIDIA B200", "183359 MiB", "Blackwell", "570.133.20", "12.8", "53.125", 8, "nvidia-b200", 8),
    "H100": H100,
    "A3": H100._replace(gpus=8),
}
GID = "0000:0000:0000:0000:0000:ffff:c0a8:0a0"


def nvidia_smi_xml(node: Node) -> str:
    """What `nvidia-smi -q -x` prints there."""
    text = (RECORDED / f"{node.recording}.xml").read_text()
    head, *gpus = re.split(r"(?=\t<gpu id=)", text.replace("</nvidia_smi_log>\n", ""))
    for old, new in zip(H200[:5], node[:5], strict=True):
        head, gpus = head.replace(f">{old}<", f">{new}<"), [one.replace(f">{old}<", f">{new}<") for one in gpus]
    head = head.replace("<attached_gpus>2<", f"<attached_gpus>{node.gpus}<")
    numbered = [re.sub(r"(<minor_number>)\d+", rf"\g<1>{index}", gpus[index % len(gpus)]) for index in range(node.gpus)]
    return "".join([head, *numbered, "</nvidia_smi_log>\n"])


def nvlink_text(node: Node) -> str:
    """What `nvidia-smi nvlink -s` prints there."""
    _, first, *_ = re.split(r"(?=GPU \d)", (RECORDED / "h200-nvlink.txt").read_text())
    first = first.replace(H200.gpu, node.gpu).replace(H200.speed, node.speed)
    return "".join(first.replace("GPU 0", f"GPU {index}") for index in range(node.gpus))


class PodMachine:
    """Its files are below a directory; each method breaks something."""

    def __init__(self, directory: Path, node: Node = NODES["A4"]) -> None:
        self.root, self.bin, self.node = directory / "root", directory / "bin", node
        for index in range(node.gpus):
            self.write(f"dev/nvidia{index}", "")
        for index in range(node.nics):
            port = f"sys/class/infiniband/mlx5_{index}/ports/1"
            self.write(f"{port}/state", "4: ACTIVE\n")
            self.write(f"{port}/phys_state", "5: LinkUp\n")
            self.write(f"{port}/link_layer", "Ethernet\n")
            self.write(f"{port}/rate", "400 Gb/sec (4X NDR)\n")
            self.write(f"{port}/gids/3", f"{GID}{index}\n")
            self.write(f"{port}/gid_attrs/types/3", "RoCE v2\n")
        self.write("dev/shm/x", "")
        self.write("dev/kmsg", "6,1,1000000,-;NVRM: loading\n")
        self.write("proc/uptime", "5000.00 1.00\n")
        self.write(
            "proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {node.driver}  Sun\n"
        )
        self.smi(nvidia_smi_xml(node), nvlink_text(node))
        self.probe("")
        self.overrides: dict[str, Any] = {
            "torch": {"nccl": {"version": "2.23.4"}},
            "shm": {"size": 16 << 30, "free": 16 << 30},
            "limits": {"memlock": ["unlimited"] * 2, "nofile": [1 << 20] * 2},
            "disks": [{"path": "/", "problem": "", "bytes": 100, "bytes_free": 50, "files": 0, "files_free": 0}],
            "accelerator": node.accelerator,
            "clock": {"offset": 0.003, "trip": 0.002},
            "fabric": [],
        }
        """What depends on the machine of the test, or is known by others."""
        self.peers = ["localhost"]
        self.run = node.run

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def program(self, name: str, body: str) -> None:
        """One of Python."""
        self.bin.mkdir(exist_ok=True)
        (self.bin / name).write_text(f"#!{sys.executable} -IS\nimport sys\n{body}\n")
        (self.bin / name).chmod(0o755)

    def says(self, name: str, output: str, code: int = 0) -> None:
        self.program(name, f"print({output!r})\nsys.exit({code})")

    def smi(self, listed: str, links: str) -> None:
        self.xml, self.links = listed, links
        self.program("nvidia-smi", f"print({links!r} if sys.argv[1] == 'nvlink' else {listed!r})")

    def element(self, path: str, value: str) -> None:
        """Another text of that element of GPU 1; `path` may begin with the name of what is above all GPUs."""
        root = ElementTree.fromstring(self.xml)
        found = root.findall("gpu")[1].find(path)
        assert found is not None, path
        found.text = value
        self.smi(ElementTree.tostring(root, encoding="unicode"), self.links)

    def replace(self, old: str, new: str) -> None:
        """In all that nvidia-smi prints."""
        assert old in self.xml + self.links
        self.smi(self.xml.replace(old, new), self.links.replace(old, new))

    def probe(self, text: str, nccl: str = "", blind: str = "", **answer: str) -> None:
        """The workload's Python computes so, and NCCL says so of two GPUs."""
        computed = f"{text}{json.dumps({'problem': '', 'unknown': ''} | answer)}"
        looked = f"{nccl or HEALTHY_NCCL}{json.dumps({'unknown': blind})}"
        said = {"probe-nccl.py": looked, "probe-gpu.py": computed, "find-torch.py": "{}"}
        self.program("python", f"print({said!r}[sys.argv[1].rpartition('/')[2]])")

    def readings(self, needs: Search | None = None) -> dict[str, Any]:
        environ = {"PATH": str(self.bin), "A4_PYTHON": str(self.bin / "python")}
        raw = read_pod(environ, ["/"], self.peers, self.run, needs, str(self.root))
        return readings_of(raw, environ, self.node.gpus, self.run) | self.overrides


Break = Callable[[PodMachine], Any]
DIAG = "node042:12345 NCCL DIAG "
HEALTHY_NCCL = (RECORDED / "nccl-2.32.3-diagnostics.txt").read_text()
"""What two ranks on two H200 said."""
