"""A pipeline: stages that follow each other, each passed over when what it makes is complete.

A workload says which stages there are; entrypoints of the agent on each pod carry them out. All of it is data, so that
`--dry-run` can print what would be done.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

Where = Literal["each pod", "lead", "together"]
"""On every pod for itself; on the pod with rank 0, for all; on all pods at the same time, as one job."""


class StageOutput(NamedTuple):
    """What a stage makes, complete when its content says so."""

    kind: Literal["checkout", "code", "model", "mmap", "json", "torch_dist", "trained"]
    path: str
    """A directory, a file, or for `mmap` what the names of its .bin and .idx begin with."""
    expected: str = ""
    """What its content is compared with: the commit of a checkout and, behind it, the submodules that it needs if not
    all; for `code`, a checkout as somebody has left it, the file that is needed; the last iteration of what is trained;
    for `mmap` the length of each sequence. Empty: with nothing."""


class StageCommand(NamedTuple):
    """A program with positional arguments. It writes into `staging` if the stage has one."""

    argv: Sequence[str]
    arguments: Sequence[tuple[str, str]] = ()
    """(name, value): what follows `argv`, each with the name that the program's own text gives it."""
    env: Mapping[str, str] = {}
    """On top of the pod's environment."""
    cwd: str = "/"
    resumes: str = ""
    """The argument that names the checkpoint to begin with. A directory with the newest one that this stage saved takes
    its place, with the *.json and merges.txt of the one named; empty: the command does not resume."""
    copies: str = ""
    """The argument that names a directory of which each pod copies the *.json and merges.txt to where the stage writes.
    They are laid there before: pods that make the same file at the same time fail. Empty: it copies none."""
    fails_on: str = ""
    """Regular expression: a line of its output that has it means that it has failed, whatever its exit status."""

    @property
    def words(self) -> Sequence[str]:
        return [*self.argv, *(value for _, value in self.arguments)]


class GitCheckout(NamedTuple):
    """A git repository with its submodules, at one commit."""

    url: str
    commit: str
    submodules: Sequence[str] = ()
    """Their paths; empty: all of them."""


class Model(NamedTuple):
    """A model of Hugging Face or ModelScope; without a revision, the newest."""

    source: Literal["huggingface", "modelscope"]
    name: str
    revision: str


class Files(NamedTuple):
    """Files by their URLs."""

    urls: Sequence[str]


class Packages(NamedTuple):
    """Python packages that the pod's own Python must have: name → requirement; installed where they are missing."""

    python: str
    requirements: Mapping[str, str]
    from_image: Mapping[str, str] = {}
    """More of these, with compiled code for GPUs: refused where they are missing, because no pod builds them."""


class Stage(NamedTuple):
    """One stage."""

    name: str
    """environment, clone, model, dataset, prepare, convert, train …: in logs and records."""
    where: Where
    work: StageCommand | GitCheckout | Model | Files | Packages
    outputs: Sequence[StageOutput] = ()
    target: str = ""
    """The directory that holds the outputs."""
    staging: str = ""
    """Where they are made, on the same file system; renamed to `target` when they are complete. Empty: in `target`."""
    passed_over: str = ""
    """Why it is not carried out ("SKIP_DOWNLOAD_DATA=true"); empty: it is, unless its outputs are complete."""
    inputs: Mapping[str, str] = {}
    """What its outputs depend on. Complete outputs of other inputs are made anew; what bears no record of its inputs,
    because an older launcher made it, is judged by its content alone."""
    again: str = ""
    """The setting that has complete outputs made anew; for the log."""
    anew: bool = False
    """It is set. A later attempt of the same job goes on with what the first one began anew."""
    older: Sequence[str] = ()
    """Directories in which an older launcher may have left the same. Where `target` is missing and one of these is
    complete, `target` becomes a link to it."""
    needs: Sequence[StageOutput] = ()
    """What must be complete before it begins. What no stage before it makes, the user has named."""
    space: int = 0
    """Bytes that must be free for it where `target` is."""


class Pipeline(NamedTuple):
    """What entrypoint programs are told: the stages, for which pod of which run."""

    run: str
    pod: int
    """Completion index of this pod."""
    pods: Sequence[int]
    """All that take part, in rank order: the first is the lead."""
    stages: Sequence[Stage]

    @property
    def leads(self) -> bool:
        return self.pod == self.pods[0]


WHERE = {"each pod": "on every pod", "lead": "on the first pod", "together": "on all pods together"}


def describe(pipeline: Pipeline) -> str:
    """The stages in which this pod takes part; the arguments of a command one in a line, with number and name."""
    numbered = enumerate(pipeline.stages, 1)
    own = [(number, stage) for number, stage in numbered if pipeline.leads or stage.where != "lead"]
    return "\n".join(line for number, stage in own for line in _lines(number, len(pipeline.stages), stage))


def _lines(number: int, count: int, stage: Stage) -> Iterator[str]:
    left_out = f", left out: {stage.passed_over}" if stage.passed_over else ""
    yield f"# stage {number} of {count}: {stage.name}, {WHERE[stage.where]}{left_out}"
    work = stage.work
    match work:
        case StageCommand():
            yield f"cd {shlex.quote(work.cwd)} &&"
            yield from (f"  {name}={shlex.quote(value)}" for name, value in sorted(work.env.items()))
            yield f"  {shlex.join(work.argv)}"
            width = max((len(name) for name, _ in work.arguments), default=0)
            yield from (
                f"    {n:2} {name:<{width}}  {shlex.quote(value)}" for n, (name, value) in enumerate(work.arguments, 1)
            )
        case GitCheckout():
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
    if stage.outputs:
        yield f"# makes {', '.join(output.path for output in stage.outputs)}"
