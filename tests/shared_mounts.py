"""A directory that several pods share, each through a mount of its own, and `a4-agent sync` in those pods."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 100.0
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
        self._started: list[subprocess.Popen[str]] = []
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
        self.life = self._begin()
        """Stands for what the pods live as long as."""

    def __enter__(self) -> SharedMounts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.life.communicate()
        for server in self.servers:
            server.kill()  # what waits for it goes on
            server.wait()
        for process in self._started:
            process.kill()
            process.communicate()
        self.namespace.communicate()

    def restart(self) -> None:
        """All pods end, and start again."""
        self.life.communicate()
        until(lambda: not any(self._beating(index) for index in range(self.pods)))
        self.life = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

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
        until(lambda: server.poll() is not None or os.path.ismount(self.inside(mount)))
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

    def start(
        self,
        index: int,
        *words: str,
        epoch: str = "e",
        lease: str = LONG_LEASE,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """`a4-agent sync` with these words in a pod."""
        if words[0] in ("set", "wait", "fail") and "--while" not in words:
            words = (*words, "--while", str(self.life.pid))
        process = subprocess.Popen(
            self.enter(sys.executable, "-m", "agent", "sync", *words),
            env={**self.environment(index, epoch, lease), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def sync(
        self, index: int, *words: str, epoch: str = "e", lease: str = LONG_LEASE, env: Mapping[str, str] | None = None
    ) -> tuple[int, str, str]:
        """The same, to its end."""
        return ended(self.start(index, *words, epoch=epoch, lease=lease, env=env))

    def beats_of(self, index: int) -> int:
        """The process that beats for a pod."""
        (pid,) = self._beating(index)
        return pid

    def _beating(self, index: int) -> list[int]:
        pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit()]
        return [pid for pid in pids if {"beat", str(self.path / f"pod-{index}")} <= set(command(pid))]

    def job(self, epoch: str = "e") -> Path:
        """The directory of the job in the store."""
        return self.inside(self.store) / ".a4-agent" / "jobs" / epoch

    def facts(self, epoch: str = "e") -> Path:
        """The one directory of facts of the job."""
        (found,) = (path for path in self.job(epoch).iterdir() if path.is_dir())
        return found


def command(pid: int) -> Sequence[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
