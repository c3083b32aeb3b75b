"""The daemon of TCPX as a plain sidecar ends with the job: what the chart renders, with other programs in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.chart.helm import CHART, Engines

UNTIL_ENDED = ["tail", "-f", "/dev/null"]


@pytest.fixture(scope="module")
def shells(engines: Engines) -> dict[str, list[str]]:
    """The shell that begins each container's command, with its script."""
    rendered = engines.with_values("-f", str(CHART / "ci/a3-tcpx-plain-sidecar-values.yaml"))
    return {found["name"]: found["command"][:4] for found in rendered.pod["containers"]}


def sidecar(
    shells: dict[str, list[str]], directory: Path, daemon: list[str], workload: list[str]
) -> list[subprocess.Popen[str]]:
    """Both containers, as processes that meet in `directory`."""
    both = []
    for name, program in (("tcpx-daemon", daemon), ("workload", workload)):
        words = [word.replace("/run/workload", str(directory)) for word in shells[name]]
        both.append(subprocess.Popen([*words, *program], text=True))
    return both


@pytest.mark.parametrize("workload", [["true"], ["sh", "-c", "kill -9 $$"], ["sh", "-c", "exit 3"]], ids=" ".join)
def test_the_plain_sidecar_ends_with_the_job(shells: dict[str, list[str]], tmp_path: Path, workload: list[str]) -> None:
    daemon, other = sidecar(shells, tmp_path, UNTIL_ENDED, workload)
    other.wait(60)
    assert daemon.wait(60) == 0


def test_the_plain_sidecar_tells_when_its_daemon_fails(shells: dict[str, list[str]], tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    tells = ["sh", "-c", 'echo > "$0"; exec "$@"', str(started), *UNTIL_ENDED]
    daemon, workload = sidecar(shells, tmp_path, ["sh", "-c", "exit 7"], tells)
    assert daemon.wait(60) == 7
    # What watches for the workload's end would not end if it had never begun.
    started.read_text()
    workload.kill()
    workload.wait()
