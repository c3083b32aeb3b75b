"""Runs of a workload for real: what it launches on the lead of the MPI tests' pods, and how it judges the end."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from agent.decide.ending import JobEnd
from agent.decide.mpirun import Mpi as Program
from agent.decide.plan import Plan, PlannedPeer, hostfile
from agent.decide.ranks import RankEnd, parse_rank
from agent.decide.runspec import RunSpec
from agent.decide.subset import subset
from agent.launch import Launch
from agent.paths import shipped
from agent.workloads import find_workload
from agent.workloads.base import Judgement, Outcome, RunContext
from tests.mpi.conftest import Mpi
from tests.mpi.pods import ENDING_S, End, Pod, Pods

RUN_DIR = "/run/a4-run"
SLOTS = 2
GROUP = 1234567890
"""What marks the processes of a run."""
GATE = "/run/gate-$OMPI_COMM_WORLD_RANK"
WAITS = ["sh", "-c", f"mkfifo {GATE}; read -r line <{GATE}"]
"""A program whose ranks wait for their gates. The shell that reads is the program itself."""
NOTHING: Mapping[str, Any] = {}


class Run:
    """One run of a workload. `end` is set when it has been waited for."""

    def __init__(
        self,
        mpi: Mpi,
        pods: Pods,
        args: Sequence[str],
        workload: str = "mpirun",
        *,
        order: Sequence[int] = (),
        env: Mapping[str, str] = NOTHING,
        given: Mapping[str, Any] = NOTHING,
        **wish: Any,
    ) -> None:
        """`order`: of the plan; `given`: other fields of the context."""
        self.pods = pods
        self.end: End | None = None
        self.workload = find_workload(workload)
        peers = [PlannedPeer(n, name, pods.addresses[n], pods.pods[n].node) for n, name in enumerate(pods.names)]
        plan = Plan("epoch", SLOTS, tuple(peers[index] for index in order or range(len(peers))))
        spec = RunSpec(workload, tuple(args), **wish)
        plan = subset(plan, spec.nodes, spec.hosts, spec.exclude, lost={})
        self.context = RunContext(
            run_id="mpirun-test",
            spec=spec,
            plan=plan,
            index=plan.peers[0].index,
            environ=pods.environment(**env),
            master_port=6002,
            run_dir=RUN_DIR,
            token_file="/run/token",
            ssh_config=str(pods.home / "ssh_config"),
            interface="eth0",
            python=mpi.python,
            workload_python=mpi.python,
            cores=1,
            rank_script=shipped("entrypoints", "rank.sh"),
            enter_script=shipped("entrypoints", "enter-run.sh"),
            mpi=Program(mpi.mpirun, mpi.version),
        )
        self.context = replace(self.context, **given)
        for index in self.context.indices:
            self._prepare(index)

    def _prepare(self, index: int) -> None:
        pod, context = self.pods.pods[index], self.context
        shutil.rmtree(pod.path(RUN_DIR), ignore_errors=True)
        pod.path(context.ranks_dir).mkdir(parents=True)
        slots = {context.hostfile: context.spec.per_node or SLOTS, context.hostfile_one_per_node: 1}
        files = {path: hostfile(context.names, count) for path, count in slots.items()}
        for path, text in {**files, context.marks_file: f"{GROUP}\n", "/run/token": f"token-{index}\n"}.items():
            pod.path(path).write_text(text)

    @property
    def launch(self) -> Launch:
        made = self.workload.launch(self.context)
        assert made is not None
        return made

    @contextmanager
    def started(self, launch: Launch | None = None) -> Iterator[subprocess.Popen[str]]:
        with self.pods.started(launch or self.launch, self.context.lead) as process:
            yield process

    def finish(self, process: subprocess.Popen[str], ending: float = ENDING_S) -> Judgement:
        self.end = self.pods.finish(process, self._is_ending, ending)
        ranks, record = self.ranks(), self.record()
        tokens = [f"token-{index}" for index in self.context.indices]
        outcome = Outcome(
            self.end.status, record, output=self.end.output, tokens=tokens, ranks=ranks, stuck=self.end.stuck
        )
        return self.workload.judge(self.context, outcome)

    def whole(self, launch: Launch | None = None) -> Judgement:
        """From start to end."""
        with self.started(launch) as process:
            return self.finish(process)

    def ended_by(self, pod: int, script: Callable[[], str]) -> JobEnd:
        """The end of a run that waits (WAITS), when this is done in a pod."""
        with self.started() as process:
            self.until_there()
            self.pods.pods[pod].run(script())
            return self.finish(process).end

    def until_there(self) -> None:
        """Wait until all ranks are at their gates."""
        for rank in self._all_ranks:
            self.pod(rank).run(f"until test -p /run/gate-{rank}; do sleep 0.02; done")

    def let_go(self, *ranks: int) -> None:
        for rank in ranks or self._all_ranks:
            self.pod(rank).run(f"echo >/run/gate-{rank}")

    @property
    def _all_ranks(self) -> range:
        return range(self.context.per_pod * len(self.context.indices))

    def pod(self, rank: int) -> Pod:
        return self.pods.pods[self.context.indices[rank // self.context.per_pod]]

    def pid(self, rank: int) -> int:
        """PID of a rank's program in its own pod."""
        found = re.match(r"started (\d+)\n", self.pod(rank).path(f"{self.context.ranks_dir}/{rank}").read_text())
        assert found
        return int(found[1])

    def _is_ending(self) -> bool:
        """Whether every pod finds that its ranks are over, or the ranks' own record says it."""
        contexts, ranks = [replace(self.context, index=index) for index in self.context.indices], self.ranks()
        over = all(self.workload.ranks_over(context, ranks) for context in contexts)
        return over or self.workload.is_ending("", self.record(), {})

    def record(self) -> str:
        """What the rank program wrote of itself."""
        path = self.pods.pods[self.context.lead].path(self.context.record)
        return path.read_text() if path.exists() else ""

    def ranks(self) -> dict[int, RankEnd]:
        """What rank.sh recorded, on all pods that still live."""
        return {
            int(path.name): parse_rank(path.read_text())
            for pod in self.pods.pods
            if pod.process.poll() is None
            for path in pod.path(self.context.ranks_dir).glob("[0-9]*")
        }
