"""What a pod of the local cluster is like from the inside."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from agent.errors import UsageError
from agent.paths import SECRET_FILE
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.spec import Mount, address
from tests.workbench.local.helpers import CHECKOUT, DEADLINE, IDLE, needs_root, python_in, up

pytestmark = needs_root


@pytest.fixture(scope="module")
def cluster(no_pod_around_fixtures: None) -> Iterator[LocalCluster]:
    """A third pod with a secret of its own."""
    files = {"/workload/task/task-script.sh": b"#!/bin/sh\necho task\n", "/tmp/data": b"\0\xff"}
    of_pods: dict[str, Any] = {"pod_env": {1: {"EXTRA": "own"}}, "pod_secret": {2: b"x" * 32}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOMETHING_OF_THE_HOST", "1")
        with up(3, gpus_per_pod=2, env={"EXTRA": "a b"}, files=files, slow_bashrc=0.01, **of_pods) as cluster:
            yield cluster


def environment(cluster: LocalCluster, pod: int) -> dict[str, str]:
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    found: dict[str, str] = json.loads(python_in(cluster, pod, code))
    return found


def test_pod_contract_is_in_the_environment(cluster: LocalCluster) -> None:
    name = cluster.name
    found = environment(cluster, 2)
    wanted = {
        "NNODES": "3",
        "JOB_COMPLETION_INDEX": "2",
        "GPUS_PER_NODE": "2",
        "WORLD_SIZE": "6",
        "HOSTNAME_PREFIX": f"{name}-workload-",
        "DOMAIN_NAME": f"{name}.default.svc.cluster.local",
        "MASTER_ADDR": f"{name}-workload-0-0.{name}.default.svc.cluster.local",
        "RANK_0_FQDN": f"{name}-workload-0-0.{name}.default.svc.cluster.local",
        "MASTER_PORT": "6002",
        "JOB_ID": name,
        "JOB_ORCHESTRATOR": "gke",
        "A4_RESTART_ATTEMPT": "0",
        "A4_JOB_RESTART_ATTEMPT": "0",
        "A4_SSH_PORT": "2222",
        "HOME": "/root",
        "EXTRA": "a b",
    }
    assert found.items() >= wanted.items() and "SOMETHING_OF_THE_HOST" not in found
    assert found["JOB_IDENTIFIER"].startswith(f"{name}-")
    assert (
        re.fullmatch(f"{name}-workload-0-2-[0-9a-f]{{5}}", found["POD_NAME"])
        and found["NODE_NAME"] == found["HOSTNAME"]
    )
    assert uuid.UUID(found["A4_JOBSET_UID"])
    assert environment(cluster, 1)["EXTRA"] == "own"


def test_what_a_chart_gives_is_all_that_a_pod_has() -> None:
    mounts = (
        Mount("/etc/a4-agent/secret", {"job-secret": b"s" * 32}, 0o400, read_only=True),
        Mount("/usr/share"),
        Mount("/usr/share/inner", {"x": b"text"}),
    )
    with up(1, contract=False, env={"NNODES": "7"}, mounts=mounts) as cluster:
        found = environment(cluster, 0)
        assert (found["NNODES"], [name for name in found if name.startswith(("A4_", "JOB_"))]) == ("7", [])
        shown = cluster.exec(0, ["stat", "-c", "%a %s", SECRET_FILE, "/usr/share/inner/x"]).stdout
        assert shown.splitlines() == ["400 32", "644 4"]
        assert cluster.exec(0, ["ls", "/usr/share"]).stdout.split() == ["inner"]
        assert "Read-only" in cluster.exec(0, ["touch", f"{SECRET_FILE}.new"]).stderr
        assert cluster.exec(0, ["touch", "/usr/share/inner/y"]).returncode == 0
    with up(1, contract=False) as cluster:
        assert cluster.exec(0, ["ls", SECRET_FILE]).returncode != 0


def test_first_process_and_exec_have_the_same_environment(cluster: LocalCluster) -> None:
    first = cluster.read_bytes(0, ["/proc/1/environ"])["/proc/1/environ"] or b""
    names = {item.partition(b"=")[0].decode() for item in first.split(b"\0") if item}
    assert names - {"_", "PWD", "SHLVL"} <= set(environment(cluster, 0))


def test_programs_have_no_descriptors_but_their_streams(cluster: LocalCluster) -> None:
    """None of those by which the supervisor holds other pods."""
    assert cluster.exec(2, ["ls", "/proc/1/fd"]).stdout.split() == ["0", "1", "2"]
    assert cluster.exec(2, ["ls", "/proc/self/fd"]).stdout.split() == ["0", "1", "2", "3"]  # 3: that directory


def test_host_name_is_the_nodes(cluster: LocalCluster) -> None:
    names = [cluster.exec(pod, ["hostname"]).stdout.strip() for pod in range(3)]
    assert names == [cluster.spec.node_name(pod) for pod in range(3)]
    assert len(set(names)) == 3
    assert cluster.read(1, "/etc/hostname").strip() == names[1]
    assert python_in(cluster, 1, "import socket; print(socket.gethostbyname(socket.gethostname()))") == address(1)


def test_each_pod_has_processes_of_its_own(cluster: LocalCluster) -> None:
    listing = cluster.exec(0, ["sh", "-c", "echo /proc/[0-9]*"]).stdout.split()
    assert "/proc/1" in listing
    assert len(listing) <= 3
    assert cluster.read(0, "/proc/1/cmdline").split("\0")[:-1] == list(IDLE)


def test_shared_directory_is_shared_and_nothing_else_is(cluster: LocalCluster) -> None:
    for place in ("/mnt", "/tmp", "/run", "/dev/shm", "/etc", "/root", "/usr/local"):
        cluster.write(0, f"{place}/{cluster.name}", place)
        assert cluster.read(0, f"{place}/{cluster.name}") == place
        assert not Path(f"{place}/{cluster.name}").exists()
    assert cluster.read(2, f"/mnt/{cluster.name}") == "/mnt"
    with pytest.raises(FileNotFoundError):
        cluster.read(2, f"/tmp/{cluster.name}")


def test_modes_of_the_usual_places(cluster: LocalCluster) -> None:
    places = "/run /tmp /dev/shm /root/.ssh /etc /etc/a4-agent/secret/job-secret /dev/termination-log /dev/null"
    modes = cluster.exec(0, ["stat", "-c", "%a", *places.split()]).stdout.split()
    assert modes == ["755", "1777", "1777", "700", "755", "400", "666", "666"]


def test_the_machines_keys_are_hidden_but_not_the_rest_of_home(cluster: LocalCluster) -> None:
    assert cluster.exec(0, ["ls", "-A", "/root/.ssh"]).stdout == ""
    before = set(os.listdir("/root"))  # where other programs come and go
    listing = cluster.exec(0, ["ls", "-A", "/root"]).stdout.splitlines()
    assert set(listing) >= before & set(os.listdir("/root"))


def test_termination_log_is_an_empty_file_to_overwrite(cluster: LocalCluster) -> None:
    assert cluster.read(1, "/dev/termination-log") == ""
    cluster.write(1, "/dev/termination-log", "{}")
    assert cluster.read(1, "/dev/termination-log") == "{}"


def test_secret_is_the_same_in_all_pods_unless_told_otherwise(cluster: LocalCluster) -> None:
    secrets = [cluster.read_bytes(pod, [SECRET_FILE])[SECRET_FILE] for pod in range(3)]
    assert secrets[0] == secrets[1] != secrets[2] == b"x" * 32
    assert secrets[0] is not None and len(secrets[0]) >= 32


def test_installation_is_there_and_read_only(cluster: LocalCluster) -> None:
    assert python_in(cluster, 0, "import agent; print(agent.__file__)") == str(CHECKOUT / "agent/__init__.py")
    for place in {sys.prefix, str(CHECKOUT)}:
        assert cluster.exec(0, ["touch", f"{place}/file"]).returncode == 1
    assert cluster.exec(0, ["a4-agent", "--help"]).returncode == 0


def test_system_is_writable_and_sysfs_is_not(cluster: LocalCluster) -> None:
    assert cluster.exec(0, ["touch", "/usr/bin/new-program", "/var/lib/new-file"]).returncode == 0
    assert not Path("/usr/bin/new-program").exists()
    assert cluster.exec(0, ["sh", "-c", "mkdir /sys/x"]).returncode != 0
    assert cluster.exec(0, ["sh", "-c", "echo x > /dev/null; head -c 4 /dev/urandom | wc -c"]).stdout == "4\n"


def test_given_files_are_in_every_pod(cluster: LocalCluster) -> None:
    assert cluster.exec(1, ["/workload/task/task-script.sh"]).stdout == "task\n"
    assert cluster.read_bytes(0, ["/tmp/data"])["/tmp/data"] == b"\0\xff"


def test_links_of_this_machine_lead_nowhere_out_of_a_pod() -> None:
    """A pod sees this machine's links, and who may make one there must not have root write where it leads."""
    with TemporaryDirectory(dir="/var/tmp") as base:
        os.mkdir(f"{base}/outside")
        os.symlink(f"{base}/outside", f"{base}/link")
        of_run = f"run/{os.path.basename(base)}"
        files = {f"{base}/link/file": b"text", f"/var/{of_run}": b"run"}
        mounts = (Mount(f"{base}/link/mount", {"inner": b"more"}),)
        with up(1, files=files, mounts=mounts) as cluster:
            assert os.listdir(f"{base}/outside") == []
            assert not Path(f"/{of_run}").exists()
            assert cluster.read(0, f"{base}/outside/file") == "text"
            assert cluster.read(0, f"{base}/outside/mount/inner") == "more"
            assert cluster.read(0, f"/{of_run}") == "run"
            cluster.wait_for_file(f"{base}/link/mount/inner", DEADLINE)
            cluster.wait_for_file(f"/var/{of_run}", DEADLINE)


