"""How each kind of stage is carried out: which programs are run, what they are told and what their ends mean."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agent.decide.ending import exit_code, signal_name
from agent.decide.pipeline import Files, GitCheckout, Model, Packages, Stage, StageCommand
from agent.decide.progress import too_little_room
from agent.errors import AgentError, DirectoryUnusable, MissingProgram, PeerLost, SettingsError, SystemFault
from agent.lifecycle.stages.programs import Programs, note
from agent.machine import stored
from agent.machine.patience import retrying
from agent.paths import package_home, shipped
from agent.wire import json_object

NETWORK_TRIES = 5
"""In a row, each of which brings nothing."""
GIT_FINAL = (
    "not found", "does not exist", "not our ref", "no such remote ref", "couldn't find remote ref",
    "does not appear to be a git repository", "Authentication failed", "terminal prompts disabled", "pathspec",
)  # fmt: skip
"""What git says that it says again when it is asked again."""
DOWNLOADERS = {"huggingface": "huggingface_hub>=1,<3", "modelscope": "modelscope>=1.20,<2"}
"""Each lives in a virtual environment of its own: what it needs and what transformers pins do not mix."""
NCCL = "nvidia-nccl"
GUARDED = (NCCL, "torch")
"""Packages that no pod replaces: the fabric's NCCL is the one that works on this network, and torch is built for it."""


MOST_QUOTED = 1000
ITERATION = "elapsed time per iteration (ms):"
"""In each line in which Megatron says how an iteration went; only the last rank prints them."""


class Begin(NamedTuple):
    """How a stage begins, as the lead says it to those who take part."""

    needed: bool
    resumes: str = ""
    """The directory with the checkpoint from which a training goes on; empty: the one in its arguments."""
    repeats_at: int | None = None
    """An earlier attempt of this job, or life of this run, did not end this stage, and began it with this checkpoint as
    the newest (-1: none)."""


class Failed(Exception):
    """A stage's own program has failed, or what it made is not right."""

    def __init__(self, code: int, what: str, hint: str = "", origin: str = "workload") -> None:
        super().__init__(what)
        self.code, self.what, self.hint, self.origin = int(code), what, hint, origin


