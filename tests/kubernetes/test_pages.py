"""Every kubectl line of the pages is typed in a cluster with the job that they mean, or it is one for GKE.

Pages of docs/zh have the same blocks: tests/test_translations.py compares them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from tests.chart.helm import ROOT
from tests.chart.pages import commands_of
from tests.kubernetes.bed import Bed, terminated
from tests.kubernetes.control_plane import KUBECONFIG, MASTER
from tests.kubernetes.controllers import Object

PAGES = (*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/deployments").glob("*.md")), ROOT / "README.md")
OF_GKE = {
    "apply --server-side -f https://": "JobSet and Kueue, from the network; here their own charts install them",
    "wait deployment --all": "their Deployments, which are programs here",
    "debug node/NODE": "a privileged pod with an image of its own",
    "get networks.networking.gke.io": "a kind that GKE has",
    "get gkenetworkparamsets.networking.gke.io": "a kind that GKE has",
    "get deviceclass": "objects that GKE makes",
    "logs my-nccl-workload-0-0-x7k2p -c tcpx-daemon": "a container of A3 nodes",
    "get pods -n=kube-system -l=name=nccl-tcpx-installer": "a DaemonSet of chart/cluster for A3 nodes",
}
"""Beginnings of lines that are not typed here, and why."""
SHOWN_ELSEWHERE = {
    "a4 ": "test_plugin.py, which types them all",
    "wait --for=delete pod": "it waits for an end that test_runs.py shows",
    "delete pod POD --force": "test_losses.py, on a dead node",
    "taint nodes NODE": "test_losses.py, on a dead node",
    "get jobset my-nccl": "a queue's job, in test_kueue.py",
    "describe clusterqueue a4-research": "test_kueue.py, where there are teams",
}
SILENT = (">", "|")
"""What a line prints goes elsewhere."""
OF_ENDS = "state.terminated"
"""In a line that asks how pods have ended."""
JOB = {"workload.gpus": "8", "workload.env.SLEEP_INFINITY": "true", "workload.run": "connectivity"}


def lines() -> list[str]:
    """Each once, without its first word."""
    texts = [
        command.text
        for page in PAGES
        if page.name != "kubernetes-local.md"
        for command in commands_of(page.name, page.read_text())
    ]
    found = [text.strip().removeprefix("kubectl ") for text in texts if text.strip().startswith("kubectl ")]
    return list(dict.fromkeys(found))


def typed() -> Iterator[str]:
    beginnings = (*OF_GKE, *SHOWN_ELSEWHERE)
    yield from (line for line in lines() if not line.startswith(beginnings))


def test_every_line_of_kubectl_does_something(bed: Bed, namespace: str) -> None:
    bed.install("my-job", namespace, JOB)
    pods = bed.formed("my-job", namespace, 4)
    bed.until_asleep(namespace, pods)
    (run,) = set(
        re.findall(r"connectivity-\w{8}", bed.execute(namespace, name_of(pods, 0), "a4-agent", "status").stdout)
    )
    bed.helm("test", "my-job", "--namespace", namespace, "--timeout=9m")
    failed = {}
    for line in sorted(typed(), key=lambda line: OF_ENDS in line):
        if OF_ENDS in line and not terminated(bed.pods("my-job", namespace)[0]):
            bed.execute(namespace, name_of(pods, 0), "a4-agent", "release")
            assert bed.ended("my-job", namespace) == "Completed"
        words = made(line, pods, run)
        done = bed.plane.cluster.exec(MASTER, ["sh", "-c", kubectl(bed, namespace, words)], env=ENV, timeout=250)
        said = done.stdout + done.stderr
        if done.returncode or not (said.strip() or any(mark in line for mark in SILENT)):
            failed[line] = said[-400:]
    assert failed == {}


ENV = {"KUBECONFIG": KUBECONFIG, "HF_TOKEN": "hf_canary_of_the_docs"}


def kubectl(bed: Bed, namespace: str, line: str) -> str:
    """What a shell is to do. What the line writes goes with the pod, and a shell that it starts gets a command."""
    program = bed.plane.programs.directory / "kubectl"
    # A function: a line may have another kubectl in it.
    defined = f'kubectl() {{ {program} --namespace={shlex.quote(namespace)} "$@"; }}'
    return f"cd /run && {defined} && echo hostname | kubectl {line}"


def made(line: str, pods: list[Object], run: str) -> str:
    """With the names of these pods, without a terminal, and without what never ends."""
    line = re.sub(r"my-job-workload-0-(\d)-x7k2p", lambda found: name_of(pods, int(found[1])), line)
    line = re.sub(r"\bPOD\b", name_of(pods, 0), line)
    line = re.sub(r"\bNODE\b", str(pods[0]["spec"]["nodeName"]), line)
    line = re.sub(r"\bRUN\b", run, line)
    line = line.replace(" -n default", "")
    return re.sub(r" -f(?= )", "", line).replace(" -it ", " -i ")


def name_of(pods: list[Object], index: int) -> str:
    return str(pods[index]["metadata"]["name"])


@pytest.mark.parametrize("beginning", [*OF_GKE, *SHOWN_ELSEWHERE])
def test_what_is_not_typed_is_still_there(beginning: str) -> None:
    assert any(line.startswith(beginning) for line in lines())
