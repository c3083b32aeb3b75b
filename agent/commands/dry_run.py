"""`a4-agent run --dry-run`: the command lines and environment changes, nothing touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.commands.pod import read_plan
from agent.decide.peers import peer_name
from agent.decide.plan import Plan, PlannedPeer
from agent.log import Log
from agent.machine.host import Host
from agent.machine.loop import Loop
from agent.paths import RunDir
from agent.settings import Settings


def describe(settings: Settings, environ: Mapping[str, str], python: str, args: Sequence[str], topology: bool) -> str:
    """What `run` would start on this pod. Raises MissingProgram as the run would."""
    from agent.lifecycle.pod import Job, Pod
    from agent.lifecycle.running import context_for, find_mpi
    from agent.workloads.registry import find_workload

    job = Job(settings, environ, b"", python, args, topology)
    pod = Pod(Host(Loop()), Log(settings.log_level), job, lambda code: None)
    pod.interface = pod.choose_interface()
    plan = read_plan(RunDir(settings.run_dir))
    note = "" if plan else "# no plan yet: pods in index order, as a guess\n"
    workload = find_workload(settings.workload)
    mpi = find_mpi(pod) if workload.kind == "mpi" else None
    run_dir = pod.dir.run("RUN-ID")
    context = context_for(pod, plan or _guess(settings), "RUN-ID", run_dir, args, mpi, settings.task_script)
    head = f"# workload {workload.name} on pod {settings.index} of {settings.nnodes}\n{note}"
    if workload.kind == "mpi" and not settings.is_coordinator:
        return f"{head}# nothing is started here: pod 0 starts mpirun, which reaches this pod through sshd\n"
    launch = workload.launch(context)
    if workload.kind == "mpi":
        head += "# to read, not to paste: RUN-ID is drawn at each run, and its directory made then\n"
    return head + (f"{launch}\n" if launch else "# nothing is started: the cluster is formed and that is all\n")


def _guess(settings: Settings) -> Plan:
    peers = tuple(
        PlannedPeer(index, peer_name(settings.hostname_prefix, index, settings.domain_name), "", "")
        for index in range(settings.nnodes)
    )
    return Plan(settings.epoch, settings.gpus_per_node, peers)
