"""What holds for every test: no environment of a pod around it, nothing left behind, reproducible hypothesis runs."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import settings

from tests import durations
from tests.leftovers import adopt_orphans, left_since, present
from tests.scheduling import HAVE_FIGURES, MAKES_WAY, REAL, USUAL, ClustersByCore

POD_NAMES = {
    "DOMAIN_NAME",
    "GPUS_PER_NODE",
    "HF_TOKEN",
    "HOSTNAME_PREFIX",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NNODES",
    "PAI_WORKSPACE_ROOT",
    "RANK",
    "RANK_0_FQDN",
    "RUN_DEEPEP_TEST",
    "SLEEP_INFINITY",
    "SSH_PUBLIC_KEY",
    "TRAINING_MODE",
    "USE_JSON_SFT",
    "WORLD_SIZE",
}
LONG = {"faults", "long"}
"""Markers of tests that may take long."""
POD_PREFIXES = ("A4_", "JOB_", "NCCL_", "OMPI_", "PMIX_", "PRTE_", "SKIP_")
"""Variables of the pod contract, and those by which the agent, NCCL and Open MPI can be configured."""

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


SEED = os.environ.get("A4_TEST_SEED", "")
"""Tests come in another order for each seed (`make test-steady`), and in that of the files without one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle modules, and tests within each: fixtures of a module are still made once."""
    if SEED:
        draw = random.Random(SEED)
        modules: dict[str, list[pytest.Item]] = {}
        for item in items:
            modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
        shuffled = list(modules.values())
        draw.shuffle(shuffled)
        for tests in shuffled:
            draw.shuffle(tests)
        items[:] = [item for tests in shuffled for item in tests]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-durations",
        action="store_true",
        help="write what the tests of these files take to tests/durations.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("record_durations") and not hasattr(config, "workerinput"):
        if config.getoption("keyword") or any("::" in word for word in config.args):
            raise pytest.UsageError("--record-durations takes whole files")
        config.pluginmanager.register(Recorder())


class Recorder:
    """Adds up what each test takes, with its fixtures, and writes the file when all have passed."""

    def __init__(self) -> None:
        self.measured: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not LONG & set(report.keywords):
            self.measured[report.nodeid] = self.measured.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == 0:
            durations.write(durations.renewed(durations.read(), self.measured.items(), HAVE_FIGURES))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where pytest-xdist is used."""
    return ClustersByCore(config, log)


def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Tests that start real clusters go first; the others fill the cores while clusters wait."""
    if os.geteuid() != 0:  # starts no cluster
        return
    with suppress(PermissionError):  # root of a container may not take it back: then all have the lower priority
        os.setpriority(os.PRIO_PROCESS, 0, USUAL if item.nodeid.startswith(REAL) else MAKES_WAY)


def without_pod(patch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name in POD_NAMES or name.startswith(POD_PREFIXES):
            patch.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def signals_as_usual() -> None:
    """Under nohup, or in the background of a script, they are ignored, and by all that is started too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def orphans_are_ours() -> None:
    """So that what a test has started is found whoever its parent was."""
    adopt_orphans()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Threads, processes and sockets of a test are gone before the next begins, or it fails."""
    before = present()
    yield
    if left := left_since(before):
        pytest.fail("this test leaves behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def not_too_long(request: pytest.FixtureRequest) -> None:
    """A test that takes too long on an idle machine fails, wherever it runs now."""
    if LONG & set(request.node.keywords) or request.config.getoption("record_durations"):
        return
    nodeid = request.node.nodeid
    if objection := durations.objection(nodeid, durations.read(), nodeid.startswith(HAVE_FIGURES)):
        pytest.fail(objection, pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def no_pod_around_fixtures() -> Iterator[None]:
    """Fixtures of wider scope start programs too, before any test's own fixtures run."""
    with pytest.MonkeyPatch.context() as patch:
        without_pod(patch)
        yield


@pytest.fixture(autouse=True)
def no_pod_around(nothing_left_behind: None, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pod(monkeypatch)
