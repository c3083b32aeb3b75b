"""`a4-agent local run --dry-run`: what would be started in the pods of a cluster that is not made."""

from __future__ import annotations

import os

from agent.commands.dry_run import answer, environment_before, launches
from agent.decide.facts import Facts
from agent.decide.order import make_plan
from agent.decide.runspec import RunSpec
from agent.local.podenv import ClusterBuild, pod_environment
from agent.local.spec import ClusterSpec, address, check
from agent.machine.api import Interface
from agent.settings import BUCKET, TASK_SCRIPTS, Found, read_settings

INTERFACE = "eth0"


def show(spec: ClusterSpec, workload: str, args: list[str], *, as_json: bool) -> int:
    """Print it. Raises AgentError as the run itself would."""
    check(spec)
    job = ClusterBuild(uid="JOBSET-UID", stamp="TIME", path=os.environ.get("PATH", os.defpath))
    environ = pod_environment(spec, job, 0)
    script = next((path for path in TASK_SCRIPTS if path in spec.files), "")
    settings, _ = read_settings(environ, Found(script, bucket=BUCKET in spec.directories), workload)
    known = environment_before(settings, environ, [Interface(INTERFACE, address(0))])
    wish = RunSpec(settings.workload, tuple(args))
    # The one that the pods would make, if all of them came.
    plan = make_plan(
        [_facts(spec, index) for index in range(spec.pods)],
        epoch=settings.epoch,
        prefix=settings.hostname_prefix,
        domain=settings.domain_name,
        slots=settings.gpus_per_node,
    )
    answer(launches(settings, known, wish, plan), environ, wish, as_json=as_json)
    return 0


def _facts(spec: ClusterSpec, index: int) -> Facts:
    located = spec.pod_metadata.get(index, spec.metadata) == "ok"
    places = {"physical_host_topology": spec.place(index)} if located else {}
    node, own = spec.node_name(index), address(index)
    return Facts(index, "", "", node, own, INTERFACE, spec.gpus_per_pod, places=places)
