"""Looking up peers, from a real DNS server on this machine."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.machine.api import Problem
from agent.machine.dns import Resolver
from tests.machine.waiting import wait_until

PEER = "job-workload-0-1.job.default.svc.cluster.local"


def free_loopback_address() -> str:
    """An address whose port 53 nobody has: resolv.conf knows no other port."""
    for attempt in range(250):
        address = f"127.{53 + attempt % 3}.{os.getpid() % 250 + 1}.{attempt + 1}"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 53))
            except OSError:
                continue
            return address
    raise AssertionError("every address has a DNS server")


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The resolv.conf of a pod, with search domains that must not be used."""
    directory = tmp_path_factory.mktemp("dns")
    address = free_loopback_address()
    hosts = directory / "hosts"
    hosts.write_text(f"10.1.2.3 {PEER}\n10.9.9.9 short.default.svc.cluster.local\nfd00::1 six.local\n")
    options = f"""
        --keep-in-foreground --conf-file=/dev/null --pid-file= --user=root --log-queries --log-facility={directory}/log
        --no-resolv --no-hosts --addn-hosts={hosts} --bind-interfaces --listen-address={address}
        --server=/refused.local/# --local=/svc.cluster.local/six.local/gone.local/
    """
    argv = ["/usr/sbin/dnsmasq", *options.split()]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        path = directory / "resolv.conf"
        path.write_text(f"search default.svc.cluster.local\nnameserver {address}\noptions ndots:5\n")
        wait_until(lambda: Resolver(str(path)).lookup(PEER) == "10.1.2.3" or server.poll() is not None)
        assert server.poll() is None
        yield str(path)
        server.terminate()


def problem(path: str, name: str, seconds: float = 30) -> str:
    """Why there is no address."""
    answer = Resolver(path, seconds=seconds).lookup(name)
    assert isinstance(answer, Problem)
    assert answer.kind == "name"
    return answer.text


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param(PEER.replace("-1.", "-9."), "DNS does not know its name yet", id="not known"),
        pytest.param("short", "DNS failed: ", id="names are absolute"),
        pytest.param("six.local", "DNS has no address for its name yet", id="no IPv4"),
        pytest.param("example.invalid", "DNS failed: ", id="refused: dnsmasq has no upstream server"),
        pytest.param("a" * 64 + ".local", "DNS failed: ", id="a long part"),
    ],
)
def test_why_there_is_no_address(name: str, why: str, configuration: str) -> None:
    assert problem(configuration, name).startswith(why)


def test_a_name_costs_one_query(configuration: str) -> None:
    """With the five search domains of a pod it would be twelve."""
    name = PEER.replace("-1.", "-7.")
    assert problem(configuration, name)
    log = Path(configuration).with_name("log")
    # Queries are logged in their order: with the next one there, all of the first are.
    assert Resolver(configuration, seconds=30).lookup(PEER) == "10.1.2.3"
    wait_until(lambda: log.read_text().rpartition(name)[2].count(f"] {PEER} from") == 1)
    # A server that is slow is asked the same again.
    assert set(re.findall(rf"query\[(\w+)\] ({name}\S*)", log.read_text())) == {("A", name)}


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    address = free_loopback_address()
    path = tmp_path / "resolv.conf"
    path.write_text(f"nameserver {address}\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind((address, 53))
        why = problem(str(path), PEER, seconds=0.3)
    assert address in why and why.endswith(" did not answer within 0.3 s")


@pytest.mark.parametrize("text", [None, "", "# nothing\n"])
def test_no_server_is_configured(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    if text is not None:
        path.write_text(text)
    assert problem(str(path), PEER) == f"{path} names no DNS server"