def test_slow_bashrc_prints_and_takes_time(cluster: LocalCluster) -> None:
    result = cluster.exec(0, ["bash", "-ic", "echo end"])
    assert result.stdout.splitlines() == ["this .bashrc took 0.01 seconds", "end"]


def test_exec_passes_streams_environment_and_code(cluster: LocalCluster) -> None:
    content = "in\0put 89abcdef" * 100_000
    script = "cat; echo $MORE >&2; exit 9"
    result = cluster.exec(0, ["sh", "-c", script], input=content, env={"MORE": "more"}, timeout=DEADLINE)
    assert (result.returncode, result.stdout == content, result.stderr) == (9, True, "more\n")


def test_exec_of_a_missing_program(cluster: LocalCluster) -> None:
    result = cluster.exec(0, ["no-such-program"])
    assert result.returncode == 127
    assert "no-such-program: No such file" in result.stderr
    assert cluster.exec(0, ["/etc/hostname"]).returncode == 126


def test_exec_that_takes_too_long_is_killed(cluster: LocalCluster) -> None:
    with pytest.raises(TimeoutError):
        cluster.exec(0, ["sh", "-c", "echo $$ > /tmp/pid; sleep infinity"], timeout=0.2)
    result = cluster.exec(0, ["sh", "-c", "kill -0 $(cat /tmp/pid)"])
    assert result.returncode != 0


def test_exec_left_running_is_signalled_or_loses_its_terminal(cluster: LocalCluster) -> None:
    with cluster.popen(0, ["sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done"]) as running:
        assert running.stdout.readline() == b"ready\n"
        running.signal(signal.SIGTERM)
        assert running.wait(DEADLINE) == 5


def test_there_is_no_such_pod(cluster: LocalCluster) -> None:
    with pytest.raises(UsageError, match="no pod 3, only 0 to 2"):
        cluster.exec(3, ["true"])


def test_signals_to_processes_of_a_pod(cluster: LocalCluster) -> None:
    with cluster.popen(1, ["sh", "-c", "echo $$; exec sleep infinity"]) as running:
        pid = int(running.stdout.readline())
        cluster.signal(1, signal.SIGKILL, pid)
        assert running.wait(DEADLINE) == 128 + signal.SIGKILL
