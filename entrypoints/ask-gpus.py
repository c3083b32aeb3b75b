"""What NVML says of the GPUs that this pod can open, as JSON: driver, cuda, devices.

    ask-gpus.py [LIBRARY …]

Ends with 1 and a sentence on stderr when NVML cannot be asked. It is a process of its own because a driver that is
stuck keeps whoever asks it. NVML and not nvidia-smi, which asks NVML too: that program need not be on PATH, its texts
differ from release to release, and the functions here have been the same since drivers of 2019.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

NAMES = ("libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1")
"""The second is where GKE puts it: not every image has that directory on its library path."""
NOT_SUPPORTED = 3
TEXT_BYTES = 96


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Refused(Exception):
    """NVML gave an error; the message says which."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Nvml:
    """The library, with its errors as exceptions."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._library = load(names)
        self._library.nvmlErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise Refused(code, f"{name}: {self._library.nvmlErrorString(code).decode()}")

    def text(self, name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(TEXT_BYTES)
        self.call(name, *arguments, buffer, ctypes.c_uint(TEXT_BYTES))
        return buffer.value.decode(errors="replace")


def load(names: tuple[str, ...]) -> ctypes.CDLL:
    """The first of these libraries that can be loaded. Raises OSError, of the first."""
    problems = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problems.append(error)
    raise problems[0]


def ask(nvml: Nvml) -> dict[str, Any]:
    nvml.call("nvmlInit_v2")
    cuda, count = ctypes.c_int(), ctypes.c_uint()
    nvml.call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(cuda))
    nvml.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
    return {
        "driver": nvml.text("nvmlSystemGetDriverVersion"),
        "cuda": f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
        "devices": [ask_device(nvml, index) for index in range(count.value)],
    }


def ask_device(nvml: Nvml, index: int) -> dict[str, Any]:
    handle, memory = ctypes.c_void_p(), Memory()
    nvml.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    nvml.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    return {
        "model": nvml.text("nvmlDeviceGetName", handle),
        "uuid": nvml.text("nvmlDeviceGetUUID", handle),
        "memory": memory.total,
        "mig": has_mig(nvml, handle),
    }


def has_mig(nvml: Nvml, handle: ctypes.c_void_p) -> bool:
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    try:
        nvml.call("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
    except Refused as error:
        if error.code == NOT_SUPPORTED:  # by this model
            return False
        raise
    return bool(current.value)


def main() -> int:
    try:
        found = ask(Nvml(tuple(sys.argv[1:]) or NAMES))
    except (OSError, Refused, AttributeError) as error:  # AttributeError: the library lacks a function
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
