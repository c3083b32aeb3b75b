"""What becomes of single values, and what the chart's files promise about them."""

from __future__ import annotations

import base64
import configparser
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import yaml

import agent
from agent.decide.secret_variables import NOT_SECRET, SAY_NOTHING, is_secret_name
from agent.decide.secret_variables import SECRET as SECRET_ENDINGS
from agent.decide.setting_values import Parser
from agent.settings import EPOCH_PARTS, SETTINGS
from scripts import chart_settings, secret_names
from tests.chart import seeds
from tests.chart.helm import CHART, ENGINES, ROOT, Engines, Rendered, made_of_each, sets
from tests.decide.test_settings import GOOD, WRONG
from tests.variable_names import PLAIN, SECRET

TEMPLATES = {path.relative_to(CHART).as_posix(): path.read_text() for path in CHART.glob("templates/**/*.*")}


def secrets(rendered: Rendered) -> dict[str, str]:
    """All that stands in Secrets, by key."""
    pairs = [pair for found in rendered.kind("Secret") for pair in found["data"].items()]
    return {key: base64.b64decode(text).decode() for key, text in pairs}


def test_the_words_are_those_of_the_agent() -> None:
    assert secret_names.PATH.read_text() == secret_names.text(), "run .venv/bin/python -m scripts.secret_names"


def random_names() -> list[str]:
    """Names made of words that count, pieces of them, and others, joined as people and machines join them."""
    random = Random(14)
    words = [word.strip("_") for word in (*SECRET_ENDINGS, *NOT_SECRET, *SAY_NOTHING)]
    words += [piece for word in words for piece in word.split("_")] + ["S3", "OAUTH2", "K8S", "MY", "A", "x", "7", "é"]
    shapes = (str.upper, str.lower, str.capitalize, str)
    made = {
        "".join(
            random.choice(shapes)(random.choice(words)) + random.choice(["_", "", "_", "-", ".", "__", "2", "_3"])
            for _ in range(random.randint(1, 4))
        )
        for _ in range(3000)
    }
    made |= {"".join(random.choices("_aAbB1-. TOKEN", k=random.randint(1, 12))) for _ in range(1000)}
    return sorted(made)


def test_any_name_is_judged_as_the_agent_does(engines: Engines, tmp_path: Path) -> None:
    names = [*SECRET, *PLAIN, *random_names()]
    assert len(names) > 3000
    judged = made_of_each(engines, CHART, tmp_path, 'include "a4.isSecret" .', names)
    found = [name for name, secret in zip(names, judged, strict=True) if secret]
    assert found == [name for name in names if is_secret_name(name)]
    assert 300 < len(found) < len(names) - 300


def test_the_agent_is_told_which_variables_come_from_secrets(engines: Engines) -> None:
    from_secret = "valueFrom.secretKeyRef.name=s,workload.envs[9].valueFrom.secretKeyRef.key=k"
    env = engines.with_settings(
        "workload.env.HF_TOKEN=canary-0123456789,workload.env.SIZE=8,workload.env.MY_TOKEN=/run/secrets/token",
        "workload.envFromSecrets.QUIET.secret=s,workload.envFromSecrets.QUIET.key=k",
        f"workload.envs[9].name=LISTED,workload.envs[9].{from_secret}",
        "workload.envs[10].name=NODE,workload.envs[10].valueFrom.fieldRef.fieldPath=spec.nodeName",
    ).env
    assert env["A4_SECRET_ENV"].split() == ["HF_TOKEN", "LISTED", "QUIET"]
    assert env["MY_TOKEN"] == "/run/secrets/token"
    assert "A4_SECRET_ENV" not in engines.with_values().env


