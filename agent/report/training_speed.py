"""How fast a training was: statistics of its steps, tokens per second, and how much of the GPUs it used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from agent.decide.result import Iteration, Result, Training
from agent.report.model_sizes import MODELS, PEAKS


class StepTimes(NamedTuple):
    """Times of the iterations in seconds, without the first one, which prepares the others."""

    middle: float
    high: float
    """19 of 20 took no longer."""
    worst: float
    worst_at: int
    """The iteration."""


class TrainingSpeed(NamedTuple):
    """None: not known."""

    steps: StepTimes | None
    tflops: float | None
    """Median, as Megatron printed it, per GPU."""
    tokens: float | None
    """Per second, all GPUs together, padding included."""
    mfu: float | None
    """Share of the peak of all GPUs."""


def settled(iterations: Sequence[Iteration]) -> Sequence[Iteration]:
    """All but the first that a run made: it compiles, allocates and connects, and takes many times as long."""
    return iterations[1:] if len(iterations) > 1 else iterations


def steps(training: Training) -> StepTimes | None:
    """None when no time was printed."""
    found = [(one.milliseconds / 1000, one.iteration) for one in settled(training.iterations) if one.milliseconds]
    if not found:
        return None
    times = sorted(time for time, _ in found)
    worst, at = max(found, key=lambda each: each[0])
    return StepTimes(percentile(times, 0.5), percentile(times, 0.95), worst, at)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least of these that so many do not exceed: always one that was measured."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def speed(result: Result, training: Training) -> TrainingSpeed:
    """The speed of one of the trainings of a run."""
    times = steps(training)
    printed = sorted(one.tflops for one in settled(training.iterations) if one.tflops is not None)
    per_step = training.batch * training.sequence if training.batch and training.sequence else None
    tokens = per_step / times.middle if per_step and times else None
    return TrainingSpeed(times, percentile(printed, 0.5) if printed else None, tokens, _mfu(result, training, tokens))


def _mfu(result: Result, training: Training, tokens: float | None) -> float | None:
    model, peak = MODELS.get(training.model), PEAKS.get(gpu_model(result))
    gpus = len(result.pods) * result.slots
    if tokens is None or model is None or peak is None or not gpus or not training.sequence:
        return None
    return tokens * model.flop_per_token(training.sequence) / (gpus * peak * 1e12)


def gpu_model(result: Result) -> str:
    """The GPU that all pods have, by its name; empty when it is not known or they differ."""
    found = gpu_models(result)
    return found.pop() if len(found) == 1 else ""


def gpu_models(result: Result) -> set[str]:
    """Those of all pods, with an empty name for a pod that does not say."""
    return {pod.inventory.get("gpus", "").partition("× ")[2] for pod in result.pods}


def how(found: Sequence[tuple[Result, Training]]) -> str:
    """How the numbers of these trainings were found, in sentences."""
    lines = ["Step times are of all iterations shown but the first; p95: 19 of 20 took no longer."]
    trainings = [(result, one) for result, one in found if one.sequence and one.batch]
    if trainings:
        sizes = dict.fromkeys(f"{one.batch} × {one.sequence}" for _, one in trainings)
        lines.append(f"tokens/s = batch × sequence length ({', '.join(sizes)}, padding included) ÷ median step time.")
    known = [(result, one.model) for result, one in trainings if one.model in MODELS and gpu_model(result) in PEAKS]
    if known:
        peaks = dict.fromkeys(f"{PEAKS[gpu_model(result)]:.0f} TFLOP/s for {gpu_model(result)}" for result, _ in known)
        weights = dict.fromkeys(f"{MODELS[name].weights / 1e9:.2f}·10⁹ for {name}" for _, name in known)
        lines.append(
            "MFU = tokens/s × FLOP per token ÷ (GPUs × dense BF16 peak by NVIDIA’s data sheets, "
            f"{', '.join(peaks)}); FLOP per token = 6 × weights that a token meets (by config.json, "
            f"{', '.join(weights)}) + 6 × layers of full attention × sequence length × heads × size of a head. "
            "Megatron counts its TFLOP/s in its own way."
        )
    return " ".join(lines)
