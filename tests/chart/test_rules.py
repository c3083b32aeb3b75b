"""Everything that the chart makes of the defaults, of chart/ci and of the old guides' lines, in both engines."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.chart import pod_rules, reference_rules, rules, schemas
from tests.chart.cases import CASES, CI_FILES
from tests.chart.helm import CHART, ENGINES, KUBERNETES, Engines, Words, objects_in, sets, without_secret

MODULES = (rules, reference_rules, pod_rules, schemas)
JOB_SECRET = re.compile(r'(job-secret: )"?[A-Za-z0-9+/=]{40,}"?')
BY_BOTH = (
    "defaults",
    "a3-tcpx-multi-network",
    "agent-image",
    "existing-secrets",
    "kueue-tas-required",
    "qwen3-next-json-sft",
    "s001-sft old values",
    "s003-pai old values",
    "a release that is a truth",
    "arguments of all kinds",
    "claims of a class and number of one's own, in a queue",
    "every restart",
    "no groups at all",
    "numbers as words",
    "security, accelerator, token and a configuration of one's own",
    "truths as words",
    "variables that are the chart's by default",
)
"""Every template, every flag and values of every type."""


@pytest.mark.parametrize("case", CASES)
def test_the_rules_hold(engines: Engines, words: Callable[[str], Words], case: str) -> None:
    rendered = engines.render(words(case))
    assert [f"{check.__name__}: {said}" for check in rules.RULES for said in check(rendered)] == []


@pytest.mark.parametrize("case", BY_BOTH)
def test_both_engines_make_the_same(engines: Engines, words: Callable[[str], Words], case: str) -> None:
    """What the flags mean, the objects, and the notes; and that a second render is the first, but for the secret."""
    three, four = (engines.render(words(case), engine) for engine in ENGINES)
    assert three.values == four.values
    assert without_secret(three.objects) == without_secret(four.objects)
    assert three.notes == four.notes


def test_two_renders_differ_in_the_generated_secret_alone(engines: Engines, words: Callable[[str], Words]) -> None:
    """In its text too. That the objects of two renders are the same, the two engines show of every case."""
    for name in ("defaults", "a release that is a truth"):
        once, again = (engines.helm4.render(words(name)).sources for _ in range(2))
        random = {name for name in once if once[name] != again[name]}
        assert random <= {"a4-agent/templates/job-secret.yaml"}
        assert all(JOB_SECRET.sub("", once[name]) == JOB_SECRET.sub("", again[name]) for name in random)


def test_helm_template_shows_what_install_would_make(engines: Engines, words: Callable[[str], Words]) -> None:
    seen = words("nfs-plain")
    shown = engines.helm3.done(
        "template", *KUBERNETES, *seen.flags, seen.release, seen.chart, "--namespace", seen.namespace
    )
    assert without_secret(objects_in(shown)) == without_secret(engines.render(seen, "helm3").objects)


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


def test_both_engines_lint_it(engines: Engines) -> None:
    """With one file, and of the defaults, which lack the image alone; whatever else is wrong is an error."""
    file = ("-f", str(CI_FILES[0]))
    for values in (engines.helm4.values(Words(file)), {}):
        assert not engines.helm4.ask("lint", str(CHART), values)["errors"]
    for flags, code, words in (
        (file, 0, "0 chart(s) failed"),
        ((), 0, "Missing required value: a4-agent: workload.image"),
        (("--set", "workload.gpu=8"), 1, "did you mean workload.gpus?"),
    ):
        said = engines.helm3.run("lint", "--strict", str(CHART), *flags)
        assert (said.returncode, words in said.stdout + said.stderr) == (code, True)
