"""What namespaces let the chart's pods be, as docs/deployments/networks.md says: Pod Security and NetworkPolicy."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.chart.helm import LOADER, ROOT, Engines, Words
from tests.kubernetes.control_plane import ControlPlane, Refused
from tests.kubernetes.controllers import Object
from tests.kubernetes.test_admission import POD

PAGE = (ROOT / "docs/deployments/networks.md").read_text()
PLAIN = ("workload.image=i", "network.hostNetwork=false", "network.subnetworks={default}", "network.gibVersion=")
SSD = "volumes.ssdMountPath=/ssd"
LEVELS = ("privileged", "baseline", "restricted")


@pytest.mark.parametrize(
    ("settings", "level", "needs"),
    [
        (("workload.image=i",), "privileged", ("host namespaces", "privileged")),
        (PLAIN, "privileged", ("IPC_LOCK",)),
        ((*PLAIN, SSD), "privileged", ("IPC_LOCK", "hostPath volumes")),
        ((*PLAIN, "workload.securityContext.allowPrivilegeEscalation=false"), "baseline", ()),
    ],
    ids=["hostNetwork", "networks of their own", "and a directory of the node", "without RDMA"],
)
def test_pods_need_the_level_that_the_page_says(
    plane: ControlPlane, engines: Engines, settings: tuple[str, ...], level: str, needs: tuple[str, ...]
) -> None:
    pod = pod_of(engines.render(Words(tuple(word for each in settings for word in ("--set", each)))).jobset)
    allowed = LEVELS[: LEVELS.index(level) + 1]
    for each in LEVELS:
        said = judged(plane, each, pod)
        assert bool(said) == (each not in allowed), said
        if each == "baseline":
            assert [word for word in needs if word not in said] == []


def test_the_network_policy_of_the_page_is_taken_as_it_is(plane: ControlPlane) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    policy = yaml.load(text, LOADER)
    (stored,) = plane.create([policy], "default", "--dry-run=server")
    assert stored["spec"] == {**policy["spec"], "ingress": stored["spec"]["ingress"]}
    (rule,) = stored["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": policy["spec"]["podSelector"]}] and "ports" not in rule
    assert policy["spec"]["podSelector"] == {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": "my-job"}}


def judged(plane: ControlPlane, level: str, pod: Object) -> str:
    """Why a namespace of that level refuses the pod; empty: it does not."""
    name = f"level-{level}"
    if name not in plane.namespaces:
        plane.make_namespace(name)
        plane.kubectl("label", "namespace", name, f"pod-security.kubernetes.io/enforce={level}")
    try:
        plane.create([pod], name, "--dry-run=server")
    except Refused as refused:
        return str(refused)
    return ""


def pod_of(jobset: Object) -> Object:
    """As the Job's controller would make it."""
    template: Any = jobset
    for part in POD:
        template = template[part]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": template["spec"]}
