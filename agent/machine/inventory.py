"""What this pod has: network interfaces, GPUs, cores, programs; who holds a port."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
import sys

from agent.machine.api import Interface
from agent.machine.process import find_program, run_briefly

_SIOCGIFADDR = 0x8915


def interfaces() -> list[Interface]:
    """Interfaces with an IPv4 address, loopback left out, that of the default route first."""
    default = _default_interface()
    found = []
    for _, name in socket.if_nameindex():
        address = _address(name)
        if address and not address.startswith("127."):
            found.append(Interface(name, address, name == default))
    return sorted(found, key=lambda interface: not interface.default_route)


def _default_interface() -> str:
    """The interface of the default route with the least metric; empty without one."""
    routes = []
    with open("/proc/net/route", encoding="ascii") as file:
        for line in file.read().splitlines()[1:]:
            name, destination, _, _, _, _, metric, mask, *_ = line.split()
            if destination == mask == "00000000":
                routes.append((int(metric), name))
    return min(routes)[1] if routes else ""


def _address(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            data = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()))
        except OSError:
            return ""  # an interface without an IPv4 address
    return socket.inet_ntoa(data[20:24])


def gpu_count() -> int:
    """NVIDIA devices that this pod can open."""
    return sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in os.listdir("/dev"))


def core_count() -> int:
    """Cores that this pod may use: those it may run on, or its cgroup's share, whichever is less."""
    allowed = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, int(quota) // int(period)))


def inventory(path: str) -> dict[str, str]:
    """Versions and the like that the plan does not need; programs are looked for on the search path `path`.

    `python`: the agent's own; `mpirun`: its path, if there is one; `mpirun_version_text`: what it says of itself,
    or `mpirun_problem`: why it does not.
    """
    found = {"python": "{}.{}.{}".format(*sys.version_info)}
    program = find_program("mpirun", path)
    if program is None:
        return {**found, "mpirun_problem": f"mpirun is not on PATH ({path})"}
    found["mpirun"] = program
    try:
        found["mpirun_version_text"] = run_briefly([program, "--version"])
    except (OSError, TimeoutError) as error:
        found["mpirun_problem"] = f"{program} --version failed: {error}"
    return found


def port_holder(address: str, port: int) -> str:
    """Who listens on `address` (or on all addresses) at `port`, in words; empty when nobody does."""
    import psutil

    for connection in psutil.net_connections(kind="inet"):
        local = connection.laddr
        if connection.status != psutil.CONN_LISTEN or not local or local.port != port:
            continue
        if local.ip not in (address, "0.0.0.0", "::", f"::ffff:{address}"):
            continue
        if connection.pid is None:
            return "a process outside this pod (another job on this node? hostNetwork shares its ports)"
        try:
            command = " ".join(psutil.Process(connection.pid).cmdline())[:120]
        except psutil.Error:
            command = "unknown program"
        return f"process {connection.pid} ({command})"
    return ""
