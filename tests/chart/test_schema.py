"""values.strict.schema.json says what values.yaml says; values.schema.json refuses in words that help, in Helm 3 and
in Helm 4; of unknown keys, which only the strict one has closed out, the templates do.

Both are tried on a chart of its own, without other templates: what those refuse, tests/chart/test_refusals.py has.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.chart.cases import CI_FILES
from tests.chart.helm import CHART, ENGINES, KUBERNETES, ROOT, Engines, HelmRefused, Words, sets

HERE = Path(__file__).parent

Schema = dict[str, Any]
Values = dict[str, Any]
Judge = Callable[..., str]
"""What Helm 4 says about values, or another engine; nothing if it takes them."""

SCHEMA: Schema = json.loads((CHART / "values.strict.schema.json").read_text())
DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text())

# Keys of old values files that nothing uses, and the one that every chart has.
LEGACY = {"workload.workflow", "workload.defaultArguments[]", "workload.arguments[]", "network.subnetworks[]"}
OF_HELM = {"global"}
OF_KUBERNETES = {
    "workload.resources": ("requests", "limits"),
    "affinity": ("nodeAffinity", "podAffinity", "podAntiAffinity"),
    "dnsConfig": ("nameservers", "searches", "options"),
}
"""Keys that values.yaml leaves to Kubernetes."""

# Whatever combines schemas is told by the engines in a way that nobody can use.
KEYWORDS = {"$schema", "title", "description", "type", "enum", "pattern", "minimum", "maximum", "required", "items"}
KEYWORDS |= {"properties", "patternProperties", "additionalProperties"}


# -- the schema as a tree ----------------------------------------------------------------------------------------------


def below(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The schemas inside one, each with the path to it; [] is an item of a list, * a key of a map."""
    yield from schema.get("properties", {}).items()
    yield from (("*", one) for one in schema.get("patternProperties", {}).values())
    yield from (("*", one) for one in [schema.get("additionalProperties")] if isinstance(one, dict))
    if "items" in schema:
        yield "[]", schema["items"]


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for key, inner in below(schema):
        yield from walk(inner, f"{path}.{key}".lstrip("."))


def keys_in(values: Values, schema: Schema, path: str = "") -> set[str]:
    """Paths of the keys that values.yaml names; free maps end the search."""
    found = set()
    for key, value in values.items():
        here = f"{path}.{key}".lstrip(".")
        inner = schema.get("properties", {}).get(key, {})
        found.add(here)
        if isinstance(value, dict) and "properties" in inner:
            found |= keys_in(value, inner, here)
    return found


def at(path: str, value: Any) -> Values:
    """The values that have `value` at a path of the schema, and nothing else."""
    for key in reversed(path.split(".")):
        value = [value] if key == "[]" else {"NAME" if key == "*" else key: value}
    return dict(value)


def merged(one: Any, other: Any) -> Any:
    """What both say. Lists have one item."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{key: merged(one.get(key), value) for key, value in other.items()}}
    if isinstance(one, list) and isinstance(other, list):
        return [merged(one[0], other[0])]
    return other


def emptied(values: Values) -> Values:
    """The same keys, all of them null."""
    return {key: emptied(value) if isinstance(value, dict) and value else None for key, value in values.items()}


NODES = dict(walk(SCHEMA))
ENUMS = {path: node["enum"] for path, node in NODES.items() if "enum" in node}
KNOWN_MAPS = {path for path, node in NODES.items() if "properties" in node}
KEYS = {path for path in NODES if path and not {"*", "[]"} & set(path.split("."))}


# -- the engines -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def bare_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bare = tmp_path_factory.mktemp("schema") / "chart"
    (bare / "templates").mkdir(parents=True)
    said = '{{ with (include "a4.unknown" . | fromJson).problems }}{{ join "\\n" . | fail }}{{ end }}'
    (bare / "templates" / "NOTES.txt").write_text(f"{said}nothing\n")
    schemas = ("values.schema.json", "values.strict.schema.json")
    for name in ("Chart.yaml", "values.yaml", *schemas, "templates/_unknown.tpl"):
        shutil.copy(CHART / name, bare / name)
    return bare


def helm3(engines: Engines, chart: Path, *flags: str) -> str:
    return engines.helm3.run("template", *KUBERNETES, "release", str(chart), *flags).stderr


@pytest.fixture
def judge(engines: Engines, bare_chart: Path, tmp_path: Path) -> Judge:
    """Helm 4 is asked in a hundredth of Helm 3's time."""

    def said(values: Values, engine: str = "helm4") -> str:
        if engine == "helm3":
            (tmp_path / "values.json").write_text(json.dumps(values))
            return helm3(engines, bare_chart, "-f", str(tmp_path / "values.json"))
        try:
            engines.helm4.ask("render", str(bare_chart), values, "release", "default")
        except HelmRefused as refused:
            return str(refused)
        return ""

    return said


