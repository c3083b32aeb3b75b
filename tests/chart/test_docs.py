"""What the pages about the chart say is what the chart does: their commands are run, as far as they need no cloud."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.catalogue import RUNNABLE
from agent.commands import VERBS
from tests.chart import cluster_schemas
from tests.chart.helm import CHART, ENGINES, ROOT, Engines, HelmRefused, Words
from tests.chart.pages import (
    NEEDS_CLOUD,
    OF_THE_SHELL,
    OTHER_VERBS,
    PAGES,
    RELEASES,
    RUN_ELSEWHERE,
    Command,
    all_commands,
    blocks,
    words_of,
)
from tests.chart.schemas import core_problems, problems
from tests.local.helpers import needs_root

Object = dict[str, Any]

COMMANDS = all_commands()
HELM = [command for command in COMMANDS if command.words[0] == "helm"]
RENDERED = [command for command in HELM if command.words[1] in {*RELEASES, "template"}]
OF_CLUSTERS = [command for command in RENDERED if "chart/cluster" in command.words]
AGENT = [command for command in COMMANDS if command.words[0] == "a4-agent"]


@pytest.mark.parametrize("command", RENDERED, ids=str)
def test_a_command_gives_objects_that_are_taken(command: Command, engines: Engines, checkout: Path) -> None:
    words = words_of(command, checkout)
    if "cannot be used" in command.output:
        for engine in ENGINES:
            with pytest.raises(HelmRefused) as refused:
                engines.render(words, engine)
            assert command.output in str(refused.value), engine
        return
    rendered = engines.render(words)
    judge: Callable[[Object], Iterable[str]] = cluster_schemas.problems if command in OF_CLUSTERS else problems
    assert rendered.objects
    assert not [said for found in rendered.objects for said in judge(found)]
    assert command in OF_CLUSTERS or rendered.jobset["metadata"]["name"] == words.release


def test_there_are_commands() -> None:
    assert {command.page for command in HELM} >= {page.relative_to(ROOT).as_posix() for page in PAGES} - {
        "docs/deployments/README.md",
        "docs/jobset.md",
        "docs/tcpx.md",
    }
    assert all(command.words[1] in {*RELEASES, *OTHER_VERBS, "template"} for command in HELM)


def test_nothing_that_looks_like_a_command_is_left_out() -> None:
    """A block is of commands as a whole, or of output as a whole."""
    known, left_out = {"helm", "a4-agent", *NEEDS_CLOUD, *OF_THE_SHELL, *RUN_ELSEWHERE}, list[str]()
    for page in PAGES:
        for start, lines in blocks(page.read_text()):
            first = [
                line for line, above in zip(lines, ["", *lines], strict=False) if line and not above.endswith("\\")
            ]
            words = [line.split()[0] for line in first if not line.startswith((" ", "#", "$ "))]
            are_commands = bool(words) and words[0] in known
            unknown = set(words) - known if are_commands else set(words) & {"helm", "gcloud"}
            if unknown and not any(line.startswith("$ ") for line in lines):
                left_out.append(f"{page.name}:{start}: {unknown}")
    assert left_out == []


def test_verbs_and_workloads_of_the_pages_are_there() -> None:
    """What they do is the matter of tests/commands and tests/cluster."""
    options = {"--nodes", "--hosts", "--exclude"}
    for command in AGENT:
        verb, *rest = command.words[1:]
        named = [word for at, word in enumerate(rest) if not word.startswith("-") and rest[at - 1] not in options]
        assert verb in VERBS, command
        assert verb != "run" or named[0] in RUNNABLE, command


LOCAL = [
    command
    for command in AGENT
    if command.words[1] == "local" and command.page.startswith("docs/deployments") and ".venv-torch" not in command.text
]
"""With torch: tests/cluster/test_torch_workloads.py. Those of README.md: tests/local."""


@needs_root
@pytest.mark.parametrize("page", sorted({command.page for command in LOCAL}))
def test_what_can_be_tried_on_one_machine_works(page: str, checkout: Path) -> None:
    """The lines of one page, one after another, in clusters of a name that no other checkout's tests have."""
    name = f"docs-{secrets.token_hex(4)}"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    try:
        for command in (command for command in LOCAL if command.page == page):
            _, local, verb, *rest = command.words
            typed = ["a4-agent", local, verb, "--name", name, *rest]
            done = subprocess.run(typed, cwd=checkout, env=environment, capture_output=True, text=True, timeout=100)
            assert done.returncode == 0, (str(command), done)
    finally:
        subprocess.run(["a4-agent", "local", "down", "--name", name], env=environment, capture_output=True, timeout=60)


def test_the_notes_are_those_of_the_page(engines: Engines, checkout: Path) -> None:
    text = (ROOT / "docs/chart.md").read_text()
    first = next(command for command in RENDERED if command.page == "docs/chart.md")
    notes = engines.render(words_of(first, checkout), "helm3").notes
    (shown,) = (lines for _, lines in blocks(text) if lines[0].startswith("my-job: "))
    assert [line for line in shown if line] == [line for line in notes.splitlines() if line]


