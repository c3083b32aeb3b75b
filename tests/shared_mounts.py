"""A directory that several pods share, each through a mount of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.machine.waiting import wait_until

ROOT = Path(__file__).resolve().parents[1]
CACHES = "attr_timeout=10,entry_timeout=10,negative_timeout=10"
"""What NFS and Lustre clients may remember, FUSE remembers for as long."""
LONG_LEASE = "120"
"""No busy machine keeps a pod silent for so long."""


class SharedMounts:
    """Pods, each with a mount and a run directory of its own; all go with the last process of a namespace.

    kind: "fuse", with caches of 10 s in each pod; "bind"; or options of one tmpfs for all.
    """

    def __init__(self, path: Path, pods: int, kind: str = "bind") -> None:
        self.path = path
        self.pods = pods
        self.servers: list[subprocess.Popen[bytes]] = []
        self.namespace = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec cat >/dev/null"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.namespace.stdout is not None and self.namespace.stdout.readline() == b"ready\n"
        self.store = path / "store"
        self.store.mkdir()
        if kind not in ("fuse", "bind"):
            self.mount("-t", "tmpfs", "-o", kind, "none", str(self.store))
        for index in range(pods):
            mount = path / f"pod-{index}"
            mount.mkdir()
            if kind == "fuse":
                self.serve(["bindfs", "-f", "-o", CACHES, str(self.store), str(mount)], mount)
            else:
                self.mount("--bind", str(self.store), str(mount))

    def __enter__(self) -> SharedMounts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server in self.servers:
            server.kill()  # what waits for it goes on
            server.wait()
        self.namespace.communicate()

    # File systems

    def inside(self, path: Path) -> Path:
        """A path inside the namespace, from outside."""
        return Path(f"/proc/{self.namespace.pid}/root{path}")

    def enter(self, *argv: str) -> list[str]:
        return ["nsenter", "--mount", f"--target={self.namespace.pid}", *argv]

    def mount(self, *argv: str) -> None:
        subprocess.run(self.enter("mount", *argv), check=True)

    def serve(self, bindfs: Sequence[str], mount: Path) -> None:
        """Show a directory at another place through a server of its own."""
        if not os.path.exists("/dev/fuse"):
            import pytest  # not there for benchmarks

            pytest.skip("this machine has no /dev/fuse")
        server = subprocess.Popen(self.enter("setpriv", "--pdeathsig", "KILL", *bindfs))
        self.servers.append(server)
        wait_until(lambda: server.poll() is not None or os.path.ismount(self.inside(mount)))
        assert server.poll() is None

    # Pods

    def environment(self, index: int, epoch: str, lease: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "NNODES": str(self.pods),
            "JOB_COMPLETION_INDEX": str(index),
            "HOSTNAME_PREFIX": "job-workload-",
            "DOMAIN_NAME": "job.local",
            "JOB_ID": "job",
            "A4_EPOCH": epoch,
            "A4_SHARED_DIR": str(self.path / f"pod-{index}"),
            "A4_RUN_DIR": str(self.path / f"run-{index}"),
            "A4_LEASE_SECONDS": lease,
        }


def command(pid: int) -> Sequence[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []
