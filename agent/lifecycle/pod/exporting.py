"""The process that serves metrics to Prometheus (A4_METRICS_PORT), as the agent sees it.

Whatever becomes of it, the job goes on.
"""

from __future__ import annotations

from agent.launch import Launch
from agent.lifecycle.pod.pod import Pod
from agent.paths import package_home

AGAIN_SECONDS = 60.0
MOST_STARTS = 5
MOST_LINE = 500
"""Characters of a line of its that are logged."""


class Exporting:
    """`start` does nothing unless A4_METRICS_PORT is set."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._starts = 0
        self._last = ""
        """The last line of what it said to stderr."""

    def start(self) -> None:
        pod, settings = self._pod, self._pod.settings
        if not settings.metrics_port:
            return
        self._starts += 1
        job = settings.job_identifier or settings.hostname_prefix.rstrip("-")
        pod_name = settings.pod_name or f"{settings.hostname_prefix}0-{settings.index}"
        node = settings.node_name or pod.machine.hostname()
        # Masked here, because the exporter knows no secrets and serves these names to everybody.
        names = (pod.log.masked(name) for name in (job, pod_name, node))
        words = [str(settings.metrics_port), pod.dir.path, *names]
        # -Es: neither PYTHON variables nor packages in root's home may change what runs here.
        argv = [pod.job.python, "-Es", "-m", "agent.exporter", *words]
        launch = Launch(argv, {"PATH": pod.known.search_path}, package_home())
        try:
            pod.machine.start(launch, self._ended, self._said)
        except OSError as error:
            self._again(f"cannot be started: {error.strerror}")

    def _said(self, stream: int, data: bytes) -> None:
        for line in data.decode(errors="replace").splitlines():
            if stream == 1:
                self._pod.log.info(line[:MOST_LINE])
            elif line.startswith("no metrics"):
                self._pod.log.warning(line[:MOST_LINE])
            else:
                self._last = line[:MOST_LINE]

    def _ended(self, status: int) -> None:
        self._again(f"ended with status {status}: {self._last or 'it said nothing'}")

    def _again(self, why: str) -> None:
        again = self._starts < MOST_STARTS
        what = f"it is started again in {AGAIN_SECONDS:.0f} s" if again else "it is not started again"
        self._pod.log.warning(f"the process that serves metrics {why}; {what}")
        if again:
            self._pod.machine.later(AGAIN_SECONDS, self.start)
