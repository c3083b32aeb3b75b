"""What a provider's ticket asks for."""

from __future__ import annotations

import json
from pathlib import Path

from agent.clinic.doctor.ticket import pod_ticket, pods_of, run_ticket
from agent.decide.facts import Finding
from agent.decide.result_reader import read_result
from agent.log import utc

HERE = Path(__file__).parent
IDLE = (HERE / "recorded" / "h200-idle.xml").read_text()
RESULTS = HERE.parent / "report" / "old"
NOW = 1_800_000_000.0
DRIVER = "driver 580.159.04, CUDA 13.0"
GPU = "name NVIDIA H200, UUID GPU-{}, serial {}, VBIOS 96.00.A5.00.1A, part 2335-895-A1, PCI 00000000:00:0{}.0"
NO_UUID = "00000000-0000-0000-0000-000000000000"


def test_gpus_xids_and_counters_of_a_pod() -> None:
    xml = IDLE.replace("<serial>0</serial>", "<serial>1652823057642</serial>", 1)
    xml = xml.replace("<serial>0</serial>", "<serial>N/A</serial>")
    record = "3,9,40000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus."
    counted = {"uptime": 100.0, "nvidia_smi": xml, "nics": {"mlx5_0/1": {"symbol_error": 7, "port_rcv_data": 9}}}
    log = {"records": [record, "nonsense"], "uptime": 100.0}
    assert pod_ticket(counted, log, NOW, utc).splitlines() == [
        f"  {DRIVER}",
        f"  GPU 0: {GPU.format(NO_UUID, 1652823057642, 6)}",
        f"  GPU 1: {GPU.format(NO_UUID, 'not known', 7)}",
        "  2027-01-15T07:59:00Z XID 79 on 0000:1b:00: pid=1, GPU has fallen off the bus.",
        "  mlx5_0/1, counted since its driver was loaded: RDMA symbol errors 7",
    ]


def test_what_cannot_be_read_is_said() -> None:
    no_log = "  XIDs: the kernel log cannot be read in this pod; on the node: dmesg -T | grep -i xid\n"
    problems = {"gpus": "nvidia-smi did not answer within 15 s"}
    lost = pod_ticket({"uptime": 1.0, "problems": problems}, None, NOW, utc)
    assert lost == f"  GPUs: nvidia-smi did not answer within 15 s\n{no_log}"
    torn = pod_ticket({"uptime": 1.0, "nvidia_smi": IDLE[:500]}, {"records": [], "uptime": 1.0}, NOW, utc)
    assert torn.startswith("  GPUs: nvidia-smi -q -x printed no XML: ")
    assert torn.endswith("  XIDs: none in the kernel log\n")


def test_a_run_and_its_pods() -> None:
    result = read_result(json.loads(next(iter(sorted(RESULTS.glob("*-ddp.json")))).read_text()))
    pods = [result.pods[0]._replace(index=3, name="a-0-3.a", node="gke-a4-7", pod_name="a-0-3-x", place=("c", "b"))]
    pods[0] = pods[0]._replace(lost="not heard for 35 s")
    bad = Finding("RDMA symbol errors", "bad", "degraded", 3, "gke-a4-7", "mlx5_0/1", "900 in 60 s", "10 a second")
    ok = bad._replace(state="ok", value="none")
    text = run_ticket(result._replace(pods=tuple(pods), findings=(ok, bad)), utc)
    assert text.startswith(
        f"run {result.run}, {utc(result.since)} to {utc(result.until)}: {result.verdict.status} with"
    )
    assert "\n  pod 3 was lost: not heard for 35 s\n" in text and "torch " in text
    found = "degraded: pod 3, node gke-a4-7, mlx5_0/1: RDMA symbol errors: 900 in 60 s (limit: 10 a second)"
    assert text.endswith(f"\n  found:\n    {found}\n")
    assert run_ticket(result._replace(findings=(ok,)), utc).endswith("\n  found: nothing wrong\n")
    assert run_ticket(result._replace(findings=()), utc).endswith("\n  found: nothing, as nobody looked at the pods\n")
    assert pods_of(result._replace(pods=tuple(pods))) == {3: "pod 3, a-0-3-x, node gke-a4-7, at /c/b"}
