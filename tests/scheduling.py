"""How the workers of pytest-xdist share the tests: no more real clusters at a time than this machine has cores.

Real clusters also wait, for a lease or a timeout. The other tests fill the cores then, and make way at other times:
else they would all be done long before the clusters, and the cores idle whenever those wait.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from typing import Any

from xdist.scheduler import LoadScopeScheduling

REAL = (
    "tests/test_package.py",
    "tests/cluster/test_pai_megatron.py",
    "tests/golden/test_cluster.py",
    "tests/mpi/",
    "tests/programs/",
    "tests/cluster/",
    "tests/gpu/",
    "tests/local/",
    "tests/kubernetes/",
)
"""Where tests start real clusters, MPI jobs or torchrun: what takes long first, so that all workers end together."""
WHOLE = (
    "tests/test_package.py",
    "tests/cluster/test_pai_megatron.py",
    "tests/cluster/test_find_slow_faults.py",
    "tests/cluster/test_pid_1.py",
    "tests/cluster/test_silence.py",
    "tests/cluster/test_torch_workloads.py",
    "tests/cluster/test_why.py",
    "tests/cluster/test_why_schedules.py",
    "tests/golden/test_cluster.py",
    "tests/gpu/",
    "tests/local/test_pods.py",
    "tests/local/test_sockets.py",
    "tests/kubernetes/test_runtime.py",
    "tests/mpi/",
    "tests/programs/test_options.py",
)
"""Files of which one worker gets all: each other one would make their module's cluster, pods or package again."""
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
        unit = next_unit(list(self.workqueue), takes_real)
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


def units(nodeids: list[str]) -> dict[str, str]:
    """What each test is given to a worker with: nothing else, its file, or the rest of its chunk."""
    real = [nodeid for nodeid in nodeids if nodeid.startswith(REAL)]
    others = (nodeid for nodeid in nodeids if not nodeid.startswith(REAL))
    return {nodeid: nodeid.partition("::")[0] if nodeid.startswith(WHOLE) else nodeid for nodeid in real} | {
        nodeid: f"chunk {n // CHUNK}" for n, nodeid in enumerate(others)
    }


def next_unit(waiting: list[str], takes_real: bool) -> str:
    """What a worker gets of the units that wait; nothing if none is for it."""
    real = (unit for place in REAL for unit in waiting if unit.startswith(place))
    others = (unit for unit in waiting if not unit.startswith(REAL))
    return next(real, "") or next(others, "") if takes_real else next(others, "")
