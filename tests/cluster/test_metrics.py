"""Metrics of two pods as Debian's Prometheus scrapes them, with the alerts of monitoring/rules.yaml."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from agent.decide.plan import peer_name
from tests.cluster.conftest import END_SECONDS, Start, Trial
from tests.cluster.work import agent, following, sleeping
from tests.torch_environment import TORCH_PYTHON

ROOT = Path(__file__).resolve().parents[2]
PORT = 9440
SERVER = "http://127.0.0.1:9090"
HANG = ROOT / "tests/clinic/cluster/programs/hang.py"
FILES = {"/workload/hang.py": HANG.read_bytes(), "/job/rules.yaml": (ROOT / "monitoring/rules.yaml").read_bytes()}
ENV = {
    "A4_METRICS_PORT": str(PORT),
    "A4_WHY_SECONDS": "2",
    "A4_HANG_SECONDS": "0",
    "A4_PYTHON": str(TORCH_PYTHON),
    "OMP_NUM_THREADS": "1",
}


@contextmanager
def prometheus(trial: Trial) -> Iterator[None]:
    """It runs in pod 0, and looks every second."""
    pods = range(trial.cluster.spec.pods)
    names = trial.cluster.exec(0, ["bash", "-c", 'echo "$HOSTNAME_PREFIX $DOMAIN_NAME"']).stdout.split()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["/job/rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "a4-agent",
                "static_configs": [{"targets": [f"{peer_name(names[0], index, names[1])}:{PORT}" for index in pods]}],
            }
        ],
    }
    trial.cluster.exec(0, ["bash", "-c", "cat >/job/prometheus.yml"], input=yaml.safe_dump(config))
    words = [
        "--config.file=/job/prometheus.yml",
        "--storage.tsdb.path=/tmp/tsdb",
        "--web.listen-address=127.0.0.1:9090",
    ]
    with trial.cluster.popen(0, ["prometheus", *words, "--log.level=error"]) as server:
        try:
            yield
        finally:
            server.signal(signal.SIGTERM)
            server.wait(END_SECONDS)


def until(trial: Trial, query: str) -> None:
    """Wait until Prometheus has an answer."""
    trial.until(0, f"promtool query instant {SERVER} '{query}' 2>/dev/null | grep -q '=>'")


@pytest.mark.faults
def test_prometheus_scrapes_two_pods_and_alerts(start: Start) -> None:
    trial = sleeping(start, 2, gpus_per_pod=2, files=FILES, env=ENV)
    with prometheus(trial):
        until(trial, 'count(a4_pod_phase{phase="sleeping"} == 1) == 2 and sum(a4_job_pods_ready) == 2')
        until(trial, "absent(ALERTS)")

        words = ["-b", "1K", "-e", "4K", "--tests", "all_reduce"]
        assert agent(trial, 1, "run", "collectives", "--", *words).returncode == 0
        until(trial, 'a4_run_bus_bandwidth_bytes_per_second{collective="all_reduce"} > 0')

        with following(trial, 1, "mpirun", "--", sys.executable, "/workload/hang.py", "mpi") as (client, run):
            until(trial, f'ALERTS{{alertname="A4RunHangs",alertstate="firing",run="{run}"}}')
            agent(trial, 0, "cancel", run)
            client.wait(END_SECONDS)
        until(trial, f'absent(ALERTS) and on () a4_run_exit_code{{run="{run}"}} == 130')

        trial.kill_agent(1)
        until(trial, 'ALERTS{alertname="A4JobLost",alertstate="firing"} and on () (count(up == 0) == 1)')
