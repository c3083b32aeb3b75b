"""Which shared libraries the loader really takes in this environment, and which files are there.

    load-libraries.py LIBRARY … -- FILE …

Prints one line of JSON for each: {"library", "path" or "problem", "version" of NCCL or NVSHMEM} and {"file", "there"}.
Loading is the only honest answer to what would be loaded: LD_LIBRARY_PATH, LD_PRELOAD, run paths and the loader's
cache all have a say. It is a process of its own because a library may crash, or lie on a file system that hangs; what
was printed before that counts.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

RTLD_DI_LINKMAP = 2


class LinkMap(ctypes.Structure):
    """The beginning of the loader's own record of a library (link.h)."""

    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]


def load(name: str) -> dict[str, Any]:
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return {"library": name, "problem": str(error)}
    return {"library": name, "path": path_of(library), **nccl_version(library), **nvshmem_version(library)}


def path_of(library: ctypes.CDLL) -> str:
    """The file that the loader took, by the name under which it found it."""
    link = ctypes.POINTER(LinkMap)()
    handle = ctypes.c_void_p(library._handle)
    if ctypes.CDLL(None).dlinfo(handle, RTLD_DI_LINKMAP, ctypes.byref(link)) or not link.contents.name:
        return str(library._name)
    return os.fsdecode(link.contents.name)


def nccl_version(library: ctypes.CDLL) -> dict[str, str]:
    """`version` where the library is an NCCL."""
    code = ctypes.c_int()
    try:
        if library.ncclGetVersion(ctypes.byref(code)):
            return {}
    except AttributeError:
        return {}
    thousands = 10_000 if code.value >= 10_000 else 1000  # until 2.8 it was 2809 for 2.8.9
    return {"version": f"{code.value // thousands}.{code.value % thousands // 100}.{code.value % 100}"}


def nvshmem_version(library: ctypes.CDLL) -> dict[str, str]:
    """`version` where the library is NVSHMEM's of the host (2.11 or later)."""
    numbers = [ctypes.c_int() for _ in range(3)]
    try:
        library.nvshmemx_vendor_get_version_info(*map(ctypes.byref, numbers))
    except AttributeError:
        return {}
    return {"version": ".".join(str(number.value) for number in numbers)}


def main() -> None:
    # What a library prints when it is loaded must not come between the lines.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    split = sys.argv.index("--")
    for name in sys.argv[1:split]:
        print(json.dumps(load(name)), file=out, flush=True)
    for path in sys.argv[split + 1 :]:
        print(json.dumps({"file": path, "there": os.path.exists(path)}), file=out, flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # destructors of libraries that nobody has initialised may crash
