"""The steps of the images under stub compilers: what they leave, and that they end when any of their programs fails."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from agent.fabrics.profiles import Profile, parse
from tests.workbench.local.helpers import needs_root

ROOT = Path(__file__).resolve().parents[2]
STEPS = ROOT / "docker/steps"
PROFILE = ROOT / "env/a4-deepep.env"
SECONDS = 120

pytestmark = needs_root

STUB = """#!/bin/sh
# Stands for every program of a step: counts the call, fails if it is the one that shall, else does what the test says
# of this program, or what the real one does.
name=${0##*/}
read -r count </tmp/log/count
count=$((count + 1))
echo "$count" >/tmp/log/count
printf '%s\\0' "$name $*" >>/tmp/log/calls
[ "$count" != "$FAILS" ] || exit 3
[ ! -e "/tmp/effects/$name" ] || { . "/tmp/effects/$name"; exit; }
for place in /usr/bin /usr/sbin; do [ ! -x "$place/$name" ] || exec "$place/$name" "$@"; done
"""
SANDBOX = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --bind "$2" "$1/root/tmp"
mount --bind /dev "$1/root/dev"
root=$1/root
shift 2
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""
AS_THEY_ARE = (
    "cat",
    "chmod",
    "cp",
    "date",
    "dirname",
    "find",
    "grep",
    "ln",
    "ls",
    "mkdir",
    "mktemp",
    "mv",
    "readlink",
    "rm",
    "sed",
    "touch",
)
NOTHING_BUT_COUNTED = dict.fromkeys(
    ("a4-agent", "apt-get", "cmake", "curl", "git", "ldd", "make", "python", "python3"), ""
)
ALWAYS = {"awk": "echo 4", "nproc": "echo 8", "mpirun": "echo 'mpirun (Open MPI) 4.1.4'"}


class Step(NamedTuple):
    """How a step is called, what its programs do, and which of its calls may fail."""

    arguments: Sequence[str] = ()
    effects: Mapping[str, str] = {}
    """Program → shell text in its place."""
    may_fail: str = "$^"
    """Calls, as a pattern, that are questions: both answers are good."""
    before: str = ":"
    """Shell text that makes what the step finds."""


ENVIRONMENT = """
[ "$*" != "-m venv /opt/a4-agent" ] || { /bin/mkdir -p /opt/a4-agent/bin
    for name in python a4-agent; do /bin/ln -s /tmp/stubs/stub "/opt/a4-agent/bin/$name"; done; }
"""
TESTS = "all_reduce all_gather reduce_scatter alltoall sendrecv"
NVSHMEM = "lib/libnvshmem_host.so.3 lib/libnvshmem_device.a lib/nvshmem_transport_ibgda.so.3 include/nvshmem.h"
LDD = "echo ' libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x1)\n libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x2)'"
CASES = {
    "agent": Step(
        ["/tmp/source", "/tmp/constraints.txt"],
        {"python3": ENVIRONMENT, "python": "echo 'Open MPI v4.1.4, package: Debian'"},
        may_fail="python3 -c import ensurepip",
    ),
    "deepep": Step(
        ["8a07e7e", "10.0", "/opt/nvshmem", "/opt/DeepEP"],
        {
            "git": '[ "$1" != clone ] || { /bin/mkdir -p /opt/DeepEP/tests; : >/opt/DeepEP/tests/test_internode.py; }',
            "python3": ": >deep_ep_cpp.cpython-312-x86_64-linux-gnu.so",
        },
    ),
    "deepep-env": Step(["/tmp/a4-deepep.env", "/opt/nvshmem", "/opt/DeepEP", "/opt/unified-env.sh"]),
    "give-agent": Step(
        ["/tmp/volume"],
        {
            "python": "echo /opt/standard",
            "patchelf": "echo /lib64/ld-linux-x86-64.so.2",
            "getconf": "echo glibc 2.36",
            "ldd": LDD,
        },
        before="mkdir -p /opt/a4-agent/bin /opt/a4-agent/lib /opt/standard /tmp/volume; touch /opt/standard/os.py;"
        "echo home = /usr/bin >/opt/a4-agent/pyvenv.cfg; ln -s /tmp/stubs/stub /opt/a4-agent/bin/python",
    ),
    "google-packages": Step(effects={"curl": 'while [ "$1" != --output ]; do shift; done; echo key >"$2"'}),
    "nccl-tests": Step(
        ["a0b82b2", "90 100", "/opt/tests"],
        {
            "make": f"/bin/mkdir -p /opt/tests/build; for name in {TESTS}; do : >/opt/tests/build/$name; done",
            "ldd": "echo 'libmpi.so.40 => /opt/mpi/lib/libmpi.so.40'",
        },
    ),
    "nvshmem": Step(
        ["v3.5.19-1", "100", "/opt/nvshmem"],
        {
            "cmake": '[ "$1" != --install ] || { /bin/mkdir -p /opt/nvshmem/lib /opt/nvshmem/include; cd /opt/nvshmem;'
            f" for file in {NVSHMEM}; do : >$file; done; }}"
        },
    ),
    "packages": Step(["tini"]),
    "pai-packages": Step(
        ["/tmp/versions.py", "EXTENSIONS"],
        {
            "python3": 'case "$*" in *runpy*) echo triton==3.5.1 ;; *check-packages*) echo {} ;;'
            " *) echo 2.9 12.9 ;; esac"
        },
    ),
    "programs": Step(
        effects={"python3": "echo 1"},
        before="rm -f /usr/bin/tini; mkdir -p /etc/ssh /etc/rc2.d /etc/systemd/system/multi-user.target.wants;"
        "touch /etc/ssh/ssh_host_ed25519_key /etc/ssh/ssh_host_ed25519_key.pub; ln -sf x /etc/rc2.d/S01ssh;"
        "ln -sf x /etc/systemd/system/multi-user.target.wants/ssh.service",
    ),
    "python-packages": Step(["/tmp/a.txt", "/tmp/b.txt"], {"python3": "echo 2.9 12.9"}),
    "python-state": Step(effects={"python3": "echo 1"}),
    "shells": Step(
        before="mkdir -p /opt/a4-agent/bin;"
        "for name in python a4-agent; do ln -s /tmp/stubs/stub /opt/a4-agent/bin/$name; done"
    ),
    "torch-nccl": Step(["2.19.4"]),
}


class Ran(NamedTuple):
    code: int
    output: str
    errors: str
    calls: list[str]


def run(name: str, place: Path, fails: int = 0, then: str = ":", effects: Mapping[str, str] | None = None) -> Ran:
    """A step on a copy of this machine's files, and then a shell line. Its `fails`th call of a program fails."""
    step, shared, point = CASES[name], place / "shared", place / "point"
    shutil.rmtree(shared, ignore_errors=True)
    point.mkdir(exist_ok=True)
    shutil.copytree(STEPS, shared / "steps")
    for kind in ("stubs", "effects", "log"):
        (shared / kind).mkdir()
    shutil.copy(PROFILE, shared)
    stub = shared / "stubs/stub"
    stub.write_text(STUB)
    stub.chmod(0o755)
    (shared / "log/count").write_text("0\n")
    instead = {**NOTHING_BUT_COUNTED, **ALWAYS, **step.effects, **(effects or {})}
    for program, text in instead.items():
        (shared / "effects" / program).write_text(text)
    for program in (*AS_THEY_ARE, *instead):
        (shared / "stubs" / program).symlink_to("stub")
    line = f'{step.before}; PATH=/tmp/stubs FAILS={fails} /tmp/steps/{name}.sh "$@" && {{ {then}; }}'
    sandbox = ["unshare", "--mount", "sh", "-c", SANDBOX, "sh", str(point), str(shared)]
    done = subprocess.run(
        [*sandbox, "sh", "-c", line, "sh", *step.arguments], capture_output=True, text=True, timeout=SECONDS
    )
    calls = shared / "log/calls"
    return Ran(done.returncode, done.stdout, done.stderr, calls.read_text().split("\0")[:-1] if calls.exists() else [])


def test_every_step_is_here() -> None:
    assert {path.stem for path in STEPS.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_step_fails_with_each_of_its_programs(name: str, tmp_path: Path) -> None:
    whole = run(name, tmp_path)
    assert whole.code == 0, whole
    assert whole.calls
    for number, call in enumerate(whole.calls, 1):
        ended = run(name, tmp_path, fails=number)
        may_fail = re.match(CASES[name].may_fail, call)
        assert (ended.code == 0) == bool(may_fail), f"{call!r} has failed, and the step has ended with {ended}"


@pytest.mark.parametrize(
    ("name", "effects", "message"),
    [
        (
            "agent",
            {"mpirun": "echo 'mpirun (Open MPI) 5.0.3'"},
            "mpirun is Open MPI 5.0.3, and mpi4py has loaded Open MPI v4",
        ),
        ("programs", {"python3": "/bin/cat /tmp/log/count"}, "apt has changed the image's own Python"),
        ("python-packages", {"python3": "/bin/cat /tmp/log/count"}, "brings a torch without NVIDIA's changes"),
        ("nccl-tests", {"ldd": "echo libc.so.6"}, ""),
        ("nvshmem", {"cmake": ":"}, ""),
        ("deepep", {"python3": ":"}, "deep_ep_cpp"),
        ("pai-packages", {"python3": "echo triton 3.6.0"}, "installed is other than"),
        ("torch-nccl", {"python3": "echo 2.27.3"}, "torch is made for NCCL 2.27.3, and the fabric brings 2.19.4"),
        ("give-agent", {"ldd": "echo statically linked"}, ""),
    ],
)
def test_a_step_looks_at_what_it_has_made(name: str, effects: dict[str, str], message: str, tmp_path: Path) -> None:
    ended = run(name, tmp_path, effects=effects)
    assert ended.code != 0
    assert message in ended.errors


def test_no_key_stays_and_no_sshd_starts(tmp_path: Path) -> None:
    ended = run("programs", tmp_path, then="find /etc/ssh /etc/rc2.d /etc/systemd/system -name '*ssh*'")
    found = set(ended.output.split())
    assert "/etc/ssh/sshd_not_to_be_run" in found
    assert not {path for path in found if "ssh_host" in path or path.endswith(("S01ssh", ".service", ".socket"))}


def test_deepep_gets_the_profiles_values(tmp_path: Path) -> None:
    ended = run("deepep-env", tmp_path, then="LD_PRELOAD=/own.so; PYTHONPATH=/own; . /opt/unified-env.sh; env")
    found = dict(line.split("=", 1) for line in ended.output.splitlines())
    wanted = parse(Profile("a4-deepep", ""), PROFILE.read_text()).values
    names = [name for name in wanted if name.startswith(("NVSHMEM_", "DEEP_EP_"))]
    assert len(names) == 8
    assert {name: found[name] for name in names} == {name: wanted[name] for name in names}
    assert found["LD_PRELOAD"] == "/opt/nvshmem/lib/libnvshmem_host.so.3:/own.so"
    assert found["PYTHONPATH"] == "/opt/DeepEP:/own"
    assert found["LD_LIBRARY_PATH"] == "/opt/nvshmem/lib:/usr/local/cuda/lib64"
