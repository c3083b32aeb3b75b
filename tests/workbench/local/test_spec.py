"""The values of the local cluster: specs, names, addresses, environments, texts. No root needed."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Any

import pytest

from agent.decide.location import parse_location, parse_topology
from agent.errors import UsageError
from agent.workbench.local.dns_server import hosts_text, resolv_conf
from agent.workbench.local.metadata_server import answer, attributes
from agent.workbench.local.podenv import ClusterBuild, pod_environment
from agent.workbench.local.pods import PodInfo
from agent.workbench.local.run_report import PodReport, Report, job_code
from agent.workbench.local.spec import (
    DATA_NIC,
    MAX_PODS,
    NIC,
    ClusterSpec,
    Mount,
    address,
    check,
    check_rate,
    default_place,
)

FULL = ClusterSpec(
    pods=4,
    name="job",
    entrypoint=("sh",),
    arguments=("connectivity",),
    env={"A": "1"},
    pod_env={1: {"B": "2"}},
    files={"/x": b"\0\xff"},
    devices=("/dev/null",),
    real_gpus=True,
    data_nic=True,
    secret=b"s" * 32,
    pod_secret={3: b"t" * 32},
    places={0: ("a", "b", "c", "d")},
    late={1: 2.5},
    missing=frozenset({2}),
    dead=frozenset({3}),
    late_names={0: 1.0},
    pod_metadata={0: "stall"},
)


CHARTED = ClusterSpec(
    pods=2,
    name="job",
    replicated_job="test",
    subdomain="job-test",
    contract=False,
    env={"A": "1"},
    mounts=(Mount("/m", {"x": b"\0\xff"}, 0o400, read_only=True), Mount("/empty")),
)
"""A cluster whose pods have what a chart gives, and nothing of the pod contract by themselves."""


def test_a_spec_survives_the_way_to_the_supervisor() -> None:
    assert ClusterSpec.from_json(FULL.to_json()) == FULL
    assert ClusterSpec.from_json(CHARTED.to_json()) == CHARTED


def test_addresses_are_distinct_and_of_the_benchmark_range() -> None:
    found = [ipaddress.IPv4Address(address(index, nic)) for nic in (NIC, DATA_NIC) for index in range(MAX_PODS)]
    assert len(set(found)) == 2 * MAX_PODS
    assert all(one in ipaddress.IPv4Network("198.18.0.0/15") for one in found)
    assert address(0) == "198.18.1.1"


def test_default_places_do_not_follow_the_index() -> None:
    places = [default_place("job", index) for index in range(8)]
    assert len(set(places)) == 8
    assert places == [default_place("job", index) for index in range(8)]
    blocks = [place[1] for place in places]
    assert blocks[0] == blocks[2] != blocks[1] == blocks[3]


def test_names_follow_the_pod_contract() -> None:
    assert FULL.pod_name(2) == "job-workload-0-2.job.default.svc.cluster.local"
    env = pod_environment(FULL, ClusterBuild("uid", "stamp", "/bin"), 1)
    assert f"{env['HOSTNAME_PREFIX']}0-2.{env['DOMAIN_NAME']}" == FULL.pod_name(2)
    assert (env["A"], env["B"], env["JOB_IDENTIFIER"]) == ("1", "2", "job-stamp")
    assert env["HOSTNAME"] == FULL.node_name(1)
    assert "B" not in pod_environment(FULL, ClusterBuild("uid", "stamp", "/bin"), 0)


def test_pods_are_found_by_every_name_they_have() -> None:
    spec = ClusterSpec(pods=11, name="job")
    environ = pod_environment(spec, ClusterBuild("uid", "stamp", "/bin"), 1)
    node = environ["NODE_NAME"]
    for word in ("1", environ["POD_NAME"], "job-workload-0-1", spec.pod_name(1), f"{spec.pod_name(1)}.", node):
        assert spec.index_of(word) == 1
    others = ("job-workload-0-11", "job-workload-0-1.other.svc", "other-workload-0-1")
    for word in ("", "-1", "11", "01", *others, node[:-1]):
        with pytest.raises(UsageError, match="only 0 to 10"):
            spec.index_of(word)


def test_without_the_contract_a_pod_has_what_it_is_given() -> None:
    assert CHARTED.pod_name(1) == "job-test-0-1.job-test.default.svc.cluster.local"
    env = pod_environment(CHARTED, ClusterBuild("uid", "stamp", "/bin"), 1)
    assert env == {
        "PATH": "/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "HOSTNAME": CHARTED.node_name(1),
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "A": "1",
    }


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (ClusterSpec(pods=0), "pods: 1 to 1000, not 0"),
        (ClusterSpec(pods=2, gpus_per_pod=65), "GPUs per pod: 1 to 64"),
        (ClusterSpec(pods=2, ssh_port=0), "port: 1 to 65535"),
        (ClusterSpec(pods=2, name="Not_A_Label"), "name: small letters"),
        (ClusterSpec(pods=2, late={2: 1}), "late: there is no pod 2, only 0 to 1"),
        (ClusterSpec(pods=2, late={1: -1}), "seconds: 0 or more, not -1"),
        (ClusterSpec(pods=2, missing=[7]), "missing: there is no pod 7"),
        (ClusterSpec(pods=2, metadata="tea"), "metadata: one of ok, 404, 503, html, stall, no-header, not tea"),
        (ClusterSpec(pods=2, secret=b"short"), "secret: 32 bytes at least"),
        (ClusterSpec(pods=2, files={"relative": b""}), "file: an absolute path"),
        (ClusterSpec(pods=2, devices=("/dev/../x",)), "device: an absolute path without '..', not /dev/../x"),
        (ClusterSpec(pods=2, mounts=(Mount("/m/.."),)), "mount: an absolute path without '..', not /m/.."),
        (ClusterSpec(pods=2, mounts=(Mount("/m", {"..": b""}),)), "file of a mount: a name, not '..'"),
        (ClusterSpec(pods=2, subdomain="a.b"), "name: small letters"),
        (ClusterSpec(pods=2, mounts=(Mount("/"),)), "mount: an absolute path without '..', not /"),
        (ClusterSpec(pods=2, mounts=(Mount("/m"), Mount("/m"))), "mount: /m twice"),
        (ClusterSpec(pods=2, directories={"/run/a4-agent": "/x"}), "mount: /run/a4-agent is the pod's own"),
        (ClusterSpec(pods=2, directories={"/run/": "/x"}), "mount: /run/ is the pod's own"),
        (ClusterSpec(pods=2, mounts=(Mount("/m", {"a/b": b""}),)), "file of a mount: a name, not 'a/b'"),
    ],
)
def test_problems_are_named(spec: ClusterSpec, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check(spec)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"pods": "2"}, "pods is not a whole number"),
        ({"env": {"A": 1}}, "env.A is not a text"),
        ({"arguments": "none"}, "arguments is not a list"),
        ({"late": {0: "soon"}}, "late.0 is not a number"),
        ({"late": {"a": 1}}, "late has a name that is not a whole number"),
        ({"files": {"/x": object()}}, "object"),
    ],
)
def test_a_value_of_a_wrong_type_is_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match="this local cluster cannot be built: ") as caught:
        check(ClusterSpec(**{"pods": 2, **values}))
    assert words in str(caught.value)


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(UsageError, match=r"(?s)GPUs.*port"):
        check(ClusterSpec(pods=1, gpus_per_pod=-1, ssh_port=-1))


def test_rates() -> None:
    for rate in ("10mbit", "1.5Gbit", "500kbps"):
        check_rate(rate)
    for rate in ("", "10", "fast", "10mbit; true"):
        with pytest.raises(UsageError):
            check_rate(rate)


def test_dns_knows_the_visible_pods() -> None:
    pods = {2: [address(2)], 1: [], 0: [address(0), address(4)]}
    lines = hosts_text(FULL, pods, {"x.y": ["198.18.9.1", "198.18.9.2"]}).splitlines()
    assert lines[1:-2] == [f"{address(at)} {FULL.pod_name(index)}" for index, at in ((0, 0), (0, 4), (2, 2))]
    assert lines[-2:] == ["198.18.9.1 x.y", "198.18.9.2 x.y"]
    assert "options ndots:5" in resolv_conf()


def test_metadata_is_what_the_agent_reads() -> None:
    place = default_place("job", 3)
    known = attributes(place)
    assert parse_topology(known["physical_host_topology"]) == place
    assert parse_location(known["physical_host"]) == (place[0], place[1], place[3])


@pytest.mark.parametrize(
    ("request_line", "code"),
    [
        ("GET / HTTP/1.1", 404),
        ("GET", 400),
        ("", 400),
        ("GET /computeMetadata/v1/instance/attributes/physical_host HTTP/1.1", 200),
    ],
)
def test_metadata_of_odd_requests(request_line: str, code: int) -> None:
    head = answer(f"{request_line}\r\nmetadata-flavor: Google", ("c", "b", "s", "h"), "ok")
    assert head.startswith(f"HTTP/1.1 {code} ".encode())


def report_of(*codes: int | None, events: list[dict[str, object]] | None = None, cause: str = "the cause") -> Report:
    pods = [
        PodReport(
            PodInfo(index, f"pod-{index}", f"node-{index}", address(index), "ended", code, created_monotonic=10.0),
            list(events or []),
            cause if code else "",
        )
        for index, code in enumerate(codes)
    ]
    peers = [{"index": 1, "node": "n", "place": ["c", "b" * 32]}, {"index": 0}]
    plan = {"source": "somewhere", "peers": peers}
    return Report("job", job_code([pod.info for pod in pods]), pods, plan, "a slots=8\n")


def plain(report: Report, columns: int = 0) -> str:
    return report.text(lambda line, color: line, columns, details=True)


@pytest.mark.parametrize(("codes", "code"), [((0, 0), 0), ((3, 4), 3), ((0, 4), 4), ((None, 5), 5), ((None,), 0)])
def test_code_of_the_job(codes: tuple[int | None, ...], code: int) -> None:
    assert report_of(*codes).code == code


def test_report_names_times_order_hostfile_and_ends() -> None:
    text = plain(report_of(0, 0, 75, events=[{"event": "plan-ready", "monotonic": 10.25}]))
    assert "plan-ready  0.250  0.250  0.250\n" in text
    assert "Order (somewhere)" in text and "bbbbbbbb" in text
    assert "a slots=8" in text
    assert "0-1   0" in text and "2     75         the cause" in text


def test_report_with_colours() -> None:
    text = report_of(0, 0, 75).text(lambda line, color: f"{color}:{line}")
    assert text.splitlines()[-2:] == ["32:  0-1   0", "31:  2     75         the cause"]


def test_report_of_many_pods_is_short() -> None:
    text = plain(report_of(*[0] * 64, events=[{"event": "plan-ready", "monotonic": 10.25}]))
    assert "median" in text and "pod 9" not in text
    assert "0-63" in text


@pytest.mark.parametrize("pods", [6, 64])
def test_report_fits_a_terminal(pods: int) -> None:
    names = ("coordinator-connected", "environment-ready")
    report = report_of(
        *[0] * (pods - 1), 1, events=[{"event": name, "monotonic": 123.5} for name in names], cause="word " * 30
    )
    nodes = [f"node-{'n' * 60}-{i}" for i in range(pods)]
    peers = [{"index": i, "node": node, "place": ["c" * 30, *["0" * 32] * 3]} for i, node in enumerate(nodes)]
    report = replace(report, plan={"source": "somewhere", "peers": peers})
    assert max(map(len, plain(report, 80).splitlines())) <= 80
    assert nodes[-1] in plain(report)  # in a pipe


def test_report_without_anything() -> None:
    empty = Report("job", 1, [PodReport(PodInfo(0, "p", "n", "a"))])
    assert "No plan was made." in plain(empty) and "absent" in plain(empty)
    assert empty.to_dict()["order"] == []
