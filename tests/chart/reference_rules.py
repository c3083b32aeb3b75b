"""Our own rules for what objects of the chart refer to: claims, volumes, Secrets and ConfigMaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.chart.helm import Object, Rendered
from tests.chart.rules import containers, pods, rule

OLD_CLAIMS = ("nfs-pvc", "lustre-pvc")

Reference = tuple[str, str, str]
"""Kind, name and, if one is wanted, key."""


@rule
def every_claim_exists(rendered: Rendered) -> Iterator[str]:
    """Made by the chart, or named by the user."""
    there = {found["metadata"]["name"] for found in rendered.kind("PersistentVolumeClaim")}
    there |= {str(claim["claimName"]) for claim in users_claims(rendered)}
    for pod in pods(rendered):
        for volume in pod.get("volumes", []):
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and claim not in there:
                yield f"nobody makes the claim {claim}"


def users_claims(rendered: Rendered) -> list[Object]:
    volumes = group(rendered, "volumes")
    mounts = [mount for mount in volumes.get("pvcMounts") or [] if mount]
    old = [*OLD_CLAIMS, f"{rendered.words.release}-lustre-pvc"]
    extra = [volume.get("persistentVolumeClaim") for volume in volumes.get("extra") or []]
    named = [mount for mount in mounts if mount.get("own") or mount["claimName"] not in old]
    return [*named, *(claim for claim in extra if claim)]


def group(rendered: Rendered, key: str) -> dict[str, Any]:
    """One group of the values that were given."""
    return rendered.values.get(key) or {}


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
def every_claim_of_devices_has_its_template_and_is_used(rendered: Rendered) -> Iterator[str]:
    templates = {found["metadata"]["name"] for found in rendered.kind("ResourceClaimTemplate")}
    claimed = dict[str, str]()
    for pod in pods(rendered):
        claims = {claim["name"]: claim["resourceClaimTemplateName"] for claim in pod.get("resourceClaims", [])}
        used = {claim["name"] for one in containers(pod) for claim in one.get("resources", {}).get("claims", [])}
        if used != set(claims):
            yield f"the pod claims {sorted(claims)}, and its containers {sorted(used)}"
        claimed |= claims
    if templates != set(claimed.values()):
        yield f"there are templates {sorted(templates)}, and claims of {sorted(claimed.values())}"


@rule
def every_secret_and_config_map_exists(rendered: Rendered) -> Iterator[str]:
    """Made by the chart, with that key, or named by the user in a value that is for it."""
    made = {
        (found["kind"], found["metadata"]["name"]): {**found.get("data", {}), **found.get("stringData", {})}
        for found in rendered.objects
    }
    users = set(users_references(rendered))
    for kind, name, key in references(rendered):
        if (kind, name, key) in users:
            continue
        if (kind, name) not in made:
            yield f"nobody makes {kind} {name} with {key or 'anything'}"
        elif key and key not in made[kind, name]:
            yield f"{kind} {name} has no {key}"


def references(rendered: Rendered) -> Iterator[Reference]:
    for pod in pods(rendered):
        yield from of_volumes(pod.get("volumes", []))
        for container in containers(pod):
            yield from of_variables(container.get("env", []))


def users_references(rendered: Rendered) -> Iterator[Reference]:
    workload = group(rendered, "workload")
    if name := group(rendered, "secret").get("name"):
        yield "Secret", str(name), "job-secret"
    for source in (workload.get("envFromSecrets") or {}).values():
        yield "Secret", str(source["secret"]), str(source["key"])
    yield from of_variables(workload.get("envs") or [])
    yield from of_variables(group(rendered, "network").get("ncclSettings") or [])
    yield from of_volumes(group(rendered, "volumes").get("extra") or [])


def of_volumes(volumes: Iterable[Object]) -> Iterator[Reference]:
    for volume in volumes:
        for kind, source, name in (("Secret", "secret", "secretName"), ("ConfigMap", "configMap", "name")):
            if source in volume:
                items = volume[source].get("items") or [{"key": ""}]
                yield from ((kind, volume[source][name], item["key"]) for item in items)


def of_variables(entries: Iterable[Object | None]) -> Iterator[Reference]:
    for entry in filter(None, entries):
        source = entry.get("valueFrom") or {}
        for kind, reference in (("Secret", "secretKeyRef"), ("ConfigMap", "configMapKeyRef")):
            if reference in source:
                yield kind, source[reference]["name"], source[reference]["key"]
