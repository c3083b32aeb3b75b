"""Makes a rank of a run ready to be asked what it does, from outside.

Once it has imported torch, torch's own server answers on the Unix socket A4_WHY_DIR/<pid>.sock. For the result of the
run, ranks leave two files in A4_WHY_DIR: versions.json, name → version of what they have loaded, and first-collective,
the time at which the first rank of the pod had completed one.

Nothing of this is printed, and whatever fails is passed over: a run is worth more than a look at it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing takes time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

MOST_PATH = 100
"""Bytes of a socket's path: the kernel takes 107."""
RENAMED = (2, 8)
"""The first torch that reads TORCH_FR_BUFFER_SIZE and TORCH_FR_DUMP_TEMP_FILE; it warns of the old names."""
BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
DUMP = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
RECORDED = 2000
"""Operations that torch's recorder keeps: as many as with NCCL when nothing is set. Without this gloo records none."""
DUMP_PREFIX = "dump-"
"""What torch's watchdog writes before it ends a rank is a file of that name in A4_WHY_DIR, with the rank behind it."""
RECORDERS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""The first is gloo's, the other NCCL's."""
HOOKED_SINCE = (2, 15)
HOOKED = ("nccl2", "nccl-lazy")
"""Backends for NCCL, the first by default, that a hook of torch's records: the first function takes their name. Their
operations are counted from 0 on, -1 is none."""
PTRACE_CAPABILITY = 19
PR_SET_PTRACER = 0x59616D61
ANY_PROCESS = -1
LOG_ERRORS = 2
"""A level of torch's log: what the server says of itself is a warning."""


