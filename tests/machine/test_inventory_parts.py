"""Parts of the inventory, each with a file system, programs and libraries made for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.machine.asking import ProgramAnswer, ask
from agent.machine.cgroup_limits import cpu_quota, memory_kills, memory_limit
from agent.machine.nics import nics, rdma
from agent.machine.resources import cpu_model, gpus, memory_total, module_version, resources, shm
from agent.machine.versions import cuda_toolkit, libraries, mpi, nccl_of, torch
from agent.paths import shipped

ENVIRON = {"PATH": os.environ.get("PATH", os.defpath)}
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def put(root: Path, files: dict[str, str]) -> str:
    """Files with these contents below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def compiled(path: Path, code: str, *options: str) -> Path:
    """A shared library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(code)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source, *options], check=True)
    return path


# Programs that are asked


def test_a_program_gets_the_environment_and_nothing_else() -> None:
    argv = [sys.executable, "-c", "import os; print(sorted({*os.environ} - {'LC_CTYPE'}))"]
    assert ask("it", argv, {"A": "1"}, 10) == ProgramAnswer("['A']\n")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise SystemExit('no such thing')", "it ended with 1: no such thing"),
        ("import sys; sys.exit(3)", "it ended with 3"),
        ("import os; os.abort()", "it was killed by signal 6"),
    ],
)
def test_why_a_program_failed(code: str, problem: str) -> None:
    assert ask("it", [sys.executable, "-c", code], ENVIRON, 10).problem == problem


def test_a_program_that_is_not_there() -> None:
    problem = "/no/such/program cannot be started: No such file or directory"
    assert ask("it", ["/no/such/program"], ENVIRON, 10).problem == problem


def test_what_was_said_before_a_program_hung_counts() -> None:
    """It and what it has started are ended; nobody waits for that."""
    answer = ask("it", ["sh", "-c", "echo first; sleep 60"], ENVIRON, 2)
    assert answer == ProgramAnswer("first\n", "it did not answer within 2 s")


# Cores and memory


def test_resources_of_this_machine() -> None:
    found = resources()
    assert found["cpus"]["allowed"] >= 1
    assert found["memory"]["total"] > 1 << 20
    assert set(found["limits"]) == {"memlock", "nofile", "nproc"}
    assert all(value == "unlimited" or value > 0 for limit in found["limits"].values() for value in limit)


POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f0c9d52.slice"
CONTAINER = f"{POD}/cri-containerd-6a1b.scope"
V2 = "29 23 0:26 {shown} /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup rw,nsdelegate\n"
V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 {shown} /sys/fs/cgroup/cpu,cpuacct rw,relatime master:11 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 {shown} /sys/fs/cgroup/memory rw,relatime master:14 - cgroup cgroup rw,memory
"""
OWN_V1 = "11:memory:{path}\n4:cpu,cpuacct:{path}\n1:name=systemd:{path}\n0::{path}"
GIB = 1 << 30


def v2(path: str = "", cpu: str = "", memory: object = "") -> dict[str, str]:
    """Limits in a cgroup of version 2; without any, files are not there."""
    limits = {"cpu.max": f"{cpu} 100000" if cpu else "", "memory.max": str(memory)}
    return {f"{path}/{name}".lstrip("/"): f"{text}\n" for name, text in limits.items() if text}


def v1(path: str = "", cpu: object = -1, memory: object = 9223372036854771712) -> dict[str, str]:
    """Limits in a cgroup of version 1, by default none."""
    return {
        f"cpu,cpuacct{path}/cpu.cfs_quota_us": f"{cpu}\n",
        f"cpu,cpuacct{path}/cpu.cfs_period_us": "100000\n",
        f"memory{path}/memory.limit_in_bytes": f"{memory}\n",
    }


NODE, NODE_V1 = V2.format(shown="/"), V1.format(shown="/")
BOTH = NODE_V1 + NODE.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
TWICE = V2.format(shown="/c").replace("/sys", "/mnt/sys") + V2.format(shown="/a")
LIMITED = v2(cpu="150000", memory=GIB)
IN_POD = v2(f"other{CONTAINER}", memory=2) | v2(CONTAINER, "800000", 4 * GIB) | v2(POD, "400000", "max")
OWN_IN_POD = OWN_V1.format(path=CONTAINER)
IN_POD_V1 = v1(CONTAINER, 250000, GIB) | v1(POD) | v1()


