"""What workloads find around them in a pod: files, libraries, their environment, and the same in people's shells."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from agent.decide.env_sh import MARK, env_sh, forwarder, hook
from agent.decide.environment import Environment, added, effect, of_pod, saved
from agent.decide.secret_variables import hidden
from agent.errors import SystemFault
from agent.fabrics import FABRICS
from agent.fabrics.profiles import LEFT_BEHIND, LEFT_IN, MARKS, NONE, placing, vendor_scripts
from agent.lifecycle.pod.first_environment import LIBRARY_PATH, first_environment
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.pod.preparing_programs import MOST_WORDS, Ended, Tool, check, start_tool, too_late
from agent.lifecycle.pod.ssh_files import with_block
from agent.lifecycle.waits import Once
from agent.paths import BASHRC, EXPORT_INIT_ENV, LIBRARY_PATHS, PROFILE_SCRIPT, shipped
from agent.settings import Settings

FILES_SECONDS = 30.0
"""For ldconfig, and to copy or move what the container that installs gIB has left; it lies in memory, in /dev/shm."""
MOST_SCRIPTS = 3
"""Vendors' scripts that one pod can have: those of its fabric, and NCCL_INIT_SCRIPT."""
SCRIPT_HINT = "A4_PROFILE=none runs no vendors' scripts"
MORE_TIME = "A4_VENDOR_SCRIPT_TIMEOUT_SECONDS gives it more time"


def longest_seconds(settings: Settings) -> float:
    """The longest that preparing a pod takes: by then it is prepared or has ended."""
    files = len(LEFT_BEHIND) * 2 * FILES_SECONDS
    return files + MOST_SCRIPTS * settings.script_timeout + FILES_SECONDS


