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
from tests.chart.pages import KNOWN, OTHER_VERBS, PAGES, RELEASES, all_commands, blocks, words_of
from tests.chart.rules import containers
from tests.chart.schemas import core_problems, problems
from tests.workbench.local.helpers import needs_root

Object = dict[str, Any]

COMMANDS = all_commands()
HELM = [command for command in COMMANDS if command.words[0] == "helm"]
RENDERED = [command for command in HELM if command.words[1] in {*RELEASES, "template"}]
OF_CLUSTERS = [command for command in RENDERED if "chart/cluster" in command.words]
AGENT = [command for command in COMMANDS if command.words[0] == "a4-agent"]


def test_commands_give_objects_that_are_taken(engines: Engines, checkout: Path) -> None:
    for command in RENDERED:
        words = words_of(command, checkout)
        if "cannot be used" in command.output:
            for engine in ENGINES:
                with pytest.raises(HelmRefused) as refused:
                    engines.render(words, engine)
                assert command.output in str(refused.value), engine
            continue
        rendered = engines.render(words)
        judge: Callable[[Object], Iterable[str]] = cluster_schemas.problems if command in OF_CLUSTERS else problems
        assert rendered.objects, command
        assert not [said for found in rendered.objects for said in judge(found)], command
        assert command in OF_CLUSTERS or rendered.jobset["metadata"]["name"] == words.release


def test_there_are_commands() -> None:
    without = {"docs/deployments/README.md", "docs/jobset.md", "docs/tcpx.md"}
    assert {command.page for command in HELM} >= {page.relative_to(ROOT).as_posix() for page in PAGES} - without
    assert all(command.words[1] in {*RELEASES, *OTHER_VERBS, "template"} for command in HELM)


def test_nothing_that_looks_like_a_command_is_left_out() -> None:
    """A block is of commands as a whole, or of output as a whole."""
    left_out = list[str]()
    for page in PAGES:
        for start, lines in blocks(page.read_text()):
            first = [line for line, above in zip(lines, ["", *lines], strict=False) if line and above[-1:] != "\\"]
            words = [line.split()[0] for line in first if not line.startswith((" ", "#", "$ "))]
            are_commands = bool(words) and words[0] in KNOWN
            unknown = set(words) - KNOWN if are_commands else set(words) & {"helm", "gcloud"}
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
"""With torch: tests/cluster/test_torch_workloads.py. Those of README.md: tests/workbench/local."""


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


def test_notes_commas_and_braces_are_those_of_the_page(engines: Engines, checkout: Path) -> None:
    text = (ROOT / "docs/chart.md").read_text()
    first = next(command for command in RENDERED if command.page == "docs/chart.md")
    notes = engines.render(words_of(first, checkout), "helm3").notes
    (shown,) = (lines for _, lines in blocks(text) if lines[0].startswith("my-job: "))
    assert [line for line in shown if line] == [line for line in notes.splitlines() if line]
    (command,) = (command for command in RENDERED if "NCCL_SOCKET_IFNAME" in command.text)
    env = engines.render(words_of(command, checkout)).env
    assert (env["NCCL_SOCKET_IFNAME"], env["MY_FORMAT"]) == ("eth0,eth1", "{rank}")


def test_every_values_file_has_its_page() -> None:
    files = {path.name for path in (CHART / "ci").iterdir()}
    index = (ROOT / "docs/deployments/README.md").read_text()
    assert set(re.findall(r"chart/ci/([\w-]+\.yaml)", index)) == files
    used = {Path(word).name for command in RENDERED for word in command.words if word.startswith("chart/ci/")}
    assert used == files


def keys_of(values: Object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from keys_of(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


TOO_WIDE = {"workload", "network", "volumes"}
"""To name these says nothing about the keys in them."""
NOT_OURS = {"workload.workflow"}


def test_every_value_is_named_and_every_named_value_exists() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    keys = dict(keys_of(values))
    named = set(re.findall(r"`([\w.]+)`", (ROOT / "docs/chart.md").read_text()))
    for key in keys:
        parts = key.split(".")
        ways = {".".join(parts[:count]) for count in range(1, len(parts) + 1)} - TOO_WIDE
        own = {parts[-1]} if key.startswith("network.tcpx.") else set()
        assert named & (ways | own), f"{key} is in values.yaml and not in docs/chart.md"
    groups = "workload|network|volumes|secret|tasSettings|dwsSettings"
    for page in PAGES:
        for name in re.findall(rf"`((?:{groups})\.[\w.]+)[=`]", page.read_text()):
            # Groups have keys below them, and what is empty or null by default may have any.
            free = tuple(f"{key}." for key, value in keys.items() if value is None or value == {})
            there = name.startswith(free) or any(f"{key}.".startswith(f"{name}.") for key in keys)
            assert there or name in NOT_OURS, f"{page} names {name}"


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


def test_the_pod_of_the_page_is_valid_and_that_of_the_chart(engines: Engines, checkout: Path) -> None:
    fences = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/tcpx.md").read_text(), re.DOTALL)
    (shown,) = (one for fence in fences for one in yaml.safe_load_all(fence) if one and one.get("kind") == "Pod")
    assert core_problems(shown) == []
    words = Words(("-f", "chart/ci/a3-tcpx-values.yaml"), "my-pod", "chart", "default", str(checkout))
    theirs, ours = ({one["name"]: one for one in containers(pod)} for pod in (shown["spec"], engines.render(words).pod))
    daemons = theirs["tcpx-daemon"], ours["tcpx-daemon"]
    assert daemons[0]["restartPolicy"] == "Always"
    for key in ("image", "command", "securityContext", "env"):
        assert daemons[0][key] == daemons[1][key]
    assert paths(daemons[0]) == paths(daemons[1])
    assert paths(theirs["workload"]) == paths(ours["workload"]) - {"/etc/a4-agent/secret"}


def paths(one: Object) -> set[str]:
    return {mount["mountPath"] for mount in one["volumeMounts"]}
