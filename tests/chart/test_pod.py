"""What a pod of the chart is, beside what tests/chart/rules.py asks of every one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.chart.helm import Engines, Rendered
from tests.chart.pod_rules import the_pods_are_told_what_they_are
from tests.chart.rules import containers, pods


def volume(rendered: Rendered, path: str) -> dict[str, Any]:
    return {key: value for key, value in rendered.mounts[path].items() if key != "name"}


def test_pods_and_gpus(engines: Engines) -> None:
    per_node = {
        8: {1: (1, 1), 4: (1, 4), 8: (1, 8), 16: (2, 8), 32: (4, 8), 1024: (128, 8)},
        4: {2: (1, 2), 4: (1, 4), 8: (2, 4), 72: (18, 4)},
    }
    for most, wanted in per_node.items():
        for gpus, (nodes, each) in wanted.items():
            rendered = engines.with_settings(f"workload.gpusPerNode={most}", f"workload.gpus={gpus}")
            assert list(the_pods_are_told_what_they_are(rendered)) == []
            told = [rendered.env[name] for name in ("NNODES", "GPUS_PER_NODE", "WORLD_SIZE")]
            assert told == [str(nodes), str(each), str(gpus)]


def test_a_pod_of_the_defaults(engines: Engines) -> None:
    rendered = engines.with_values()
    made = rendered.job
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
    # A third party of the image is not hidden: the agent places beside it what the installer leaves in /dev/shm.
    (installer,) = rendered.pod["initContainers"]
    assert {mount["mountPath"] for mount in installer["volumeMounts"]} == {"/target/usr/local/gib", "/target/dev/shm"}
    assert "/third_party" not in rendered.mounts
    (test,) = pods(rendered)[1]["containers"]
    assert test["resources"]["requests"].keys() == {"cpu", "memory"}


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


def test_what_runs_and_its_name_and_gate_are_those_of_the_values(engines: Engines) -> None:
    settings = ("workload.run=nccl", "workload.defaultArguments={--begin,1M}", "workload.arguments={--end,8G}")
    for gate in ("strict", "true"):
        rendered = engines.with_settings(*settings, f"workload.runName=lr-0.1,workload.gate={gate}")
        given = [*rendered.workload["command"], *rendered.workload["args"]]
        assert given == ["tini", "--", "a4-agent", "run", "--", "--begin", "1M", "--end", "8G"]
        assert (rendered.env["A4_RUN_NAME"], rendered.env["A4_GATE"]) == ("lr-0.1", gate)


def test_an_image_that_was_built_again_is_pulled(engines: Engines) -> None:
    def policies(rendered: Rendered) -> list[str | None]:
        return [pod["containers"][0].get("imagePullPolicy") for pod in pods(rendered)]

    key = "workload.imagePullPolicy"
    wanted = {"": ["Always"] * 2, f"{key}=IfNotPresent": ["IfNotPresent"] * 2, f"{key}=null": [None] * 2}
    assert engines.facts(policies, wanted) == wanted


def test_the_gib_installer_goes_by_one_value_and_a_version_that_can_change_is_pulled_each_time(
    engines: Engines,
) -> None:
    google = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-diagnostic"
    registry, digest = "registry.example:5000/gib", f"@sha256:{64 * '0'}"
    wanted = {
        "": (f"{google}:v1.1.1", "IfNotPresent"),
        f"network.gibVersion=v1.1.1{digest}": (f"{google}:v1.1.1{digest}", "IfNotPresent"),
        f"network.gibVersion={registry}{digest}": (f"{registry}{digest}", "IfNotPresent"),
        f"network.gibVersion={registry}": (f"{registry}:latest", "Always"),
    }

    def installer(rendered: Rendered) -> tuple[str, str]:
        (found,) = rendered.pod["initContainers"]
        assert found["name"] == "nccl-plugin-installer"
        return found["image"], found["imagePullPolicy"]

    assert engines.facts(installer, wanted) == wanted
    without = engines.with_settings("network.gibVersion=")
    assert not without.pod.get("initContainers")
    assert "/usr/local/gib" not in without.mounts
    assert not {"NCCL_PLUGIN_PATH", "NCCL_INIT_SCRIPT"} & without.env.keys()


def test_the_epoch_comes_from_the_downward_api(engines: Engines) -> None:
    sources = {entry["name"]: entry.get("valueFrom") for entry in engines.with_values().workload["env"]}
    for name, label in {
        "A4_JOBSET_UID": "jobset.sigs.k8s.io/jobset-uid",
        "A4_RESTART_ATTEMPT": "jobset.sigs.k8s.io/restart-attempt",
        "A4_JOB_RESTART_ATTEMPT": "jobset.sigs.k8s.io/job-restart-attempt",
        # For a JobSet's controller that does not tell its uid.
        "JOB_UUID": "batch.kubernetes.io/controller-uid",
    }.items():
        assert label in sources[name]["fieldRef"]["fieldPath"]


def test_what_is_of_the_node_must_be_there(engines: Engines) -> None:
    """A directory that is missing keeps the pod from its start; only one for caches may be made empty."""
    rendered = engines.with_settings("volumes.ssdMountPath=/ssd,network.tcpx.enabled=true,network.hostNetwork=false")
    volumes = rendered.pod["volumes"]
    of_node = {each["name"]: each["hostPath"].get("type") for each in volumes if "hostPath" in each}
    assert of_node.pop("local-ssd") == "DirectoryOrCreate"
    assert len(of_node) == 3 and set(of_node.values()) == {"Directory"}


def test_a_pod_asks_for_a_share_of_its_node_and_for_the_gpus_of_workload_gpus(engines: Engines) -> None:
    limits, requests = (rf"workload.resources.{key}.nvidia\.com/gpu=4" for key in ("limits", "requests"))
    wanted = {
        "": {"requests": {"cpu": "32", "memory": "256Gi"}, "limits": {"nvidia.com/gpu": 8}},
        "workload.gpus=2": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": 2}},
        "workload.resources.limits.memory=100Gi": {"limits": {"memory": "100Gi", "nvidia.com/gpu": 8}},
        "workload.resources.requests.memory=1Gi": {"requests": {"memory": "1Gi"}, "limits": {"nvidia.com/gpu": 8}},
        f"workload.resources.requests.cpu=2,{limits}": {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": 8}},
        f"workload.resources.requests.cpu=2,{requests}": {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": 8}},
        # Its ClusterQueue may have a quota for GPUs alone.
        "queue=a4": {"limits": {"nvidia.com/gpu": 8}},
    }
    assert engines.facts(lambda rendered: rendered.workload["resources"], wanted) == wanted


def test_who_gets_a_token_for_kubernetes(engines: Engines) -> None:
    bucket = "volumes.gcsMounts[0].bucketName=b"
    wanted = {
        "": [False, False],
        "serviceAccountName=mine": [False, False],
        "automountServiceAccountToken=true": [True, False],
        bucket: [True, False],
        f"{bucket},automountServiceAccountToken=false": [False, False],
    }
    found = engines.facts(lambda one: [pod["automountServiceAccountToken"] for pod in pods(one)], wanted)
    assert found == wanted


OF_BASELINE = {"NET_BIND_SERVICE", "CHOWN", "KILL", "SETUID", "SETGID", "SYS_CHROOT", "DAC_OVERRIDE", "MKNOD"}


def beyond_baseline(pod: dict[str, Any]) -> set[str]:
    """What of a pod the Pod Security level `baseline` refuses."""
    contexts = [container.get("securityContext") or {} for container in containers(pod)]
    added = {name for context in contexts for name in context.get("capabilities", {}).get("add", [])}
    found = {"hostNetwork"} if pod.get("hostNetwork") else set[str]()
    found |= {"privileged" for context in contexts if context.get("privileged")}
    found |= {"hostPath" for each in pod["volumes"] if "hostPath" in each}
    return found | added - OF_BASELINE


def test_what_pods_need_of_a_namespace_s_pod_security(engines: Engines, tmp_path: Path) -> None:
    """docs/deployments/networks.md says it. The second is that of helm test."""
    (tmp_path / "values.yaml").write_text("{workload: {securityContext: {}}}")
    assert engines.with_values("-f", str(tmp_path / "values.yaml")).workload["securityContext"] == {}
    own = "network.hostNetwork=false"
    wanted = {
        "": [{"hostNetwork", "privileged"}, {"hostNetwork"}],
        "workload.securityContext.capabilities.add={IPC_LOCK}": [{"hostNetwork", "IPC_LOCK"}, {"hostNetwork"}],
        own: [{"IPC_LOCK"}, set()],
        f"{own},volumes.ssdMountPath=/ssd": [{"IPC_LOCK", "hostPath"}, set()],
        f"{own},network.tcpx.enabled=true": [{"IPC_LOCK", "NET_ADMIN", "hostPath"}, set()],
        f"{own},workload.securityContext.allowPrivilegeEscalation=false": [set(), set()],
    }
    assert engines.facts(lambda rendered: [*map(beyond_baseline, pods(rendered))], wanted) == wanted


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
