"""The chart of what a cluster has once: what Kubernetes, Kueue and GKE take, and what jobs expect of it."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.chart import cluster_schemas, helm
from tests.chart.helm import CHART, ROOT, Engines, HelmRefused, Object, Rendered, Words, sets
from tests.chart.rules import containers

CLUSTER = CHART / "cluster"
A4 = "nodes=2,networks.prefix=a4high"
A3 = "machine=a3,nodes=2,networks.prefix=my-project"
TEAMS = (
    "kueue.quotas.cpu=451,kueue.quotas.memory=7000Gi,kueue.teams[0].name=a,kueue.teams[0].namespaces={a,a-ci},kueue.teams[0].gpus=8,"
    "kueue.teams[0].maxGpus=12,kueue.teams[0].weight=2,"
    "kueue.teams[1].name=b,kueue.teams[1].namespaces={b},kueue.teams[1].gpus=0"
)
CASES = {
    "a4": A4,
    "a4 with gIB on nodes": f"{A4},gib.enabled=true",
    "a4 with claims": "nodes=4,networks.enabled=false,kueue.dranet=true",
    "a4 with queues of one's own": (
        f"{A4},kueue.queues={{mine}},kueue.namespaces={{team-a,team-b}},kueue.quotas.cpu=448,"
        r"kueue.quotas.memory=7000Gi,kueue.nodeLabels.cloud\.google\.com/gke-nodepool=a4"
    ),
    "a4 with teams": f"{A4},{TEAMS}",
    "a4 without Kueue": "networks.prefix=a4high,kueue.enabled=false",
    "a3": A3,
    "a3 in the node's network alone": f"{A3},tcpx.deviceInjectorImage=",
}


def words_of(*settings: str) -> Words:
    return Words(tuple(sets(*settings)), "demo", str(CLUSTER), "kube-system")


def rendered(engines: Engines, *settings: str) -> Rendered:
    return engines.render(words_of(*settings))


def specs(found: Rendered, kind: str) -> dict[str, Object]:
    """The specs of all objects of a kind, by name."""
    return {one["metadata"]["name"]: one["spec"] for one in found.kind(kind)}


def test_kubernetes_kueue_and_gke_take_every_object(engines: Engines) -> None:
    for case, settings in CASES.items():
        found = rendered(engines, settings)
        assert found.objects
        assert [said for one in found.objects for said in cluster_schemas.problems(one)] == [], case
        whole = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in found.objects]
        assert len(whole) == len(set(whole))


def test_both_engines_make_the_same_of_the_cluster(engines: Engines) -> None:
    for case in ("a4 with queues of one's own", "a3"):
        words = words_of(CASES[case])
        shown = engines.helm3.done("template", *helm.KUBERNETES, *words.flags, words.release, words.chart)
        found = engines.render(words).objects
        assert helm.without_secret(helm.objects_in(shown)) == helm.without_secret(found)


def test_values_that_cannot_work_are_refused(engines: Engines) -> None:
    for settings, said in {
        "nodes=2": "networks.prefix is not set",
        "networks.prefix=a4high": "nodes is not set",
        "machine=a5": "machine",
        f"{A4},queues={{a}}": "queues",
        f"{A4},gib.image=latest": "gib",
        f"{A4},{TEAMS},kueue.teams[1].gpus=9": "the teams have 17 GPUs of their own, and 2 nodes have 16",
        f"{A4},{TEAMS},kueue.teams[1].name=a": "two teams are called a",
        f"{A4},{TEAMS},kueue.teams[1].namespaces={{a-ci}}": "two teams have the namespace a-ci",
        f"{A4},{TEAMS},kueue.teams[0].maxGpus=7": "maxGpus of a is 7, less than its own 8 GPUs",
        f"{A4},{TEAMS},kueue.namespaces={{c}}": "kueue.namespaces has no effect",
        f"{A4},{TEAMS},kueue.teams[1].gpu=8": "gpu",
    }.items():
        with pytest.raises(HelmRefused, match=said):
            rendered(engines, settings)


def test_a_job_finds_its_networks(engines: Engines) -> None:
    """Names and modes; that each network has its parameters, in which no subnet stands twice."""
    for settings, flag in ((A4, ""), (A3, "network.tcpx.enabled=true")):
        pod = engines.with_settings("network.hostNetwork=false", flag)
        found = rendered(engines, settings)
        networks, parameters = specs(found, "Network"), specs(found, "GKENetworkParamSet")
        wanted = json.loads(pod.job["template"]["metadata"]["annotations"]["networking.gke.io/interfaces"])
        assert ["default", *networks] == [one["network"] for one in wanted]
        assert {name: one["parametersRef"]["name"] for name, one in networks.items()} == {
            name: name for name in parameters
        }
        assert len({one["vpcSubnet"] for one in parameters.values()}) == len(parameters)
        modes = {name: one["deviceMode"] for name, one in parameters.items()}
        assert modes == {name: "RDMA" if name.startswith("rdma") else "NetDevice" for name in modes}


def test_the_names_are_those_of_googles_guides(engines: Engines) -> None:
    a4 = specs(rendered(engines, A4), "GKENetworkParamSet")
    assert (a4["gvnic-1"]["vpc"], a4["gvnic-1"]["vpcSubnet"]) == ("a4high-gvnic-net", "a4high-gvnic-sub")
    assert (a4["rdma-7"]["vpc"], a4["rdma-7"]["vpcSubnet"]) == ("a4high-rdma-net", "a4high-rdma-sub-7")
    a3 = specs(rendered(engines, A3), "GKENetworkParamSet")
    assert (a3["vpc4"]["vpc"], a3["vpc4"]["vpcSubnet"]) == ("my-project-net-4", "my-project-sub-4")


def test_queues_admit_jobs_of_all_nodes(engines: Engines) -> None:
    for settings, queues in ((A4, ["a4-high", "a4"]), (A3, ["a3-high"])):
        found = rendered(engines, settings)
        ((name, spec),) = specs(found, "ClusterQueue").items()
        assert specs(found, "LocalQueue") == {queue: {"clusterQueue": name} for queue in queues}
        (group,) = spec["resourceGroups"]
        assert group["flavors"] == [{"name": name, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "16"}]}]
        assert specs(found, "ResourceFlavor")[name]["topologyName"] in specs(found, "Topology")


def test_teams_have_queues_of_their_own_and_share_the_rest(engines: Engines) -> None:
    found = rendered(engines, CASES["a4 with teams"])
    cohort, queues = specs(found, "Cohort")["a4"], specs(found, "ClusterQueue")

    def quotas(spec: Object) -> dict[str, Object]:
        (flavor,) = spec["resourceGroups"][0]["flavors"]
        return {one.pop("name"): one for one in flavor["resources"]}

    def amounts(**given: str) -> dict[str, Object]:
        return {name.replace("gpu", "nvidia.com/gpu"): {"nominalQuota": amount} for name, amount in given.items()}

    a = amounts(cpu="225", memory="3500Gi", gpu="8")
    assert quotas(cohort) == a
    a["nvidia.com/gpu"]["borrowingLimit"] = "4"
    assert quotas(queues["a4-a"]) == a
    assert quotas(queues["a4-b"]) == amounts(cpu="0", memory="0Gi", gpu="0")
    assert {name: spec["cohortName"] for name, spec in queues.items()} == {"a4-a": "a4", "a4-b": "a4"}
    local = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"]["clusterQueue"]
        for one in found.kind("LocalQueue")
    }
    assert local == {
        (namespace, queue): f"a4-{namespace[0]}" for namespace in ("a", "a-ci", "b") for queue in ("a4-high", "a4")
    }


def test_the_page_shows_the_values_of_teams_as_they_are() -> None:
    page = (ROOT / "docs/deployments/teams.md").read_text()
    shown = "".join(f"    {line}\n" for line in (CLUSTER / "ci/teams-values.yaml").read_text().splitlines())
    assert f"    $ cat chart/cluster/ci/teams-values.yaml\n{shown}\n" in page


def test_the_topology_has_every_level_that_jobs_ask_for(engines: Engines) -> None:
    (topology,) = specs(rendered(engines, A4), "Topology").values()
    levels = [level["nodeLabel"] for level in topology["levels"]]
    for level in ("block", "sub-block", "host"):
        pod = engines.with_settings("queue=a4", f"tasSettings.level={level}").job["template"]
        annotations = pod["metadata"]["annotations"]
        assert annotations["kueue.x-k8s.io/podset-preferred-topology"] in levels
    # Kueue takes it as the lowest level alone.
    assert levels[-1] == "kubernetes.io/hostname"


def test_quotas_cover_what_pods_request(engines: Engines) -> None:
    (spec,) = specs(rendered(engines, CASES["a4 with claims"]), "ClusterQueue").values()
    (group,) = spec["resourceGroups"]
    assert group["coveredResources"] == ["google.com/mrdma", "nvidia.com/gpu"]
    quotas = {one["name"]: one["nominalQuota"] for one in group["flavors"][0]["resources"]}
    assert quotas == dict.fromkeys(group["coveredResources"], "32")


def test_flavors_and_installers_are_for_the_nodes_of_jobs(engines: Engines) -> None:
    for settings, flag in ((A4, ""), (A3, "network.tcpx.enabled=true")):
        label = engines.with_settings(flag).pod["nodeSelector"]
        found = rendered(engines, settings, "gib.enabled=true")
        (flavor,) = specs(found, "ResourceFlavor").values()
        assert flavor["nodeLabels"] == label
        for daemons in specs(found, "DaemonSet").values():
            terms = daemons["template"]["spec"]["affinity"]["nodeAffinity"]
            (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            assert {one["key"]: one["values"][0] for one in term["matchExpressions"]} == label


def host_paths(pod: Object) -> dict[str, str]:
    """Where the volumes of a pod lie on its node, by name."""
    return {one["name"]: one["hostPath"]["path"] for one in pod["volumes"] if "hostPath" in one}


def test_installers_put_libraries_where_jobs_look(engines: Engines) -> None:
    tcpx = specs(rendered(engines, A3), "DaemonSet")["nccl-tcpx-installer"]["template"]["spec"]
    job = engines.with_settings("network.tcpx.enabled=true").pod
    assert host_paths(job)["tcpx-libraries"] == host_paths(tcpx)["libraries"] + "/nvidia/lib64"
    gib = specs(rendered(engines, A4, "gib.enabled=true"), "DaemonSet")["nccl-rdma-installer"]["template"]["spec"]
    from_node = engines.with_values("-f", str(CHART / "ci/gib-from-node-values.yaml"))
    assert from_node.mounts["/usr/local/gib"]["hostPath"]["path"] == host_paths(gib)["gib"]


def test_what_runs_as_root_on_nodes_is_pinned(engines: Engines) -> None:
    """To a version or a digest: no image is another one tomorrow."""
    for settings in (A3, f"{A4},gib.enabled=true"):
        for daemons in specs(rendered(engines, settings), "DaemonSet").values():
            pod = daemons["template"]["spec"]
            for container in containers(pod):
                assert "@sha256:" in container["image"] or ":v" in container["image"]


def test_it_is_no_part_of_the_chart_of_jobs() -> None:
    assert "cluster/" in (CHART / ".helmignore").read_text().splitlines()
    versions = [yaml.safe_load((chart / "Chart.yaml").read_text())["version"] for chart in (CHART, CLUSTER)]
    assert versions[0] == versions[1]
