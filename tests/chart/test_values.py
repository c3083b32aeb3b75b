"""What becomes of single values, and what the chart's files promise about them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import agent
from agent.decide.masking import MARK, hidden
from agent.settings import EPOCH_PARTS, SETTINGS
from tests.chart.helm import CHART, ENGINES, Engines, Rendered, sets

by_engine = pytest.mark.parametrize("engine", ENGINES)
TEMPLATES = {path.relative_to(CHART).as_posix(): path.read_text() for path in CHART.glob("templates/**/*.*")}
SECRET_OR_NOT = (
    "HF_TOKEN MY_API_KEY DB_PASSWORD passwd AWS_SECRET_ACCESS_KEY GOOGLE_CREDENTIALS cred Token wandb_api_key MONKEY "
    "SSH_PUBLIC_KEY MY_PUBLIC_KEY_2 TOKENIZER_PATH TOKEN_FILE KEY_DIR SECRET_PATH secret_file TOKEN_FILES DIR_KEY "
    "KEY_FILE_NAME NCCL_DEBUG OMP_NUM_THREADS PASSTHROUGH PASS_TOKEN TOKENIZERS_PARALLELISM KEEP MAX_TOKENS"
)
NAMES = SECRET_OR_NOT.split()


def secrets(rendered: Rendered) -> dict[str, str]:
    """All that stands in Secrets, by key."""
    pairs = [pair for found in rendered.kind("Secret") for pair in found["data"].items()]
    return {key: base64.b64decode(text).decode() for key, text in pairs}


@by_engine
def test_the_names_of_secrets_are_those_that_the_agent_masks(engines: Engines, engine: str) -> None:
    settings = sets(*(f"workload.env.{name}=canary" for name in NAMES))
    rendered = engines.with_values(*settings, engine=engine)
    masked = {name for name in NAMES if hidden({name: "canary"})[name] == MARK}
    assert secrets(rendered).keys() & set(NAMES) == masked
    assert {name for name in NAMES if rendered.env.get(name) == "canary"} == set(NAMES) - masked


@by_engine
@pytest.mark.parametrize(
    "place",
    [
        "workload.env.{name}={value}",
        "workload.envs[9].name={name},workload.envs[9].value={value}",
        "network.ncclSettings[0].name={name},network.ncclSettings[0].value={value}",
        "workload.defaultEnv.{name}={value}",
    ],
)
@pytest.mark.parametrize("name", ["HF_TOKEN", "MY_API_KEY", "DB_PASSWORD"])
def test_a_secret_value_is_in_a_secret_alone(engines: Engines, engine: str, place: str, name: str) -> None:
    value = "canary-0123456789"
    rendered = engines.with_values("--set", place.format(name=name, value=value), engine=engine)
    assert secrets(rendered)[name] == value
    others = [text for text in rendered.sources.values() if "kind: Secret" not in text]
    assert value not in rendered.notes + "".join(others)
    (entry,) = [entry for entry in rendered.workload["env"] if entry["name"] == name]
    assert entry["valueFrom"]["secretKeyRef"]["key"] == name


def test_the_old_token_by_its_number_is_a_secret_too(engines: Engines) -> None:
    rendered = engines.with_values("--set", "workload.envs[2].value=canary-0123456789")
    assert secrets(rendered)["HF_TOKEN"] == "canary-0123456789"
    assert "HF_TOKEN" not in rendered.env


@by_engine
@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("8388608", "8388608"),
        ("123456789012", "123456789012"),
        ("1e6", "1000000"),
        ("0.5", "0.5"),
        ("0", "0"),
        ("-1", "-1"),
        ("true", "true"),
        ("false", "false"),
        ('"007"', "007"),
        ('"{a: b} # $(c) \\\\ \\" é"', '{a: b} # $(c) \\ " é'),
    ],
)
def test_a_variable_has_the_value_that_was_written(
    engines: Engines, tmp_path: Path, engine: str, written: str, given: str
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(
        f"workload: {{env: {{ONE: {written}}}, envs: [{{name: TWO, value: {written}}}]}}\n"
        f"network: {{ncclSettings: [{{name: NCCL_THREE, value: {written}}}]}}\n"
    )
    env = engines.with_values("-f", str(values), engine=engine).env
    assert (env["ONE"], env["TWO"], env["NCCL_THREE"]) == (given, given, given)


@by_engine
def test_a_number_on_the_command_line_is_what_was_written(engines: Engines, engine: str) -> None:
    rendered = engines.with_values(*sets("workload.env.SIZE=8388608", "workload.gpus=64"), engine=engine)
    assert (rendered.env["SIZE"], rendered.env["WORLD_SIZE"], rendered.env["NNODES"]) == ("8388608", "64", "8")


def actions(template: str) -> list[str]:
    """What a template does, without comments, texts and names of its own."""
    code = re.sub(r"\{\{-? */\*.*?\*/ *-?\}\}", "", template, flags=re.DOTALL)
    found = re.findall(r"\{\{.*?\}\}", code, re.DOTALL)
    return [re.sub(r'"(?:\\.|[^"\\])*"|`[^`]*`|[$.]\w+', "", action) for action in found]


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_ask_for_no_clock_and_no_chance(name: str) -> None:
    words = {word for action in actions(TEMPLATES[name]) for word in re.findall(r"\w+", action)}
    chance = {word for word in words if re.fullmatch(r"rand\w+|gen[A-Z]\w+|uuidv4|shuffle|bcrypt|htpasswd", word)}
    clock = words & {"now", "ago", "date", "dateInZone", "htmlDate", "htmlDateInZone", "getHostByName"}
    assert clock == set()
    assert chance == ({"randAlphaNum"} if name == "templates/job-secret.yaml" else set())


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_name_no_unknown_setting(name: str) -> None:
    known = {setting.name for setting in SETTINGS} | set(EPOCH_PARTS)
    assert set(re.findall(r"\bA4_[A-Z0-9_]*[A-Z0-9]", TEMPLATES[name])) <= known


def test_the_values_file_names_no_unknown_setting() -> None:
    known = {setting.name for setting in SETTINGS}
    assert set(re.findall(r"\bA4_[A-Z0-9_]*[A-Z0-9]", (CHART / "values.yaml").read_text())) <= known


def test_chart_and_agent_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (agent.__version__, agent.__version__)


def test_every_key_has_a_comment_over_it_or_over_its_group() -> None:
    text = (CHART / "values.yaml").read_text()
    assert list(bare_keys(yaml.compose(text), text.splitlines())) == []


def bare_keys(node: yaml.Node | None, lines: list[str], path: str = "") -> Iterator[str]:
    """Names of keys without a comment that hold a value, not only other keys."""
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        if lines[key.start_mark.line - 1].lstrip().startswith("#"):
            continue
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from bare_keys(value, lines, f"{path}{key.value}.")
        else:
            yield f"{path}{key.value}"