def place(message: str) -> str:
    """A message with its paths in one way: Helm 3 writes workload.envs.1, Helm 4 '/workload/envs/1', the templates
    workload.envs[1]."""
    return re.sub(r"\[(\d+)\]", r".\1", re.sub(r"'/([^' ]*)'", lambda found: found[1].replace("/", "."), message))


# -- schema and values.yaml --------------------------------------------------------------------------------------------


def test_the_schema_is_one_of_draft_7() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_every_key_of_the_values_is_in_the_schema_and_the_other_way_round() -> None:
    of_kubernetes = {f"{key}.{inner}" for key, names in OF_KUBERNETES.items() for inner in names}
    assert keys_in(DEFAULTS, SCHEMA) | LEGACY | OF_HELM | of_kubernetes == KEYS


def test_every_key_has_a_description_can_be_null_and_closes_what_the_chart_knows() -> None:
    named = {path: node for path, node in NODES.items() if not path.endswith(("*", "[]"))}
    ends = (".", "task_script=my.sh")
    assert [path for path, node in named.items() if not node["description"].endswith(ends)] == []
    assert [path for path in KNOWN_MAPS if NODES[path]["additionalProperties"] is not False] == []
    typed = {path: node for path, node in NODES.items() if path not in {"", *LEGACY, *OF_HELM}}
    assert [path for path, node in typed.items() if "null" not in node["type"]] == []
    assert [path for path, words in ENUMS.items() if None not in words] == []


def test_nothing_in_the_schema_makes_messages_that_nobody_understands() -> None:
    assert {keyword for node in NODES.values() for keyword in node} <= KEYWORDS


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_wrong_words_are_refused_and_the_right_ones_are_named(judge: Judge) -> None:
    """Each alone, and all at once by both."""
    wrong = [at(path, "wrong-word") for path in ENUMS]
    at_once = [judge(reduce(merged, wrong), engine) for engine in ENGINES]
    for path, values in zip(ENUMS, wrong, strict=True):
        for said in (judge(values), *at_once):
            names_the_right_words(path, said)


def names_the_right_words(path: str, message: str) -> None:
    said = place(message)
    assert path.replace("[]", "0") in said
    for word in ENUMS[path]:
        if isinstance(word, str):
            assert f'"{word}"' in said or f"'{word}'" in said
        elif word is not None:
            assert json.dumps(word) in said


def test_all_unknown_keys_are_refused_at_once(judge: Judge) -> None:
    keys = {path: f"wrongKey{number}" for number, path in enumerate(sorted(KNOWN_MAPS))}
    values = reduce(merged, (at(f"{path}.{key}".lstrip("."), 1) for path, key in keys.items()))
    for said in (place(judge(values, engine)) for engine in ENGINES):
        for path, key in keys.items():
            assert f"{path}.{key}: there is no such value".lstrip(".").replace("[]", "0").replace("*", "NAME") in said


