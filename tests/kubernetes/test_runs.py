"""Releases of the chart, from `helm install` to their ends, as pods that JobSet's and Kubernetes' controllers make."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.chart.helm import ROOT, older_chart
from tests.kubernetes.bed import Bed, terminated
from tests.kubernetes.control_plane import MASTER, Refused
from tests.kubernetes.nodes import TORCH

TWO = {"workload.gpus": "4"}
"""Pods, with two GPUs each."""
BEFORE = {"task_script": "echo before", "workload.env.HF_TOKEN": "before"}
WAITS = """\
#!/bin/bash
echo it waits
exec sleep 1000
"""
FAILS = """\
#!/bin/bash
echo "this is node $A4_NODE_RANK of $NNODES"
[ "$A4_NODE_RANK" = 0 ] || exit 3
exec sleep 1000
"""


def test_a_script_that_fails_ends_the_job_with_its_code_and_no_restart(bed: Bed, namespace: str) -> None:
    bed.plane.cluster.write(MASTER, "/run/fails.sh", FAILS)
    settings = {**TWO, "workload.max_workload_restarts": "2"}
    bed.install("job", namespace, settings, "--set-file", "task_script=/run/fails.sh")
    assert bed.ended("job", namespace) == "Failed"
    (jobset,) = bed.get("jobsets", namespace)
    (failed,) = [each for each in jobset["status"]["conditions"] if each["type"] == "Failed"]
    assert failed["reason"] == "FailJobSetFailurePolicyAction" and jobset["status"]["restarts"] == 0
    (job,) = bed.get("jobs", namespace)
    (told,) = [each for each in job["status"]["conditions"] if each["type"] == "Failed"]
    assert told["reason"] == "PodFailurePolicy" and "failed with exit code 3 matching FailJob rule" in told["message"]
    # Kubernetes deletes the pods that still ran when the first one had failed.
    ends = [terminated(pod) for pod in bed.pods("job", namespace)]
    assert ends and {end["exitCode"] for end in ends if end} == {3}
    message = json.loads(ends[0]["message"])
    assert (message["code"], message["origin"]) == (3, "workload")
    assert "pod 1, job-workload-0-1" in message["where"]


def test_a_cluster_that_sleeps_can_be_used_tested_and_given_back(bed: Bed, namespace: str) -> None:
    bed.install("job", namespace, {**TWO, "workload.terminationGracePeriodSeconds": "60"})
    pods = bed.ready("job", namespace, 2)
    first = pods[0]["metadata"]["name"]
    bed.until_asleep(namespace, pods)
    bed.helm("test", "job", "--namespace", namespace, "--timeout=9m")
    assert bed.execute(namespace, first, "a4-agent", "release").returncode == 0
    assert bed.ended("job", namespace) == "Completed"


def test_a_release_that_runs_is_upgraded_or_that_is_refused_and_it_ends_within_its_grace(
    bed: Bed, namespace: str
) -> None:
    """What docs/chart.md says of `helm upgrade`: the secret is kept, and nobody notices, but pods cannot be changed."""
    bed.plane.cluster.write(MASTER, "/run/waits.sh", WAITS)
    graceful = {**TWO, "workload.terminationGracePeriodSeconds": "60", "workload.env.HF_TOKEN": "before"}
    bed.install("job", namespace, graceful, "--set-file", "task_script=/run/waits.sh")
    pods = bed.formed("job", namespace, 2)
    upgrade = ("upgrade", "job", str(ROOT / "chart"), "--namespace", namespace, "--reuse-values")
    secret = ("get", "secret", "job-job-secret", "--namespace", namespace, "--output=jsonpath={.data.job-secret}")
    before = bed.plane.kubectl(*secret)
    assert "REVISION: 2" in bed.helm(*upgrade, "--set=workload.gpus=4")
    assert before and bed.plane.kubectl(*secret) == before
    with pytest.raises(Refused, match="field is immutable"):
        bed.helm(*upgrade, "--set=workload.gpus=2")
    script = ("get", "configmap", "job-scripts", "--namespace", namespace, "--output=jsonpath={.data}")
    mounted = bed.plane.kubectl(*script)
    with pytest.raises(Refused, match="has started, and an upgrade cannot change the script"):
        bed.helm(*upgrade, "--set=task_script=echo")
    assert bed.plane.kubectl(*script) == mounted
    with pytest.raises(Refused, match="has started, and an upgrade cannot change HF_TOKEN in Secret job-env"):
        bed.helm(*upgrade, "--set=workload.env.HF_TOKEN=after")
    assert token(bed, namespace) == "before"
    gracefully = {pod["metadata"]["uid"]: 143 for pod in pods}
    bed.until("the script runs", lambda: "it waits" in bed.log_of(namespace, pods[0]["metadata"]["name"]))
    with bed.codes(namespace) as codes:
        bed.helm("uninstall", "job", "--namespace", namespace)
        # Within its grace: a pod that was killed at the end of it would have 137.
        bed.until("all pods have ended", lambda: gracefully.keys() <= codes().keys())
        assert codes() == gracefully


def test_a_suspended_release_takes_another_script_and_queue(bed: Bed, namespace: str) -> None:
    bed.install("job", namespace, {**TWO, **BEFORE, "queue": "none"})
    upgrade = ("upgrade", "job", str(ROOT / "chart"), "--namespace", namespace, "--reuse-values")
    bed.helm(*upgrade, "--set=queue=other,task_script=echo after,workload.env.HF_TOKEN=after")
    assert "echo after" in script_in(bed, namespace) and token(bed, namespace) == "after"


def test_a_suspended_release_is_rolled_back_to_an_older_chart(bed: Bed, namespace: str, tmp_path: Path) -> None:
    chart = older(bed, tmp_path, other_pods=False)
    bed.install("job", namespace, {**TWO, **BEFORE, "queue": "none"}, chart=chart)
    upgrade = ("upgrade", "job", str(ROOT / "chart"), "--namespace", namespace, "--reuse-values")
    bed.helm(*upgrade, "--set=task_script=echo after,workload.env.HF_TOKEN=after")
    assert "echo after" in script_in(bed, namespace)
    bed.helm("rollback", "job", "--namespace", namespace)
    assert "echo before" in script_in(bed, namespace) and token(bed, namespace) == "before"
    (jobset,) = bed.get("jobsets", namespace)
    assert jobset["metadata"]["labels"]["app.kubernetes.io/version"] == "0.0.9"


def test_a_release_that_is_done_is_rolled_back_to_an_older_chart_with_other_pods(
    bed: Bed, namespace: str, tmp_path: Path
) -> None:
    """Its JobSet is removed, as Kubernetes does after some time: each change of the release makes it anew, and the job
    runs again, as docs/chart.md says."""
    uids = set()

    def ran(script: str) -> None:
        (jobset,) = bed.get("jobsets", namespace)
        assert bed.ended("job", namespace) == "Completed"
        assert script in bed.log_of(namespace, bed.pods("job", namespace)[0]["metadata"]["name"])
        uids.add(jobset["metadata"]["uid"])
        bed.plane.kubectl("delete", "jobset", "job", "--namespace", namespace)

    chart = older(bed, tmp_path, other_pods=True)
    bed.install("job", namespace, {**TWO, **BEFORE}, chart=chart)
    ran("before")
    upgrade = ("upgrade", "job", str(ROOT / "chart"), "--namespace", namespace, "--reuse-values")
    bed.helm(*upgrade, "--set=task_script=echo after")
    ran("after")
    bed.helm("rollback", "job", "--namespace", namespace)
    ran("before")
    assert len(uids) == 3


def older(bed: Bed, directory: Path, *, other_pods: bool) -> str:
    """Where Helm finds an older chart: its /tmp is not that of the test."""
    made = older_chart(directory, other_pods=other_pods)
    packed = shutil.make_archive(str(directory / "chart"), "gztar", root_dir=directory, base_dir=made.name)
    place = f"/run/{made.name}-{other_pods}.tgz"
    bed.plane.cluster.write(MASTER, place, Path(packed).read_bytes())
    return place


def script_in(bed: Bed, namespace: str) -> str:
    return bed.plane.kubectl("get", "configmap", "job-scripts", "--namespace", namespace, "--output=jsonpath={.data}")


def token(bed: Bed, namespace: str) -> str:
    found = ("get", "secret", "job-env", "--namespace", namespace, "--output=jsonpath={.data.HF_TOKEN}")
    return base64.b64decode(bed.plane.kubectl(*found)).decode()


def test_two_jobs_of_one_namespace_and_one_secret_do_not_hear_each_other(bed: Bed, namespace: str) -> None:
    bed.plane.kubectl(
        "create", "secret", "generic", "shared", f"--namespace={namespace}", "--from-literal=job-secret=" + "5" * 64
    )
    for name in ("one", "two"):
        bed.install(name, namespace, {**TWO, "secret.name": "shared", "workload.run": "connectivity"})
    for name in ("one", "two"):
        assert bed.ended(name, namespace) == "Completed"
        log = bed.log_of(namespace, bed.pods(name, namespace)[0]["metadata"]["name"])
        assert set(re.findall(r"\w+-workload-0-\d", log)) == {f"{name}-workload-0-0", f"{name}-workload-0-1"}


def test_ddp_trains_over_gloo(bed: Bed, namespace: str) -> None:
    settings = {**TWO, "workload.image": TORCH, "workload.run": "ddp"}
    words = ("--set", "workload.arguments={--backend,gloo,--steps,2}")
    bed.install("job", namespace, settings, *words)
    assert bed.ended("job", namespace) == "Completed"
    first = bed.pods("job", namespace)[0]
    assert "ddp is good" in bed.log_of(namespace, first["metadata"]["name"])
