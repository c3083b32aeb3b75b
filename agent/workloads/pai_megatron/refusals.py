"""What Megatron would refuse after hours of downloads: why, and what would work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

from agent.decide.words import count_text
from agent.workloads.pai_megatron.arguments import iterations
from agent.workloads.pai_megatron.models import Size

PARALLEL_ARGS = r"(--[a-z]+(-[a-z]+)* [1-9][0-9]{0,3} ?)+"


class RunGpus(NamedTuple):
    """Those of the run."""

    pods: int
    per_pod: int

    @property
    def total(self) -> int:
        return self.pods * self.per_pod

    def __str__(self) -> str:
        return f"{self.total} GPUs ({count_text(self.pods, 'pod')} with {self.per_pod})"


def data_parallel(values: Mapping[str, str], gpus: RunGpus) -> int:
    """Size of the data-parallel group; 0 when the GPUs cannot be divided so."""
    model = _of(values, "TP") * _of(values, "PP") * _of(values, "CP")
    return 0 if gpus.total % model else gpus.total // model


def wrong_arguments(values: Mapping[str, str], size: Size, gpus: RunGpus) -> Iterator[str]:
    """Sentences on what cannot be trained so."""
    yield from _wrong_parallel(values, size, gpus)
    yield from _wrong_layers(values, size)
    yield from _wrong_batch(values, gpus)
    yield from _wrong_length(values)


def _of(values: Mapping[str, str], name: str) -> int:
    return int(values[name])


def _wrong_parallel(values: Mapping[str, str], size: Size, gpus: RunGpus) -> Iterator[str]:
    tp, pp, cp, etp, ep = (_of(values, name) for name in ("TP", "PP", "CP", "ETP", "EP"))
    if not data_parallel(values, gpus):
        yield _does_not_divide({"TP": tp, "PP": pp, "CP": cp}, gpus)
    if size.experts and gpus.total % (etp * ep * pp):
        yield _does_not_divide({"ETP": etp, "EP": ep, "PP": pp}, gpus)
    if size.experts and size.experts % ep:
        yield f"EP {ep} does not divide the {size.experts} experts of {size.model}: set MP_EP to a divisor"
    if not size.experts and ep * etp > 1:
        yield f"{size.model} has no experts: MP_EP and MP_ETP can only be 1"
    if size.groups % tp:
        yield f"TP {tp} does not divide the {size.groups} key-value heads of {size.model}: set MP_TP to a divisor"
    if size.experts and tp > 1 and values["SP"] != "true":
        yield "experts with TP > 1 can only be trained with sequence parallelism: MP_SP=true"


def _does_not_divide(sizes: Mapping[str, int], gpus: RunGpus) -> str:
    product = " × ".join(f"{name} {size}" for name, size in sizes.items())
    fitting = ", ".join(str(number) for number in range(1, gpus.total + 1) if gpus.total % number == 0)
    names = " × ".join(f"MP_{name}" for name in sizes)
    return f"{product} = {prod(sizes.values())} does not divide {gpus}: {names} can be {fitting}"


def _wrong_layers(values: Mapping[str, str], size: Size) -> Iterator[str]:
    pp = _of(values, "PP")
    first = int(values.get("MP_PP0_LAYERS", "0"))
    if first and pp == 1:
        yield "MP_PP0_LAYERS is for PP > 1: leave it out, or set MP_PP"
    elif first and (size.layers - first) % (pp - 1):
        yield f"MP_PP0_LAYERS={first} leaves {size.layers - first} layers, which PP - 1 = {pp - 1} does not divide"
    elif not first and size.layers % pp:
        yield f"PP {pp} does not divide the {size.layers} layers of {size.model}: set MP_PP to a divisor"
    recomputed = int(values.get("MP_AC_LAYERS", "1"))
    if values["AC"] == "full" and size.layers // pp % recomputed:
        yield f"MP_AC_LAYERS={recomputed} does not divide the {size.layers // pp} layers of each pipeline stage"


def _wrong_batch(values: Mapping[str, str], gpus: RunGpus) -> Iterator[str]:
    parallel = data_parallel(values, gpus)
    batch, step = _of(values, "GLOBAL_BATCH_SIZE"), _of(values, "BATCH_SIZE") * parallel
    if parallel and batch % step:
        below, above = batch // step * step, -(-batch // step) * step
        near = f"{below} or {above}" if below else str(above)
        yield (
            f"GLOBAL_BATCH_SIZE {batch} is not a multiple of BATCH_SIZE {values['BATCH_SIZE']} × data parallel size "
            f"{parallel} = {step} on {gpus}: set MP_GLOBAL_BATCH_SIZE to {near}, or another multiple of {step}"
        )


def _wrong_length(values: Mapping[str, str]) -> Iterator[str]:
    sft = values["SFT"] == "true"
    length, warmup = iterations(values), _of(values, "WARMUP_TOKENS")
    unit = _of(values, "GLOBAL_BATCH_SIZE") * _of(values, "SEQ_LEN")
    if not sft and not length:
        yield (
            f"MP_TRAIN_TOKENS={values['TRAIN_TOKENS']} is less than one iteration of GLOBAL_BATCH_SIZE × SEQ_LEN = "
            f"{unit} tokens: set it to {unit} or more"
        )
    elif sft and 2 * warmup >= length:
        yield f"MP_WARMUP_ITERS={warmup} must be less than half of MP_TRAIN_ITERS={length}"
    elif not sft and warmup // unit >= length:
        yield f"MP_WARMUP_TOKENS={warmup} must be less than MP_TRAIN_TOKENS={values['TRAIN_TOKENS']}"


def wrong_conversion(size: Size, own: str, gpus: RunGpus, *, on_all: bool) -> str:
    """Why the convertor cannot run on these GPUs; empty when it can. `own`: MODEL_PARALLEL_ARGS."""
    if own and not re.fullmatch(PARALLEL_ARGS, own):
        return f"MODEL_PARALLEL_ARGS={own!r} should be options and numbers, such as --tensor-model-parallel-size 1"
    asked = {name: int(number) for name, number in re.findall(r"--(\S+) ([0-9]+)", own)}
    tp, pp, ep = size.convert_parallel
    if own:
        tp, pp = (asked.get(f"{name}-model-parallel-size", 1) for name in ("tensor", "pipeline"))
        ep = asked.get("expert-model-parallel-size", 1)
    needed = tp * pp * (ep if size.experts else 1)
    have = gpus.total if on_all else gpus.per_pod
    if have and needed and have % needed == 0:
        return ""
    where = "on all pods" if on_all else "on one pod"
    all_can = not on_all and gpus.total % needed == 0
    remedy = "A4_CONVERT_ON=all" if all_can else "MODEL_PARALLEL_ARGS for fewer, or other pods"
    return f"the convertor of {size.model} needs a multiple of {needed} GPUs and has {have} {where}: set {remedy}"
