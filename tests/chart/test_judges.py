"""The judges of the chart's objects find what is wrong: schemas, the JobSet's model, and our own rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from pydantic import ValidationError

from tests.chart import pod_rules, reference_rules, rules, schemas
from tests.chart.every_rule import RULES
from tests.chart.helm import Engines, Helm4, Object, Rendered


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


def with_jobset(rendered: Rendered, found: Object) -> Rendered:
    others = {name: text for name, text in rendered.sources.items() if "kind: JobSet" not in text}
    return replace(rendered, sources={**others, "broken": json.dumps(found)})


@pytest.fixture
def rendered(engines: Engines) -> Rendered:
    """One with every kind of object that the chart makes."""
    flags = ("workload.env.HF_TOKEN=canary", "volumes.nfs.ip=10.0.0.2", "task_script=echo", "queue=a4")
    return engines.with_values(*(word for flag in flags for word in ("--set", flag)))


def test_the_sample_is_good_and_has_every_kind(rendered: Rendered) -> None:
    kinds = {found["kind"] for found in rendered.objects}
    assert kinds >= {"ConfigMap", "Job", "JobSet", "PersistentVolume", "PersistentVolumeClaim", "Secret"}
    assert [said for found in rendered.objects for said in schemas.problems(found)] == []
    assert [said for check in RULES for said in check(rendered)] == []


@pytest.mark.parametrize("kind", ["ConfigMap", "Job", "PersistentVolume", "PersistentVolumeClaim", "Secret"])
def test_schemas_know_no_other_fields(rendered: Rendered, kind: str) -> None:
    found = {**rendered.kind(kind)[0], "specs": {}}
    assert len(schemas.problems(found)) == len(schemas.VERSIONS)


def test_schemas_judge_the_jobs_of_a_jobset(rendered: Rendered) -> None:
    found = json.loads(json.dumps(rendered.jobset))
    job(found)["backoffLimit"] = "none"
    (alone,) = schemas.jobs_of(found)
    assert any("backoffLimit" in said for said in schemas.core_problems(alone))


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (lambda found: found, ".spek"),
        (lambda found: found["spec"], ".spec.spek"),
        (lambda found: found["spec"]["network"], ".spec.network.spek"),
        (job, "].template.spec.spek"),
        (pod, ".template.spec.spek"),
        (lambda found: pod(found)["containers"][0], ".containers[0].spek"),
        (lambda found: pod(found)["volumes"][0], ".volumes[0].spek"),
    ],
)
def test_the_model_finds_unknown_fields(rendered: Rendered, place: Callable[[Object], Object], wrong: str) -> None:
    found = json.loads(json.dumps(rendered.jobset))
    place(found)["spek"] = 1
    assert [said for said in schemas.unknown_in_jobset(found) if said.endswith(wrong + " is not known")]


def test_the_model_finds_wrong_types(rendered: Rendered) -> None:
    found = json.loads(json.dumps(rendered.jobset))
    found["spec"]["suspend"] = "yes"
    with pytest.raises(ValidationError, match="suspend"):
        schemas.unknown_in_jobset(found)


def add_volume(found: Object, **volume: Any) -> None:
    pod(found)["volumes"].append({"name": "added", **volume})
    pod(found)["containers"][0]["volumeMounts"].append({"name": "added", "mountPath": "/added"})


BREAKS: dict[rules.Rule, Callable[[Object], object]] = {
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


@pytest.mark.parametrize("check", BREAKS, ids=lambda check: check.__name__)
def test_a_rule_finds_what_breaks_it(rendered: Rendered, check: rules.Rule) -> None:
    found = json.loads(json.dumps(rendered.jobset))
    BREAKS[check](found)
    assert check(with_jobset(rendered, found))


TWICE: dict[str, Object] = {
    "env": {"name": "NNODES"},
    "ports": {"containerPort": 2222, "protocol": "TCP", "name": "again"},
    "volumeMounts": {"name": "gib", "mountPath": "/dev/shm"},
    "volumes": {"name": "gib"},
    "imagePullSecrets": {"name": "mine"},
}


@pytest.mark.parametrize("key", TWICE)
def test_a_rule_finds_entries_that_the_api_server_takes_for_one(engines: Engines, key: str) -> None:
    rendered = engines.with_values("--set", "imagePullSecrets={mine}")
    found = json.loads(json.dumps(rendered.jobset))
    holder = pod(found) if key in pod(found) else pod(found)["containers"][0]
    holder[key].append(TWICE[key])
    (said,) = rules.no_list_has_two_entries_of_one_key(with_jobset(rendered, found))
    assert f" {key}: " in said


def test_a_rule_takes_two_ports_of_one_number_and_tolerations_alike(rendered: Rendered) -> None:
    found = json.loads(json.dumps(rendered.jobset))
    pod(found)["containers"][0]["ports"].append({"containerPort": 2222, "protocol": "UDP"})
    pod(found)["tolerations"].append(pod(found)["tolerations"][0])
    assert rules.no_list_has_two_entries_of_one_key(with_jobset(rendered, found)) == []


def test_the_keys_of_lists_are_those_of_kubernetes() -> None:
    """As far as lists of these names are in pods."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{schemas.VERSIONS[1]}-local"
    for name in ("podspec-v1.json", "container-v1.json"):
        known = json.loads((folder / name).read_text())["properties"]
        keys = {key: tuple(one.get("x-kubernetes-list-map-keys", ())) for key, one in known.items()}
        wanted = {key: of for key, of in keys.items() if of and key != "ephemeralContainers"}
        assert {key: rules.LIST_MAPS.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("name", "key", "good"),
    [("mine", "t", True), ("mine", "other", False), ("decoy", "t", False), ("demo-job-secret", "t", False)],
)
def test_a_secret_is_the_user_s_only_by_a_value_that_is_for_secrets(
    engines: Engines, name: str, key: str, good: bool
) -> None:
    secret = "workload.envFromSecrets.A.secret=mine,workload.envFromSecrets.A.key=t"
    rendered = engines.with_values("--set", f"workload.env.WHO=decoy,{secret}")
    found = json.loads(json.dumps(rendered.jobset))
    (entry,) = [entry for entry in pod(found)["containers"][0]["env"] if entry["name"] == "A"]
    entry["valueFrom"]["secretKeyRef"] = {"name": name, "key": key}
    assert (reference_rules.every_secret_and_config_map_exists(with_jobset(rendered, found)) == []) == good


