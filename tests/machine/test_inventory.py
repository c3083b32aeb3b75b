"""What this machine has, as far as any machine can tell."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from agent.machine import inventory


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
    assert [one.default_route for one in found] == sorted((one.default_route for one in found), reverse=True)
    assert sum(one.default_route for one in found) <= 1
    for one in found:
        socket.inet_aton(one.address)


def test_cores_and_gpus() -> None:
    assert 1 <= inventory.core_count() <= (os.cpu_count() or 1)
    assert inventory.gpu_count() == len([n for n in os.listdir("/dev") if n[:6] == "nvidia" and n[6:].isdigit()])


def test_what_mpirun_says_of_itself(tmp_path: Path) -> None:
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\necho version of $1\n")
    program.chmod(0o755)
    found = inventory.inventory(f"/no/such/directory:{tmp_path}")
    assert found["mpirun"] == str(program)
    assert found["mpirun_version_text"] == "version of --version\n"
    assert "mpirun_problem" not in found
    assert found["python"].count(".") == 2


def test_why_there_is_no_version_of_mpirun(tmp_path: Path) -> None:
    program = tmp_path / "mpirun"
    program.write_text("#!/no/interpreter\n")
    program.chmod(0o755)
    found = inventory.inventory(str(tmp_path))
    assert found["mpirun"] == str(program)
    assert "failed" in found["mpirun_problem"] and "mpirun_version_text" not in found


def test_no_mpirun(tmp_path: Path) -> None:
    found = inventory.inventory(str(tmp_path))
    assert "mpirun" not in found
    assert found["mpirun_problem"] == f"mpirun is not on PATH ({tmp_path})"
