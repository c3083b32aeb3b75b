"""The agent as PID 1, where it puts tini in front, and under dumb-init: what both hold their own PID 1 to.

Each container is a PID namespace of its own in one pod, so that hundreds of them cost little.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable, Iterator

import pytest

from agent.errors import Exit
from agent.workbench.local.client import LocalCluster
from tests.cluster.conftest import END_SECONDS, Start
from tests.cluster.test_work import peak_rss
from tests.cluster.work import AGENT, SCRIPT, agent, sleeping
from tests.workbench.local.helpers import cluster_of

FAULTS = pytest.mark.faults
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
RUN = ("run", "script", "--")
TINI: tuple[str, ...] = ()
DUMB_INIT = ("dumb-init", "--")
by_init = pytest.mark.parametrize(
    "init", [pytest.param(TINI, id="tini"), pytest.param(DUMB_INIT, id="dumb-init", marks=FAULTS)]
)


@pytest.fixture(scope="module")
def pod() -> Iterator[LocalCluster]:
    files = {"/workload/task/task-script.sh": SCRIPT.encode()}
    with cluster_of(1, files=files, env={"A4_REPORT": "false"}) as cluster:
        cluster.start()
        yield cluster


def container(pod: LocalCluster, init: tuple[str, ...], *command: str) -> subprocess.CompletedProcess[str]:
    """A container whose PID 1 is `init`, or without one the agent, which runs this command."""
    return pod.exec(0, [*CONTAINER, *init, *AGENT, *RUN, *command], timeout=END_SECONDS)


CODES = """
for code in $1; do
    "${@:2}" bash -c "exit $code" >/tmp/said 2>&1
    status=$?; [ $status = $code ] || { echo "$status for $code"; cat /tmp/said; }
done
"""


OTHERS = (1, 3, 32, 64, 110, 126, 127, 128, 132, 137, 183, 205, 241, 254, 255)
"""Codes that mean something to a shell, an init or mpirun, and the ends of ranges."""


@pytest.mark.parametrize(
    ("init", "codes"),
    [
        pytest.param(TINI, tuple(Exit), id="the agent's own", marks=FAULTS),
        pytest.param(TINI, OTHERS, id="others", marks=FAULTS),
        pytest.param(DUMB_INIT, (0, 1, 2, 32, 64, 127, 254, 255), id="dumb-init", marks=FAULTS),
        *(pytest.param(TINI, range(n, n + 16), id=f"from {n}", marks=pytest.mark.long) for n in range(0, 256, 16)),
    ],
)
def test_every_exit_code_is_the_containers(pod: LocalCluster, init: tuple[str, ...], codes: Iterable[int]) -> None:
    words = ["bash", "-c", CODES, "bash", " ".join(f"{code:d}" for code in codes), *CONTAINER, *init, *AGENT, *RUN]
    done = pod.exec(0, words, timeout=END_SECONDS)
    assert (done.stdout, done.returncode) == ("", 0)


@by_init
@pytest.mark.parametrize(
    "name", ["SEGV", *(pytest.param(name, marks=FAULTS) for name in ("TERM", "HUP", "QUIT", "KILL"))]
)
def test_a_command_that_a_signal_ends(pod: LocalCluster, init: tuple[str, ...], name: str) -> None:
    done = container(pod, init, "sh", "-c", f"kill -{name} $$")  # bash never ends by SIGQUIT
    assert done.returncode == 128 + signal.Signals[f"SIG{name}"], done


@by_init
@pytest.mark.parametrize(
    ("name", "code"),
    [("TERM", 143), *(pytest.param(*case, marks=FAULTS) for case in (("INT", 130), ("USR1", 138), ("USR2", 140)))],
)
def test_a_signal_to_pid_1_ends_a_command_that_does_not_handle_it(
    pod: LocalCluster, init: tuple[str, ...], name: str, code: int
) -> None:
    done = container(pod, init, "bash", "-c", f"kill -{name} 1; exec sleep 600")
    assert (done.returncode, f" by SIG{name} (" in done.stderr) == (code, True), done  # the agent lived to say so


def test_a_code_of_the_shell_stays(pod: LocalCluster) -> None:
    assert container(pod, TINI, "bash", "-c", "/no/program").returncode == 127


MEMBER = "trap 'touch /tmp/told-{n}; exit' TERM; touch /tmp/here-{n}; while :; do sleep 0.05; done"
ALL_HERE = "until [ $(ls /tmp | grep -c here-) = 6 ]; do sleep 0.05; done"


@by_init
def test_all_of_a_pipeline_is_told_to_end(pod: LocalCluster, init: tuple[str, ...]) -> None:
    pod.exec(0, ["sh", "-c", "rm -f /tmp/told-* /tmp/here-*"])
    pipeline = " | ".join(f'bash -c "{MEMBER.format(n=n)}"' for n in range(6))
    done = container(pod, init, "bash", "-c", f"({ALL_HERE}; kill -TERM 1) & {pipeline}")
    assert done.returncode == 143, done
    assert pod.exec(0, ["sh", "-c", "ls /tmp | grep -c told-"]).stdout == "6\n"


@by_init
def test_a_command_blocks_and_ignores_no_signal(pod: LocalCluster, init: tuple[str, ...]) -> None:
    done = container(pod, init, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    # From 32 on they are the C library's own: make hands two of them down ignored.
    assert [int(line.split()[1], 16) % (1 << 31) for line in done.stdout.splitlines()] == [0, 0], done


ORPHANS = 5000


@by_init
def test_orphans_leave_no_zombie_and_cost_no_memory(start: Start, init: tuple[str, ...]) -> None:
    trial = sleeping(start, 1, entrypoint=(*init, *AGENT, "run", "none"))
    assert trial.cluster.exec(0, ["cat", "/proc/1/comm"]).stdout.strip() == (init[0] if init else "tini")
    before = peak_rss(trial, 0)
    done = agent(trial, 0, "run", *RUN[1:], "bash", "-c", f"for n in $(seq {ORPHANS}); do (: &); done; echo all")
    assert (done.returncode, done.stdout) == (0, "all\n"), done
    trial.until(0, "! ps -eo stat= | grep -q ^Z")
    assert peak_rss(trial, 0) <= before + 10
