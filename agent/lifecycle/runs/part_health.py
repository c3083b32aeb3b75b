"""What the devices of this pod counted before and after its part of a run (A4_RUN_HEALTH), each reading in a process of
its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from agent.clinic.interface import compare, counters_argv, unseen
from agent.decide.facts import Finding
from agent.decide.messages import SaidOfPart, TellHealth
from agent.lifecycle.pod.pod import Pod
from agent.paths import package_home
from agent.wire import json_object
from agent.workloads.base import RunContext, Workload

PASSED = ("PATH", "LD_LIBRARY_PATH")
"""Variables with which nvidia-smi finds itself and its library."""


class PartHealth:
    """`begin` when the part begins, `look_again` when its process is gone; `say` gets what came of it.

    A part does not wait for it: which pod failed first is known by who says so first.
    """

    def __init__(self, pod: Pod, workload: Workload, context: RunContext, say: Callable[[SaidOfPart], None]) -> None:
        self._pod = pod
        self._wanted = pod.settings.run_health and workload.exclusive
        self._environ = {name: context.environ[name] for name in PASSED if name in context.environ}
        self._begun = False
        self.hurried = False
        """Somebody waits for the run to end: nobody looks again."""
        self._first: dict[str, Any] | None = None
        self._run_id = context.run_id
        self._say = say
        self.reading = False
        """It is looking again, and has told nothing yet."""

    def begin(self) -> None:
        """Nothing is started in a pod that has neither GPUs nor RDMA devices."""
        facts = self._pod.known.facts
        has_devices = bool(facts and facts.gpus) or "nics" in (self._pod.known.inventory or {})
        if self._wanted and has_devices:
            self._begun = True
            # Nobody waits for it. Without persistence mode nvidia-smi wakes every GPU.
            self._read(30.0, self._have_first)

    def _have_first(self, reading: dict[str, Any] | None) -> None:
        self._first = reading

    def look_again(self) -> None:
        """Read the devices once more, for most of the time in which a pod has to answer."""
        if not self._begun:
            return
        first, seconds = self._first, 0.7 * self._pod.shares.answer
        if self.hurried:
            self._tell(unseen("the run was told to end", *self._here))
        elif first is None:
            self._tell(unseen("the devices were not read before the run ended", *self._here))
        else:
            self.reading = True
            self._read(seconds, lambda last: self._compare(first, last, seconds))

    def _compare(self, first: dict[str, Any], last: dict[str, Any] | None, seconds: float) -> None:
        late = f"the devices were not read within {seconds:.1f} s after the run"
        self.reading = False
        try:
            found = unseen(late, *self._here) if last is None else compare(first, last, *self._here)
        except Exception as error:  # no reading, however strange, may end the run
            found = unseen(f"the readings cannot be compared: {type(error).__name__}: {error}", *self._here)
        self._tell(found)

    def _tell(self, found: tuple[Finding, ...]) -> None:
        if self._pod.settings.metrics_port:
            bad = Counter(one.severity for one in found if one.state == "bad")
            self._pod.state.update(findings=dict(bad))
        self._say(TellHealth(self._run_id, found))

    @property
    def _here(self) -> tuple[int, str]:
        facts = self._pod.known.facts
        return self._pod.settings.index, facts.node if facts else ""

    def _read(self, seconds: float, have: Callable[[dict[str, Any] | None], None]) -> None:
        # The process keeps to its time itself, and may be a little late. One that was given up says nothing.
        argv = counters_argv(self._pod.job.python, self._environ, seconds - 1.0)
        self._pod.machine.ask_process(argv, package_home(), seconds, lambda answer: have(json_object(answer) or None))
