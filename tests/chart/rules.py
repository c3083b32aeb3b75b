"""Our own rules for what the chart makes of values. Each takes what was rendered and says what breaks it.

Here are those for objects; reference_rules.py has those for what they refer to, pod_rules.py those for variables and
containers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tests.chart.helm import Object, Rendered
from tests.chart.objects import CLUSTER_WIDE, RESOURCES

CLUSTER_KINDS = {kinds[name] for kinds in RESOURCES.values() for name in kinds if name in CLUSTER_WIDE}
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
# Keys of lists in which the API server takes no two entries alike. In JobSet's CRD that holds for env too, of which a
# Pod takes several. Tolerations are no such list.
LIST_MAPS = {
    "containers": ("name",),
    "env": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ports": ("containerPort", "protocol"),
    "replicatedJobs": ("name",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}

Name = TypeVar("Name")
Rule = Callable[[Rendered], Iterable[str]]
RULES: list[Rule] = []
"""To which each module with rules adds its own."""


def rule(check: Rule) -> Rule:
    RULES.append(check)
    return check


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


def repeated(names: Iterable[Name]) -> list[Name]:
    return [name for name, times in Counter(names).items() if times > 1]


@rule
def names_of_objects_are_valid(rendered: Rendered) -> Iterator[str]:
    """Host names are made of most of them. Volumes are the whole cluster's: a dot divides namespace and release."""
    for found in rendered.objects:
        name = found["metadata"]["name"]
        if not (SUBDOMAIN if found["kind"] in CLUSTER_KINDS else LABEL).fullmatch(name) or len(name) > 253:
            yield f"{found['kind']} {name}"


@rule
def names_of_objects_begin_with_the_release_s(rendered: Rendered) -> Iterator[str]:
    """So that two releases share no object."""
    own = rendered.words.release.replace(".", "-")
    for found in rendered.objects:
        kind, name = found["kind"], found["metadata"]["name"]
        start = f"{rendered.words.namespace}.{own}" if kind in CLUSTER_KINDS else own
        if name != start and not name.startswith(f"{start}-"):
            yield f"{kind} {name}"


@rule
def no_list_has_two_entries_of_one_key(rendered: Rendered) -> Iterator[str]:
    for found in rendered.objects:
        if found["kind"] in ("Job", "JobSet"):
            yield from (f"{found['kind']} {said}" for said in duplicates(found["spec"]))


def duplicates(value: Any, key: str = "") -> Iterator[str]:
    """Entries of lists below `value`, which is found under `key`, that the API server would take for one."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from duplicates(inner, name)
    elif isinstance(value, list):
        # Without a protocol it is TCP; a directory is the same with a slash.
        parts = LIST_MAPS.get(key, ())
        entries = [tuple(str(entry.get(part, "TCP")).rstrip("/") for part in parts) for entry in value if parts]
        yield from (f"{key}: {' '.join(entry)} twice" for entry in repeated(entries))
        for inner in value:
            yield from duplicates(inner)


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
        yield from (f"no volume {mount['name']}" for mount in mounts if mount["name"] not in volumes)
        used = {mount["name"] for mount in mounts}
        # GKE's sidecar has the only mounts of its own volumes.
        unused = [name for name in volumes if name not in used and not name.startswith("gke-")]
        yield from (f"volume {name} is mounted nowhere" for name in unused)


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
