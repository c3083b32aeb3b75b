"""The stages of a pipeline, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent.decide.completeness import NEWEST
from agent.decide.pipeline import Files, GitCheckout, Model, Packages, Stage, StageCommand, StageOutput
from agent.decide.torchrun import socket_variables
from agent.paths import own_program
from agent.settings import BUCKET
from agent.workloads.base import RunContext
from agent.workloads.pai_megatron import versions
from agent.workloads.pai_megatron.arguments import checkpoint_name, convertor, iterations, named, preprocessing
from agent.workloads.pai_megatron.options import Options
from agent.workloads.pai_megatron.paths import FILES
from agent.workloads.pai_megatron.printed import JSON_SFT
from agent.workloads.torchrun import torchrun_variables

NOT_VISITED = "Never visit the following huggingface weights"
"""The convertor warns so, and ends with 0."""
NO_NUMBER = r"(?i)\blm loss: *[-+]?(nan|inf)\b|number of nan iterations: *[1-9]"
"""In the line of an iteration. Megatron itself ends at the first by default."""
PRESETS = {
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "1",  # attention on B200 has no deterministic kernel in all sizes
}
"""What a training gets where the pod says nothing else."""
KEPT = {"checkpoint": "checkpoints", "log": "logs", "tensorboard": "tensorboard"}
"""Directory that the script makes → its name in the bucket, as the old guide has it."""


def stages(context: RunContext, options: Options) -> Iterator[Stage]:
    """All of them, in their order."""
    yield _environment(context, options)
    yield _clone(options)
    yield _model(options)
    yield _datasets(options)
    if options.training["SFT"] == "true" and not options.raw:
        yield _prepare(context, options)
    yield _convert(context, options)
    for name, values in options.trainings.items():
        yield _train(context, options, name, values)
    if options.keep:
        for name, values in options.trainings.items():
            yield from _keep(options, name, values)


def _environment(context: RunContext, options: Options) -> Stage:
    scripts = options.paths.family.scripts
    packages = Packages(
        context.workload_python,
        versions.accepted(versions.PACKAGES, scripts),
        versions.accepted({**versions.BASE, **versions.EXTENSIONS}, scripts),
    )
    return Stage("environment", "each pod", packages, passed_over=options.skipped.get("environment", ""))


def _checkout(options: Options) -> StageOutput:
    return StageOutput("checkout", options.paths.checkout, " ".join([options.sources.commit, *_submodules(options)]))


def _code(options: Options, script: str) -> StageOutput:
    """What a stage needs of the repository: all of it, or with SKIP_CLONE_REPO the script that it calls."""
    if "clone" not in options.skipped:
        return _checkout(options)
    checkout = options.paths.checkout
    return StageOutput("code", checkout, script.removeprefix(f"{checkout}/"))


def _submodules(options: Options) -> Sequence[str]:
    """All of them (nothing named) for another commit: what it needs is not known."""
    return versions.SUBMODULES if options.sources.commit == versions.COMMIT else ()


def _clone(options: Options) -> Stage:
    target = options.paths.checkout
    return Stage(
        "clone",
        "lead",
        GitCheckout(options.sources.repository, options.sources.commit, _submodules(options)),
        [_checkout(options)],
        target,
        f"{target}.partial",
        older=options.paths.older_checkouts,
        passed_over=options.skipped.get("clone", ""),
        inputs={"commit": options.sources.commit},
    )


def _model(options: Options) -> Stage:
    target = options.paths.hugging_face
    return Stage(
        "model",
        "lead",
        Model(options.sources.model_source, options.paths.size.model, options.sources.revision),
        [StageOutput("model", target)],
        target,
        f"{target}.partial",
        space=_bytes(options),
        passed_over=options.skipped.get("download", "") or _own_checkpoint(options),
        inputs={"model": options.paths.size.model, "revision": options.sources.revision},
    )


def _own_checkpoint(options: Options) -> str:
    """Fine-tuning data need the model's tokenizer."""
    needed = options.training["SFT"] == "true" and not options.raw and "DATASET_PATH" not in options.given
    return "" if needed else options.given.get("PRETRAIN_CHECKPOINT_PATH", "")


def _bytes(options: Options) -> int:
    return round(options.paths.size.gigabytes * 1e9)


def _datasets(options: Options) -> Stage:
    paths = options.paths
    own = "" if JSON_SFT in options.trainings else options.given.get("DATASET_PATH", "")
    return Stage(
        "dataset",
        "lead",
        Files([f"{options.sources.dataset_url}/{name}" for name in FILES]),
        [
            StageOutput("mmap", paths.pretraining_data),
            StageOutput("json", paths.json_data),
            StageOutput("json", paths.json_valid_data),
        ],
        paths.datasets,
        f"{paths.datasets}/.partial",
        passed_over=options.skipped.get("download", "") or own,
        inputs={"url": options.sources.dataset_url},
    )


def _prepare(context: RunContext, options: Options) -> Stage:
    paths, training = options.paths, options.training
    seq_len, packing = training["SEQ_LEN"], training.get("MP_SFT_PACKING", "false")
    prefix = paths.sft_prefix(training)
    staging = f"{paths.datasets}/.sft"
    made = prefix.replace(paths.datasets, staging, 1)
    script = ["bash", "run_build_idxmap_sft_dataset.sh"]
    arguments = preprocessing(paths.json_data, made, paths.hugging_face, seq_len=seq_len, packing=packing)
    return Stage(
        "prepare",
        "lead",
        StageCommand(script, arguments, _path(context), paths.preprocessing),
        [_sft_data(f"{prefix}_text_document", seq_len)],
        paths.datasets,
        staging,
        needs=[
            _code(options, f"{paths.preprocessing}/{script[-1]}"),
            StageOutput("model", options.paths.hugging_face),
            StageOutput("json", paths.json_data),
        ],
        passed_over=options.skipped.get("prepare", "") or options.given.get("DATASET_PATH", ""),
        inputs={
            "data": paths.json_data,
            "url": options.sources.dataset_url,
            "model": options.paths.size.model,
            "seq_len": seq_len,
            "packing": packing,
            "commit": options.sources.commit,
        },
    )


