"""Which script of the values runs, as what, and what is said of those that do not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import yaml

from tests.chart import seeds
from tests.chart.helm import CHART, ENGINES, Engines, HelmRefused, Rendered, made_of_each, sets

AGENT_DOES = "workload_launcher starts sshd and writes the hostfile: the agent does this now; drop the flag"
KEYS = ("task_script", "pai_training_script", "workload_launcher")
NFS = "volumes.nfs.ip=10.0.0.2"
OLD_LAUNCHERS = {path.stem: path.read_text() for path in (seeds.OLD / "launchers").glob("*.sh")}
OLD_EXAMPLES = {path.name: path.read_text() for path in (seeds.OLD / "examples").glob("*.sh")}

Run = Callable[..., Rendered]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One that knows old/launchers and old/examples."""
    at = tmp_path_factory.mktemp("known") / "chart"
    seeds.make_chart(at)
    return str(at)


@pytest.fixture
def run(engines: Engines, chart: str, tmp_path: Path) -> Run:
    """That chart with these files' contents as the values of these keys, as --set-file gives them."""

    def render(engine: str = "helm4", settings: tuple[str, ...] = (), **contents: str | bytes) -> Rendered:
        flags = list(sets(*settings))
        for key, content in contents.items():
            # What was rendered of one file is kept.
            file = tmp_path / f"{len(list(tmp_path.iterdir()))}.sh"
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
            flags += ["--set-file", f"{key}={file}"]
        return engines.with_values(*flags, engine=engine, chart=chart)

    return render


def refusals(run: Run, content: str | bytes, engine: str = "helm4") -> list[str]:
    """What is said of a content that stands in each of these keys, in their order."""
    with pytest.raises(HelmRefused) as refused:
        run(engine, **dict.fromkeys(KEYS, content))
    lines = str(refused.value).splitlines()
    return [line for key in KEYS for line in lines if line.startswith(f"- {key} ")]


def scripts(rendered: Rendered) -> list[str]:
    return [text for found in rendered.kind("ConfigMap") for text in found["data"].values()]


SSHD, HOSTFILE = "/usr/sbin/sshd -p 2222\n", "echo a slots=8 >> /etc/job-worker-services.txt\n"
UNIX = SSHD + HOSTFILE
WINDOWS = "\ufeff#!/bin/bash\r\n" + UNIX.replace("\n", "\r\n")
LAUNCHERS = {
    "bootstrap": (
        UNIX,
        WINDOWS,
        # With what belongs to it.
        f"#!/bin/bash\nmkdir -p /run/sshd\n{UNIX}sleep infinity\n",
        "service ssh start\n" + HOSTFILE,
        "/etc/init.d/ssh start\n" + HOSTFILE,
        "[ -x /usr/sbin/sshd ] && sshd -D &\n" + HOSTFILE,
        "{ sudo /usr/sbin/sshd; }\n" + HOSTFILE,
        HOSTFILE + "exec /usr/sbin/sshd -D\n",
        SSHD + "echo a > /etc/job-worker-services.txt\n",
        SSHD + 'echo a >>"/etc/job-worker-services.txt"\n',
        SSHD + "echo a | tee -a /etc/job-worker-services.txt\n",
        SSHD + "scp first:hosts /etc/job-worker-services.txt\n",
        SSHD + "export HOSTFILE=/etc/job-worker-services.txt\necho a >> $HOSTFILE\n",
        SSHD + "echo a >> /etc/job-worker-services-1pernode.txt\n",
    ),
    "agent": (
        "exec a4-agent run",
        "#!/bin/bash\n# ours\nset -euo pipefail\n\nexec a4-agent run\n",
        'a4-agent run "$@"\n',
        "a4-agent run $*\n",
        "exec /usr/local/bin/a4-agent run;\n",
        "a4-agent run ; \n",
        "  a4-agent  run  \n",
        "#!/bin/bash\r\nexec a4-agent run\r\n",
        "\ufeffexec a4-agent run\n",
    ),
    "agent nccl": ("exec a4-agent run nccl",),
    "agent ddp": ("/opt/a4-agent run ddp -- --steps 3",),
    "agent WORKLOAD": ("exec a4-agent run $1",),
    "script": (
        "echo hello\n",
        "# as sshd and /etc/job-worker-services.txt of old\ntorchrun train.py\n",
        "mpirun --hostfile /etc/job-worker-services.txt hostname\n",
        "python3 train.py && a4-agent run\n",
        SSHD + "python3 train.py\n",
        SSHD + "mpirun --hostfile /etc/job-worker-services.txt hostname\n",
        SSHD + "cat /etc/job-worker-services.txt\n",
        "grep sshd /etc/passwd\n" + HOSTFILE,
        "# sshd\n" + HOSTFILE,
        "a4-agent runs\n",
    ),
    "": ("", "\n", "# a comment alone\n", "#!/bin/bash\n\nset -e\n", "\ufeff\r\n"),
}
"""Some of each kind that the chart knows."""


