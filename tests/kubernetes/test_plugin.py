"""`kubectl a4` as the real kubectl starts it: releases that run, wait, have failed or are gone, and whoever may not."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence

from tests.chart.helm import ROOT
from tests.kubernetes.bed import Bed
from tests.kubernetes.control_plane import KUBECONFIG, MASTER
from tests.kubernetes.controllers import Object
from tests.kubernetes.nodes import IMAGE
from tests.kubernetes.test_lives import KILLS_AGENT
from tests.kubernetes.test_pages import lines, made
from tests.kubernetes.test_runs import FAILS, TWO

JOBSET = "jobset.sigs.k8s.io"
LAST = ("release", "wait")
"""Lines of the pages that end the job, or wait for that."""


class Owner:
    """Somebody with releases in a namespace, which is that of the context."""

    def __init__(self, bed: Bed, namespace: str) -> None:
        self._cluster = bed.plane.cluster
        self._config = f"/run/{namespace}.kubeconfig"
        kubectl = bed.plane.programs.directory
        self._env = {"KUBECONFIG": self._config, "PATH": f"{ROOT}/kubectl:{kubectl}:/usr/bin:/bin"}
        config = json.loads(self._cluster.read(MASTER, KUBECONFIG))
        config["contexts"][0]["context"]["namespace"] = namespace
        self._cluster.write(MASTER, self._config, json.dumps(config))

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        return self._cluster.exec(MASTER, ["sh", "-c", f"cd /run && {line}"], env=self._env, timeout=250)

    def a4(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._cluster.exec(MASTER, ["kubectl", "a4", *words], env=self._env, timeout=250)


def test_what_the_page_shows_of_a_release_that_runs_and_loses_a_pod(bed: Bed, namespace: str) -> None:
    """Each line of docs is typed; those that end the job at last."""
    owner = Owner(bed, namespace)
    settings = {**TWO, "workload.lives": "1", "workload.run": "connectivity", "workload.env.SLEEP_INFINITY": "true"}
    bed.install("my.job", namespace, {**settings, "workload.runName": "night-1"})
    pods = bed.formed("my-job", namespace, 2)
    bed.until_asleep(namespace, pods)
    bed.execute(namespace, pods[1]["metadata"]["name"], *KILLS_AGENT)

    def replaced() -> bool:
        found = owner.a4("exec", "my.job", "--pod=1", "--", "sh", "-c", "echo $POD_NAME; exit 7")
        return found.returncode == 7 and pods[1]["metadata"]["name"] not in found.stdout

    bed.until("pod 1 is replaced", replaced)
    bed.until("all are ready", lambda: "2 ready" in owner.a4("status", "my-job").stdout)
    typed = [line for line in lines() if line.startswith("a4 ")]
    failed = {}
    for line in sorted(typed, key=lambda line: line.split()[1] in LAST):
        done = owner.shell(f"echo hostname | kubectl {made(line, pods, 'night-1')}")
        if done.returncode:
            failed[line] = f"{done.returncode} {done.stdout[-400:]} {done.stderr[-400:]}"
    assert failed == {} and {line.split()[1] for line in typed} >= {"status", "logs", "exec", "get", "cp", "wait"}
    assert "report.html" in owner.shell("find a4-results/night-1").stdout
    told = owner.a4("status", "my-job")
    assert (told.returncode, "Completed" in told.stdout, "exit code 0" in told.stdout) == (0, True, True)


def test_a_release_that_has_failed_tells_how_and_wait_has_its_code(bed: Bed, namespace: str) -> None:
    owner = Owner(bed, namespace)
    bed.plane.cluster.write(MASTER, "/run/fails.sh", FAILS)
    bed.install("fails", namespace, TWO, "--set-file", "task_script=/run/fails.sh")
    waited = owner.a4("wait", "fails", "--timeout=4m")
    assert waited.returncode == 3, waited.stderr
    told = owner.a4("status", "fails")
    assert told.returncode == 0 and told.stdout in waited.stderr
    assert f"JobSet fails in namespace {namespace}: Failed, FailJobSetFailurePolicyAction: " in told.stdout
    assert re.search(r"^pods? .*1.*: exit code 3$", told.stdout, re.MULTILINE)
    assert re.search(r"^/\S+\.sh failed \(pod 1, fails-workload-0-1-\w+, node \S+\)$", told.stdout, re.MULTILINE)
    assert "this is node 1 of 2" in owner.a4("logs", "fails").stdout
    got = owner.a4("get", "fails")
    assert (got.returncode, got.stderr) == (1, told.stdout)


NOT_RUNNING = {
    "nowhere": ({"targetNodes": "{no-1,no-2}"}, "pods 0-1: Unschedulable: 0/8 nodes are available"),
    "no-image": (
        {"workload.image": "nowhere.example/a:1"},
        r"pods 0-1: (ErrImagePull|ImagePullBackOff): .*example/a:1",
    ),
    "no-account": ({"serviceAccountName": "nobody"}, r"no-account-workload-0: FailedCreate: .*nobody.* not found"),
    "queued": ({"queue": "none"}, "suspended\nKueue, queue none: Inadmissible: LocalQueue none doesn't exist"),
}
"""What is set, and what is said."""


def test_releases_that_do_not_run_say_why_and_a_gone_one_which_there_are(bed: Bed, namespace: str) -> None:
    owner = Owner(bed, namespace)
    for name, (settings, _) in NOT_RUNNING.items():
        bed.install(name, namespace, {**TWO, **settings})
    for name, (_, words) in NOT_RUNNING.items():
        bed.until(f"{name}: {words}", lambda: re.search(words, owner.a4("status", name).stdout))  # noqa: B023
        asked, waited = owner.a4("why", name), owner.a4("wait", name, "--timeout=0s")
        assert (asked.returncode, asked.stdout, waited.returncode) == (1, "", 124)
        assert re.search(words, asked.stderr) and re.search(words, waited.stderr)
    gone = owner.a4("status", "gone")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert gone.stderr == (
        f"kubectl a4: there is no JobSet gone in namespace {namespace}; others there: "
        f"{', '.join(sorted(NOT_RUNNING))}\n"
    )


def test_a_pod_with_sidecars_and_whoever_may_not_exec(bed: Bed, namespace: str) -> None:
    """The container is the one of the annotation, else the one that is called workload, else the first."""
    owner = Owner(bed, namespace)
    boxes = {"by-name": ("log", "workload"), "by-annotation": ("workload", "agent"), "first": ("agent", "log")}
    bed.plane.create([sidecars(name, boxes[name], name == "by-annotation") for name in boxes], namespace)
    for name, names in boxes.items():
        asked = "workload" if "workload" in names and name != "by-annotation" else "agent"
        bed.until(f"{name} runs", lambda: owner.a4("exec", name, "--", "printenv", "BOX").returncode == 0)  # noqa: B023
        assert owner.a4("exec", name, "--", "printenv", "BOX").stdout == f"{asked}\n"
    assert owner.a4("exec", "first", "-c", "log", "--", "printenv", "BOX").stdout == "log\n"
    for words in (
        ("serviceaccount", "reader"),
        ("role", "reader", "--verb=get,list", "--resource=pods"),
        ("rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader"),
    ):
        bed.plane.kubectl("create", *words, f"--namespace={namespace}")
    token = bed.plane.kubectl("create", "token", "reader", f"--namespace={namespace}").strip()
    owner.shell(
        f"kubectl config set-credentials reader --token={token} && kubectl config set-context reader "
        f"--cluster=test-bed --user=reader --namespace={namespace}"
    )
    denied = owner.a4("exec", "first", "--context=reader", "--", "true")
    assert (denied.returncode, 'cannot create resource "pods/exec"' in denied.stderr) == (1, True)
    assert token not in denied.stderr and "runs" in owner.a4("status", "first", "--context=reader", "--pod=1").stdout


def sidecars(name: str, boxes: Sequence[str], annotated: bool) -> Object:
    labels = {
        f"{JOBSET}/jobset-name": name,
        f"{JOBSET}/replicatedjob-name": "any",
        f"{JOBSET}/job-index": "0",
        "batch.kubernetes.io/job-completion-index": "0",
    }
    sleeps = {"image": IMAGE, "command": ["sleep", "1000"]}
    containers = [{**sleeps, "name": box, "env": [{"name": "BOX", "value": box}]} for box in boxes]
    annotations = {"kubectl.kubernetes.io/default-container": "agent"} if annotated else {}
    metadata = {"name": f"{name}-x", "labels": labels, "annotations": annotations}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    spec = {"containers": containers, "tolerations": tolerations, "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
