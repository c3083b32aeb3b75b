"""Whether the results directory can be used, which every pod finds out before a run begins."""

from __future__ import annotations

from collections.abc import Callable

from agent.errors import AgentError, DirectoryUnusable
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.waits import PROBE_SECONDS, Once
from agent.machine.api import SERVER_SECONDS, KeeperProcess
from agent.paths import POD_LOGS


class ResultsCheck:
    """A directory that was asked for and cannot be used ends the job (73), before a GPU is used."""

    def __init__(self, pod: Pod, fail: Callable[[AgentError], None]) -> None:
        self.over = Once()
        """It is known, or nobody asks."""
        self._pod = pod
        self._fail = fail
        self._process: KeeperProcess | None = None
        self._tries = 0

    def start(self) -> None:
        """Find it out, unless the directory is the pod's own."""
        settings = self._pod.settings
        if not settings.results_explicit and settings.results_dir.startswith(f"{self._pod.dir.path}/"):
            self.over.happen()
        else:
            self._try(PROBE_SECONDS)

    def _try(self, seconds: float) -> None:
        machine, logs = self._pod.machine, self._pod.run_logs
        number = self._tries = self._tries + 1

        def told(problem: str, earlier: str = "") -> None:
            if number == self._tries and not self.over.happened:
                self._checked(problem, earlier)

        def late() -> None:
            if number == self._tries and not self.over.happened:
                self._late(seconds)

        try:
            self._process = machine.start_keeper(
                self._pod.settings.results_dir,
                number,
                lambda words: told(*words[1:]) if words[0] == "probe" else None,
                lambda process, status: told(f"the process that looks at it ended with {status}"),
                logs.base,
            )
        except OSError as error:
            problem = f"no process can look at it: {error.strerror}"
            machine.later(0, lambda: told(problem))
            return
        self._process.send("probe", f".{logs.log_name}-probe", POD_LOGS)
        machine.later(seconds, late)

    def _late(self, seconds: float) -> None:
        settings, silence = self._pod.settings, f"no answer for {seconds:g} s"
        if self._tries > 1 or not settings.results_explicit:
            self._checked(silence)
            return
        directory = f"A4_RESULTS_DIR={settings.results_dir}"
        self._pod.log.warning(f"{directory}: {silence}; it is tried once more, for {SERVER_SECONDS:g} s")
        if self._process is not None:
            self._process.close(kill=True)
        self._try(SERVER_SECONDS)

    def _checked(self, problem: str, earlier: str = "") -> None:
        settings = self._pod.settings
        # Unknown counts as there, because logs of an earlier attempt are never written over.
        self._pod.run_logs.has_earlier = bool(earlier or problem) and not settings.results_explicit
        if self._process is not None:
            self._process.close(kill=bool(problem))
        if problem and settings.results_explicit:
            what = f"A4_RESULTS_DIR={settings.results_dir} cannot be used: {problem}"
            self._fail(DirectoryUnusable(what, "mount it, or set another one"))
        elif problem:
            self._pod.log.warning(
                f"results directory {settings.results_dir}: {problem}; results stay in the pod until it can be used"
            )
        self.over.happen()