def test_what_a_launcher_is_decides_what_becomes_of_it(engines: Engines, tmp_path: Path, run: Run) -> None:
    kinds = [(kind, content) for kind, contents in LAUNCHERS.items() for content in contents]
    expression = 'include "a4.launcherKind" . | trim'
    made = made_of_each(engines, CHART, tmp_path / "kinds", expression, [content for _, content in kinds])
    assert list(zip(made, [content for _, content in kinds], strict=True)) == kinds
    for kind, runs in {"agent": [], "": [], "script": ["echo hello\n"]}.items():
        rendered = run(workload_launcher=LAUNCHERS[kind][0])
        assert (scripts(rendered), rendered.env["SLEEP_INFINITY"]) == (runs, "false" if runs else "true")
        notes = ("only starts a4-agent: the chart does this now; drop the flag", "is empty and does nothing")
        assert [f"workload_launcher {note}" in rendered.notes for note in notes] == [kind == "agent", kind == ""]
        assert "drop the flag" not in rendered.notes or kind == "agent"
    for kind in ("agent nccl", "agent ddp", "agent WORKLOAD"):
        with pytest.raises(HelmRefused, match=f"in its place set workload.run={kind.removeprefix('agent ')} "):
            run(workload_launcher=LAUNCHERS[kind][0])


OF_LAUNCHER = (
    '(dict "Values" (dict "workload_launcher" .) "Files" $.Files | include "a4.launcher" | fromJson)',
    '(dict "Values" (dict "workload_launcher" .) "Files" $.Files | include "a4.oldPort" | trim)',
)


def test_an_old_launcher_is_not_run_and_what_has_been_added_to_it_is(
    engines: Engines, tmp_path: Path, run: Run, chart: str
) -> None:
    """Added at its end, or before it sleeps. That nothing runs of those as they were: tests/chart/test_seeds.py."""
    long = 'cd /work\nif [ "$JOB_COMPLETION_INDEX" = 0 ]; then\n  # all\n  python3 - <<EOF\nif x:\n  y\nEOF\nfi'
    wanted: dict[str, tuple[str, str]] = {}
    for stem, text in OLD_LAUNCHERS.items():
        port = "222" if stem == "testbed-a4" else "2222"
        for written in (text, text.replace("\n  ", "\n\t# changed \r\n\n    ").replace("\n", "\r\n")):
            wanted[written] = port, ""
        places = (len(text), text.index('if [ "$SLEEP_INFINITY" = true ]; then'))
        for at, own in product(places, ("bash train.sh", long)):
            wanted[f"{text[:at]}{own}\n{text[at:]}"] = port, own
    expression = f"list {' '.join(OF_LAUNCHER)}"
    made = made_of_each(engines, Path(chart), tmp_path / "launchers", expression, [*wanted])
    for (found, port), (old_port, own) in zip(made, wanted.values(), strict=True):
        assert (port, found.get("script", False), found.get("content", "").strip()) == (old_port, bool(own), own)
        not_run = AGENT_DOES + (", and set network.sshPort=222" if port == "222" else "")
        runs = "workload_launcher is an old one with lines of your own: these are run"
        assert found["note"].startswith(runs) if own else found["note"] == not_run
    rendered = run(workload_launcher=[*wanted][-1])
    assert ([script.strip() for script in scripts(rendered)], rendered.env["SLEEP_INFINITY"]) == ([long], "false")
    assert "an old one with lines of your own: these are run" in rendered.notes
    of_values = run(settings=("network.sshPort=2022",), workload_launcher=OLD_LAUNCHERS["testbed-a4"])
    assert (scripts(of_values), of_values.env["A4_SSH_PORT"]) == ([], "2022")


