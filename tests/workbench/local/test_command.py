"""The verbs of `a4-agent local`, as people type them."""

from __future__ import annotations

import json
import os
import platform
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.commands import dispatch
from agent.errors import MissingProgram, SystemFault, UsageError
from agent.workbench.local import host_survey
from agent.workbench.local.client import LocalCluster, default_cluster
from agent.workbench.local.foreground import run_in_foreground
from agent.workbench.local.sockets import running_clusters
from agent.workbench.local.spec import ClusterSpec
from tests.deadlines import at_any_moment, limits_of_words, refuse_short
from tests.golden.golden import expect_golden, shape
from tests.terminal import Terminal
from tests.workbench.local.helpers import CHECKOUT, DEADLINE, eventually, needs_root, until_asleep, up

AGENT = [sys.executable, "-m", "agent", "local"]


def local(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    refuse_short(limits_of_words(words))
    limits: dict[str, Any] = {"timeout": DEADLINE, "check": False, "cwd": CHECKOUT}
    return subprocess.run([*AGENT, *words], input=text, capture_output=True, text=True, **limits)


def fresh_name(word: str) -> str:
    return f"{word}-{os.getpid()}"


def refused(words: Sequence[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of words that start nothing."""
    try:
        code = dispatch(["local", *words])
    except SystemExit as end:
        code = int(end.code or 0)
    shown = capfd.readouterr()
    return code, shown.out, shown.err


@pytest.fixture(scope="module")
def cluster(no_pod_around_fixtures: None) -> Iterator[LocalCluster]:
    with up(2, ("sh", "-c", "echo hello; exec sleep infinity")) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["up", "users1"], "there is no workload 'users1'; for a cluster of that name type --name users1"),
        (["run", "torchrun"], "local up --wait, and then: a4-agent local exec 0 -- a4-agent torchrun …"),
        (["run", "--pods", "2", "--late", "1"], "index of a pod, a colon and a value"),
        (["run", "--pods", "2", "--late", "1:soon"], "'soon' is not a number"),
        (["run", "--pods", "2", "--timeout", "-5", "none"], "'-5' is not 0 or a number"),
        (["down", "--grace", "nan"], "'nan' is not 0 or a number"),
        (["run", "--pods", "2", "--env", "NAME"], "NAME=VALUE, not 'NAME'"),
        (["run", "--pods", "2", "--mount", "/no/such/directory"], "/no/such/directory is not a directory"),
        (["run", "--pods", "2", "--mount", "/tmp:data"], "'data' is not an absolute path in a pod"),
        (["run", "--pods", "2", "--mount", "/tmp:/proc", "none"], "mount: /proc is the pod's own"),
        (["run", "--pods", "2", "--results", "", "none"], "--results needs the name of a directory"),
        (["run", "--pods", "2", "--results", "/dev/null", "none"], "cannot be made: Not a directory"),
        (["run", "--pods", "2", "--metadata", "tea"], "metadata: one of ok"),
        (["run", "--lives", "-1", "none"], "lives: 0 to 1000, not -1"),
        (["run", "--lives", "1", "--replace-after", "-1", "none"], "seconds: 0 or more, not -1"),
        (["run", "--replaced-name", "late:2", "none"], "replaced name: pods are replaced only with lives"),
        (["run", "--lives", "1", "--replaced-name", "late", "none"], "a mode, a colon and seconds, not 'late'"),
        (["run", "--lives", "1", "--replaced-name", "late:soon", "none"], "'soon' is not a number"),
        (["up", "--lives", "1", "--replaced-name", "slow:2"], "replaced name: one of ok, late, stale, both, not slow"),
        (["run", "--pods", "1000", "--real-gpus"], "1000 x 8 real GPUs (pods x per pod) are 8000, this"),
        (["exec", "0", "--name", "nobody", "--", "true"], "no local cluster"),
        (["cp", "--name", "nobody", "/etc/hosts", "0:/tmp"], "no local cluster"),
        (["down", "--name", "nobody"], "no local cluster"),
        (["status", "--name", ""], "the name is empty; is a variable of this shell empty?"),
        (["run", "--pods", "2", "--dry-run", "--name=", "none"], "the name is empty"),
    ],
)
@needs_root
def test_errors_of_usage(words: list[str], text: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, said = refused(words, capfd)
    assert (code, text in said) == (2, True), said


@needs_root
def test_exec_passes_streams_and_code(cluster: LocalCluster) -> None:
    result = local("exec", "1", "--name", cluster.name, "--", "sh", "-c", "cat; echo err >&2; exit 6", text="in")
    assert (result.returncode, result.stdout, result.stderr) == (6, "in", "err\n")


@needs_root
def test_a_terminal_tells_who_is_missing_and_what_goes_on(tmp_path: Path) -> None:
    """Until the pod comes, and until the script may end."""
    script = tmp_path / "script.sh"
    script.write_text("echo begun; until [ -e /shared/over ]; do sleep 0.1; done\n")
    name = fresh_name("terminal")
    words = ["run", "--pods", "2", "--gpus-per-pod", "1", "--missing", "1", "--name", name]
    words += ["--mount", f"{tmp_path}:/shared", "--task-script", str(script), "script"]
    with Terminal() as terminal:
        env = {**os.environ, "TERM": "xterm"}
        argv = [*terminal.through, *AGENT, *words]
        with subprocess.Popen(argv, cwd=CHECKOUT, env=env, **terminal.streams) as running:
            terminal.until("\r1 of 2 pods are there, ")
            terminal.until("; waiting for pod 1: ")
            late = LocalCluster.attach(name)
            late.set_name(1, visible=True)
            late.start_pod(1)
            terminal.until("begun\r\n")
            terminal.until("\rscript-")
            terminal.until(" on 2 pods, ")
            (tmp_path / "over").touch()
            assert terminal.until("Ends:").endswith("\r\x1b[K\r\n")
            assert running.wait(DEADLINE) == 0


@needs_root
def test_a_run_in_which_no_pod_made_a_plan_is_not_good(capfd: pytest.CaptureFixture[str]) -> None:
    spec = ClusterSpec(2, name=fresh_name("planless"), entrypoint=("true",))
    assert run_in_foreground(spec, timeout=0, grace=30, as_json=False, all_pods=False) == 65
    assert "no pod made a plan" in capfd.readouterr().err


@needs_root
def test_output_of_all_pods(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text("echo begun; printf 'more? '; until [ -e /shared/over ]; do sleep 0.1; done\n")
    words = ["run", "--all-pods", "--pods", "2", "--gpus-per-pod", "1", "--name", fresh_name("all")]
    words += ["--mount", f"{tmp_path}:/shared", "--task-script", str(script), "script"]
    shown = ""
    with open(tmp_path / "errors", "w+") as errors:
        with subprocess.Popen([*AGENT, *words], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=errors) as running:
            try:
                assert running.stdout is not None
                while shown.count("more? ") < 2:  # a line without an end is shown before its pod ends
                    assert select.select([running.stdout], [], [], DEADLINE)[0], shown
                    shown += (piece := os.read(running.stdout.fileno(), 65536)).decode()
                    assert piece, shown
                (tmp_path / "over").touch()
                shown += running.communicate(timeout=DEADLINE)[0].decode()
            finally:
                running.kill()
        errors.seek(0)
        assert (running.returncode, "[1] " in errors.read()) == (0, True)
    shown = shown.partition("\nEnds:")[0]
    assert sorted(shown.splitlines()) == sorted(f"[{pod}] {word}" for pod in (0, 1) for word in ("begun", "more? "))


@needs_root
def test_a_command_that_is_one_text_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(UsageError, match="a command is a list of words"):
        cluster.exec(0, "ls /")


@needs_root
def test_files_are_copied_into_a_pod_and_out_of_it(cluster: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a:b c").write_text("text")
    (tmp_path / "in" / "link").symlink_to("a:b c")
    for source, target in (
        (f"{tmp_path}/in", f"{cluster.spec.node_name(1)}:/tmp"),  # a directory that is there
        (f"{tmp_path}/in/a:b c", "1:tmp/in/new"),
        (f"{tmp_path}/in/link", "1:/tmp/in/new"),  # in its place
        (f"{tmp_path}/in/.", "1:/tmp/in"),  # the contents, into a directory that is there
        ("1:/tmp/in/.", f"{tmp_path}/contents"),  # and as a new one
        ("1:/tmp/in", f"{tmp_path}/out"),
    ):
        done = local("cp", "--name", cluster.name, source, target)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for copied in ("out", "contents"):
        assert sorted(os.listdir(tmp_path / copied)) == ["a:b c", "link", "new"]
    assert os.readlink(tmp_path / "out" / "new") == "a:b c"
    assert (tmp_path / "out" / "new").read_text() == "text"
    assert ".a4-cp" not in cluster.exec(1, ["ls", "-A", "/tmp", "/tmp/in"]).stdout


@pytest.mark.parametrize(
    ("source", "target", "code", "text"),
    [
        ("/etc/hosts", "1:/no/such/x", 73, "there is no directory /no/such\na4-agent: /etc/hosts was not copied to 1:"),
        ("/etc/hosts", "1:/no/", 73, "there is no directory /no/\n"),
        ("/no/such", "1:/tmp", 2, "there is no /no/such on this machine"),
        ("1:/no/such", "/tmp", 2, "there is no /no/such in pod 1"),
        ("1:/etc/hosts/.", "/tmp", 2, "there is no /etc/hosts/. in pod 1"),
        ("1:/", "/tmp", 2, "1:/ is a whole file system"),
        ("0:/etc/hosts", "1:/tmp", 2, "cp copies between this machine and a pod, not from 0:/etc/hosts to 1:/tmp"),
        ("/etc/hosts", "/tmp/0:x", 2, "cp copies between this machine and a pod"),
        ("/etc/hosts", "7:/tmp", 2, "there is no pod 7"),
        ("/etc/hosts", "1:", 2, "a path is empty"),
    ],
)
@needs_root
def test_what_cannot_be_copied(
    source: str, target: str, code: int, text: str, cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    found, _, said = refused(["cp", "--name", cluster.name, source, target], capfd)
    assert (found, text in said) == (code, True), said


@needs_root
def test_exec_on_a_terminal(cluster: LocalCluster) -> None:
    """A shell on a terminal of the pod's own, and Ctrl-C that reaches it."""
    argv = [*AGENT, "exec", "0", "--name", cluster.name, "--", "bash", "--norc"]
    with (
        Terminal() as terminal,
        subprocess.Popen([*terminal.through, *argv], cwd=CHECKOUT, **terminal.streams) as shell,
    ):
        terminal.type("tty; echo $((6 * 7))\n")
        assert "/dev/pts/0" in terminal.until("42")
        terminal.type("sh -c 'echo $((40 + 1)); exec sleep 1000'\n")
        terminal.until("41")
        terminal.type("\x03")
        terminal.until("^C")
        terminal.type("exit 5\n")
        assert shell.wait(DEADLINE) == 5


@needs_root
def test_much_can_be_typed_while_much_is_shown(cluster: LocalCluster) -> None:
    """What a program does not read yet must not keep us from showing what it prints."""
    text = b"0123456789abcdef" * 20_000
    script = f"stty raw -echo; echo ready; exec head -c {len(text)}"
    argv = [*AGENT, "exec", "0", "--name", cluster.name, "--tty", "yes", "--", "sh", "-c", script]
    with subprocess.Popen(argv, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as command:
        try:
            assert command.stdout is not None and command.stdout.readline() == b"ready\n"
            shown, _ = command.communicate(text, DEADLINE)
        finally:
            command.kill()
    assert (shown, command.returncode) == (text, 0)


@needs_root
def test_a_path_that_pods_do_not_have_is_told(cluster: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "here").write_text("x")
    for path, told in ((f"{tmp_path}/here", True), (f"{tmp_path}/nowhere", False), ("/etc/nowhere", False)):
        done = local("exec", "0", "--name", cluster.name, "--", "cat", path)
        assert (done.returncode, f"{path} is on this machine and not in the pod" in done.stderr) == (1, told), done


@needs_root
def test_logs_end_when_nobody_reads_them() -> None:
    with up(1, ("sh", "-c", "while :; do echo on; sleep 0.05; done")) as cluster:
        argv = [*AGENT, "logs", "-f", "--name", cluster.name]
        with subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE) as logs:
            try:
                assert logs.stdout is not None and logs.stdout.readline() == b"[0] on\n"
                logs.stdout.close()
                assert logs.wait(DEADLINE) == 141
            finally:
                logs.kill()


@needs_root
def test_logs_of_one_and_of_all(cluster: LocalCluster) -> None:
    eventually(lambda: cluster.logs(0) and cluster.logs(1))
    assert local("logs", cluster.spec.pod_name(1), "--name", cluster.name).stdout == "hello\n"
    assert sorted(local("logs", "--name", cluster.name).stdout.splitlines()) == ["[0] hello", "[1] hello"]


@needs_root
def test_list_and_down() -> None:
    with up(2) as cluster:
        assert f"{cluster.name}: 2 running" in local("list").stdout.splitlines()
        listed = json.loads(local("list", "--json").stdout)
        assert (listed["version"], listed["clusters"][cluster.name]) == (1, {"running": 2})
        status = json.loads(local("status", "--json", "--name", cluster.name).stdout)
        assert (status["version"], status["cluster"], sorted(status["pods"])) == (1, cluster.name, ["0", "1"])
        pod = {"name": cluster.spec.pod_name(1), "node": cluster.spec.node_name(1), "state": "running", "code": None}
        assert status["pods"]["1"] == pod
        result = local("down", "--name", cluster.name, "--grace", "0")
        assert result.stdout.splitlines() == ["pod 0: exit code 137", "pod 1: exit code 137"]
        assert cluster.name not in running_clusters()


@needs_root
def test_up_leaves_a_cluster_behind_until_down() -> None:
    """Also in place of one whose pods have ended."""
    name = fresh_name("up")
    words = ["up", "--pods", "2", "--gpus-per-pod", "1", "--name", name]
    try:
        assert local(*words, "--env", "SLEEP_INFINITY=false", "none").returncode == 0
        LocalCluster.attach(name).wait(timeout=DEADLINE)
        shown = local("status", "--name", name).stdout.splitlines()
        assert shown[:2] == [f"local cluster {name}: 2 ended", "  pods 0-1: exit code 0"]
        assert shown[2].startswith("pod 0 of 2: ended")
        result = local(*words, "--wait", "none")
        assert result.returncode == 0, result.stderr
        assert f"2 of 2 pods of the local cluster {name} run" in result.stdout
        assert f"  a4-agent local down --name {name}" in result.stdout.splitlines()
        assert local("status", "--name", name).stdout.startswith(f"local cluster {name}: 2 running\n")
        again = local(*words, "none")
        assert again.returncode == 2 and "runs already" in again.stderr
        assert local("exec", "1", "--name", name, "--", "printenv", "SLEEP_INFINITY").stdout == "true\n"
        until_asleep(name)
        LocalCluster.attach(name).kill_pod(0)
        LocalCluster.attach(name).wait(timeout=DEADLINE, indices=[0])
        assert "what the agent of pod 0 wrote before it was killed:" in local("status", "--name", name).stdout
    finally:
        down = local("down", "--name", name)
    assert down.stdout.splitlines() == ["pod 0: exit code 137", "pod 1: exit code 143"], down.stderr
    assert name not in running_clusters()


@pytest.mark.parametrize(
    ("running", "found"),
    [(["a"], "a"), (["a", "local"], "local"), (["local"], "local"), (["a", "b"], "local"), ([], "local")],
)
def test_which_cluster_is_meant(running: list[str], found: str) -> None:
    assert default_cluster(running) == found


@needs_root
@pytest.mark.parametrize("right", ["sys_admin", "net_admin"])
def test_root_without_its_rights_hears_how_a_container_has_them(right: str) -> None:
    argv = ["setpriv", "--bounding-set", f"-{right}", *AGENT, "up", "--name", fresh_name("without")]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=CHECKOUT, timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (71, "")
    assert "cannot be built: [Errno 1]" in done.stderr and "container, start that with --privileged" in done.stderr


@needs_root
def test_run_shows_how_it_ended() -> None:
    short = local("run", "--gpus-per-pod", "1", "--name", fresh_name("run"), "none")
    assert (short.returncode, short.stdout) == (0, "\nEnds:\n  pods  exit code  cause\n  0-1   0\n"), short.stderr


@needs_root
def test_details_of_a_run_in_a_chroot(tmp_path: Path) -> None:
    """Files of pods that have ended are read by who joins their mount namespace, whose root is another than "/"."""
    argv = shlex.join([*AGENT, "run", "--gpus-per-pod", "1", "--name", fresh_name("chroot"), "--details", "none"])
    inside = shlex.join(["chroot", str(tmp_path), "sh", "-c", f"cd {CHECKOUT} && {argv}"])
    script = f"mount --rbind / {tmp_path} && {inside}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done
    for text in ("plan-ready", "\nOrder (physical_host_topology):\n", "slots=1", "exit code"):
        assert text in done.stdout


@needs_root
def test_run_keeps_results_and_shares_directories(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("cat /data/given > /data/taken\n")
    (tmp_path / "given").write_text("what pods read")
    kept = ["--results", str(tmp_path / "results"), "--mount", f"{tmp_path}:/data", "--task-script", str(script)]
    result = local("run", "--pods", "1", "--name", fresh_name("kept"), *kept, "script")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "taken").read_text() == "what pods read"
    (directory,) = (tmp_path / "results").iterdir()
    assert json.loads((directory / "result.json").read_text())["verdict"]["code"] == 0
    assert (directory / "pod-logs" / "coordinator.log").exists()
    assert f"\nResults:\n  {directory}/report.html\n  {directory}/result.json\n" in result.stdout


@needs_root
def test_run_as_json_ends_with_the_jobs_code() -> None:
    words = ["--missing", "1", "--env", "A4_SECRET_FILE=/nowhere", "--json"]
    result = local("run", "--pods", "2", "--name", fresh_name("json"), *words, "none")
    data = json.loads(result.stdout)
    assert result.returncode == data["code"] == 78, result.stderr
    assert [pod["state"] for pod in data["pods"]] == ["ended", "absent"]
    assert data["pods"][0]["cause"]
    expect_golden("json/local-run", shape(data))


@needs_root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_a_run_in_good_order(number: signal.Signals) -> None:
    name = fresh_name(f"signal-{int(number)}")
    words = ["run", "--pods", "2", "--name", name, "--missing", "1", "none"]
    with subprocess.Popen(
        [*AGENT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=CHECKOUT
    ) as running:
        try:
            eventually(lambda: name in running_clusters())
            LocalCluster.attach(name).wait_for_file("/run/a4-agent/events.jsonl", DEADLINE, [0])
        finally:
            running.send_signal(number)
        out, err = running.communicate(timeout=DEADLINE)
    assert running.returncode == 143, err
    assert "0     143" in out
    assert name not in running_clusters()


@needs_root
def test_run_ends_at_its_time_limit() -> None:
    words = ["--missing", "1", "--timeout", at_any_moment(0.2), "--grace", "5"]
    result = local("run", "--pods", "2", "--name", fresh_name("limit"), *words, "none")
    assert result.returncode == 124, result.stderr


def test_missing_programs_are_named_with_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    with pytest.raises(MissingProgram, match=r"(?s)dnsmasq.*apt-get install dnsmasq-base"):
        host_survey.find_program("dnsmasq")
    with pytest.raises(MissingProgram, match="apt-get install tini"):
        host_survey.entrypoint(ClusterSpec(pods=1))


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemFault, match="needs root"):
        LocalCluster(ClusterSpec(pods=1)).start()


def test_old_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(platform, "release", lambda: "5.4.0-1-generic")
    with pytest.raises(SystemFault, match=r"Linux 5\.8 or newer, this is 5\.4"):
        host_survey.check_machine()


def test_mount_points_of_this_machine_are_directories() -> None:
    found = host_survey.file_systems()
    assert "/" not in found
    assert all(Path(path).is_dir() for path in found)