BAD: dict[str, tuple[Values, str]] = {
    "half a GPU": ({"workload": {"gpus": 8.5}}, "workload.gpus"),
    "an image of parts": ({"workload": {"image": {"name": "image", "tag": "25.12"}}}, "workload.image"),
    "a variable with a space in its name": ({"workload": {"env": {"MY NAME": "x"}}}, "MY NAME"),
    "a variable with parts": ({"workload": {"env": {"NAME": {"value": "x"}}}}, "workload.env.NAME"),
    "a list of variables under env": ({"workload": {"env": [{"name": "A", "value": "b"}]}}, "workload.env"),
    "a map of variables under envs": ({"workload": {"envs": {"A": "b"}}}, "workload.envs"),
    "a variable of envs with a misspelt key": ({"workload": {"envs": [None, {"nmae": "A"}]}}, "workload.envs.1"),
    "a Secret by its name alone": ({"workload": {"envFromSecrets": {"A": "s"}}}, "workload.envFromSecrets.A"),
    "a restart after success": ({"workload": {"restartOn": [0]}}, "workload.restartOn.0"),
    "a restart on a code that is none": ({"workload": {"restartOn": [75, 256]}}, "workload.restartOn.1"),
    "the same as a string": ({"workload": {"restartOn": ["75", "256"]}}, "workload.restartOn.1"),
    "a restart on a word": ({"workload": {"restartOn": ["all"]}}, "workload.restartOn.0"),
    "one code that is no list": ({"workload": {"restartOn": 75}}, "workload.restartOn"),
    "fewer lives than none": ({"workload": {"lives": -1}}, "workload.lives"),
    "more lives than the agent takes": ({"workload": {"lives": "1001"}}, "workload.lives"),
    "fewer restarts than none": ({"workload": {"max_workload_restarts": -1}}, "workload.max_workload_restarts"),
    "no time to end": ({"workload": {"terminationGracePeriodSeconds": 4}}, "workload.terminationGracePeriodSeconds"),
    "resources without requests or limits": ({"workload": {"resources": {"cpu": "200"}}}, "workload.resources"),
    "a size in GB": ({"volumes": {"sharedMemory": "250GB"}}, "volumes.sharedMemory"),
    "an address as a list": ({"volumes": {"nfs": {"ip": ["10.0.0.2"]}}}, "volumes.nfs.ip"),
    "one bucket that is no list": ({"volumes": {"gcsMounts": {"bucketName": "b"}}}, "volumes.gcsMounts"),
    "a bucket by its name alone": ({"volumes": {"gcsMounts": ["my-bucket"]}}, "volumes.gcsMounts.0"),
    "a claim with capitals": ({"volumes": {"pvcMounts": [{"claimName": "MyClaim"}]}}, "volumes.pvcMounts.0.claimName"),
    "no time at all": ({"dwsSettings": {"maxRunDurationSeconds": 0}}, "dwsSettings.maxRunDurationSeconds"),
    "a time with a unit": ({"dwsSettings": {"maxRunDurationSeconds": "1h"}}, "dwsSettings.maxRunDurationSeconds"),
    "a port that is none": ({"network": {"sshPort": 70000}}, "network.sshPort"),
    "the last port, which leaves none to the test": ({"network": {"sshPort": 65535}}, "network.sshPort"),
    "a port with a word": ({"network": {"masterPort": "6002/tcp"}}, "network.masterPort"),
    "nodes as a map": ({"targetNodes": {"a": "my-node"}}, "targetNodes"),
    "a node with a capital": ({"targetNodes": ["My-Node"]}, "targetNodes.0"),
    "a variable with a dash in its name": ({"workload": {"envs": [{"name": "MY-NAME"}]}}, "workload.envs.0.name"),
    "a default variable with a dot in its name": ({"workload": {"defaultEnv": {"MY.NAME": "x"}}}, "MY.NAME"),
    "Secrets for images as Kubernetes has them": ({"imagePullSecrets": [{"name": "s"}]}, "imagePullSecrets.0"),
    "a toleration by its key alone": ({"tolerations": ["nvidia.com/gpu"]}, "tolerations.0"),
    "a script as a list": ({"task_script": ["echo"]}, "task_script"),
    "a term of nodes without its kind": (at("affinity.requiredDuringExecution", {}), "affinity"),
    "a sidecar by its image alone": ({"sidecars": ["fluent-bit"]}, "sidecars.0"),
    "no time before the deadline": (at("workload.activeDeadlineSeconds", "0"), "workload.activeDeadlineSeconds"),
    "old keys in new places": ({"gpus": 16}, "gpus"),
}


OF_EVERY_KIND = (
    "half a GPU",  # type
    "a restart on a code that is none",  # maximum
    "fewer restarts than none",  # minimum
    "a size in GB",  # pattern
    "a variable with a space in its name",  # a key by its pattern
)
"""By the keywords of the schema that refuse them: the engines have their words for each."""


def test_what_cannot_be_is_refused_with_its_path(judge: Judge) -> None:
    """Each alone, and by both what is of every kind at once."""
    assert [case for case, (values, path) in BAD.items() if path not in place(judge(values))] == []
    values = reduce(merged, (BAD[case][0] for case in OF_EVERY_KIND), at("network.profile", "a4"))
    paths = [*(BAD[case][1] for case in OF_EVERY_KIND), "network.profile"]
    for said in (place(judge(values, engine)) for engine in ENGINES):
        assert [path for path in paths if path not in said] == []


MEANT = {
    "workload.gpu": "workload.gpus",
    "gpus": "workload.gpus",  # elsewhere
    "serviceAccount": "serviceAccountName",
    "workload.Image": "workload.image",
    "volumes.nsf": "volumes.nfs",  # no two letters in the same order
    "volumes.gcsMounts.[].bucket": "volumes.gcsMounts.0.bucketName",
    "workload.envFromSecrets.*.name": "",
    "x": "",
    "größe": "",
}
"""Unknown keys, and what may have been meant."""