def test_any_other_bootstrap_is_refused_or_run_as_it_is(engines: Engines, tmp_path: Path, run: Run, chart: str) -> None:
    text = OLD_LAUNCHERS["unified"]
    others = (
        text.replace("sleep 10", "sleep 20"),
        text.replace("sleep 10", "bash train.sh\n  sleep 10"),
        text.replace("sleep 10\n", ""),
        "bash before.sh\n" + text + "bash after.sh\n",
        *LAUNCHERS["bootstrap"],
    )
    made = made_of_each(engines, Path(chart), tmp_path / "others", OF_LAUNCHER[0], others)
    assert [one for one in made if "give what else it does as task_script" not in one["problem"]] == []
    for content in (others[0], WINDOWS):
        with pytest.raises(HelmRefused, match="give what else it does as task_script"):
            run(workload_launcher=content)
        rendered = run(settings=("workload.run=script",), workload_launcher=content)
        assert scripts(rendered) == [content.removeprefix("\ufeff").replace("\r\n", "\n")]


def test_the_workload_runs_in_the_place_of_an_old_example(run: Run) -> None:
    """Whichever the key, of which each has one at least."""
    for (name, text), key in zip(OLD_EXAMPLES.items(), (*KEYS, *KEYS), strict=False):
        workload = seeds.WORKLOADS[name]
        rendered = run(settings=(NFS,), **{key: text})
        told = (rendered.env["A4_WORKLOAD"], rendered.env["SLEEP_INFINITY"])
        assert (scripts(rendered), *told) == ([], workload, "false")
        assert rendered.workload.get("args", []) == (["--", *seeds.ARGUMENTS] if workload == "nccl" else [])
        assert f"{key} is an example of the old testbeds: the workload {workload} runs in its place" in rendered.notes
        rules = rendered.job["podFailurePolicy"]["rules"]
        (final,) = [rule["onExitCodes"]["values"] for rule in rules if "onExitCodes" in rule]
        assert (1 in final) == workload.startswith("pai-megatron-")
        beside = ("workload.arguments={--own}", f"workload.run={workload}")
        own, same = (run(settings=(NFS, one), **{key: text}) for one in beside)
        assert (own.workload["args"], same.env["A4_WORKLOAD"]) == (["--", "--own"], workload)


def test_a_changed_example_is_refused_or_run_as_it_is(run: Run) -> None:
    for name, text in OLD_EXAMPLES.items():
        changed = text + "echo mine\n"
        with pytest.raises(HelmRefused, match=f"set workload.run={seeds.WORKLOADS[name]} in its place"):
            run(task_script=changed)
        for content in (changed, text):
            rendered = run(settings=("workload.run=script",), task_script=content)
            assert (scripts(rendered), rendered.env["A4_WORKLOAD"]) == ([content], "script")


def test_two_old_examples_are_two_things(run: Run) -> None:
    nccl, ddp = (OLD_EXAMPLES[name] for name in ("nccl-test.sh", "torchrun-ddp-test.sh"))
    with pytest.raises(HelmRefused, match="one job runs one thing, and here are workload_launcher, task_script"):
        run(workload_launcher=nccl, task_script=ddp)
    with pytest.raises(HelmRefused, match=r"here are task_script, workload\.run=connectivity"):
        run(settings=("workload.run=connectivity",), task_script=nccl)


