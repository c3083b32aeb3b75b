"""What Kubernetes would take: its own schemas for core objects, and the JobSet API's model, without unknown fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import kubernetes_validate
from kubernetes_validate import utils
from referencing import Registry, Resource

from tests.chart.helm import Object, Rendered
from tests.chart.rules import rule

VERSIONS = ("1.29.0", kubernetes_validate.latest_version())
"""The first with native sidecars, and the newest known: what both take, those between take."""
WITH_CLAIMS = ("1.34.0", kubernetes_validate.latest_version())
"""The first that has claims of devices, and the newest known."""
WITH_SUCCESS = ("1.31.0", kubernetes_validate.latest_version())
"""The first that has a Job's successPolicy, which those before drop, and the newest known."""


@cache
def registry(version: str) -> Registry[Any]:
    """What the schemas of a version refer to, of which there are several megabytes: read and looked through once."""
    definitions = utils.schema_contents(f"{folder(version)}/_definitions.json", version)
    return (Resource.from_contents(definitions) @ Registry()).crawl()


@cache
def validator(kind: str, api_version: str, version: str) -> jsonschema.Draft202012Validator:
    """That of kubernetes_validate.validate(strict=True), which makes one anew for every object."""
    group, _, of_group = api_version.rpartition("/")
    name = "-".join(part for part in (kind.lower(), group.split(".")[0], of_group) if part)
    schema = utils.schema_contents(f"{folder(version)}/{name}.json", version)
    return jsonschema.Draft202012Validator(schema, registry=Resource.from_contents(schema) @ registry(version))


def folder(version: str) -> str:
    return f"kubernetes-json-schema/v{version}-local-strict"


@rule
def kubernetes_takes_every_object(rendered: Rendered) -> Iterator[str]:
    for found in rendered.objects:
        yield from problems(found)


def problems(found: Object) -> list[str]:
    """What is wrong with an object, by any of the versions."""
    if found["kind"] == "JobSet":
        return [*unknown_in_jobset(found), *(said for job in jobs_of(found) for said in core_problems(job))]
    if found["apiVersion"].startswith("monitoring."):
        from tests.chart import cluster_schemas  # which takes core_problems from here

        return list(cluster_schemas.problems(found))
    return core_problems(found)


def core_problems(found: Object) -> list[str]:
    return judged(json.dumps(found))


@cache
def judged(text: str) -> list[str]:
    """What is wrong with an object, of which there are many alike."""
    found, said = json.loads(text), []
    for version in versions_for(found):
        judge = validator(found["kind"], found["apiVersion"], version)
        wrong = jsonschema.exceptions.best_match(judge.iter_errors(found))
        if wrong:
            place = ".".join(str(step) for step in wrong.absolute_path)
            said.append(f"{version}: {found['kind']} {place}: {wrong.message}")
    return said


def versions_for(found: Object) -> tuple[str, ...]:
    job = found["spec"] if found["kind"] == "Job" else {}
    pod = job["template"]["spec"] if job else {}
    if found["apiVersion"].startswith("resource.") or "resourceClaims" in pod:
        return WITH_CLAIMS
    return WITH_SUCCESS if "successPolicy" in job else VERSIONS


def jobs_of(jobset: Object) -> list[Object]:
    """Its Jobs, as its controller would make them."""
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"{jobset['metadata']['name']}-{job['name']}-0"},
            "spec": job["template"]["spec"],
        }
        for job in jobset["spec"]["replicatedJobs"]
    ]


def unknown_in_jobset(jobset: Object) -> list[str]:
    """Raises pydantic's ValidationError for a wrong type; what the model does not know, it leaves out."""
    # Half a second to import, and only these tests need it.
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

    model = JobsetV1alpha2JobSet.from_dict(jobset)
    assert model
    return list(lost(jobset, model.to_dict()))


def lost(given: Any, taken: Any, place: str = "") -> Iterator[str]:
    """What was given and is not in what was taken."""
    if isinstance(given, dict) and isinstance(taken, dict):
        yield from (f"{place}.{key} is not known" for key in given if key not in taken)
        for key in given.keys() & taken.keys():
            yield from lost(given[key], taken[key], f"{place}.{key}")
    elif isinstance(given, list) and isinstance(taken, list) and len(given) == len(taken):
        for at, (one, other) in enumerate(zip(given, taken, strict=True)):
            yield from lost(one, other, f"{place}[{at}]")
    elif given != taken:
        yield f"{place} is {given!r}, and was taken as {taken!r}"
