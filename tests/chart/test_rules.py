"""Everything that the chart makes of the defaults, of chart/ci and of the old guides' lines, in both engines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.chart import schemas
from tests.chart.cases import CASES, CI_FILES
from tests.chart.every_rule import RULES
from tests.chart.helm import CHART, ENGINES, LOADER, Engines, Object, Words, sets

JOB_SECRET = re.compile(r'(job-secret: )"?[A-Za-z0-9+/=]{40,}"?')


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, words: Callable[[str], Words]) -> Words:
    """Of the module, so that the tests of one case come together, and it is rendered once."""
    return words(request.param)


def test_the_rules_hold(engines: Engines, case: Words) -> None:
    rendered = engines.render(case)
    assert [f"{check.__name__}: {said}" for check in RULES for said in check(rendered)] == []


def test_kubernetes_takes_every_object(engines: Engines, case: Words) -> None:
    assert [said for found in engines.render(case).objects for said in schemas.problems(found)] == []


def without_secret(objects: list[Object]) -> list[Object]:
    kept = [{**found, "data": "random"} if "job-secret" in (found.get("data") or {}) else found for found in objects]
    return sorted(kept, key=lambda found: (found["kind"], found["metadata"]["name"]))


def test_both_engines_make_the_same(engines: Engines, case: Words) -> None:
    three, four = (engines.render(case, engine) for engine in ENGINES)
    assert without_secret(three.objects) == without_secret(four.objects)
    assert three.notes == four.notes


def test_two_renders_differ_in_the_generated_secret_alone(engines: Engines, case: Words) -> None:
    once, again = engines.render(case, "helm4").sources, engines.helm4.render(case).sources
    random = {name for name in once if once[name] != again[name]}
    assert random <= {"a4-agent/templates/job-secret.yaml"}
    assert all(JOB_SECRET.sub("", once[name]) == JOB_SECRET.sub("", again[name]) for name in random)


def test_helm_template_shows_what_install_would_make(engines: Engines, words: Callable[[str], Words]) -> None:
    seen = words("nfs-plain")
    shown = engines.helm3.done("template", *seen.flags, seen.release, seen.chart, "--namespace", seen.namespace)
    objects = [found for found in yaml.load_all(shown, LOADER) if found]
    assert without_secret(objects) == without_secret(engines.render(seen).objects)


def test_the_volumes_of_no_two_releases_meet(engines: Engines) -> None:
    """They are the whole cluster's. Names of namespaces have no dots, and those of releases lose theirs."""
    flags = sets(
        "volumes.nfs.ip=10.0.0.2",
        "volumes.lustre.ip=10.0.0.3,volumes.lustre.filesystem=f,volumes.lustre.instanceName=i",
        "volumes.lustre.projectId=p,volumes.lustre.location=l",
    )
    pairs = [("a", "b-c"), ("a-b", "c"), ("a", "b"), ("b", "a"), ("a-nfs", "b"), ("a", "nfs-b"), ("a", "b-nfs")]
    rendered = [
        engines.with_values(*flags, namespace=namespace, release=release, engine="helm4")
        for namespace, release in pairs
    ]
    volumes = [found["metadata"]["name"] for each in rendered for found in each.kind("PersistentVolume")]
    assert len(set(volumes)) == len(volumes) == 2 * len(pairs)


@pytest.mark.parametrize("path", CI_FILES, ids=lambda path: path.name)
def test_helm_4_lints_it(engines: Engines, path: Path) -> None:
    values = engines.helm3.values(Words(("-f", str(path))))
    assert not engines.helm4.ask("lint", str(CHART), values)["errors"]


def test_helm_3_lints_it(engines: Engines) -> None:
    """One file is enough: what it asks of templates is asked of all by the rules."""
    said = engines.helm3.run("lint", "--strict", str(CHART), "-f", str(CI_FILES[0]))
    assert said.returncode == 0, said.stdout + said.stderr
