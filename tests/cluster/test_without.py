"""`--without RANK`: a rank that a person starts, in a terminal."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.workbench.local.running_command import Running
from tests.cluster.conftest import END_SECONDS, Trial, starting
from tests.cluster.work import AGENT, following, marked, order, read_until, sleeping
from tests.terminal import Terminal
from tests.workbench.local.helpers import CHECKOUT

PROGRAM = Path(__file__).with_name("programs") / "debugged.py"
DIFFER = {
    "torchrun": {"RANK", "ROLE_RANK", "LOCAL_RANK", "TORCHELASTIC_ERROR_FILE"},
    "mpirun": {
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK", "PMIX_RANK", "PMIX_ID"),
        *("OMPI_MCA_ess_base_vpid", "OMPI_MCA_orte_ess_node_rank", "_"),
    },
}
"""Variables with another value in rank 3 than in rank 2, which the launcher has started."""


@pytest.fixture(scope="module")
def trial(no_pod_around_fixtures: None, torch: Path) -> Iterator[Trial]:
    with starting() as start:
        files = {"/job/debugged.py": PROGRAM.read_bytes()}
        yield sleeping(start, 2, gpus_per_pod=2, files=files, env={"A4_PYTHON": str(torch)})


def words(launcher: str, *arguments: str) -> list[str]:
    python = [] if launcher == "torchrun" else [sys.executable, "-u"]
    return [launcher, "--without", "3", "--", *python, "/job/debugged.py", *arguments]


def invited(run: Running) -> tuple[int, str]:
    """The pod that a person is to go to, and what to type there."""
    said = read_until(run.stderr, b"its command: ").decode()
    found = re.search(
        r"a4-agent: rank 3 waits for you to start it on pod (\d), .*a4-agent local exec \1 --name \S+ -- bash",
        said,
        re.S,
    )
    typed = re.search(r"and type: +(\S+)", said)
    assert found and typed, said
    return int(found[1]), typed[1]


@contextmanager
def person(trial: Trial, pod: int, *typed: str) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """Somebody who types this in a terminal of that pod."""
    argv = [*AGENT, "local", "exec", str(pod), "--name", trial.cluster.name, "--", *typed]
    with (
        Terminal() as terminal,
        subprocess.Popen([*terminal.through, *argv], cwd=CHECKOUT, **terminal.streams) as shell,
    ):
        try:
            yield terminal, shell
        finally:
            terminal.hang_up()
            shell.kill()


LAUNCHERS = pytest.mark.parametrize("launcher", DIFFER)


@LAUNCHERS
def test_one_rank_in_a_terminal(trial: Trial, launcher: str) -> None:
    with following(trial, 0, *words(launcher)) as (run, _):
        pod, line = invited(run)
        assert pod == order(trial)[1]
        absent = trial.cluster.exec(pod, [line, "no-such-debugger"])
        assert (absent.returncode, "no-such-debugger" in absent.stderr) == (1, True), absent
        with person(trial, pod, line) as (terminal, shell):
            terminal.until("(Pdb) ")
            terminal.type("import time; print('asleep', flush=True); time.sleep(1000)\n")
            terminal.until("\nasleep")
            terminal.type("\x03")
            terminal.until("KeyboardInterrupt")
            terminal.until("(Pdb) ")
            terminal.type("c\n")
            terminal.until("rank 3: 6")
            terminal.until("rank 3 ended with exit code 0")
            assert shell.wait(END_SECONDS) == 0
        assert run.wait() == 0, run.stderr.read()
        assert sorted(run.stdout.read().split()) == sorted(b"rank 0: 6 rank 1: 6 rank 2: 6".split())
    held, other = (json.loads(trial.cluster.read(pod, f"/job/environ-{rank}")) for rank in (3, 2))
    assert held.keys() - {"TERM"} == other.keys()
    assert {name for name in other if held[name] != other[name]} == DIFFER[launcher]
    again = trial.cluster.exec(pod, [line])
    assert (again.returncode, "rank 3 does not wait here" in again.stderr) == (1, True), again


@LAUNCHERS
def test_ends_of_a_rank_in_a_terminal(trial: Trial, launcher: str) -> None:
    with following(trial, 1, *words(launcher, "stay")) as (run, _):
        pod, line = invited(run)
        with person(trial, pod, line) as (terminal, _):
            terminal.until("(Pdb) ")
            if launcher == "torchrun":
                trial.cluster.exec(pod, ["pkill", "-KILL", "-f", "start-rank.py"])
            else:
                terminal.hang_up()
            # pdb may see the end of the terminal before SIGHUP comes.
            assert run.wait() in (1, 129)
        said = run.stderr.read().decode()
    assert re.search(rf"rank 3 (was killed by SIGHUP|failed) \(pod {pod}, ", said), said

    with following(trial, 0, *words(launcher, "stay")) as (run, _):
        pod, line = invited(run)
        with person(trial, pod, line) as (terminal, shell):
            terminal.until("(Pdb) ")
            run.signal(signal.SIGINT)
            terminal.until("rank 3 was killed by SIGTERM")
            assert (run.wait(), shell.wait(END_SECONDS)) == (130, 143)
    assert marked(trial, 0, 1) == {}


@LAUNCHERS
def test_nobody_comes_before_the_run_is_interrupted(trial: Trial, launcher: str) -> None:
    with following(trial, 0, *words(launcher, "stay")) as (run, _):
        invited(run)
        run.signal(signal.SIGINT)
        assert run.wait() == 130
    assert marked(trial, 0, 1) == {}
