"""What is in the image, and what is not."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.images import BASE, CERTIFICATES, CGROUP, CPU, SITES, WITHOUT_AGENT, Host, mounted, podman

RUN = ("run", "--rm", "--runtime", "runc", "--cgroup-parent", CGROUP, "--network", "none")
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")


@pytest.fixture(scope="module")
def files(host: Host) -> Iterator[Path]:
    with mounted(CPU) as place:
        yield place


def in_container(*command: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A command as the image itself starts it."""
    argv = ["podman", "--cgroup-manager", "cgroupfs", *RUN, *LIMITS, *options, CPU, *command]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300)


def pythons(place: Path) -> dict[str, str]:
    """Checksum of every file that the image's own Python can import."""
    found = {}
    for home in ("usr/lib/python3", "usr/lib/python3.11", "usr/local/lib"):
        for path in (place / home).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found[str(path.relative_to(place))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_the_images_own_python_is_as_it_was(files: Path) -> None:
    with mounted(WITHOUT_AGENT) as before:
        assert pythons(before) == pythons(files)
    assert len(pythons(files)) > 500


def test_no_key_is_inside(files: Path) -> None:
    assert not list((files / "etc/ssh").glob("ssh_host_*"))
    assert not (files / "root/.ssh").exists()
    places = [files / name for name in ("etc", "root", "home", "usr/local", "workspace")]
    found = subprocess.run(["grep", "-rlE", "BEGIN [A-Z ]*PRIVATE KEY", *places], capture_output=True, text=True)
    assert found.stdout == ""


def test_sshd_is_not_enabled(files: Path) -> None:
    links = [*files.glob("etc/rc?.d/S*ssh"), *files.glob("etc/systemd/system/**/ssh*")]
    assert links == []
    assert (files / "etc/ssh/sshd_not_to_be_run").exists()
    assert (files / "usr/sbin/sshd").exists()


def test_nothing_of_this_machine_is_inside(host: Host) -> None:
    """Not in the last layer, nor in one below it, nor in what the image says of how it was made."""
    about = json.loads(podman("image", "inspect", CPU))[0]
    data = about["GraphDriver"]["Data"]
    layers = [data["UpperDir"], *data.get("LowerDir", "").split(":")]
    found = subprocess.run(["grep", "-rlF", host.marker, *filter(None, layers)], capture_output=True, text=True)
    assert found.stdout == ""
    assert host.marker not in json.dumps(about)
    assert not [word for word in about["Config"]["Env"] if re.match(r"(?i)(pip_|\w+_proxy)", word)]
    with mounted(BASE) as before, mounted(CPU) as after:
        for name in (CERTIFICATES, SITES):
            assert (before / name[1:]).read_bytes() == (after / name[1:]).read_bytes()
        assert list((after / "mnt").iterdir()) == []


def test_the_agent_is_compiled_and_alone(files: Path) -> None:
    shown = in_container("/opt/a4-agent/bin/python", "-v", "-c", "import agent.commands, paramiko, dns.resolver")
    assert shown.returncode == 0, shown.stderr[-2000:]
    loaded = re.findall(r"# code object from '?(/opt/a4-agent[^']*)", shown.stderr)
    assert len(loaded) > 20
    assert [path for path in loaded if not path.endswith(".pyc")] == []
    assert not list((files / "opt/a4-agent/lib").glob("python3*/site-packages/pip"))


def test_mpi4py_loads_the_images_own_open_mpi() -> None:
    code = "from mpi4py import MPI; print(open('/proc/self/maps').read())"
    shown = in_container("/opt/a4-agent/bin/python", "-c", code)
    assert shown.returncode == 0, shown.stderr
    assert set(re.findall(r"/\S*libmpi\.so\S*", shown.stdout)) == {"/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4"}


def test_shells_have_the_command_its_completion_and_the_hook(files: Path) -> None:
    assert os.readlink(files / "usr/local/bin/a4-agent") == "/opt/a4-agent/bin/a4-agent"
    assert "a4-agent" in (files / "usr/share/bash-completion/completions/a4-agent").read_text()
    for name in ("etc/bash.bashrc", "etc/profile.d/a4-agent.sh"):
        assert "/run/a4-agent/env.sh" in (files / name).read_text()
    script = "mkdir /run/a4-agent; echo 'export FROM_THE_AGENT=1' >/run/a4-agent/env.sh; bash -ic env; bash -lc env"
    assert in_container("sh", "-c", script).stdout.count("FROM_THE_AGENT=1") == 2


def test_the_images_own_entrypoint_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "nvidia_entrypoint.sh"
    own.write_text('#!/bin/sh\necho "the image\'s own: $*"\nexport OWN=1\nexec "$@"\n')
    own.chmod(0o755)
    over = ("--volume", f"{own}:/opt/nvidia/nvidia_entrypoint.sh")
    shown = in_container("sh", "-c", "echo $OWN; cat /proc/1/comm", options=over)
    assert shown.stdout.splitlines() == ["the image's own: sh -c echo $OWN; cat /proc/1/comm", "1", "tini"]


def test_outside_a_pod_it_says_so() -> None:
    shown = in_container()
    assert shown.returncode == 78
    assert "this does not look like a pod of a JobSet" in shown.stderr