def test_the_table_of_old_scripts_is_in_the_order_that_templates_read_it_in() -> None:
    table = yaml.safe_load((CHART / "files" / "old-scripts.yaml").read_text())
    lines = [launcher["lines"] for launcher in table["launchers"]]
    assert lines == sorted(lines, reverse=True)
    workloads = {example["workload"] for example in table["examples"]}
    assert workloads == set(seeds.WORKLOADS.values()) == set(table["lines"])


def test_a_script_with_nothing_in_it_is_named_and_not_run(run: Run) -> None:
    rendered = run(**dict.fromkeys(KEYS, "#!/bin/bash\n\nset -e\n"))
    assert (scripts(rendered), rendered.env["SLEEP_INFINITY"]) == ([], "true")
    assert [key for key in KEYS if f"{key} is empty and does nothing" not in rendered.notes] == []


def test_a_script_has_the_ends_of_lines_that_bash_takes(run: Run) -> None:
    written = "\ufeff#!/bin/bash\r\necho 'é \t'\r\n\r\nprintf 'a\\r\\n'\r\n"
    for key, engine in zip((*KEYS, "task_script"), ("helm4", "helm4", "helm4", "helm3"), strict=True):
        assert scripts(run(engine, **{key: written})) == ["#!/bin/bash\necho 'é \t'\n\nprintf 'a\\r\\n'\n"]


SHELLS = ("/bin/bash", "/bin/sh -e", "/usr/bin/env bash", " /usr/bin/bash", "/bin/dash", "/usr/bin/env -S bash -x")
OTHERS = ("/usr/bin/env python3", "/usr/bin/python", "/usr/bin/perl -w", "/bin/zsh", "/bin/tcsh")
PROBLEMS = '(include "a4.scriptProblems" (dict "key" "KEY" "content" .) | fromJson).problems'
PYTHONS = ("import os\nimport torch\n", "# mine\n\nfrom torch import nn\n", "import os, torch\n", "import torch as t\n")
NO_PYTHONS = ("python3 - <<END\nimport os\nEND\n", "import -window root a.png\n", "#!/bin/sh\nimport a\n", "from=1\n")
PATHS = ("train.sh", "./train.sh", "/home/me/train.bash", "examples/train.py")


def test_only_scripts_of_a_shell_and_commands_run(engines: Engines, run: Run, tmp_path: Path) -> None:
    words = "and scripts are run by bash: call your program from a script of bash"
    wanted: dict[str, list[str]] = {
        "bash train.sh": [],
        **{f"#!{program}\necho\n": [] for program in SHELLS},
        **{f"#!{program}\nprint(1)\n": [f"KEY starts with #!{program}, {words}"] for program in OTHERS},
        **{text: [f"KEY is Python, {words}"] for text in (*PYTHONS, '"""Train."""\nimport os\n')},
        **{text: [] for text in NO_PYTHONS},
        **{path: [f"KEY is the path {path} and not a script: write --set-file KEY={path}"] for path in PATHS},
    }
    made = made_of_each(engines, CHART, tmp_path / "problems", PROBLEMS, [*wanted])
    assert dict(zip(wanted, made, strict=True)) == wanted
    for content in ("bash train.sh", "#!/bin/sh -e\necho\n"):
        assert scripts(run(task_script=content)) == [content]
    # The same of each of the three.
    for content in (f"#!{OTHERS[0]}\nprint(1)\n", PATHS[0]):
        (said,) = wanted[content]
        assert refusals(run, content) == [f"- {said}".replace("KEY", key) for key in KEYS]


def test_a_script_that_is_no_utf_8_is_refused(run: Run) -> None:
    for engine in ENGINES:
        said = refusals(run, "echo é\n".encode("latin-1"), engine)
        assert [line.partition(":")[0] for line in said] == [f"- {key} is not text in UTF-8" for key in KEYS]


def test_a_script_that_is_too_large_for_a_release_is_refused(engines: Engines, tmp_path: Path) -> None:
    fits = "echo\n" + "x" * 399_995
    said = made_of_each(engines, CHART, tmp_path, PROBLEMS, [fits, fits + "x"])
    words = "KEY is larger than 400,000 bytes: bake it into the image, and start it from a small one"
    assert said == [[], [words]]
