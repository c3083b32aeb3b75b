"""The old testbeds' guides: their `helm install` lines as typed (old/lines), in trees where the chart is ours.

The values file of a line is ours, or the old one of that testbed (old/values).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.chart.helm import CHART, Words

HERE = Path(__file__).parent
OLD = HERE / "old"
VALUES = ("our values", "old values")
FILLED_IN = {
    "<FILESTORE_IP>": "10.0.0.2",
    "<filestore-ip>": "10.0.0.2",
    "<filestore-zone>": "us-central1-b",
    "<filestore-instance>": "my-filestore",
    "<filestore-share>": "share1",
}
"""What the guides leave to their readers."""
SET_BEFORE = {
    "GCS_BUCKET": "my.bucket_1",
    "KUEUE_NAME": "a4",
    "PROJECT_ID": "my-project",
    "USER": "alice",
    "WORKLOAD_IMAGE": "registry.example/testbed:1",
}


@dataclass(frozen=True)
class Testbed:
    """Where the files of one guide lie, in its RECIPE_ROOT."""

    recipe: str
    old: str
    launcher: str
    values: str = "gke-runtime/values.yaml"

    __test__ = False  # no class of tests


TESTBED = Testbed("training/a4/testbed", "testbed", "torchrun-stratup.sh")
UNIFIED = Testbed("gpu/unified-testbed", "unified", "torchrun-startup.sh")
DEEPEP = Testbed("gpu/testbed-a4", "testbed-a4", "torchrun-stratup.sh")
PAI = Testbed("training/a4/alibaba-pai-megatron-patch", "pai", "torchrun-stratup.sh", "values.yaml")

SEEDS = {
    "s000-testbed": TESTBED,
    "s001-testbed": UNIFIED,
    "s001-nccl": UNIFIED,
    "s001-ddp": UNIFIED,
    "s001-qwen3": UNIFIED,
    "s001-qwen3-next": UNIFIED,
    "s001-sft": UNIFIED,
    "s001-lustre": UNIFIED,
    "s002-deepep": DEEPEP,
    "s003-pai": PAI,
}


def words(seed: str, values: str, directory: Path) -> Words:
    """What the line of a guide gives to `helm install`, as a shell understands it."""
    testbed = SEEDS[seed]
    recipe = make_tree(testbed, values, directory)
    line = (OLD / "lines" / f"{seed}.sh").read_text()
    for placeholder, meant in FILLED_IN.items():
        line = line.replace(placeholder, meant)
    roots = {"REPO_ROOT": str(directory), "RECIPE_ROOT": str(recipe), "PATH": os.environ["PATH"]}
    shown = subprocess.run(
        ["bash", "-euc", 'helm() { printf "%s\\0" "$@"; }\n' + line],
        cwd=recipe,
        env={**SET_BEFORE, **roots},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    install, *flags, release, chart = shown.split("\0")[:-1]
    assert install == "install"
    return Words(tuple(flags), release, chart, "default", str(recipe))


def make_tree(testbed: Testbed, values: str, directory: Path) -> Path:
    """The RECIPE_ROOT of a guide, with our chart in the place of its own."""
    recipe = directory / testbed.recipe
    (recipe / "gke-runtime" / "launchers").mkdir(parents=True)
    (recipe / "gke-runtime" / "jobset").symlink_to(CHART)
    shutil.copytree(OLD / "examples", recipe / "examples")
    shutil.copy(OLD / "launchers" / f"{testbed.old}.sh", recipe / "gke-runtime" / "launchers" / testbed.launcher)
    ours = CHART / "values.yaml" if values == "our values" else OLD / "values" / f"{testbed.old}.yaml"
    shutil.copy(ours, recipe / testbed.values)
    return recipe
