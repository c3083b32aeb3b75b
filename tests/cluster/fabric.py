"""Pods with stand-ins for what a fabric's installers leave: scripts, a library, programs that print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from agent.fabrics.a4_deepep import SCRIPT as DEEPEP_SCRIPT
from agent.fabrics.a4_gib import MARK as GIB
from agent.fabrics.a4_gib import SCRIPT as GIB_SCRIPT

PROGRAMS = Path(__file__).with_name("programs")
GIB_TEXT = b"""\
echo "gIB says hello"
export NCCL_NET=gIB NCCL_CROSS_NIC=0 NCCL_IB_TC=52
export LD_LIBRARY_PATH=/usr/local/gib/lib64:/usr/local/nvidia/lib64
"""
DEEPEP_TEXT = b"""\
export NVSHMEM_HOME=/opt/deepep/nvshmem
export LD_LIBRARY_PATH=$NVSHMEM_HOME/lib:/usr/local/cuda/lib64:$LD_LIBRARY_PATH
export LD_PRELOAD=$NVSHMEM_HOME/lib/libnvshmem_host.so.3
export NVSHMEM_REMOTE_TRANSPORT=ibgda NVSHMEM_IBGDA_NIC_HANDLER=gpu
"""


def library_of_bash() -> tuple[str, bytes]:
    """Name and content of a library that bash needs."""
    listed = subprocess.run(["ldd", "/bin/bash"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(libtinfo\S+) => (\S+)", listed)
    assert found, listed
    return found[1], Path(found[2]).read_bytes()


def gib_files() -> dict[str, bytes]:
    """As the chart's init container leaves them."""
    name, content = library_of_bash()
    return {GIB_SCRIPT: GIB_TEXT, f"{GIB}/lib64/{name}": content, "/job/dump": dump_program()}


def deepep_files() -> dict[str, bytes]:
    _, content = library_of_bash()
    return {
        **gib_files(),
        DEEPEP_SCRIPT: DEEPEP_TEXT,
        "/opt/deepep/nvshmem/lib/libnvshmem_host.so.3": content,
        "/opt/deepep/DeepEP/tests/test_internode.py": b"""\
import os
print(*(f"{name}={os.environ.get(name)}" for name in (
    "RANK", "WORLD_SIZE", "MASTER_PORT", "NVSHMEM_REMOTE_TRANSPORT", "NCCL_SOCKET_IFNAME", "NCCL_IB_TC", "LD_PRELOAD"
)))
""",
    }


def dump_program(python: object = sys.executable) -> bytes:
    return f"#!{python}\n".encode() + (PROGRAMS / "dump_environment.py").read_bytes()
