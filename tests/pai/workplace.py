"""Clusters for the pipelines: with a workspace that outlives each of them, and the stand-ins that they fetch."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from agent.workbench.local.client import LocalCluster
from agent.workbench.local.spec import BRIDGE_ADDRESS
from agent.workbench.local.syscalls import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
    setns,
    unshare,
)
from tests.cluster.conftest import Trial
from tests.pai import stand_in
from tests.pai.hub import serving
from tests.workbench.local.helpers import cluster_of, eventually

WORKSPACE = "/mnt"
Result = TypeVar("Result")
TOKEN = "hf_canary_of_the_pipelines"


class Workplace:
    """A workspace and what is fetched into it."""

    def __init__(self, path: Path) -> None:
        self.hub, self.commit, self.newer = stand_in.hub(path)
        self.hub.token = TOKEN
        self.git = path / "git"
        self.job = f"pipeline-{secrets.token_hex(4)}"
        self.inside = path / "workspace"
        """What the workspace is called for what `do` does."""
        self.inside.mkdir()
        self._thread = ThreadPoolExecutor(1)
        """Has a mount namespace of its own, in which the workspace is, for itself and what it starts."""
        number = self._thread.submit(self._mount).result()
        self.path = Path(f"/proc/self/task/{number}/root{self.inside}")
        self.steering = Steering(self.path)

    def _mount(self) -> int:
        """The pipelines ask for the space that real models need; no more memory is used than is written."""
        unshare(CLONE_NEWNS)
        mount("", "/", flags=MS_PRIVATE | MS_REC)
        mount("none", str(self.inside), "tmpfs", data="size=2T")
        return threading.get_native_id()

    def __enter__(self) -> Workplace:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def do(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call it where the workspace is mounted."""
        return self._thread.submit(function, *arguments).result()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        self._remount(MS_RDONLY)
        try:
            yield
        finally:
            self._remount()

    @contextmanager
    def full(self, spare: int = 0) -> Iterator[None]:
        """What is there has room, and so many bytes more."""
        seen = os.statvfs(self.path)
        while not self._holds_no_more_than((seen.f_blocks - seen.f_bfree) * seen.f_frsize + spare):
            seen = os.statvfs(self.path)  # somebody has written something since
        try:
            yield
        finally:
            self._remount(size=seen.f_blocks * seen.f_frsize)

    def _holds_no_more_than(self, size: int) -> bool:
        """False: it holds more already, which the kernel refuses to take away."""
        try:
            self._remount(size=size)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        return True

    def _remount(self, flags: int = 0, size: int = 0) -> None:
        self.do(mount, "none", str(self.inside), "", MS_REMOUNT | flags, f"size={size}" if size else "")

    def env(self, **more: str) -> dict[str, str]:
        """What pods need to find it all. There is no image whose packages could be looked at."""
        return {
            "A4_REPORT": "false",
            "A4_PYTHON": f"{stand_in.BIN}/python",
            "A4_DOWNLOADERS_DIR": stand_in.DOWNLOADERS,
            "A4_PAI_REPOSITORY": f"{stand_in.ADDRESS}/git/Pai-Megatron-Patch.git",
            "A4_PAI_COMMIT": self.commit,
            "A4_DATASET_URL": f"{stand_in.ADDRESS}/files/{stand_in.DATASETS}",
            "HF_ENDPOINT": stand_in.ADDRESS,
            "HF_TOKEN": TOKEN,
            "PAI_WORKSPACE_ROOT": WORKSPACE,
            "SKIP_ENV_SETUP": "true",
            **more,
        }

    @contextmanager
    def cluster(
        self, *arguments: str, pods: int = 2, attempt: int = 0, env: Mapping[str, str] | None = None, **more: Any
    ) -> Iterator[Trial]:
        """One attempt of the job."""
        epoch = {"A4_JOBSET_UID": "00000000-0000-0000-0000-000000000000", "A4_RESTART_ATTEMPT": str(attempt)}
        cluster = cluster_of(
            pods,
            (),
            name=self.job,
            arguments=arguments,
            env={**self.env(**epoch), **(env or {})},
            files={**stand_in.PROGRAMS, **more.pop("files", {})},
            directories={WORKSPACE: str(self.inside)},
            **more,
        )
        with cluster, ExitStack() as stack:
            self.do(cluster.build)
            stack.enter_context(serving(self.hub, listening_in(cluster)))
            cluster.start_pods()
            trial = Trial(cluster)
            yield trial
            trial.expect_events()


class Steering:
    """Tells the stand-in what to do, by the files that repository/megatron_lm/megatron/habits.py looks for."""

    def __init__(self, workspace: Path) -> None:
        self._place = workspace / "stand-in"
        for kind in ("habits", "hold", "reached"):
            (self._place / kind).mkdir(parents=True)

    def habit(self, name: str) -> None:
        (self._place / "habits" / name).touch()

    def better(self) -> None:
        """No bad habits any more."""
        for path in (self._place / "habits").iterdir():
            path.unlink()

    def hold(self, point: str) -> None:
        (self._place / "hold" / point).touch()

    def release(self, point: str) -> None:
        (self._place / "hold" / point).unlink()

    def until_reached(self, point: str, nodes: int = 1) -> None:
        """Wait until as many nodes are there as shall come."""
        reached = self._place / "reached"
        eventually(lambda: len(list(reached.glob(f"{point}.*"))) >= nodes, point)


def listening_in(cluster: LocalCluster) -> socket.socket:
    """A socket on the cluster's bridge, made by a thread that has joined its network."""
    made: list[socket.socket] = []

    def listen() -> None:
        with open(f"/proc/{cluster.supervisor_pid()}/ns/net", "rb") as network:
            setns(network.fileno(), CLONE_NEWNET)
        made.append(socket.create_server((BRIDGE_ADDRESS, stand_in.PORT)))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    (listening,) = made
    return listening
