"""The chart in the two engines that users have: Helm 3's command line and Helm 4's SDK.

Both get the same words, those after `helm install`. What Helm 3 says for `install --dry-run` is the whole release with
its notes; it wants an API server for that (tests/chart/api.py). The SDK takes values, not words: its parsers read each
kind of flag alone, and tests/chart/sdk.py puts them together.

Helm 4 is asked unless a test says otherwise. It needs a third of Helm 3's time, and tests/chart/test_rules.py holds
that both make the same of every template and of values of every type.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "chart"
HELM = ROOT / ".helm" / "helm"
ENGINES = ("helm3", "helm4")
KUBERNETES = ("--kube-version", "1.32.0")
"""For `helm template`, which otherwise takes what was new when that Helm was."""
# Its garbage collector would take a fifth of a short life.
GO = {"GOGC": "400"}
HANG_SECONDS = 100.0
"""After which Helm does not answer any more."""

Fact = TypeVar("Fact")
Object = dict[str, Any]
# The same as yaml.SafeLoader, ten times faster.
LOADER = yaml.CSafeLoader


class HelmRefused(Exception):
    """Helm's own message."""


@dataclass(frozen=True)
class Words:
    """What stands after `helm install`, and where it was typed."""

    flags: tuple[str, ...]
    release: str = "demo"
    chart: str = str(CHART)
    namespace: str = "team-a"
    place: str = str(ROOT)


@dataclass(frozen=True)
class Rendered:
    words: Words
    values: Object
    """Those given, without the chart's defaults."""
    sources: Mapping[str, str]
    """Text by template."""
    notes: str

    @cached_property
    def objects(self) -> list[Object]:
        """As others see them too: what most releases share is read once."""
        return [found for text in self.sources.values() for found in objects_in(text)]

    def kind(self, kind: str) -> list[Object]:
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, suffix: str = "") -> Object:
        name = self.words.release.replace(".", "-") + suffix
        (found,) = [found for found in self.kind(kind) if found["metadata"]["name"] == name]
        return found

    @property
    def jobset(self) -> Object:
        return self.one("JobSet")

    @property
    def job(self) -> Object:
        """The spec of the Job in the JobSet."""
        job: Object = self.jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
        return job

    @property
    def pod(self) -> Object:
        """The pod's spec."""
        pod: Object = self.job["template"]["spec"]
        return pod

    @property
    def workload(self) -> Object:
        """The workload's container."""
        first: Object = self.pod["containers"][0]
        return first

    @property
    def env(self) -> dict[str, str]:
        """Variables of the workload that have plain values."""
        return {entry["name"]: entry["value"] for entry in self.workload["env"] if "value" in entry}

    @property
    def mounts(self) -> dict[str, Object]:
        """What is mounted in the workload's container, by path: the volumes."""
        volumes = {volume["name"]: volume for volume in self.pod["volumes"]}
        return {mount["mountPath"]: volumes[mount["name"]] for mount in self.workload["volumeMounts"]}


@cache
def objects_in(text: str) -> list[Object]:
    return [found for found in yaml.load_all(text, LOADER) if found]


@dataclass
class Helm3:
    home: Path
    kubeconfig: Path

    def run(self, *words: str, place: str = str(ROOT)) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig), **GO}
        return subprocess.run(
            [str(HELM), *words], cwd=place, env=env, capture_output=True, text=True, timeout=HANG_SECONDS
        )

    def done(self, *words: str, place: str = str(ROOT)) -> str:
        ended = self.run(*words, place=place)
        if ended.returncode:
            raise HelmRefused(ended.stderr)
        return ended.stdout

    def render(self, words: Words) -> Rendered:
        dry = ("install", "--dry-run", "--output", "json", "--namespace", words.namespace)
        release = json.loads(self.done(*dry, *words.flags, words.release, words.chart, place=words.place))
        sources = {f"# {at}": text for at, text in enumerate(release["manifest"].split("\n---\n"))}
        hooks = {hook["path"] + hook["name"]: hook["manifest"] for hook in release.get("hooks") or []}
        return Rendered(words, release.get("config") or {}, {**sources, **hooks}, release["info"]["notes"])