class Work:
    """What a stage has done by programs, with their output on ours. `downloaders`: directory of their environments.
    `tell` gets the lines that the coordinator shows, too."""

    def __init__(self, programs: Programs, downloaders: str, tell: Callable[[str], None]) -> None:
        self._programs = programs
        self._tell = tell
        self._downloaders = downloaders

    def do(self, stage: Stage, begin: Begin) -> str:
        """Why what was made cannot be used although the program ended with 0; empty: nothing says so.

        Raises AgentError and Failed.
        """
        work = stage.work
        if isinstance(work, StageCommand):
            return self._command(stage, work, begin)
        if isinstance(work, GitCheckout):
            self._checkout(stage, work)
        elif isinstance(work, Model):
            self._model(stage, work)
        elif isinstance(work, Files):
            argv = [sys.executable, "-Es", "-m", "agent.machine.downloading", stage.staging or stage.target]
            self._download(stage, [*argv, *work.urls])
        else:
            self._packages(stage, work)
        return ""

    def _command(self, stage: Stage, work: StageCommand, begin: Begin) -> str:
        words = [
            *work.argv,
            *(begin.resumes if begin.resumes and name == work.resumes else value for name, value in work.arguments),
        ]
        found: list[str] = []

        def look(line: str) -> None:
            if ITERATION in line:
                note(self._programs.notes, f"{stage.name}\t{line}")
                self._tell(f"{stage.name}: {line.strip()}")
            if work.fails_on and re.search(work.fails_on, line):
                found.append(line)

        if status := self._programs.run(stage, words, work.env, work.cwd, look):
            how = f"was killed by {signal_name(-status)}" if status < 0 else f"ended with exit code {status}"
            raise Failed(exit_code(status), f"{stage.name}: {' '.join(work.argv)} {how}")
        return f"{stage.name} ended with 0, but says: {found[-1].strip()[:MOST_QUOTED]}" if found else ""

    # Git

    def _checkout(self, stage: Stage, work: GitCheckout) -> None:
        commands = [
            ["init", "--quiet"],
            ["remote", "add", "origin", work.url],
            ["fetch", "--quiet", "--depth=1", "origin", work.commit],
            ["checkout", "--quiet", "--detach", work.commit],
            ["submodule", "update", "--init", "--recursive", "--depth=1", *work.submodules],
        ]
        everything = ["fetch", "--quiet", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*"]
        env = stored.git_settings(local=work.url.startswith(("/", "file:")))
        for words in commands:
            try:
                self._git(stage, words, env)
            except MissingProgram:
                if words[0] != "fetch":
                    raise
                # A server need not give single commits: it gives branches, and the commit is on one, or is not there.
                self._git(stage, everything, env)

    def _git(self, stage: Stage, words: Sequence[str], env: Mapping[str, str]) -> None:
        """Raises MissingProgram for what is not there, DirectoryUnusable, PeerLost when the network does not do it."""

        def once() -> None:
            said: list[str] = []
            place = stage.staging
            if status := self._programs.run(stage, ["git", *words], env, place, said.append, grows=place):
                raise git_error(words, status, said)

        retrying(PeerLost, NETWORK_TRIES, self._programs.say)(once)

    # Downloads

    def _model(self, stage: Stage, work: Model) -> None:
        python = self._downloader(stage, work.source)
        argv = [python, "-I", shipped("entrypoints", "download-model.py"), work.source, work.name, work.revision]
        policy = retrying(PeerLost, NETWORK_TRIES, self._programs.say, lambda: self._programs.bytes_in(stage.staging))
        policy(self._download, stage, [*argv, stage.staging])

    def _downloader(self, stage: Stage, source: str) -> str:
        """The Python of its virtual environment, which is made where it is missing."""
        place = f"{self._downloaders}/{source}"
        python = f"{place}/bin/python"
        if not os.path.lexists(python):
            new = f"{place}.new"
            stored.remove(new)
            self._programs.say(f"{stage.name}: {source}'s downloader is installed in {place}")
            pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", DOWNLOADERS[source]]
            for argv in ([sys.executable, "-I", "-m", "venv", new], [f"{new}/bin/python", "-I", *pip]):
                if self._programs.run(stage, argv, {}, "/"):
                    raise SystemFault(
                        f"{source}'s downloader cannot be installed in {place}",
                        "install it in the image (A4_DOWNLOADERS_DIR names the parent directory)",
                    )
            stored.rename(new, place)
        return python

    def _download(self, stage: Stage, argv: Sequence[str]) -> None:
        place = stage.staging or stage.target
        said: dict[str, Any] = {}
        begin = self._programs.bytes_in(place)
        room: list[str] = []

        def heard(line: str) -> None:
            said.update(json_object(line))
            if "total" in said and not room:
                with self._programs.looking_at(place):
                    room.append(too_little_room(place, int(said["total"]), begin, stored.free_bytes(place)))
                if room[0]:
                    self._programs.kill()

        status = self._programs.run(
            stage, argv, {}, package_home(), heard, grows=place, total=lambda: int(said.get("total", 0)), quiet=True
        )
        if room and room[0]:
            raise DirectoryUnusable(room[0], "what was downloaded so far is kept")
        if status:
            kinds = {66: MissingProgram, 73: DirectoryUnusable, 75: PeerLost, 71: SystemFault}
            kind: type[AgentError] = kinds.get(said.get("code", 0), SystemFault)
            raise kind(
                str(said.get("what") or f"{stage.name}: {argv[0]} ended with {status}"), str(said.get("hint", ""))
            )

    # Packages

    def _packages(self, stage: Stage, work: Packages) -> None:
        """Install what is missing; refuse what would bring another NCCL or torch, and what only an image can have."""
        missing = self._missing(stage, work)
        if absent := {name: why for name, why in missing.items() if name in work.from_image}:
            raise SettingsError(
                [f"{work.python} has {why}; {name} has compiled code" for name, why in absent.items()],
                "use an image that has it: docs/images.md",
            )
        if not missing:
            return
        wanted = [work.requirements[name] for name in missing]
        if nccl := [word for word in wanted if word.startswith(NCCL)]:
            raise SettingsError([f"{nccl[0]} is not installed"], "the NCCL of the fabric's own libraries is used")
        pip = [work.python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet"]
        report = self._answer(stage, [*pip, "--dry-run", "--report", "-", *wanted])
        brought = [str(each["metadata"]["name"]) for each in report["install"]]
        if wrong := [name for name in brought if name.lower().replace("_", "-").startswith(GUARDED)]:
            raise SettingsError(
                [f"{', '.join(wanted)} would replace the image's own {', '.join(wrong)}"],
                "use an image that has these packages: docs/images.md",
            )
        self._programs.say(f"{stage.name}: {', '.join(wanted)} is installed into {work.python}")
        if status := self._programs.run(stage, [*pip, *wanted], {}, "/"):
            raise SystemFault(f"{', '.join(wanted)} cannot be installed: pip ended with {status}")
        if left := self._missing(stage, work):
            raise SystemFault(f"pip ended with 0, but {work.python} has {'; '.join(left.values())}")

    def _missing(self, stage: Stage, work: Packages) -> Mapping[str, str]:
        """Package → what is there instead."""
        wanted = [f"{name}={requirement}" for name, requirement in {**work.requirements, **work.from_image}.items()]
        return self._answer(stage, [work.python, shipped("entrypoints", "check-packages.py"), *wanted])

    def _answer(self, stage: Stage, argv: Sequence[str]) -> Mapping[str, Any]:
        """The JSON object that it prints."""
        lines: list[str] = []
        if status := self._programs.run(stage, argv, {}, "/", lines.append, quiet=True):
            raise SystemFault(f"{stage.name}: {' '.join(argv[:4])} ended with {status}")
        answer = json_object("\n".join(lines))
        if not answer and lines != ["{}"]:
            raise SystemFault(f"{stage.name}: {' '.join(argv[:4])} printed {lines[:3]} instead of JSON")
        return answer


def git_error(words: Sequence[str], status: int, said: Sequence[str]) -> AgentError:
    """What a git that failed means."""
    lines = [line for line in said if line.strip()]
    why = next((line for line in lines if line.startswith(("fatal:", "error:"))), "".join(lines[-1:]))  # advice follows
    what = f"git {' '.join(words)}: {why.strip() or f'it ended with {status}'}"
    text = "\n".join(lines)
    if "No space left" in text or "Read-only file system" in text or "Disk quota" in text:
        return DirectoryUnusable(what, "")
    if words[0] not in ("fetch", "submodule") or any(final in text for final in GIT_FINAL):
        return MissingProgram(what, "are the URL and the commit right?")
    return PeerLost(what, "the remote repository cannot be reached, or ended the connection")
