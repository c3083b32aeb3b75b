"""Memory of GPUs that is in use when a run is to start again, and who has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.clinic.probes.gpu_memory import gpu_memory
from tests.clinic.machine import PodMachine


def opens(machine: PodMachine, pid: int, name: str, *files: str) -> None:
    machine.write(f"proc/{pid}/comm", f"{name}\n")
    (machine.root / f"proc/{pid}/fd").mkdir()
    for number, file in enumerate(files):
        (machine.root / f"proc/{pid}/fd/{number}").symlink_to(file)


@pytest.mark.parametrize(
    ("said", "used", "holders"),
    [
        ("0, 4\n1, 511", {}, []),
        ("0, 61204\n1, 512", {"GPU 0": 61204, "GPU 1": 512}, ["901 python3", "4121 a\ufffdb"]),
        ("0, [N/A]\n1, [Unknown Error]\n10, 700", {"GPU 10": 700}, ["901 python3", "4121 a\ufffdb"]),
        ("", {}, []),
    ],
)
def test_what_is_in_use_and_by_whom(tmp_path: Path, said: str, used: dict[str, int], holders: list[str]) -> None:
    machine = PodMachine(tmp_path)
    machine.says("nvidia-smi", said)
    opens(machine, 4121, "", "/dev/null", "/dev/nvidia0")
    (machine.root / "proc/4121/comm").write_bytes(b"a\xffb\n")
    opens(machine, 901, "python3", "/dev/nvidiactl", "/dev/nvidia1", "/dev/nvidia1")
    opens(machine, 77, "dcgm", "/dev/nvidiactl", "/dev/nvidia-uvm")
    machine.write("proc/78/comm", "gone\n")
    found = gpu_memory({"PATH": str(machine.bin)}, 10.0, str(machine.root))
    assert found == {"used": used, "holders": holders}


def test_a_gpu_that_is_lost(tmp_path: Path) -> None:
    machine = PodMachine(tmp_path)
    machine.says("nvidia-smi", "Unable to determine the device handle for GPU3", 15)
    found = gpu_memory({"PATH": str(machine.bin)}, 10.0, str(machine.root))
    assert list(found) == ["problem"] and "device handle for GPU3" in found["problem"]
