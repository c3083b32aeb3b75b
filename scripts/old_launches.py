"""What the old testbeds' scripts gave to mpirun, torchrun and the scripts of Pai-Megatron-Patch, and what is given now.

    .venv/bin/python scripts/old_launches.py FILE... > tests/chart/old/launches.json

Each FILE is a script that chart/files/old-scripts.yaml knows, in one of its states (`git show COMMIT:PATH > FILE`). It
runs on two pods, one after the other, where every program that it starts writes down its arguments and does nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from agent.workbench.local.podenv import ClusterBuild, contract
from agent.workbench.local.spec import ClusterSpec

ROOT = Path(__file__).parents[1]
PODS, GPUS_PER_POD = 2, 8
PLACE = {"MASTER_ADDR": "demo-workload-0-0.demo.default.svc.cluster.local", "MASTER_PORT": "6002"}
"""Variables of the pods that reach torchrun through Pai's scripts."""
CLUSTER = {
    "NNODES": str(PODS),
    "GPUS_PER_NODE": str(GPUS_PER_POD),
    "WORLD_SIZE": str(PODS * GPUS_PER_POD),
    "JOB_ID": "demo",
    "HOSTNAME_PREFIX": "demo-workload-",
    **PLACE,
}
"""Variables of the pods that the scripts read."""
BESIDE: Mapping[str, list[dict[str, str]]] = {
    "pai-megatron-qwen3-next": [{}, {"TRAINING_MODE": "sft"}, {"USE_JSON_SFT": "true"}],
    "deepep": [{"RUN_DEEPEP_TEST": "true"}],
}
"""What the guides set beside a script, by its workload."""
NOT_GIVEN = {*contract(ClusterSpec(pods=PODS), ClusterBuild("", "", ""), 0, 0), "A4_WORKLOAD", "SLEEP_INFINITY"}
"""Variables of the chart that the local cluster sets itself."""
DOWNLOADERS = {"modelscope": "modelscope", "huggingface-cli": "huggingface", "python": "huggingface"}
PAI = ("run_mcore_qwen3.sh", "scripts/qwen3/run_8xH20.sh", "scripts/qwen3_next/run_8xH20.sh")
SILENT = ("git", "pip", "wget", "sleep", "scp", "ssh")
OF_THE_SHELL = {"_", "PWD", "OLDPWD", "SHLVL", "PATH", "LC_CTYPE"}
DEEPEP = 'if [ "$JOB_COMPLETION_INDEX" -eq "0" ] && [[ "${RUN_DEEPEP_TEST'
"""Where DeepEP's test begins in a launcher; what stands before it forms a cluster."""
RECORDER = """\
import json, os, sys
with open(os.environ["RECORD"], "a") as file:
    print(json.dumps({"program": sys.argv[1], "arguments": sys.argv[2:], "environment": dict(os.environ)}), file=file)
"""


class Reached(NamedTuple):
    """How a program was started."""

    program: str
    arguments: list[str]
    environment: Mapping[str, str]
    """What was set for it."""


# What the old scripts start


def bare(text: str) -> str:
    """A script as chart/files/old-scripts.yaml counts its lines."""
    lines = (line.strip(" \t\r") for line in text.split("\n"))
    return "\n".join(line for line in lines if line and not line.startswith("#"))


def sha256(text: str) -> str:
    return hashlib.sha256(bare(text).encode()).hexdigest()


def workload_of(text: str) -> str:
    """What runs in the place of a script; empty if the chart does not know it."""
    table = yaml.safe_load((ROOT / "chart" / "files" / "old-scripts.yaml").read_text())
    known: dict[str, str] = {one: example["workload"] for example in table["examples"] for one in example["sha256"]}
    if DEEPEP in text and sha256(text) in {launcher["sha256"] for launcher in table["launchers"]}:
        return "deepep"
    return known.get(sha256(text), "")


