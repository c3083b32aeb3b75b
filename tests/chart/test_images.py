"""What the chart starts and mounts, beside the recipes of the images that the old guides name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import yaml

from agent.fabrics import FABRICS
from tests.chart import seeds
from tests.chart.cases import CI_FILES, REFUSED
from tests.chart.helm import CHART, IMAGE, Engines, Words, sets

DOCKER = CHART.parent / "docker"
IMAGES = {
    seeds.TESTBED: "testbed",
    seeds.UNIFIED: "unified-testbed-pytorch",
    seeds.DEEPEP: "nemo-deepep",
    seeds.PAI: "pai_megatron_patch_a4",
}
"""Those that the guides build."""
OWN = {"/dev/shm", "/etc/a4-agent/secret", "/usr/local/nvidia/lib64", "/run/workload"}
"""What the chart itself fills; Kubernetes makes these directories. The same holds for the marks of fabrics."""
TAGS = {
    f"{found['_IMAGE_NAME']}:{found['_IMAGE_TAG']}"
    for path in DOCKER.glob("*/cloudbuild.yml")
    for found in [yaml.safe_load(path.read_text())["substitutions"]]
}


def text_of(image: str) -> str:
    """Its recipe with that of the agent, without comments, each instruction in one line."""
    whole = "\n".join(path.read_text() for path in (DOCKER / image / "Dockerfile", DOCKER / "agent.Dockerfile"))
    return re.sub(r"\\\n\s*", " ", "\n".join(line for line in whole.splitlines() if not line.startswith("#")))


def made_in(image: str) -> set[str]:
    """Directories that a recipe makes or fills."""
    return {word.rstrip("/") for word in re.findall(r"(?<=\s)/[\w./-]+", text_of(image))}


def is_below(path: str, directory: str) -> bool:
    return f"{path}/".startswith(f"{directory}/")


def test_examples_name_images_that_are_built() -> None:
    for example in CI_FILES:
        workload = yaml.safe_load(example.read_text())["workload"]
        image = workload.get("agentImage", workload["image"])
        assert image.removeprefix("us-docker.pkg.dev/my-project/my-repo/") in TAGS, example


def test_an_image_has_what_its_guides_line_starts_and_mounts(engines: Engines, words: Callable[[str], Words]) -> None:
    assert "tini:tini" in (DOCKER / "steps/programs.sh").read_text()
    assert "/usr/local/bin/a4-agent" in (DOCKER / "steps/shells.sh").read_text()
    for seed, testbed in seeds.SEEDS.items():
        line = words(f"{seed} {'old values' if (seed, 'our values') in REFUSED else 'our values'}")
        # That of PAI is not used by the line itself.
        own = sets(f"workload.image={IMAGE},workload.agentImage=") if seed in seeds.ADDED else ()
        workload = engines.render(replace(line, flags=(*line.flags, *own))).workload
        assert workload["command"] == ["tini", "--", "a4-agent", "run"]
        mounted = {mount["mountPath"] for mount in workload["volumeMounts"]}
        expected = mounted - OWN - {fabric.mark for fabric in FABRICS.values()}
        made = made_in(IMAGES[testbed])
        assert [path for path in expected if not any(is_below(one, path) for one in made)] == [], seed
        kept = [path for path in made if path.startswith(("/opt/", "/third_party/", "/usr/local/src/"))]
        assert [path for path in kept if any(is_below(path, mount) for mount in mounted)] == [], seed


def test_the_images_of_a3_keep_their_nccl_tests(engines: Engines) -> None:
    flags = ["-f", str(CHART / "ci/a3-tcpx-values.yaml")]
    mounted = {mount["mountPath"] for mount in engines.with_values(*flags).workload["volumeMounts"]}
    assert "/third_party/nccl-tests-mpi" in made_in("a3-tcpx-pytorch")
    assert not any(is_below("/third_party/nccl-tests-mpi", mount) for mount in mounted)
