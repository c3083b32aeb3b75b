"""What this machine has, as far as any machine can tell."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from agent.machine import inventory, resources
from agent.machine.api import Search
from agent.machine.inventory import InventoryPart, gathered


def test_the_holder_of_a_port_is_named() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert inventory.port_holder("127.0.0.1", port) == ""
        server.listen()
        holder = inventory.port_holder("127.0.0.1", port)
        assert holder.startswith(f"process {os.getpid()} (")
        assert os.path.basename(sys.argv[0]) in holder or "python" in holder
        assert inventory.port_holder("127.0.0.2", port) == ""


def test_who_listens_on_all_addresses_holds_the_port_of_each() -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(family) as server:
            server.bind(("", 0))
            server.listen()
            assert str(os.getpid()) in inventory.port_holder("127.0.0.1", server.getsockname()[1])


def test_interfaces_have_addresses_and_the_default_route_comes_first() -> None:
    found = inventory.interfaces()
    assert not [one for one in found if one.address.startswith("127.")]
    assert len({one.name for one in found}) == len(found)
    routes = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    default = [name for name, destination, *_ in routes if destination == "00000000"]
    assert not {one.name for one in found} & {*default} or found[0].name in default
    for one in found:
        socket.inet_aton(one.address)


def test_cores_and_gpus(tmp_path: Path) -> None:
    """GPUs by their device files."""
    assert 1 <= inventory.core_count() <= (os.cpu_count() or 1)
    assert resources.gpu_count() == len([n for n in os.listdir("/dev") if n[:6] == "nvidia" and n[6:].isdigit()])
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / "dev" / name).touch()
    assert resources.gpu_count(str(tmp_path)) == 2


# Parts with a time each


def test_a_part_that_fails_or_hangs_costs_itself_alone() -> None:
    never = threading.Event()

    def hang() -> dict[str, str]:
        never.wait(60)
        return {"hung": "at last"}

    def fail() -> dict[str, str]:
        raise OSError("no such device")

    try:
        found = gathered(
            {
                "hangs": InventoryPart(hang, 0.05),
                "fails": InventoryPart(fail, 10),
                "works": InventoryPart(lambda: {"x": 1, "y": [2]}, 10),
                "too": InventoryPart(lambda: {"z": "3"}, 10),
            }
        )
    finally:
        never.set()
    problems = {"fails": "no such device", "hangs": "not found out within 0.05 s"}
    assert found == {"x": 1, "y": [2], "z": "3", "problems": problems}


def test_a_machine_without_gpus_starts_no_program_for_them(tmp_path: Path) -> None:
    found = inventory.inventory(Search(str(tmp_path)), pytest.fail)
    assert {"kernel", "cpus", "memory", "shm", "limits", "nics", "rdma", "mpirun_problem"} <= set(found)
    assert "problems" not in found
    assert resources.gpu_count() or set(found).isdisjoint({"gpus", "libraries", "torch", "socket"})
    json.dumps(found)


def test_with_a_fabric_libraries_are_looked_for(tmp_path: Path) -> None:
    search = Search(
        os.defpath, {"PATH": os.defpath}, str(tmp_path / "python"), True, ["libc.so.6"], [str(tmp_path)], str(tmp_path)
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        found = inventory.inventory(search, pytest.fail)
    assert os.path.basename(found["libraries"]["libc.so.6"]["path"]) == "libc.so.6"
    assert found["files"] == {str(tmp_path): True}
    assert found["torch"]["problem"].startswith(f"A4_PYTHON={tmp_path}/python is not on PATH")
    assert found["socket"] == {"directory": str(tmp_path), "there": True, "waited": 0.0}
    assert found["gpus"]["files"] == resources.gpu_count()


# The socket of a daemon


def test_a_socket_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    directory = tmp_path / "tcpx"

    def say(text: str) -> None:
        said.append(text)
        directory.mkdir()
        (directory / "no-socket").touch()
        server.bind(str(directory / "socket"))

    with socket.socket(socket.AF_UNIX) as server:
        found = inventory.wait_for_socket(str(directory), say, seconds=60, told=0.1)
    assert found["there"] and found["directory"] == str(directory)
    assert said == [f"waiting for a socket in {directory}, 60 s at the most"]


def test_a_socket_that_never_comes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = inventory.wait_for_socket(str(tmp_path), pytest.fail, seconds=0.1)
    assert found["there"] is False and found["waited"] >= 0.1
