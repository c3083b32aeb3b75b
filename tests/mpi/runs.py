"""Runs of a workload for real: what it launches on the lead of the MPI tests' pods, and how it judges the end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.decide.mpirun import Mpi as Program
from agent.decide.plan import Plan, PlannedPeer, hostfile
from agent.decide.ranks import RankEnd, parse_rank
from agent.decide.runspec import RunSpec
from agent.decide.subset import subset
from agent.launch import Launch
from agent.workloads.base import Judgement, Outcome, RunContext
from agent.workloads.mpirun import Mpirun
from tests.mpi.conftest import ROOT, Mpi
from tests.mpi.pods import End, Pods

RUN_DIR = "/run/a4-run"
SLOTS = 2
GROUP = 1234567890
"""What marks the processes of a run."""


class Run:
    """One run of the `mpirun` workload. `end` is set when it has been waited for."""

    def __init__(self, mpi: Mpi, pods: Pods, args: Sequence[str], *, env: Mapping[str, str] | None = None, **wish: Any):
        self.pods = pods
        self.end: End | None = None
        spec = RunSpec("mpirun", tuple(args), **wish)
        self.context = self._context(mpi, spec, env or {})
        for peer in self.context.plan.peers:
            pods.pods[peer.index].run(
                f"rm -rf {RUN_DIR}; mkdir -p {self.context.ranks_dir}; echo {GROUP} >{RUN_DIR}/marks"
            )
        names = [peer.name for peer in self.context.plan.peers]
        files = {self.context.hostfile: spec.per_node or SLOTS, self.context.hostfile_one_per_node: 1}
        for path, slots in files.items():
            self.lead.run(f"cat >{path} <<'END'\n{hostfile(names, slots)}END")

    def _context(self, mpi: Mpi, spec: RunSpec, env: Mapping[str, str]) -> RunContext:
        pods = self.pods
        peers = [
            PlannedPeer(index, name, address, pod.node)
            for index, (name, address, pod) in enumerate(zip(pods.names, pods.addresses, pods.pods, strict=True))
        ]
        plan = subset(Plan("epoch", SLOTS, tuple(peers)), spec.nodes, spec.hosts, spec.exclude, lost={})
        return RunContext(
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
            rank_script=str(ROOT / "entrypoints" / "rank.sh"),
            enter_script=str(ROOT / "entrypoints" / "enter-run.sh"),
            mpi=Program(mpi.mpirun, mpi.version),
        )

    @property
    def lead(self) -> Any:
        return self.pods.pods[self.context.lead]

    @property
    def launch(self) -> Launch:
        made = Mpirun().launch(self.context)
        assert made is not None
        return made

    def keeping(self) -> Run:
        """The same with the ranks' last output kept."""
        self.context = replace(self.context, keep_ranks=True)
        return self

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[str]]:
        with self.pods.started(self.launch, self.context.lead) as process:
            yield process

    def finish(self, process: subprocess.Popen[str]) -> Judgement:
        self.end = self.pods.finish(process)
        return self.judged(self.end)

    def whole(self) -> Judgement:
        """From start to end."""
        with self.started() as process:
            return self.finish(process)

    def judged(self, end: End) -> Judgement:
        outcome = Outcome(end.status, output=end.output, ranks=self.ranks(), stuck=end.stuck)
        return Mpirun().judge(self.context, outcome)

    def ranks_over(self) -> bool:
        """Whether every pod finds that its ranks are."""
        contexts = [replace(self.context, index=index) for index in self.context.indices]
        return all(Mpirun().ranks_over(context, self.ranks()) for context in contexts)

    def ranks(self) -> dict[int, RankEnd]:
        """What rank.sh recorded, on all pods that still live."""
        return {
            int(path.name): parse_rank(path.read_text())
            for pod in self.pods.pods
            if pod.process.poll() is None
            for path in Path(f"/proc/{pod.pid}/root{self.context.ranks_dir}").glob("[0-9]*")
        }
