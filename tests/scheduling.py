"""How the workers of pytest-xdist share the tests: no more real clusters at a time than this machine has cores.

Real clusters also wait, for a lease or a timeout. The other tests fill the cores then, and make way at other times:
else they would all be done long before the clusters, and the cores idle whenever those wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

from tests import durations

REAL = (
    "tests/test_package.py",
    "tests/cluster/test_pai_megatron.py",
    "tests/golden/test_cluster.py",
    "tests/mpi/",
    "tests/programs/",
    "tests/cluster/",
    "tests/clinic/cluster/",
    "tests/gpu/",
    "tests/workbench/local/",
    "tests/kubernetes/",
)
"""Where tests start real clusters, MPI jobs or torchrun."""
HAVE_FIGURES = tuple(place for place in REAL if place not in ("tests/gpu/", "tests/kubernetes/"))
"""Whose tests all stand in durations.json: what `make test` runs of them."""
ROOT = Path(__file__).parents[1]
SHARED = 'scope="module"'
"""What stands in a file whose tests go to one worker, or in the conftest.py beside it."""
AT_ONCE = len(os.sched_getaffinity(0))
USUAL = os.getpriority(os.PRIO_PROCESS, 0)
MAKES_WAY = min(USUAL + 5, 19)
"""How nice the other tests are to the clusters."""
CHUNK = 25
"""So many other tests are given to a worker at a time: few enough for an even end, and those that share a module's
fixture mostly stay together."""


class ClustersByCore(LoadScopeScheduling):  # type: ignore[misc]  # untyped
    """As many workers as there are cores take the tests that start real clusters; all take the others."""

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]

    @cached_property
    def _units(self) -> dict[str, str]:
        assert self.collection is not None, "the tests are collected before they are shared out"
        return units(self.collection)

    def _assign_work_unit(self, node: Any) -> None:
        # Workers that end make room: else nobody would take the clusters of the last one that died.
        before = takewhile(lambda each: each is not node, self.nodes)
        takes_real = sum(not each.shutting_down for each in before) < AT_ONCE
        unit = next_unit(self.workqueue, takes_real, durations.read())
        if unit:
            self.workqueue.move_to_end(unit, last=False)
            with suppress(OSError):  # it has died, and is removed next
                super()._assign_work_unit(node)
        else:
            node.shutdown()

    def _reschedule(self, node: Any) -> None:
        """A worker begins a test when it knows the next one, or that there is none: one unit may be one test."""
        if node not in self.registered_collections:  # replaces one that died, and collects its tests yet
            return
        super()._reschedule(node)
        if not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """The test in which the worker died, if it did; the other workers get the tests that it had yet to run.

        xdist gives out what the worker had already run as well, as units without tests, and waits for them for ever;
        and it gives out the test that kills its worker again.
        """
        left = [nodeid for unit in self.assigned_work.pop(node).values() for nodeid, done in unit.items() if not done]
        for nodeid in left[1:]:
            self.workqueue.setdefault(self._split_scope(nodeid), {})[nodeid] = False
        if left:
            for other in self.nodes:
                self._reschedule(other)
        return left[0] if left else None


@cache
def shares(file: str) -> bool:
    """Whether tests of a file share a cluster, pods or a package, which every other worker would make again."""
    path = ROOT / file
    return any(SHARED in each.read_text() for each in (path, path.with_name("conftest.py")) if each.exists())


def units(nodeids: list[str]) -> dict[str, str]:
    """What each test is given to a worker with: nothing else, its file, or the rest of its chunk."""
    real = [nodeid for nodeid in nodeids if nodeid.startswith(REAL)]
    others = (nodeid for nodeid in nodeids if not nodeid.startswith(REAL))
    files = {nodeid: nodeid.partition("::")[0] for nodeid in real}
    return {nodeid: file if shares(file) else nodeid for nodeid, file in files.items()} | {
        nodeid: f"chunk {n // CHUNK}" for n, nodeid in enumerate(others)
    }


def next_unit(waiting: Mapping[str, Iterable[str]], takes_real: bool, figures: Mapping[str, float]) -> str:
    """What a worker gets of the units that wait, each with its tests; nothing if none is for it.

    figures: seconds of tests; of those that start clusters, what takes longest goes first
    """
    if takes_real:
        real = [unit for unit in waiting if unit.startswith(REAL)]
        if real:
            return max(real, key=lambda unit: sum(figures.get(durations.key(test), 0.0) for test in waiting[unit]))
    return next((unit for unit in waiting if not unit.startswith(REAL)), "")
