"""What the notes of a release say of values that do nothing, or not what they seem to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.helm import Engines, Rendered, sets

NOTES: dict[str, tuple[tuple[str, ...], str]] = {
    "an empty queue": (("queue=",), "queue is empty: the job starts without Kueue. If it came from a variable of your"),
    "an empty workload": (("workload.run=",), "workload.run is empty: if it came from a variable of your shell"),
    "gIB without a tag": (("network.gibVersion=registry.example/gib",), "network.gibVersion is latest"),
    "gIB of whatever day": (("network.gibVersion=latest",), "network.gibVersion is latest"),
    "Pai-Megatron without a place": (("pai_training_script=echo",), "storage that all pods share, and there is none"),
    "a sidecar's image without a bucket": (
        ("workload.gcsSidecarImage=registry.example/sidecar:1",),
        "workload.gcsSidecarImage does nothing without a bucket",
    ),
    "networks that are not used": (("network.subnetworks={a}",), "network.subnetworks are for hostNetwork: false"),
    "a bucket without a name": (
        ("volumes.gcsMounts[1].mountPath=/b",),
        "volumes.gcsMounts[1] has no bucketName: no bucket is mounted for it",
    ),
    "the old claim of an NFS that is off": (
        ("volumes.pvcMounts[0].claimName=nfs-pvc,volumes.pvcMounts[0].mountPath=/mnt",),
        "volumes.pvcMounts names nfs-pvc, but volumes.nfs is off",
    ),
    "a workspace on nothing": (
        ("workload.envs[7].value=/mnt",),
        "PAI_WORKSPACE_ROOT was /mnt, where nothing is mounted",
    ),
    "a configuration of the old charts": (
        ("workload.configFile=x.yaml",),
        "workload.configFile=x.yaml is the name of a file that is not given: add --set-file workload_config=x.yaml",
    ),
    "SLEEP_INFINITY of an old values file beside its opposite": (
        ("workload.envs[1].value=true", "workload.sleepInfinity=false"),
        "SLEEP_INFINITY is true and workload.sleepInfinity false",
    ),
    "a Filestore instance of the unified testbed": (
        ("workload.workflow.enabled=false", "volumes.nfs.ip=10.0.0.2", "volumes.nfs.instance=a"),
        "volumes.nfs.instance does nothing beside workload.workflow",
    ),
}


def notes(rendered: Rendered) -> list[str]:
    _, _, listed = rendered.notes.partition("Please note:\n")
    return listed.rstrip("\n").split("\n") if listed else []


def test_there_is_nothing_to_note_of_the_defaults(engines: Engines) -> None:
    assert notes(engines.with_values()) == []


@pytest.mark.parametrize("case", NOTES)
def test_what_does_nothing_is_noted(engines: Engines, case: str) -> None:
    settings, said = NOTES[case]
    (note,) = notes(engines.with_values(*sets(*settings)))
    assert note.startswith("- ") and said in note
    assert note.endswith(".")


NOTHING_TO_NOTE = {
    "no queue": "{queue: null}",
    "no run": "{workload: {run: null}}",
    "gIB by its digest": "{network: {gibVersion: 'registry.example/gib@sha256:abc'}}",
    "gIB of a registry with a port": "{network: {gibVersion: 'registry.example:5000/gib:v1'}}",
    "Pai-Megatron with a place": "{pai_training_script: echo, volumes: {nfs: {ip: 10.0.0.2}}}",
    "a workspace on the NFS": "{volumes: {nfs: {ip: 10.0.0.2}}, workload: {env: {PAI_WORKSPACE_ROOT: /mnt/me}}}",
}


@pytest.mark.parametrize("case", NOTHING_TO_NOTE)
def test_what_is_as_it_should_be_is_not_noted(engines: Engines, tmp_path: Path, case: str) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(NOTHING_TO_NOTE[case])
    assert notes(engines.with_values("-f", str(values))) == []


def test_an_image_of_gib_without_a_tag_is_latest_and_pulled_each_time(engines: Engines) -> None:
    flags = sets("network.gibVersion=registry.example:5000/gib")
    (installer,) = engines.with_values(*flags).pod["initContainers"]
    assert installer["image"] == "registry.example:5000/gib:latest"
    assert installer["imagePullPolicy"] == "Always"


def test_the_path_of_results_is_that_of_the_first_attempt(engines: Engines) -> None:
    rendered = engines.with_values(*sets("volumes.gcsMounts[0].bucketName=b"))
    env = {entry["name"]: entry.get("value") for entry in rendered.workload["env"]}
    uid = "$(kubectl get jobset -n team-a demo -o jsonpath='{.metadata.uid}')"
    assert f"gs://b/testbed-logs/{env['JOB_IDENTIFIER']}/{uid}.0.0" in rendered.notes
    own = engines.with_values(*sets("volumes.gcsMounts[0].bucketName=b,workload.env.A4_RESULTS_DIR=/gcs/mine"))
    assert "/gcs/mine in the pods" in own.notes


def test_notes_show_no_secret(engines: Engines) -> None:
    flags = sets("workload.env.HF_TOKEN=canary-0123456789", "workload.envs[2].value=canary-0123456789", "queue=")
    assert "canary" not in engines.with_values(*flags).notes
