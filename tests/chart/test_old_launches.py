"""What the old testbeds' scripts gave to the launchers (old/launches.json) is given now, but for what pages name.

scripts/old_launches.py has made that file by running the scripts themselves.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent import cli
from agent.workloads.pai_megatron.arguments import TRAINING, convertor
from scripts.old_launches import GPUS_PER_POD, PODS, Reached, mpirun, planned, sha256, typed
from tests.chart import seeds
from tests.chart.helm import CHART, ROOT, Engines, sets

Case = Mapping[str, Any]
Started = Callable[[Case], list[list[Reached]]]
"""What the agent starts on each pod in place of what a case has."""
CASES: list[Case] = json.loads((seeds.OLD / "launches.json").read_text())
POSITIONS = {
    "run_mcore_qwen3.sh": [argument.name for argument in TRAINING],
    "run_8xH20.sh": [name for name, _ in convertor("", "", "")],
}


def old(case: Case) -> list[list[Reached]]:
    return [[Reached(**one) for one in pod] for pod in case["pods"]]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that takes each of these files for the script whose SHA-256 is its name."""
    at = tmp_path_factory.mktemp("known")
    shutil.copytree(CHART, at / "chart")
    file = at / "chart" / "files" / "old-scripts.yaml"
    table = yaml.safe_load(file.read_text())
    for example in table["examples"]:
        for number, known in enumerate(example["sha256"]):
            (at / known).write_text(f"bash train.sh {known}\n")
            example["sha256"][number] = sha256((at / known).read_text())
    file.write_text(yaml.safe_dump(table))
    return at


@pytest.fixture
def new(engines: Engines, chart: Path, capsys: pytest.CaptureFixture[str]) -> Started:
    def found(case: Case) -> list[list[Reached]]:
        settings = [f"workload.gpus={PODS * GPUS_PER_POD}", "volumes.nfs.ip=10.0.0.2", "volumes.nfs.mountPath=/mnt"]
        settings += [f"workload.env.{name}={value}" for name, value in case["beside"].items()]
        script = chart / case["sha256"]
        flags = ["--set-file", f"task_script={script}"] if script.exists() else []
        rendered = engines.with_values(*sets(*settings), *flags, chart=str(chart / "chart"))
        workload = rendered.env.get("A4_WORKLOAD", "deepep")
        assert cli.main(typed(rendered.env, workload, rendered.workload.get("args", []))) == 0
        started = planned(capsys.readouterr().out)
        return [[one._replace(environment={**rendered.env, **one.environment}) for one in pod] for pod in started]

    return found


def table(page: str, heading: str) -> set[tuple[str, str]]:
    """The first column of each row below a heading, with each name in the second."""
    text = (ROOT / "docs" / page).read_text().partition(f"# {heading}\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\S+)` \| (`.*?) \|", text, re.MULTILINE)
    return {(first, each) for first, second in rows for each in re.findall(r"`([^`]+)`", second)}


def differing(before: Reached, now: Reached) -> Iterator[tuple[str, str]]:
    """The script, and the argument or the variable that it was given otherwise."""
    script = Path(before.program).name
    names = POSITIONS.get(script, ["MODEL"])
    for number, name in enumerate(names):
        was, is_ = (one.arguments[number : number + 1] for one in (before, now))
        if was != is_:
            yield script, f"{number + 1} {name}"
    for name, value in before.environment.items():
        if now.environment.get(name) != value:
            yield script, name


def test_pais_scripts_get_what_they_got_but_for_what_the_page_names(new: Started) -> None:
    found: set[tuple[str, str]] = set()
    for case in CASES:
        if not case["workload"].startswith("pai-megatron-"):
            continue
        before, now = old(case), new(case)
        for was, is_ in zip(before, now, strict=True):
            programs = [one.program for one in was]
            found |= {(one.program, "all") for one in is_ if one.program not in programs}
            trainings = [one for one in is_ if one.program in programs]
            found |= {(one.program, "all") for one in trainings[len(was) :]}
            assert [one.program for one in trainings[: len(was)]] == programs
            found |= {one for pair in zip(was, trainings, strict=False) for one in differing(*pair)}
    assert found == table("pai-megatron.md", "What an old script gave otherwise")


def test_torchrun_gets_what_it_got(new: Started) -> None:
    for case in (case for case in CASES if case["workload"] == "ddp"):
        for (was,), (is_,) in zip(old(case), new(case), strict=True):
            *options, _ = was.arguments
            given = dict(word[2:].replace("_", "-").split("=", 1) for word in options)
            words = is_.arguments
            now = {name[2:]: value for name, value in zip(words[::2], words[1::2], strict=False)}
            assert given.items() <= now.items()


def test_mpirun_gets_what_it_got_but_for_what_the_page_names(new: Started) -> None:
    found: set[tuple[str, str]] = set()
    for case in CASES:
        if case["workload"] not in ("nccl", "deepep"):
            continue
        (was, no_other), (now, *_) = old(case), new(case)
        now = [one for one in now if one.program == "mpirun"]
        assert not no_other and len(was) == len(now)
        for before, after in zip(was, now, strict=True):
            (options, program), (given, then) = mpirun(before.arguments), mpirun(after.arguments)
            same = {"orte_keep_fqdn_hostnames": "1"}  # `t` is another word for it
            for name, value in options.items():
                if given.get(name) != same.get(name.partition(" ")[2], value):
                    found.add((case["workload"], f"-{name}" if name.startswith("x ") else f"--{name}"))
            for name, value in before.environment.items():
                if after.environment.get(name) != value:
                    found.add((case["workload"], name))
            if program[0].endswith("_perf"):
                assert then[-len(program) + 1 :] == program[1:]
    assert found == table("migrating.md", "What mpirun got otherwise")
