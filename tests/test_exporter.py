"""The process that serves metrics, as it is started in a pod, and scrapers of all kinds."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.decide.metrics import METRICS, OF_ALL
from agent.exporter import PodCollector
from agent.paths import RunDir, package_home
from agent.wire import to_json
from tests.decide.test_metrics import full
from tests.machine.sshd import free_port

NAMES = ("my-job", "my-job-workload-0-0-x7k2p", "node-0")
QUICK = "AGAIN_SECONDS=0.05;SCRAPE_SECONDS=0.3;MOST_SCRAPES=2"
DOC = Path(__file__).resolve().parents[1] / "docs" / "alerts.md"
SECONDS = 60.0


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    """As a pod 0 leaves it that has told all it could."""
    directory = RunDir(str(tmp_path))
    state, results = full()
    for run in state.runs or ():
        os.makedirs(directory.run(run.id))
        Path(directory.run(run.id), "result.json").write_text(json.dumps(results["last"] | results["measured"]))
    Path(directory.state).write_text(json.dumps(to_json(state)))
    Path(directory.alive).touch()
    return directory


@contextmanager
def exporter(run_dir: RunDir, port: int, quick: str = "") -> Iterator[subprocess.Popen[str]]:
    """The process; `quick`: with these limits in place of its own."""
    code = f"import sys, agent.exporter as e; e.__dict__.update(dict({quick.replace(';', ',')})); e.main(sys.argv[1:])"
    argv = ["-c", code] if quick else ["-m", "agent.exporter"]
    process = subprocess.Popen(
        [sys.executable, "-Es", *argv, str(port), run_dir.path, *NAMES],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=package_home(),
        env={},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str], stream: str = "stdout") -> str:
    return str(getattr(process, stream).readline())


def scraped(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Name → labels and value of each series."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
        text = answer.read().decode()
    found = {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }
    assert set(re.findall(r"^# TYPE \S+ (\w+)$", text, re.MULTILINE)) <= {"gauge"}
    return found


def test_what_is_served_is_what_the_documentation_says(run_dir: RunDir) -> None:
    rows = re.findall(r"^\| `(a4_\w+)` \| (.*?) ?\| (.*?) \|$", DOC.read_text(), re.MULTILINE)
    documented = {name: (set(re.findall(r"`(\w+)`", labels)), text) for name, labels, text in rows}
    assert documented == {each.name: (set(each.labels), each.help) for each in METRICS}
    port = free_port()
    with exporter(run_dir, port) as process:
        assert line(process) == f"metrics of this pod are served on port {port}\n"
        found = scraped(port)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
            text = answer.read()
        linted = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
        assert text and (linted.returncode, linted.stdout + linted.stderr) == (0, b"")
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
        assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "1000\n"
    assert {name: set(series[0][0]) - set(OF_ALL) for name, series in found.items()} == {
        name: labels for name, (labels, _) in documented.items()
    }
    assert sum(map(len, found.values())) <= 50
    assert {tuple(labels[name] for name in OF_ALL) for series in found.values() for labels, _ in series} == {NAMES}


def test_it_ends_when_nobody_reads_what_it_says(run_dir: RunDir) -> None:
    """As after SIGKILL of the agent; also while it is scraped, or waits for its port."""
    port = free_port()
    with ExitStack() as stack:
        serving = stack.enter_context(exporter(run_dir, port))
        assert "served" in line(serving)
        waiting = stack.enter_context(exporter(run_dir, port, QUICK))
        assert "no metrics" in line(waiting, "stderr")
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        for process in (serving, waiting):
            assert process.stdout is not None
            process.stdout.close()
            assert process.wait(SECONDS) == 0
            assert process.stderr is not None and process.stderr.read() == ""


def test_a_port_that_is_taken_is_told_once_and_taken_later(run_dir: RunDir) -> None:
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        with exporter(run_dir, port, QUICK) as process:
            told = line(process, "stderr")
            assert told.startswith(f"no metrics of this pod: port {port} is taken by process {os.getpid()} (")
            assert "set another A4_METRICS_PORT" in told
            other.close()
            assert "served" in line(process)
            assert scraped(port)["a4_pod_gpus"][0][1] == 8


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX: ", b"\x00\xff" * 40_000, b"GET /metrics\r\n\r\n"])
def test_scrapers_that_are_slow_or_speak_nonsense_are_cut_off(run_dir: RunDir, sent: bytes) -> None:
    port = free_port()
    with exporter(run_dir, port, QUICK) as process, ExitStack() as stack:
        line(process)
        rude = [stack.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS)) for _ in range(20)]
        for one in rude:
            with suppress(OSError):  # it is one too many
                one.sendall(sent)
        for one in rude:
            with suppress(ConnectionResetError):
                while one.recv(65536):
                    pass
        assert len(os.listdir(f"/proc/{process.pid}/task")) <= 8
        found = None
        while not found:  # the places of those that were cut off are free in a moment
            with suppress(ConnectionError):
                found = scraped(port)
        process.kill()
        assert process.stderr is not None and process.stderr.read() == ""


@pytest.mark.parametrize(
    ("path", "content", "kept"),
    [
        ("state.json", None, {"a4_agent_alive_timestamp_seconds"}),
        ("state.json", b"\xff\xfe{", {"a4_agent_alive_timestamp_seconds"}),
        ("state.json", b'{"phase": 7}', {"a4_agent_alive_timestamp_seconds"}),
        ("state.json", b'{"phase": "of a later release", "new": 1}', {"a4_pod_phase"}),
        ("alive", None, {"a4_job_pods", "a4_run_bus_bandwidth_bytes_per_second"}),
        ("runs/nccl-7/result.json", None, {"a4_job_pods", "a4_run_exit_code"}),
        ("runs/nccl-7/result.json", b"[", {"a4_job_pods", "a4_run_exit_code"}),
        ("runs/nccl-7/result.json", b'{"findings": 3, "sweeps": [{}]}', {"a4_job_pods", "a4_run_exit_code"}),
    ],
)
def test_what_cannot_be_read_is_left_out(run_dir: RunDir, path: str, content: bytes | None, kept: set[str]) -> None:
    file = Path(run_dir.path, path)
    file.unlink() if content is None else file.write_bytes(content)
    found = {family.name for family in PodCollector(run_dir.path, NAMES).collect()}
    assert kept <= found < {each.name for each in METRICS}
