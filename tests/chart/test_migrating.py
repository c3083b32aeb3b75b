"""docs/migrating.json says what becomes of what the old testbeds had; docs/migrating.md shows it to people."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from agent.commands import VERBS
from tests.chart import seeds
from tests.chart.helm import CHART, IMAGE, ROOT, Engines, HelmRefused, Rendered, Words, without_secret

Entry = dict[str, str]
Render = Callable[[Entry, str], Rendered]
DOCUMENT = json.loads((ROOT / "docs" / "migrating.json").read_text())
ENTRIES: list[Entry] = DOCUMENT["entries"]
TESTBEDS = {testbed.old: testbed for testbed in (seeds.UNIFIED, seeds.DEEPEP)}
KINDS = {"same", "changed", "gone"}


def of(what: str, *kinds: str) -> list[Entry]:
    return [entry for entry in ENTRIES if entry["what"] == what and entry["is"] in (kinds or KINDS)]


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories of testbeds with our chart, where a line of old is typed."""
    made = {old: seeds.make_tree(of, "our values", tmp_path_factory.mktemp(old)) for old, of in TESTBEDS.items()}
    (made["unified"] / "my-launcher.sh").write_text("bash train.sh\n")
    # The sizes of the script that this one stands in for.
    arguments = yaml.safe_load((CHART / "files" / "old-scripts.yaml").read_text())["examples"][0]["arguments"]
    table = made["unified"] / "gke-runtime" / "jobset" / "files" / "old-scripts.yaml"
    known = yaml.safe_load(table.read_text())
    for example in known["examples"]:
        example["arguments"] = arguments if example["workload"] == "nccl" else None
    table.write_text(yaml.safe_dump(known))
    return made


@pytest.fixture
def render(engines: Engines, recipes: dict[str, Path]) -> Render:
    """The chart with flags of an entry."""

    def rendered(entry: Entry, flags: str) -> Rendered:
        recipe = recipes[entry.get("testbed", "unified")]
        given = ["--set", f"workload.image={IMAGE}", *shlex.split(entry.get("beside", "")), *shlex.split(flags)]
        return engines.render(Words(tuple(given), "demo", "gke-runtime/jobset", place=str(recipe)))

    return rendered


def test_entries_have_what_programs_read() -> None:
    assert DOCUMENT["version"] == 1
    for entry in ENTRIES:
        assert entry.keys() <= {"what", "old", "new", "is", "how", "beside", "testbed"}
        assert entry["what"] in {"value", "variable", "file", "command", "image"}
        assert entry["is"] in KINDS
        assert entry["is"] == "same" or entry.get("how"), entry["old"]


def test_an_old_value_is_what_is_written_now_or_refused(render: Render) -> None:
    for entry in of("value", "same", "changed"):
        old, new = (without_secret(render(entry, entry[when]).objects) for when in ("old", "new"))
        assert old == new, entry
    for entry in of("value", "gone"):
        with pytest.raises(HelmRefused, match="these values cannot be used"):
            render(entry, entry["old"])
        render(entry, entry["new"])


def test_a_variable_is_in_every_pod_or_gone(render: Render) -> None:
    for entry in of("variable"):
        names = {found["name"] for found in render(entry, "").workload["env"]}
        assert (entry["old"] in names) == (entry["is"] != "gone"), entry
        assert entry["new"] in {"", entry["old"]}


def test_a_file_is_where_it_is_said_to_be(render: Render) -> None:
    written = (ROOT / "docs" / "files.md").read_text()
    for entry in of("file"):
        mounts = render(entry, "").mounts
        old, new = (
            f"`{path}" in written or (path.startswith("/workload") and str(Path(path).parent) in mounts)
            for path in (entry["old"], entry["new"])
        )
        assert old == (entry["is"] == "same"), entry
        assert new or not entry["new"], entry


def test_a_command_names_what_is_there(render: Render) -> None:
    for entry in of("command"):
        rendered = render(entry, "")
        pods = f"{rendered.jobset['metadata']['name']}-{rendered.jobset['spec']['replicatedJobs'][0]['name']}-0-"
        new = entry["new"].replace("$USER-testbed", "demo")
        assert set(re.findall(r"a4-agent (\w+)", new)) <= set(VERBS)
        assert set(re.findall(r"demo-workload-0-", new)) <= {pods}
        assert set(re.findall(r" -c (\w+)", new)) <= {rendered.workload["name"]}


def test_an_old_image_is_refused_and_its_successor_is_built(render: Render) -> None:
    for entry in of("image"):
        image = f"--set workload.image=registry.example/{entry['old']}"
        with pytest.raises(HelmRefused, match="is an image of the old testbeds, which has no a4-agent"):
            render(entry, image)
        render(entry, f"{image},workload.agentImage={IMAGE}")
        name, _, tag = entry["new"].partition(":")
        assert f'_IMAGE_TAG: "{tag}"' in (ROOT / "docker" / name / "cloudbuild.yml").read_text()


def row(entry: Entry) -> str:
    old, new = (f"`{entry[when]}`" if entry[when] else "nothing" for when in ("old", "new"))
    return f"| {old} | {new} | {entry['is']}{': ' if entry.get('how') else ''}{entry.get('how', '')} |"


def test_the_page_has_every_entry_and_no_other() -> None:
    page = (ROOT / "docs" / "migrating.md").read_text().partition("## Where the old guides contradict")[0]
    as_before = [entry for entry in ENTRIES if row(entry) == f"| `{entry['old']}` | `{entry['old']}` | same |"]
    named = "".join(re.findall(r"^As they were: (?:.+\n)+", page, re.MULTILINE))
    assert re.findall(r"`([^`]+)`", named) == [entry["old"] for entry in as_before]
    rows = [line for line in page.splitlines() if re.match(r"\| [`n]", line)]
    assert rows == [row(entry) for entry in ENTRIES if entry not in as_before]