class Helm4:
    """The process in which the SDK lives (tests/chart/sdk.py)."""

    def __init__(self, home: Path) -> None:
        env = {"PATH": os.environ["PATH"], "HOME": str(home), **GO}
        sdk = [sys.executable, str(Path(__file__).parent / "sdk.py")]
        self._process = subprocess.Popen(sdk, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ask(self, do: str, *with_: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        print(json.dumps({"do": do, "with": with_}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"{do}: Helm 4 has ended"
        answer = json.loads(line)
        if "error" in answer:
            raise HelmRefused(answer["error"])
        return answer["result"]

    def values(self, words: Words) -> Object:
        """What the flags say, without any chart's defaults."""
        found: Object = self.ask("values", words.place, words.flags)
        return found

    def render(self, words: Words) -> Rendered:
        values, chart = self.values(words), str(Path(words.place, words.chart))
        sources: dict[str, str] = self.ask("render", chart, values, words.release, words.namespace)
        notes = next((sources.pop(name) for name in list(sources) if name.endswith("NOTES.txt")), "")
        return Rendered(words, values, {name: text for name, text in sources.items() if text.strip()}, notes)

    def close(self) -> None:
        self._process.communicate(timeout=HANG_SECONDS)


class Engines:
    """Both, with what was rendered kept."""

    def __init__(self, helm3: Helm3, helm4: Helm4) -> None:
        self.helm3, self.helm4 = helm3, helm4
        self._rendered: dict[tuple[str, Words], Rendered | HelmRefused] = {}

    def render(self, words: Words, engine: str = "helm4") -> Rendered:
        key = (engine, words)
        if key not in self._rendered:
            try:
                self._rendered[key] = (self.helm3 if engine == "helm3" else self.helm4).render(words)
            except HelmRefused as refused:
                self._rendered[key] = refused
        known = self._rendered[key]
        if isinstance(known, HelmRefused):
            raise HelmRefused(*known.args)
        return known

    def with_values(self, *flags: str, engine: str = "helm4", **words: str) -> Rendered:
        """The chart with an image and these flags."""
        return self.render(Words(("--set", f"workload.image={IMAGE}", *flags), **words), engine)

    def with_settings(self, *settings: str, engine: str = "helm4", **words: str) -> Rendered:
        """The same with `--set` before each."""
        return self.with_values(*sets(*settings), engine=engine, **words)

    def facts(self, fact: Callable[[Rendered], Fact], settings: Iterable[str], *common: str) -> dict[str, Fact]:
        """What is found with each of these settings, beside those in common."""
        return {one: fact(self.with_settings(*common, one)) for one in settings}

    def refusal(self, *settings: str, engine: str = "helm4", **words: str) -> str:
        """What is said of settings that cannot be used; nothing if they can."""
        try:
            self.with_settings(*settings, engine=engine, **words)
        except HelmRefused as refused:
            return str(refused)
        return ""


def made_of_each(engines: Engines, chart: Path, directory: Path, expression: str, values: Sequence[Any]) -> list[Any]:
    """What templates of a chart make of each of these values, in one that shows nothing else."""
    bare = directory / "shows-one-expression"
    shutil.copytree(chart, bare, ignore=shutil.ignore_patterns("values.schema.json"))
    for path in (bare / "templates").rglob("*.*"):
        if path.suffix != ".tpl":
            path.unlink()
    loop = "{{ range .Values.each }}{{ $made = append $made (EXPRESSION) }}{{ end }}".replace("EXPRESSION", expression)
    (bare / "templates/shown.yaml").write_text("{{ $made := list }}" + loop + "{{ $made | toJson }}")
    (text,) = engines.helm4.ask("render", str(bare), {"each": values}, "demo", "team-a").values()
    made: list[Any] = json.loads(text)
    return made


def older_chart(directory: Path, *, other_pods: bool) -> Path:
    """The chart as an earlier version might have been: with another annotation for the script's checksum, and perhaps
    with pods that mount it from a ConfigMap of another name."""
    older = directory / "older-chart"
    shutil.copytree(CHART, older)
    changes = {"checksum/script": "checksum/task", **({"}}-scripts": "}}-task"} if other_pods else {})}
    for path in (older / "templates").glob("*.*"):
        text = path.read_text()
        for new, old in changes.items():
            text = text.replace(new, old)
        path.write_text(text)
    about = older / "Chart.yaml"
    about.write_text(re.sub(r"(?m)^(version|appVersion): .*", r"\1: 0.0.9", about.read_text()))
    return older


IMAGE = "registry.example/unified-testbed-pytorch:25.12-a4.1"


def sets(*settings: str) -> Sequence[str]:
    """`--set` before each that says something."""
    return [word for setting in settings if setting for word in ("--set", setting)]


def without_secret(objects: list[Object]) -> list[Object]:
    """Sorted, and without what is random in them."""
    kept = [{**found, "data": "random"} if "job-secret" in (found.get("data") or {}) else found for found in objects]
    return sorted(kept, key=lambda found: (found["kind"], found["metadata"]["name"]))