@pytest.mark.parametrize(
    ("own", "mountinfo", "files", "quota", "limit"),
    [
        pytest.param("0::/", NODE, LIMITED, 1.5, GIB, id="v2, its own view: the top"),
        pytest.param("0::/", NODE, v2(cpu="max", memory="max"), None, None, id="v2, no limits"),
        pytest.param("0::/", V2.format(shown="/../.."), LIMITED, 1.5, GIB, id="v2, the top is above"),
        pytest.param(f"0::{CONTAINER}", NODE, IN_POD, 4.0, 4 * GIB, id="v2, the node's tree: the tightest above"),
        pytest.param(OWN_IN_POD, V1.format(shown=CONTAINER), v1("", 250000, GIB), 2.5, GIB, id="v1, its own view"),
        pytest.param(OWN_IN_POD, NODE_V1, IN_POD_V1, 2.5, GIB, id="v1, the node's tree"),
        pytest.param(OWN_V1.format(path="/"), NODE_V1, v1(), None, None, id="v1, no limits"),
        pytest.param(OWN_V1.format(path="/x"), BOTH, v1("/x", -1, 5) | v2("unified/x", "", 1), None, 5, id="both"),
        pytest.param("0::/../x", NODE, v2(memory=GIB) | v2("x", memory=1), None, GIB, id="out of its namespace"),
        pytest.param("0::/a/b", TWICE, v2("b", memory=5), None, 5, id="seen at a second place first"),
        pytest.param("strange", "strange - x\n", v2(memory=1), None, None, id="strange"),
        pytest.param("", "", LIMITED, None, None, id="nothing known"),
    ],
)
def test_limits_of_the_cgroup(
    tmp_path: Path, own: str, mountinfo: str, files: dict[str, str], quota: float | None, limit: int | None
) -> None:
    cgroups = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    root = put(tmp_path, {"proc/self/cgroup": f"{own}\n", "proc/self/mountinfo": mountinfo, **cgroups})
    assert (cpu_quota(root), memory_limit(root)) == (quota, limit)


@pytest.mark.parametrize(
    ("own", "mountinfo", "name"),
    [
        (f"0::{CONTAINER}\n", V2.format(shown=CONTAINER), "memory.events"),
        (OWN_V1.format(path=CONTAINER), V1.format(shown=CONTAINER), "memory/memory.oom_control"),
    ],
)
def test_processes_that_were_killed_for_lack_of_memory(tmp_path: Path, own: str, mountinfo: str, name: str) -> None:
    root = put(tmp_path, {"proc/self/cgroup": own, "proc/self/mountinfo": mountinfo})
    assert memory_kills(root) == 0
    put(tmp_path, {f"sys/fs/cgroup/{name}": "low 0\noom 7\noom_kill 3\noom_group_kill 5\n"})
    assert memory_kills(root) == 3


def test_memory_and_model(tmp_path: Path) -> None:
    cpus = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nprocessor\t: 1\nmodel name\t: Other\n"
    root = put(tmp_path, {"proc/meminfo": "MemTotal:       16 kB\nMemFree: 1 kB\n", "proc/cpuinfo": cpus})
    assert memory_total(root) == 16384
    assert cpu_model(root) == "Some CPU @ 2 GHz"
    assert shm(root) is None