def test_a_secret_value_is_in_a_secret_alone(engines: Engines) -> None:
    value, names = "canary-0123456789", ["HF_TOKEN", "MY_API_KEY", "DB_PASSWORD"]
    places = {
        "workload.env.{name}={value}": names,
        "workload.envs[{at}].name={name},workload.envs[{at}].value={value}": names,
        "network.ncclSettings[{at}].name={name},network.ncclSettings[{at}].value={value}": names,
        "workload.defaultEnv.{name}={value}": names,
        # By its number in the old values files.
        "workload.envs[2].value={value}": ["HF_TOKEN"],
    }
    for place, meant in places.items():
        rendered = engines.with_settings(
            *(place.format(name=name, value=value, at=at) for at, name in enumerate(meant, 9))
        )
        others = [text for text in rendered.sources.values() if "kind: Secret" not in text]
        assert value not in rendered.notes + "".join(others)
        for name in meant:
            assert secrets(rendered)[name] == value
            (entry,) = [entry for entry in rendered.workload["env"] if entry["name"] == name]
            assert entry["valueFrom"]["secretKeyRef"]["key"] == name


WRITTEN = {
    "8388608": "8388608",
    "123456789012": "123456789012",
    "1e6": "1000000",
    "0.5": "0.5",
    "0": "0",
    "-1": "-1",
    "true": "true",
    "false": "false",
    # As docs/chart.md says: not as they were written.
    "1.10": "1.1",
    "0123": "83",
    "1234567890123456789": "1234567890123456768",
    "'1234567890123456789'": "1234567890123456789",
    '"007"': "007",
    '"{a: b} # $(c) \\\\ \\" é"': '{a: b} # $(c) \\ " é',
}
"""What stands in a values file, and what the variable is."""


