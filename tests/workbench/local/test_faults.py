"""Network, DNS, metadata, and the faults that the local cluster can bring about."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent.errors import UsageError
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.spec import BRIDGE_ADDRESS, DATA_NIC, address
from tests.workbench.local.helpers import DEADLINE, ask_dns, cluster_of, eventually, needs_root, python_in, up

pytestmark = needs_root

NXDOMAIN = 3
_SERVE = """
import socket
server = socket.create_server(("", 7000))
print("ready", flush=True)
while True:
    connection, client = server.accept()
    connection.sendall(client[0].encode())
    connection.close()
"""
_TALK = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[2])) as connection:
        print(connection.recv(64).decode())
except OSError as error:
    print(type(error).__name__)
"""
_GET = """
import http.client, os, sys
connection = http.client.HTTPConnection(os.environ["A4_METADATA_HOST"], timeout=float(sys.argv[3]))
headers = {"Metadata-Flavor": "Google"} if sys.argv[2] else {}
try:
    connection.request("GET", "/computeMetadata/v1/instance/attributes/" + sys.argv[1], headers=headers)
    answer = connection.getresponse()
    print(answer.status, answer.headers.get("Metadata-Flavor", "-"), answer.read().decode())
except TimeoutError:
    print("timeout")
"""


def metadata(cluster: LocalCluster, pod: int, name: str, flavor: str = "yes", timeout: float = 20) -> list[str]:
    return python_in(cluster, pod, _GET, name, flavor, str(timeout)).split(maxsplit=2)


PLACE = ("c", "b", "s", "h")


@pytest.fixture(scope="module")
def cluster(no_pod_around_fixtures: None) -> Iterator[LocalCluster]:
    """Three pods with a data NIC: whoever disturbs them mends them."""
    with up(3, data_nic=True, places={1: PLACE}) as cluster:
        yield cluster


@contextmanager
def serving(cluster: LocalCluster, pod: int) -> Iterator[None]:
    """What _TALK talks to."""
    with cluster.popen(pod, ["python3", "-c", _SERVE]) as server:
        assert server.stdout.readline() == b"ready\n"
        yield


def test_pods_reach_each_other_by_name(cluster: LocalCluster) -> None:
    with serving(cluster, 2):
        assert python_in(cluster, 0, _TALK, cluster.spec.pod_name(2), "20") == address(0)
        assert python_in(cluster, 2, _TALK, "127.0.0.1", "20") == "127.0.0.1"


def test_dns_answers_as_a_headless_service(cluster: LocalCluster) -> None:
    name = cluster.spec.pod_name
    assert ask_dns(cluster, 0, name(2)) == (0, 1, address(2))
    assert ask_dns(cluster, 2, name(2), kind=28) == (0, 0, "-")
    assert ask_dns(cluster, 0, "example.com")[:2] == (NXDOMAIN, 0)
    assert ask_dns(cluster, 0, f"{name(2)}.default.svc.cluster.local")[:2] == (NXDOMAIN, 0)
    assert ask_dns(cluster, 0, "metadata.google.internal") == (0, 1, BRIDGE_ADDRESS)


def test_further_names_come_and_go_while_pods_run(cluster: LocalCluster) -> None:
    name = "job-0.job.mine.svc.cluster.local"
    cluster.set_names({name: [address(1), address(2)]})
    eventually(lambda: ask_dns(cluster, 0, name)[1] == 2)
    cluster.set_names({})
    eventually(lambda: ask_dns(cluster, 0, name)[1] == 0)


def test_pods_that_are_late_missing_or_dead() -> None:
    with cluster_of(
        6, late_names={1: 0.3}, late={2: 0.5, 3: 1000}, missing=frozenset({4}), dead=frozenset({5})
    ) as cluster:
        name, begin = cluster.spec.pod_name, time.monotonic()
        pods = cluster.start()
        assert [pods[index].state for index in (0, 1, 3, 4, 5)] == [*["running"] * 2, "waiting", *["absent"] * 2]
        eventually(lambda: ask_dns(cluster, 0, name(1)) == (0, 1, address(1)))
        cluster.set_name(1, visible=False)
        eventually(lambda: ask_dns(cluster, 0, name(1))[0] == NXDOMAIN)
        eventually(lambda: cluster.pods()[2].state == "running")
        started = cluster.pods()[2].started_monotonic
        assert started is not None and started - begin >= 0.5
        eventually(lambda: ask_dns(cluster, 0, name(2))[0] == 0)
        assert ask_dns(cluster, 0, name(4))[:2] == (NXDOMAIN, 0)
        assert ask_dns(cluster, 0, name(5))[:2] == (0, 1)
        assert python_in(cluster, 0, _TALK, name(5), "0.3") == "TimeoutError"


