"""What this pod has: what the plan needs at once, and the inventory, which takes its time; who holds a port."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agent.machine import versions
from agent.machine.api import Interface, Search
from agent.machine.cgroup_limits import cpu_quota
from agent.machine.nics import nics, rdma
from agent.machine.resources import gpu_count, gpus, resources

SOCKET_SECONDS = 60.0
_SIOCGIFADDR = 0x8915


def interfaces() -> list[Interface]:
    """Interfaces with an IPv4 address, loopback left out, that of the default route first."""
    default = _default_interface()
    found = []
    for _, name in socket.if_nameindex():
        address = _address(name)
        if address and not address.startswith("127."):
            found.append(Interface(name, address))
    return sorted(found, key=lambda interface: interface.name != default)


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
    # struct ifreq: 16 bytes of name, then a sockaddr_in: family and port, two bytes each, and the address.
    return socket.inet_ntoa(data[20:24])


def core_count() -> int:
    """Cores that this pod may use: those it may run on, or its cgroup's share, whichever is less."""
    allowed = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def inventory(search: Search, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything that the plan does not need; docs/files.md lists it. Blocks for 65 s at most.

    `say` gets what it waits for when that takes long. Each part has a thread and a time of its own: one that hangs or
    fails costs nothing but itself, and `problems` says why it is missing.
    """
    addresses = {interface.name: interface.address for interface in interfaces()}
    parts = {
        "resources": InventoryPart(resources, 5.0),
        "nics": InventoryPart(lambda: {"nics": nics(addresses), "rdma": rdma()}, 10.0),
        "mpi": InventoryPart(lambda: versions.mpi(search.path), 25.0),
    }
    # The other parts start programs, which are dear where 64 pods share a few cores and there is nothing to find.
    if search.fabric or gpu_count():
        parts |= _parts_of_gpus(search)
    if search.socket_dir:
        parts["socket"] = InventoryPart(
            lambda: {"socket": wait_for_socket(search.socket_dir, say)}, SOCKET_SECONDS + 5.0
        )
    return gathered(parts)


def _parts_of_gpus(search: Search) -> dict[str, InventoryPart]:
    python, path, environ = search.python, search.path, search.environ
    return {
        "gpus": InventoryPart(lambda: {"gpus": gpus(environ), "cuda": versions.cuda_toolkit()}, 30.0),
        "libraries": InventoryPart(lambda: versions.libraries(search.libraries, search.files, environ), 30.0),
        "torch": InventoryPart(lambda: {"torch": versions.torch(python, environ, path)}, 65.0),
    }


class InventoryPart(NamedTuple):
    """Some of the inventory: who finds it, and how long that may take."""

    look: Callable[[], Mapping[str, Any]]
    seconds: float


def gathered(parts: Mapping[str, InventoryPart]) -> dict[str, Any]:
    """What all parts find, side by side; `problems`, by part, is there when some found nothing."""
    started = time.monotonic()
    seen: dict[str, tuple[Mapping[str, Any], str]] = {}

    def look(name: str, part: InventoryPart) -> None:
        try:
            seen[name] = part.look(), ""
        except Exception as error:  # a machine has more ways to be strange than can be foreseen
            seen[name] = {}, _in_words(error)

    threads = {name: threading.Thread(target=look, args=(name, part), daemon=True) for name, part in parts.items()}
    for thread in threads.values():
        thread.start()
    at_deadline = {}
    for name, thread in threads.items():
        thread.join(max(0.0, started + parts[name].seconds - time.monotonic()))
        at_deadline[name] = seen.get(name, ({}, f"not found out within {parts[name].seconds:g} s"))
    found = {key: value for values, _ in at_deadline.values() for key, value in values.items()}
    problems = {name: why for name, (_, why) in at_deadline.items() if why}
    return {**found, **({"problems": problems} if problems else {})}


def _in_words(error: Exception) -> str:
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    return ": ".join(filter(None, (error.filename, error.strerror))) or str(error)


def wait_for_socket(
    directory: str, say: Callable[[str], None], seconds: float = SOCKET_SECONDS, told: float = 10.0
) -> dict[str, Any]:
    """Is there a Unix socket in `directory`? A sidecar that starts beside this container may make it yet."""
    started = time.monotonic()
    said = False
    while not (there := _has_socket(directory)) and (age := time.monotonic() - started) < seconds:
        if age >= told and not said:
            said = True
            say(f"waiting for a socket in {directory}, {seconds:g} s at the most")
        time.sleep(min(0.5, seconds - age))
    return {"directory": directory, "there": there, "waited": round(time.monotonic() - started, 1)}


def _has_socket(directory: str) -> bool:
    try:
        with os.scandir(directory) as entries:
            return any(stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode) for entry in entries)
    except OSError:
        return False  # it is not there yet, or somebody has just taken the file away


def port_holder(address: str, port: int) -> str:
    """The program that listens on `address` (or on all) at `port`, in words; empty when none does."""
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
