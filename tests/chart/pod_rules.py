"""Our own rules for the variables and containers of the chart's pods."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.settings import TASK_SCRIPTS, Found, examine
from tests.chart.helm import Object, Rendered
from tests.chart.rules import every_container, pods, repeated, rule


@rule
def values_of_variables_are_text(rendered: Rendered) -> Iterator[str]:
    for container in every_container(rendered):
        for entry in container.get("env", []):
            if not isinstance(entry.get("value", ""), str) or ("value" in entry) == ("valueFrom" in entry):
                yield str(entry)


@rule
def the_pods_are_told_what_they_are(rendered: Rendered) -> Iterator[str]:
    """Variables, against the objects that they speak of."""
    env, spec = rendered.env, rendered.jobset["spec"]
    job = rendered.job
    name, subdomain = rendered.jobset["metadata"]["name"], spec["network"]["subdomain"]
    domain = (rendered.values.get("network") or {}).get("clusterDomain", "cluster.local")
    first = f"{name}-workload-0-0.{subdomain}.{rendered.words.namespace}.svc.{domain}"
    limits = rendered.workload["resources"]["limits"]
    fields = {one["name"]: one["valueFrom"].get("fieldRef") for one in rendered.workload["env"] if "valueFrom" in one}
    told = {
        f"{env['HOSTNAME_PREFIX']}0-0.{env['DOMAIN_NAME']}": first,
        env["RANK_0_FQDN"]: first,
        env["MASTER_ADDR"]: first,
        "NNODES " + env["NNODES"]: f"NNODES {job['completions']}",
        "pods " + env["NNODES"]: f"pods {job['parallelism']}",
        "GPUS_PER_NODE " + env["GPUS_PER_NODE"]: f"GPUS_PER_NODE {limits['nvidia.com/gpu']}",
        "WORLD_SIZE " + env["WORLD_SIZE"]: f"WORLD_SIZE {int(env['NNODES']) * int(env['GPUS_PER_NODE'])}",
        "grace " + env["A4_GRACE_SECONDS"]: f"grace {rendered.pod['terminationGracePeriodSeconds']}",
        f"POD_NAME {fields.get('POD_NAME')}": f"POD_NAME { ({'fieldPath': 'metadata.name'}) }",
        f"NODE_NAME {fields.get('NODE_NAME')}": f"NODE_NAME { ({'fieldPath': 'spec.nodeName'}) }",
        "SLEEP_INFINITY " + str(env["SLEEP_INFINITY"] in ("true", "false")): "SLEEP_INFINITY True",
    }
    yield from (f"{said}, but it is {true}" for said, true in told.items() if said != true)


@rule
def the_agent_takes_the_settings_of_every_pod(rendered: Rendered) -> Iterator[str]:
    """What it would say at its start, in pod 0 of each job."""
    for pod in pods(rendered):
        environ = {entry["name"]: entry.get("value", "0") for entry in pod["containers"][0]["env"]}
        seen = examine(environ, Found(task_script=_task_script(rendered, pod)))
        yield from (*seen.problems, *seen.warnings)


def _task_script(rendered: Rendered, pod: Object) -> str:
    """Where the agent would find one."""
    keys = {(found["metadata"]["name"], key) for found in rendered.kind("ConfigMap") for key in found.get("data") or {}}
    configs = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
    for mount in pod["containers"][0]["volumeMounts"]:
        for path in TASK_SCRIPTS:
            directory, key = path.rsplit("/", 1)
            if mount["mountPath"] in (directory, path) and (configs.get(mount["name"]), key) in keys:
                return path
    return ""


@rule
def probes_start_no_python(rendered: Rendered) -> Iterator[str]:
    """A start of Python costs a tenth of a second of a core, in every pod, every few seconds."""
    for container in every_container(rendered):
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            command = " ".join(container.get(kind, {}).get("exec", {}).get("command", []))
            if re.search(r"python|(^| )a4-agent( |$)", command):
                yield f"{kind}: {command}"


@rule
def variables_of_the_user_are_named_to_the_agent(rendered: Rendered) -> Iterator[str]:
    there = {entry["name"] for entry in rendered.workload["env"]}
    named = rendered.env.get("A4_USER_ENV", "").split()
    yield from (f"A4_USER_ENV names {name}, which is not set" for name in named if name not in there)
    yield from (f"{name} twice" for name in repeated(named))


@rule
def variables_from_secrets_are_named_to_the_agent(rendered: Rendered) -> Iterator[str]:
    named = set(rendered.env.get("A4_SECRET_ENV", "").split())
    secret = {one["name"] for one in rendered.workload["env"] if "secretKeyRef" in one.get("valueFrom", {})}
    yield from (f"A4_SECRET_ENV and what comes from Secrets: {name}" for name in sorted(named ^ secret))


@rule
def only_the_first_container_has_gpus(rendered: Rendered) -> Iterator[str]:
    for at, container in enumerate(rendered.pod["containers"]):
        gpus = container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu")
        if (at == 0) != bool(gpus) or (at == 0 and container["name"] != "workload"):
            yield f"container {at}, {container['name']}, has {gpus}"
