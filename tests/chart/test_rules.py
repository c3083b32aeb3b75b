"""Everything that the chart makes of the defaults, of chart/ci and of the old guides' lines, in both engines."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import yaml

from tests.chart import schemas
from tests.chart.cases import CASES, CI_FILES
from tests.chart.every_rule import RULES
from tests.chart.helm import CHART, ENGINES, KUBERNETES, LOADER, Engines, Words, sets, without_secret

JOB_SECRET = re.compile(r'(job-secret: )"?[A-Za-z0-9+/=]{40,}"?')


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, words: Callable[[str], Words]) -> Words:
    """Scoped to the module, so that the tests of one case come together, and it is rendered once."""
    return words(request.param)


def test_both_engines_make_the_same(engines: Engines, case: Words) -> None:
    """What the flags mean, the objects, and the notes; and that a second render is the first, but for the secret."""
    three, four = (engines.render(case, engine) for engine in ENGINES)
    assert three.values == four.values
    assert without_secret(three.objects) == without_secret(four.objects)
    assert three.notes == four.notes


def test_the_rules_hold(engines: Engines, case: Words) -> None:
    rendered = engines.render(case)
    assert [f"{check.__name__}: {said}" for check in RULES for said in check(rendered)] == []


def test_kubernetes_takes_every_object(engines: Engines, case: Words) -> None:
    assert [said for found in engines.render(case).objects for said in schemas.problems(found)] == []


@pytest.mark.parametrize("name", ["defaults", "a release that is a truth"])
def test_two_renders_differ_in_the_generated_secret_alone(
    engines: Engines, words: Callable[[str], Words], name: str
) -> None:
    """In its text too. That the objects of two renders are the same, the two engines show of every case."""
    once, again = (engines.helm4.render(words(name)).sources for _ in range(2))
    random = {name for name in once if once[name] != again[name]}
    assert random <= {"a4-agent/templates/job-secret.yaml"}
    assert all(JOB_SECRET.sub("", once[name]) == JOB_SECRET.sub("", again[name]) for name in random)


def test_helm_template_shows_what_install_would_make(engines: Engines, words: Callable[[str], Words]) -> None:
    seen = words("nfs-plain")
    shown = engines.helm3.done(
        "template", *KUBERNETES, *seen.flags, seen.release, seen.chart, "--namespace", seen.namespace
    )
    objects = [found for found in yaml.load_all(shown, LOADER) if found]
    assert without_secret(objects) == without_secret(engines.render(seen, "helm3").objects)


def test_the_volumes_of_no_two_releases_meet(engines: Engines) -> None:
    """They are the whole cluster's. Names of namespaces have no dots, and those of releases lose theirs."""
    flags = sets(
        "volumes.nfs.ip=10.0.0.2",
        "volumes.lustre.ip=10.0.0.3,volumes.lustre.filesystem=f,volumes.lustre.instanceName=i",
        "volumes.lustre.projectId=p,volumes.lustre.location=l",
    )
    pairs = [("a", "b-c"), ("a-b", "c"), ("a", "b"), ("b", "a"), ("a-nfs", "b"), ("a", "nfs-b"), ("a", "b-nfs")]
    rendered = [engines.with_values(*flags, namespace=namespace, release=release) for namespace, release in pairs]
    volumes = [found["metadata"]["name"] for each in rendered for found in each.kind("PersistentVolume")]
    assert len(set(volumes)) == len(volumes) == 2 * len(pairs)


def test_helm_4_lints_it(engines: Engines) -> None:
    """With one file: what it asks of templates, the rules ask of all."""
    values = engines.helm4.values(Words(("-f", str(CI_FILES[0]))))
    assert not engines.helm4.ask("lint", str(CHART), values)["errors"]


def test_helm_3_lints_it(engines: Engines) -> None:
    said = engines.helm3.run("lint", "--strict", str(CHART), "-f", str(CI_FILES[0]))
    assert said.returncode == 0, said.stdout + said.stderr


def test_lint_of_the_defaults_misses_the_image_alone(engines: Engines) -> None:
    """Which has no default; whatever else is wrong is an error."""
    assert not engines.helm4.ask("lint", str(CHART), {})["errors"]
    said = engines.helm3.run("lint", "--strict", str(CHART))
    assert (said.returncode, "Missing required value: a4-agent: workload.image" in said.stderr) == (0, True)
    said = engines.helm3.run("lint", str(CHART), "--set", "workload.gpu=8")
    assert (said.returncode, "did you mean workload.gpus?" in said.stdout) == (1, True)
