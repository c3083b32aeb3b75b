"""Lost pods and their replacements: what is decided, and what comes about."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from agent.commands import dispatch
from agent.errors import UsageError
from agent.paths import DEFAULT_RUN_DIR
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.podenv import ClusterBuild, pod_environment
from agent.workbench.local.pods import RUNNING, WAITING, PodInfo
from agent.workbench.local.replacing import Follows, addresses_between, name_steps, own_end_seconds, what_follows
from agent.workbench.local.spec import DATA_NIC, ClusterSpec, NameFault, address, check
from tests.workbench.local.helpers import (
    DEADLINE,
    ask_dns,
    eventually,
    leaves_nothing,
    needs_root,
    python_in,
    up,
)

NOTHING, REPLACEMENT, JOB_END = Follows.NOTHING, Follows.REPLACEMENT, Follows.JOB_END
NXDOMAIN = 3


@pytest.mark.parametrize(
    ("lives", "index", "code", "is_over", "follows"),
    [
        *((3, 1, code, False, REPLACEMENT) for code in (75, 137, 143)),
        *((3, 1, code, True, NOTHING) for code in (0, 1, 75, 137, 143)),
        *((0, index, code, False, NOTHING) for index in (0, 1) for code in (0, 1, 137)),
        *((3, 0, code, False, JOB_END) for code in (0, 1, 75, 137, 143)),
        *((3, 1, code, False, JOB_END) for code in (1, 2, 65, 70, 127, 130, 139)),
        (3, 1, 0, False, NOTHING),
    ],
)
def test_what_follows_the_end_of_a_pod(lives: int, index: int, code: int, is_over: bool, follows: Follows) -> None:
    assert what_follows(ClusterSpec(2, lives=lives), index, code, is_over=is_over) == follows


def test_pods_that_are_not_told_of_the_end_have_a_lease_to_find_out() -> None:
    assert own_end_seconds(75) == own_end_seconds(0) < 30 < own_end_seconds(137)


@pytest.mark.parametrize(
    ("fault", "between", "steps"),
    [
        (NameFault(), (), [(0, ("new",))]),
        (NameFault("late", 5), (), [(0, ()), (5, ("new",))]),
        (NameFault("stale", 5), ("old",), [(0, ("old",)), (5, ("new",))]),
        (NameFault("both", 5), ("old",), [(0, ("old", "new")), (5, ("new",))]),
    ],
)
def test_what_the_name_is_answered_with(
    fault: NameFault, between: tuple[str, ...], steps: list[tuple[float, tuple[str, ...]]]
) -> None:
    assert addresses_between(fault, "old") == between
    assert name_steps(fault, "old", "new") == steps


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (ClusterSpec(2, lives=-1), "lives: 0 to 1000, not -1"),
        (ClusterSpec(2, lives=1, replace_after=-2), "seconds: 0 or more, not -2"),
        (ClusterSpec(2, lives=1, replaced_name=NameFault("late", -2)), "seconds: 0 or more, not -2"),
        (ClusterSpec(2, lives=1, replaced_name=NameFault("slow", 2)), "replaced name: one of ok, late, stale, both"),
        (ClusterSpec(2, replaced_name=NameFault("late", 2)), "pods are replaced only with lives"),
    ],
)
def test_problems_are_named(spec: ClusterSpec, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check(spec)


def test_spare_machines_are_others_for_very_long() -> None:
    spec = ClusterSpec(3, name="job")
    machines = [*range(3), *map(spec.spare, range(250 * 255 - 3))]
    assert len({address(machine) for machine in machines}) == len(machines) == machines[-1] + 1
    assert address(machines[-1]) < "198.19"
    assert spec.spare(len(machines) - 3) == 3


def test_a_replacement_differs_from_the_pod_that_was_lost() -> None:
    spec, job = ClusterSpec(3, name="job", lives=2), ClusterBuild("uid", "stamp", "/bin")
    before, after = pod_environment(spec, job, 1), pod_environment(spec, job, 1, spec.spare(0))
    assert {name for name in before if before[name] != after[name]} == {"HOSTNAME", "NODE_NAME", "POD_NAME"}
    assert before["A4_LIVES"] == "2" and "A4_LIVES" not in pod_environment(ClusterSpec(3, name="job"), job, 1)
    assert spec.index_of(after["POD_NAME"]) == 1 and spec.place(1) != spec.place(spec.spare(0))
    for node, found in ((before["NODE_NAME"], None), (after["NODE_NAME"], 1)):
        if found is None:
            with pytest.raises(UsageError, match="there is no pod"):
                spec.index_of(node, {1: after["NODE_NAME"]})
        else:
            assert spec.index_of(node, {1: after["NODE_NAME"]}) == found


def lose(cluster: LocalCluster, index: int) -> None:
    """Kill a pod, once it runs."""
    eventually(lambda: cluster.pods()[index].state == RUNNING)
    cluster.kill_pod(index)


def replaced(cluster: LocalCluster, index: int, times: int = 1) -> PodInfo:
    """The pod of an index, once its replacement runs."""

    def is_there() -> bool:
        pod = cluster.pods()[index]
        return (pod.replaced, pod.state) == (times, RUNNING)

    eventually(is_there, f"replacement {times} of pod {index}")
    return cluster.pods()[index]


_SHOW = """
import http.client, os, socket
names = ("JOB_COMPLETION_INDEX", "A4_LIVES", "POD_NAME", "NODE_NAME")
connection = http.client.HTTPConnection(os.environ["A4_METADATA_HOST"], timeout=60)
path = "/computeMetadata/v1/instance/attributes/physical_host"
connection.request("GET", path, headers={"Metadata-Flavor": "Google"})
host = connection.getresponse().read().decode()
own = socket.gethostname()
print(*(os.environ[name] for name in names), own, socket.gethostbyname(own), host)
"""


@needs_root
def test_the_agent_of_a_replacement_starts_elsewhere_under_the_same_index(capfd: pytest.CaptureFixture[str]) -> None:
    events = f"{DEFAULT_RUN_DIR}/events.jsonl"
    env = {"SLEEP_INFINITY": "true", "A4_REPORT": "false"}
    with up(3, (), gpus_per_pod=1, lives=3, replace_after=0, env=env) as cluster:
        cluster.wait_for_file(f"{DEFAULT_RUN_DIR}/plan.json", DEADLINE)
        cluster.write(1, "/etc/mark", "")
        lost, before = cluster.pods()[1], python_in(cluster, 1, _SHOW).split()
        lose(cluster, 1)
        pod = replaced(cluster, 1)
        after = python_in(cluster, 1, _SHOW).split()
        assert before[:2] == after[:2] == ["1", "3"]
        assert all(one != other for one, other in zip(before[2:], after[2:], strict=True)), (before, after)
        assert (pod.index, pod.name, pod.replaced) == (1, lost.name, 1)
        assert (pod.node, pod.address) == (after[3], after[5]) and after[3] == after[4]
        assert ask_dns(cluster, 0, pod.name) == (0, 1, pod.address)
        assert cluster.index_of(pod.node) == 1
        with pytest.raises(UsageError, match="there is no pod"):
            cluster.index_of(lost.node)
        cluster.wait_for_file(events, DEADLINE, [1])
        for path in ("/etc/mark", f"{DEFAULT_RUN_DIR}/plan.json"):
            assert cluster.read_bytes(1, [path]) == {path: None}
        assert dispatch(["local", "status", "--name", cluster.name]) == 0
        assert "  pod 1: replaced once\n" in capfd.readouterr().out
        begun = f"a4-agent local: pod 1 has ended 137 and is replaced: {after[2]} on {pod.node}, {pod.address}\n"
        assert begun in cluster.logs(1, "err")


@needs_root
@pytest.mark.parametrize(("mode", "answer"), [("late", 0), ("stale", 1), ("both", 2)])
def test_the_name_of_a_replacement_is_wrong_for_a_while(mode: str, answer: int) -> None:
    with up(2, lives=1, replace_after=0, replaced_name=NameFault(mode, 1000)) as cluster:
        old = cluster.pods()[1]
        lose(cluster, 1)
        new = replaced(cluster, 1)
        eventually(lambda: ask_dns(cluster, 0, new.name)[1] == answer)
        found = ask_dns(cluster, 0, new.name)
        assert found[0] == (0 if answer else NXDOMAIN) and found[2] in ("-", old.address, new.address)
        assert mode != "stale" or found[2] == old.address
        cluster.set_name(1, visible=True)
        eventually(lambda: ask_dns(cluster, 0, new.name) == (0, 1, new.address))


_TWICE = """
echo "begun $A4_LIVES"
case $JOB_COMPLETION_INDEX in
    0) until test -e /mnt/again; do sleep 0.05; done ;;
    1) if mkdir /mnt/first; then exit 75; elif mkdir /mnt/second; then exit 143; fi; touch /mnt/again ;;