def reached(text: str, beside: Mapping[str, str]) -> list[list[Reached]]:
    """By pod, what a script starts there."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        script = root / "script.sh"
        text = text[max(0, text.find(DEEPEP)) :]
        script.write_text(re.sub(r"(?<![\w.}/])/(etc|tmp|usr/local|opt)/", rf"{root}/\1/", text))
        _make_place(root)
        return [list(_run(root, script, {**CLUSTER, **beside, "JOB_COMPLETION_INDEX": str(at)})) for at in range(PODS)]


def _make_place(root: Path) -> None:
    """The programs, and what the scripts look for."""
    (root / "recorder.py").write_text(RECORDER)
    for name in ("etc", "tmp"):
        (root / name).mkdir()
    (root / "etc" / "job-worker-services.txt").touch()
    patch = root / "mnt" / "Pai-Megatron-Patch"
    places = {root / "bin" / name: name for name in ("mpirun", "torchrun", *DOWNLOADERS)}
    places |= {patch / "examples" / family / PAI[0]: PAI[0] for family in ("qwen3", "qwen3_next")}
    places |= {patch / "toolkits" / "distributed_checkpoints_convertor" / name: name for name in PAI[1:]}
    for place, name in places.items():
        _write_program(place, f'exec {sys.executable} {root}/recorder.py {name} "$@"\n')
    for name in SILENT:
        _write_program(root / "bin" / name, "exit 0\n")


def _write_program(place: Path, body: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n{body}")
    place.chmod(0o755)


def _run(root: Path, script: Path, environ: Mapping[str, str]) -> Iterator[Reached]:
    record = root / f"record-{environ['JOB_COMPLETION_INDEX']}"
    record.touch()
    given = {
        **environ,
        "PATH": f"{root}/bin:{os.environ['PATH']}",
        "PAI_WORKSPACE_ROOT": f"{root}/mnt",
        "RECORD": str(record),
    }
    subprocess.run(["bash", str(script)], env=given, cwd=root, capture_output=True, timeout=100)
    for line in record.read_text().splitlines():
        found: dict[str, Any] = json.loads(line)
        own = {name: value for name, value in found["environment"].items() if value != given.get(name)}
        own = {name: own[name].replace(str(root), "") for name in sorted(own.keys() - OF_THE_SHELL)}
        program, arguments = found["program"], [word.replace(str(root), "") for word in found["arguments"]]
        if program in DOWNLOADERS:
            if models := re.findall(r"Qwen/[\w.-]+", " ".join(arguments)):
                yield Reached(DOWNLOADERS[program], models, {})
        elif program in PAI:
            yield Reached(program, arguments, {**PLACE, **own})
        else:
            yield _without_shell(Reached(program, arguments, own))


def _without_shell(one: Reached) -> Reached:
    """With the program that a shell of ranks starts in place of that shell."""
    if "-c" not in one.arguments:
        return one
    *options, _, _, line = one.arguments
    exported = dict(found.split("=", 1) for found in re.findall(r"export (\w+=\S+)", line))
    return Reached(one.program, [*options, *shlex.split(line.rpartition("&& ")[2])], {**one.environment, **exported})


# What is started now


def typed(environ: Mapping[str, str], workload: str, arguments: Sequence[str]) -> list[str]:
    """What to give `a4-agent` to see what such pods would start: their variables are those that the chart has made."""
    given = [f"--env={name}={value}" for name, value in environ.items() if name not in NOT_GIVEN]
    size = ["--name", "demo", "--pods", str(PODS), "--gpus-per-pod", str(GPUS_PER_POD)]
    return ["local", "run", *size, *given, "--dry-run", workload, *arguments]


def planned(text: str) -> list[list[Reached]]:
    """By pod, what `a4-agent local run … --dry-run` shows."""
    return [list(_started(pod)) for pod in re.split(r"^# pod \d+.*\n", text, flags=re.MULTILINE)[1:]]


def _started(pod: str) -> Iterator[Reached]:
    for step in re.split(r"^(?=# stage |cd / &&)", pod, flags=re.MULTILINE):
        if step.startswith("cd / && \\\n"):
            words = shlex.split(step.split("\n# ")[0].replace("\\\n", " "), comments=True)[3:]
            own = {name: value for name, equals, value in (word.partition("=") for word in words) if equals}
            words = words[next(at for at, word in enumerate(words) if "=" not in word) :]
            program = "torchrun" if "torch.distributed.run" in words else Path(words[0]).name
            yield Reached(program, words[3:] if program == "torchrun" else words[1:], own)
        for model, source in re.findall(r"^  download (Qwen/\S+) of (\w+)", step, re.MULTILINE):
            yield Reached(source, [model], {})
        for script in re.findall(r"^  bash (\S+)", step, re.MULTILINE):
            own = dict(re.findall(r"^  (\w+)=(.*)", step, re.MULTILINE))
            yield Reached(script, re.findall(r"^ +\d+ \w+ +(.*)", step, re.MULTILINE), own)


def mpirun(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Options, each under one name, and the program with its arguments."""
    left, options = list(words), {}
    while left[0].startswith("-"):
        name = left.pop(0).lstrip("-")
        if name in ("mca", "x"):
            key, _, value = left.pop(0).partition("=")
            options[f"{name} {key}"] = left.pop(0) if name == "mca" else value
        elif name != "allow-run-as-root":
            options[{"n": "np"}.get(name, name)] = left.pop(0)
    return options, left


def main() -> int:
    cases = []
    for file in map(Path, sys.argv[1:]):
        text = file.read_text()
        workload = workload_of(text)
        if not workload:
            print(f"{file}: the chart does not know it", file=sys.stderr)
            return 1
        for beside in BESIDE.get(workload, [{}]):
            pods = [[one._asdict() for one in pod] for pod in reached(text, beside)]
            cases.append({"sha256": sha256(text), "workload": workload, "beside": beside, "pods": pods})
    # A line for each program that was started.
    shown = json.dumps(cases, indent=1)
    print(re.sub(r"\n {4,}|\n {3}(?=\}|\])", " ", shown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
