"""The stages of a pipeline in words, for `--dry-run` and logs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from agent.decide.pipeline import Checkout, Command, Files, Model, Packages, Pipeline, Stage

WHERE = {"each pod": "on every pod", "lead": "on the first pod", "together": "on all pods together"}


def describe(pipeline: Pipeline) -> str:
    """The stages in which this pod takes part; the arguments of a command one in a line, with number and name."""
    numbered = enumerate(pipeline.stages, 1)
    own = [(number, stage) for number, stage in numbered if pipeline.leads or stage.where != "lead"]
    return "\n".join(line for number, stage in own for line in _lines(number, len(pipeline.stages), stage))


def _lines(number: int, count: int, stage: Stage) -> Iterator[str]:
    left_out = f", left out: {stage.passed_over}" if stage.passed_over else ""
    yield f"# stage {number} of {count}: {stage.name}, {WHERE[stage.where]}{left_out}"
    yield from _work(stage)
    if stage.outputs:
        yield f"# makes {', '.join(output.path for output in stage.outputs)}"


def _work(stage: Stage) -> Iterator[str]:
    work = stage.work
    match work:
        case Command():
            yield f"cd {shlex.quote(work.cwd)} &&"
            yield from (f"  {name}={shlex.quote(value)}" for name, value in sorted(work.env.items()))
            yield f"  {shlex.join(work.argv)}"
            width = max((len(name) for name, _ in work.arguments), default=0)
            yield from (
                f"    {n:2} {name:<{width}}  {shlex.quote(value)}" for n, (name, value) in enumerate(work.arguments, 1)
            )
        case Checkout():
            yield f"  git clone {shlex.quote(work.url)}, commit {work.commit}"
            yield from (f"    with {path}" for path in work.submodules or ["all submodules"])
        case Model():
            revision = f", revision {work.revision}" if work.revision else ""
            yield f"  download {work.name} of {work.source}{revision}"
        case Files():
            yield from (f"  download {url}" for url in work.urls)
        case Packages():
            yield f"  {work.python} has, or gets, {', '.join(work.requirements.values())}"
            yield f"    and has {', '.join(work.from_image.values())}"