def test_a_variable_has_the_value_that_was_written(engines: Engines, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    env = ", ".join(f"ENV_{at}: {text}" for at, text in enumerate(WRITTEN))
    envs = ", ".join(f"{{name: ENVS_{at}, value: {text}}}" for at, text in enumerate(WRITTEN))
    values.write_text(
        f"workload: {{env: {{{env}}}, envs: [{envs}]}}\nnetwork: {{ncclSettings: [{envs.replace('ENVS', 'NCCL')}]}}\n"
    )
    wanted = {f"{kind}_{at}": given for kind in ("ENV", "ENVS", "NCCL") for at, given in enumerate(WRITTEN.values())}
    for engine in ENGINES:
        assert wanted.items() <= engines.with_values("-f", str(values), engine=engine).env.items()


def test_nccl_s_sockets_take_the_nics_of_the_guides_unless_somebody_says_others(engines: Engines) -> None:
    preset = engines.with_values().env
    assert preset["NCCL_SOCKET_IFNAME"] == "eth0,eth1"
    assert "NCCL_SOCKET_IFNAME" not in preset.get("A4_USER_ENV", "").split()
    own = engines.with_settings("network.ncclSettings[2].name=NCCL_SOCKET_IFNAME,network.ncclSettings[2].value=e")
    assert own.env["NCCL_SOCKET_IFNAME"] == "e"


def test_what_is_said_later_is_in_place_of_what_is_said_before(engines: Engines) -> None:
    """The chart's own, a default, and the user's."""
    names = ("NCCL_PLUGIN_PATH", "NCCL_INIT_SCRIPT", "GLOO_SOCKET_IFNAME", "A4_RUN_DIR")
    default, own = (sets(*(f"workload.{key}.{name}=/{key}" for name in names)) for key in ("defaultEnv", "env"))
    assert dict.fromkeys(names, "/defaultEnv").items() <= engines.with_values(*default).env.items()
    env = engines.with_values(*default, *own).env
    assert dict.fromkeys(names, "/env").items() <= env.items()
    # What begins with A4_ is a setting of the agent, and no variable for the run.
    assert set(env["A4_USER_ENV"].split()) & set(names) == set(names) - {"A4_RUN_DIR"}


def test_what_is_set_beside_an_old_values_file_counts(engines: Engines) -> None:
    """By its name, for every variable that the file has."""
    for path in seeds.OLD.glob("values/*.yaml"):
        flags = ("-f", str(path), *sets("volumes.nfs.ip=10.0.0.2,volumes.nfs.instance="))
        values = yaml.safe_load(path.read_text())
        listed = {entry["name"] for entry in values["workload"]["envs"] + values["network"]["ncclSettings"]}
        wanted = {**dict.fromkeys(listed, "mine"), "SLEEP_INFINITY": "false"}
        own = sets(*(f"workload.env.{name}={value}" for name, value in wanted.items()))
        rendered = engines.with_values(*flags, *own)
        assert wanted.items() <= (rendered.env | secrets(rendered)).items()
        token = sets("workload.envFromSecrets.HF_TOKEN.secret=hf,workload.envFromSecrets.HF_TOKEN.key=token")
        (entry,) = (one for one in engines.with_values(*flags, *token).workload["env"] if one["name"] == "HF_TOKEN")
        assert entry["valueFrom"] == {"secretKeyRef": {"name": "hf", "key": "token"}}


ENV, ENVS = "workload.env.A=", "workload.envs[9].name=A,workload.envs[9].value="
NCCL = "network.ncclSettings[2].name=A,network.ncclSettings[2].value="


def test_an_empty_entry_gives_way(engines: Engines) -> None:
    wanted = {
        f"{ENV}1,{ENVS}": "1",
        f"{ENV},{ENVS}2": "2",
        ENVS: "",
        f"{ENV}1,{ENVS}1,{NCCL}1": "1",
        f"{ENVS}1,workload.envs[10].name=A,workload.envs[10].value=2": "2",
        f"{ENVS}1,workload.envs[10].name=A": "1",
        f"workload.defaultEnv.A=0,{ENVS}": "",
        # Without a file Helm reads a whole number from the start.
        f"{ENV}8388608": "8388608",
    }
    assert engines.facts(lambda rendered: rendered.env["A"], wanted) == wanted


def test_a_placeholder_of_an_old_values_file_is_no_value(engines: Engines) -> None:
    names = ("HF_TOKEN", "SSH_PUBLIC_KEY")
    listed = (
        f"workload.envs[{at}].name={name},workload.envs[{at}].value=<YOUR_{name}>" for at, name in enumerate(names, 9)
    )
    rendered = engines.with_settings(*listed)
    assert not set(names) & (rendered.env | secrets(rendered)).keys()


def test_who_decides_whether_the_cluster_stays(engines: Engines) -> None:
    wanted = {
        "workload.run=nccl": "false",
        "workload.run=none": "true",
        "workload.run=nccl,workload.sleepInfinity=true": "true",
        "workload.sleepInfinity=false": "false",
        "workload.sleepInfinity=true,workload.env.SLEEP_INFINITY=false": "false",
        "workload.sleepInfinity=false,workload.envs[1].value=true": "false",
        "workload.env.SLEEP_INFINITY=false,workload.envs[1].value=true": "false",
        "workload.envs[1].value=true,workload.run=nccl": "true",
        "workload.env.SLEEP_INFINITY=TRUE,workload.run=nccl": "true",
    }
    assert engines.facts(lambda rendered: rendered.env["SLEEP_INFINITY"], wanted) == wanted


def test_a_configuration_is_in_every_pod(engines: Engines, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a: 1\n")
    named = "workload.configFile=my.yaml,workload.configPath=/configs/"
    for settings, place, name in (("", "/workload/configs", "workload-configuration"), (named, "/configs", "my.yaml")):
        flags = ["--set-file", f"workload_config={tmp_path / 'config'}", *sets("workload.gpus=8", settings)]
        rendered = engines.with_values(*flags)
        source = rendered.mounts[place]["configMap"]
        assert rendered.one("ConfigMap", "-config")["data"] == {"workload-configuration": "a: 1\n"}
        assert (source["name"], source["items"]) == ("demo-config", [{"key": "workload-configuration", "path": name}])


def test_names_of_the_lustre_are_those_of_the_values(engines: Engines) -> None:
    lustre = {"ip": "10.0.0.3", "filesystem": "f", "instanceName": "i", "projectId": "p", "location": "l"}
    names = {"pvName": "my-volume", "pvcName": "my-claim"}
    flags = [f"volumes.lustre.{key}={value}" for key, value in (lustre | names).items()]
    claim = "volumes.pvcMounts[0].claimName=my-claim,volumes.pvcMounts[0].mountPath=/data"
    rendered = engines.with_settings(*flags, claim)
    (volume,), (claimed,) = rendered.kind("PersistentVolume"), rendered.kind("PersistentVolumeClaim")
    assert (volume["metadata"]["name"], claimed["metadata"]["name"]) == ("my-volume", "my-claim")
    assert (volume["spec"]["claimRef"]["name"], claimed["spec"]["volumeName"]) == ("my-claim", "my-volume")
    assert rendered.mounts["/data"]["persistentVolumeClaim"] == {"claimName": "my-claim"}


def test_who_mounts_the_nfs_and_how(engines: Engines) -> None:
    # As in the unified testbed's chart, of whose values files workflow is the mark.
    plain = ["nfsvers=4.1", "rsize=1048576", "wsize=1048576", "hard", "timeo=600", "retrans=2", "noresvport"]
    wanted = {
        "": ({"csi"}, None),
        "volumes.nfs.mountOptions={hard,nconnect=8}": ({"csi"}, ["hard", "nconnect=8"]),
        "volumes.nfs.mountOptions={hard},volumes.nfs.instance=": ({"nfs"}, ["hard"]),
        "workload.workflow.enabled=false": ({"nfs"}, plain),
    }

    def mounted(rendered: Rendered) -> tuple[set[str], list[str] | None]:
        (volume,) = rendered.kind("PersistentVolume")
        return {"csi", "nfs"} & volume["spec"].keys(), volume["spec"].get("mountOptions")

    nfs = "volumes.nfs.ip=10.0.0.2,volumes.nfs.region=us-central1-a,volumes.nfs.instance=my-filestore"
    assert engines.facts(mounted, wanted, nfs) == wanted


def test_null_is_not_set(engines: Engines, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(
        "{queue: , dwsSettings: {maxRunDurationSeconds: }, tasSettings: {topologyRequest: }, targetNodes: , network: "
        "{subnetworks: , ncclSettings: }, workload: {arguments: , envs: , env: {A: }}, volumes: {nfs: , lustre: }}"
    )
    for engine in ENGINES:
        nulls = engines.with_values("-f", str(values), engine=engine)
        assert nulls.jobset == engines.with_values(engine=engine).jobset


def test_templates_ask_for_no_clock_and_no_chance() -> None:
    asking = re.compile(
        r"rand\w+|gen[A-Z]\w+|uuidv4|shuffle|bcrypt|htpasswd|now|ago|date|dateInZone|htmlDate|htmlDateInZone|getHostByName"
    )
    found = set()
    for name, text in TEMPLATES.items():
        code = re.sub(r"\{\{-? */\*.*?\*/ *-?\}\}", "", text, flags=re.DOTALL)
        for action in re.findall(r"\{\{.*?\}\}", code, re.DOTALL):
            # Without texts, and names of its own.
            words = re.findall(r"\w+", re.sub(r'"(?:\\.|[^"\\])*"|`[^`]*`|[$.]\w+', "", action))
            found |= {(name, word) for word in words if asking.fullmatch(word)}
    assert found == {("templates/job-secret.yaml", "randAlphaNum")}


def test_the_chart_takes_of_each_setting_what_the_agent_takes(engines: Engines, tmp_path: Path) -> None:
    """Those without a pattern it takes as they are. No value of a release is empty: it is left out."""
    assert chart_settings.PATH.read_text() == chart_settings.text(), f"run {chart_settings.COMMAND}"
    known = {setting.name for setting in SETTINGS if isinstance(setting.parse, Parser)}
    good = [(name, text) for name, text, *_ in GOOD if name in known and text]
    wrong = [(name, text) for name, text, _ in WRONG if name in known and text.isascii()]
    takes = 'dict "takes" (get ($.Files.Get "files/settings.yaml" | fromYaml) (first .)) "value" (last .)'
    found = made_of_each(engines, CHART, tmp_path, f'include "a4.takes" ({takes})', [*good, *wrong])
    assert found == ["true"] * len(good) + [""] * len(wrong)


def test_the_chart_names_no_unknown_setting() -> None:
    settings, templates = {setting.name for setting in SETTINGS}, "".join(TEMPLATES.values())
    for text, known in ((templates, settings | set(EPOCH_PARTS)), ((CHART / "values.yaml").read_text(), settings)):
        assert set(re.findall(r"\bA4_[A-Z0-9_]*[A-Z0-9]", text)) - known == set()


def test_chart_and_agent_have_one_version_and_address() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (agent.__version__, agent.__version__)
    assert f"Source = {chart['sources'][0]}" in setup["metadata"]["project_urls"]


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
