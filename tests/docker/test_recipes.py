"""The recipes of the images: style, what a build finds, what Cloud Build makes, and what the chart expects of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from agent import paths
from agent.fabrics import a4_deepep
from agent.workloads.pai_megatron import versions
from tests.docker.context import write_context

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(path.parent for path in ROOT.glob("docker/*/Dockerfile"))
DOCKERFILES = [ROOT / "docker/agent.Dockerfile", *(recipe / "Dockerfile" for recipe in RECIPES)]
BASES = {
    "a3-tcpx-pytorch": "24.02-py3",
    "a4-agent-cpu": "12-slim",
    "nemo-deepep": "25.11",
    "pai_megatron_patch_a4": "25.04",
    "testbed": "nemo25.04-gib1.0.6-A4",
    "unified-testbed-pytorch": "25.12-py3",
}
"""Image → tag of what it is made from."""
OF_OLD = {"nemo-deepep", "pai_megatron_patch_a4", "testbed", "unified-testbed-pytorch"}
"""Names of images that the old testbeds build, too."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT / "docker").as_posix()


def build_of(recipe: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((recipe / "cloudbuild.yml").read_text())
    return found


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """(word, text) of each: continued lines joined, comments dropped."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n", " ", "\n".join(lines))
    return [
        (word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in text.splitlines()) if word
    ]


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_context(tmp_path_factory.mktemp("context"))


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name_of)
def test_hadolint_has_nothing_to_say(dockerfile: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--no-color", dockerfile], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_scripts_that_start_containers_are_good() -> None:
    subprocess.run(["shellcheck", ROOT / "docker/a4-entrypoint", ROOT / "docker/with-agent"], check=True, timeout=60)


def test_what_is_sent_is_small_and_has_no_tests(context: Path) -> None:
    sent = {path.relative_to(context).as_posix() for path in context.rglob("*") if path.is_file()}
    package = {"LICENSE", "README.md", "docs/result.schema.json", "pyproject.toml", "setup.cfg", "setup.py"}
    sources = ("agent/", "bin/", "docker/", "entrypoints/", "env/")
    assert {name for name in sent if not name.startswith(sources)} == package
    assert (ROOT / ".dockerignore").read_text() == (ROOT / ".gcloudignore").read_text()


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name_of)
def test_a_build_finds_all_that_it_copies(dockerfile: Path, context: Path) -> None:
    copied = [text.split() for word, text in instructions(dockerfile) if word == "COPY"]
    sources = [source for words in copied if not words[0].startswith("--from") for source in words[:-1]]
    assert sources
    assert [source for source in sources if not (context / source).exists()] == []


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name_of)
def test_a_step_is_there_when_it_is_run(dockerfile: Path) -> None:
    there: set[str] = set()
    for word, text in instructions(dockerfile):
        if word == "COPY":
            *sources, target = text.split()
            there |= {target + Path(source).name if target.endswith("/") else target for source in sources}
        elif word == "RUN":
            called = re.findall(r"/(?:usr/local/src/a4-agent|tmp)/\S+\.(?:sh|txt|env)", text)
            assert set(called) <= there, text
            # Steps call others, which lie beside them.
            for path in [path for path in called if path.endswith(".sh")]:
                script = (ROOT / "docker/steps" / Path(path).name).read_text()
                needed = {path.rpartition("/")[0] + "/" + name for name in re.findall(r"\$steps/([\w-]+\.sh)", script)}
                assert needed <= there, f"{path} calls {needed - there}"


@pytest.mark.parametrize("group", ["PACKAGES", "EXTENSIONS"])
def test_the_packages_of_the_pipelines_are_of_the_agents_table(group: str, tmp_path: Path) -> None:
    """The step itself: pip shows what it is given, and packages are there as `versions` says."""
    rows: Mapping[str, versions.PackageRow] = getattr(versions, group)
    for name in ("docker/steps/pai-packages.sh", "docker/steps/python-packages.sh", "entrypoints/check-packages.py"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "python3").write_text(
        '#!/bin/sh\ncase "$*" in *"torch.version"*) echo 2.9 ;; "-m pip"*) for file; do :; done; cat "$file" ;; '
        f'*) exec {sys.executable} "$@" ;; esac\n'
    )
    (tmp_path / "python3").chmod(0o755)
    site = tmp_path / "site"
    for name, row in rows.items():
        (site / f"{name.replace('-', '_')}-{row.installed}.dist-info").mkdir(parents=True)
        (site / f"{name.replace('-', '_')}-{row.installed}.dist-info/METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {row.installed}\n"
        )
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(site)}
    argv = [tmp_path / "pai-packages.sh", ROOT / "agent/workloads/pai_megatron/versions.py", Path(group)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [f"{name}=={row.installed}" for name, row in rows.items()]
    recipe = (ROOT / "docker/unified-testbed-pytorch/Dockerfile").read_text()
    assert f"versions.py {group}\n" in recipe
    # A package that another has replaced.
    moved = next(path for path in site.iterdir() if path.name.startswith(("transformers", "triton")))
    (moved / "METADATA").write_text((moved / "METADATA").read_text().replace("Version: ", "Version: 1", 2))
    ended = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "installed is other than" in ended.stderr


@pytest.mark.parametrize("scripts", ["qwen3", "qwen3_next"])
def test_what_the_recipe_installs_the_check_accepts(scripts: str) -> None:
    rows = {**versions.PACKAGES, **versions.EXTENSIONS}
    for name, wanted in versions.accepted(rows, scripts).items():
        assert Requirement(wanted).specifier.contains(rows[name].installed), wanted
    assert set(versions.EXTENSIONS) <= set(versions.accepted(rows, "qwen3_next"))


def test_nccl_and_ddp_do_not_wait_for_extensions() -> None:
    """What compiles is in a stage of its own, after the one that is enough for them."""
    found = instructions(ROOT / "docker/unified-testbed-pytorch/Dockerfile")
    stages = [number for number, (word, _) in enumerate(found) if word == "FROM"]
    assert [found[number][1] for number in stages] == ["${BASE} AS testbed", "testbed AS qwen3-next"]
    assert [text for _, text in found[stages[0] : stages[1]] if "EXTENSIONS" in text] == []
    assert [word for word, _ in found[stages[1] :]] == ["FROM", "RUN"]
    assert build_of(ROOT / "docker/unified-testbed-pytorch")["substitutions"]["_TARGET"] == "qwen3-next"


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_the_tag_says_the_base_and_the_docs_list_it(recipe: Path) -> None:
    base = next(text for word, text in instructions(recipe / "Dockerfile") if word == "ARG")
    assert base.startswith("BASE=")
    assert base.rpartition(":")[2] == BASES[recipe.name]
    tag = build_of(recipe)["substitutions"]["_IMAGE_TAG"]
    assert f"`{recipe.name}:{tag}`" in (ROOT / "docs/images.md").read_text()
    base, own, _ = tag.partition("-a4.")
    assert base in BASES[recipe.name] or tag == "debian12"
    assert bool(own) == (recipe.name in OF_OLD), "an image of an old testbed is not to be overwritten"


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_cloud_build_makes_the_image_and_puts_the_agent_on_top(recipe: Path) -> None:
    build = build_of(recipe)
    own, agent = (" ".join(step["args"]) for step in build["steps"][1:])
    target = "${_ARTIFACT_REGISTRY}/${_IMAGE_NAME}:${_IMAGE_TAG}"
    stage = " --target=${_TARGET}" if "_TARGET" in build["substitutions"] else ""
    assert own == f"build --file=docker/{recipe.name}/Dockerfile{stage} --tag=without-agent ."
    assert agent == f"build --file=docker/agent.Dockerfile --build-arg=BASE=without-agent --tag={target} ."
    assert build["images"] == [target]
    assert build["substitutions"]["_IMAGE_NAME"] == recipe.name
    assert "_ARTIFACT_REGISTRY" not in build["substitutions"], "whoever builds names it"
    assert re.fullmatch(r"\d+s", build["timeout"])
    assert re.fullmatch(r"E2_\w+", build["options"]["machineType"])


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_a_build_of_the_wrong_source_says_what_to_do(recipe: Path, context: Path, tmp_path: Path) -> None:
    look = build_of(recipe)["steps"][0]
    words = [look["entrypoint"], *look["args"]]
    assert subprocess.run(words, cwd=context, timeout=60).returncode == 0
    wrong = subprocess.run(words, cwd=context / "docker", capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 66
    assert "gcloud builds submit .." in wrong.stderr


def test_deepep_has_what_its_guide_and_the_profile_expect() -> None:
    found = instructions(ROOT / "docker/nemo-deepep/Dockerfile")
    variables = dict(pair.split("=", 1) for word, text in found if word == "ENV" for pair in text.split())
    assert variables["A4_SSH_PORT"] == "222"
    texts = " ".join(text for word, text in found if word == "RUN")
    assert f"{paths.DEEPEP_DIR} {a4_deepep.SCRIPT}" in texts


def test_no_recipe_has_an_address_of_a_build_machine_or_a_key() -> None:
    for path in [path for path in (ROOT / "docker").rglob("*") if path.is_file()]:
        text = path.read_text()
        assert not re.search(r"index-url|trusted-host|PRIVATE KEY|ssh-keygen", text), path
        hosts = set(re.findall(r"https?://([^/\s]+)", text))
        assert hosts <= {"github.com", "packages.cloud.google.com"}, path