def test_a_rule_finds_an_object_made_twice(rendered: Rendered) -> None:
    assert rules.no_object_is_made_twice(
        replace(rendered, sources={**rendered.sources, "2": json.dumps(rendered.jobset)})
    )


def test_a_rule_finds_a_volume_for_another_claim(rendered: Rendered) -> None:
    (volume,) = json.loads(json.dumps(rendered.kind("PersistentVolume")))
    others = {name: text for name, text in rendered.sources.items() if "kind: PersistentVolume\n" not in text}
    claims = {"claims": json.dumps(rendered.kind("PersistentVolumeClaim")[0])}
    good = replace(rendered, sources={**others, **claims, "volume": json.dumps(volume)})
    assert not reference_rules.claims_and_volumes_name_each_other(good)
    volume["spec"]["claimRef"]["namespace"] = "default"
    assert reference_rules.claims_and_volumes_name_each_other(
        replace(good, sources={**good.sources, "volume": json.dumps(volume)})
    )


def test_every_rule_is_shown_to_fail() -> None:
    alone = {rules.no_object_is_made_twice, reference_rules.claims_and_volumes_name_each_other}
    assert set(RULES) - set(BREAKS) == alone


def test_a_library_that_hangs_does_not_hang_the_tests(engines: Engines) -> None:
    hanging = Helm4(engines.helm3, ("sleep", "1000"), seconds=0.05)
    with pytest.raises(TimeoutError, match="has not answered"):
        hanging.ask("render")
    hanging.close()