class AfterTorch:
    """In sys.meta_path: sees torch being imported, and acts when that is done."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.pid = os.getpid()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # It stays when it was only asked whether there is a torch, as libraries do before they import it.
        if name != "torch" or os.getpid() != self.pid:
            return None
        try:
            others = [getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self]
            spec = next(filter(None, (find(name, path, target) for find in others if find)), None)
            if spec is not None and spec.loader is not None:
                self.wrap(spec.loader)
            return spec
        except Exception:
            return None  # Python asks the others itself, and tells what is wrong

    def wrap(self, loader: Any) -> None:
        """Let the loader act after the module, and be as it was. It stays what it is: others look at its type."""
        run = loader.exec_module

        def run_and_act(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            run(module)
            quietly(lambda: let_torch_record(self.directory, module))
            quietly(lambda: leave(self.directory, "versions.json", versions(module)))
            quietly(lambda: start_server(self.directory, module))
            quietly(lambda: note_groups(self.directory))
            quietly(lambda: watch_for_collective(self.directory, module))

        # Python leaves frames of this file out when it shows where an import failed.
        run_and_act.__code__ = run_and_act.__code__.replace(co_filename="<frozen importlib._bootstrap>")
        quietly(lambda: setattr(loader, "exec_module", run_and_act))


def quietly(action: Any) -> None:
    try:
        action()
    except Exception:
        pass


def leave(directory: str, name: str, text: str) -> None:
    """A file for the agent. Of several ranks any will do."""
    path = f"{directory}/{os.getpid()}.new"
    with open(path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(text)
    os.replace(path, f"{directory}/{name}")


def versions(torch: Any) -> str:
    """What has been loaded, as JSON: NCCL need not be the one that torch was built with."""
    import json

    found = {"python": sys.version.split()[0], "torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
        quietly(lambda: found.update(nccl=loaded_nccl()))
        quietly(lambda: found.update(cudnn=dotted(torch.backends.cudnn.version())))
    return json.dumps(found)


def loaded_nccl() -> str:
    """Raises OSError when torch has not loaded it."""
    import ctypes

    code = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD).ncclGetVersion(ctypes.byref(code))
    return dotted(code.value)


def dotted(code: int) -> str:
    """22809 is 2.28.9, and so is 2809; of cuDNN 91002 is 9.10.2, and 8902 is 8.9.2."""
    major, rest = divmod(code, 10_000 if code >= 10_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def watch_for_collective(directory: str, torch: Any) -> None:
    """Look ten times a second, on one rank of the pod, until torch's recorder has seen the end of one; not again when
    ranks are started anew."""
    local_ranks = os.environ.get("LOCAL_RANK"), os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK")
    if "0" not in local_ranks or os.path.exists(f"{directory}/first-collective"):
        return
    import json
    from threading import Thread
    from time import sleep, time

    native, pid = torch._C._distributed_c10d, os.getpid()
    dumps: list[tuple[Any, tuple[str, ...], int]] = [
        (getattr(native, name), (), 0) for name in RECORDERS if hasattr(native, name)
    ]
    if release(torch) >= HOOKED_SINCE:
        dumps += [(native._dump_fr_trace_json, (backend,), -1) for backend in HOOKED]
    if not dumps:
        return  # nothing of torch 2.4 says it as JSON: a thread would look in vain until the program ends

    def is_done() -> bool:
        return any(
            int(one["last_completed_collective"]) > none
            for dump, backend, none in dumps
            for one in json.loads(dump(False, False, *backend))["pg_status"].values()
        )

    def watch() -> None:
        while not (torch.distributed.is_initialized() and is_done()):
            sleep(0.1)
        if os.getpid() == pid:
            leave(directory, "first-collective", str(time()))

    Thread(target=quietly, args=(watch,), name="a4-first-collective", daemon=True).start()


def release(torch: Any) -> tuple[int, int]:
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def let_torch_record(directory: str, torch: Any) -> None:
    """Set what torch's recorder reads, for torch alone: a value of the user's own stands.

    os.environ must not show it; only a new process that the rank starts sees it. Megatron-LM since 0.17 takes a
    TORCH_FR_DUMP_TEMP_FILE there as a wish for its own flight recorder (TORCH_NCCL_EXTRA_DUMP_ON_EXEC), with which
    torch 2.11 waits for eight minutes in exit() when the program has not called destroy_process_group, as Megatron
    does not.
    """
    for names, value in ((BUFFER, str(RECORDED)), (DUMP, f"{directory}/{DUMP_PREFIX}")):
        if not any(name in os.environ for name in names):
            os.putenv(names[release(torch) < RENAMED], value)


def start_server(directory: str, torch: Any) -> None:
    """Raises whatever stands in the way, such as a torch that has no such server."""
    path = f"{directory}/{os.getpid()}.sock"
    if len(os.fsencode(path)) > MOST_PATH:
        return
    import ctypes
    from importlib import import_module

    import_module("torch.distributed.debug._handlers")  # names what the server answers to
    native = import_module("torch._C._distributed_c10d")
    server_type = native._WorkerServer
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
    level = ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level")
    if os.path.lexists(path):
        os.unlink(path)
    before = level.value
    level.value = max(before, LOG_ERRORS)
    try:
        server = server_type(path)
    finally:
        level.value = before
    os.chmod(path, 0o600)
    # Kept for ever: its end would print lines, and wait for a thread that a fork of this process does not have.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))


def note_groups(directory: str) -> None:
    """Leave a file that says which ranks are in which group, as JSON, whenever a group is made: gloo's recorder does
    not say it, and a thread that looked for itself would need the GIL of a program that may be ending."""
    import json
    from importlib import import_module

    c10d: Any = import_module("torch.distributed.distributed_c10d")
    pid = os.getpid()

    def note() -> None:
        if os.getpid() == pid:
            # Of a group without this rank there is an entry without a name.
            names = c10d._world.pg_names
            groups = {names[group]: sorted(ranks) for group, ranks in c10d._pg_group_ranks.items() if group in names}
            leave(directory, f"{pid}.groups", json.dumps(groups))

    class Noted(dict):  # type: ignore[type-arg]
        def __setitem__(self, group: Any, ranks: Any) -> None:
            super().__setitem__(group, ranks)
            quietly(note)

    c10d._pg_group_ranks = Noted(c10d._pg_group_ranks)


def let_agent_look() -> None:
    """Where the pod may not trace all processes, its own agent may still trace those that allow it."""
    with open("/proc/self/status") as status:
        capabilities = next(line for line in status if line.startswith("CapEff:"))
    if int(capabilities.split()[1], 16) & 1 << PTRACE_CAPABILITY:
        return
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(ANY_PROCESS), 0, 0, 0)


def begin(rank: str, directory: str) -> None:
    """Make this process, which is that rank, ready. directory: for what it leaves; empty where nobody will look."""
    quietly(let_agent_look)
    if directory:
        quietly(lambda: leave(directory, str(os.getpid()), f"{rank}\n"))  # which it was, for when it is gone
        if not os.path.exists(f"{directory}/versions.json"):
            quietly(lambda: leave(directory, "versions.json", f'{{"python": "{sys.version.split()[0]}"}}'))
        sys.meta_path.insert(0, AfterTorch(directory))
