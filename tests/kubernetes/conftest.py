"""One control plane for all tests here, and the engines that render the chart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chart.conftest import checkout, engines, words  # noqa: F401  # fixtures
from tests.kubernetes.control_plane import ControlPlane, running
from tests.kubernetes.programs import programs


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    with running(programs()) as plane:
        yield plane
