"""What a run of a pipeline is to do, as the variables of its environment say. Everything wrong is told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

from agent.decide.secret_variables import url_secrets
from agent.decide.setting_values import choice, flag, matching
from agent.decide.words import did_you_mean
from agent.errors import SettingsError
from agent.settings import BUCKET, SETTINGS
from agent.workloads.base import RunContext
from agent.workloads.pai_megatron import versions
from agent.workloads.pai_megatron.arguments import ITERATIONS, OF_SCRIPT, TRAINING, boolean, one_of, path, told_name
from agent.workloads.pai_megatron.models import Family
from agent.workloads.pai_megatron.paths import Paths
from agent.workloads.pai_megatron.printed import JSON_SFT, TRAIN
from agent.workloads.pai_megatron.refusals import RunGpus, data_parallel, wrong_arguments, wrong_conversion

WORKSPACE = "/mnt"
SKIPS = {
    "environment": ("SKIP_ENV_SETUP", "SKIP_ENV_CHECK"),
    "clone": ("SKIP_CLONE_REPO",),
    "download": ("SKIP_DOWNLOAD_DATA",),
    "prepare": ("SKIP_DATA_PREPARATION",),
    "convert": ("SKIP_CHECKPOINT_CONVERSION",),
    "train": ("SKIP_TRAINING",),
}
"""What is left out → the variables that say so."""
BATCH = 8
"""GLOBAL_BATCH_SIZE of the recipes. On more than 8 GPUs Qwen3-Next has more data-parallel ranks than that."""
ROWS = {row.name: row for row in SETTINGS}
MODES = {"pretrain": "false", "sft": "true"}
"""TRAINING_MODE → the argument SFT."""
JSON_DATA = {"MP_DATASET_TYPE": "raw"}
PATHS = ("DATASET_PATH", "VALID_DATASET_PATH", "PRETRAIN_CHECKPOINT_PATH", "OUTPUT_BASEPATH")
ONLY_BF16 = matching("bf16", "bf16, the only one: the convertor has --bf16 among its own options")
Value = TypeVar("Value")


class Sources(NamedTuple):
    """Where all comes from."""

    repository: str
    commit: str
    model_source: Literal["huggingface", "modelscope"]
    revision: str
    """The revision of the model; empty: the newest."""
    dataset_url: str

    @property
    def contents(self) -> Mapping[str, str]:
        """What decides what came, wherever it came from."""
        return {"commit": self.commit, "revision": self.revision, "dataset_url": self.dataset_url}


class Options(NamedTuple):
    """What a run is to do."""

    paths: Paths
    skipped: Mapping[str, str]
    """Key of SKIPS → the variable that says so: "SKIP_TRAINING=true"."""
    given: Mapping[str, str]
    """Argument of the training → the variable with the user's own path for it."""
    trainings: Mapping[str, Mapping[str, str]]
    """Stage → the 27 arguments of its training by name, and the variables that the script reads: the main training,
    and the one on JSON files that may follow."""
    force_conversion: bool
    train_again: bool
    keep: bool
    convert_on_all: bool
    sources: Sources
    notes: Sequence[str]

    @property
    def training(self) -> Mapping[str, str]:
        """The main one."""
        return self.trainings[TRAIN]

    @property
    def raw(self) -> bool:
        """The main training reads JSON files."""
        return self.training.get("MP_DATASET_TYPE") == "raw"


def read_options(context: RunContext, family: Family) -> Options:
    """Raises SettingsError with everything that is wrong or cannot work, and what would."""
    gpus = RunGpus(len(context.plan.peers), context.per_pod)
    reader = VariableReader(context.environ, family, gpus)
    options = reader.options()
    problems = dict.fromkeys([*reader.problems, *passwords(context.environ), *wrong(options, context.environ, gpus)])
    if options.keep and not context.bucket:
        problems[f"A4_KEEP_TRAINING=true needs a bucket, and nothing is mounted at {BUCKET}"] = None
    if problems:
        raise SettingsError(list(problems), "docs/pai-megatron.md has every variable")
    return options


