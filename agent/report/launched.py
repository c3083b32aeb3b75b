"""What a run started, for people: a pipeline or several commands in place of the word that holds them."""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from agent.decide.masking import MARK, Masker
from agent.decide.pipeline import Pipeline, Stage, StageCommand, describe
from agent.decide.secret_variables import is_secret_name, without_secrets
from agent.launch import Started, unpacked

STAGES = "agent.lifecycle.stages"
STEPS = "/steps.py"
OWN = ("A4_", "NCCL_RAS_ADDR")
"""Variables that a4-agent gives each run anew."""
MOST_PACKED = 128 * 1024
"""Linux passes no longer argument: a longer one was not started."""


class Commands(NamedTuple):
    """One of several commands that followed each other, as agent.workloads.step_launch packs them."""

    names: tuple[str, ...]
    argv: tuple[str, ...]


def command_text(started: Started) -> str:
    """The command, with all that it was told in words."""
    if pipeline := _pipeline(started):
        options = [each for stage in pipeline.stages for each in _options(stage)]
        return Masker(value for name, value in options if is_secret_name(name)).text(
            without_secrets(describe(pipeline))
        )
    steps = [f"# {', '.join(one.names)}\n{shlex.join(one.argv)}" for one in _steps(started)]
    return without_secrets("\n".join(steps)) or _without_packed(started)


def command_settings(started: Started) -> dict[str, str]:
    """Name → value: the command, or each of several."""
    if pipeline := _pipeline(started):
        return {"stages": ", ".join(stage.name for stage in pipeline.stages)}
    if steps := _steps(started):
        return {f"command of {', '.join(one.names)}": without_secrets(shlex.join(one.argv)) for one in steps}
    return {"command": _without_packed(started)}


def stage_settings(started: Started) -> dict[str, str]:
    """Name → value of each option of each stage; empty where no pipeline was started."""
    pipeline = _pipeline(started)
    stages = pipeline.stages if pipeline else ()
    found = {f"{stage.name}: {name}": value for stage in stages for name, value in _options(stage)}
    return {name: _shown(name, value) for name, value in found.items()}


def _without_packed(started: Started) -> str:
    """The command; a packed word that this version cannot read tells nobody anything."""
    if STAGES in started.argv or any(word.endswith(STEPS) for word in started.argv):
        return f"{shlex.join(started.argv[:-1])} …"
    return shlex.join(started.argv)


def _options(stage: Stage) -> Iterator[tuple[str, str]]:
    if stage.passed_over:
        yield "left out", stage.passed_over
    if not isinstance(stage.work, StageCommand):
        yield from ((name, _text(value)) for name, value in stage.work._asdict().items())
        return
    yield "command", shlex.join(stage.work.argv)
    yield "directory", stage.work.cwd
    yield from stage.work.arguments
    yield from ((f"${name}", value) for name, value in stage.work.env.items() if not name.startswith(OWN))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(value.values())
    return value if isinstance(value, str) else ", ".join(value)


def _shown(name: str, value: str) -> str:
    return MARK if value and is_secret_name(name.rpartition(" ")[2]) else without_secrets(value)


def _pipeline(started: Started) -> Pipeline | None:
    """None: it is none, or one of another version of a4-agent that cannot be read."""
    return _unpacked(Pipeline, started) if STAGES in started.argv else None


def _steps(started: Started) -> tuple[Commands, ...]:
    """Empty: as for `_pipeline`."""
    if not any(word.endswith(STEPS) for word in started.argv):
        return ()
    found = _unpacked(list[dict[str, Any]], started) or []
    try:
        return tuple(Commands(tuple(map(str, one["names"])), tuple(map(str, one["argv"]))) for one in found)
    except (KeyError, TypeError):
        return ()


def _unpacked(kind: type[Any], started: Started) -> Any:
    word = started.argv[-1]
    try:
        return unpacked(kind, word) if len(word) <= MOST_PACKED else None
    except (ValueError, zlib.error, RecursionError):
        return None
