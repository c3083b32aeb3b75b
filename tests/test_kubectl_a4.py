"""The plugin `kubectl a4` before a stand-in for kubectl: its words, the pod that it asks, what it passes on.

The stand-in notes how it is called and answers for the API server with what the templates of the plugin make of pods;
tests/kubernetes/test_plugin.py has the real kubectl, server and templates.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from agent import __version__

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "kubectl/kubectl-a4"
VERBS = ("status", "logs", "exec", "get", "why", "doctor", "cancel", "release", "cp", "wait")
STAND_IN = """\
#!/bin/sh
printf '%s\\0' "$@" >>calls
printf '\\n\\0' >>calls
case " $* " in
*" config view "*) cat context ;;
*" get pods "*) cat pods ;;
*" get jobsets"*" --ignore-not-found "*) cat jobset ;;
*" get jobsets"*) cat others ;;
*" exec "*) cat output; exit "$(cat code)" ;;
esac
"""
END = {"code": 75, "job_code": 3, "what": "a.sh failed", "where": "pod 1", "why": 'it said:\n  "no" …'}
"""As a pod that was told to end meanwhile leaves it: with the code of the job beside its own."""


class Done(NamedTuple):
    code: int
    out: str
    err: str
    calls: list[list[str]]
    """The words of each call of kubectl."""


class Shell:
    """Somebody who types, and what there is for them to find."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "bin").mkdir()
        self.program("kubectl", STAND_IN)
        self.answers(context="here/team-a", pods="", jobset="", others="", output="", code="0")

    def program(self, name: str, text: str) -> None:
        path = self.directory / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def answers(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.directory / name).write_text(text)

    def type(self, *words: str, env: Mapping[str, str] | None = None) -> Done:
        (self.directory / "calls").write_text("")
        path = f"{self.directory}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            [str(PLUGIN), *words],
            cwd=self.directory,
            env={"PATH": path, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        calls = (self.directory / "calls").read_text().split("\n\0")[:-1]
        return Done(done.returncode, done.stdout, done.stderr, [call.split("\0")[:-1] for call in calls])

    def asked(self, *words: str) -> str:
        """The pod in which the plugin runs something; empty for none."""
        return next((call[call.index("exec") + 1] for call in self.type(*words).calls if "exec" in call), "")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def pod(
    name: str,
    index: int = 0,
    *,
    uid: str = "new",
    job: str = "workload",
    number: int = 0,
    attempt: int = 0,
    phase: str = "Running",
    going: bool = False,
    state: str = "waiting",
    reason: str = "",
    code: int = 0,
    message: str = "",
) -> str:
    """The lines that the template makes of a pod."""
    ends = "2026-11-29T15:23:55Z" if going else ""
    first = ("pod", name, uid, job, str(number), str(attempt), str(index), phase, ends, "node-1", "workload", "", '""')
    quoted = json.dumps(message).replace(r"\u00", r"\x")  # as Go does
    box = ("box", "workload", state, str(code), reason, quoted)
    return "\t".join(first) + '\nReady\tTrue\t\t""\n' + "\t".join(box) + "\n"


runs = partial(pod, state="running")
failed = partial(pod, state="terminated", phase="Failed", code=1)
RUNS = runs("one")


# Words


def test_help_is_in_the_form_of_kubectl_with_an_example_for_each_verb(shell: Shell) -> None:
    told = shell.type("--help")
    assert told.code == 0 and re.findall(r"^  ([a-z]+) +[A-Z]", told.out, re.MULTILINE) == list(VERBS)
    for verb in VERBS:
        text = shell.type(verb, "-h").out
        headings = re.findall(r"^([A-Z][a-z]+):$", text, re.MULTILINE)
        assert headings == ["Examples", "Options", "Usage"], verb
        assert text.count(f"\n  kubectl a4 {verb} ") >= 2, verb
        assert shell.type("help", verb).out == text


WRONG = {
    "frob": "see kubectl a4 --help, or try kubectl a4 exec RELEASE -- a4-agent frob",
    "status": "the name of a release is missing",
    "status my-job -n": "-n needs a value",
    "status my-job --context=": "--context needs a value",
    "status a,b": "a,b is not the name of",
    "status my-job --pod -1": "--pod takes an index, not -1",
    "logs --tail 5 my-job": "write the release before --tail",
    "exec my-job hostname": "write -- before the command",
    "exec my-job": "a shell needs a terminal",
    "get my-job -o -": "-o takes a directory",
    "cp my-job a b": "such as 0:/tmp/file",
    "cp my-job 0:/a 1:/b": "such as 0:/tmp/file",
    "wait my-job now": "what is now?",
    "wait my-job --timeout 1d": "--timeout takes 90s, 10m or 12h, not 1d",
    "wait my-job --timeout h": "--timeout takes 90s, 10m or 12h, not h",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_words_end_with_2_and_the_remedy(shell: Shell, line: str) -> None:
    shell.answers(pods=RUNS)
    done = shell.type(*line.split())
    assert (done.code, done.out) == (2, "") and WRONG[line] in done.err, done.err
    assert not [call for call in done.calls if "exec" in call]


def test_it_says_that_kubectl_is_missing(shell: Shell) -> None:
    (shell.directory / "bin/kubectl").unlink()
    for name in ("awk", "tr"):
        (shell.directory / "bin" / name).symlink_to(f"/usr/bin/{name}")
    done = shell.type("status", "my-job", env={"PATH": f"{shell.directory}/bin"})
    assert (done.code, done.err) == (127, "kubectl a4: kubectl is not in PATH\n")


@pytest.mark.parametrize("flags", [["-n", "b"], ["-n=b"], ["--namespace", "b"], ["--namespace=b"]])
@pytest.mark.parametrize("first", [True, False])
def test_flags_of_kubectl_stand_anywhere_before_two_dashes(shell: Shell, flags: list[str], first: bool) -> None:
    shell.answers(pods=RUNS)
    words = ["exec", *flags, "my.job"] if first else ["exec", "my.job", *flags]
    *looks, last = shell.type(*words, "--context=there", "--", "ls", "-n", "x").calls
    assert all(call[:2] == ["--context=there", "--namespace=b"] for call in [*looks[1:], last])
    assert last[2:] == ["exec", "one", "--container=workload", "--", "ls", "-n", "x"]
    assert "jobset.sigs.k8s.io/jobset-name=my-job" in looks[-1]


@pytest.mark.parametrize(
    ("context", "flags"),
    [
        ("a/team-a", ["--context=a", "--namespace=team-a"]),
        ("arn:aws:eks:eu:1:cluster/a/", ["--context=arn:aws:eks:eu:1:cluster/a", "--namespace=default"]),
        ("", []),
    ],
    ids=["with a namespace", "without", "in a pod"],
)
def test_every_call_has_the_context_and_namespace_of_the_first(shell: Shell, context: str, flags: list[str]) -> None:
    shell.answers(context=context, pods=RUNS)
    _, *calls = shell.type("why", "my-job").calls
    assert [call[: call.index(verb)] for call, verb in zip(calls, ("get", "exec"), strict=True)] == [flags, flags]


ARGUMENTS = ["a  b", "", "'", '"', "\\n", "$HOME", "*", "-n", "--pod=1", "--", "ä\nb"]


def test_arguments_and_code_of_the_agent_pass_unchanged(shell: Shell) -> None:
    shell.answers(pods=RUNS, code="65", output="said\n")
    done = shell.type("exec", "my-job", "--all", "--hosts", "0,2", "--", *ARGUMENTS)
    assert done.calls[-1][-len(ARGUMENTS) - 5 :] == ["a4-agent", "exec", "--hosts", "0,2", "--", *ARGUMENTS]
    assert (done.code, done.out) == (65, "said\n")


# Which pod

PICKED = {
    "a replaced one": [failed("one"), runs("two")],
    "a replaced one that goes": [runs("one", going=True), runs("two")],
    "that goes alone": [runs("two", going=True)],
    "of a later attempt": [runs("one", attempt=9), runs("two", attempt=10)],
    "of a later JobSet": [runs("one", uid="old"), runs("two"), runs("three", 1)],
    "of the Job called workload": [runs("one", job="data"), runs("two")],
    "of the only Job": [runs("two", job="train")],
}


@pytest.mark.parametrize("pods", PICKED.values(), ids=PICKED)
def test_it_asks_the_pod(shell: Shell, pods: list[str]) -> None:
    shell.answers(pods="".join(pods))
    assert shell.asked("why", "my-job") == "two"


def test_several_jobs_are_told_apart(shell: Shell) -> None:
    shell.answers(pods="".join(runs(f"{job}-{at}", job=job, number=at) for job in "ab" for at in (0, 1)))
    done = shell.type("why", "my-job")
    assert (done.code, "--job: a-0 a-1 b-0 b-1" in done.err) == (2, True)
    assert shell.type("why", "my-job", "--job", "b").code == 2
    assert shell.asked("why", "my-job", "--job", "b-1") == "b-1"


def test_a_pod_of_an_earlier_attempt_is_not_asked_while_the_next_one_starts(shell: Shell) -> None:
    shell.answers(pods=runs("one") + pod("two", attempt=1), jobset="uid false 1 ")
    done = shell.type("why", "my-job")
    assert (done.code, shell.asked("why", "my-job")) == (1, "")
    assert done.err == "JobSet my-job in namespace team-a, restarts: 1\npod 0, two, node node-1: is being started\n"


# What is said of pods


def test_pods_of_which_the_same_is_said_share_a_line(shell: Shell) -> None:
    """What the kubelet says may have quotes and control characters."""
    pulls = partial(pod, reason="ImagePullBackOff", message='\x1b[31mBack-off: "a\\b"')
    pods = [(runs if index == 3 else pulls)(f"p{index}", index) for index in (0, 1, 2, 3, 5, 10)]
    shell.answers(pods="".join(pods), jobset="uid false 0 ")
    assert shell.type("status", "my-job") == (
        0,
        "JobSet my-job in namespace team-a, restarts: 0\n"
        'pods 0-2, 5, 10: ImagePullBackOff:  [31mBack-off: "a\\b"\n'
        "pod 3, p3, node node-1: runs\n",
        "",
        shell.type("status", "my-job").calls,
    )


def test_the_end_of_a_job_is_told_in_the_words_of_the_agent_and_its_code_passed(shell: Shell) -> None:
    end = pod("one", 1, state="terminated", phase="Failed", reason="Error", code=75, message=json.dumps(END))
    shell.answers(pods=end, jobset="uid false 0 Failed FailedJobs: a Job has failed")
    done = shell.type("wait", "my-job")
    assert done[:3] == (
        3,
        "",
        "kubectl a4: JobSet my-job in namespace team-a: Failed, FailedJobs: a Job has failed\n"
        'pod 1, one, node node-1: exit code 75\na.sh failed (pod 1)\n  it said:\n    "no" …\n',
    )


@pytest.mark.parametrize(
    ("jobset", "pods", "code"),
    [
        ("uid false 0 Completed AllJobsCompleted: good", "", 0),
        ("uid false 0 Failed FailedJobs: bad", "", 1),
        ("uid false 0 Failed FailedJobs: bad", failed("a", reason="OOMKilled") + RUNS, 1),
        ("uid false 0 ", RUNS, 124),
        ("", RUNS, 1),
    ],
    ids=["good", "no pod is left", "one has ended", "not yet", "gone"],
)
def test_wait_ends_with_the_code_of_the_job(shell: Shell, jobset: str, pods: str, code: int) -> None:
    shell.answers(pods=pods, jobset=jobset, others=", a, b")
    assert shell.type("wait", "my-job", "--timeout=0s").code == code


def test_wait_goes_on_when_the_server_is_away_for_a_while(shell: Shell) -> None:
    shell.program("sleep", "#!/bin/sh\n")
    look = 'count=$(grep -c ignore-not-found -a calls); [ "$count" != 2 ] || exit 1; cat "jobset$count"'
    shell.program("kubectl", STAND_IN.replace("cat jobset", look))
    shell.answers(jobset1="uid false 0 ", jobset3="uid false 0 Completed AllJobsCompleted: good")
    done = shell.type("wait", "my-job")
    assert (done.code, "waiting for the end" in done.err, "Completed" in done.err) == (0, True, True)


LEFT = failed("one", 1) + failed("two", 2)


@pytest.mark.parametrize(
    ("words", "pods", "code", "log"),
    [
        (["--tail", "5"], LEFT, "0", ["one", "--container=workload", "--tail", "5"]),
        (["--pod=2"], LEFT, "0", ["two", "--container=workload"]),
        ([], RUNS, "66", ["one", "--container=workload", "--follow"]),
    ],
    ids=["pod 0 is gone", "of another pod", "there was no run yet"],
)
def test_logs_without_a_run_are_those_of_a_pod(
    shell: Shell, words: list[str], pods: str, code: str, log: list[str]
) -> None:
    shell.answers(pods=pods, code=code)
    last = shell.type("logs", "my-job", *words).calls[-1]
    assert last[2:] == ["logs", *log]


def test_status_adds_why_another_pod_does_not_run(shell: Shell) -> None:
    shell.answers(pods=RUNS + pod("two", 1, reason="ErrImagePull"), output="said\n")
    done = shell.type("status", "my-job", "--json")
    assert done[:3] == (0, "said\n", "pod 0, one, node node-1: runs\npod 1, two, node node-1: ErrImagePull\n")


def test_a_gone_release_is_told_with_those_that_are_there(shell: Shell) -> None:
    shell.answers(others=", one, two")
    said = shell.type("status", "my-job")
    assert said[:3] == (1, "", "kubectl a4: there is no JobSet my-job in namespace team-a; others there: one, two\n")


def test_a_pod_that_is_deleted_meanwhile_is_told(shell: Shell) -> None:
    """kubectl ends with 1, and so may what it runs."""
    shell.answers(pods=RUNS, code="1", others=", two")
    assert shell.type("exec", "my-job", "--", "false").err == ""
    count = "calls=$(grep -c pods -a calls)"
    shell.program("kubectl", STAND_IN.replace("cat pods", f'{count}; [ "$calls" -gt 1 ] || cat pods'))
    done = shell.type("exec", "my-job", "--", "sleep", "9")
    assert (done.code, "others there: two" in done.err) == (1, True)


# get and cp


def archive(*names: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(mode="w|", fileobj=file) as packed:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 2000
            packed.addfile(member, io.BytesIO(bytes(member.size)))
    return file.getvalue()


PAGE = "a4-results/a/report.html"


@pytest.mark.parametrize(
    ("words", "env", "opened"),
    [([], {"DISPLAY": ":0"}, True), (["--no-open"], {"DISPLAY": ":0"}, False), ([], {}, False)],
    ids=["opened", "--no-open", "no display"],
)
def test_get_prints_the_page_and_opens_it(shell: Shell, words: list[str], env: dict[str, str], opened: bool) -> None:
    shell.answers(pods=RUNS)
    (shell.directory / "output").write_bytes(archive("a/report.html", "a/pod-logs/worker-1.log"))
    # A FIFO: reading it waits for who opens the page.
    os.mkfifo(shell.directory / "seen")
    shell.program("xdg-open", '#!/bin/sh\necho "$1" >seen\n')
    done = shell.type("get", "my-job", "night 1", *words, env=env)
    assert (done.code, done.out) == (0, f"{PAGE}\n")
    assert done.calls[-1][-5:] == ["a4-agent", "get", "night 1", "-o", "-"]
    assert sorted(path.name for path in (shell.directory / "a4-results/a").iterdir()) == ["pod-logs", "report.html"]
    assert sorted(path.name for path in (shell.directory / "a4-results").iterdir()) == ["a"]
    assert not opened or (shell.directory / "seen").read_text() == f"{PAGE}\n"


@pytest.mark.parametrize("code", [0, 66])
def test_get_of_what_breaks_off_changes_nothing(shell: Shell, code: int) -> None:
    shell.answers(pods=RUNS, code=str(code))
    (shell.directory / "output").write_bytes(archive("a/report.html")[:1000] if code == 0 else b"")
    done = shell.type("get", "my-job")
    assert (done.code, done.out, "no whole archive" in done.err) == (code or 1, "", code == 0)
    assert list((shell.directory / "a4-results").iterdir()) == []


def test_cp_takes_indices_for_pods(shell: Shell) -> None:
    shell.answers(pods=runs("zero") + runs("one", 1))
    *_, there, copies = shell.type("cp", "my-job", "1:/tmp/a:b", "here", "--retries=5").calls
    assert there[-3:] == ["test", "-e", "/tmp/a:b"]
    assert copies[2:] == ["cp", "--container=workload", "one:/tmp/a:b", "here", "--retries=5"]
    *_, copies = shell.type("cp", "my-job", "here", "0:/tmp/").calls
    assert copies[2:] == ["cp", "--container=workload", "here", "zero:/tmp/"]


# The manifest


def test_the_manifest_is_one_that_krew_takes() -> None:
    """What internal/index/validation of krew asks for."""
    manifest = yaml.safe_load((ROOT / "kubectl/a4.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert manifest["metadata"]["name"] == PLUGIN.name.removeprefix("kubectl-")
    spec = manifest["spec"]
    assert spec["version"] == f"v{__version__}" and "\n" not in spec["shortDescription"]
    (source,) = re.findall(r"Source = (\S+)", (ROOT / "setup.cfg").read_text())
    (platform,) = spec["platforms"]
    assert (spec["homepage"], platform["uri"]) == (source, f"{source}/archive/v{__version__}.tar.gz")
    assert re.fullmatch("[0-9a-f]{64}", platform["sha256"])
    assert {one["key"] for one in platform["selector"]["matchExpressions"]} == {"os"}
    files = [one["from"].removeprefix("*/") for one in platform["files"]]
    assert all((ROOT / file).exists() for file in files) and platform["bin"] in {Path(file).name for file in files}