def test_a_comma_and_braces_are_written_as_the_page_says(engines: Engines, checkout: Path) -> None:
    (command,) = (command for command in RENDERED if "NCCL_SOCKET_IFNAME" in command.text)
    env = engines.render(words_of(command, checkout)).env
    assert (env["NCCL_SOCKET_IFNAME"], env["MY_FORMAT"]) == ("eth0,eth1", "{rank}")


def test_numbers_of_values_files_are_read_as_the_page_says(engines: Engines, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("workload: {env: {A: 1.10, B: 0123, C: 1234567890123456789, D: '1234567890123456789'}}\n")
    env = engines.with_values("-f", str(values), engine="helm3").env
    assert (env["A"], env["B"], env["D"]) == ("1.1", "83", "1234567890123456789")
    assert env["C"] != env["D"]


def test_every_values_file_has_its_page() -> None:
    files = {path.name for path in (CHART / "ci").iterdir()}
    index = (ROOT / "docs/deployments/README.md").read_text()
    assert set(re.findall(r"chart/ci/([\w-]+\.yaml)", index)) == files
    used = {Path(word).name for command in RENDERED for word in command.words if word.startswith("chart/ci/")}
    assert used == files


def keys_of(values: Object, prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from keys_of(value, f"{prefix}{key}.")
        else:
            yield prefix + key


TOO_WIDE = {"workload", "network", "volumes"}
"""To name these says nothing about the keys in them."""
NOT_OURS = {"workload.workflow"}


def test_every_value_is_named() -> None:
    named = set(re.findall(r"`([\w.]+)`", (ROOT / "docs/chart.md").read_text()))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for key in keys_of(values):
        parts = key.split(".")
        ways = {".".join(parts[:count]) for count in range(1, len(parts) + 1)} - TOO_WIDE
        own = {parts[-1]} if key.startswith("network.tcpx.") else set()
        assert named & (ways | own), f"{key} is in values.yaml and not in docs/chart.md"


def test_every_named_value_exists() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    groups = "workload|network|volumes|secret|tasSettings|dwsSettings"
    named = {
        (page.name, name) for page in PAGES for name in re.findall(rf"`((?:{groups})\.[\w.]+)[=`]", page.read_text())
    }
    for page, name in named:
        at: Any = values
        for part in name.split("."):
            if name in NOT_OURS or at is None or at == {}:
                break
            assert part in at, f"{page} names {name}"
            at = at[part]


def test_figures_of_the_pages_are_the_chart_s() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    chart, tcpx, migrating = ((ROOT / "docs" / name).read_text() for name in ("chart.md", "tcpx.md", "migrating.md"))
    assert f"| gIB | `latest`, v1.0.5, v1.0.6, v1.1.0 | {values['network']['gibVersion']} |" in migrating
    assert f"{values['workload']['gpus']} by default" in chart
    assert f"seconds that a pod has to end, {values['workload']['terminationGracePeriodSeconds']};" in chart
    assert values["network"]["tcpx"]["daemonImage"] in tcpx
    cluster, gke = (CHART / "cluster/values.yaml").read_text(), (ROOT / "docs/gke.md").read_text()
    gib = values["network"]["gibVersion"]
    assert f"nccl-plugin-gib:{gib}" in cluster
    assert f"| gIB {gib} | installer {yaml.safe_load(cluster)['tcpx']['image'].rpartition(':')[2]} with daemon" in gke
    assert (values["queue"], values["network"]["sshPort"]) == (None, None)


def fences(page: str) -> list[Object]:
    text = (ROOT / page).read_text()
    return [
        found
        for fence in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        for found in yaml.safe_load_all(fence)
        if found
    ]


(POD,) = (found for found in fences("docs/tcpx.md") if found.get("kind") == "Pod")


def container(pod: Object, name: str) -> Object:
    spec = pod["spec"]
    (found,) = (one for one in [*spec.get("initContainers", []), *spec["containers"]] if one["name"] == name)
    return dict(found)


def test_the_pod_of_the_page_is_valid() -> None:
    assert core_problems(POD) == []
    assert container(POD, "tcpx-daemon")["restartPolicy"] == "Always"


def test_the_pod_of_the_page_is_that_of_the_chart(engines: Engines, checkout: Path) -> None:
    words = Words(("-f", "chart/ci/a3-tcpx-values.yaml"), "my-pod", "chart", "default", str(checkout))
    pod = engines.render(words).pod
    ours, shown = container({"spec": pod}, "tcpx-daemon"), container(POD, "tcpx-daemon")
    assert {key: shown[key] for key in ("image", "command", "securityContext", "env")} == {
        key: ours[key] for key in ("image", "command", "securityContext", "env")
    }
    assert paths(shown) == paths(ours)
    assert paths(container(POD, "workload")) == paths(container({"spec": pod}, "workload")) - {"/etc/a4-agent/secret"}


def paths(one: Object) -> set[str]:
    return {mount["mountPath"] for mount in one["volumeMounts"]}