def test_pods_that_never_come() -> None:
    with up(3, ("true",), missing=frozenset({1}), late={2: 1000}) as cluster:
        cluster.wait(DEADLINE, [0])
        assert [pod.state for pod in cluster.terminate(0)] == ["ended", "absent", "absent"]
        cluster.start_pod(1)
        assert [pod.code for pod in cluster.wait(DEADLINE)] == [0, 0, None]


def test_a_pulled_cable(cluster: LocalCluster) -> None:
    with serving(cluster, 1):
        assert python_in(cluster, 0, _TALK, address(1), "20") == address(0)
        cluster.link(1, up=False)
        assert python_in(cluster, 0, _TALK, address(1), "0.3") in ("TimeoutError", "OSError")
        cluster.link(1, up=True)
        eventually(lambda: python_in(cluster, 0, _TALK, address(1), "1") == address(0))


def test_a_data_nic_is_cut_off_alone(cluster: LocalCluster) -> None:
    """The cable, then the way from one pod, then the way of another pod only."""
    nic, there = DATA_NIC.name, address(1, DATA_NIC)

    def reached(pod: int, seconds: str) -> bool:
        return python_in(cluster, pod, _TALK, there, seconds) == address(pod, DATA_NIC)

    with serving(cluster, 1):
        assert reached(0, "20")
        cluster.link(1, up=False, nic=nic)
        assert not reached(0, "0.3") and python_in(cluster, 0, _TALK, address(1), "20") == address(0)
        cluster.link(1, up=True, nic=nic)
        eventually(lambda: reached(0, "1"))
        with pytest.raises(UsageError, match="Failed to find"):
            cluster.slow_way(0, [1], nic=nic)
        cluster.slow_link(0, "100mbit", nic)
        for pods, cut in (([1, 2], True), ([2], False), ([0, 1], True), ([], False)):
            cluster.slow_way(0, pods, nic=nic)
            assert reached(0, "0.3" if cut else "20") != cut and reached(2, "20")
        cluster.slow_link(0, "", nic)
        with pytest.raises(UsageError, match="have no eth2, only eth0, eth1"):
            cluster.link(0, up=False, nic="eth2")


def test_a_slow_link_and_its_end(cluster: LocalCluster) -> None:
    def shown() -> str:
        return cluster.exec(1, ["tc", "qdisc", "show", "dev", "eth0"]).stdout

    cluster.slow_link(1, "1mbit")
    assert "tbf" in shown()
    cluster.slow_link(1, "")
    assert "tbf" not in shown()
    with pytest.raises(UsageError, match=r"pod 1: tc: .*\n.*is eth0 of the pod slowed"):
        cluster.slow_link(1, "")
    with pytest.raises(UsageError, match="is not a rate"):
        cluster.slow_link(1, "fast")


def test_metadata_knows_the_node_by_its_address(cluster: LocalCluster) -> None:
    status, flavor, text = metadata(cluster, 1, "physical_host_topology")
    assert (status, flavor) == ("200", "Google")
    assert json.loads(text) == {"cluster": "c", "block": "b", "subBlock": "s", "host": "h"}
    assert metadata(cluster, 1, "physical_host") == ["200", "Google", "/c/b/h"]
    own = json.loads(metadata(cluster, 0, "physical_host_topology")[2])
    assert tuple(own.values()) == cluster.spec.place(0)
    assert metadata(cluster, 0, "unknown")[0] == "404"
    assert metadata(cluster, 0, "physical_host", flavor="")[0] == "403"


def test_metadata_faults() -> None:
    with up(2, pod_metadata={1: "503"}) as cluster:
        assert metadata(cluster, 0, "physical_host")[0] == "200"
        assert metadata(cluster, 1, "physical_host")[0] == "503"
        cluster.set_metadata(1, "404")
        assert metadata(cluster, 1, "physical_host")[0] == "404"
        cluster.set_metadata(1, "html")
        status, flavor, text = metadata(cluster, 1, "physical_host")
        assert (status, flavor) == ("200", "-") and text.startswith("<!DOCTYPE html>")
        cluster.set_metadata(1, "no-header")
        assert metadata(cluster, 1, "physical_host")[:2] == ["200", "-"]
        cluster.set_metadata(1, "stall")
        assert metadata(cluster, 1, "physical_host", timeout=0.2) == ["timeout"]
        with pytest.raises(UsageError, match="one of ok, 404"):
            cluster.set_metadata(1, "teapot")


def test_nothing_leads_out_of_the_cluster(cluster: LocalCluster) -> None:
    code = "import socket; s = socket.create_connection(('192.0.2.1', 80), 1)"
    assert cluster.exec(0, ["python3", "-c", code]).returncode == 1
    names = {name for _, name in socket.if_nameindex()}
    assert not names & {"pods", "pods0"}
