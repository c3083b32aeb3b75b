"""Whether the results directory can be used, which every pod finds out before a run begins."""

from __future__ import annotations

from collections.abc import Callable

from agent.errors import AgentError, DirectoryUnusable
from agent.lifecycle.once import Once
from agent.lifecycle.pod.pod import Pod
from agent.machine.api import KeeperProcess

PROBE_SECONDS = 5.0
"""How long the directory may take to hold a small file. A run on hundreds of GPUs waits for this."""


class ResultsCheck:
    """A directory that was asked for and cannot be used ends the job (73), before a GPU is used."""

    def __init__(self, pod: Pod, fail: Callable[[AgentError], None]) -> None:
        self.over = Once()
        """It is known, or nobody asks."""
        self._pod = pod
        self._fail = fail
        self._process: KeeperProcess | None = None

    def start(self) -> None:
        """Find it out, unless the directory is the pod's own."""
        settings, machine = self._pod.settings, self._pod.machine
        if not settings.results_explicit and settings.results_dir.startswith(f"{self._pod.dir.path}/"):
            self.over.happen()
            return
        try:
            self._process = machine.start_keeper(
                settings.results_dir,
                1,
                lambda words: self._checked(words[1]) if words[0] == "probe" else None,
                lambda process, status: self._checked(f"the process that looks at it ended with {status}"),
            )
        except OSError as error:
            problem = f"no process can look at it: {error.strerror}"
            machine.later(0, lambda: self._checked(problem))
            return
        self._process.send("probe", f".{self._pod.run_logs.log_name}-probe")
        machine.later(PROBE_SECONDS, lambda: self._checked(f"no answer for {PROBE_SECONDS:g} s"))

    def _checked(self, problem: str) -> None:
        if self.over.happened:
            return
        settings = self._pod.settings
        if self._process is not None:
            self._process.close(kill=bool(problem))
        if problem and settings.results_explicit:
            what = f"A4_RESULTS_DIR={settings.results_dir} cannot be used: {problem}"
            self._fail(DirectoryUnusable(what, "mount it, or set another one"))
        elif problem:
            self._pod.log.warning(f"results directory {settings.results_dir}: {problem}; results stay in the pod")
        self.over.happen()
