"""Clusters for the pipelines: with a workspace that outlives each of them, and the stand-ins that they fetch."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from agent.local.client import LocalCluster
from agent.local.spec import BRIDGE_ADDRESS, ClusterSpec
from agent.local.syscalls import CLONE_NEWNET, CLONE_NEWNS, MS_PRIVATE, MS_REC, mount, setns, unshare
from tests.cluster.conftest import Trial
from tests.local.helpers import eventually
from tests.pai import stand_in
from tests.pai.hub import Serving

WORKSPACE = "/mnt"
TOKEN = "hf_canary_of_the_pipelines"
JOB = "pipeline"


class Workplace:
    """A workspace and what is fetched into it. `size`: of its file system, as `mount` takes it."""

    def __init__(self, path: Path, size: str = "2T") -> None:
        """No more memory is used than is written: the pipelines ask for the space that real models need."""
        self.hub, self.commit, self.newer = stand_in.hub(path)
        self.hub.token = TOKEN
        self.git = path / "git"
        self.path = path / "workspace"
        self.path.mkdir()
        unshare(CLONE_NEWNS)  # so that the mount goes with this process
        mount("", "/", flags=MS_PRIVATE | MS_REC)
        mount("none", str(self.path), "tmpfs", data=f"size={size}")
        self.steering = Steering(self.path)

    def __enter__(self) -> Workplace:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True)

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
        spec = ClusterSpec(
            pods=pods,
            name=JOB,
            arguments=arguments,
            env={**self.env(**epoch), **(env or {})},
            files={**stand_in.PROGRAMS, **more.pop("files", {})},
            directories={WORKSPACE: str(self.path)},
            **more,
        )
        with ExitStack() as stack:
            cluster = stack.enter_context(LocalCluster(spec))
            cluster.build()
            stack.enter_context(Serving(self.hub, listening_in(cluster)))
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
