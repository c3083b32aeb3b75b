"""The suite's own rules can fail: nothing left behind, no limits that load reaches, not too many clusters at once."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agent.workbench.local.spec import ClusterSpec
from tests.deadlines import (
    at_any_moment,
    events,
    limits_of_env,
    limits_of_spec,
    limits_of_words,
    refuse_short,
    short_deadline,
)
from tests.durations import objection, renewed
from tests.scheduling import CHUNK, MAKES_WAY, next_unit, units

TESTS = Path(__file__).parent


LEAVES = """
import socket, subprocess, threading

kept = []

def test_good():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    subprocess.run(["true"], check=True)
    socket.socket().close()

def test_thread():
    threading.Thread(target=threading.Event().wait, name="the-forgotten-one", daemon=True).start()

def test_process():
    kept.append(subprocess.Popen(["sleep", "600"]))

def test_orphan():
    '''Its parent has ended, and it is in a session of its own. It starts no other program after its word: in that
    moment a process has no command line.'''
    argv = ["sh", "-c", "setsid sh -c 'echo here; exec >&- 2>&-; kill -STOP $$' sleep 601 & read line"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"here\\n"

def test_socket():
    kept.append(socket.create_server(("127.0.0.1", 0)))

def test_namespace():
    kept.append(open("/proc/self/ns/net"))

def test_after_them():
    pass
"""
LEFT = {
    "thread": r"the thread the-forgotten-one, at .*threading\.py.*",
    "process": r"the process \d+: sleep 600 ",
    "orphan": r"the process \d+: .*sleep 601 ",
    "socket": r"the socket socket:\[\d+\].*:[0-9A-F]{4}\b.*",
    "namespace": r"the open namespace net:\[\d+\]",
}


def test_who_leaves_something_fails_by_its_own_name(tmp_path: Path) -> None:
    """And what it leaves is ended: else this test would leave it."""
    (tmp_path / "test_leaves.py").write_text(LEAVES)
    (tmp_path / "conftest.py").write_text(
        "import tests.leftovers; tests.leftovers.PATIENCE_SECONDS = 0.1\n"
        "from tests.conftest import nothing_left_behind, orphans_are_ours\n"
    )
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", "-c", "/dev/null"]
    done = subprocess.run(
        [*argv, f"--rootdir={tmp_path}", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert f"{len(LEFT) + 2} passed, {len(LEFT)} errors" in done.stdout, done.stdout
    found = dict(
        re.findall(r"ERROR at teardown of test_(\w+) _+\nthis test leaves behind:\n((?:.+\n)*?)[_=]", done.stdout)
    )
    assert [name for name, words in LEFT.items() if not re.fullmatch(f"{words}\n", found[name])] == [], done.stdout


KILLS_ITS_WORKER = """
import os, pytest

@pytest.mark.parametrize("n", range(30))
def test_x(n):
    if n == 12:
        os._exit(1)
"""


def test_a_test_that_kills_its_worker_fails_once_and_the_others_run(tmp_path: Path) -> None:
    """As one that hangs does (faulthandler_exit_on_timeout). xdist alone waits for ever for what had run before it."""
    (tmp_path / "tests/cluster").mkdir(parents=True)
    (tmp_path / "tests/cluster/test_x.py").write_text(KILLS_ITS_WORKER)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "--import-mode=importlib"]
    done = subprocess.run(
        [*argv, "-n", "2", "--dist", "loadscope", f"--rootdir={tmp_path}", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 1 and "1 failed, 29 passed" in done.stdout, done.stdout + done.stderr
    assert "crashed while running 'tests/cluster/test_x.py::test_x[12]'" in done.stdout


SHORT = [
    limits_of_env({"A4_LEASE_SECONDS": "29"}),
    limits_of_words(["run", "--stall-timeout", "4", "nccl"]),
    limits_of_words(["run", "--pods", "2", "--env", "A4_PEER_TIMEOUT_SECONDS=1"]),
    limits_of_spec(ClusterSpec(pods=2, pod_env={1: {"A4_STALL_TIMEOUT_SECONDS": "5"}})),
    limits_of_spec(ClusterSpec(pods=2, arguments=("deepep", "--stall-timeout", "5"))),
]


@pytest.mark.parametrize("limits", SHORT, ids=str)
def test_a_short_limit_is_refused(limits: list[tuple[str, str]]) -> None:
    with pytest.raises(pytest.fail.Exception, match="needs 30 s"):
        refuse_short(limits)


def test_a_limit_is_long_or_begins_after_an_event() -> None:
    env = {
        "A4_LEASE_SECONDS": "30",
        "A4_STALL_TIMEOUT_SECONDS": short_deadline(5, after="/mnt/all-here"),
        "A4_WORKLOAD_TIMEOUT_SECONDS": at_any_moment(0.2),
        "A4_PEER_TIMEOUT_SECONDS": "0",
        "OTHER": "1",
    }
    limits = limits_of_spec(ClusterSpec(pods=1, env=env))
    refuse_short(limits)
    assert events(limits) == {"/mnt/all-here"}
    assert env["A4_STALL_TIMEOUT_SECONDS"] == "5"


def test_local_clusters_are_started_where_their_limits_are_looked_at() -> None:
    """Nobody makes a LocalCluster but the fixture and the helper that refuse short limits, and who means to fail."""
    found = set()
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "LocalCluster":
                found.add(str(path.relative_to(TESTS)))
    looked_at = {
        "cluster/conftest.py",
        "cluster/test_torch_workloads.py",
        "golden/test_cluster.py",
        "workbench/local/helpers.py",
    }
    assert found - looked_at == {"kubernetes/control_plane.py", "workbench/local/test_command.py", "test_api.py"}, (
        "use `start`, `Trial` or `cluster_of`"
    )


REAL = [f"tests/{place}/test_x.py::test_{n}" for place in ("workbench/local", "cluster") for n in range(10)]
MPI = [f"tests/mpi/test_x.py::test_{n}" for n in range(10)]
PURE = [f"tests/decide/test_y.py::test_{n}" for n in range(CHUNK + 1)]


def test_real_clusters_are_given_out_one_by_one() -> None:
    found = units([*PURE, *REAL])
    assert [found[nodeid] for nodeid in REAL] == REAL
    assert Counter(found[nodeid] for nodeid in PURE) == {"chunk 0": CHUNK, "chunk 1": 1}


def test_tests_that_share_a_cluster_go_to_one_worker() -> None:
    own, of_conftest = "tests/cluster/test_silence.py", "tests/mpi/test_mpirun.py"
    assert set(units([f"{own}::test_a", f"{of_conftest}::test_b", *REAL]).values()) == {own, of_conftest, *REAL}


def test_only_some_workers_take_real_clusters_and_the_longest_first() -> None:
    waiting = {unit: [unit] for unit in ("chunk 0", *REAL)} | {"tests/mpi/test_x.py": MPI}
    figures = {REAL[3]: 4.0, REAL[5]: 12.0} | dict.fromkeys(MPI, 1.5)
    assert next_unit(waiting, True, figures) == "tests/mpi/test_x.py"
    assert next_unit({unit: waiting[unit] for unit in ("chunk 0", *REAL)}, True, figures) == REAL[5]
    assert next_unit({"chunk 0": PURE}, True, figures) == "chunk 0"
    assert next_unit(waiting, False, figures) == "chunk 0"
    assert next_unit({unit: [unit] for unit in REAL}, False, figures) == next_unit({}, True, figures) == ""


FIGURES = {"tests/cluster/test_x.py::test_slow": 16.0, "tests/cluster/test_x.py::test_quick": 15.0}


def test_a_test_that_takes_too_long_on_an_idle_machine_is_refused() -> None:
    assert "takes 16 s on an idle machine" in objection("tests/cluster/test_x.py::test_slow[3]", FIGURES, True)
    assert objection("tests/cluster/test_x.py::test_quick", FIGURES, True) == ""
    unknown = objection("tests/cluster/test_x.py::test_new", FIGURES, True)
    assert "make test-durations ARGS=tests/cluster/test_x.py" in unknown
    assert objection("tests/decide/test_y.py::test_new", FIGURES, False) == ""


def test_figures_are_renewed_by_file() -> None:
    old = {"tests/mpi/test_a.py::test_gone": 9.0, "tests/mpi/test_b.py::test_stays": 2.0}
    measured = [
        ("tests/mpi/test_a.py::test_new[1]", 0.26),
        ("tests/mpi/test_a.py::test_new[2]", 0.71),
        ("tests/decide/test_c.py::test_quick", 0.1),
        ("tests/decide/test_c.py::test_slow", 7.0),
    ]
    assert renewed(old, measured, ("tests/mpi/",)) == {
        "tests/decide/test_c.py::test_slow": 7.0,
        "tests/mpi/test_a.py::test_new": 0.7,
        "tests/mpi/test_b.py::test_stays": 2.0,
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_test_without_a_cluster_makes_way() -> None:
    assert os.getpriority(os.PRIO_PROCESS, 0) == MAKES_WAY
