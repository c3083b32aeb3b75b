"""What users add to the JobSet, to its pods and to the release, beside what the chart itself has there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import Engines, Rendered
from tests.chart.rules import pods

Object = dict[str, Any]

MUST = "requiredDuringSchedulingIgnoredDuringExecution"


def given(engines: Engines, directory: Path, values: Object) -> Rendered:
    """Settings of a values file: these are nothing to type."""
    path = directory / f"{len(list(directory.iterdir()))}.yaml"
    path.write_text(yaml.safe_dump(values))
    return engines.with_values("-f", str(path))


def test_labels_and_annotations_are_where_they_are_read(engines: Engines, tmp_path: Path) -> None:
    """Kueue reads the WorkloadPriorityClass of a JobSet from its own labels. Pods of helm test have those of pods."""
    kinds = ("jobLabels", "jobAnnotations", "podLabels", "podAnnotations")
    own = {kind: {f"example.com/{kind}": "1"} for kind in kinds}
    own["jobLabels"]["kueue.x-k8s.io/priority-class"] = "low"
    rendered = given(engines, tmp_path, {**own, "queue": "a4", "dwsSettings": {"maxRunDurationSeconds": 60}})
    users = {name for each in own.values() for name in each}

    def found(place: Object) -> list[Object]:
        both = (place["metadata"]["labels"], place["metadata"]["annotations"])
        return [{name: value for name, value in each.items() if name in users} for each in both]

    of_pods = [own["podLabels"], own["podAnnotations"]]
    assert found(rendered.jobset) == [own["jobLabels"], own["jobAnnotations"]]
    assert found(rendered.job["template"]) == of_pods
    assert found(rendered.one("Job", "-helm-test-0")["spec"]["template"]) == of_pods
    # Beside the chart's own.
    assert rendered.jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "a4"
    assert "provreq.kueue.x-k8s.io/maxRunDurationSeconds" in rendered.jobset["metadata"]["annotations"]


def test_every_term_of_nodes_holds_beside_the_nodes_that_are_named(engines: Engines, tmp_path: Path) -> None:
    team, fast = ({"key": key, "operator": "Exists"} for key in ("team", "fast"))
    fields: Object = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    avoid = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-7"]}
    target = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "b"]}
    two: list[Object] = [{"matchExpressions": [team]}, {"matchExpressions": [fast], **fields}]
    wanted: list[tuple[Object, list[Object], list[Object]]] = [
        ({}, [], []),
        ({}, two, two),
        ({"avoidNodes": ["node-7"]}, [], [{"matchExpressions": [avoid]}]),
        (
            {"avoidNodes": ["node-7"]},
            two,
            [{"matchExpressions": [team, avoid]}, {"matchExpressions": [fast, avoid], **fields}],
        ),
        ({"targetNodes": ["a", "b"]}, [fields], [{"matchExpressions": [target], **fields}]),
    ]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": two[0]}]}
    apart = {MUST: [{"topologyKey": "rack", "labelSelector": {}}]}
    for nodes, terms, held in wanted:
        must = {MUST: {"nodeSelectorTerms": terms}} if terms else {}
        affinity = {"nodeAffinity": {**preferred, **must}, "podAntiAffinity": apart}
        rendered = given(engines, tmp_path, {"workload": {"gpus": 16}, "affinity": affinity, **nodes})
        of_nodes = {**preferred, **({MUST: {"nodeSelectorTerms": held}} if held else {})}
        assert rendered.pod["affinity"] == {"nodeAffinity": of_nodes, "podAntiAffinity": apart}
        # The test's pods keep off each other, and prefer the job's.
        test = pods(rendered)[1]["affinity"]
        assert (test["nodeAffinity"], test["podAntiAffinity"] == apart) == (of_nodes, False)
    assert "affinity" not in engines.with_values().pod


def test_every_pod_of_the_release_is_run_as_the_values_say(engines: Engines, tmp_path: Path) -> None:
    pod = {
        "runtimeClassName": "gvisor",
        "schedulerName": "mine",
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["10.0.0.10"], "options": [{"name": "ndots", "value": "2"}]},
    }
    security, init = {"fsGroup": 1000}, {"runAsUser": 0}
    values = {**pod, "podSecurityContext": security, "initContainerSecurityContext": init}
    rendered = given(engines, tmp_path, {**values, "workload": {"agentImage": "registry.example/agent:1"}})
    for each in pods(rendered):
        assert {key: each.get(key) for key in pod} == pod
        assert each["securityContext"] == security
        assert [container["securityContext"] for container in each["initContainers"]] == [init] * len(
            each["initContainers"]
        )
    assert [len(each["initContainers"]) for each in pods(rendered)] == [2, 1]
    # As before, without any of them.
    for each in pods(engines.with_settings("workload.agentImage=registry.example/agent:1")):
        assert not {"runtimeClassName", "schedulerName", "dnsConfig", "securityContext"} & each.keys()
        assert "securityContext" not in each["initContainers"][0]


def test_a_deadline_ends_the_job_and_is_no_reason_to_restart_it(engines: Engines) -> None:
    """JobSet would restart a Job that has failed for a reason of which its rules say nothing."""
    wanted = {
        "": (None, ["finalExitCode"]),
        "workload.activeDeadlineSeconds=3600": (3600, ["deadline", "finalExitCode"]),
        "workload.activeDeadlineSeconds=60,workload.max_workload_restarts=3,workload.lives=2": (
            60,
            ["deadline", "startsAnew", "finalExitCode"],
        ),
        "workload.lives=2,workload.restartOn={any}": (None, []),
        "workload.activeDeadlineSeconds=0060,workload.lives=2,workload.restartOn={any}": (60, ["deadline"]),
    }

    def said(rendered: Rendered) -> tuple[int | None, list[str]]:
        rules = rendered.jobset["spec"]["failurePolicy"].get("rules", [])
        ends = {"name": "deadline", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
        assert [rule for rule in rules if rule["name"] == "deadline"] in ([], [ends])
        return rendered.job.get("activeDeadlineSeconds"), [rule["name"] for rule in rules]

    assert engines.facts(said, wanted) == wanted


def test_containers_of_one_s_own_run_after_those_of_the_chart_and_none_keeps_the_job_from_its_end(
    engines: Engines, tmp_path: Path
) -> None:
    first = {"name": "first", "image": "i:1", "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}]}
    early = {"name": "early", "image": "i:1", "restartPolicy": "Always"}
    beside = {"name": "beside", "image": "i:1", "ports": [{"containerPort": 9400}]}
    values = {"initContainers": [None, first, early], "sidecars": [beside], "network": {"tcpx": {"enabled": True}}}
    job, test = pods(given(engines, tmp_path, {**values, "workload": {"agentImage": "registry.example/agent:1"}}))
    names = [container["name"] for container in job["initContainers"]]
    assert names == ["a4-agent", "tcpx-daemon", "first", "early", "beside"]
    assert job["initContainers"][2:] == [first, early, {**beside, "restartPolicy": "Always"}]
    assert [container["name"] for container in job["containers"]] == ["workload"]
    assert [container["name"] for container in test["initContainers"]] == ["a4-agent"]


@pytest.mark.parametrize("text", [False, True], ids=["as objects", "as texts"])
def test_objects_of_one_s_own_are_filled_in(engines: Engines, tmp_path: Path, text: bool) -> None:
    name = "{{ .Release.Name }}-{{ .Values.queue }}"
    objects = [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": {"gpus": "{{ .Values.workload.gpus }}"}}
        for kind in ("ConfigMap", "Secret")
    ]
    extra: list[Any] = [None, yaml.safe_dump_all(objects), "{{ if not .Values.queue }}a: b{{ end }}"]
    rendered = given(engines, tmp_path, {"queue": "a4", "extraObjects": extra if text else objects})
    made = [found for found in rendered.objects if found["metadata"]["name"] == "demo-a4"]
    assert [(found["kind"], found["data"]) for found in made] == [
        ("ConfigMap", {"gpus": "32"}),
        ("Secret", {"gpus": "32"}),
    ]


def test_metrics_have_a_port_and_are_scraped_where_they_are_wanted(engines: Engines) -> None:
    """The name of the port is what Prometheus looks for: each job can have another number."""

    def shown(rendered: Rendered) -> Object:
        ports = {port["name"]: port["containerPort"] for port in rendered.workload["ports"]}
        monitors = {one["kind"]: one["spec"] for one in rendered.objects if one["kind"].startswith("PodMonitor")}
        return {
            "port": (rendered.env.get("A4_METRICS_PORT"), ports.get("a4-metrics")),
            "of": {kind: spec["selector"]["matchLabels"] for kind, spec in monitors.items()},
            "scraped": {kind: spec.get("endpoints") or spec["podMetricsEndpoints"] for kind, spec in monitors.items()},
        }

    none: Object = {"port": (None, None), "of": {}, "scraped": {}}
    job = {"jobset.sigs.k8s.io/jobset-name": "demo"}
    every = [{"port": "a4-metrics", "interval": "30s"}]
    wanted: dict[str, Object] = {
        "": none,
        "metrics=null": none,
        "metrics.port=9441": {**none, "port": ("9441", 9441)},
        "metrics.port=09441,metrics.podMonitor=true": {
            "port": ("9441", 9441),
            "of": {"PodMonitor": job},
            "scraped": {"PodMonitor": every},
        },
        "metrics.port=9441,metrics.podMonitoring=true,metrics.interval=2m": {
            "port": ("9441", 9441),
            "of": {"PodMonitoring": job},
            "scraped": {"PodMonitoring": [{"port": "a4-metrics", "interval": "2m"}]},
        },
    }
    assert engines.facts(shown, wanted) == wanted
