"""The CPU image, made as Cloud Build makes it, from a Debian that debootstrap makes here."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chart.api import running
from tests.chart.helm import CHART, Helm3, Rendered, Words
from tests.docker.context import write_context
from tests.image.archive import archive_of, save
from tests.image.containers import Images, build_images, podman


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What would be sent to Cloud Build."""
    return write_context(tmp_path_factory.mktemp("context"))


@pytest.fixture(scope="session")
def images(context: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    made = build_images(context, tmp_path_factory.mktemp("host"))
    if not (archive := archive_of(context)).exists():
        save(made, archive)  # for the real kubelet of tests/kubernetes
    yield made
    podman("rmi", "--all", "--force")


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Rendered]]:
    """The chart by `render("workload.run=nccl", …)`, without GPUs' fabric."""
    home = tmp_path_factory.mktemp("helm")
    with running(home) as (_, kubeconfig):
        helm = Helm3(home, kubeconfig)

        def rendered(*values: str) -> Rendered:
            # Two cores on which images are built and tens of ranks start: half a minute without a packet has been seen.
            patience = "workload.env.A4_LEASE_SECONDS=150"
            common = ("workload.image=localhost/a4-agent-cpu:debian12", "network.gibVersion=", patience)
            flags = [word for value in (*common, *values) for word in ("--set", value)]
            return helm.render(Words(tuple(flags), chart=str(CHART)))

        yield rendered


@pytest.fixture(scope="session", autouse=True)
def own_namespaces() -> None:
    if Path("/proc/1/comm").read_text().strip() != "tini":
        pytest.fail("run them by `make test-image`: what they make is to be gone when they end", pytrace=False)
    for program in ("podman", "runc", "debootstrap"):
        assert shutil.which(program), f"{program} is not installed: make test-image installs it"
    subprocess.run(["podman", "info"], check=True, capture_output=True)
