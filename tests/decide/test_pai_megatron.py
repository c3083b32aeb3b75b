"""What the pipelines of Pai-Megatron are to do: arguments by position, refusals, stages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.completeness import NEWEST
from agent.decide.pipeline import Files, GitCheckout, Stage, StageCommand, StageOutput
from agent.decide.plan import Plan, PlannedPeer
from agent.errors import SettingsError
from agent.workloads.base import RunContext
from agent.workloads.pai_megatron import versions
from agent.workloads.pai_megatron.arguments import OF_SCRIPT
from agent.workloads.pai_megatron.models import QWEN3, QWEN3_NEXT, Family
from agent.workloads.pai_megatron.options import SKIPS, read_options
from agent.workloads.pai_megatron.stages import stages
from tests.test_workloads import context, launched

_POSITIONS = """
ENV MODEL_SIZE BATCH_SIZE GLOBAL_BATCH_SIZE LR MIN_LR SEQ_LEN PAD_LEN PR TP PP CP ETP EP SP DO FL SFT AC
OPTIMIZER_OFFLOAD SAVE_INTERVAL DATASET_PATH VALID_DATASET_PATH PRETRAIN_CHECKPOINT_PATH TRAIN_TOKENS WARMUP_TOKENS
OUTPUT_BASEPATH
"""
"""As the script of Pai-Megatron-Patch reads them."""
_FIRST_RECIPE = """
dlc A3B 1 8 1e-5 1e-6 128 128 bf16 4 2 1 1 4 true true true false sel false 100000
/mnt/qwen-datasets/mmap_qwen3_datasets_text_document /mnt/qwen-datasets/mmap_qwen3_datasets_text_document
/mnt/qwen-ckpts/Qwen3-30B-A3B-to-mcore 10000 100
"""
"""What the recipe of Qwen3-30B-A3B gave it, less the last."""
POSITIONS, FIRST_RECIPE = _POSITIONS.split(), _FIRST_RECIPE.split()


def pods(
    family: Family, number: int = 2, gpus: int = 8, *, environ: Mapping[str, str] = MappingProxyType({}), **more: str
) -> RunContext:
    peers = tuple(PlannedPeer(i, f"job-workload-0-{i}.job", f"10.0.0.{i}", f"node-{i}") for i in range(number))
    name = "pai-megatron-qwen3" if family is QWEN3 else "pai-megatron-qwen3-next"
    return context(name, index=0, plan=Plan("epoch", gpus, peers), environ={"PATH": "/bin", **environ, **more})


def made(some: RunContext) -> dict[str, Stage]:
    family = QWEN3 if some.spec.workload == "pai-megatron-qwen3" else QWEN3_NEXT
    return {stage.name: stage for stage in stages(some, read_options(some, family))}


def command(stage: Stage) -> StageCommand:
    assert isinstance(stage.work, StageCommand)
    return stage.work


def arguments(some: RunContext, name: str = "train") -> dict[str, str]:
    return dict(command(made(some)[name]).arguments)


def refusal(some: RunContext) -> str:
    with pytest.raises(SettingsError) as caught:
        made(some)
    assert caught.value.code == 78
    return str(caught.value)


def test_qwen3_next_differs_where_the_newest_recipe_does() -> None:
    found = arguments(pods(QWEN3_NEXT))
    assert {name: found[name] for name in ("GLOBAL_BATCH_SIZE", "SEQ_LEN", "TP", "PP", "EP", "FL", "AC")} == {
        "GLOBAL_BATCH_SIZE": "16", "SEQ_LEN": "1024", "TP": "1", "PP": "1", "EP": "8", "FL": "true", "AC": "none",
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in POSITIONS if name not in ("ENV", "MODEL_SIZE", "SFT")])
def test_each_argument_has_a_variable(name: str) -> None:
    other = {
        "LR": "2e-5", "MIN_LR": "2e-6", "PR": "fp8", "SP": "true", "DO": "False", "FL": "no", "AC": "full",
        "OPTIMIZER_OFFLOAD": "0.5", "TP": "2", "PP": "1", "EP": "8", "CP": "2", "GLOBAL_BATCH_SIZE": "64",
        "BATCH_SIZE": "2", "ETP": "2",
    }.get(name, "/data/x" if "PATH" in name else "20480")  # fmt: skip
    told = {"False": "false", "no": "false"}.get(other, other)
    more = {"MP_TRAIN_TOKENS": "1000000000"} if name in ("SEQ_LEN", "GLOBAL_BATCH_SIZE", "WARMUP_TOKENS") else {}
    assert arguments(pods(QWEN3, environ={**more, f"MP_{name}": other}))[name] == told


def test_lengths_are_iterations_where_sft_is_true() -> None:
    found = arguments(pods(QWEN3_NEXT, TRAINING_MODE="sft", MP_TRAIN_ITERS="500", MP_WARMUP_ITERS="5"))
    assert list(found)[24:26] == ["TRAIN_ITERS", "WARMUP_ITERS"]
    assert list(found.values())[24:26] == ["500", "5"]


@pytest.mark.parametrize(
    ("number", "micro", "batch"), [(1, "1", "8"), (2, "1", "16"), (4, "1", "32"), (4, "2", "64"), (8, "1", "64")]
)
def test_the_batch_is_what_the_gpus_can_do(number: int, micro: str, batch: str) -> None:
    some = pods(QWEN3_NEXT, number, MP_BATCH_SIZE=micro)
    assert arguments(some)["GLOBAL_BATCH_SIZE"] == batch
    notes = read_options(some, QWEN3_NEXT).notes
    assert (f"GLOBAL_BATCH_SIZE is {batch}, and not 8" in "".join(notes)) == (batch != "8")


REFUSED: list[tuple[Family, int, int, Mapping[str, str], list[str]]] = [
    (QWEN3_NEXT, 2, 8, {"MP_GLOBAL_BATCH_SIZE": "8"}, ["GLOBAL_BATCH_SIZE 8 is not a multiple", "to 16,"]),
    (QWEN3_NEXT, 4, 8, {"MP_GLOBAL_BATCH_SIZE": "40"}, ["is not a multiple", "to 32 or 64,"]),
    (QWEN3, 2, 8, {"A4_PAI_REPOSITORY": "https://me:word@host/x.git"}, ["A4_PAI_REPOSITORY holds", "/root/.netrc"]),
    (QWEN3, 2, 8, {"A4_DATASET_URL": f"https://{'t' * 20}@host/x"}, ["A4_DATASET_URL holds a password or a token"]),
    (QWEN3, 1, 4, {}, ["TP 4 × PP 2 × CP 1 = 8 does not divide 4 GPUs", "1, 2, 4", "the convertor of"]),
    (QWEN3, 2, 8, {"MP_EP": "16"}, ["ETP 1 × EP 16 × PP 2 = 32 does not divide 16 GPUs"]),
    (QWEN3, 3, 8, {"MP_EP": "3"}, ["EP 3 does not divide the 128 experts"]),
    (QWEN3, 2, 8, {"MP_TP": "8"}, ["TP 8 does not divide the 4 key-value heads"]),
    (QWEN3, 5, 8, {"MP_PP": "5"}, ["PP 5 does not divide the 48 layers"]),
    (QWEN3, 2, 8, {"MP_PP0_LAYERS": "40", "MP_PP": "1"}, ["MP_PP0_LAYERS is for PP > 1"]),
    (QWEN3, 2, 8, {"MP_SP": "false"}, ["MP_SP=true"]),
    (QWEN3, 2, 8, {"MP_MODEL_SIZE": "0.6B", "MP_EP": "4"}, ["has no experts"]),
    (QWEN3, 2, 8, {"MP_MODEL_SIZE": "7B"}, ["MP_MODEL_SIZE='7B' should be 0.6B or"]),
    (QWEN3, 1, 8, {"MP_MODEL_SIZE": "A22B"}, ["needs a multiple of 16 GPUs and has 8 on one pod"]),
    (QWEN3, 2, 8, {"MP_MODEL_SIZE": "A22B"}, ["set A4_CONVERT_ON=all"]),
    (QWEN3_NEXT, 2, 8, {"MP_NUM_LAYERS": "48"}, ["MP_NUM_LAYERS=48 contradicts the 96 layers", "leave it out"]),
    (QWEN3_NEXT, 128, 8, {}, ["MP_TRAIN_TOKENS=100000 is less than one iteration", "1048576 or more"]),
    (QWEN3, 2, 8, {"USE_JSON_SFT": "true"}, ["is for pai-megatron-qwen3-next", "MP_DATASET_TYPE=raw"]),
    (QWEN3_NEXT, 2, 8, {"USE_JSON_SFT": "true", "MP_SFT": "false"}, ["needs a training with SFT=true"]),
    (QWEN3_NEXT, 2, 8, {"MP_DATASET_TYPE": "raw"}, ["for fine-tuning alone"]),
    (QWEN3_NEXT, 2, 8, {"TRAINING_MODE": "sft", "MP_SFT": "false"}, ["contradicts TRAINING_MODE=sft"]),
    (QWEN3_NEXT, 2, 8, {"TRAINING_MODE": "sft", "MP_TRAIN_TOKENS": "9"}, ["MP_TRAIN_TOKENS is not for SFT=true"]),
    (QWEN3_NEXT, 2, 8, {"MP_TRAIN_ITERS": "9"}, ["MP_TRAIN_ITERS is not for SFT=false"]),
    (QWEN3, 2, 8, {"MP_PRETRAIN_CHECKPOINT_PATH": "none"}, ["should be an absolute path"]),
    (QWEN3, 2, 8, {"PAI_WORKSPACE_ROOT": "/mnt/my files"}, ["PAI_WORKSPACE_ROOT='/mnt/my files' should be"]),
    (QWEN3, 2, 8, {"CKPT_PRECISION": "fp16"}, ["bf16, the only one"]),
    (QWEN3, 2, 8, {"MODEL_PARALLEL_ARGS": "$(reboot)"}, ["MODEL_PARALLEL_ARGS='$(reboot)' should be"]),
    (QWEN3, 2, 8, {"MODEL_PARALLEL_ARGS": "--tensor-model-parallel-size 0"}, ["MODEL_PARALLEL_ARGS='--tensor-mo"]),
    (QWEN3, 2, 8, {"A4_CONVERT_ON": "some"}, ["A4_CONVERT_ON='some' should be one of lead, all"]),
]  # fmt: skip


@pytest.mark.parametrize(("family", "number", "gpus", "environ", "words"), REFUSED)
def test_what_cannot_work_is_refused_with_what_would(
    family: Family, number: int, gpus: int, environ: Mapping[str, str], words: list[str]
) -> None:
    said = refusal(pods(family, number, gpus, environ=environ))
    assert all(word in said for word in words), said


OTHERS = ("TRAINING_MODE", "USE_JSON_SFT", "FORCE_CONVERSION", "PAI_WORKSPACE_ROOT")
VARIABLES = [f"MP_{name}" for name in POSITIONS] + [
    *OF_SCRIPT,
    *OTHERS,
    *(one for names in SKIPS.values() for one in names),
]


def test_all_nonsense_is_refused_at_once_by_its_name() -> None:
    said = refusal(pods(QWEN3, environ=dict.fromkeys(VARIABLES, "$(reboot)")))
    assert [name for name in VARIABLES if f"{name}='$(reboot)' should be" not in said] == []


@given(st.sampled_from([QWEN3, QWEN3_NEXT]), st.integers(1, 12), st.integers(1, 8))
def test_the_default_batch_always_fits_the_gpus(family: Family, number: int, micro: int) -> None:
    some = pods(family, number, MP_BATCH_SIZE=str(micro), MP_TRAIN_TOKENS="1000000000")
    parallel = number * 8 // (8 if family is QWEN3 else 1)
    batch = int(arguments(some)["GLOBAL_BATCH_SIZE"])
    assert batch % (micro * parallel) == 0 and 8 <= batch < 8 + micro * parallel


def test_what_is_left_out_is_not_refused() -> None:
    made(pods(QWEN3, 1, 4, SKIP_TRAINING="true", SKIP_CHECKPOINT_CONVERSION="true"))


def test_a_mistyped_variable_is_a_note() -> None:
    assert read_options(pods(QWEN3, MP_SEQLEN="1", SKIP_TRAININ="true"), QWEN3).notes == [
        "MP_SEQLEN is not an argument of the training; did you mean MP_SEQ_LEN?",
        "SKIP_TRAININ leaves no stage out; did you mean SKIP_TRAINING?",
    ]


@pytest.mark.parametrize(
    ("said", "fails"),
    [
        ("lm loss: NAN | loss scale: 1.0 |", True),
        ("lm loss: -inf | loss scale: 1.0 |", True),
        ("lm loss: 2.1E+00 | number of nan iterations:   1 |", True),
        ("lm loss: 2.1E+00 | number of nan iterations:   0 |", False),
        ("lm loss: 2.1E+00 | number of skipped iterations:   3 | information: none", False),
    ],
)
def test_a_loss_that_is_no_number_fails_a_training(said: str, fails: bool) -> None:
    pattern = command(made(pods(QWEN3))["train"]).fails_on
    assert bool(re.search(pattern, f" iteration 1/ 9 | {said}")) == fails


# Stages


NAMES = ["environment", "clone", "model", "dataset", "convert", "train"]


@pytest.mark.parametrize(
    ("family", "environ", "names"),
    [
        (QWEN3, {}, NAMES),
        (QWEN3_NEXT, {"TRAINING_MODE": "sft"}, [*NAMES[:4], "prepare", *NAMES[4:]]),
        (QWEN3_NEXT, {"TRAINING_MODE": "sft", "MP_DATASET_TYPE": "raw"}, NAMES),
        (QWEN3_NEXT, {"USE_JSON_SFT": "true"}, [*NAMES, "json-sft"]),
        (QWEN3_NEXT, {"USE_JSON_SFT": "true", "TRAINING_MODE": "sft"}, [*NAMES[:4], "prepare", *NAMES[4:], "json-sft"]),
    ],
)
def test_the_stages_of_each_mode(family: Family, environ: Mapping[str, str], names: list[str]) -> None:
    assert list(made(pods(family, environ=environ))) == names


def test_code_of_ones_own_needs_only_the_scripts_that_are_called() -> None:
    found = made(pods(QWEN3_NEXT, SKIP_CLONE_REPO="true", TRAINING_MODE="sft"))
    needed = {name: [output for output in stage.needs if output.kind == "code"] for name, stage in found.items()}
    patch, convertor = "/mnt/Pai-Megatron-Patch", "toolkits/distributed_checkpoints_convertor/scripts/qwen3_next"
    assert {name: outputs for name, outputs in needed.items() if outputs} == {
        "prepare": [StageOutput("code", patch, "toolkits/sft_data_preprocessing/run_build_idxmap_sft_dataset.sh")],
        "convert": [StageOutput("code", patch, f"{convertor}/run_8xH20.sh")],
        "train": [StageOutput("code", patch, "examples/qwen3_next/run_mcore_qwen3.sh")],
    }
    assert not any(output.kind == "checkout" for stage in found.values() for output in stage.needs)


@pytest.mark.parametrize(
    ("environ", "setting", "anew"),
    [
        ({}, "A4_TRAIN_AGAIN", False),
        ({"FORCE_CONVERSION": "true"}, "FORCE_CONVERSION", True),
        ({"FORCE_CONVERSION": "true", "A4_TRAIN_AGAIN": "true"}, "A4_TRAIN_AGAIN", True),
        ({"FORCE_CONVERSION": "true", "SKIP_CHECKPOINT_CONVERSION": "true"}, "A4_TRAIN_AGAIN", False),
        ({"FORCE_CONVERSION": "true", "MP_PRETRAIN_CHECKPOINT_PATH": "/mnt/mine"}, "A4_TRAIN_AGAIN", False),
    ],
)
def test_what_is_converted_again_is_trained_again(environ: Mapping[str, str], setting: str, anew: bool) -> None:
    found = made(pods(QWEN3_NEXT, USE_JSON_SFT="true", environ=environ))
    for name in ("train", "json-sft"):
        assert (found[name].again, found[name].anew) == (setting, anew)


SKIPPED = {"download": ["model", "dataset"], "train": ["train"]}


@pytest.mark.parametrize(("key", "variable"), [(key, name) for key, names in SKIPS.items() for name in names])
def test_each_switch_leaves_its_stages_out(key: str, variable: str) -> None:
    found = made(pods(QWEN3_NEXT, environ={variable: "true", "TRAINING_MODE": "sft"}))
    out = {name for name, stage in found.items() if stage.passed_over}
    assert out == set(SKIPPED.get(key, [key]))
    assert all(found[name].passed_over == f"{variable}=true" for name in out)


def test_the_lead_downloads_and_converts_and_all_train() -> None:
    found = made(pods(QWEN3))
    where = {name: stage.where for name, stage in found.items()}
    assert where == {**dict.fromkeys(NAMES, "lead"), "environment": "each pod", "train": "together"}
    assert made(pods(QWEN3, A4_CONVERT_ON="all"))["convert"].where == "together"


@pytest.mark.parametrize("family", [QWEN3, QWEN3_NEXT])
def test_every_command_runs_in_the_directory_of_its_script(family: Family) -> None:
    found = made(pods(family, TRAINING_MODE="sft"))
    patch = "/mnt/Pai-Megatron-Patch"
    assert {name: command(found[name]).cwd for name in ("prepare", "convert", "train")} == {
        "prepare": f"{patch}/toolkits/sft_data_preprocessing",
        "convert": f"{patch}/toolkits/distributed_checkpoints_convertor",
        "train": f"{patch}/examples/{family.scripts}",
    }


def test_pai_counts_nodes_where_the_chart_counts_gpus() -> None:
    few = {"MP_TP": "1", "MP_PP": "1", "MP_EP": "2", "SKIP_CHECKPOINT_CONVERSION": "true"}
    some = context("pai-megatron-qwen3", index=1, environ={"WORLD_SIZE": "16", "RANK": "9", **few})
    env = command(made(some)["train"]).env
    names = ("WORLD_SIZE", "RANK", "KUBERNETES_CONTAINER_RESOURCE_GPU", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
    assert [env[name] for name in names] == ["3", "2", "2", "job-workload-0-2.job", "6002", "12"]


def test_the_convertor_is_alone_on_the_lead_or_one_job_of_all() -> None:
    alone = command(made(pods(QWEN3))["convert"]).env
    names = ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
    assert [alone[name] for name in names] == ["1", "0", "127.0.0.1", "6002", "12"]
    together = command(made(pods(QWEN3, A4_CONVERT_ON="all"))["convert"]).env
    assert (together["WORLD_SIZE"], together["MASTER_ADDR"]) == ("2", "job-workload-0-0.job")
    large = command(made(pods(QWEN3, MP_MODEL_SIZE="A22B", A4_CONVERT_ON="all"))["convert"])
    assert large.argv == ["bash", "scripts/qwen3/run_A22B_16xH20.sh"]


def test_the_convertor_writes_beside_and_has_seven_arguments() -> None:
    convert = made(pods(QWEN3_NEXT))["convert"]
    directory = "/mnt/ckpts/huggingface/Qwen3-Next-80B-A3B-Instruct"
    target = "/mnt/ckpts/mcore/Qwen3-Next-80B-A3B-Instruct-to-mcore"
    assert [value for _, value in command(convert).arguments] == [
        "A3B", directory, f"{target}.partial", "false", "true", "bf16", directory,
    ]  # fmt: skip
    assert (convert.target, convert.staging, convert.outputs) == (
        target,
        f"{target}.partial",
        [StageOutput("torch_dist", target)],
    )
    assert convert.older == (f"{target}-bf16",)
    assert command(convert).fails_on == "Never visit the following huggingface weights"


def test_fine_tuning_data_are_made_for_their_length() -> None:
    found = made(pods(QWEN3_NEXT, TRAINING_MODE="sft"))
    made_of = [value for _, value in command(found["prepare"]).arguments]
    assert made_of == [
        "/mnt/datasets/alpaca_zh-train-general.json", "Qwen3Tokenizer", "1024",
        "/mnt/datasets/.sft/mmap_qwen3_datasets_sft", "/mnt/ckpts/huggingface/Qwen3-Next-80B-A3B-Instruct", "false",
    ]  # fmt: skip
    (output,) = found["prepare"].outputs
    assert output == StageOutput("mmap", "/mnt/datasets/mmap_qwen3_datasets_sft_text_document", "2048")
    assert (
        output in found["train"].needs
        and arguments(pods(QWEN3_NEXT, TRAINING_MODE="sft"))["DATASET_PATH"] == output.path
    )
    longer = made(pods(QWEN3_NEXT, TRAINING_MODE="sft", MP_SEQ_LEN="4096"))["prepare"]
    assert longer.outputs[0].path != output.path and longer.inputs["seq_len"] == "4096"


def test_json_sft_follows_with_arguments_of_its_own() -> None:
    some = pods(QWEN3_NEXT, USE_JSON_SFT="true")
    main, json = arguments(some), arguments(some, "json-sft")
    assert (main["SFT"], json["SFT"]) == ("false", "true")
    assert json["DATASET_PATH"] == "/mnt/datasets/alpaca_zh-train-general.json"
    assert json["VALID_DATASET_PATH"] == "/mnt/datasets/alpaca_zh-valid-general.json"
    assert (json["TRAIN_ITERS"], json["WARMUP_ITERS"]) == ("10000", "100")
    assert "/logs/output_mcore_qwen3_next_sft_json/" in json["OUTPUT_BASEPATH"]
    found = made(some)
    assert command(found["json-sft"]).env["MP_DATASET_TYPE"] == "raw"
    assert "MP_DATASET_TYPE" not in command(found["train"]).env


@pytest.mark.parametrize(
    "environ",
    [
        {"MP_EP": "8"},
        {"MP_OPTIMIZER_OFFLOAD": "0.5"},
        {"MP_AC_LAYERS": "2"},
        {"A4_PAI_COMMIT": "0" * 40},
        {"A4_MODEL_REVISION": "v2"},
        {"A4_DATASET_URL": "http://other"},
    ],
)
def test_trainings_that_differ_have_directories_that_differ(environ: dict[str, str]) -> None:
    one, other = made(pods(QWEN3))["train"], made(pods(QWEN3, environ=environ))["train"]
    assert one.target != other.target and one.inputs != other.inputs


def test_a_training_is_known_by_its_last_iteration_and_resumes() -> None:
    train = made(pods(QWEN3))["train"]
    (output,) = train.outputs
    name = (
        "pretrain-mcore-qwen3-moe-megatron-A3B-lr-1e-5-minlr-1e-6-bs-1-gbs-8-seqlen-128-pr-bf16-tp-4-pp-2-cp-1-ac-sel"
    )
    assert output.path.endswith(f"/checkpoint/{name}-do-true-sp-true-ti-9-wi-0") and output.expected == "9"
    assert command(train).resumes == command(train).copies == "PRETRAIN_CHECKPOINT_PATH"
    assert (train.again, train.anew) == ("A4_TRAIN_AGAIN", False)
    assert made(pods(QWEN3, A4_TRAIN_AGAIN="true"))["train"].anew


def test_the_repository_is_pinned_and_can_be_another() -> None:
    clone = made(pods(QWEN3))["clone"]
    assert clone.work == GitCheckout(versions.REPOSITORY, versions.COMMIT, versions.SUBMODULES)
    expected = f"{versions.COMMIT} backends/megatron/Megatron-LM-250624 backends/megatron/Megatron-LM-250908"
    assert clone.outputs == [StageOutput("checkout", "/mnt/Pai-Megatron-Patch", expected)]
    assert clone.older == ("/mnt/Pai-Megatron-Patch-GCP",)
    other = made(pods(QWEN3, A4_PAI_COMMIT="1" * 40, A4_PAI_REPOSITORY="/srv/pai.git"))["clone"]
    assert other.work == GitCheckout("/srv/pai.git", "1" * 40)


def test_ones_own_paths_need_no_stage_that_makes_them() -> None:
    found = made(pods(QWEN3, MP_PRETRAIN_CHECKPOINT_PATH="/mnt/mine", MP_DATASET_PATH="/mnt/data"))
    assert {name for name, stage in found.items() if stage.passed_over} == {"model", "dataset", "convert"}
    assert (
        StageOutput("torch_dist", "/mnt/mine", NEWEST) in found["train"].needs
        and StageOutput("mmap", "/mnt/data") in found["train"].needs
    )


def test_datasets_come_from_where_it_is_said() -> None:
    work = made(pods(QWEN3, A4_DATASET_URL="http://127.0.0.1:1/x/"))["dataset"].work
    assert isinstance(work, Files) and len(work.urls) == 4
    assert work.urls[0] == "http://127.0.0.1:1/x/qwen-datasets/mmap_qwen3_datasets_text_document.bin"


def test_the_space_that_is_needed_is_the_models() -> None:
    found = made(pods(QWEN3_NEXT))
    assert {round(found[name].space / 1.627e11) for name in ("model", "convert", "train")} == {1}


def test_what_was_trained_is_copied_to_the_bucket_when_it_is_wished() -> None:
    assert not [name for name in made(pods(QWEN3)) if name.startswith("keep")]
    keeping = pods(QWEN3, A4_KEEP_TRAINING="true")
    assert "needs a bucket, and nothing is mounted at /gcs" in refusal(keeping)
    found = made(replace(keeping, bucket=True))
    base = command(found["train"]).words[-1]
    assert ["/".join(command(found[name]).words[-2:]) for name in found if name.startswith("keep")] == [
        f"/gcs/{base.removeprefix('/mnt/')}/{name}" for name in ("checkpoints", "logs", "tensorboard")
    ]
    own = made(replace(keeping, bucket=True, environ={**keeping.environ, "MP_OUTPUT_BASEPATH": "/data/mine/"}))
    assert [*command(own["keep-train-logs"]).words[-2:]] == ["/gcs", "logs/data/mine/logs"]


def test_the_workspace_is_the_directory_that_pods_share() -> None:
    """Else another directory would be looked at for what the workspace must have."""
    env = launched(pods(QWEN3, PAI_WORKSPACE_ROOT="/data", A4_SHARED_DIR="/other")).env
    assert (env["PAI_WORKSPACE_ROOT"], env["A4_SHARED_DIR"]) == ("/data", "/data")


def test_tokens_stand_on_no_command_line() -> None:
    some = pods(QWEN3, HF_TOKEN="canary-1")
    made_of = launched(some)
    assert made_of.env["HF_TOKEN"] == "canary-1"
    assert "canary-1" not in " ".join([*made_of.argv, str(made_of)])


def test_a_dry_run_names_every_argument_with_the_values_of_the_recipe() -> None:
    text = str(launched(pods(QWEN3)))
    train = text[text.index(f"# stage {NAMES.index('train') + 1} of {len(NAMES)}: train") :]
    rows = [shlex.split(line) for line in train.splitlines() if line.startswith("    ")]
    assert [row[:2] for row in rows] == [[str(number), name] for number, name in enumerate(POSITIONS, 1)]
    assert [row[2] for row in rows][:26] == FIRST_RECIPE
    assert rows[26][2].startswith("/mnt/logs/output_mcore_qwen3_pretrain/")


def test_the_packages_bring_no_nccl() -> None:
    assert not [name for name in (*versions.PACKAGES, *versions.EXTENSIONS, *versions.BASE) if "nccl" in name]


def test_a_training_gets_what_the_pod_does_not_say() -> None:
    name = "NVTE_ALLOW_NONDETERMINISTIC_ALGO"
    for environ, value in (({}, "1"), ({name: "0"}, "0")):
        assert f"{name}={value}" in launched(pods(QWEN3, environ=environ)).text
