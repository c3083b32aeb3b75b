"""One control plane and its nodes for all tests here, and the engines that render the chart."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.chart.conftest import checkout, engines, words  # noqa: F401  # fixtures
from tests.kubernetes.bed import Bed, with_nodes
from tests.kubernetes.control_plane import ControlPlane, running
from tests.kubernetes.programs import programs


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    with running(programs()) as plane:
        yield plane


@pytest.fixture(scope="session")
def bed(plane: ControlPlane) -> Iterator[Bed]:
    with with_nodes(plane) as bed:
        yield bed


@pytest.fixture
def namespace(bed: Bed, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own. What is in it is deleted afterwards, and its nodes are free again."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_")).strip("-")[:50].strip("-")
    bed.plane.make_namespace(name)
    yield name
    bed.clear(name)
