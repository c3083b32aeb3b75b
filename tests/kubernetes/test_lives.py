"""A release with lives: lost pods are replaced beside the others, and what ends the job starts it anew or does not."""

from __future__ import annotations

from agent.paths import DEFAULT_RUN_DIR, RunDir
from tests.kubernetes.bed import Bed
from tests.kubernetes.control_plane import MASTER
from tests.kubernetes.test_losses import attempts, delete, epoch, uids

GOES_ON = """\
#!/bin/bash
echo "life $A4_LIFE"
[ "$A4_LIFE" = 1 ] || exit 0
exec sleep 1000
"""
IS_KILLED = """\
#!/bin/bash
[ "$A4_RESTART_ATTEMPT" = 0 ] || exit 3
[ "$A4_NODE_RANK" = 0 ] || kill -KILL $$
exec sleep 1000
"""
IS_DONE = """\
#!/bin/bash
until [ -e /tmp/done ]; do sleep 0.1; done
"""
RUN_DIR = RunDir(DEFAULT_RUN_DIR)
KILLS_ENDING_AGENT = f"""\
import socket, subprocess, time
command = socket.socket(socket.AF_UNIX)
command.connect("{RUN_DIR.socket}")  # which the agent's end waits for
open("/tmp/done", "w").close()
while "result-known" not in open("{RUN_DIR.events}").read():
    time.sleep(0.01)
subprocess.run(["sh", "-c", "kill -KILL $(cat /proc/1/task/1/children)"])
"""
KILLS_AGENT = ("sh", "-c", "kill -KILL $(cat /proc/1/task/1/children)")
"""tini ends with 137 then, as it does when the node has no memory left and kills the agent."""


def install(bed: Bed, namespace: str, script: str, pods: int, **more: str) -> None:
    bed.plane.cluster.write(MASTER, f"/run/{namespace}.sh", script)
    settings = {"workload.gpus": str(2 * pods), "workload.max_workload_restarts": "2"}
    words = (f"--set-file=task_script=/run/{namespace}.sh", *(f"--set=workload.{key}={more[key]}" for key in more))
    bed.install("job", namespace, settings, *words)


def restarts(bed: Bed, namespace: str) -> int:
    (jobset,) = bed.get("jobsets", namespace)
    return int(jobset["status"]["restarts"])


def test_lost_pods_are_replaced_and_the_others_stay(bed: Bed, namespace: str) -> None:
    """One is deleted, one killed, one deleted by force."""
    install(bed, namespace, GOES_ON, 5, lives="2", terminationGracePeriodSeconds="20")
    first, *workers, last = bed.formed("job", namespace, 5)
    deleted, killed, forced = (pod["metadata"]["name"] for pod in workers)
    bed.execute(namespace, killed, *KILLS_AGENT)
    delete(bed, namespace, deleted)
    bed.plane.kubectl("delete", "pod", forced, "--namespace", namespace, "--force", "--grace-period=0")
    assert bed.ended("job", namespace) == "Completed"
    pods = bed.pods("job", namespace)
    good = [pod for pod in pods if pod["status"]["phase"] == "Succeeded"]
    assert uids([first, last]) < uids(good) and not uids(workers) & uids(good)
    assert [pod["metadata"]["name"] for pod in pods if pod not in good] == [killed]
    assert restarts(bed, namespace) == 0 and attempts(pods) == {"0"}
    assert "life 2" in bed.log_of(namespace, first["metadata"]["name"])


def test_a_pod_is_replaced_when_its_dead_node_is_given_up(bed: Bed, namespace: str) -> None:
    install(bed, namespace, GOES_ON, 3, lives="1")
    old = bed.formed("job", namespace, 3)
    node, taint = old[2]["spec"]["nodeName"], "node.kubernetes.io/out-of-service"
    bed.order("die", node)
    try:
        bed.until("it is to be deleted", lambda: "deletionTimestamp" in bed.pods("job", namespace)[2]["metadata"])
        bed.plane.kubectl("taint", "nodes", node, f"{taint}=nodeshutdown:NoExecute")
        assert bed.ended("job", namespace) == "Completed"
    finally:
        bed.order("reboot", node)
        bed.plane.kubectl("taint", "nodes", node, f"{taint}-")
    good = bed.pods("job", namespace)
    assert uids(old) & uids(good) == uids(old[:2]) and len(good) == 3
    assert restarts(bed, namespace) == 0


def test_a_pod_that_is_lost_when_the_job_is_done_does_not_count(bed: Bed, namespace: str) -> None:
    install(bed, namespace, IS_DONE, 2, lives="2")
    first, second = bed.formed("job", namespace, 2)
    with bed.codes(namespace) as codes:
        bed.execute(namespace, first["metadata"]["name"], "touch", "/tmp/done")
        bed.execute(namespace, second["metadata"]["name"], "python3", "-c", KILLS_ENDING_AGENT)
        assert bed.ended("job", namespace) == "Completed"
        bed.until("both have ended", lambda: len(codes()) == 2)
        assert codes() == {first["metadata"]["uid"]: 0, second["metadata"]["uid"]: 137}


def test_pod_0_is_replaced_with_all_others_and_the_job_begins_anew_in_its_epoch(bed: Bed, namespace: str) -> None:
    install(bed, namespace, GOES_ON, 2, lives="2")
    old = bed.formed("job", namespace, 2)
    before = epoch(bed, namespace, old[0])
    first = old[0]["metadata"]["name"]
    bed.until("its run has begun", lambda: "life 1" in bed.log_of(namespace, first))
    bed.execute(namespace, first, *KILLS_AGENT)
    new = bed.formed("job", namespace, 2)
    assert not uids(old) & uids(new)
    assert {epoch(bed, namespace, pod) for pod in new} == {before}
    assert restarts(bed, namespace) == 0


def test_used_up_lives_restart_the_job_set_and_a_code_of_its_own_ends_it(bed: Bed, namespace: str) -> None:
    install(bed, namespace, IS_KILLED, 2, lives="1")
    assert bed.ended("job", namespace) == "Failed"
    assert restarts(bed, namespace) == 1
    (job,) = bed.get("jobs", namespace)
    assert "failed with exit code 3 matching FailJob rule" in str(job["status"]["conditions"])
