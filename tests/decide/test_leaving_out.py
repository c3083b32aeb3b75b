"""How to continue without pods."""

from __future__ import annotations

from agent.decide.leaving_out import report_node


def test_a_host_is_reported_by_its_nodes_label_or_as_a_vm() -> None:
    label = "on GKE: kubectl label node gke-a4-7 cloud.google.com/fault-behavior=XID"
    assert report_node("gke-a4-7", "XID") == label
    unknown = report_node("", "XID")
    assert unknown.startswith(label.replace("gke-a4-7", "NODE"))
    # All that gcloud requires: https://cloud.google.com/sdk/gcloud/reference/compute/instances/report-host-as-faulty
    assert unknown.endswith(
        "on a VM: gcloud compute instances report-host-as-faulty INSTANCE --zone ZONE --disruption-schedule IMMEDIATE "
        "--fault-reasons behavior=UNRECOVERABLE_GPU_ERROR,description=a4-agent"
    )
