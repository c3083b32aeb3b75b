"""The resident agent of a pod: one event loop from the first file to the exit code."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from agent.decide.ending import from_bug
from agent.errors import AgentError, ClusterBusy, Exit
from agent.lifecycle.pod.pod import Job, Pod
from agent.lifecycle.waits import LAST_WORDS_SECONDS
from agent.log import Log
from agent.machine.files import take_lock
from agent.machine.host import Host
from agent.machine.loop import Loop
from agent.paths import RunDir

if TYPE_CHECKING:
    from agent.lifecycle.coordinator import Coordinator
    from agent.lifecycle.worker import Worker

    Role: TypeAlias = Coordinator | Worker
    """Its `start` is called once; `fail`, `bug` and `signalled` at any time after it."""

PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that mean something to workloads: the processes of runs in this pod get them."""
# What a terminal, or a job that was put into the background, sends.
IGNORED = (signal.SIGHUP, signal.SIGALRM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def serve(job: Job, log: Log) -> int:
    """Live this pod's life; returns its exit code. Raises ClusterBusy when an agent lives here already."""
    loop = Loop()
    host = Host(loop)
    directory = RunDir(job.settings.run_dir)
    host.make_private_dir(directory.path)
    if holder := take_lock(directory.lock):
        raise ClusterBusy(f"an a4-agent has just started in this pod ({holder})", "a4-agent status shows what it does")
    # From here on nothing waits for who reads our output.
    log.write = lambda line: host.emit(2, line)
    ended: list[int] = []

    def finished(code: int) -> None:
        ended.append(code)
        loop.stop()

    pod = Pod(host, log, job, finished)  # from here on what the log says is kept among the results
    for warning in job.warnings:
        log.warning(warning)
    role = make_role(pod)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.on_signal(number, role.signalled)
    loop.on_signal(signal.SIGQUIT, lambda number: role.signalled(signal.SIGINT))
    for number in PASSED_ON:
        loop.on_signal(number, lambda number: role.parts.signal(number))
    # A lost or busy terminal is no reason to end a job. Not SIG_IGN, which what we start would inherit.
    for number in IGNORED:
        loop.on_signal(number, lambda number: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())  # agent.cli lets them wait until now
    # By the loop, so that an error of the start becomes the role's end like any other (see `guarded`).
    loop.post(role.start)
    while not ended:
        try:
            guarded(loop.run, role)
        except Exception as error:
            end = from_bug(_traceback(error), "")
            log.error(f"a bug in a4-agent while it was ending:\n{end.why}", end)
            ended.append(int(Exit.BUG))
    host.flush_output(LAST_WORDS_SECONDS)
    return ended[0]


def make_role(pod: Pod) -> Role:
    """The coordinator is index 0; all others are workers and never import what only it needs."""
    if pod.settings.is_coordinator:
        from agent.lifecycle.coordinator import Coordinator

        return Coordinator(pod)
    from agent.lifecycle.worker import Worker

    return Worker(pod)


def guarded(step: Callable[[], None], role: Role) -> None:
    """Run `step`; an error becomes the role's end, so that the other pods hear of it."""
    try:
        step()
    except AgentError as error:
        role.fail(error)
    except Exception as error:
        role.bug(_traceback(error))


def _traceback(error: Exception) -> str:
    try:
        import traceback  # here: it costs 3 ms of CPU, and bugs are rare

        return "".join(traceback.format_exception(error))
    except (ImportError, OSError) as unreadable:  # too many files are open
        return f"{type(error).__name__}: {error} (no traceback: {unreadable})"
