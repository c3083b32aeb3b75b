"""Install, upgrade, `helm test` and uninstall with both clients, against an API server (see api.py for what it is)."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chart.helm import CHART, ENGINES, IMAGE, Engines, Helm3, HelmRefused, Words, older_chart, sets
from tests.chart.objects import Place, Refused, Store

FLAGS = sets(f"workload.image={IMAGE}", "volumes.nfs.ip=10.0.0.2", "task_script=echo", "workload.env.HF_TOKEN=canary")
ALL = {
    "ConfigMap/demo-scripts",
    "JobSet/demo",
    "PersistentVolume/team-a.demo-nfs",
    "PersistentVolumeClaim/demo-nfs",
    "Secret/demo-env",
    "Secret/demo-job-secret",
    "Service/demo",  # which JobSet's controller makes
    "Service/demo-helm-test",
}


STORED = (("Secret", "demo-job-secret"), ("PersistentVolumeClaim", "demo-nfs"), ("PersistentVolume", "team-a.demo-nfs"))


Helm = Callable[[str, Words], object]
"""`install`, `upgrade`, `rollback`, `test` or `uninstall` a release."""


@pytest.fixture(params=ENGINES)
def helm(request: pytest.FixtureRequest, engines: Engines, cluster: tuple[Store, Path]) -> Helm:
    kubeconfig = cluster[1]
    command_line = Helm3(engines.helm3.home, kubeconfig)

    def helm3(verb: str, words: Words) -> None:
        what = [*words.flags, words.release, words.chart] if verb in ("install", "upgrade") else [words.release]
        command_line.done(verb, "-n", words.namespace, *what)

    def helm4(verb: str, words: Words) -> None:
        made_of = [words.chart, engines.helm4.values(words)] if verb in ("install", "upgrade") else []
        engines.helm4.ask("of_release", verb, str(kubeconfig), words.namespace, words.release, *made_of)

    return helm3 if request.param == "helm3" else helm4


on_helm_4 = pytest.mark.parametrize("helm", ["helm4"], indirect=True)
"""For what the chart's objects decide, and not how a client handles them."""


@pytest.fixture
def store(cluster: tuple[Store, Path]) -> Store:
    return cluster[0]


def release(*settings: str, name: str = "demo") -> Words:
    return Words((*FLAGS, *sets(*settings)), name, namespace="team-a")


def job_secret(store: Store, name: str = "demo") -> str:
    text: str = store.object("Secret", f"{name}-job-secret")["data"]["job-secret"]
    return text


def gone(store: Store, kind: str, name: str) -> None:
    """Somebody has deleted it."""
    (place,) = [place for place in store.objects if (place.kind, place.name) == (kind, name)]
    with store.changed:
        store.delete(place)


def token(store: Store) -> str:
    return base64.b64decode(store.object("Secret", "demo-env")["data"]["HF_TOKEN"]).decode()


def test_a_release_from_its_install_to_its_end(helm: Helm, store: Store, tmp_path: Path) -> None:
    with pytest.raises(HelmRefused):
        helm("install", release("workload.gpus=12"))
    assert store.names(helms_own=True) == set(), "refused values leave nothing behind"
    helm("install", release())
    assert store.names() == ALL
    secret, pods = job_secret(store), store.object("JobSet", "demo")["spec"]
    # Pods of a JobSet cannot be changed, and Helm patches what they mount or read before JobSet refuses.
    refused = {"task_script=echo again": "the script", "workload_config=a": "workload_config", "queue=other": "queue"}
    refused |= {"workload.env.HF_TOKEN=another": "HF_TOKEN in Secret demo-env; nothing was changed"}
    for setting, what in refused.items():
        with pytest.raises(HelmRefused, match=f"has started, and an upgrade cannot change {what}"):
            helm("upgrade", release(setting))
        assert store.names() == ALL
    assert token(store) == "canary"
    (script,) = store.object("ConfigMap", "demo-scripts")["data"].values()
    assert script == "echo"
    helm("upgrade", release("queue="))
    newer = tmp_path / "chart"
    shutil.copytree(CHART, newer)
    about = newer / "Chart.yaml"
    about.write_text(re.sub(r"(?m)^(version|appVersion): .*", r"\1: 9.8.7", about.read_text()))
    helm("upgrade", replace(release(), chart=str(newer)))
    upgraded = store.object("JobSet", "demo")
    assert upgraded["metadata"]["labels"]["app.kubernetes.io/version"] == "9.8.7"
    assert (job_secret(store), upgraded["spec"], store.names()) == (secret, pods, ALL)
    helm("uninstall", release())
    assert store.names(helms_own=True) == set()


