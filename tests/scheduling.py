"""How the workers of pytest-xdist share the tests: no more real clusters at a time than this machine has cores."""

from __future__ import annotations

import os
from functools import cached_property

from xdist.scheduler import LoadScopeScheduling

REAL = ("tests/cluster/", "tests/gpu/", "tests/local/", "tests/mpi/", "tests/programs/")
"""Where tests start real clusters, MPI jobs or torchrun."""
AT_ONCE = len(os.sched_getaffinity(0))
CHUNK = 25
"""So many other tests are given to a worker at a time: few enough for an even end, and those that share a module's
fixture mostly stay together."""


class ClustersByCore(LoadScopeScheduling):  # type: ignore[misc]  # untyped
    """One group of tests per core for those that start real clusters, small chunks for all others.

    A group is run by one worker, one test after the other. Groups are longer than chunks and so come first.
    """

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]

    @cached_property
    def _groups(self) -> dict[str, str]:
        assert self.collection is not None, "the tests are collected before they are shared out"
        return groups(self.collection, AT_ONCE)


def groups(nodeids: list[str], at_once: int) -> dict[str, str]:
    """The name of each test's group."""
    real = [nodeid for nodeid in nodeids if nodeid.startswith(REAL)]
    found = {nodeid: f"cluster {number % at_once}" for number, nodeid in enumerate(real)}
    others = (nodeid for nodeid in nodeids if nodeid not in found)
    return found | {nodeid: f"chunk {number // CHUNK}" for number, nodeid in enumerate(others)}
