"""Real clusters for real tests: sandboxes with the real agent, sshd, DNS, mpirun."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.workbench.local.client import LocalCluster
from agent.workbench.local.pods import PodInfo
from agent.workbench.local.spec import ClusterSpec
from tests.deadlines import Limits, events, limits_of_spec, refuse_short
from tests.torch_environment import TORCH_PYTHON

END_SECONDS = 180.0
"""Guards against hanging; what must be quick is measured by the benchmark."""
RUN_DIR = "/run/a4-agent"


class Trial:
    """One local cluster under test."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.awaited: set[str] = set()
        """Files in pod 0 without which no short deadline may have been hit."""
        self.limited(limits_of_spec(cluster.spec))

    def limited(self, limits: Limits) -> None:
        """Note the limits of a run; those that a busy machine would hit fail the test."""
        refuse_short(limits)
        self.awaited |= events(limits)

    def expect_events(self) -> None:
        found = self.cluster.read_bytes(0, sorted(self.awaited)) if self.awaited else {}
        early = [path for path, content in found.items() if content is None]
        assert not early, f"a short deadline counted before this was there: {early}\n{self.log()}"

    def codes(self, timeout: float = END_SECONDS) -> dict[int, int | None]:
        """Exit code of every pod that was started, once all have ended."""
        try:
            ends = self.cluster.wait(timeout)
        except TimeoutError:
            pytest.fail(f"pods have not ended: {self.cluster.pods()}\n{self.log()}")
        return {end.index: end.code for end in ends if self.cluster.spec.starts(end.index)}

    def log(self) -> str:
        """All that all pods have printed."""
        return "".join(f"[{out.pod}] {out.data.decode(errors='replace')}" for out in self.cluster.output())

    def said(self, index: int) -> dict[str, Any]:
        """The pod's termination message."""
        message: dict[str, Any] = json.loads(self.cluster.read(index, "/dev/termination-log"))
        return message

    def events(self, index: int) -> list[str]:
        lines = self.cluster.read(index, f"{RUN_DIR}/events.jsonl").splitlines()
        return [json.loads(line)["event"] for line in lines]

    def kill_agent(self, index: int) -> None:
        """SIGKILL to the agent itself; tini then ends the pod, and our own command with it."""
        pid = self.cluster.read(index, f"{RUN_DIR}/lock").split()[1]
        self.cluster.exec(index, ["bash", "-c", f"kill -KILL {pid}"])

    def until(self, index: int, shell_test: str) -> None:
        """Wait until a shell condition holds in a pod."""
        script = f"until {shell_test}; do ((SECONDS < {END_SECONDS:.0f})) || exit 1; sleep 0.1; done"
        done = self.cluster.exec(index, ["bash", "-c", script], timeout=2 * END_SECONDS)
        assert done.returncode == 0, f"{shell_test} never came true in pod {index}\n{self.log()}"

    def until_event(self, index: int, event: str) -> None:
        self.until(index, f"grep -qs '\"{event}\"' {RUN_DIR}/events.jsonl")


Start = Callable[..., Trial]


@contextmanager
def starting() -> Iterator[Start]:
    """What `start` is; its clusters end with the block."""
    trials: list[Trial] = []
    with ExitStack() as stack:

        def make(pods: int = 4, *, gpus_per_pod: int = 1, script: str = "", **more: Any) -> Trial:
            files = dict(more.pop("files", {}))
            if script:
                files["/workload/task/task-script.sh"] = script.encode()
            # A page takes more than a second of CPU time: only tests that look at it have it made.
            env = {"A4_REPORT": "false", **more.pop("env", {})}
            spec = ClusterSpec(pods=pods, gpus_per_pod=gpus_per_pod, files=files, env=env, **more)
            trial = Trial(stack.enter_context(LocalCluster(spec)))
            trials.append(trial)
            trial.cluster.start()
            return trial

        yield make
        for trial in trials:
            trial.expect_events()


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(pods=4, arguments=("none",), …)` builds a cluster, which ends with the test."""
    with starting() as make:
        yield make


def all_codes(trial: Trial, code: int) -> None:
    """Every pod ends with `code`."""
    codes = trial.codes()
    assert set(codes.values()) == {code}, f"{codes}\n{trial.log()}"


def ends(infos: list[PodInfo]) -> dict[int, int | None]:
    return {info.index: info.code for info in infos}


@pytest.fixture(scope="session")
def ompi5() -> Path:
    """The virtual environment with Open MPI 5, made by the set-up."""
    path = Path(os.environ.get("A4_TEST_OMPI5") or Path(__file__).parents[2] / ".venv-ompi5")
    assert (path / "bin" / "mpirun").exists(), f"{path} has no Open MPI 5: run make setup"
    return path


@pytest.fixture(scope="session")
def torch() -> Path:
    """The Python with torch, made by the set-up."""
    assert TORCH_PYTHON.exists(), f"there is no {TORCH_PYTHON}: run make setup"
    return TORCH_PYTHON
