"""What the script of chart/ci/megatron-bridge-values.yaml makes of the lines of Megatron-Bridge."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent.decide.series import SeriesReader
from tests.chart.helm import CHART


def iteration(number: int, *, skipped: int = 0, throughput: float | None = None, loss: float | None = None) -> str:
    """By the format strings of training_log in megatron/bridge/training/utils/train_utils.py, f7a9428 and 0.6.2."""
    line = " [2026-11-28 17:36:35]"
    line += f" iteration {number:8d}/{30:8d} |"
    line += f" consumed samples: {512 * number:12d} |"
    line += f" skipped samples: {skipped:12d} |" if skipped else ""
    line += f" elapsed time per iteration (ms): {5.4321 * 1000.0:.1f} |"
    line += "" if throughput is None else f" throughput per GPU (TFLOP/s/GPU): {throughput:.1f} |"
    line += f" learning rate: {3e-4:.6E} |"
    line += f" global batch size: {512:5d} |"
    line += "" if loss is None else " {}: {:.6E} |".format("lm loss", loss)  # never where it is NaN
    line += f" loss scale: {1.0:.1f} |"
    line += f" grad norm: {1.25:.3f} |"
    line += f" number of skipped iterations: {0:3d} |"
    return line + f" number of nan iterations: {int(loss is None):3d} |"


ALWAYS = {
    ("elapsed time per iteration", "ms"): 5432.1,
    ("learning rate", ""): 3e-4,
    ("global batch size", ""): 512,
    ("loss scale", ""): 1,
    ("grad norm", ""): 1.25,
    ("number of skipped iterations", ""): 0,
}


@pytest.mark.parametrize(
    ("line", "step", "more"),
    [
        (
            iteration(3, throughput=812.34, loss=11.5),
            3,
            {("throughput per GPU", "TFLOP/s/GPU"): 812.3, ("lm loss", ""): 11.5, ("consumed samples", ""): 1536},
        ),
        (iteration(30, skipped=7), 30, {("consumed samples", ""): 15360, ("skipped samples", ""): 7}),
        (f"Step Time : {5.4321:.2f}s GPU utilization: {812.34:.1f}MODEL_TFLOP/s/GPU", None, {}),
    ],
)
def test_lines_of_iterations_become_series(
    line: str, step: int | None, more: dict[tuple[str, str], float], tmp_path: Path
) -> None:
    script = yaml.safe_load((CHART / "ci/megatron-bridge-values.yaml").read_text())["task_script"]
    (program,) = re.findall(r"<<'EOF'\n(.*?)\nEOF\n", script, re.DOTALL)
    file, printed = tmp_path / "series.jsonl", f"{line}\n\udcff".encode(errors="surrogateescape")
    env = {"A4_SERIES_FILE": str(file)}
    ran = subprocess.run([sys.executable, "-c", program], input=printed, env=env, capture_output=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, printed, b"")
    reader = SeriesReader(1)
    reader.take(file.read_bytes() if file.exists() else b"")
    told = {(one.name, one.unit): one.points for one in reader.told().lines}
    nans = {("number of nan iterations", ""): float(("lm loss", "") not in more)}
    expected = {} if step is None else {**ALWAYS, **nans, **more}
    assert (told, reader.told().unread) == ({key: ((step, value),) for key, value in expected.items()}, 0)
