"""What a pod of the chart is, beside what tests/chart/rules.py asks of every one."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import Exit
from tests.chart.helm import ENGINES, Engines, Rendered, sets

by_engine = pytest.mark.parametrize("engine", ENGINES)


def job(rendered: Rendered) -> dict[str, Any]:
    found: dict[str, Any] = rendered.jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    return found


def volume(rendered: Rendered, path: str) -> dict[str, Any]:
    return {key: value for key, value in rendered.mounts[path].items() if key != "name"}


@pytest.mark.parametrize(
    ("gpus", "pods", "each"), [(1, 1, 1), (4, 1, 4), (8, 1, 8), (16, 2, 8), (32, 4, 8), (1024, 128, 8)]
)
def test_pods_and_gpus(engines: Engines, gpus: int, pods: int, each: int) -> None:
    rendered = engines.with_values("--set", f"workload.gpus={gpus}", engine="helm4")
    assert (job(rendered)["completions"], job(rendered)["parallelism"]) == (pods, pods)
    assert rendered.workload["resources"]["limits"]["nvidia.com/gpu"] == each


def test_the_job_is_indexed_and_its_pods_are_tried_once(engines: Engines) -> None:
    made = job(engines.with_values())
    assert (made["completionMode"], made["backoffLimit"]) == ("Indexed", 0)
    assert made["template"]["spec"]["restartPolicy"] == "Never"


def test_the_agent_starts_under_tini(engines: Engines) -> None:
    assert engines.with_values().workload["command"] == ["tini", "--", "a4-agent", "run"]


def test_arguments_of_the_workload_are_those_of_the_values(engines: Engines) -> None:
    settings = ("workload.run=nccl", "workload.defaultArguments={--begin,1M}", "workload.arguments={--end,8G}")
    container = engines.with_values(*sets(*settings)).workload
    given = [*container["command"], *container.get("args", [])]
    assert given == ["tini", "--", "a4-agent", "run", "--", "--begin", "1M", "--end", "8G"]


def test_the_secret_is_for_root_alone(engines: Engines) -> None:
    secret = volume(engines.with_values(), "/etc/a4-agent/secret")["secret"]
    assert (secret["secretName"], secret["defaultMode"]) == ("demo-job-secret", 0o400)


def test_shared_memory_and_places_for_installers(engines: Engines) -> None:
    rendered = engines.with_values()
    assert volume(rendered, "/dev/shm") == {"emptyDir": {"medium": "Memory", "sizeLimit": "250Gi"}}
    assert "emptyDir" in volume(rendered, "/usr/local/gib")
    assert "emptyDir" in volume(rendered, "/third_party")


@by_engine
def test_the_gib_installer_has_a_pinned_tag_and_goes_by_one_value(engines: Engines, engine: str) -> None:
    (installer,) = engines.with_values(engine=engine).pod["initContainers"]
    assert installer["name"] == "nccl-plugin-installer"
    assert installer["image"].endswith("/nccl-plugin-gib-diagnostic:v1.1.1")
    without = engines.with_values("--set", "network.gibVersion=", engine=engine)
    assert not without.pod.get("initContainers")
    assert "/usr/local/gib" not in without.mounts
    assert not {"NCCL_PLUGIN_PATH", "NCCL_INIT_SCRIPT"} & without.env.keys()


def test_the_epoch_comes_from_the_downward_api(engines: Engines) -> None:
    sources = {entry["name"]: entry.get("valueFrom") for entry in engines.with_values().workload["env"]}
    for name, label in {
        "A4_JOBSET_UID": "jobset-uid",
        "A4_RESTART_ATTEMPT": "restart-attempt",
        "A4_JOB_RESTART_ATTEMPT": "job-restart-attempt",
    }.items():
        assert f"jobset.sigs.k8s.io/{label}" in sources[name]["fieldRef"]["fieldPath"]


@by_engine
def test_nothing_is_restarted_unless_asked_for(engines: Engines, engine: str) -> None:
    assert engines.with_values(engine=engine).jobset["spec"]["failurePolicy"]["maxRestarts"] == 0


def failing_codes(rendered: Rendered) -> list[tuple[str, list[int]]]:
    rules = job(rendered)["podFailurePolicy"]["rules"]
    return [(rule["onExitCodes"]["operator"], rule["onExitCodes"]["values"]) for rule in rules if "onExitCodes" in rule]


def test_a_lost_peer_is_worth_a_restart_and_every_other_code_is_final(engines: Engines) -> None:
    rendered = engines.with_values("--set", "workload.max_workload_restarts=3")
    assert rendered.jobset["spec"]["failurePolicy"]["maxRestarts"] == 3
    ((operator, codes),) = failing_codes(rendered)
    final = set(map(int, Exit)) - {0, 75}
    assert {code for code in (*Exit, 1, 255) if (code in codes) == (operator == "In")} >= final | {1, 255}
    assert (75 in codes) == (operator == "NotIn")


@by_engine
def test_the_kubelets_and_the_agents_grace_are_one(engines: Engines, engine: str) -> None:
    rendered = engines.with_values("--set", "workload.terminationGracePeriodSeconds=300", engine=engine)
    assert (rendered.pod["terminationGracePeriodSeconds"], rendered.env["A4_GRACE_SECONDS"]) == (300, "300")


@by_engine
def test_pods_find_each_other_before_they_are_ready(engines: Engines, engine: str) -> None:
    assert engines.with_values(engine=engine).jobset["spec"]["network"] == {
        "enableDNSHostnames": True,
        "subdomain": "demo",
        "publishNotReadyAddresses": True,
    }


def test_nothing_is_installed_from_the_network_at_start(engines: Engines) -> None:
    assert not [text for text in engines.with_values().sources.values() if "apt-get" in text or "pip install" in text]


def test_a_dotted_release_has_names_without_dots(engines: Engines) -> None:
    rendered = engines.with_values(release="a.b")
    assert {found["metadata"]["name"].split("-")[0] for found in rendered.objects} == {"a"}
    assert rendered.jobset["metadata"]["name"] == "a-b"
