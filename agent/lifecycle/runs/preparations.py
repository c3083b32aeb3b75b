"""Before a run: what must be known of its pods, and whether they may run together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agent.catalogue import WORKLOADS
from agent.decide.differences import Differences, compare
from agent.decide.ending import JobEnd
from agent.decide.inventory import profiler_problem
from agent.decide.mpirun import mpi_of
from agent.decide.runspec import RunSpec
from agent.errors import AgentError, Exit, MissingProgram
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.pod.results_check import ResultsCheck
from agent.lifecycle.pod.surroundings import longest_seconds
from agent.lifecycle.waits import Once
from agent.paths import shipped
from agent.workloads import find_workload
from agent.workloads.base import NO_BASELINES, RunContext, Workload

INVENTORY_SECONDS = 90.0
"""How long a run waits for the inventory of prepared pods, longer than any takes; then it starts without."""


class Preparations:
    """What the coordinator knows of all pods. `fail` gets why the first run cannot be: the job ends."""

    def __init__(self, pod: Pod, fail: Callable[[AgentError], None]) -> None:
        self.pod = pod
        self._fail = fail
        self.inventories: dict[int, Mapping[str, str]] = {}
        """By completion index."""
        self.phases: dict[int, Mapping[str, float]] = {}
        """When each worker reached the phases of its start-up, by its own clock."""
        self.results_check = ResultsCheck(pod, fail)
        """No run begins before this is over."""
        self._reading: object = None
        """Baselines are being read, for the newest run that needs them; None: they are not."""
        self._waits: list[tuple[Sequence[int], Once]] = []
        """Runs that wait for the inventories of these pods."""

    def start(self) -> None:
        self.results_check.start()
        self.results_check.over.when(self._go_on)

    def own_inventory(self, found: Mapping[str, str]) -> None:
        """This pod's; without an mpirun that serves, a first run that needs one ends the job (66)."""
        mpi = mpi_of(found)
        if find_workload(self.pod.job.spec.workload).led and (mpi is None or mpi.problem):
            why = mpi.problem if mpi else found.get("problem", "this pod does not know its mpirun")
            self._fail(MissingProgram(why, "the image needs Open MPI 4 or 5"))
        self.inventory(0, found)

    def inventory(self, index: int, found: Mapping[str, str], phases: Mapping[str, float] | None = None) -> None:
        """What a pod has, and when it reached each phase of its start-up."""
        self.inventories[index] = found
        self.phases[index] = phases or {}
        self._go_on()

    def forget(self, index: int) -> None:
        """That pod is lost: what its replacement has is not known."""
        self.inventories.pop(index, None)

    def when_ready(self, indices: Sequence[int], ready: Callable[[], None], *, baselines: bool = False) -> None:
        """Call `ready` when these pods have said what they have, or have had time enough to.

        `baselines`: read their files first, the user's may have changed since the last run.
        """
        known = Once()
        known.when(ready)
        self._waits.append((indices, known))
        if baselines:
            self._read_baselines()
        self.pod.machine.later(INVENTORY_SECONDS + longest_seconds(self.pod.settings), known.happen)
        self._go_on()

    def _read_baselines(self) -> None:
        """The user's file may lie on a server that is gone: then it is as if it were empty, which nccl says. One that
        is not there yet is one without entries: a run may be about to make it."""
        machine, own, shipped_file = self.pod.machine, self.pod.settings.baselines, shipped("env", "baselines.json")
        known = {shipped_file: machine.read(shipped_file) or ""}
        if not own:
            self.pod.learn(baselines=known)
            return
        reading = self._reading = object()

        def have(text: str) -> None:
            if self._reading is reading:
                self._reading = None
                self.pod.learn(baselines={**known, own: text})
                self._go_on()

        def read() -> str:
            try:
                text = machine.read(own)
                return (text or "") if text is not None or machine.exists(own) else NO_BASELINES
            except OSError:
                return ""

        machine.aside(read, have, lambda why: have(""))
        # The user's file of baselines may lie on a server that is gone.
        machine.later(5.0, lambda: have(""))

    def _go_on(self) -> None:
        if not self.results_check.over.happened or self._reading is not None:
            return
        self._waits = [(indices, known) for indices, known in self._waits if not known.happened]
        for indices, known in self._waits:
            if all(index in self.inventories for index in indices):
                known.happen()

    # What follows from it

    def with_limits(self, spec: RunSpec, workload: Workload) -> RunSpec:
        """The wish with the limits that the settings give it; none for what is not exclusive."""
        settings = self.pod.settings
        timeout = settings.workload_timeout if workload.exclusive else 0.0
        stall = settings.stall_seconds(WORKLOADS[spec.workload].stall_seconds) if workload.exclusive else 0.0
        stall = stall if spec.without is None else 0.0  # somebody at a prompt is silent
        lives = settings.lives if workload.has_lives and spec.without is None else 0
        return spec._replace(
            by=spec.by or "somebody",
            timeout=timeout if spec.timeout is None else spec.timeout,
            stall=stall if spec.stall is None or not workload.exclusive else spec.stall,
            lives=lives if spec.lives is None else spec.lives,
        )

    def refusal(self, context: RunContext, workload: Workload) -> JobEnd | None:
        """Why these pods may not run this together; None when they may."""
        for asks in (self.fabric, self.torch, self.profiler, self.differences):
            if refused := asks(context, workload):
                return refused
        return None

    def fabric(self, context: RunContext, workload: Workload) -> JobEnd | None:
        """Why the fabric of these pods cannot be used by a workload that is about it; None when it can."""
        peers = context.plan.peers
        if not workload.uses_fabric or len(peers) == 1:  # nothing goes between pods
            return None
        # Without GPUs torch's programs run over gloo, which needs no fabric.
        of_gpus = [peer for peer in peers if workload.led or self.pod.heard[peer.index].gpus]
        told = {peer.index: self.inventories.get(peer.index, {}) for peer in of_gpus}
        bad = {index: told[index]["profile_problems"] for index in told if "profile_problems" in told[index]}
        if not bad:
            return None
        profile = told[min(bad)].get("profile", "")
        lines = [f"{self.pod.where(index)}: {line}" for index, text in bad.items() for line in text.split("\n")]
        what = f"the fabric profile {profile} cannot be used on {len(bad)} of {len(peers)} pods"
        hint = "fix or leave out these pods (--exclude), or start the job with A4_PROFILE=none, which uses no fabric"
        return JobEnd(Exit.SETTINGS, what, why="\n".join([*lines, hint]))

    def torch(self, context: RunContext, workload: Workload) -> JobEnd | None:
        """Why a workload that imports torch cannot do so on these pods; None when it can, or nobody knows."""
        told = {index: self.inventories.get(index, {}).get("nccl_torch_problem", "") for index in context.indices}
        bad = [f"{self.pod.where(index)}: {line}" for index, line in told.items() if line]
        if not workload.imports_torch or not bad:
            return None
        what = f"torch and the NCCL that it loads are incompatible on {len(bad)} of {len(told)} pods"
        hint = (
            "use an image whose torch is built for that NCCL or an older one (docs/images.md#nccl-and-torch), or put a "
            "newer NCCL first in LD_LIBRARY_PATH, if the fabric has one"
        )
        return JobEnd(Exit.SETTINGS, what, why="\n".join([*bad, hint]))

    def profiler(self, context: RunContext, workload: Workload) -> JobEnd | None:
        """Why NCCL would not load the profiler that is asked for; None when it would, or none is."""
        if not workload.exclusive:
            return None
        for index in context.indices:
            told = self.inventories.get(index, {}).get("nccl_profiler", "")
            pods = dict(pair.split("=", 1) for pair in told.split() if "=" in pair)
            if problem := profiler_problem({**pods, **context.spec.env}):
                return JobEnd(Exit.SETTINGS, problem, self.pod.where(index))
        return None

    def compared(self, context: RunContext, workload: Workload) -> Differences:
        """The pods of a run, in what must be alike for its workload."""
        facts = {index: self.pod.heard[index] for index in context.indices if index in self.pod.heard}
        return compare(facts, {index: self.inventories.get(index, {}) for index in context.indices}, workload.kind)

    def differences(self, context: RunContext, workload: Workload) -> JobEnd | None:
        """Why pods that differ where they must not may not run together; None when they may.

        Different versions of NCCL, say, do not fail: they hang, or are slow. A table before the start is cheaper.
        """
        if not workload.exclusive:
            return None
        found = self.compared(context, workload)
        if found.warning:
            self.pod.log.warning(found.warning)
        if not found.odd:
            return None
        refused = self.pod.settings.pods_differ == "refuse" and not workload.starts_nothing
        say = self.pod.log.error if refused else self.pod.log.warning
        say(f"{found.sentence}\n{found.table}")
        if not refused:
            return None
        hint = "fix or leave out the odd pods (--exclude), or set A4_PODS_DIFFER=warn"
        return JobEnd(Exit.SETTINGS, found.sentence, why=f"{found.table}{hint}")
