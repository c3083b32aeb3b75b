"""What a pod of the chart is, beside what tests/chart/rules.py asks of every one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chart.helm import Engines, Rendered, sets
from tests.chart.rules import containers, pods


def job(rendered: Rendered) -> dict[str, Any]:
    found: dict[str, Any] = rendered.jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    return found


def volume(rendered: Rendered, path: str) -> dict[str, Any]:
    return {key: value for key, value in rendered.mounts[path].items() if key != "name"}


@pytest.mark.parametrize(
    ("gpus", "per_node", "pods", "each"),
    [
        *((1, 8, 1, 1), (4, 8, 1, 4), (8, 8, 1, 8), (16, 8, 2, 8), (32, 8, 4, 8), (1024, 8, 128, 8)),
        *((2, 4, 1, 2), (4, 4, 1, 4), (8, 4, 2, 4), (72, 4, 18, 4)),
    ],
)
def test_pods_and_gpus(engines: Engines, gpus: int, per_node: int, pods: int, each: int) -> None:
    rendered = engines.with_settings(f"workload.gpusPerNode={per_node}", f"workload.gpus={gpus}")
    told = [rendered.env[name] for name in ("NNODES", "GPUS_PER_NODE", "WORLD_SIZE")]
    assert (job(rendered)["completions"], job(rendered)["parallelism"]) == (pods, pods)
    assert told == [str(pods), str(each), str(gpus)]
    assert rendered.workload["resources"]["limits"]["nvidia.com/gpu"] == each


def test_a_pod_of_the_defaults(engines: Engines) -> None:
    rendered = engines.with_values()
    made = job(rendered)
    assert (made["completionMode"], made["backoffLimit"]) == ("Indexed", 0), "each pod is tried once"
    assert made["template"]["spec"]["restartPolicy"] == "Never"
    assert rendered.workload["command"] == ["tini", "--", "a4-agent", "run"]
    secret = volume(rendered, "/etc/a4-agent/secret")["secret"]
    assert (secret["secretName"], secret["defaultMode"]) == ("demo-job-secret", 0o400)
    assert volume(rendered, "/dev/shm") == {"emptyDir": {"medium": "Memory", "sizeLimit": "250Gi"}}
    assert "emptyDir" in volume(rendered, "/usr/local/gib")
    # Pods find each other before they are ready.
    network = {"enableDNSHostnames": True, "subdomain": "demo", "publishNotReadyAddresses": True}
    assert rendered.jobset["spec"]["network"] == network
    # An upgrade of the chart changes no pod.
    labels = {"app.kubernetes.io/name": "a4-agent", "app.kubernetes.io/instance": "demo"}
    assert made["template"]["metadata"]["labels"] == labels
    assert "app.kubernetes.io/version" in rendered.jobset["metadata"]["labels"]
    # Nothing is installed from the network at start.
    assert not [text for text in rendered.sources.values() if "apt-get" in text or "pip install" in text]
    assert not {"A4_RUN_NAME", "A4_GATE"} & rendered.env.keys()


def test_an_image_without_the_agent_gets_it_first(engines: Engines) -> None:
    """In the pods of the job and in those of helm test, on a volume of each pod."""
    rendered = engines.with_settings("workload.agentImage=registry.example/agent:1,workload.imagePullPolicy=Never")
    for pod in pods(rendered):
        first, workload = pod["initContainers"][0], pod["containers"][0]
        assert (first["image"], first["imagePullPolicy"]) == ("registry.example/agent:1", "Never")
        # In that image by docker/a4-agent-cpu/Dockerfile, and in the volume by docker/agent.Dockerfile.
        assert first["command"] == ["/usr/local/src/a4-agent/give-agent.sh", "/target"]
        assert workload["command"] == ["/opt/a4-agent/bin/with-agent", "a4-agent", "run"]
        (volume,) = (one["name"] for one in workload["volumeMounts"] if one["mountPath"] == "/opt/a4-agent")
        assert first["volumeMounts"] == [{"name": volume, "mountPath": "/target"}]
        assert {"name": volume, "emptyDir": {}} in pod["volumes"]


def test_arguments_of_the_workload_are_those_of_the_values(engines: Engines) -> None:
    settings = ("workload.run=nccl", "workload.defaultArguments={--begin,1M}", "workload.arguments={--end,8G}")
    container = engines.with_settings(*settings).workload
    given = [*container["command"], *container.get("args", [])]
    assert given == ["tini", "--", "a4-agent", "run", "--", "--begin", "1M", "--end", "8G"]


def test_name_and_gate_of_the_first_run_are_those_of_the_values(engines: Engines) -> None:
    for gate in ("strict", "true"):
        env = engines.with_settings("workload.runName=lr-0.1", f"workload.gate={gate}").env
        assert (env["A4_RUN_NAME"], env["A4_GATE"]) == ("lr-0.1", gate)


def test_a_third_party_of_the_image_is_not_hidden(engines: Engines) -> None:
    """The agent places beside it what the installer leaves in /dev/shm."""
    rendered = engines.with_values()
    (installer,) = rendered.pod["initContainers"]
    assert {mount["mountPath"] for mount in installer["volumeMounts"]} == {"/target/usr/local/gib", "/target/dev/shm"}
    assert "/third_party" not in rendered.mounts


@pytest.mark.parametrize(("setting", "policy"), [("", "Always"), ("IfNotPresent", "IfNotPresent"), ("null", None)])
def test_an_image_that_was_built_again_is_pulled(engines: Engines, setting: str, policy: str | None) -> None:
    flags = sets(f"workload.imagePullPolicy={setting}") if setting else []
    rendered = engines.with_values(*flags)
    test = rendered.one("Job", "-helm-test-0")["spec"]["template"]["spec"]["containers"][0]
    assert [each.get("imagePullPolicy") for each in (rendered.workload, test)] == [policy, policy]


def test_the_gib_installer_has_a_pinned_tag_and_goes_by_one_value(engines: Engines) -> None:
    (installer,) = engines.with_values().pod["initContainers"]
    assert installer["name"] == "nccl-plugin-installer"
    assert installer["image"].endswith("/nccl-plugin-gib-diagnostic:v1.1.1")
    without = engines.with_settings("network.gibVersion=")
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
    # For a JobSet's controller that does not tell its uid.
    assert "batch.kubernetes.io/controller-uid" in sources["JOB_UUID"]["fieldRef"]["fieldPath"]


def test_what_is_of_the_node_must_be_there(engines: Engines) -> None:
    """A directory that is missing keeps the pod from its start; only one for caches may be made empty."""
    rendered = engines.with_settings("volumes.ssdMountPath=/ssd,network.tcpx.enabled=true,network.hostNetwork=false")
    volumes = rendered.pod["volumes"]
    of_node = {each["name"]: each["hostPath"].get("type") for each in volumes if "hostPath" in each}
    assert of_node.pop("local-ssd") == "DirectoryOrCreate"
    assert len(of_node) == 3 and set(of_node.values()) == {"Directory"}


def test_gpus_are_those_of_workload_gpus(engines: Engines) -> None:
    key = "nvidia\\.com/gpu"
    rendered = engines.with_settings(
        f"workload.resources.limits.{key}=4,workload.resources.requests.{key}=4,workload.resources.requests.cpu=200"
    )
    assert rendered.workload["resources"] == {"requests": {"cpu": "200"}, "limits": {"nvidia.com/gpu": 8}}


@pytest.mark.parametrize(
    ("settings", "requests"),
    [
        ("", {"cpu": "32", "memory": "256Gi"}),
        ("workload.gpus=2", {"cpu": "8", "memory": "64Gi"}),
        ("workload.resources.limits.memory=100Gi", None),
        ("workload.resources.requests.memory=100Gi", {"memory": "100Gi"}),
        # Its ClusterQueue may have a quota for GPUs alone.
        ("queue=a4", None),
    ],
)
def test_a_pod_asks_for_a_share_of_its_node(engines: Engines, settings: str, requests: dict[str, str] | None) -> None:
    rendered = engines.with_settings(settings)
    assert rendered.workload["resources"].get("requests") == requests


def test_pods_of_helm_test_ask_for_something(engines: Engines) -> None:
    (container,) = pods(engines.with_values())[1]["containers"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}


@pytest.mark.parametrize(
    ("settings", "token"),
    [
        ("", False),
        ("serviceAccountName=mine", False),
        ("automountServiceAccountToken=true", True),
        ("volumes.gcsMounts[0].bucketName=b", True),
        ("volumes.gcsMounts[0].bucketName=b,automountServiceAccountToken=false", False),
    ],
)
def test_who_gets_a_token_for_kubernetes(engines: Engines, settings: str, token: bool) -> None:
    job, test = pods(engines.with_settings(settings))
    assert (job["automountServiceAccountToken"], test["automountServiceAccountToken"]) == (token, False)


OF_BASELINE = {"NET_BIND_SERVICE", "CHOWN", "KILL", "SETUID", "SETGID", "SYS_CHROOT", "DAC_OVERRIDE", "MKNOD"}


def beyond_baseline(pod: dict[str, Any]) -> set[str]:
    """What of a pod the Pod Security level `baseline` refuses."""
    contexts = [container.get("securityContext") or {} for container in containers(pod)]
    added = {name for context in contexts for name in context.get("capabilities", {}).get("add", [])}
    found = {"hostNetwork"} if pod.get("hostNetwork") else set[str]()
    found |= {"privileged" for context in contexts if context.get("privileged")}
    found |= {"hostPath" for each in pod["volumes"] if "hostPath" in each}
    return found | added - OF_BASELINE


@pytest.mark.parametrize(
    ("settings", "beyond"),
    [
        ("", {"hostNetwork", "privileged"}),
        ("workload.securityContext.capabilities.add={IPC_LOCK}", {"hostNetwork", "IPC_LOCK"}),
        ("network.hostNetwork=false", {"IPC_LOCK"}),
        ("network.hostNetwork=false,volumes.ssdMountPath=/ssd", {"IPC_LOCK", "hostPath"}),
        ("network.hostNetwork=false,network.tcpx.enabled=true", {"IPC_LOCK", "NET_ADMIN", "hostPath"}),
        ("network.hostNetwork=false,workload.securityContext.allowPrivilegeEscalation=false", set()),
    ],
)
def test_what_pods_need_of_a_namespace_s_pod_security(engines: Engines, settings: str, beyond: set[str]) -> None:
    """docs/deployments/networks.md says it."""
    job, test = pods(engines.with_settings(settings))
    assert beyond_baseline(job) == beyond
    assert beyond_baseline(test) == beyond & {"hostNetwork"}


def test_an_empty_security_context_is_one(engines: Engines, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("{workload: {securityContext: {}}}")
    assert engines.with_values("-f", str(tmp_path / "values.yaml")).workload["securityContext"] == {}


@pytest.mark.parametrize("version", ["v1.1.1@sha256:", "registry.example/gib@sha256:"])
def test_the_gib_installer_can_be_named_by_its_digest(engines: Engines, version: str) -> None:
    digest = 64 * "0"
    (installer,) = engines.with_settings(f"network.gibVersion={version}{digest}").pod["initContainers"]
    assert installer["image"].endswith(f"@sha256:{digest}")
    assert installer["imagePullPolicy"] == "IfNotPresent"


def test_numbers_with_leading_zeros_are_decimal(engines: Engines) -> None:
    numbers = (
        "workload.gpus=016,workload.max_workload_restarts=010,workload.terminationGracePeriodSeconds=060,"
        "workload.ttlSecondsAfterFinished=0100,network.sshPort=0222,network.masterPort=06010"
    )
    rendered = engines.with_values("--set-string", numbers)
    spec = rendered.jobset["spec"]
    assert (rendered.env["NNODES"], rendered.env["WORLD_SIZE"]) == ("2", "16")
    assert (spec["failurePolicy"]["maxRestarts"], spec["ttlSecondsAfterFinished"]) == (10, 100)
    assert (rendered.pod["terminationGracePeriodSeconds"], rendered.env["A4_GRACE_SECONDS"]) == (60, "60")
    assert [port["containerPort"] for port in rendered.workload["ports"]] == [222, 6010]
    assert (rendered.env["A4_SSH_PORT"], rendered.env["MASTER_PORT"]) == ("222", "6010")


def test_a_dotted_release_has_names_without_dots(engines: Engines) -> None:
    rendered = engines.with_settings("volumes.nfs.ip=10.0.0.2", release="a.b")
    names = {found["metadata"]["name"] for found in rendered.objects}
    assert rendered.jobset["metadata"]["name"] == "a-b"
    assert {name for name in names if not name.startswith("a-b")} == {"team-a.a-b-nfs"}
