"""The control plane goes away for a while: jobs that run do not notice."""

from __future__ import annotations

from tests.kubernetes.bed import Bed, terminated

AWAY_SECONDS = 20.0
SCRIPT = "#!/bin/bash\nuntil [ -e /tmp/go ]; do sleep 1; done\necho went on\n"


def test_a_job_goes_on_while_the_api_server_is_away(bed: Bed, namespace: str) -> None:
    bed.install("job", namespace, {"workload.gpus": "4", "task_script": SCRIPT})
    pods = bed.formed("job", namespace, 2)
    names = {pod["metadata"]["name"] for pod in pods}
    for name in names:
        # While nobody asks: kubectl needs the server.
        bed.execute(namespace, name, "sh", "-c", f"(sleep {AWAY_SECONDS:g}; touch /tmp/go) >/dev/null 2>&1 &")
    bed.plane.stop_server(AWAY_SECONDS)
    assert bed.ended("job", namespace) == "Completed"
    ends = bed.pods("job", namespace)
    assert {pod["metadata"]["name"] for pod in ends} == names
    assert [terminated(pod)["exitCode"] for pod in ends] == [0, 0]
