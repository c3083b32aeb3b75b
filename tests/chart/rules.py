"""Our own rules for what the chart makes of values. Each takes what was rendered and says what breaks it.

Here are those for objects and what they name; tests/chart/pod_rules.py has those for variables and containers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.chart.helm import Object, Rendered
from tests.chart.objects import CLUSTER_WIDE, RESOURCES

CLUSTER_KINDS = {kinds[name] for kinds in RESOURCES.values() for name in kinds if name in CLUSTER_WIDE}
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
OLD_CLAIMS = ("nfs-pvc", "lustre-pvc")

Rule = Callable[[Rendered], list[str]]
RULES: list[Rule] = []


def rule(check: Callable[[Rendered], Iterable[str]]) -> Rule:
    def said(rendered: Rendered) -> list[str]:
        return list(check(rendered))

    said.__name__ = check.__name__
    RULES.append(said)
    return said


def job_specs(found: Object) -> list[tuple[str, Object]]:
    """The Jobs in an object: how their pods' names begin, and their specs."""
    name = found["metadata"]["name"]
    if found["kind"] == "Job":
        return [(f"{name}-", found["spec"])]
    if found["kind"] == "JobSet":
        jobs = found["spec"]["replicatedJobs"]
        return [(f"{name}-{job['name']}-{job['replicas'] - 1}-", job["template"]["spec"]) for job in jobs]
    return []


def pods(rendered: Rendered) -> list[Object]:
    return [spec["template"]["spec"] for found in rendered.objects for _, spec in job_specs(found)]


def containers(pod: Object) -> list[Object]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def every_container(rendered: Rendered) -> Iterator[Object]:
    for pod in pods(rendered):
        yield from containers(pod)