esac
"""


@needs_root
def test_codes_decide_who_is_replaced() -> None:
    with up(3, ("sh", "-c", _TWICE), lives=5, replace_after=0.01, env={"A4_LIVES": "9"}) as cluster:
        pods = cluster.wait(DEADLINE)
        assert [(pod.code, pod.replaced, pod.machine) for pod in pods] == [(0, 0, 0), (0, 2, 4), (0, 0, 2)]
        assert cluster.logs(1, "out") == 3 * "begun 9\n"
        said = [
            line.partition(":")[2].partition(":")[0] for line in cluster.logs(1, "err").splitlines() if "repl" in line
        ]
        assert said == [f" pod 1 has ended {code} and is replaced" for code in (75, 143)]


def is_lost(cluster: LocalCluster, index: int) -> bool:
    pod = cluster.pods()[index]
    return (pod.state, pod.code) == (WAITING, 137)


@needs_root
def test_a_pod_that_waits_for_its_replacement_is_not_over() -> None:
    with up(3, lives=1, replace_after=1000) as cluster:
        for index in (1, 2):
            lose(cluster, index)
            eventually(partial(is_lost, cluster, index))
        assert ask_dns(cluster, 0, cluster.spec.pod_name(1))[0] == NXDOMAIN
        with pytest.raises(TimeoutError):
            cluster.wait(0.05, [1])
        with pytest.raises(UsageError, match=r"pod 1 is not running: waiting \(exit code 137\)"):
            cluster.exec(1, ["true"])
        cluster.start_pod(2)
        assert ask_dns(cluster, 0, cluster.spec.pod_name(2)) == (0, 1, address(2))
        lose(cluster, 0)
        assert [pod.code for pod in cluster.wait(DEADLINE, [0, 1])][:2] == [137, 137]
        lose(cluster, 2)
        assert [(pod.state, pod.replaced) for pod in cluster.wait(DEADLINE)] == 3 * [("ended", 0)]


@needs_root
def test_a_job_that_has_failed_replaces_nobody() -> None:
    with up(3, ("sh", "-c", "[ $JOB_COMPLETION_INDEX = 1 ] && exit 3; exec sleep infinity"), lives=1) as cluster:
        cluster.wait(DEADLINE, [1])
        lose(cluster, 2)
        assert [pod.code for pod in cluster.wait(DEADLINE, [1, 2])] == [None, 3, 137]


@needs_root
def test_pods_that_are_told_to_end_are_not_replaced_and_leave_nothing() -> None:
    with up(3, ("sh", "-c", "trap 'exit 143' TERM; sleep infinity & wait"), lives=1, replace_after=0) as cluster:
        held = Path(f"/proc/{cluster.supervisor_pid()}/fd")
        eventually(lambda: "sleep" in cluster.exec(1, ["ps", "-e"]).stdout)
        lose(cluster, 1)
        replaced(cluster, 1)
        before = len(os.listdir(held))
        for index, times in ((1, 2), (2, 1), (1, 3)):
            lose(cluster, index)
            replaced(cluster, index, times)
        eventually(lambda: len(os.listdir(held)) <= before, "as many descriptors as before")
        with leaves_nothing(cluster):
            ends = cluster.terminate(DEADLINE)
            assert [(pod.code, pod.replaced) for pod in ends] == [(143, 0), (143, 3), (143, 1)]
            cluster.close()


_KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), float(sys.argv[2]))
except OSError as error:
    print(type(error).__name__)
"""


@needs_root
def test_links_of_a_replacement_can_be_disturbed() -> None:
    with up(3, lives=1, replace_after=0, data_nic=True) as cluster:
        lose(cluster, 1)
        pod = replaced(cluster, 1)
        data = address(pod.machine, DATA_NIC)
        assert python_in(cluster, 0, _KNOCK, data, "60") == "ConnectionRefusedError"
        cluster.slow_link(0, "10mbit", DATA_NIC.name)
        cluster.slow_way(0, [1], nic=DATA_NIC.name)
        assert python_in(cluster, 0, _KNOCK, data, "0.3") == "TimeoutError"
        assert python_in(cluster, 0, _KNOCK, pod.address, "60") == "ConnectionRefusedError"
        cluster.link(1, up=False)
        assert python_in(cluster, 0, _KNOCK, pod.address, "0.3") in ("TimeoutError", "OSError")
