"""How fast a training was, and how it compares with others."""

from __future__ import annotations

from typing import Any

import pytest

from agent.decide.result import Result
from agent.decide.result_reader import read_result
from agent.report.model_sizes import MODELS, QWEN3_30B, QWEN3_NEXT
from agent.report.training_speed import StepTimes, how, percentile, speed, steps
from agent.workbench.comparing.comparison import comparison_page
from tests.report.examples import EXAMPLES, SIZES, ddp, diverged, pod, result, trained, training
from tests.report.test_model import texts


def run(gpus: str = "8 × NVIDIA B200", **changes: Any) -> Result:
    pods = [pod(index, inventory={"gpus": gpus}) for index in range(2)]
    return read_result(result("pai-megatron-qwen3", pods, trainings=[training(**(SIZES | changes))]))


def test_weights_that_a_token_meets() -> None:
    """The safetensors of Qwen3-Next have 3,874,929,408 weights without the experts that a token does not meet; they
    include the embedding, and 211,712 weights of norms and of the recurrence."""
    assert QWEN3_NEXT.weights == 3_874_929_408 - 2048 * 151_936 - 211_712
    assert round(QWEN3_30B.weights / 1e9 + 2048 * 151_936 / 1e9, 1) == 3.4  # "3.3B activated", embedding included


def test_flop_per_token() -> None:
    assert QWEN3_30B.flop_per_token(0) == 6 * QWEN3_30B.weights
    assert QWEN3_30B.flop_per_token(4096) - QWEN3_30B.flop_per_token(0) == 6 * 48 * 4096 * 32 * 128
    assert QWEN3_NEXT.flop_per_token(4096) - QWEN3_NEXT.flop_per_token(0) == 6 * 12 * 4096 * 16 * 256


@pytest.mark.parametrize(
    ("ordered", "share", "value"),
    [([1.0], 0.95, 1.0), ([1.0, 2.0], 0.5, 1.0), ([1.0, 2.0, 3.0], 0.5, 2.0), (list(range(1, 101)), 0.95, 95)],
)
def test_percentiles_are_measured_values(ordered: list[float], share: float, value: float) -> None:
    assert percentile(ordered, share) == value


def test_the_first_step_counts_only_when_it_is_alone() -> None:
    first = run(count=9).trainings[0]
    one = first._replace(iterations=first.iterations[:1])
    assert steps(first) == StepTimes(1.845, 1.855, 1.855, 3)
    assert steps(one) == StepTimes(31.5, 31.5, 31.5, 1)
    assert steps(run(iterations=[]).trainings[0]) is None


def test_tokens_and_mfu() -> None:
    found = run()
    measured = speed(found, found.trainings[0])
    assert measured.tokens == pytest.approx(64 * 4096 / 1.845)
    flop = 64 * 4096 / 1.845 * QWEN3_30B.flop_per_token(4096)
    assert measured.mfu == pytest.approx(flop / (16 * 2250e12))


@pytest.mark.parametrize(
    ("gpus", "changes", "tokens"),
    [
        ("8 × NVIDIA B200", {"model": "Qwen/Qwen3-8B"}, True),
        ("8 × NVIDIA H100 PCIe", {}, True),  # its peak is another than that of the SXM module
        ("", {}, True),
        ("8 × NVIDIA B200", {"sequence": None}, False),
        ("8 × NVIDIA B200", {"batch": None}, False),
    ],
)
def test_what_is_not_known_is_not_guessed(gpus: str, changes: dict[str, Any], tokens: bool) -> None:
    found = run(gpus, **changes)
    measured = speed(found, found.trainings[0])
    assert (measured.tokens is not None, measured.mfu) == (tokens, None)
    assert "MFU" not in how([(found, found.trainings[0])])


def test_models_are_named_as_the_pipelines_name_them() -> None:
    from agent.workloads.pai_megatron.models import QWEN3
    from agent.workloads.pai_megatron.models import QWEN3_NEXT as NEXT

    assert set(MODELS) == {QWEN3.sizes["A3B"].model, NEXT.sizes["A3B"].model}


# several runs


def slower() -> dict[str, Any]:
    found = trained()
    for one in found["trainings"][0]["iterations"]:
        one["milliseconds"] *= 1.25
    return found


def test_two_trainings_side_by_side() -> None:
    page = comparison_page([read_result(trained()), read_result(slower()), read_result(ddp())])
    view, other = page.trainings
    assert (view.name, other.name) == ("train", "json-sft")
    assert [row[1] for row in texts(view.grid)] == ["1.00×", "0.80× ▼", "not trained"]
    assert texts(view.grid)[1][2:4] + texts(view.grid)[1][-2:] == ["0", "11.90", "97", "Qwen3-30B-A3B"]
    assert [picture.title for picture in view.pictures] == ["loss", "step time", "speed"]
    assert [[line.label for line in picture.lines] for picture in view.pictures] == [["A", "B"]] * 3
    assert texts(other.grid)[1][1] == "1.00×"  # alike, though nobody knows its sizes


def test_a_loss_that_is_no_number_gets_no_ratio() -> None:
    for data, ratios in (([trained(), diverged()], ["1.00×", "✗"]), ([diverged(), trained()], ["✗", "✗"])):
        (view, *_) = comparison_page([read_result(one) for one in data]).trainings
        assert [row[1] for row in texts(view.grid)] == ratios
        assert "✗ 2" in [row[2] for row in texts(view.grid)]


@pytest.mark.parametrize(
    ("changes", "ratio"),
    [({"batch": 128}, "2.00× ▲"), ({"batch": None}, "–"), ({"model": "", "sequence": None, "batch": None}, "–")],
)
def test_iterations_that_are_not_alike(changes: dict[str, Any], ratio: str) -> None:
    """Twice the batch in the same time is twice the speed; what is not known is not compared with what is."""
    (view,) = comparison_page([run(), run(**changes)]).trainings
    assert texts(view.grid)[1][1] == ratio


def test_runs_that_trained_nothing_in_common() -> None:
    assert comparison_page([read_result(EXAMPLES["trained"]()), read_result(ddp())]).trainings == ()
