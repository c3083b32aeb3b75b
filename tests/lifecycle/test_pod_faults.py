"""What goes wrong inside one pod: its sshd, its disk, its programs, the agent itself."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from agent.decide.grace import USUAL
from agent.lifecycle.waits import PROBE_SECONDS
from agent.machine.api import SERVER_SECONDS
from agent.paths import HOSTFILE, HOSTFILE_ONE_PER_NODE, HOSTNAMES_ORDER, RANK_ORDER
from tests.fake.machine import FakeMachine
from tests.fake.pod import DIR
from tests.fake.process import FOREVER, Life
from tests.fake.world import FakeWorld, all_are, first_run

# sshd


@pytest.mark.parametrize("index", [0, 2])
def test_an_sshd_that_dies_now_and_then_is_started_again(index: int) -> None:
    world = first_run(life=Life(0, 100))
    for count in range(7):
        world.at(5 + 13 * count, world.pod(index).kill_sshd)
    assert world.run() == all_are(0), world.dump()
    assert world.pod(index).log.getvalue().count("is started again") == 7


@pytest.mark.parametrize("index", [0, 2])
def test_an_sshd_that_dies_six_times_in_a_minute_ends_the_job(index: int) -> None:
    world = first_run(life=Life(0, 100))
    for count in range(6):
        world.at(10 + 5 * count, world.pod(index).kill_sshd)
    assert world.run() == all_are(71), world.dump()
    for pod in world.others(index):
        assert "sshd ended" in pod.said()["what"]
        assert pod.said()["where"] == world.pod(index).where


def test_a_busy_port_on_the_coordinator_is_told_to_all() -> None:
    world = FakeWorld(4)
    world.pod(0).busy[world.pod(0).address] = "pid 7 (nc)"
    assert world.run() == all_are(71), world.dump()
    assert world.last() < 10
    for pod in world.pods:
        assert "in use by pid 7 (nc)" in pod.said()["what"]


def test_a_busy_port_on_a_worker() -> None:
    """Nobody can reach it to hear why: it says so itself, the others name it."""
    world = FakeWorld(4)
    pod = world.pod(2)
    pod.busy = {pod.address: "pid 7 (nc)", "127.0.0.1": "pid 7 (nc)"}
    assert world.run() == {0: 69, 1: 69, 2: 71, 3: 69}, world.dump()
    assert "in use by pid 7 (nc)" in pod.said()["what"]
    assert (
        f"pod 2, {pod.name}, pod name and node not known: DNS ok, port 2222 at {pod.address}"
        in world.pod(1).said()["why"]
    )


def test_an_sshd_that_never_says_that_it_listens() -> None:
    world = FakeWorld(3)
    world.pod(0).sshd_life = Life(1, 0.0)
    world.pod(0).busy = {world.pod(0).address: "", "127.0.0.1": ""}
    codes = world.run()
    assert codes == all_are(71, 3), world.dump()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (f"{DIR.sshd_config}: line 7: Bad configuration option: PubkeyAcceptedKeyTypes", "OpenSSH 8.2 or later"),
        (f"{DIR.sshd_config} line 9: Bad SSH2 KexAlgorithms '-x'.", "OpenSSH 8.2 or later"),
        ("sshd: no hostkeys available -- exiting.", ""),
    ],
)
def test_an_sshd_that_does_not_take_its_configuration(words: str, hint: str) -> None:
    world = FakeWorld(2, "script")
    world.pod(0).sshd_life = Life(output=words.encode())
    assert world.run() == all_are(71, 2), world.dump()
    assert world.pod(0).said()["what"] == f"sshd ended with status 255: {words}"
    assert hint in world.pod(0).said()["why"] and bool(hint) == bool(world.pod(0).said()["why"])


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize(("code", "what"), [(66, "sshd is not installed"), (71, "root")])
def test_no_sshd_installed_or_root_locked(code: int, what: str, index: int) -> None:
    world = FakeWorld(4)
    if code == 66:
        world.pod(index).programs.pop("sshd")
    else:
        world.pod(index).files["/etc/shadow"] = "root:!:19000:0:99999:7:::\n"
    assert world.run() == (all_are(69) if index else all_are(code)) | {index: code}, world.dump()
    assert what in world.pod(index).said()["what"]


# Files


@pytest.mark.parametrize("index", [0, 2])
def test_a_full_disk_when_the_hostfile_is_written(index: int) -> None:
    world = FakeWorld(4)
    world.pod(index).failing[HOSTFILE] = errno.ENOSPC
    codes = world.run()
    assert 0 not in codes.values(), world.dump()
    assert len(set(codes.values())) == 1, world.dump()
    assert world.last() < 60, world.dump()
    for pod in world.pods:
        assert "No space left on device" in pod.said()["what"] + pod.said()["why"]


@pytest.mark.parametrize("index", [0, 2])
def test_a_run_directory_that_becomes_full(index: int) -> None:
    """Not even the agent's own state can be written any more; the others hear of it all the same."""
    world = first_run()
    world.pod(index).failing[DIR.path] = errno.ENOSPC
    world.at(30, world.pod(1).signal)
    codes = world.run()
    assert 0 not in codes.values(), world.dump()
    assert world.last() < 75, world.dump()


