"""The CPU image, made as Cloud Build makes it, from a Debian that debootstrap makes here."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.context import write_context
from tests.image.archive import archive_of, save
from tests.image.images import Host, build_images, podman


@pytest.fixture(scope="session", autouse=True)
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """With what all images were built, which they are by then."""
    if Path("/proc/1/comm").read_text().strip() != "tini":
        pytest.fail("run them by `make test-image`: what they make is to be gone when they end", pytrace=False)
    for program in ("podman", "runc", "debootstrap"):
        assert shutil.which(program), f"{program} is not installed: make test-image installs it"
    subprocess.run(["podman", "info"], check=True, capture_output=True)
    context = write_context(tmp_path_factory.mktemp("context"))
    host = build_images(context, tmp_path_factory.mktemp("host"))
    if not (archive := archive_of(context)).exists():
        save(archive)  # for the real kubelet of tests/kubernetes
    yield host
    podman("rmi", "--all", "--force")
