"""Which script of the values runs, as what, and what is said of those that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart import seeds
from tests.chart.helm import CHART, ENGINES, Engines, HelmRefused, Rendered, sets

KEYS = ("task_script", "pai_training_script", "workload_launcher")


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


def refusal(run: Run, content: str | bytes, engine: str = "helm4") -> str:
    """What is said of a content, whatever key it stands in: it is the same of each."""
    with pytest.raises(HelmRefused) as refused:
        run(engine, **dict.fromkeys(KEYS, content))
    sentences = [line for line in str(refused.value).splitlines() if line.startswith("- ")]
    said = {sentence.replace(key, "KEY") for key in KEYS for sentence in sentences if sentence.startswith(f"- {key} ")}
    assert sum(sentence.startswith(f"- {key} ") for key in KEYS for sentence in sentences) == len(KEYS)
    (one,) = said
    return one


def scripts(rendered: Rendered) -> list[str]:
    return [text for found in rendered.kind("ConfigMap") for text in found["data"].values()]


SSHD, HOSTFILE = "/usr/sbin/sshd -p 2222\n", "echo a slots=8 >> /etc/job-worker-services.txt\n"
BOOTSTRAPS = {
    "alone": SSHD + HOSTFILE,
    "with what belongs to it": f"#!/bin/bash\nmkdir -p /run/sshd\n{SSHD}{HOSTFILE}sleep infinity\n",
    "sshd by its service": "service ssh start\n" + HOSTFILE,
    "sshd by its init script": "/etc/init.d/ssh start\n" + HOSTFILE,
    "sshd by its name, after a test": "[ -x /usr/sbin/sshd ] && sshd -D &\n" + HOSTFILE,
    "sshd in a group": "{ sudo /usr/sbin/sshd; }\n" + HOSTFILE,
    "sshd in place of the shell": HOSTFILE + "exec /usr/sbin/sshd -D\n",
    "the hostfile with >": SSHD + "echo a > /etc/job-worker-services.txt\n",
    "the hostfile in quotes": SSHD + 'echo a >>"/etc/job-worker-services.txt"\n',
    "the hostfile with tee": SSHD + "echo a | tee -a /etc/job-worker-services.txt\n",
    "the hostfile with scp": SSHD + "scp first:hosts /etc/job-worker-services.txt\n",
    "the hostfile by a variable": SSHD + "export HOSTFILE=/etc/job-worker-services.txt\necho a >> $HOSTFILE\n",
    "the other hostfile": SSHD + "echo a >> /etc/job-worker-services-1pernode.txt\n",
    "of Windows": "\ufeff#!/bin/bash\r\n" + SSHD.replace("\n", "\r\n") + HOSTFILE.replace("\n", "\r\n"),
}
STARTS_THE_AGENT = (
    "exec a4-agent run",
    "#!/bin/bash\n# ours\nset -euo pipefail\n\nexec a4-agent run\n",
    'a4-agent run "$@"\n',
    "a4-agent run $*\n",
    "exec /usr/local/bin/a4-agent run;\n",
    "a4-agent run ; \n",
    "  a4-agent  run  \n",
    "#!/bin/bash\r\nexec a4-agent run\r\n",
    "\ufeffexec a4-agent run\n",
)
PROGRAMS = (
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
)


LAUNCHERS = sorted((seeds.OLD / "launchers").glob("*.sh"))
EXAMPLES = sorted((seeds.OLD / "examples").glob("*.sh"))
AGENT_DOES = "workload_launcher starts sshd and writes the hostfile: the agent does this now; drop the flag"
by_launcher = pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda path: path.stem)
by_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


@by_launcher
def test_an_old_launcher_is_not_run(run: Run, launcher: Path) -> None:
    text = launcher.read_text()
    port = "222" if launcher.stem == "testbed-a4" else "2222"
    for written in (text, text.replace("\n  ", "\n\t# changed \r\n\n    ").replace("\n", "\r\n")):
        rendered = run(workload_launcher=written)
        assert (scripts(rendered), rendered.env["SLEEP_INFINITY"], rendered.env["A4_SSH_PORT"]) == ([], "true", port)
        assert AGENT_DOES + (", and set network.sshPort=222." if port == "222" else ".") in rendered.notes
    of_values = run(settings=("network.sshPort=2022",), workload_launcher=text)
    assert of_values.env["A4_SSH_PORT"] == "2022"


OWN = (
    "bash train.sh",
    'cd /work\nif [ "$JOB_COMPLETION_INDEX" = 0 ]; then\n  # all\n  python3 - <<EOF\nif x:\n  y\nEOF\nfi',
)
BEFORE_IT_SLEEPS = 'if [ "$SLEEP_INFINITY" = true ]; then'


@by_launcher
@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("place", ["at the end", "before it sleeps"])
def test_what_has_been_added_to_an_old_launcher_is_run(run: Run, launcher: Path, own: str, place: str) -> None:
    text = launcher.read_text()
    at = len(text) if place == "at the end" else text.index(BEFORE_IT_SLEEPS)
    rendered = run(workload_launcher=f"{text[:at]}{own}\n{text[at:]}")
    (script,) = scripts(rendered)
    assert script.strip() == own
    assert rendered.env["SLEEP_INFINITY"] == "false"
    assert "an old one with lines of your own: these are run" in rendered.notes


def changed_elsewhere() -> Iterator[str]:
    text = (seeds.OLD / "launchers" / "unified.sh").read_text()
    yield text.replace("sleep 10", "sleep 20")
    yield text.replace("sleep 10", "bash train.sh\n  sleep 10")
    yield text.replace("sleep 10\n", "")
    yield "bash before.sh\n" + text + "bash after.sh\n"
    yield from BOOTSTRAPS.values()


@pytest.mark.parametrize("content", list(changed_elsewhere()))
def test_any_other_bootstrap_is_refused_or_run_as_it_is(run: Run, content: str) -> None:
    with pytest.raises(HelmRefused, match="give what else it does as task_script"):
        run(workload_launcher=content)
    rendered = run(settings=("workload.run=script",), workload_launcher=content)
    assert scripts(rendered) == [content.removeprefix("\ufeff").replace("\r\n", "\n")]


@by_example
@pytest.mark.parametrize("key", KEYS)
def test_the_workload_runs_in_the_place_of_an_old_example(run: Run, example: Path, key: str) -> None:
    settings = ("volumes.nfs.ip=10.0.0.2",)
    rendered = run(settings=settings, **{key: example.read_text()})
    workload = seeds.WORKLOADS[example.name]
    assert (scripts(rendered), rendered.env["A4_WORKLOAD"], rendered.env["SLEEP_INFINITY"]) == ([], workload, "false")
    assert rendered.workload.get("args", []) == (["--", *seeds.ARGUMENTS] if workload == "nccl" else [])
    assert f"{key} is an example of the old testbeds: the workload {workload} runs in its place" in rendered.notes
    (final,) = [
        rule
        for rule in rendered.jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]["rules"]
        if "onExitCodes" in rule
    ]
    assert (1 in final["onExitCodes"]["values"]) == workload.startswith("pai-megatron-")
    own = run(settings=(*settings, "workload.arguments={--own}"), **{key: example.read_text()})
    assert own.workload["args"] == ["--", "--own"]
    same = run(settings=(*settings, f"workload.run={workload}"), **{key: example.read_text()})
    assert same.env["A4_WORKLOAD"] == workload


@by_example
def test_a_changed_example_is_refused_or_run_as_it_is(run: Run, example: Path) -> None:
    content = example.read_text() + "echo mine\n"
    with pytest.raises(HelmRefused, match=f"set workload.run={seeds.WORKLOADS[example.name]} in its place"):
        run(task_script=content)
    for text in (content, example.read_text()):
        rendered = run(settings=("workload.run=script",), task_script=text)
        assert (scripts(rendered), rendered.env["A4_WORKLOAD"]) == ([text], "script")


def test_two_old_examples_are_two_things(run: Run) -> None:
    nccl, ddp = ((seeds.OLD / "examples" / name).read_text() for name in ("nccl-test.sh", "torchrun-ddp-test.sh"))
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


@pytest.mark.parametrize("content", STARTS_THE_AGENT)
def test_a_launcher_that_starts_the_agent_is_not_run(run: Run, content: str) -> None:
    rendered = run(workload_launcher=content)
    assert (scripts(rendered), rendered.env["SLEEP_INFINITY"]) == ([], "true")
    assert "workload_launcher only starts a4-agent: the chart does this now; drop the flag" in rendered.notes


@pytest.mark.parametrize("content", PROGRAMS)
def test_any_other_launcher_is_the_script(run: Run, content: str) -> None:
    rendered = run(workload_launcher=content)
    assert (scripts(rendered), rendered.env["SLEEP_INFINITY"]) == ([content], "false")
    assert "drop the flag" not in rendered.notes


@pytest.mark.parametrize(
    ("content", "workload"),
    [
        ("exec a4-agent run nccl", "nccl"),
        ("/opt/a4-agent run ddp -- --steps 3", "ddp"),
        ("exec a4-agent run $1", "WORKLOAD"),
    ],
)
def test_a_launcher_that_starts_a_workload_is_told_of_workload_run(run: Run, content: str, workload: str) -> None:
    with pytest.raises(HelmRefused, match=f"in its place set workload.run={workload} "):
        run(workload_launcher=content)


@pytest.mark.parametrize("content", ["", "\n", "# a comment alone\n", "#!/bin/bash\n\nset -e\n", "\ufeff\r\n"])
def test_a_script_with_nothing_in_it_is_named_and_not_run(run: Run, content: str) -> None:
    rendered = run(**dict.fromkeys(KEYS, content))
    assert (scripts(rendered), rendered.env["SLEEP_INFINITY"]) == ([], "true")
    for key in KEYS:
        assert f"{key} is empty and does nothing" in rendered.notes


def test_a_script_has_the_ends_of_lines_that_bash_takes(run: Run) -> None:
    written = "\ufeff#!/bin/bash\r\necho 'é \t'\r\n\r\nprintf 'a\\r\\n'\r\n"
    for key, engine in zip((*KEYS, "task_script"), ("helm4", "helm4", "helm4", "helm3"), strict=True):
        assert scripts(run(engine, **{key: written})) == ["#!/bin/bash\necho 'é \t'\n\nprintf 'a\\r\\n'\n"]


SHELLS = ("/bin/bash", "/bin/sh -e", "/usr/bin/env bash", " /usr/bin/bash", "/bin/dash", "/usr/bin/env -S bash -x")
OTHERS = ("/usr/bin/env python3", "/usr/bin/python", "/usr/bin/perl -w", "/bin/zsh", "/bin/tcsh")


@pytest.mark.parametrize("content", [*(f"#!{program}\necho\n" for program in SHELLS), "bash train.sh"])
def test_a_script_of_a_shell_and_a_command_run(run: Run, content: str) -> None:
    assert scripts(run(task_script=content)) == [content]


@pytest.mark.parametrize("program", OTHERS)
def test_a_script_of_another_program_is_refused(run: Run, program: str) -> None:
    said = refusal(run, f"#!{program}\nprint(1)\n")
    assert said.startswith(f"- KEY starts with #!{program}, and scripts are run by bash")


@pytest.mark.parametrize("path", ["train.sh", "./train.sh", "/home/me/train.bash", "examples/train.py"])
def test_a_path_in_place_of_a_script_is_refused(run: Run, path: str) -> None:
    assert refusal(run, path) == f"- KEY is the path {path} and not a script: write --set-file KEY={path}"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_script_that_is_no_utf_8_is_refused(run: Run, engine: str) -> None:
    assert refusal(run, "echo é\n".encode("latin-1"), engine).startswith("- KEY is not text in UTF-8")


def test_a_script_that_is_too_large_for_a_release_is_refused(run: Run) -> None:
    fits = "echo\n" + "x" * 399_995
    assert scripts(run(task_script=fits)) == [fits]
    with pytest.raises(HelmRefused, match="task_script is larger than 400,000 bytes"):
        run(task_script=fits + "x")