@on_helm_4
def test_a_tool_that_renders_without_the_cluster_cannot_change_the_job_secret(
    helm: Helm, store: Store, engines: Engines
) -> None:
    helm("install", release())
    before = job_secret(store)
    another = engines.with_values().one("Secret", "-job-secret")
    assert another["data"]["job-secret"] != before
    with pytest.raises(Refused, match="immutable"):
        store.put(Place("v1", "secrets", "team-a", "demo-job-secret"), another)
    assert job_secret(store) == before


@on_helm_4
def test_an_upgrade_from_a_chart_with_other_pods_is_refused_and_nothing_is_lost(
    helm: Helm, store: Store, tmp_path: Path
) -> None:
    """docs/chart.md says what to do then."""
    older = tmp_path / "chart"
    shutil.copytree(CHART, older)
    jobset = older / "templates" / "jobset.yaml"
    jobset.write_text(jobset.read_text().replace("enableServiceLinks: false", "enableServiceLinks: true"))
    helm("install", replace(release(), chart=str(older)))
    kept, secret = [store.object(*name)["metadata"]["uid"] for name in STORED], job_secret(store)
    with pytest.raises(HelmRefused, match="field is immutable"):
        helm("upgrade", release())
    assert [store.object(*name)["metadata"]["uid"] for name in STORED] == kept
    assert job_secret(store) == secret
    helm("uninstall", release())
    helm("install", release())
    assert store.names() == ALL


@on_helm_4
def test_a_job_that_has_not_started_takes_another_queue_and_script(helm: Helm, store: Store) -> None:
    helm("install", release("queue=one"))
    jobset = store.object("JobSet", "demo")
    assert jobset["spec"]["suspend"], "until Kueue admits it"
    helm("upgrade", release("queue=other", "task_script=echo again", "workload.env.HF_TOKEN=another"))
    assert token(store) == "another"
    assert store.object("JobSet", "demo")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "other"
    (script,) = store.object("ConfigMap", "demo-scripts")["data"].values()
    assert script == "echo again"


@on_helm_4
def test_a_job_that_has_ended_takes_another_token_and_one_that_goes_on_gets_back_its_secret(
    helm: Helm, store: Store
) -> None:
    helm("install", release())
    gone(store, "Secret", "demo-env")
    helm("upgrade", release())
    assert token(store) == "canary"
    store.object("JobSet", "demo")["status"] = {"terminalState": "Completed"}
    helm("upgrade", release("workload.env.HF_TOKEN=another"))
    assert token(store) == "another"


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_rollback_across_versions_of_the_chart(helm: Helm, store: Store, tmp_path: Path, has_ended: bool) -> None:
    """One job has ended and its JobSet is gone, where the older chart has other pods. The other waits for Kueue."""
    queue = "" if has_ended else "queue=one"
    older = older_chart(tmp_path, other_pods=has_ended)

    def ends() -> None:
        if has_ended:
            gone(store, "JobSet", "demo")

    helm("install", replace(release(queue), chart=str(older)))
    before, secret = store.names(), job_secret(store)
    assert (before == ALL) != has_ended
    ends()
    helm("upgrade", release(queue, "task_script=echo again", "workload.env.HF_TOKEN=another"))
    assert (store.names(), token(store), job_secret(store)) == (ALL, "another", secret)
    ends()
    helm("rollback", release())
    assert (store.names(), token(store), job_secret(store)) == (before, "canary", secret)
    assert store.object("JobSet", "demo")["metadata"]["labels"]["app.kubernetes.io/version"] == "0.0.9"


