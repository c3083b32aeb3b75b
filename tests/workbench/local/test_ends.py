"""How pods end, and that nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from agent.decide.run_marks import own_cgroup
from agent.errors import SystemFault, UsageError
from agent.machine.run_processes import remove_cgroup
from agent.workbench.local.access import connect
from agent.workbench.local.cgroups import cluster_cgroup, enter_cgroup, remove_left_cgroups
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.sockets import running_clusters
from tests.workbench.local.helpers import (
    CHECKOUT,
    DEADLINE,
    all_namespaces,
    cgroups_of,
    cluster_of,
    eventually,
    leaves_nothing,
    needs_root,
    own_namespaces,
    up,
)

pytestmark = needs_root

_OWNER = """
import sys
from agent.workbench.local.client import ClusterSpec, LocalCluster
cluster = LocalCluster(ClusterSpec(pods=2, name=sys.argv[1], entrypoint=("sleep", "infinity")))
cluster.start()
print("started", flush=True)
sys.stdin.read()
"""


BY_INDEX = """
echo "out $JOB_COMPLETION_INDEX"; echo err >&2
echo run >/run/x; echo log >/dev/termination-log; echo e >/etc/x
case $JOB_COMPLETION_INDEX in
    0) exit 0 ;;
    1) exit 7 ;;
    2) exit 255 ;;
    3) kill -9 $$ ;;
    4) sh -c 'kill -9 $$' ;;
esac
"""


def test_each_pod_has_its_own_code_output_and_files() -> None:
    with up(5, ("tini", "--", "sh", "-c", BY_INDEX)) as cluster:
        assert [pod.code for pod in cluster.wait(DEADLINE)] == [0, 7, 255, 137, 137]
        assert [cluster.logs(pod, "out") for pod in range(5)] == [f"out {pod}\n" for pod in range(5)]
        assert cluster.logs(1, "err") == "err\n"
        assert [item.pod for item in cluster.output(1, follow=True)] == [1, 1]
        found = [cluster.read(1, path) for path in ("/run/x", "/dev/termination-log", "/etc/x")]
        assert found == ["run\n", "log\n", "e\n"]
        before = os.listdir("/proc/self/fd")
        assert cluster.read_bytes(1, ["/etc", "/nothing"]) == {"/etc": None, "/nothing": None}
        assert os.listdir("/proc/self/fd") == before
        with pytest.raises(UsageError, match=r"pod 1 is not running: ended \(exit code 7\)"):
            cluster.exec(1, ["true"])


def test_a_missing_program_is_the_end_of_the_pod_only() -> None:
    with up(1, ("no-such-program",)) as cluster:
        assert [pod.code for pod in cluster.wait(DEADLINE)] == [127]
        assert "cannot start no-such-program" in cluster.logs(0)


def test_killed_pod_ends_137_with_all_its_processes() -> None:
    waits = ("sh", "-c", "sleep infinity & sleep infinity & wait")
    with up(2, waits) as cluster, own_namespaces([cluster.pods()[1].pid or 0]) as dead:
        cluster.kill_pod(1)
        assert cluster.wait(DEADLINE, [1])[1].code == 137
        assert cluster.pods()[0].state == "running"
        assert not dead & all_namespaces()


def test_a_pod_can_be_started_again_afresh() -> None:
    with up(2, ("sh", "-c", "test -e /etc/mark && exit 9; touch /etc/mark; exit ${CODE:-4}")) as cluster:
        cluster.wait(DEADLINE)
        cluster.start_pod(1, {"CODE": "5"})
        assert [pod.code for pod in cluster.wait(DEADLINE)] == [4, 5]


def test_a_wait_goes_on_for_pods_that_are_started_meanwhile() -> None:
    with up(2, missing=frozenset({1})) as cluster, closing(connect(cluster.name)) as waiting:
        waiting.send({"op": "wait", "timeout": DEADLINE, "indices": None})
        cluster.start_pod(1)
        cluster.wait_for_file("/etc/hosts", DEADLINE, [1])
        cluster.kill_pod(1)
        cluster.wait(DEADLINE, [1])
        cluster.start_pod(1)
        cluster.kill_pod(0)
        cluster.wait(DEADLINE, [0])
        cluster.wait_for_file("/etc/hosts", DEADLINE, [1])
        cluster.kill_pod(1)
        assert [pod["code"] for pod in waiting.expect()["pods"]] == [137, 137]


# Without a handler, the kernel keeps SIGTERM from a PID 1: only the end of the grace time ends it.
@pytest.mark.parametrize(("handler", "grace", "code"), [("exit 3", DEADLINE, 3), ("-", 0.3, 137)])
def test_terminate_is_sigterm_then_sigkill(handler: str, grace: float, code: int) -> None:
    script = f'trap "{handler}" TERM; echo on; while :; do sleep 0.01; done'
    with up(1, ("bash", "-c", script)) as cluster:
        eventually(lambda: cluster.logs(0))
        assert [pod.code for pod in cluster.terminate(grace=grace)] == [code]


def test_close_leaves_nothing_and_waits_for_nothing_that_exec_has_started() -> None:
    with up(2) as cluster:
        assert cluster.name in running_clusters()
        commands = [cluster.popen(pod, ["sleep", "infinity"]) for pod in (0, 0, 1)]
        with leaves_nothing(cluster):
            cluster.close()
        for command in commands:
            with command, pytest.raises(SystemFault, match="has ended"):
                command.wait(DEADLINE)


@pytest.mark.parametrize("detached", [False, True])
def test_nothing_is_left_when_the_supervisor_is_killed(detached: bool) -> None:
    with cluster_of(3, ("sh", "-c", "setsid sleep infinity & sleep infinity")) as cluster:
        cluster.start(detached=detached)
        with cluster.popen(1, ["sleep", "infinity"]), leaves_nothing(cluster):
            os.kill(cluster.supervisor_pid(), signal.SIGKILL)
        with pytest.raises(UsageError, match="no local cluster"):
            cluster.pods()


def test_nothing_is_left_when_the_owner_is_killed() -> None:
    name = f"owner-{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, name], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == b"started\n"
        with leaves_nothing(LocalCluster.attach(name)):
            owner.kill()


def test_a_pod_whose_cgroup_cannot_be_entered_goes_without(tmp_path: Path) -> None:
    (tmp_path / "pod-0" / "cgroup.procs").mkdir(parents=True)
    cluster = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    enter_cgroup(cluster, "pod-0")
    os.close(cluster)


def test_each_pod_has_a_cgroup() -> None:
    """It can make others in it, as a privileged pod on its node, and all go with the cluster."""
    if not own_cgroup(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()):
        pytest.fail("cgroup v2 cannot be written on this machine: mount cgroup2 rw", pytrace=False)
    own = "/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)"
    with up(2) as cluster:
        for index in range(2):
            done = cluster.exec(index, ["sh", "-c", f"mkdir -p {own}/a/b && cat {own}/cgroup.procs"])
            assert done.returncode == 0 and "1" in done.stdout.split(), done
        assert len(cgroups_of(cluster.name)) == 1 + 1 + 2 * 3  # its supervisor's, and two more in each pod's
    eventually(lambda: not cgroups_of(cluster.name))


def test_a_cluster_whose_pods_have_ended_keeps_its_cgroup() -> None:
    """Whoever has another /run sees its cgroup, but not its socket."""
    with up(1, ("true",)) as cluster:
        cluster.wait(DEADLINE)
        remove_left_cgroups([])
        assert cgroups_of(cluster.name)


def test_a_cluster_is_built_while_others_remove_what_seems_left() -> None:
    """For those who do not see its socket its cgroup seems left as long as no process is in it."""
    built = threading.Event()

    def remove() -> None:
        while not built.wait(0.001):
            remove_left_cgroups([])

    remover = threading.Thread(target=remove)
    with cluster_of(1) as cluster:
        remover.start()
        try:
            cluster.start()
        finally:
            built.set()
            remover.join()
        assert len(cgroups_of(cluster.name)) == 1 + 1 + 1


_LOSES_IT_ONCE = """
import os, sys
from agent.workbench.local import cgroups

