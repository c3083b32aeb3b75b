"""What all workloads have in common that mpirun starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agent.decide.environment import prepended
from agent.decide.mpirun import Mpi, mpirun_launch
from agent.errors import MissingProgram, UsageError
from agent.launch import Launch
from agent.paths import shipped
from agent.workloads.base import RunContext


@dataclass(frozen=True)
class Layout:
    """Which pods the ranks are on: filled slot by slot in the order of the plan."""

    ranks: int
    per_pod: int

    def pod(self, rank: int) -> int:
        """Node rank of the pod with this rank."""
        return rank // self.per_pod


def layout(context: RunContext) -> Layout:
    """How many ranks are wanted, and where. Raises UsageError when the pods have no room for them."""
    spec, slots = context.spec, context.plan.slots
    if spec.per_node > slots:
        raise UsageError(f"-N {spec.per_node}: a pod has {slots} slots (GPUS_PER_NODE)")
    per_pod = spec.per_node or slots
    room = per_pod * len(context.plan.peers)
    if spec.ranks > room:
        pods = f"{len(context.plan.peers)} pods of {per_pod}"
        raise UsageError(f"-np {spec.ranks}: there are {room} slots ({pods})", "take more pods, or fewer ranks")
    return Layout(spec.ranks or room, per_pod)


def usable_mpi(context: RunContext) -> Mpi:
    """The lead's mpirun. Raises MissingProgram when there is none that can be used."""
    if context.mpi is None or context.mpi.problem:
        why = context.mpi.problem if context.mpi else "this pod does not know its mpirun"
        raise MissingProgram(why, "the image needs Open MPI 4 or 5")
    return context.mpi


def start(context: RunContext, program: Sequence[str], ranks: Layout, *, given: Mapping[str, str], cwd: str) -> Launch:
    """mpirun with a `program` for every rank, on the lead. `given`: variables from the agent. Raises MissingProgram."""
    mpi = usable_mpi(context)
    alone = len(context.plan.peers) == 1
    hostfile = context.hostfile_one_per_node if ranks.per_pod == 1 else context.hostfile
    given = {"A4_RUN": context.run_id, **_libraries(context, mpi), **given}
    if context.keep_ranks:
        keep = shipped("entrypoints", "last-words.py")
        program = [context.python, "-IS", keep, context.ranks_output, *program]
    launch = mpirun_launch(
        version=mpi.version,
        mpirun=mpi.program,
        hostfile=None if alone else hostfile,
        hosts=len(context.plan.peers),
        ranks=ranks.ranks,
        interface=context.interface,
        ssh_command=["ssh", "-F", context.ssh_config, "-o", f"SetEnv=A4_RUN={context.run_id}"],
        program=program,
        env={**context.environ, **given},
        cwd=cwd,
        oversubscribed=min(ranks.per_pod, ranks.ranks) > context.cores,
    )
    return replace(launch, added=tuple(given))


def _libraries(context: RunContext, mpi: Mpi) -> dict[str, str]:
    """The libraries of an Open MPI that is not the system's come first on every pod.

    mpirun sees to that on its own pod alone: others would load the libmpi that they find, of another version.
    """
    prefix, found, _ = mpi.program.rpartition("/bin/")
    name = "LD_LIBRARY_PATH"
    return {name: prepended(name, f"{prefix}/lib", context.environ.get(name, ""))} if found and prefix != "/usr" else {}