def test_a_file_system_without_anything(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert (cpu_quota(root), memory_limit(root), memory_total(root), cpu_model(root)) == (None, None, None, "")
    assert (nics({}, root), rdma(root), cuda_toolkit(root), module_version(root)) == ([], [], "", "")


# Networks


def test_nics(tmp_path: Path) -> None:
    links = {
        "eth0": {"operstate": "up\n", "mtu": "1460\n", "speed": "200000\n", "device/vendor": "0x1ae0"},
        "eth10": {"operstate": "down\n", "mtu": "8244\n", "speed": "-1\n", "device/vendor": "0x1ae0"},
        "eth9": {"device/vendor": "0x1ae0"},
        "veth12": {"operstate": "up\n"},
        "bond0": {"operstate": "up\n"},
    }
    net = {f"sys/class/net/{link}/{name}": text for link, texts in links.items() for name, text in texts.items()}
    root = put(tmp_path, net)
    assert nics({"eth0": "10.0.0.1", "bond0": "10.0.0.2"}, root) == [
        {"name": "bond0", "state": "up", "mtu": None, "speed": None, "address": "10.0.0.2"},
        {"name": "eth0", "state": "up", "mtu": 1460, "speed": 200000, "address": "10.0.0.1"},
        {"name": "eth9", "state": "", "mtu": None, "speed": None, "address": ""},
        {"name": "eth10", "state": "down", "mtu": 8244, "speed": None, "address": ""},
    ]


def test_rdma_devices(tmp_path: Path) -> None:
    device = "sys/class/infiniband/mlx5_0"
    gid = "0000:0000:0000:0000:0000:ffff:0a00:0001"
    root = put(
        tmp_path,
        {
            f"{device}/device/net/gpu0rdma0/mtu": "8896",
            f"{device}/ports/1/state": "4: ACTIVE\n",
            f"{device}/ports/1/link_layer": "Ethernet\n",
            f"{device}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            f"{device}/ports/1/gids/2": "0000:0000:0000:0000:0000:0000:0000:0000\n",
            f"{device}/ports/1/gids/3": f"{gid}\n",
            f"{device}/ports/1/gid_attrs/types/3": "RoCE v2\n",
            f"{device}/ports/1/gids/300": f"{gid}\n",
        },
    )
    port = {"port": 1, "state": "ACTIVE", "link": "Ethernet", "rate": "400 Gb/sec (4X NDR)"}
    gids = [{"index": 3, "gid": gid, "type": "RoCE v2"}]
    assert rdma(root) == [{"name": "mlx5_0", "net": ["gpu0rdma0"], "ports": [{**port, "gids": gids}]}]


# GPUs

NVML = r"""
#include <string.h>
#define TEXT(name, text) int name(char *to, unsigned n) { strncpy(to, text, n); return 0; }
#define OF(name, text) int name(void *gpu, char *to, unsigned n) { strncpy(to, text, n); return 0; }
int nvmlInit_v2(void) { return INIT; }
const char *nvmlErrorString(int code) { return code == 18 ? "Driver/library version mismatch" : "Not Supported"; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12090; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) { *gpu = (void *)(long)(index + 1); return 0; }
int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long *memory) { memory[0] = 85899345920ULL; return 0; }
int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *next) { *now = *next = gpu == (void *)2; return MIG; }
TEXT(nvmlSystemGetDriverVersion, "575.57.08")
OF(nvmlDeviceGetName, "NVIDIA H100")
OF(nvmlDeviceGetUUID, "GPU-1")
"""
KERNEL_MODULES = [
    ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n", "535.183.01"),
    ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n", "580.95.05"),
    ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n", "580.95.05"),
    ("something else\n", ""),
]


def with_nvml(tmp_path: Path, init: int = 0, mig: int = 0) -> dict[str, str]:
    compiled(tmp_path / "lib/libnvidia-ml.so.1", NVML, f"-DINIT={init}", f"-DMIG={mig}")
    return {**ENVIRON, "LD_LIBRARY_PATH": str(tmp_path / "lib"), "LD_PRELOAD": "/no/such/library.so"}


@needs_compiler
@pytest.mark.parametrize("mig", [0, 3])
def test_what_nvml_says(tmp_path: Path, mig: int) -> None:
    """3: a model that knows no MIG."""
    root = put(tmp_path, {"dev/nvidia0": "", "dev/nvidia1": ""})
    found = gpus(with_nvml(tmp_path, mig=mig), root)
    device = {"model": "NVIDIA H100", "uuid": "GPU-1", "memory": 80 << 30}
    devices = [{**device, "mig": False}, {**device, "mig": not mig}]
    assert found == {"files": 2, "driver": "575.57.08", "cuda": "12.9", "devices": devices}


@needs_compiler
def test_nvml_that_refuses_leaves_what_the_kernel_says(tmp_path: Path) -> None:
    root = put(tmp_path, {"dev/nvidia0": "", "proc/driver/nvidia/version": KERNEL_MODULES[0][0]})
    found = gpus(with_nvml(tmp_path, init=18), root)
    problem = "NVML ended with 1: nvmlInit_v2: Driver/library version mismatch"
    assert found == {"files": 1, "driver": "535.183.01", "cuda": "", "devices": [], "problem": problem}


@pytest.mark.parametrize(("text", "version"), KERNEL_MODULES)
def test_the_driver_by_the_kernel(tmp_path: Path, text: str, version: str) -> None:
    assert module_version(put(tmp_path, {"proc/driver/nvidia/version": text})) == version


# Libraries

NCCL = "int ncclGetVersion(int *version) { *version = CODE; return 0; }"


def nccl(directory: Path, code: int) -> Path:
    return compiled(directory / "libnccl.so.2", NCCL, f"-DCODE={code}", "-Wl,-soname,libnccl.so.2")


@needs_compiler
@pytest.mark.parametrize(("code", "version"), [(22809, "2.28.9"), (21005, "2.10.5"), (2708, "2.7.8")])
def test_the_nccl_that_really_loads(tmp_path: Path, code: int, version: str) -> None:
    first, second = nccl(tmp_path / "first", code), nccl(tmp_path / "second", 22000)
    environ = {**ENVIRON, "LD_LIBRARY_PATH": f"/no/such/directory:{first.parent}:{second.parent}"}
    found = libraries(["libnccl.so.2"], [], environ)
    assert found == {"libraries": {"libnccl.so.2": {"path": str(first), "version": version}}, "files": {}}
    preloaded = libraries(["libnccl.so.2"], [], {**environ, "LD_PRELOAD": str(second)})
    assert preloaded["libraries"]["libnccl.so.2"] == {"path": str(second), "version": "2.20.0"}


@needs_compiler
def test_the_nvshmem_that_really_loads(tmp_path: Path) -> None:
    code = "void nvshmemx_vendor_get_version_info(int *a, int *b, int *c) { *a = 3, *b = 5, *c = 19; }"
    library = compiled(tmp_path / "libnvshmem_host.so.3", code)
    assert libraries([str(library)], [], ENVIRON)["libraries"][str(library)]["version"] == "3.5.19"


@needs_compiler
def test_a_library_that_prints_or_crashes(tmp_path: Path) -> None:
    """What was loaded before it counts."""
    start = "#include <stdio.h>\n#include <stdlib.h>\n__attribute__((constructor)) void f(void) { %s; }"
    loud = compiled(tmp_path / "libloud.so", start % 'puts("{}")')
    bad = compiled(tmp_path / "libbad.so", start % "abort()")
    found = libraries([str(loud), str(bad), "libc.so.6"], ["/etc/passwd"], ENVIRON)["libraries"]
    assert found[str(loud)] == {"path": str(loud)}
    assert found[str(bad)] == found["libc.so.6"] == {"problem": "the loader was killed by signal 6"}


def test_a_library_that_is_not_there(tmp_path: Path) -> None:
    found = libraries(["libnccl-net-none.so", "libc.so.6"], [str(tmp_path), f"{tmp_path}/x"], ENVIRON)
    assert "libnccl-net-none.so: cannot open shared object file" in found["libraries"]["libnccl-net-none.so"]["problem"]
    assert os.path.exists(found["libraries"]["libc.so.6"]["path"])
    assert found["files"] == {str(tmp_path): True, f"{tmp_path}/x": False}


# Torch


def python_with_torch(tmp_path: Path) -> str:
    """A workload's Python, whose torch cannot be imported: nobody does."""
    metadata = "Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0+cu129\n"
    put(
        tmp_path / "site",
        {"torch/__init__.py": "raise SystemExit(9)", "torch-2.9.0+cu129.dist-info/METADATA": metadata},
    )
    return program(tmp_path / "python", f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} "$@"\n')


def test_the_version_of_torch(tmp_path: Path) -> None:
    assert torch(python_with_torch(tmp_path), ENVIRON, ENVIRON["PATH"]) == {"version": "2.9.0+cu129"}


@needs_compiler
def test_torch_has_an_nccl_of_its_own(tmp_path: Path) -> None:
    own, other = nccl(tmp_path / "site/nvidia/nccl/lib", 22703), nccl(tmp_path / "other", 22809)
    python = python_with_torch(tmp_path)
    run_path = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/nccl/lib"
    library = tmp_path / "site/torch/lib/libtorch_cuda.so"
    compiled(library, "int x;", "-Wl,--no-as-needed", str(own), run_path)
    environ = {**ENVIRON, "LD_LIBRARY_PATH": str(other.parent)}
    found: dict[str, Any] = torch(python, environ, ENVIRON["PATH"])
    assert os.path.samefile(found["nccl"]["path"], own) and found["nccl"]["version"] == "2.27.3"
    assert "lacks" not in found["nccl"]
    assert libraries(["libnccl.so.2"], [], environ)["libraries"]["libnccl.so.2"]["version"] == "2.28.9"
    preloaded = {**environ, "LD_PRELOAD": str(other)}
    assert torch(python, preloaded, ENVIRON["PATH"])["nccl"]["version"] == "2.28.9"
    # As a release of torch that is made for a newer NCCL: Python could not load it.
    calls = "int ncclCommWindowRegister(void); int ncclGetVersion(int *); int (*one)(void) = ncclCommWindowRegister;"
    compiled(library, f"{calls} int (*two)(int *) = ncclGetVersion;", "-Wl,--no-as-needed", str(own), run_path)
    assert torch(python, environ, ENVIRON["PATH"])["nccl"]["lacks"] == ["ncclCommWindowRegister"]
    compiled(library, "int x;")
    assert "is it built in?" in nccl_of(str(library), environ, ENVIRON["PATH"])["problem"]


@needs_compiler
@pytest.mark.parametrize(("preloaded", "version"), [(True, (2, 32, 3)), (False, (2, 28, 9))])
def test_the_nccl_that_a_process_has_loaded(tmp_path: Path, preloaded: bool, version: tuple[int, int, int]) -> None:
    """torch's own number is that of the NCCL with which it was built."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(shipped('entrypoints', 'loaded_nccl.py')).parent)!r})\n"
        "from types import SimpleNamespace as N; from loaded_nccl import loaded_nccl\n"
        "print(loaded_nccl(N(cuda=N(nccl=N(version=lambda: (2, 28, 9))))))"
    )
    environ = {**ENVIRON, "LD_PRELOAD": str(nccl(tmp_path, 23203)) if preloaded else ""}
    assert ask("it", [sys.executable, "-c", code], environ, 10) == ProgramAnswer(f"{version}\n")


def test_a_python_without_torch(tmp_path: Path) -> None:
    python = program(tmp_path / "python", f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    assert torch(python, ENVIRON, ENVIRON["PATH"]) == {}


@pytest.mark.parametrize(
    ("text", "problem"), [("#!/no/interpreter\n", "cannot be started"), ("#!/bin/sh\nexit 4\n", "ended with 4")]
)
def test_a_python_that_does_not_work(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in torch(program(tmp_path / "python", text), ENVIRON, ENVIRON["PATH"])["problem"]


# Programs


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("#!/bin/sh\necho version of $1\n", "mpirun_version_text", "version of --version\n"),
        # On whatever stream, and however it ends: the version is looked for in it by whoever reads it.
        ("#!/bin/sh\necho version of $1 >&2; exit 3\n", "mpirun_version_text", "version of --version\n"),
        ("#!/no/interpreter\n", "mpirun_problem", "failed"),
        ("", "mpirun_problem", "mpirun is not on PATH (/no/such/directory:"),
    ],
)
def test_what_mpirun_says_of_itself(tmp_path: Path, text: str, name: str, said: str) -> None:
    path = {"mpirun": program(tmp_path / "mpirun", text)} if text else {}
    found = mpi(f"/no/such/directory:{tmp_path}")
    assert said in found.pop(name)
    assert found.pop("python").count(".") == 2
    assert found == path


@pytest.mark.parametrize(
    ("text", "version"), [('{"cuda": {"name": "CUDA SDK", "version": "12.9.1"}}', "12.9.1"), ("[]", ""), ("{", "")]
)
def test_the_cuda_toolkit(tmp_path: Path, text: str, version: str) -> None:
    assert cuda_toolkit(put(tmp_path, {"usr/local/cuda/version.json": text})) == version
