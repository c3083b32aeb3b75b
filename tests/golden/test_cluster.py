"""What the agent leaves in pods, and what its verbs print as JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import RUN_DIR, Trial
from tests.cluster.work import agent, asleep, result, result_of
from tests.golden.golden import expect_golden, expect_result, shape

ROOT = Path(__file__).parents[2]
RESULTS = "/mnt/results"
ENV = {
    "A4_EPOCH": "golden.0.0",
    "A4_RESULTS_DIR": RESULTS,
    "NCCL_DEBUG": "INFO",
    "HF_TOKEN": "hf_a_token_that_is_masked",
}
MAPS = ("versions", "missing", "lost", "inventory", "variables", "pods.*.env", "env", "environment", "changes")


PLACES = {index: ("cluster", f"block-{index}", "sub-block", f"host-{index}") for index in range(2)}
TEXTS = (
    "/etc/job-worker-services.txt",
    "/etc/job-worker-services-1pernode.txt",
    "/tmp/job-worker-rank-order.txt",
    "/tmp/job-worker-hostnames-order.txt",
    "/root/.ssh/config",
    "/etc/bash.bashrc",
    "/etc/profile.d/a4-agent.sh",
    "/tmp/export_init_env.sh",
    "/dev/termination-log",
    f"{RUN_DIR}/env.sh",
    f"{RUN_DIR}/plan.json",
    f"{RUN_DIR}/ssh/authorized_keys",
    f"{RUN_DIR}/ssh/known_hosts",
    f"{RUN_DIR}/ssh/ssh_config",
    f"{RUN_DIR}/ssh/sshd_config",
)
STATES = ("facts", "state", "environment")
WORDS = {
    "status": ["status", "--json"],
    "peers": ["peers", "--json"],
    "topology": ["topology", "--json"],
    "hostfile": ["hostfile", "--json"],
    "settings": ["settings", "--json"],
    "env": ["env", "--json"],
    "version": ["version", "--json"],
    "exec": ["exec", "--json", "--", "true"],
}


@pytest.fixture(scope="module")
def two() -> Iterator[Trial]:
    """Two pods that have run a script and sleep; all that is secret or derived from it is the same each time."""
    secret = b"golden secret of more than 32 bytes"
    with asleep(2, gpus_per_pod=2, arguments=("script",), secret=secret, places=PLACES, env=ENV) as trial:
        for index in range(2):
            trial.until(index, f"grep -qs '\"kernel\"' {RUN_DIR}/facts.json")
            trial.until(index, f"test -e {RESULTS}/pod-logs/worker-1.log -a -e {RESULTS}/pod-logs/coordinator.log")
        yield trial


@pytest.fixture(scope="module")
def first(two: Trial) -> dict[str, Any]:
    """What is there after the first run, by the names of golden files; later runs add to it."""
    found: dict[str, Any] = {}
    for index in range(2):
        content = two.cluster.read_bytes(index, TEXTS)
        assert all(content.values()), content
        for path in TEXTS:
            found[f"files/{index}{path.replace('/', '-')}"] = lines(two, path, (content[path] or b"").decode())
        found[f"files/{index}-tree-of-run-dir"] = tree(two, index, RUN_DIR)
        for name in STATES:
            state = json.loads(two.cluster.read(index, f"{RUN_DIR}/{name}.json"))
            found[f"state/{index}-{name}"] = shape(state, MAPS)
        events = [json.loads(line) for line in two.cluster.read(index, f"{RUN_DIR}/events.jsonl").splitlines()]
        found[f"state/{index}-events"] = {"names": sorted({one["event"] for one in events}), "shape": shape(events[0])}
    found["files/tree-of-results"] = tree(two, 0, RESULTS)
    for verb, words in WORDS.items():
        done = agent(two, 1, *words)
        assert done.returncode == 0, done
        found[f"json/{verb}"] = shape(json.loads(done.stdout), MAPS)
    return found


def lines(trial: Trial, path: str, text: str) -> list[str]:
    """The lines of a file, as far as they are the agent's own and the same on every machine."""
    if path == "/etc/bash.bashrc":
        block = re.search(r"(?ms)^# >>> a4-agent.*?^# <<< a4-agent[^\n]*$", text)
        assert block, text
        text = block[0]
    if path == f"{RUN_DIR}/env.sh":
        return sorted(set(re.findall(r"(?m)^\s*export (\w+)", text)))
    return plain(trial, text).splitlines()


def tree(trial: Trial, index: int, directory: str) -> list[str]:
    """Names, types and modes of what is there."""
    done = trial.cluster.exec(index, ["find", directory, "-printf", "%P %y %m\\n"])
    assert done.returncode == 0, done
    return sorted(plain(trial, done.stdout).splitlines())


def plain(trial: Trial, text: str) -> str:
    """A text without what differs from cluster to cluster, and from machine to machine."""
    spec = trial.cluster.spec
    known = {spec.node_name(index): f"NODE-{index}" for index in range(spec.pods)}
    known |= {trial.cluster.name: "JOB", sys.prefix: "PREFIX", str(ROOT): "CHECKOUT"}
    for value, name in sorted(known.items(), key=lambda item: -len(item[0])):
        text = text.replace(value, name)
    text = re.sub(r'"PATH=[^"]*"', '"PATH=…"', text)
    text = re.sub(r"(?m)^channels/\d+\.", "channels/PID.", text)
    text = re.sub(r"(?<=-workload-0-)(\d)-[0-9a-f]{5}\b", r"\1-x7k2p", text)
    return re.sub(r"\bscript-[0-9a-f]{8}\b", "script-RUN", text)


NAMES = [
    *(f"files/{index}{path.replace('/', '-')}" for index in range(2) for path in TEXTS),
    *(f"state/{index}-{name}" for index in range(2) for name in (*STATES, "events")),
    *(f"files/{index}-tree-of-run-dir" for index in range(2)),
    "files/tree-of-results",
    *(f"json/{verb}" for verb in WORDS),
]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_there_after_the_first_run(first: dict[str, Any], name: str) -> None:
    expect_golden(name, first[name])


RUNS: dict[str, tuple[list[str], int]] = {
    "connectivity": (["run", "connectivity"], 0),
    "mpirun": (["mpirun", "--", "hostname"], 0),
    "mpirun-fails": (["mpirun", "--", "sh", "-c", "exit $((OMPI_COMM_WORLD_RANK == 3 ? 9 : 0))"], 9),
    "script": (["run", "script", "--", "true"], 0),
    "script-fails": (["run", "script", "--", "sh", "-c", "exit $((JOB_COMPLETION_INDEX * 7))"], 7),
    "none": (["run", "none"], 0),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_result_of_a_run(two: Trial, first: dict[str, Any], name: str) -> None:
    words, code = RUNS[name]
    done = agent(two, 1, *words)
    assert done.returncode == code, done
    expect_result(name, result_of(two, done))


def test_the_result_of_the_first_run(two: Trial) -> None:
    expect_result("first-run", result(two, RESULTS))
