"""Everything that the chart makes of the defaults, of chart/ci and of the old guides' lines, in both engines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import yaml

from tests.chart import schemas
from tests.chart.cases import CASES, CI_FILES
from tests.chart.helm import CHART, ENGINES, LOADER, Engines, Object, Words
from tests.chart.pod_rules import RULES

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


def test_two_releases_share_no_object(engines: Engines, case: Words) -> None:
    names = [
        {(found["kind"], found["metadata"]["name"]) for found in engines.render(each, "helm4").objects}
        for each in (case, replace(case, release="other"))
    ]
    assert not names[0] & names[1]


def test_helm_template_shows_what_install_would_make(engines: Engines, words: Callable[[str], Words]) -> None:
    seen = words("nfs-plain")
    shown = engines.helm3.done("template", *seen.flags, seen.release, seen.chart, "--namespace", seen.namespace)
    objects = [found for found in yaml.load_all(shown, LOADER) if found]
    assert without_secret(objects) == without_secret(engines.render(seen).objects)


def test_one_release_in_two_namespaces_shares_no_volume(engines: Engines) -> None:
    flags = ("--set", "volumes.nfs.ip=10.0.0.2")
    one, other = (engines.with_values(*flags, namespace=name) for name in ("team-a", "team-b"))
    assert one.kind("PersistentVolume")[0]["metadata"]["name"] != other.kind("PersistentVolume")[0]["metadata"]["name"]


@pytest.mark.parametrize("path", CI_FILES, ids=lambda path: path.name)
def test_helm_lints_it(engines: Engines, path: object) -> None:
    said = engines.helm3.run("lint", "--strict", str(CHART), "-f", str(path))
    assert said.returncode == 0, said.stdout + said.stderr
    values = engines.helm3.values(Words(("-f", str(path))))
    assert not engines.helm4.ask("lint", str(CHART), values)["errors"]
