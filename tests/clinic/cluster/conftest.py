"""The clusters are those of tests/cluster."""

from __future__ import annotations

from tests.cluster.conftest import start

__all__ = ["start"]
