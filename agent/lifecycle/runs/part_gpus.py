"""Whether the GPUs of this pod are free when a run starts again: after SIGKILL the driver may give memory back late,
and something else may have it."""

from __future__ import annotations

import os
from collections.abc import Callable

from agent.clinic.interface import gpu_memory_argv
from agent.decide.words import at_most
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.part_health import PASSED
from agent.paths import SMI_DIRECTORY, package_home
from agent.wire import json_object
from agent.workloads.base import RunContext

MOST_SECONDS = 50.0
"""As long as NVIDIA's own launcher waits (nvidia-resiliency-ext, gpu_memory_reclaim_timeout)."""
OF_LEASE = 0.5
"""The part of a lease that may pass so: a pod that is not ready within a lease ends the run."""
PAUSE_SECONDS = 1.0
"""Between two looks."""


def when_free(pod: Pod, context: RunContext, is_wanted: Callable[[], bool], action: Callable[[], None]) -> None:
    """Call `action` when no memory of GPUs is in use, and after MOST_SECONDS at most: the run then begins all the same.
    At once in a run's first life, and without nvidia-smi; not at all once the part `is_wanted` no more."""
    if context.life == 1 or not (pod.known.facts and pod.known.facts.gpus):
        action()
        return
    machine, seconds = pod.machine, min(MOST_SECONDS, OF_LEASE * pod.settings.lease)
    until = machine.now() + seconds
    environ = {name: context.environ[name] for name in PASSED if name in context.environ}
    path = os.pathsep.join((environ.get("PATH", os.defpath), SMI_DIRECTORY))

    def look(program: str | None) -> None:
        if program is None:
            action()
            return
        # The process keeps to its time itself, and may be a little late.
        left = max(PAUSE_SECONDS, until - machine.now())
        argv = gpu_memory_argv(pod.job.python, environ, max(PAUSE_SECONDS, left - PAUSE_SECONDS))
        machine.ask_process(argv, package_home(), left, lambda answer: have(answer, program))

    def have(answer: str, program: str) -> None:
        if not is_wanted():
            return
        said = json_object(answer) or {"problem": f"nvidia-smi has not answered within {seconds:.0f} s"}
        used, problem = said.get("used"), said.get("problem")
        if used and machine.now() + PAUSE_SECONDS < until:
            machine.later(PAUSE_SECONDS, lambda: look(program) if is_wanted() else None)
            return
        if used:
            gpus = ", ".join(at_most([f"{mib} MiB of {gpu}" for gpu, mib in used.items()]))
            by = ", ".join(at_most(said["holders"])) or "no process of this pod"
            held = f"still in use after {seconds:.0f} s: {gpus}, by {by}"
            pod.log.warning(f"{held}; {context.run_id} begins all the same, and may be short of memory")
        elif problem:
            pod.log.warning(f"it is not known whether GPUs are free for {context.run_id}: {problem}")
        action()

    # Aside: a directory in PATH may lie on a server that does not answer.
    machine.aside(lambda: machine.find_program("nvidia-smi", path), look, lambda _: action())