class PodSurroundings:
    """`choose`, then `start`. What does not apply is left out with a word in the log; what fails ends the pod (71),
    but for what is only for shells and the GPUs' persistence mode, which a warning tells."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._prepared: Environment = of_pod(pod.job.environ)
        self._steps: deque[Callable[[], None]] = deque()
        """What is still to be done, one after the other: a script may need the files that a step before has placed."""
        self._words: list[str] = []
        """What was not done, and why."""
        self.ready = Once()
        """The environment is there."""

    def choose(self) -> None:
        """Read the profile and apply it: all of the environment that is known without running anything."""
        settings, machine, own = self._pod.settings, self._machine, self._pod.known.interface.name
        interfaces = [own, *(interface.name for interface in machine.interfaces())]
        first = first_environment(settings, self._pod.job.environ, interfaces, machine.exists, machine.read)
        for word in first.words:
            self._pod.log.info(word)
        self._pod.learn(profile=first.profile)
        self._use(first.prepared)

    def start(self) -> None:
        """Do what there is to do, by what is there, one step after another. Raises AgentError into the loop."""
        exists, init = self._machine.exists, self._pod.job.environ.get("NCCL_INIT_SCRIPT", "")
        there = [name for name in LEFT_BEHIND if exists(f"{LEFT_IN}/{name}")]
        left = {name: self._machine.list_dir(f"{LEFT_IN}/{name}") for name in there}
        paths = [path for name in left for path in (f"/{name}", *(f"/{name}/{one}" for one in left[name]))]
        known = {*MARKS, *(path for fabric in FABRICS.values() for path in fabric.scripts), *([init] if init else [])}
        places, words = placing(left, [path for path in paths if exists(path)])
        scripts, notes = vendor_scripts(self._pod.known.profile, init, [path for path in known if exists(path)])
        self._words += words + (notes or ([] if scripts else ["no vendor's script to run"]))
        self._steps += (partial(self._place, *one) for one in places)
        self._steps += (partial(self._run_script, path) for path in scripts)
        self._steps += (self._cache_libraries, self._finish)
        self._next()

    def _use(self, prepared: Environment) -> None:
        self._prepared = prepared
        self._pod.learn(environ={**prepared.env, MARK: "1"})

    def _next(self) -> None:
        self._steps.popleft()()

    def _place(self, sources: Sequence[str], target: str) -> None:
        """Copied aside first: half a directory must never stand there."""
        aside = f"{target}.a4-agent"
        title = f"placing {', '.join(sources)} in {target}"
        copies = [f"{aside}/{source.rpartition('/')[2]}" for source in sources]

        def copied(tool: Tool, status: int) -> None:
            check(tool, status)
            self._run(Tool(title, FILES_SECONDS), ["mv", "-t", target, "--", *copies], moved)

        def moved(tool: Tool, status: int) -> None:
            self._machine.remove_dir(aside)
            self._checked(tool, status)

        self._machine.remove_dir(aside)
        self._pod.make_dir(aside, 0o755)
        self._run(Tool(title, FILES_SECONDS), ["cp", "-a", "-t", aside, "--", *sources], copied)

    def _run_script(self, path: str) -> None:
        argv = ["bash", shipped("entrypoints", "vendor-script.sh"), path]
        tool = Tool(path, self._pod.settings.script_timeout, SCRIPT_HINT, f"{MORE_TIME}; {SCRIPT_HINT}")
        self._run(tool, argv, lambda tool, status: self._script_ended(path, tool, status))

    def _script_ended(self, path: str, tool: Tool, status: int) -> None:
        check(tool, status)
        try:
            layer = effect(path, bytes(tool.answer))
        except ValueError as error:
            raise SystemFault(f"{path}: {error}: {tool.last_words}") from error
        self._pod.log.add_secrets(self._pod.secrets(layer.values))
        self._use(self._prepared.with_layer(layer))
        self._pod.log.debug(f"{path}: {tool.last_words}")
        self._next()

    def _cache_libraries(self) -> None:
        paths = added(LIBRARY_PATH, self._prepared.env, self._pod.job.environ)
        paths = [path for path in paths if path.startswith("/") and "\n" not in path and self._machine.exists(path)]
        if not paths:
            self._words.append("no library paths for ldconfig")
            self._next()
            return
        self._pod.write(LIBRARY_PATHS, "".join(f"{path}\n" for path in paths))
        self._run(Tool("ldconfig", FILES_SECONDS), ["ldconfig"], self._checked)

    # GPUs

    def keep_gpus_awake(self, gpus: int) -> None:
        """Set their persistence mode. Nobody waits for it: what uses them meanwhile is only slower to start."""
        if not gpus:
            why = "there are no GPUs"
        elif not self._pod.settings.gpu_persistence:
            why = "A4_GPU_PERSISTENCE=false"
        elif self._machine.find_program("nvidia-smi", self._pod.known.search_path) is None:
            why = "there is no nvidia-smi"
        else:
            self._set_persistence()
            return
        self._pod.log.debug(f"GPU persistence mode is left as it is: {why}")

    def _set_persistence(self) -> None:
        def warn(why: str) -> None:
            self._pod.log.warning(f"GPU persistence mode is not set: {why}")

        def ended(tool: Tool, status: int) -> None:
            if status:
                said = tool.answer[-MOST_WORDS:].decode(errors="replace").strip().splitlines()[:1] or [tool.last_words]
                warn(f"nvidia-smi ended with status {status}: {said[0]}")

        def stuck(tool: Tool) -> None:
            warn(f"nvidia-smi has not ended in {tool.seconds:.0f} s")

        # nvidia-smi wakes the GPUs one by one, which takes a second or so for each.
        tool, argv = Tool("GPU persistence mode", 60.0), ["nvidia-smi", "-pm", "1"]
        try:
            start_tool(self._pod, tool, argv, self._pod.known.environ, ended, stuck)
        except SystemFault as error:
            warn(str(error))

    # Programs

    def _run(self, tool: Tool, argv: Sequence[str], ended: Ended) -> None:
        """Raises SystemFault, at once or into the loop."""
        start_tool(self._pod, tool, argv, self._prepared.env, ended, too_late)

    def _checked(self, tool: Tool, status: int) -> None:
        check(tool, status)
        self._next()

    # All is known

    def _finish(self) -> None:
        pod, log, profile = self._pod, self._pod.log, self._pod.known.profile
        says_much = profile.name != NONE or profile.asked
        say = log.info if says_much and pod.settings.is_coordinator else log.debug  # pods that differ are told later
        say(f"profile {profile.name}: {profile.why}; {'; '.join(self._words)}".rstrip("; "))
        for one in self._prepared.overruled:
            log.info(one)
        self._keep()
        pod.state.event("environment-ready")
        self.ready.happen()

    def _keep(self) -> None:
        """Write the files for commands and shells of this pod."""
        pod, prepared, profile = self._pod, self._prepared, self._pod.known.profile
        names = pod.settings.secret_env.split()

        def is_secret(name: str, value: str) -> bool:
            return hidden({name: value}, names)[name] != value or pod.log.masked(value) != value

        record = pod.log.masker.value(saved(prepared, profile.name, profile.why))
        gone = [name for name, value in prepared.changes.items() if value is None]
        files = (
            (pod.dir.environment, json.dumps(record, indent=1) + "\n", 0o600),
            (pod.dir.env_sh, env_sh(prepared.env, gone, is_secret), 0o600),
            (PROFILE_SCRIPT, hook(pod.dir.env_sh), 0o644),
            (EXPORT_INIT_ENV, forwarder(pod.dir.env_sh), 0o644),
        )
        for path, text, mode in files:
            self._write(path, text, mode)
        present = self._machine.read(BASHRC) or ""
        self._write(BASHRC, with_block(present, hook(pod.dir.env_sh)), 0o644)

    def _write(self, path: str, text: str, mode: int) -> None:
        """Runs need none of these: what cannot be written is only said."""
        try:
            self._machine.write(path, text, mode)
        except OSError as error:
            self._pod.log.warning(f"shells and commands go without {path}: {error.strerror}")