@on_helm_4
def test_an_existing_secret_is_left_alone(helm: Helm, store: Store) -> None:
    helm("install", release("secret.name=mine"))
    assert store.names() == ALL - {"Secret/demo-job-secret"}


@on_helm_4
def test_no_release_starts_whose_service_another_has(helm: Helm, store: Store) -> None:
    """JobSet would take a Service that is there for its own, and names of pods would lead nowhere."""
    with pytest.raises(HelmRefused):
        helm("install", release(name="nccl-helm-test"))
    assert store.names() == set()


@on_helm_4
def test_a_release_and_its_helm_test_leave_other_releases_alone(helm: Helm, store: Store) -> None:
    """Also those that are named as the objects of this one's test could be."""

    def uids() -> dict[Place, str]:
        return {place: kept["metadata"]["uid"] for place, kept in store.objects.items()}

    others = ("nccl-test", "nccl-helm")
    for name in others:
        helm("install", release(name=name))
    before = uids()
    helm("install", release(name="nccl"))
    assert store.names() == {one.replace("demo", name) for name in (*others, "nccl") for one in ALL}
    assert len({job_secret(store, name) for name in (*others, "nccl")}) == 3
    for name in (*others, "nccl"):
        assert store.object("Service", name)["spec"]["selector"] == {"jobset.sigs.k8s.io/jobset-name": name}
    helm("test", release(name="nccl"))
    helm("test", release(name="nccl"))
    assert before.items() <= uids().items()
    helm("uninstall", release(name="nccl"))
    assert before.items() <= uids().items()


def test_helm_test_ends_as_its_job_and_can_be_tried_again(helm: Helm, store: Store) -> None:
    helm("install", release())
    store.job_ends = "Failed"
    with pytest.raises(HelmRefused, match=r"(?i)failed"):
        helm("test", release())
    store.job_ends = "Complete"
    helm("test", release())
    # Kubernetes removes the Job some time after its end; until then its pods' logs can be read.
    assert store.names() == ALL | {"Job/demo-helm-test-0"}


def test_the_job_of_helm_test_forms_a_cluster_of_its_own(engines: Engines) -> None:
    settings = "network.hostNetwork=false,volumes.gcsMounts[0].bucketName=b,queue=a4,podAnnotations.a=b"
    rendered = engines.with_settings("workload.gpus=16", settings)
    found, service = rendered.one("Job", "-helm-test-0"), rendered.one("Service", "-helm-test")
    job, labels = found["spec"], found["spec"]["template"]["metadata"]["labels"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    env = {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}
    assert f"{env['HOSTNAME_PREFIX']}0" == found["metadata"]["name"], (
        "the pods of an Indexed Job are <its name>-<index>"
    )
    assert (job["completions"], job["parallelism"], env["NNODES"]) == (2, 2, "2")
    assert pod["subdomain"] == service["metadata"]["name"] == "demo-helm-test"
    assert env["DOMAIN_NAME"] == "demo-helm-test.team-a.svc.cluster.local"
    assert env["A4_SSH_PORT"] == "2223"
    assert "nvidia.com/gpu" not in str(container.get("resources"))
    # One network is enough.
    assert job["template"]["metadata"]["annotations"] == {"a": "b"}
    assert "batch.kubernetes.io/controller-uid" in env["JOB_UUID"]["fieldRef"]["fieldPath"]
    # The Service finds the pods before they are ready, and not every pod of the namespace.
    by_controller = {"batch.kubernetes.io/job-name": "demo-helm-test-0", "job-name": "demo-helm-test-0"}
    assert service["spec"]["selector"].items() <= {**labels, **by_controller}.items()
    assert service["spec"]["selector"]
    assert (service["spec"]["publishNotReadyAddresses"], service["spec"]["clusterIP"]) == (True, "None")
    alone = engines.with_settings("workload.gpus=8")
    assert (alone.kind("Service"), alone.one("Job", "-helm-test-0")["spec"]["completions"]) == ([], 1)
