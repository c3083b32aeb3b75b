"""Makes the context of a run, for the runs themselves and for `--dry-run`.

In one place, so that what `--dry-run` shows is what would be started, and without a machine, so that it can be shown
where nothing runs.
"""

from __future__ import annotations

from agent.decide.mpirun import mpi_of
from agent.decide.plan import Plan
from agent.decide.run_names import life_parts
from agent.decide.runspec import RunSpec
from agent.errors import UsageError
from agent.lifecycle.pod.known import Known
from agent.paths import RunDir
from agent.settings import Settings
from agent.workloads.base import RunContext

PORTS = 50
"""From MASTER_PORT on, one for each life of a run; then the first again."""


def run_context(
    settings: Settings,
    known: Known,
    plan: Plan,
    run_id: str,
    spec: RunSpec,
    *,
    python: str,
    cores: int,
    ras_port: int = 0,
) -> RunContext:
    """What a launch on this pod may depend on. `plan`: of the pods that take part; `python`: the agent's own; `cores`:
    those of this pod. Raises UsageError."""
    wanted = spec.env.get("MASTER_PORT", str(settings.master_port))
    # isascii, because "²".isdigit() holds and int("²") raises.
    if not (wanted.isascii() and wanted.isdigit() and 0 < (port := int(wanted)) < 65536):
        raise UsageError(f"MASTER_PORT={wanted} (of the shell) is not a port")
    # A rank of an earlier life that is still there somewhere must not find the store of this one.
    shift = (life_parts(run_id)[1] - 1) % PORTS
    port += shift if port + PORTS < 65536 else -shift
    directory = RunDir(settings.run_dir)
    return RunContext(
        run_id=run_id,
        spec=spec,
        plan=plan,
        index=settings.index,
        environ={**known.environ, **spec.env},
        master_port=port,
        run_dir=directory.run(run_id),
        token_file=directory.token,
        ssh_config=directory.ssh_config,
        interface=known.interface.name,
        python=python,
        workload_python=spec.env.get("A4_PYTHON") or settings.python,
        cores=cores,
        rank_script=directory.rank_script,
        enter_script=directory.enter_script,
        script=settings.task_script,
        bucket=settings.bucket,
        mpi=mpi_of(known.inventory),
        keep_ranks=bool(spec.timeout or spec.stall) and spec.without is None,
        profile=known.profile.name,
        baselines=known.baselines,
        job_pods=settings.nnodes,
        why=settings.why,
        why_timing=settings.why_timing,
        ras_port=ras_port,
    )