def _sft_data(path: str, seq_len: str) -> StageOutput:
    """The tool puts the labels behind the tokens of each sequence."""
    return StageOutput("mmap", path, str(2 * int(seq_len)))


def _convert(context: RunContext, options: Options) -> Stage:
    paths, target = options.paths, options.paths.converted
    staging = f"{target}.partial"
    nodes = len(context.plan.peers) if options.convert_on_all else 1
    script = f"scripts/{options.paths.family.scripts}/{options.paths.size.convertor}"
    arguments = convertor(options.training["MODEL_SIZE"], paths.hugging_face, staging)
    env = _distributed(context, nodes)
    return Stage(
        "convert",
        "together" if options.convert_on_all else "lead",
        StageCommand(["bash", script], arguments, env, paths.convertor, copies="LOAD_DIR", fails_on=NOT_VISITED),
        [StageOutput("torch_dist", target)],
        target,
        staging,
        older=paths.older_converted,
        needs=[_code(options, f"{paths.convertor}/{script}"), StageOutput("model", options.paths.hugging_face)],
        space=_bytes(options),
        passed_over=options.skipped.get("convert", "") or options.given.get("PRETRAIN_CHECKPOINT_PATH", ""),
        inputs={
            "model": options.paths.size.model,
            "revision": options.sources.revision,
            "precision": "bf16",
            "commit": options.sources.commit,
        },
        again="FORCE_CONVERSION",
        anew=options.force_conversion,
    )


def _train(context: RunContext, options: Options, name: str, values: Mapping[str, str]) -> Stage:
    own = NEWEST if "PRETRAIN_CHECKPOINT_PATH" in options.given else ""
    script = "run_mcore_qwen3.sh"
    converted = options.force_conversion and not _convert(context, options).passed_over
    presets = {name: context.environ.get(name) or value for name, value in PRESETS.items()}
    of_script = {name: value for name, value in values.items() if name.startswith("MP_")}
    target = f"{values['OUTPUT_BASEPATH']}/checkpoint/{checkpoint_name(options.paths.family.label, values)}"
    return Stage(
        name,
        "together",
        StageCommand(
            ["bash", script],
            named(values),
            {**_distributed(context, len(context.plan.peers)), **of_script, **presets},
            options.paths.examples,
            resumes="PRETRAIN_CHECKPOINT_PATH",
            copies="PRETRAIN_CHECKPOINT_PATH",
            fails_on=NO_NUMBER,
        ),
        [StageOutput("trained", target, str(iterations(values)))],
        target,
        needs=[
            _code(options, f"{options.paths.examples}/{script}"),
            StageOutput("torch_dist", values["PRETRAIN_CHECKPOINT_PATH"], own),
            *_data(values),
        ],
        space=_bytes(options),
        passed_over=options.skipped.get("train", ""),
        inputs={**values, **options.sources.contents},
        again="FORCE_CONVERSION" if converted and not options.train_again else "A4_TRAIN_AGAIN",
        anew=options.train_again or converted,
    )


def _data(values: Mapping[str, str]) -> list[StageOutput]:
    if values.get("MP_DATASET_TYPE") == "raw":
        return [StageOutput("json", values["DATASET_PATH"]), StageOutput("json", values["VALID_DATASET_PATH"])]
    if values["SFT"] == "true":
        return [_sft_data(values["DATASET_PATH"], values["SEQ_LEN"])]
    return [StageOutput("mmap", values["DATASET_PATH"])]


def _keep(options: Options, name: str, values: Mapping[str, str]) -> Iterator[Stage]:
    """Copies of what a training made, into the bucket."""
    base = values["OUTPUT_BASEPATH"]
    folder = f"logs/{base.split('/logs/')[-1].strip('/')}"
    for source, kept in KEPT.items():
        places = [("SOURCE", f"{base}/{source}"), ("BUCKET", BUCKET), ("FOLDER", f"{folder}/{kept}")]
        command = StageCommand(own_program("copy-newer.py"), places)
        skipped = options.skipped.get("train", "")
        yield Stage(f"keep-{name}-{kept}", "lead", command, target=f"{BUCKET}/{folder}", passed_over=skipped)


def _distributed(context: RunContext, nodes: int) -> dict[str, str]:
    """What Pai's scripts read of the cluster; WORLD_SIZE is nodes to them, and RANK the node's."""
    rank = context.plan.node_rank(context.index) if nodes > 1 else 0
    return {
        **torchrun_variables(context),
        **socket_variables(context.interface, context.environ),
        **_path(context),
        "WORLD_SIZE": str(nodes),
        "RANK": str(rank),
        "KUBERNETES_CONTAINER_RESOURCE_GPU": str(context.per_pod),
        "MASTER_ADDR": context.master if nodes > 1 else "127.0.0.1",
        "MASTER_PORT": str(context.master_port),
        # 12 as in the old launchers (tests/chart/old/launches.json).
        "OMP_NUM_THREADS": context.environ.get("OMP_NUM_THREADS") or "12",
    }


def _path(context: RunContext) -> dict[str, str]:
    """The scripts call `torchrun` and `python`: those of A4_PYTHON, where that is a path."""
    directory, slash, _ = context.workload_python.rpartition("/")
    return {"PATH": f"{directory}:{context.environ.get('PATH', '')}"} if slash else {}
