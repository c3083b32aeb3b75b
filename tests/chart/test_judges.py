"""Each rule for the chart's objects finds what breaks it. A real API server judges them too, in tests/kubernetes."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from tests.chart import pod_rules, reference_rules, rules, schemas
from tests.chart.every_rule import RULES
from tests.chart.helm import Engines, Object


def job(found: Object) -> Object:
    spec: Object = found["spec"]["replicatedJobs"][0]["template"]["spec"]
    return spec


def pod(found: Object) -> Object:
    spec: Object = job(found)["template"]["spec"]
    return spec


def env(found: Object, **changed: Any) -> None:
    variables = pod(found)["containers"][0]["env"]
    for name, value in changed.items():
        variables[:] = [entry for entry in variables if entry["name"] != name] + [{"name": name, "value": value}]


def add_volume(found: Object, **volume: Any) -> None:
    pod(found)["volumes"].append({"name": "added", **volume})
    pod(found)["containers"][0]["volumeMounts"].append({"name": "added", "mountPath": "/added"})


BREAKS: dict[rules.Rule, Callable[[Object], object]] = {
    schemas.kubernetes_takes_every_object: lambda found: pod(found)["containers"][0].update(spek=1),
    pod_rules.every_a4_variable_is_a_setting: lambda found: env(found, A4_UNKNOWN="1"),
    rules.names_of_objects_are_valid: lambda found: found["metadata"].update(name="a.b"),
    rules.names_of_objects_begin_with_the_release_s: lambda found: found["metadata"].update(name="demon-scripts"),
    rules.names_in_pods_are_labels: lambda found: pod(found)["volumes"][0].update(name="my.bucket"),
    rules.generated_pod_names_fit: lambda found: found["metadata"].update(name="a" * 50),
    rules.everything_is_in_the_namespace_of_the_release: lambda found: found["metadata"].update(namespace="default"),
    rules.every_mount_has_its_volume_and_every_volume_a_mount: lambda found: pod(found)["volumes"].pop(),
    rules.no_two_volumes_are_in_one_place: lambda found: pod(found)["containers"][0]["volumeMounts"].append(
        pod(found)["containers"][0]["volumeMounts"][0]
    ),
    reference_rules.every_claim_exists: lambda found: add_volume(found, persistentVolumeClaim={"claimName": "nfs-pvc"}),
    reference_rules.every_claim_of_devices_has_its_template_and_is_used: lambda found: pod(found).update(
        resourceClaims=[{"name": "rdma", "resourceClaimTemplateName": "none"}]
    ),
    reference_rules.every_secret_and_config_map_exists: lambda found: add_volume(found, configMap={"name": "none"}),
    rules.no_list_has_two_entries_of_one_key: lambda found: pod(found)["containers"][0]["env"].append(
        pod(found)["containers"][0]["env"][0]
    ),
    pod_rules.values_of_variables_are_text: lambda found: env(found, NUMBER=8),
    rules.labels_and_annotations_are_text: lambda found: found["metadata"]["labels"].update(version=1),
    pod_rules.the_pods_are_told_what_they_are: lambda found: job(found).update(parallelism=3),
    pod_rules.the_agent_takes_the_settings_of_every_pod: lambda found: env(found, A4_LOG_LEVEL="loud"),
    pod_rules.probes_start_no_python: lambda found: pod(found)["containers"][0].update(
        livenessProbe={"exec": {"command": ["a4-agent", "status"]}}
    ),
    pod_rules.variables_of_the_user_are_named_to_the_agent: lambda found: env(found, A4_USER_ENV="NOT_SET"),
    pod_rules.variables_from_secrets_are_named_to_the_agent: lambda found: env(found, A4_SECRET_ENV="NOT_SET"),
    rules.a_queue_starts_the_job_and_nothing_else_suspends_it: lambda found: found["spec"].pop("suspend"),
    pod_rules.only_the_first_container_has_gpus: lambda found: pod(found)["containers"].insert(0, {"name": "sidecar"}),
    rules.nothing_is_null: lambda found: found["spec"].update(ttlSecondsAfterFinished=None),
}
"""What is done to the JobSet."""


def another_claim(objects: list[Object]) -> None:
    (volume,) = (found for found in objects if found["kind"] == "PersistentVolume")
    volume["spec"]["claimRef"]["namespace"] = "default"


BREAKS_OTHERS: dict[rules.Rule, Callable[[list[Object]], object]] = {
    rules.no_object_is_made_twice: lambda objects: objects.append(objects[0]),
    reference_rules.claims_and_volumes_name_each_other: another_claim,
}


def test_a_rule_finds_what_breaks_it(engines: Engines) -> None:
    """In a release with every kind of object that the chart makes."""
    rendered = engines.with_settings("workload.env.HF_TOKEN=canary,volumes.nfs.ip=10.0.0.2,task_script=echo,queue=a4")
    silent = set(RULES)
    for check in {**BREAKS, **BREAKS_OTHERS}:
        objects = deepcopy(rendered.objects)
        if check in BREAKS:
            BREAKS[check](next(found for found in objects if found["kind"] == "JobSet"))
        else:
            BREAKS_OTHERS[check](objects)
        if check(replace(rendered, sources={str(at): json.dumps(found) for at, found in enumerate(objects)})):
            silent.remove(check)
    assert [check.__name__ for check in silent] == []
