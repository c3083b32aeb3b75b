"""Fixtures of the MPI tests: both Open MPI versions, and pods on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.decide.mpirun import MpiVersion, parse_version
from tests.mpi.pods import PLAIN_PATH, Pods

ROOT = Path(__file__).resolve().parents[2]
# Read when the tests are collected: later, no variable of the agent is left in the environment.
OMPI5 = Path(os.environ.get("A4_TEST_OMPI5", ROOT / ".venv-ompi5"))


@dataclass(frozen=True)
class Mpi:
    """One Open MPI installation, and a Python whose mpi4py finds its libmpi."""

    version: MpiVersion
    mpirun: str
    python: str


def open_mpi_4() -> Mpi:
    program = shutil.which("mpirun", path=PLAIN_PATH)
    if not program:
        pytest.fail("no mpirun of the system: apt-get install openmpi-bin, or make setup", pytrace=False)
    return checked(program, sys.executable, 4)


def open_mpi_5() -> Mpi:
    program = OMPI5 / "bin" / "mpirun"
    if not program.exists():
        why = f"no Open MPI 5 at {program}: make setup, or name an environment that has it by A4_TEST_OMPI5"
        pytest.fail(why, pytrace=False)
    return checked(str(program), str(OMPI5 / "bin" / "python"), 5)


def checked(program: str, python: str, major: int) -> Mpi:
    text = subprocess.run([program, "--version"], text=True, capture_output=True, check=True).stdout
    version = parse_version(text)
    assert version and version.major == major, f"{program} is no Open MPI {major}: {text}"
    return Mpi(version, program, python)


@pytest.fixture(params=[open_mpi_4, open_mpi_5], ids=["ompi4", "ompi5"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each Open MPI version in turn. A missing one is a failure, never a skipped test."""
    made: Callable[[], Mpi] = request.param
    return made()


WITH_4 = pytest.mark.parametrize("mpi", [pytest.param(open_mpi_4, id="ompi4")], indirect=True)
"""For what both versions do for the same reason."""
WITH_5 = pytest.mark.parametrize("mpi", [pytest.param(open_mpi_5, id="ompi5")], indirect=True)
"""The same, where Open MPI 5 is more likely to go wrong."""


MakePods = Callable[[int], Pods]


@contextmanager
def pods_maker() -> Iterator[MakePods]:
    """Makes clusters of as many pods as asked for, and ends them."""
    if os.geteuid() != 0:
        pytest.fail("pods need network namespaces: run the MPI tests as root", pytrace=False)
    with ExitStack() as stack:

        def make(count: int) -> Pods:
            # pytest's own directories are too long for the sockets that Open MPI puts below TMPDIR.
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="a4-mpi-"))
            return stack.enter_context(Pods(Path(home), count))

        yield make


@pytest.fixture
def make_pods() -> Iterator[MakePods]:
    """For tests that need other pods, or leave them in another state."""
    with pods_maker() as make:
        yield make


@pytest.fixture(scope="module")
def shared_pods(no_pod_around_fixtures: None) -> Iterator[Pods]:
    """Three pods with a second network."""
    with pods_maker() as make:
        pods = make(3)
        pods.connect("eth1", "198.19.0")
        yield pods


@pytest.fixture
def pods(shared_pods: Pods) -> Iterator[Pods]:
    """After each test what it has started is ended, and what it has written is removed."""
    yield shared_pods
    shared_pods.clean()
