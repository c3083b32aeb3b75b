"""The script of examples/ on every pod. Its programs are typed in docs/journeys.md; tests/chart renders its values."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.conftest import Start, all_codes

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> bytes:
    return (EXAMPLES / name).read_bytes()


def test_a_script_on_every_pod(start: Start) -> None:
    trial = start(2, arguments=("script",), script=example("task-script.sh").decode())
    all_codes(trial, 0)
    names = [trial.cluster.spec.pod_name(index) for index in range(2)]
    for index, further in (
        (0, ["the pods in order of their places:", *(f"{name} slots=1" for name in names)]),
        (1, []),
    ):
        first = f"pod {index} is node rank {index} of 2 and meets the others at {names[0]}:6002"
        assert trial.cluster.logs(index, "out").splitlines() == [first, *further]
