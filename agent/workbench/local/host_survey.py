"""What building a local cluster needs to know of this machine, found out by the client."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import sys
import time
import uuid
from pathlib import Path

from agent import paths
from agent.errors import MissingProgram, SystemFault
from agent.machine import files, process
from agent.mounts import parse_mounts
from agent.paths import agent_command, package_home
from agent.workbench.local.dealt_gpus import check_room, driver_mounts, find_gpus, gpu_variables
from agent.workbench.local.podenv import ClusterBuild, Surroundings
from agent.workbench.local.spec import ClusterSpec

_PACKAGES = {"dnsmasq": "dnsmasq-base", "tini": "tini", "tc": "iproute2", "nsenter": "util-linux"}
_SYSTEM = ("/", "/usr", "/usr/local")
_OLDEST_KERNEL = (5, 8)
_DISKS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs")
_OWN = ("/proc", "/sys", "/dev", "/run", "/tmp", "/mnt")


def check_machine() -> None:
    """Raise SystemFault where no local cluster can be built at all."""
    if platform.system() != "Linux":
        raise SystemFault("a local cluster needs Linux")
    if os.geteuid() != 0:
        raise SystemFault("a local cluster needs root: it makes namespaces and mounts", "try sudo")
    release = platform.release()
    version = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    if version < _OLDEST_KERNEL:
        raise SystemFault(f"a local cluster needs Linux 5.8 or newer, this is {release}")


def find_program(name: str) -> str:
    """Path of a program; MissingProgram names the Debian package."""
    found = process.find_program(name, os.environ.get("PATH", os.defpath))
    if found is None:
        raise MissingProgram(
            f"the local cluster needs the program {name}", f"on Debian: apt-get install {_PACKAGES[name]}"
        )
    return found


@functools.lru_cache(maxsize=1)
def compile_package() -> None:
    """Byte-compile the package once here: pods see it read-only, each would compile it for itself."""
    if not sys.dont_write_bytecode:
        import compileall

        compileall.compile_dir(str(Path(paths.__file__).parent), quiet=2)


def installation() -> list[str]:
    """The directories that pods need to run the agent and would not see, or could change, otherwise."""
    wanted = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, package_home())}
    kept: list[str] = []
    for path in sorted(wanted):
        is_covered = any(path == one or path.startswith(one.rstrip("/") + "/") for one in kept)
        if not is_covered and (path not in _SYSTEM or os.stat(path).st_dev != os.stat("/").st_dev):
            kept.append(path)
    return kept


def file_systems() -> list[str]:
    """Mount points of this machine's further disks: a /usr or /home of its own, a container's volumes."""
    return [path for path, kind in _mounts().items() if kind in _DISKS and os.path.isdir(path)]


def _mounts() -> dict[str, str]:
    """Mount point → kind of file system, sorted, without the root and what pods have of their own."""
    found = {mount.point: mount.kind for mount in parse_mounts(files.read("/proc/self/mountinfo") or "")}
    replaced = {path for path in found for own in _OWN if f"{path}/".startswith(f"{own}/")}
    return {path: found[path] for path in sorted(found) if path not in ("/", *replaced)}


def entrypoint(spec: ClusterSpec) -> list[str]:
    """The command line of PID 1 in every pod."""
    if spec.entrypoint:
        return list(spec.entrypoint)
    return [find_program("tini"), "--", *agent_command(sys.executable, "run", *spec.arguments)]


def survey(spec: ClusterSpec) -> Surroundings:
    """What the supervisor has to know."""
    check_machine()
    gpus = find_gpus()
    check_room(spec, gpus)
    overlaid = file_systems()
    driver = [path for path in driver_mounts(_mounts()) if path not in overlaid] if spec.real_gpus else []
    compile_package()
    return Surroundings(
        dnsmasq=find_program("dnsmasq"),
        entrypoint=entrypoint(spec),
        file_systems=overlaid,
        installation=[*installation(), *driver],
        command=f'#!/bin/sh\nexec {shlex.join(agent_command(sys.executable))} "$@"\n',
        job=ClusterBuild(
            uid=str(uuid.uuid4()),
            stamp=time.strftime("%Y%m%d-%H%M%S"),
            path=os.environ.get("PATH", os.defpath),
            gpu_variables=gpu_variables(os.environ),
        ),
        gpus=gpus,
    )
