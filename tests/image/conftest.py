"""The CPU image, made as Cloud Build makes it, from a Debian that debootstrap makes here."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.chart.api import running
from tests.chart.helm import CHART, Helm3, Rendered, Words
from tests.docker.context import write_context
from tests.image.containers import Host, build, make_base, podman, this_host

RELEASE = "bookworm"


class Images(NamedTuple):
    """Names of the images, and what they were built with."""

    base: str
    without_agent: str
    image: str
    host: Host


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What would be sent to Cloud Build."""
    return write_context(tmp_path_factory.mktemp("context"))


@pytest.fixture(scope="session")
def images(context: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    host = this_host(RELEASE, tmp_path_factory.mktemp("host"))
    made = Images("localhost/debian:12", "localhost/without-agent", "localhost/a4-agent-cpu:debian12", host)
    make_base(RELEASE, host, made.base)
    build("docker/a4-agent-cpu/Dockerfile", made.base, made.without_agent, context, host)
    build("docker/agent.Dockerfile", made.without_agent, made.image, context, host)
    yield made
    podman("rmi", "--all", "--force")


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Rendered]]:
    """The chart by `render("workload.run=nccl", …)`, without GPUs' fabric."""
    home = tmp_path_factory.mktemp("helm")
    with running(home) as (_, kubeconfig):
        helm = Helm3(home, kubeconfig)

        def rendered(*values: str) -> Rendered:
            common = ("workload.image=localhost/a4-agent-cpu:debian12", "network.gibVersion=")
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