def test_an_unknown_key_names_the_nearest(judge: Judge) -> None:
    values = reduce(merged, (at(path, 1) for path in MEANT))
    for said in (place(judge(values, engine)) for engine in ENGINES):
        for path, meant in MEANT.items():
            hint = f"did you mean {meant}?" if meant else "chart/values.yaml lists all"
            assert f"{path.replace('[]', '0').replace('*', 'NAME')}: there is no such value; {hint}" in said


def test_what_templates_remember_among_the_values_cannot_be_given(judge: Judge) -> None:
    """A user could else have them skip the check."""
    assert "a4Checked" in judge({"a4Checked": ""})


def test_a_refusal_does_not_tell_secrets(judge: Judge) -> None:
    env = {"HF_TOKEN": ["hf_secret"], "MY TOKEN": "hf_secret"}
    with_parts = {"env": env, "envs": [{"name": "HF_TOKEN", "value": {"is": "hf_secret"}}]}
    for workload in (with_parts, {"envs": [{"name": "HF_TOKEN", "valu": "hf_secret"}]}):
        for engine in ENGINES:
            said = judge({"workload": workload}, engine)
            assert said
            assert "hf_secret" not in said


# -- what is taken -----------------------------------------------------------------------------------------------------

GOOD = [*sorted(HERE.glob("good/*.yaml")), *sorted(HERE.glob("old/values/*.yaml"))]
"""Beside those of chart/ci, which tests/chart/test_rules.py renders."""


def test_values_files_are_taken(engines: Engines, judge: Judge, bare_chart: Path) -> None:
    """By Helm 3 one after another, as far as later ones leave something of them."""
    assert {file.stem: judge(yaml.safe_load(file.read_text())) for file in GOOD} == {file.stem: "" for file in GOOD}
    for files in ([*GOOD, *CI_FILES], [*CI_FILES, *GOOD[::-1]]):
        assert helm3(engines, bare_chart, *(word for file in files for word in ("-f", str(file)))) == ""


def test_the_defaults_are_taken_and_every_key_can_be_null(judge: Judge) -> None:
    for values in ({}, DEFAULTS, emptied(DEFAULTS), dict.fromkeys(DEFAULTS)):
        assert [judge(values, engine) for engine in ENGINES] == ["", ""]


SET = [
    "workload.gpus=16",
    "workload.envs[1].value=false",
    "workload.envs[10].name=TRAINING_MODE,workload.envs[10].value=sft",
    "workload.envs[3].name=RUN_DEEPEP_TEST,workload.envs[3].value=true",
    "volumes.gcsMounts[0].bucketName=my-bucket",
    "volumes.nfs.enabled=true,volumes.nfs.ip=10.0.0.2",
    "volumes.nfs.region=us-central1-a,volumes.nfs.instance=7,volumes.nfs.volume=vol1,volumes.nfs.storage=1024Gi",
    "volumes.lustre.ip=10.0.0.3,volumes.lustre.filesystem=lustrefs,volumes.lustre.projectId=123456789012",
    "queue=a4,tasSettings.topologyRequest=null",
    "workload.restartOn={75,any},targetNodes={node-1,node-2}",
    "network.gibVersion=,network.hostNetwork=false",
    "workload.sleepInfinity=false,workload.env.STEPS=20,workload.env.DEBUG=true",
]


def test_what_people_set_on_the_command_line_is_taken(engines: Engines, judge: Judge, bare_chart: Path) -> None:
    assert [line for line in SET if judge(engines.helm4.values(Words(("--set", line))))] == []
    assert helm3(engines, bare_chart, *sets(*SET)) == ""


# -- the examples ------------------------------------------------------------------------------------------------------


def test_examples_say_what_they_are_and_how_to_install_them() -> None:
    for example in CI_FILES:
        head = example.read_text().split("\n\n")[0].splitlines()
        name = example.name.removesuffix("-values.yaml")
        assert all(line.startswith("#") for line in head)
        assert head[-1] == f"#     helm install my-{name} chart -f {example.relative_to(ROOT)}"
        assert len(head) > 2


def test_every_workload_and_every_choice_has_an_example() -> None:
    examples = [yaml.safe_load(example.read_text()) for example in CI_FILES]

    def chosen(section: str, key: str) -> set[Any]:
        return {(example.get(section) or {}).get(key) for example in examples} - {None}

    workloads = set(ENUMS["workload.run"]) - {"", None, "none", "script"}
    assert chosen("workload", "run") == workloads, "each has an example in chart/ci"
    assert chosen("tasSettings", "mode") == set(ENUMS["tasSettings.mode"]) - {"", None}
    assert chosen("tasSettings", "level") == set(ENUMS["tasSettings.level"]) - {"", None}
    assert len(examples) >= 28
