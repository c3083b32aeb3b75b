"""What the chart renders, judged by a real API server with the real webhooks of JobSet and Kueue.

JobSet's webhook does not look into the template of a Job: the Jobs that its controller would make are judged, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.chart.cases import CASES, CI_FILES
from tests.chart.helm import Engines, Words
from tests.chart.pages import Command, words_of
from tests.chart.test_docs import OF_CLUSTERS, RENDERED
from tests.kubernetes.control_plane import ControlPlane, Refused
from tests.kubernetes.controllers import Object

TEMPLATE = ("spec", "replicatedJobs", 0, "template")
POD = (*TEMPLATE, "spec", "template")
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
ELSEWHERE = ("networking.gke.io", "monitoring.")
"""Kinds of these groups are known on GKE, or where Prometheus is, alone."""
RELEASES = [command for command in RENDERED if command not in OF_CLUSTERS and "cannot be used" not in command.output]


@pytest.mark.parametrize("case", CASES)
def test_everything_rendered_is_stored_as_it_is(
    plane: ControlPlane, engines: Engines, words: Callable[[str], Words], case: str
) -> None:
    check(plane, engines, words(case))


@pytest.mark.parametrize("command", [*RELEASES, *OF_CLUSTERS], ids=str)
def test_what_a_command_of_the_pages_renders(
    plane: ControlPlane, engines: Engines, checkout: Path, command: Command
) -> None:
    check(plane, engines, words_of(command, checkout))


@pytest.mark.parametrize("file", [path for path in CI_FILES if "kueue" in path.name], ids=lambda path: path.stem)
def test_kueue_knows_a_job_with_a_queue(plane: ControlPlane, engines: Engines, file: Path) -> None:
    """Its webhook holds the job until there is room, also without the `suspend` that the chart sets itself."""
    jobset = deepcopy(engines.render(Words(("-f", str(file)))).jobset)
    assert jobset["spec"].pop("suspend") is True
    (stored,) = judged(plane, [jobset], "team-a")
    assert stored["spec"]["suspend"] is True


@pytest.mark.parametrize(
    ("case", "path", "value", "said"),
    [
        ("defaults", ("spec", "failurPolicy"), {}, "unknown field"),
        ("defaults", (*POD, "spec", "hostNetwrok"), True, "unknown field"),
        ("defaults", (*POD, "spec", "restartPolicy"), "Sometimes", "Unsupported value"),
        ("defaults", (*POD, "spec", "containers", 0, "volumeMounts", 0, "name"), "nothing", "Not found"),
        ("defaults", (*TEMPLATE, "spec", "completions"), -1, "must be greater than or equal to 0"),
        (
            "defaults",
            ("spec", "successPolicy"),
            {"operator": "All", "targetReplicatedJobs": ["nobody"]},
            "invalid replicatedJob name",
        ),
        (
            "kueue-tas-required",
            (*POD, "metadata", "annotations", "kueue.x-k8s.io/podset-preferred-topology"),
            "kubernetes.io/hostname",
            "must not contain more than one topology annotation",
        ),
    ],
)
def test_what_is_wrong_is_refused(
    plane: ControlPlane,
    engines: Engines,
    words: Callable[[str], Words],
    case: str,
    path: Sequence[str | int],
    value: Any,
    said: str,
) -> None:
    """The judges can say no: the schemas, Kubernetes' own rules, JobSet's webhook, Kueue's."""
    jobset = deepcopy(engines.render(words(case)).jobset)
    change(jobset, path, value)
    with pytest.raises(Refused, match=said):
        judged(plane, [jobset, *jobs(jobset)], "team-a")


def check(plane: ControlPlane, engines: Engines, words: Words) -> None:
    """The server takes each object of a release, and drops nothing of it."""
    rendered = engines.render(words)
    sent = [each for each in rendered.objects if not each["apiVersion"].startswith(ELSEWHERE)]
    sent += [job for each in sent if each["kind"] == "JobSet" for job in jobs(each)]
    stored = judged(plane, sent, words.namespace)
    pairs = list(zip(sent, stored, strict=True))
    assert [f"{one['kind']}{place}" for one, there in pairs for place in lost(one, there)] == []


def judged(plane: ControlPlane, objects: list[Object], namespace: str) -> list[Object]:
    """As they would be stored: validation and webhooks see them, and nothing is kept."""
    for each in objects:
        plane.make_namespace(each["metadata"].get("namespace", namespace))
    return plane.create(objects, namespace, "--dry-run=server")


def jobs(jobset: Object) -> list[Object]:
    """As JobSet's controller makes them, one of each kind."""
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"job-{number}"},
            "spec": each["template"]["spec"],
        }
        for number, each in enumerate(jobset["spec"]["replicatedJobs"])
    ]


def lost(sent: Any, stored: Any, path: str = "") -> Iterator[str]:
    """Where what is stored is not what was sent. The server adds fields, and drops those that are empty."""
    if isinstance(sent, dict):
        there = stored if isinstance(stored, dict) else {}
        for name, value in sent.items():
            yield from lost(value, there.get(name), f"{path}.{name}")
    elif isinstance(sent, list):
        found = stored if isinstance(stored, list) else []
        if len(found) < len(sent):
            yield f"{path}: {len(sent)} entries, {len(found)} are stored"
        for at, (value, there) in enumerate(zip(sent, found, strict=False)):
            yield from lost(value, there, f"{path}[{at}]")
    elif sent not in (None, "", 0, False) and quantity(sent) != quantity(stored):
        yield f"{path}: {sent!r} is stored as {stored!r}"


def quantity(value: Any) -> Any:
    """The number that a quantity stands for, which the server writes in its own way; else the text."""
    text = str(value)
    number = text.rstrip("kMGTi")
    try:
        return Fraction(number) * UNITS[text[len(number) :]]
    except (ValueError, KeyError):
        return text


def change(target: Any, path: Sequence[str | int], value: Any) -> None:
    *parts, last = path
    for part in parts:
        target = target[part]
    target[last] = value


def test_a_field_that_is_dropped_is_seen() -> None:
    sent = {"spec": {"a": "1Gi", "b": [{"c": 1}, {"c": 2}], "empty": ""}}
    stored = json.loads('{"spec": {"a": "1024Mi", "b": [{"c": 1}]}, "status": {}}')
    assert list(lost(sent, stored)) == [".spec.b: 2 entries, 1 are stored"]
    assert list(lost({"a": {"b": True}}, {"a": {}})) == [".a.b: True is stored as None"]