def test_a_run_directory_that_is_full_for_a_while() -> None:
    """The probe's file could not be touched: no reason to end a job."""
    world = first_run(life=Life(0, 100))
    world.at(30, lambda: world.pod(2).failing.update({DIR.alive: errno.ENOSPC}))
    world.at(40, world.pod(2).failing.clear)
    assert world.run() == all_are(0), world.dump()
    said = f"warning: state of this pod cannot be kept: {DIR.alive}: No space left on device\n"
    assert world.pod(2).log.getvalue().count(said) == 1


@pytest.mark.parametrize(("pods", "index"), [(1, 0), (4, 0), (4, 2)])
@pytest.mark.parametrize("problem", ["Read-only file system", "stuck"])
def test_a_results_directory_that_one_pod_cannot_write(problem: str, pods: int, index: int) -> None:
    """It is found before the run, and nobody waits for that directory once more."""
    world = FakeWorld(pods, "script", {"A4_RESULTS_DIR": "/results"})
    world.pod(index).storage = problem
    assert world.run() == all_are(73, pods), world.dump()
    assert world.last() < (20 if problem == "stuck" else 15)
    for pod in world.pods:
        assert pod.said()["what"].startswith("A4_RESULTS_DIR=/results cannot be used: ")
        assert pod.said()["where"].startswith(f"pod {index}, ")
        assert pod.workloads() == [] and (index or "run" not in pod.state())


@pytest.mark.parametrize("index", [0, 2])
def test_a_results_directory_that_is_slow_at_first_is_tried_again(index: int) -> None:
    world = FakeWorld(4, "script", {"A4_RESULTS_DIR": "/results"})
    world.pod(index).storage = "stuck"
    world.at(4, lambda: setattr(world.pod(index), "storage", ""))  # what was asked before has no answer
    assert world.run() == all_are(0), world.dump()
    again = f"it is tried once more, for {SERVER_SECONDS:g} s"
    said = f"warning: A4_RESULTS_DIR=/results: no answer for {PROBE_SECONDS:g} s; {again}\n"
    assert [pod.log.getvalue().count(said) for pod in world.pods] == [int(pod.index == index) for pod in world.pods]


@pytest.mark.parametrize("index", [0, 2])
def test_a_read_only_root_is_told_before_the_cluster_forms(index: int) -> None:
    world = FakeWorld(4)
    world.pod(3).starts = 3.0
    world.pod(index).failing |= {"/etc/": errno.EROFS, "/tmp/": errno.EROFS}
    assert world.run() == all_are(71), world.dump()
    assert world.last() < 10
    for pod in world.pods:
        said = pod.said()
        assert all(path in said["what"] for path in (HOSTFILE, HOSTFILE_ONE_PER_NODE, RANK_ORDER, HOSTNAMES_ORDER))
        assert "Read-only file system" in said["what"] and "readOnlyRootFilesystem: false" in said["why"]
        assert said["where"].startswith(f"pod {index}, ") and not pod.has("plan-ready")


# Programs and settings


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize(
    ("number", "code", "why"),
    [
        (errno.EAGAIN, 71, "limit of processes: raise it (pids.max"),
        (errno.ENOENT, 66, ""),
    ],
)
def test_a_workload_that_the_system_does_not_start(index: int, number: int, code: int, why: str) -> None:
    world = FakeWorld(4, "script", life=FOREVER)
    world.pod(index).refusing["bash"] = number
    assert world.run() == all_are(code), world.dump()
    assert set(world.ends().values()) == {(code, "agent", world.pod(index).where)}
    for pod in world.pods:
        assert os.strerror(number) in pod.said()["what"] and why in pod.said()["why"]


