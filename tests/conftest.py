"""What holds for every test: no environment of a pod around it, and reproducible hypothesis runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

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
POD_PREFIXES = ("A4_", "JOB_", "NCCL_", "OMPI_", "PMIX_", "PRTE_", "SKIP_")
"""Variables of the pod contract, and those by which the agent, NCCL and Open MPI can be configured."""

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


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
def no_pod_around_fixtures() -> Iterator[None]:
    """Fixtures of wider scope start programs too, before any test's own fixtures run."""
    with pytest.MonkeyPatch.context() as patch:
        without_pod(patch)
        yield


@pytest.fixture(autouse=True)
def no_pod_around(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pod(monkeypatch)