def repeated(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


@rule
def names_of_objects_are_valid(rendered: Rendered) -> Iterator[str]:
    for found in rendered.objects:
        if not LABEL.fullmatch(found["metadata"]["name"]):
            yield f"{found['kind']} {found['metadata']['name']}"


@rule
def names_in_pods_are_labels(rendered: Rendered) -> Iterator[str]:
    for pod in pods(rendered):
        named = [*containers(pod), *pod.get("volumes", [])]
        named += [port for container in containers(pod) for port in container.get("ports", []) if "name" in port]
        yield from (f"{thing['name']!r} is no DNS label" for thing in named if not LABEL.fullmatch(thing["name"]))
        ports = [port for container in containers(pod) for port in container.get("ports", [])]
        yield from (f"port {port['name']} is longer than 15" for port in ports if len(port.get("name", "")) > 15)


@rule
def generated_pod_names_fit(rendered: Rendered) -> Iterator[str]:
    for found in rendered.objects:
        for start, spec in job_specs(found):
            name = f"{start}{spec['completions'] - 1}-xxxxx"
            if len(name) > 63:
                yield f"{name} has {len(name)} characters"


@rule
def everything_is_in_the_namespace_of_the_release(rendered: Rendered) -> Iterator[str]:
    for found in rendered.objects:
        wanted = None if found["kind"] in CLUSTER_KINDS else rendered.words.namespace
        if found["metadata"].get("namespace") != wanted:
            yield f"{found['kind']} {found['metadata']['name']} is in {found['metadata'].get('namespace')}"


@rule
def no_object_is_made_twice(rendered: Rendered) -> Iterator[str]:
    yield from repeated(f"{found['kind']} {found['metadata']['name']}" for found in rendered.objects)


@rule
def every_mount_has_its_volume_and_every_volume_a_mount(rendered: Rendered) -> Iterator[str]:
    for pod in pods(rendered):
        volumes = [volume["name"] for volume in pod.get("volumes", [])]
        mounts = [mount for container in containers(pod) for mount in container.get("volumeMounts", [])]
        yield from (f"volume {name} twice" for name in repeated(volumes))
        yield from (f"no volume {mount['name']}" for mount in mounts if mount["name"] not in volumes)
        used = {mount["name"] for mount in mounts}
        # GKE's sidecar has the only mounts of its own volumes.
        unused = [name for name in volumes if name not in used and not name.startswith("gke-")]
        yield from (f"volume {name} is mounted nowhere" for name in unused)


@rule
def no_two_volumes_are_in_one_place(rendered: Rendered) -> Iterator[str]:
    for container in every_container(rendered):
        yield from repeated(mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts", []))


@rule
def every_claim_exists(rendered: Rendered) -> Iterator[str]:
    """Made by the chart, or named by the user."""
    there = {found["metadata"]["name"] for found in rendered.kind("PersistentVolumeClaim")}
    there |= {claim["claimName"] for claim in users_claims(rendered)}
    for pod in pods(rendered):
        for volume in pod.get("volumes", []):
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and claim not in there:
                yield f"nobody makes the claim {claim}"


def users_claims(rendered: Rendered) -> list[Object]:
    volumes = rendered.values.get("volumes") or {}
    mounts = [mount for mount in volumes.get("pvcMounts") or [] if mount]
    old = [*OLD_CLAIMS, f"{rendered.words.release}-lustre-pvc"]
    extra = [volume.get("persistentVolumeClaim") for volume in volumes.get("extra") or []]
    named = [mount for mount in mounts if mount.get("own") or mount["claimName"] not in old]
    return [*named, *(claim for claim in extra if claim)]


@rule
def claims_and_volumes_name_each_other(rendered: Rendered) -> Iterator[str]:
    """So that no other claim takes the volume, and no other volume the claim."""
    claims = {found["metadata"]["name"]: found for found in rendered.kind("PersistentVolumeClaim")}
    volumes = {found["metadata"]["name"]: found for found in rendered.kind("PersistentVolume")}
    for name, volume in volumes.items():
        reference = volume["spec"]["claimRef"]
        claim = claims.get(reference["name"])
        if not claim or claim["metadata"]["namespace"] != reference["namespace"]:
            yield f"{name} is for {reference}"
    for name, claim in claims.items():
        if claim["spec"]["volumeName"] not in volumes:
            yield f"{name} is of {claim['spec']['volumeName']}"


@rule
def every_secret_and_config_map_exists(rendered: Rendered) -> Iterator[str]:
    there = {(found["kind"], found["metadata"]["name"]): found for found in rendered.objects}
    by_user = set(_strings(rendered.values))
    for kind, name, key in _references(rendered):
        if name in by_user:
            continue
        found = there.get((kind, name))
        if not found:
            yield f"nobody makes {kind} {name}"
        elif key and key not in {**found.get("data", {}), **found.get("stringData", {})}:
            yield f"{kind} {name} has no {key}"


def _references(rendered: Rendered) -> Iterator[tuple[str, str, str]]:
    for pod in pods(rendered):
        for volume in pod.get("volumes", []):
            if "secret" in volume:
                yield "Secret", volume["secret"]["secretName"], ""
            if "configMap" in volume:
                yield "ConfigMap", volume["configMap"]["name"], ""
        for entry in (entry for container in containers(pod) for entry in container.get("env", [])):
            source = entry.get("valueFrom", {}).get("secretKeyRef")
            if source:
                yield "Secret", source["name"], source["key"]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield value


@rule
def labels_and_annotations_are_text(rendered: Rendered) -> Iterator[str]:
    metadata = [found["metadata"] for found in rendered.objects]
    metadata += [spec["template"].get("metadata", {}) for found in rendered.objects for _, spec in job_specs(found)]
    for each in metadata:
        yield from (f"label {pair}" for pair in (each.get("labels") or {}).items() if not _label_value(pair[1]))
        yield from (
            f"annotation {pair}" for pair in (each.get("annotations") or {}).items() if type(pair[1]) is not str
        )


def _label_value(value: object) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value))


@rule
def a_queue_starts_the_job_and_nothing_else_suspends_it(rendered: Rendered) -> Iterator[str]:
    queue = (rendered.jobset["metadata"].get("labels") or {}).get("kueue.x-k8s.io/queue-name")
    if bool(rendered.jobset["spec"].get("suspend")) != bool(queue):
        yield f"suspend is {rendered.jobset['spec'].get('suspend')} with queue {queue}"


@rule
def nothing_is_null(rendered: Rendered) -> Iterator[str]:
    """What is not said is left out: a null may mean something else to an API server."""
    for found in rendered.objects:
        yield from (f"{found['kind']} {found['metadata']['name']}{place} is null" for place in nulls(found))


def nulls(value: Any, place: str = "") -> Iterator[str]:
    if value is None:
        yield place
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from nulls(item, f"{place}.{key}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from nulls(item, f"{place}[{at}]")
