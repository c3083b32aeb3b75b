"""What `nvidia-smi -q -x` says of each GPU. Names of elements as drivers 535 to 580 write them."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

RESET = "GPU requires reset"
"""What nvidia-smi prints in place of many values of a GPU that has failed."""
NOTHING = (
    "", "N/A", "Not Supported", "Unknown Error", "Requested functionality has been deprecated", "ERR!", RESET,
)  # fmt: skip
"""What nvidia-smi prints in place of a value that it does not have, also in brackets."""
SLOWDOWNS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "power brake",
}
"""Reasons for a low clock that come from the hardware."""
UNCORRECTED = re.compile(r"(sram|dram)_uncorrectable(_parity|_secded)?$")


def parse(text: str) -> list[dict[str, Any]]:
    """GPUs in the order of nvidia-smi. A value that it does not give is None. Raises ValueError for other text."""
    root = _root(text)
    cuda = _text(root, "cuda_version")
    return [{**_gpu(index, gpu), "cuda": cuda} for index, gpu in enumerate(root.findall("gpu"))]


def identities(text: str) -> tuple[dict[str, str | None], list[dict[str, str | None]]]:
    """What a provider asks for: of the driver, and of each GPU. Raises ValueError as `parse` does."""
    root = _root(text)
    driver = {"driver": _text(root, "driver_version"), "CUDA": _text(root, "cuda_version")}
    paths = {"UUID": "uuid", "serial": "serial", "VBIOS": "vbios_version", "part": "gpu_part_number"}
    gpus = [
        {
            "name": _text(gpu, "product_name"),
            **{name: _text(gpu, path) for name, path in paths.items()},
            "PCI": gpu.get("id"),
        }
        for gpu in root.findall("gpu")
    ]
    return driver, gpus


def _root(text: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"nvidia-smi -q -x printed no XML: {error}") from None


def parse_links(text: str) -> list[dict[str, Any]]:
    """GPUs and their NVLinks by `nvidia-smi nvlink -s`: only a link with a speed is up."""
    found: list[dict[str, Any]] = []
    for line in text.splitlines():
        if gpu := re.match(r"GPU (\d+): (.*?) \(UUID", line):
            found.append({"index": int(gpu[1]), "name": gpu[2], "up": 0})
        elif found and re.match(r"\s*Link \d+: [\d.]+ GB/s", line):
            found[-1]["up"] += 1
    return found


def _gpu(index: int, gpu: ElementTree.Element) -> dict[str, Any]:
    return {
        "index": index,
        "name": _text(gpu, "product_name"),
        "memory": _text(gpu, "fb_memory_usage/total"),
        "used": _number(_text(gpu, "fb_memory_usage/used")),
        "recovery": _recovery(gpu),
        "uncorrected": _sum(gpu, "ecc_errors/volatile"),
        "uncorrected_ever": _sum(gpu, "ecc_errors/aggregate"),
        "remap_pending": _text(gpu, "remapped_rows/remapped_row_pending"),
        "remap_failure": _text(gpu, "remapped_rows/remapped_row_failure"),
        "slow": _slow(gpu),
        "lanes": _number(_text(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width")),
        "fabric": _text(gpu, "fabric/state"),
        "fabric_status": _text(gpu, "fabric/status"),
        "minor": _number(_text(gpu, "minor_number")),
        "hw_therm_slowdown": _held_down(gpu, "hw_therm_slowdown"),
        "hw_power_brake": _held_down(gpu, "hw_power_brake"),
        "processes": len(gpu.findall("processes/process_info")),
    }


def _text(gpu: ElementTree.Element, path: str) -> str | None:
    found = (gpu.findtext(path) or "").strip()
    return None if _unbracketed(found) in NOTHING else found


def _unbracketed(text: str) -> str:
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def _recovery(gpu: ElementTree.Element) -> str | None:
    """What is to be done with it. One that has failed may say that everywhere but there."""
    action = _text(gpu, "gpu_recovery_action")
    needs_reset = any(_unbracketed((each.text or "").strip()) == RESET for each in gpu.iter())
    return RESET if needs_reset and action in (None, "None") else action


def _number(text: str | None) -> int | None:
    found = re.match(r"\d+", text or "")
    return int(found[0]) if found else None


def _held_down(gpu: ElementTree.Element, reason: str) -> float | None:
    """For how many milliseconds the clock was, for that reason."""
    counter = f"clocks_event_reasons_counters/clocks_event_reasons_counters_{reason}"
    spent = re.match(r"(\d+) us", gpu.findtext(counter) or "")
    return int(spent[1]) / 1000 if spent else None


def _sum(gpu: ElementTree.Element, path: str) -> int | None:
    """Errors that were not corrected, of all memories; older drivers know fewer kinds of them."""
    counters = (each for each in gpu.iterfind(f"{path}/*") if UNCORRECTED.match(each.tag))
    counts = [number for each in counters if (number := _number(each.text)) is not None]
    return sum(counts) if counts else None


def _slow(gpu: ElementTree.Element) -> list[str] | None:
    """Which slowdowns are active; None where none is reported."""
    seen = {
        name: state
        for kind in ("event", "throttle")  # as drivers before 535 call them
        for name in SLOWDOWNS
        if (state := _text(gpu, f"clocks_{kind}_reasons/clocks_{kind}_reason_{name}")) is not None
    }
    return [SLOWDOWNS[name] for name, state in seen.items() if state == "Active"] if seen else None
