"""The old testbeds' guides: their `helm install` lines as typed (old/lines), in trees where the chart is ours.

The values file of a line is ours, or the old one of that testbed (old/values). Launchers and examples stand in for the
old ones, and the chart takes them for those.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from tests.chart.helm import CHART, Words
from tests.chart.pages import Command, words_of

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
ADDED = {"s003-pai": ("--set", "workload.agentImage=registry.example/a4-agent-cpu:debian12")}
"""What the chart asks for beside a line, whose image has no agent."""
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
    roots = {"REPO_ROOT": str(directory), "RECIPE_ROOT": str(recipe)}
    typed = words_of(Command(seed, 1, line), recipe, {**SET_BEFORE, **roots})
    return replace(typed, flags=(*typed.flags, *ADDED.get(seed, ())))


def make_tree(testbed: Testbed, values: str, directory: Path) -> Path:
    """The RECIPE_ROOT of a guide, with our chart in the place of its own."""
    recipe = directory / testbed.recipe
    (recipe / "gke-runtime" / "launchers").mkdir(parents=True)
    make_chart(recipe / "gke-runtime" / "jobset")
    shutil.copytree(OLD / "examples", recipe / "examples")
    shutil.copy(OLD / "launchers" / f"{testbed.old}.sh", recipe / "gke-runtime" / "launchers" / testbed.launcher)
    ours = CHART / "values.yaml" if values == "our values" else OLD / "values" / f"{testbed.old}.yaml"
    shutil.copy(ours, recipe / testbed.values)
    return recipe


WORKLOADS = {
    "nccl-test.sh": "nccl",
    "torchrun-ddp-test.sh": "ddp",
    "pai-megatron-qwen3.sh": "pai-megatron-qwen3",
    "qwen3.sh": "pai-megatron-qwen3",
    "pai-megatron-qwen3-next.sh": "pai-megatron-qwen3-next",
}
"""What runs in the place of an old example."""
ARGUMENTS = ["--tests", "all_reduce", "-n", "1"]
"""Those with which nccl is the old example."""


def bare_lines(script: Path) -> list[str]:
    lines = [line.strip() for line in script.read_text().splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def known(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make_chart(at: Path) -> None:
    """Our chart, which knows old/launchers and old/examples in place of the old charts' own."""
    shutil.copytree(CHART, at)
    launchers = sorted((bare_lines(path) for path in (OLD / "launchers").glob("*.sh")), key=len, reverse=True)
    examples = {name: bare_lines(OLD / "examples" / name) for name in WORKLOADS}
    table = {
        "launchers": [{"lines": len(lines), "sha256": known("\n".join(lines))} for lines in launchers],
        "examples": [
            {
                "workload": WORKLOADS[name],
                "arguments": ARGUMENTS if WORKLOADS[name] == "nccl" else None,
                "sha256": [known("\n".join(lines))],
            }
            for name, lines in examples.items()
        ],
        "lines": {
            workload: [known(lines[-1]) for name, lines in examples.items() if WORKLOADS[name] == workload]
            for workload in WORKLOADS.values()
        },
    }
    (at / "files" / "old-scripts.yaml").write_text(yaml.safe_dump(table))
