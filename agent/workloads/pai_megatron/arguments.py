"""The arguments of Pai-Megatron-Patch's scripts: their positions, names, defaults, and what each may be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from agent.decide.setting_values import flag, matching

Parse = Callable[[str], str]
"""Gives the text for the script. Raises ValueError with what it takes."""
Named = Sequence[tuple[str, str]]


def number(least: int) -> Parse:
    def parse(text: str) -> str:
        if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
            raise ValueError(f"a whole number (at least {least})")
        return str(int(text))

    return parse


def one_of(*words: str) -> Parse:
    return matching("|".join(map(re.escape, words)), " or ".join(words))


rate = matching(r"[0-9]{1,9}(\.[0-9]{1,18})?(e-?[0-9]{1,2})?", "a learning rate, such as 1e-5")
offload = matching(
    r"false|0?\.[0-9]{1,9}|1(\.0)?",
    "false, or the fraction of the optimizer that goes to the host, such as 0.5",
)
path = matching(
    r"(/[A-Za-z0-9._+=:,@%-]+)+/?",  # the scripts paste their arguments into a line for `eval`
    "an absolute path of letters, digits and '._+=:,@%-', which is all that the scripts can take",
)


def boolean(text: str) -> str:
    return "true" if flag(text) else "false"


class Argument(NamedTuple):
    """One position. Its variable is MP_ and its `told_name`."""

    name: str
    parse: Parse
    default: str = ""
    """The default of both models; empty: the family's, or derived."""


TRAINING = (
    Argument("ENV", one_of("dlc"), "dlc"),
    Argument("MODEL_SIZE", str),
    Argument("BATCH_SIZE", number(1), "1"),
    Argument("GLOBAL_BATCH_SIZE", number(1)),
    Argument("LR", rate, "1e-5"),
    Argument("MIN_LR", rate, "1e-6"),
    Argument("SEQ_LEN", number(1)),
    Argument("PAD_LEN", number(1)),
    Argument("PR", one_of("fp16", "bf16", "fp8"), "bf16"),
    Argument("TP", number(1)),
    Argument("PP", number(1)),
    Argument("CP", number(1), "1"),
    Argument("ETP", number(1), "1"),
    Argument("EP", number(1)),
    Argument("SP", boolean, "true"),
    Argument("DO", boolean, "true"),
    Argument("FL", boolean, "true"),
    Argument("SFT", boolean),
    Argument("AC", one_of("sel", "full", "offload", "none")),
    Argument("OPTIMIZER_OFFLOAD", offload, "false"),
    Argument("SAVE_INTERVAL", number(1), "100000"),
    Argument("DATASET_PATH", path),
    Argument("VALID_DATASET_PATH", path),
    Argument("PRETRAIN_CHECKPOINT_PATH", path),
    Argument("TRAIN_TOKENS", number(1)),
    Argument("WARMUP_TOKENS", number(0)),
    Argument("OUTPUT_BASEPATH", path),
)
"""Arguments of run_mcore_qwen3.sh, in its order. TRAIN_TOKENS and WARMUP_TOKENS are iterations where SFT is true."""
ITERATIONS = {"TRAIN_TOKENS": "10000", "WARMUP_TOKENS": "100"}
"""Where SFT is true."""
OF_SCRIPT: Mapping[str, tuple[Parse, str]] = {
    "MP_DATASET_TYPE": (one_of("idxmap", "raw"), "idxmap"),
    "MP_AC_LAYERS": (number(1), "1"),
    "MP_VP": (number(1), "1"),
    "MP_SFT_PACKING": (boolean, "false"),
    "MP_PP0_LAYERS": (number(1), "1"),
}
"""Variables that the script reads itself, and a value of each that is right."""


def told_name(name: str, sft: str) -> str:
    """An argument's name for people, which says iterations where they are."""
    return name.replace("TOKENS", "ITERS") if sft == "true" else name


def named(values: Mapping[str, str]) -> Named:
    """The 27, as the script gets them."""
    return [(told_name(argument.name, values["SFT"]), values[argument.name]) for argument in TRAINING]


def convertor(size: str, hugging_face: str, converted: str) -> Named:
    """The 7 of the convertor. Only bf16 can be converted to: the script has --bf16 among its own options."""
    return [
        ("MODEL_SIZE", size),
        ("LOAD_DIR", hugging_face),
        ("SAVE_DIR", converted),
        ("MG2HF", "false"),
        ("USE_CUDA", "true"),
        ("PR", "bf16"),
        ("HF_DIR", hugging_face),
    ]


def preprocessing(data: str, prefix: str, hugging_face: str, *, seq_len: str, packing: str) -> Named:
    """The 6 of run_build_idxmap_sft_dataset.sh, which makes `prefix`_text_document.bin and .idx."""
    return [
        ("INPUT_DATA_PATH", data),
        ("TOKENIZER", "Qwen3Tokenizer"),
        ("SEQ_LEN", seq_len),
        ("OUTPUT_DATA_PATH", prefix),
        ("LOAD_DIR", hugging_face),
        ("DEFAULT_PACKING", packing),
    ]


def iterations(values: Mapping[str, str]) -> int:
    """How many the script makes of its arguments."""
    if values["SFT"] == "true":
        return int(values["TRAIN_TOKENS"])
    return int(values["TRAIN_TOKENS"]) // int(values["GLOBAL_BATCH_SIZE"]) // int(values["SEQ_LEN"])


def checkpoint_name(label: str, values: Mapping[str, str]) -> str:
    """The directory in OUTPUT_BASEPATH/checkpoint that the script saves into. EP, ETP and offloading are not in it."""
    sft = values["SFT"] == "true"
    warmup = int(values["WARMUP_TOKENS"])
    if not sft:
        warmup = warmup // int(values["GLOBAL_BATCH_SIZE"]) // int(values["SEQ_LEN"])
    begin = f"{'finetune' if sft else 'pretrain'}-mcore-{label}"
    told = (
        "{MODEL_SIZE}-lr-{LR}-minlr-{MIN_LR}-bs-{BATCH_SIZE}-gbs-{GLOBAL_BATCH_SIZE}-seqlen-{SEQ_LEN}-pr-{PR}-tp-{TP}"
        "-pp-{PP}-cp-{CP}-ac-{AC}"
    ).format_map(values)
    # The script turns it on, because only a distributed optimizer can be on the host.
    do = "true" if values["OPTIMIZER_OFFLOAD"] != "false" else values["DO"]
    return f"{begin}-{told}-do-{do}-sp-{values['SP']}-ti-{iterations(values)}-wi-{warmup}"
