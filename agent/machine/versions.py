"""Programs and libraries of this pod, and their versions."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from agent.machine.asking import PROGRAM_SECONDS, ask, run_to_end, text_of
from agent.machine.files import read
from agent.machine.process import find_program
from agent.paths import own_program, shipped

CUDA = "usr/local/cuda/version.json"


def mpi(path: str) -> dict[str, str]:
    """The versions of the mpirun on a search path, and of the agent's own Python.

    `mpirun`: its path, if there is one; `mpirun_version_text`: what it says of itself, or `mpirun_problem`: why it
    does not; `python`: the agent's own.
    """
    found = {"python": "{}.{}.{}".format(*sys.version_info)}
    program = find_program("mpirun", path)
    if program is None:
        return {**found, "mpirun_problem": f"mpirun is not on PATH ({path})"}
    found["mpirun"] = program
    try:
        done = run_to_end([program, "--version"], os.environ, PROGRAM_SECONDS)
    except OSError as error:
        found["mpirun_problem"] = f"{program} --version failed: {error}"
    else:
        found["mpirun_version_text"] = text_of(done.output + done.errors)
    return found


def cuda_toolkit(root: str = "/") -> str:
    """Version of the toolkit in the image; empty without one."""
    try:
        return str(json.loads(read(os.path.join(root, CUDA)) or "{}")["cuda"]["version"])
    except (ValueError, KeyError, TypeError):
        return ""


def libraries(
    names: Sequence[str], files: Sequence[str], environ: Mapping[str, str], seconds: float = 25.0
) -> dict[str, Any]:
    """What a program with this environment gets for these names, and which files are there.

    `libraries`: name → `path`, `version` (NCCL's only) or `problem`; `files`: path → is it there.
    """
    answer = ask("the loader", own_program("load-libraries.py", *names, "--", *files), environ, seconds)
    said = [json.loads(line) for line in answer.output.splitlines()]
    loaded = {one.pop("library"): one for one in said if "library" in one}
    there = {one["file"]: one["there"] for one in said if "file" in one}
    missing = {"problem": answer.problem or "the loader said nothing of it"}
    return {"libraries": {name: loaded.get(name, missing) for name in names}, "files": there}


def torch(python: str, environ: Mapping[str, str], path: str) -> dict[str, Any]:
    """The workload's Python on torch: `version`, and the `nccl` that torch loads (as in `libraries`); or `problem`.

    Torch has run paths of its own: wheels bring an NCCL that programs such as those of nccl-tests never see.
    """
    program = find_program(python, path)
    if program is None:
        return {"problem": f"A4_PYTHON={python} is not on PATH ({path})"}
    argv = [program, shipped("entrypoints", "find-torch.py")]
    answer = ask(f"{program} find-torch.py", argv, environ, PROGRAM_SECONDS)
    if answer.problem:
        return {"problem": answer.problem}
    found = json.loads(answer.output)
    library = found.pop("library", "")
    return {**found, "nccl": nccl_of(library, environ, path)} if library else found


def nccl_of(library: str, environ: Mapping[str, str], path: str) -> dict[str, Any]:
    """The NCCL that a library loads: by the loader's own account, which starts nothing of it. `lacks`: functions that
    the library calls and this NCCL does not have; Python then cannot load the library.
    """
    ldd = find_program("ldd", path)
    if ldd is None:
        return {"problem": f"ldd is not on PATH ({path})"}
    answer = ask("ldd", [ldd, "-r", library], environ, PROGRAM_SECONDS)
    found = re.search(r"(?m)^\s*(?:libnccl\.so\.2 => |(?=/.*/libnccl\.so))(/.*?) \(0x", answer.output)
    if found is None:
        return {"problem": answer.problem or f"{library} names no libnccl.so.2 that can be found: is it built in?"}
    nccl = os.path.realpath(found[1])  # run paths are full of /../
    loaded: dict[str, Any] = libraries([nccl], (), environ, PROGRAM_SECONDS)["libraries"][nccl]
    lacks = sorted(set(re.findall(r"(?m)^undefined symbol: (nccl\w+)", answer.output)))
    return {**loaded, "lacks": lacks} if lacks else loaded