@pytest.mark.parametrize(
    ("inventory", "why"),
    [
        ({"mpirun": "/mpirun", "mpirun_version_text": "Intel(R) MPI"}, "/mpirun is not Open MPI's mpirun"),
        ({"problem": "OSError: no memory"}, "OSError: no memory"),
    ],
)
@pytest.mark.parametrize("seconds", [0.02, 5.0])
def test_an_mpirun_of_no_use_is_told_to_all(inventory: dict[str, str], why: str, seconds: float) -> None:
    """Also where the cluster is formed before mpirun has said what it is."""
    world = FakeWorld(4, "connectivity")
    world.pod(0).inventory = inventory
    world.pod(0).inventory_seconds = seconds
    assert world.run() == all_are(66), world.dump()
    assert world.last() < seconds + 5
    assert all(why in pod.said()["what"] for pod in world.pods)
    assert not any(pod.workloads() for pod in world.pods)


def test_no_mpirun_is_told_to_all_also_to_pods_that_are_still_starting() -> None:
    world = FakeWorld(4, "connectivity")
    world.pod(0).programs.pop("mpirun")
    world.pod(3).starts = 12
    assert world.run() == all_are(66), world.dump()
    assert world.last() < 22


@pytest.mark.parametrize("index", [0, 2])
def test_an_interface_that_is_not_there(index: int) -> None:
    world = FakeWorld(4)
    world.pod(index).env["A4_INTERFACE"] = "eth7"
    codes = world.run()
    assert codes[index] == 78, world.dump()
    assert {codes[pod.index] for pod in world.others(index)} in ({69}, {78}), world.dump()


# The agent itself


BUG = """
import resource
from agent.lifecycle.serve import guarded

class Role:
    bug = staticmethod(print)

def step():
    raise ValueError("no such part")

resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
guarded(step, Role)
"""


def test_a_bug_is_told_where_no_file_can_be_opened() -> None:
    done = subprocess.run([sys.executable, "-c", BUG], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.startswith("ValueError: no such part (no traceback: "), done.stderr
    assert "Too many open files" in done.stdout


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize(("method", "second"), [("gpu_count", 0.05), ("gpu_count", 0.5), ("core_count", 0.05)])
def test_a_bug_ends_every_pod_and_says_where(
    monkeypatch: pytest.MonkeyPatch, method: str, second: float, index: int
) -> None:
    """gpu_count is asked as soon as the place is known, core_count when the run starts."""

    def count(machine: FakeMachine) -> int:
        if machine.pod.index == index:
            raise RuntimeError(f"{method} is broken")
        return 8

    monkeypatch.setattr(FakeMachine, method, count)
    world = FakeWorld(4, "script", life=FOREVER, metadata_seconds=second)
    assert world.run() == all_are(70), world.dump()
    assert world.last() < 60
    for pod in world.pods:
        assert pod.said()["where"] == world.pod(index).where
        assert f"RuntimeError: {method} is broken" in pod.said()["why"]


@pytest.mark.parametrize("name", ["notes", "ranks"])
@pytest.mark.parametrize(("status", "code"), [(0, 71), (5, 5)])
@pytest.mark.parametrize("index", [0, 2])
def test_what_a_run_left_and_nobody_can_read_ends_the_run_alone(index: int, status: int, code: int, name: str) -> None:
    """As where a program has put a link to itself into the place of a directory."""
    world = FakeWorld(3, "none", {"SLEEP_INFINITY": "true"}, life=Life(status, 20))
    world.until(world.asleep)
    run_id = world.submit(1, "script")
    world.wait(5)
    world.pod(index).unreadable[f"{run_id}/{name}"] = errno.ELOOP
    world.until(lambda: world.pod(0).events().count("run-ended") == 2)
    ended = world.pod(0).state()["runs"][-1]
    assert ended["code"] == code, world.dump()
    assert f"/{run_id}/{name}, which {run_id} left, cannot be read: " in world.pod(index).log.getvalue()
    world.wait(60)
    assert world.asleep(), world.dump()


def test_a_file_beside_those_of_ranks_ends_nothing() -> None:
    """`int` takes no superscript, though it is a digit."""
    world = FakeWorld(3, "script", life=Life(0, 20))
    world.until_event("run-started")
    world.pod(1).agent.files[f"/run/a4-agent/runs/{world.pod(0).state()['run']['id']}/ranks/²"] = ""
    world.run()
    assert set(world.codes().values()) == {0}, world.dump()


@pytest.mark.parametrize("index", [0, 2])
def test_a_part_that_never_comes_to_its_end_keeps_no_pod(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = FakeWorld(4, "script", life=Life(0, 100))
    world.until_event("run-started")
    monkeypatch.setattr("agent.lifecycle.runs.part.RunPart._finish", lambda part, end: None)
    world.wait(5)
    for pod in world.pods:
        pod.signal()
    began = world.seconds
    world.run()
    assert world.last() < began + USUAL.leave + 10, world.dump()
    assert "does not end, and is left behind" in world.pod(index).log.getvalue()
