"""`a4-agent local run`: a cluster in the foreground, from its start to the report."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import FrameType

from agent import output
from agent.decide.noise import SaidOnce
from agent.decide.progress import Doing
from agent.decide.subset import pods_text
from agent.errors import AgentError, Exit
from agent.machine.progress_line import ProgressLine
from agent.output import STDERR, STDOUT, Lines
from agent.workbench.local.access import read_output
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.progress import ClusterProgress
from agent.workbench.local.run_report import collect, job_code
from agent.workbench.local.spec import ClusterSpec

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Stopper:
    """Ends the pods, in good order the first time it is asked, at once the second time."""

    def __init__(self, cluster: LocalCluster, grace: float) -> None:
        self._cluster = cluster
        self._grace = grace
        self.is_started = False
        self.timed_out = False
        self._asked = False

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.is_started:
            sys.exit(128 + number)
        self.stop()

    def on_timeout(self, number: int, frame: FrameType | None) -> None:
        """As the job would be ended by its deadline."""
        self.timed_out = True
        output.say("the time limit (--timeout) is reached: the pods are told to end")
        self.stop()

    def stop(self) -> None:
        grace = 0.0 if self._asked else self._grace
        self._asked = True

        def terminate() -> None:
            with contextlib.suppress(AgentError, OSError):
                self._cluster.terminate(grace)

        # In a thread: the main one goes on to show what pods say while they end.
        threading.Thread(target=terminate, daemon=True).start()


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, however slow the reader."""
    with _reader_may_go(descriptor):
        output.write_all(descriptor, data)


@contextlib.contextmanager
def _reader_may_go(descriptor: int) -> Iterator[None]:
    """When the reader has gone (`| head`), the rest goes nowhere and the run goes on."""
    try:
        yield
    except BrokenPipeError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)


@contextlib.contextmanager
def _handlers(stopper: _Stopper) -> Iterator[None]:
    """Signals, and that of the time limit, end the pods, as they would end a job, and not this process."""
    actions = dict.fromkeys(_SIGNALS, stopper.on_signal) | {signal.SIGALRM: stopper.on_timeout}
    before = {number: signal.signal(number, action) for number, action in actions.items()}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def run_in_foreground(
    spec: ClusterSpec,
    *,
    timeout: float,
    grace: float,
    as_json: bool,
    all_pods: bool = False,
    details: bool = False,
    results: str = "",
) -> int:
    """Run the job to its end, show its output and the report; returns the job's exit code. `results`: where its
    results are kept, on this machine; `timeout`: 0 for none."""
    cluster = LocalCluster(spec)
    stopper = _Stopper(cluster, grace)
    with cluster, _handlers(stopper):
        cluster.build()
        stopper.is_started = True
        cluster.start_pods()
        going = ClusterProgress(cluster)
        signal.setitimer(signal.ITIMER_REAL, timeout)
        with ProgressLine(going.text):
            _show_output(cluster, going.doing, STDERR if as_json else STDOUT, all_pods)
            pods = cluster.wait()
        signal.setitimer(signal.ITIMER_REAL, 0)  # it is the pods' limit, not that of what is reported of them
        code = int(Exit.TIME_LIMIT) if stopper.timed_out else job_code(pods)
        report = collect(cluster, pods, code, results)
        if not report.code and not report.plan:
            output.say("no pod made a plan: what ended with 0 was not the agent at work")
            report = replace(report, code=int(Exit.WRONG_RESULT))
    columns = shutil.get_terminal_size().columns if os.isatty(STDOUT) else 0
    text = f"\n{report.text(partial(output.toned, stream=STDOUT), columns, details=details)}"
    if as_json:
        text = json.dumps(report.to_dict(), indent=2)
    write_all(STDOUT, f"{text}\n".encode())
    return report.code


class _Errors(Lines):
    """Every pod's stderr; what agents say alike is shown once, unless each line has its pod in front."""

    def __init__(self, *, label: bool) -> None:
        super().__init__(label=label)
        self.once = SaidOnce()

    def _write(self, source: tuple[int, int], text: bytes) -> None:
        super()._write(source, text if self._label else self.once.passed(source[0], text))

    def close(self) -> None:
        super().close()
        if others := self.once.others:
            output.say(f"the same errors on {pods_text(others)}; --all-pods shows them all")


def _show_output(cluster: LocalCluster, doing: Doing, stdout: int, all_pods: bool) -> None:
    """Pod 0's stdout as it comes, and every pod's stderr in whole lines, so that those of different pods do not mix;
    with `all_pods` everything in whole lines, each behind its pod."""
    lines, errors = Lines(label=all_pods, whole=all_pods, stdout=stdout), _Errors(label=all_pods)
    both = ((lines, stdout), (errors, STDERR))

    def idle() -> float | None:
        waits = []
        for held, descriptor in both:
            with _reader_may_go(descriptor):
                waits.append(held.idle())
        return min((seconds for seconds in waits if seconds is not None), default=None)

    for piece in read_output(cluster.name, follow=True, idle=idle):
        to_stderr = piece.stream == "err"
        data = doing.printed(piece.pod, piece.data, to_stderr=to_stderr)
        if to_stderr:
            with _reader_may_go(STDERR):
                errors.output(piece.pod, STDERR, data)
        elif all_pods or piece.pod == 0:
            with _reader_may_go(stdout):
                lines.output(piece.pod, STDOUT, data)
    for held, descriptor in both:
        with _reader_may_go(descriptor):
            held.close()