makes, lost = os.mkdir, []

def mkdir(name, *rest, dir_fd=None):
    makes(name, *rest, dir_fd=dir_fd)
    if dir_fd is not None and not lost:
        os.rmdir(name, dir_fd=dir_fd)
        lost.append(name)

os.mkdir = mkdir
cluster = cgroups.enter_cluster_cgroup(sys.argv[1])
if not os.fork():
    lost.clear()
    cgroups.enter_cgroup(cluster, "pod-0")
    print(lost, open("/proc/self/cgroup").read())
    sys.exit()
os.wait()
print(lost, open("/proc/self/cgroup").read())
"""


def test_a_cgroup_that_others_remove_before_a_process_is_in_it_is_made_again() -> None:
    """The supervisor's own, and that of a pod."""
    path = cluster_cgroup(f"loses-{os.getpid()}")
    argv = [sys.executable, "-u", "-c", _LOSES_IT_ONCE, path]
    said = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    for name in ("pod-0", "supervisor"):
        assert f"['{name}']" in said and f"{os.path.basename(path)}/{name}\n" in said, said
    eventually(lambda: remove_cgroup(path))


def test_a_cluster_that_cannot_be_built_says_why_and_leaves_nothing() -> None:
    with cluster_of(2, devices=("/dev/no-such-device",)) as cluster:
        with pytest.raises(SystemFault, match=r"the sandbox of pod \d cannot be built: .*no-such-device"):
            cluster.start()
        assert cluster.name not in running_clusters()


def test_two_clusters_side_by_side() -> None:
    with up(2) as one, up(2) as other:
        assert one.pods()[1].address == other.pods()[1].address
        one.write(0, "/mnt/file", "one")
        other.write(0, "/mnt/file", "other")
        assert (one.read(1, "/mnt/file"), other.read(1, "/mnt/file")) == ("one", "other")
        one.close()
        assert other.exec(1, ["true"]).returncode == 0


def test_a_name_can_be_taken_once_and_found() -> None:
    with up(1) as one, cluster_of(1, name=one.name) as other:
        with pytest.raises(UsageError, match="runs already"):
            other.start()
        assert one.exec(0, ["true"]).returncode == 0
        assert LocalCluster.attach(one.name).spec == one.spec
        with pytest.raises(UsageError, match=f"(?s)no local cluster 'nobody' runs.*{one.name}"):
            LocalCluster.attach("nobody")


def test_wait_gives_up_in_time() -> None:
    with up(1) as cluster:
        with pytest.raises(TimeoutError, match="have not ended"):
            cluster.wait(0.05)
        with pytest.raises(TimeoutError, match="no /run/x"):
            cluster.wait_for_file("/run/x", 0.05)
        cluster.write(0, "/run/x", "")
        cluster.wait_for_file("/run/x", DEADLINE)