class VariableReader:
    """Reads the variables of a run and collects what is wrong with them."""

    def __init__(self, environ: Mapping[str, str], family: Family, gpus: RunGpus) -> None:
        self.environ = environ
        self.family = family
        self.gpus = gpus
        self.problems: list[str] = []
        self.notes: list[str] = []

    def read(self, name: str, parse: Callable[[str], Value], default: str) -> Value:
        """A variable; an empty one is as one that is not set. One that is wrong is a problem, and then its default."""
        try:
            return parse(self.environ.get(name) or default)
        except ValueError as wanted:
            self.problems.append(f"{name}={self.environ.get(name) or default!r} should be {wanted}")
            return parse(default)

    def setting(self, name: str) -> Any:
        return self.read(name, ROWS[name].parse, ROWS[name].default or "")

    def options(self) -> Options:
        """All of it, with the default in place of what is wrong."""
        size = self.read("MP_MODEL_SIZE", one_of(*self.family.sizes), self.family.size)
        root = next((name for name in ("PAI_WORKSPACE_ROOT", "A4_SHARED_DIR") if self.environ.get(name)), "")
        paths = Paths(self.read(root, path, WORKSPACE).rstrip("/"), self.family, self.family.sizes[size])
        of_script = {name: self.read(name, *row) for name, row in OF_SCRIPT.items() if self.environ.get(name)}
        trainings = {TRAIN: self.training(paths, size, self.sft(), of_script)}
        if self.read("USE_JSON_SFT", flag, "false"):
            trainings[JSON_SFT] = self.training(paths, size, "true", {**of_script, **JSON_DATA}, own=True)
        self.read("CKPT_PRECISION", ONLY_BF16, "bf16")
        return Options(
            paths=paths,
            skipped={key: said for key, names in SKIPS.items() if (said := self.skipped(names))},
            given={name: f"MP_{name}={self.environ[f'MP_{name}']}" for name in PATHS if self.environ.get(f"MP_{name}")},
            trainings=trainings,
            force_conversion=self.read("FORCE_CONVERSION", flag, "false"),
            train_again=self.setting("A4_TRAIN_AGAIN"),
            keep=self.setting("A4_KEEP_TRAINING"),
            convert_on_all=self.setting("A4_CONVERT_ON") == "all",
            sources=self.sources,
            notes=[*self.notes, *unknown(self.environ)],
        )

    @cached_property
    def sources(self) -> Sources:
        return Sources(
            repository=self.setting("A4_PAI_REPOSITORY") or versions.REPOSITORY,
            commit=self.setting("A4_PAI_COMMIT") or versions.COMMIT,
            model_source=self.setting("A4_MODEL_SOURCE"),
            revision=self.setting("A4_MODEL_REVISION"),
            dataset_url=(self.setting("A4_DATASET_URL") or versions.DATASETS).rstrip("/"),
        )

    def skipped(self, names: Sequence[str]) -> str:
        """The first of these that is true, as it was said; empty: none is."""
        return next((f"{name}={self.environ[name]}" for name in names if self.read(name, flag, "false")), "")

    def sft(self) -> str:
        """The argument SFT of the main training."""
        wanted = MODES[self.read("TRAINING_MODE", choice(*MODES), "pretrain")]
        sft = self.read("MP_SFT", boolean, wanted)
        if sft != wanted and self.environ.get("TRAINING_MODE"):
            self.problems.append(
                f"MP_SFT={sft} contradicts TRAINING_MODE={self.environ['TRAINING_MODE']}: set one of them"
            )
        return sft

    def training(
        self, paths: Paths, size: str, sft: str, of_script: Mapping[str, str], *, own: bool = False
    ) -> dict[str, str]:
        """One of `Options.trainings`. `own`: with data and a directory of its own, whatever the main one's are."""
        defaults = {a.name: a.default for a in TRAINING} | dict(self.family.defaults) | {"MODEL_SIZE": size, "SFT": sft}
        defaults |= ITERATIONS if sft == "true" else {}
        defaults |= {} if paths.size.experts else {"EP": "1"}
        variables = {a.name: f"MP_{told_name(a.name, sft)}" for a in TRAINING}
        # No variable has an empty name, so these keep their defaults.
        variables |= {"SFT": "", **({name: "" for name in PATHS if name != "PRETRAIN_CHECKPOINT_PATH"} if own else {})}
        values = dict(of_script)

        def read(names: Iterable[str]) -> None:
            for a in TRAINING:
                if a.name in names:
                    values[a.name] = self.read(variables[a.name], a.parse, defaults[a.name])

        # In three steps, because the defaults of the next follow from what was read.
        read([name for name, default in defaults.items() if default])
        defaults["PAD_LEN"] = values["SEQ_LEN"]
        defaults["GLOBAL_BATCH_SIZE"] = self.batch(values)
        defaults |= _data(paths, values)
        defaults["PRETRAIN_CHECKPOINT_PATH"] = paths.converted
        read([name for name, default in defaults.items() if default and name not in values])
        step = ("finetune" if sft == "true" else "pretrain") if not own else "sft_json"
        defaults["OUTPUT_BASEPATH"] = paths.outputs(step, {**values, **self.sources.contents})
        read(["OUTPUT_BASEPATH"])
        return {**{a.name: values[a.name] for a in TRAINING}, **of_script}

    def batch(self, values: Mapping[str, str]) -> str:
        """That of the recipes, or the least that these GPUs can do."""
        step = int(values["BATCH_SIZE"]) * data_parallel(values, self.gpus)
        least = -(-BATCH // step) * step if step else BATCH
        if least != BATCH and not self.environ.get("MP_GLOBAL_BATCH_SIZE"):
            note = (
                f"GLOBAL_BATCH_SIZE is {least}, and not {BATCH} as in the first recipe: on {self.gpus} it must be a "
                f"multiple of {step}"
            )
            self.notes = list(dict.fromkeys([*self.notes, note]))
        return str(least)


def passwords(environ: Mapping[str, str]) -> Iterator[str]:
    """Sentences on URLs that would show a secret on a command line."""
    if url_secrets(environ.get("A4_PAI_REPOSITORY", "")):
        yield (
            "A4_PAI_REPOSITORY holds a password or a token, which would stand on git's command line and in the clone: "
            "leave it out, and mount a Secret with a .netrc for git at /root/.netrc"
        )
    if url_secrets(environ.get("A4_DATASET_URL", "")):
        yield "A4_DATASET_URL holds a password or a token, which would stand on a command line: leave it out"


def _data(paths: Paths, values: Mapping[str, str]) -> dict[str, str]:
    """Default paths of the data."""
    if values.get("MP_DATASET_TYPE") == "raw":
        return {"DATASET_PATH": paths.json_data, "VALID_DATASET_PATH": paths.json_valid_data}
    data = f"{paths.sft_prefix(values)}_text_document" if values["SFT"] == "true" else paths.pretraining_data
    return {"DATASET_PATH": data, "VALID_DATASET_PATH": data}


def wrong(options: Options, environ: Mapping[str, str], gpus: RunGpus) -> Iterator[str]:
    """What contradicts itself, and what cannot be done on these GPUs."""
    size, skipped = options.paths.size, options.skipped
    if environ.get("MP_NUM_LAYERS", str(size.layers)) not in ("", str(size.layers)):
        yield (
            f"MP_NUM_LAYERS={environ['MP_NUM_LAYERS']} contradicts the {size.layers} layers of {size.model}, for which "
            "a pattern of that length is written in the script: leave it out"
        )
    yield from _wrong_data(options, environ)
    if "train" not in skipped:
        for values in options.trainings.values():
            yield from wrong_arguments(values, size, gpus)
    if "convert" not in skipped and "PRETRAIN_CHECKPOINT_PATH" not in options.given:
        own = environ.get("MODEL_PARALLEL_ARGS", "")
        if problem := wrong_conversion(size, own, gpus, on_all=options.convert_on_all):
            yield problem


def _wrong_data(options: Options, environ: Mapping[str, str]) -> Iterator[str]:
    """What fits no data or no training of this run."""
    steps = {values["SFT"] for values in options.trainings.values()}
    for sft, other in (("true", "false"), ("false", "true")):
        for name in ("TRAIN_TOKENS", "WARMUP_TOKENS"):
            variable, instead = f"MP_{told_name(name, sft)}", f"MP_{told_name(name, other)}"
            if environ.get(variable) and sft not in steps:
                yield f"{variable} is not for SFT={other}, which has {instead}"
    if options.raw and options.training["SFT"] != "true":
        yield "MP_DATASET_TYPE=raw, data as JSON, is for fine-tuning alone: set TRAINING_MODE=sft"
    if JSON_SFT not in options.trainings:
        return
    if not options.paths.family.json_sft:
        yield (
            "USE_JSON_SFT=true is for pai-megatron-qwen3-next: with this model, TRAINING_MODE=sft and "
            "MP_DATASET_TYPE=raw train on the JSON files"
        )
    elif environ.get("MP_SFT") and options.training["SFT"] != "true":
        yield "USE_JSON_SFT=true needs a training with SFT=true, and MP_SFT=false is set: leave that out"


def unknown(environ: Mapping[str, str]) -> Iterator[str]:
    """Sentences on variables that look like arguments or switches and are none."""
    known = {f"MP_{told_name(a.name, sft)}" for a in TRAINING for sft in MODES.values()} | {*OF_SCRIPT, "MP_NUM_LAYERS"}
    switches = {name for names in SKIPS.values() for name in names}
    for name in sorted(environ):
        if name.startswith("MP_") and name not in known:
            yield f"{name} is not an argument of the training{did_you_mean(name, known)}"
        elif name.startswith("SKIP_") and name not in switches:
            yield f"{name} leaves no stage out{did_you_mean(name, switches)}"
