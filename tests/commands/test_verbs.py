"""The verbs that only read, through the command line, with a run directory of the test's own."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent import __version__
from agent.catalogue import RUNNABLE
from agent.cli import main
from agent.commands import VERBS
from agent.decide.plan import PLAN_VERSION, Plan, PlannedPeer, peer_name
from agent.environment import log_for, look
from agent.settings import Found, read_settings
from tests.commands.conftest import ROOT, Type
from tests.hostfiles import parse_hostfile
from tests.report.examples import ddp, write
from tests.terminal import Terminal
from tests.test_architecture import HEAVY

PREFIX, DOMAIN = "job-workload-", "job.local"
ORDER = (0, 2, 1)
PLAN = Plan(
    "uid.0.0",
    8,
    tuple(PlannedPeer(i, peer_name(PREFIX, i, DOMAIN), f"10.0.0.{i}", f"node-{i}", ("c", f"b{i % 2}")) for i in ORDER),
    "physical_host",
    ("one warning",),
)
NAMES = [peer.name for peer in PLAN.peers]
POD = {
    "NNODES": "3",
    "JOB_COMPLETION_INDEX": "1",
    "GPUS_PER_NODE": "4",
    "HOSTNAME_PREFIX": PREFIX,
    "DOMAIN_NAME": DOMAIN,
    "A4_JOBSET_UID": "uid",
}
STATE: dict[str, Any] = {
    "phase": "running",
    "index": 1,
    "pods": 3,
    "since": 0.0,
    "epoch": "uid.0.0",
    "agent": "1.2.3",
    "run": {"id": "run-7", "workload": "connectivity"},
}


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent's run directory, still empty."""
    directory = tmp_path / "run"
    directory.mkdir()
    monkeypatch.setenv("A4_RUN_DIR", str(directory))
    monkeypatch.setenv("A4_SECRET_FILE", str(tmp_path / "secret"))
    (tmp_path / "secret").write_text("s" * 40)
    return directory


@pytest.fixture
def formed(run_dir: Path) -> Path:
    (run_dir / "plan.json").write_text(json.dumps(PLAN.to_json()))
    return run_dir


@pytest.fixture
def pod(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in POD.items():
        monkeypatch.setenv(name, value)
    return run_dir


def write_state(run_dir: Path, **more: object) -> None:
    (run_dir / "state.json").write_text(json.dumps(STATE | {"since": time.time()} | more))


def verb(*argv: str) -> int:
    """Exit code, whether it is returned or argparse raises it."""
    try:
        return main(list(argv))
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


Shown = pytest.CaptureFixture[str]


# hostfile


def test_hostfile_in_plan_order(formed: Path, capsys: Shown) -> None:
    assert verb("hostfile") == 0
    assert parse_hostfile(capsys.readouterr().out) == [(name, 8) for name in NAMES]
    assert verb("hostfile", "--slots", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"name": name, "slots": 2} for name in NAMES]


@pytest.mark.parametrize(
    ("argv", "indices"),
    [
        (["--nodes", "2"], [0, 2]),
        (["--hosts", "1", "--hosts", "0,2", "--exclude", "2"], [0, 1]),
        (["--order", "index", "--nodes", "2"], [0, 1]),
    ],
)
def test_hostfile_of_some_pods(argv: list[str], indices: list[int], formed: Path, pod: Path, capsys: Shown) -> None:
    assert verb("hostfile", *argv) == 0
    expected = [peer_name(PREFIX, index, DOMAIN) for index in indices]
    assert [name for name, _ in parse_hostfile(capsys.readouterr().out)] == expected


@pytest.mark.parametrize("argv", [["--hosts", "3"], ["--nodes", "4"], ["--exclude", "0-2"], ["--hosts", "no-such"]])
def test_hostfile_of_pods_that_there_are_not(argv: list[str], formed: Path, capsys: Shown) -> None:
    assert verb("hostfile", *argv) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "a4-agent peers lists them" in shown.err


def test_hostfile_without_a_plan(run_dir: Path, capsys: Shown) -> None:
    assert verb("hostfile") == 69
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "there is no plan yet" in shown.err
    assert "no a4-agent has run in this pod yet" in shown.err
    write_state(run_dir)
    assert verb("hostfile") == 69
    assert "a4-agent status" in capsys.readouterr().err


def test_hostfile_in_index_order_needs_no_plan_but_a_pod(
    pod: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verb("hostfile", "--order", "index") == 0
    expected = [(peer_name(PREFIX, i, DOMAIN), 4) for i in range(3)]
    assert parse_hostfile(capsys.readouterr().out) == expected
    monkeypatch.delenv("NNODES")
    assert verb("hostfile", "--order", "index") == 78
    assert "a4-agent local" in capsys.readouterr().err


def test_hostfile_into_a_file(formed: Path, tmp_path: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("hosts", str(tmp_path / "other")):
        assert verb("hostfile", "-o", path) == 0
        assert parse_hostfile((tmp_path / path).read_text()) == [(name, 8) for name in NAMES]
    assert capsys.readouterr().out == ""
    assert verb("hostfile", "-o", "-") == 0
    assert parse_hostfile(capsys.readouterr().out) == [(name, 8) for name in NAMES]
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize("path", ["/no/such/directory/file", "/proc/file", "/dev/null/file", "/etc"])
def test_hostfile_where_nothing_can_be_written(path: str, formed: Path, capsys: Shown) -> None:
    assert verb("hostfile", "-o", path) == 73
    assert f"{path} cannot be written: " in capsys.readouterr().err


def test_hostfile_into_a_device_leaves_the_device(formed: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert verb("hostfile", "-o", str(fifo)) == 0
    assert parse_hostfile(os.read(reader, 65536).decode()) == [(name, 8) for name in NAMES]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    os.close(reader)


@pytest.mark.parametrize("slots", ["0", "1025", "-1", "x", "1.5", "", "²"])
def test_hostfile_with_bad_slots(slots: str, formed: Path, capsys: Shown) -> None:
    assert verb("hostfile", f"--slots={slots}") == 2
    assert "--slots" in capsys.readouterr().err


# peers and topology


def test_peers(formed: Path, capsys: Shown) -> None:
    assert verb("peers") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[-3:]] == [
        [str(rank), str(i), peer_name(PREFIX, i, DOMAIN), f"10.0.0.{i}", f"/c/b{i % 2}"] for rank, i in enumerate(ORDER)
    ]
    assert verb("peers", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{**peer, "lost": ""} for peer in PLAN.to_json()["peers"]]


@pytest.mark.parametrize(
    ("name", "words"), [("peers", {"job-0", "/c/01234567/b1"}), ("topology", {"c", "01234567", "b1"})]
)
def test_tables_on_a_terminal_are_short(name: str, words: set[str], run_dir: Path, type_command: Type) -> None:
    plan = Plan("e", 8, (PlannedPeer(0, "job-0.a.b.c", "10.0.0.1", "node", ("c", "0123456789abcdef0123", "b1")),))
    (run_dir / "plan.json").write_text(json.dumps(plan.to_json()))
    with Terminal() as terminal:
        assert type_command(name, stdout=terminal.streams["stdout"]).process.wait() == 0
        shown = terminal.written_so_far()
    assert words <= set(shown.split()), shown


def test_peers_that_are_lost(formed: Path, capsys: Shown) -> None:
    write_state(formed, lost={"2": {"why": "not heard for 30 s", "since": 0.0}})
    assert verb("peers") == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"lost: {PLAN.peers[1].where}: not heard for 30 s"
    assert verb("peers", "--json") == 0
    lost = {peer["index"]: peer["lost"] for peer in json.loads(capsys.readouterr().out)}
    assert lost == {0: "", 1: "", 2: "not heard for 30 s"}


def test_peers_that_are_missing(run_dir: Path, capsys: Shown) -> None:
    missing = {"2": "port 2222 refused", "5": "DNS does not know its name yet"}
    write_state(run_dir, phase="forming", missing=missing)
    assert verb("peers") == 0
    shown = capsys.readouterr().out
    assert all(index in shown and why in shown for index, why in missing.items())
    assert verb("peers", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"missing": missing}


@pytest.mark.parametrize("name", ["peers", "topology"])
def test_neither_without_a_plan(name: str, run_dir: Path, capsys: Shown) -> None:
    assert verb(name) == 69
    assert "there is no plan yet" in capsys.readouterr().err


def test_topology(formed: Path, capsys: Shown) -> None:
    assert verb("topology") == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].split() == ["rank", "pod", "node", "cluster", "block"]
    assert "places from physical_host\n" in shown
    assert "note: one warning\n" in shown
    assert verb("topology", "--json") == 0
    assert Plan.from_json(json.loads(capsys.readouterr().out)) == PLAN


@pytest.mark.parametrize(
    "text", ["{", "[]", "7", '"x"', json.dumps({"version": PLAN_VERSION + 1}), json.dumps({"version": PLAN_VERSION})]
)
@pytest.mark.parametrize("name", ["hostfile", "peers", "topology", "status"])
def test_a_damaged_plan_is_told_and_no_bug(name: str, text: str, run_dir: Path, capsys: Shown) -> None:
    write_state(run_dir)
    (run_dir / "plan.json").write_text(text)
    assert verb(name) == 71
    assert "plan.json is damaged" in capsys.readouterr().err


# settings


def test_settings(pod: Path, capsys: Shown) -> None:
    assert verb("settings") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    (line,) = (line for line in shown.out.splitlines() if line.startswith("GPUS_PER_NODE"))
    assert line.split()[1:3] == ["4", "environment"]
    assert verb("settings", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["problems"] == []
    assert {"NNODES": 3, "A4_EPOCH": "uid.0.0"}.items() <= {v["name"]: v["value"] for v in data["settings"]}.items()


def test_settings_with_problems_shows_all_of_them(pod: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A4_SSH_PORT", "x")
    monkeypatch.setenv("A4_SSHPORT", "2222")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "3")
    monkeypatch.setenv("A4_SECRET_FILE", "/no/such/file")
    assert verb("settings") == 78
    errors = capsys.readouterr().err
    for words in ("A4_SSH_PORT='x'", "JOB_COMPLETION_INDEX=3", "A4_SECRET_FILE=/no/such/file", "mean A4_SSH_PORT?"):
        assert words in errors
    assert verb("settings", "--json") == 78
    data = json.loads(capsys.readouterr().out)
    assert (len(data["problems"]), len(data["warnings"])) == (3, 1)


def test_settings_outside_a_pod(run_dir: Path, capsys: Shown) -> None:
    assert verb("settings", "peer_timeout_seconds") == 0
    assert capsys.readouterr().err == ""
    for words in (["nnodes"], []):
        assert verb("settings", *words) == 78
        assert "a4-agent: NNODES is not set (number of pods)" in capsys.readouterr().err


def test_one_setting_has_no_problems_of_longer_names(pod: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A4_WORKLOAD_TIMEOUT_SECONDS", "x")
    assert verb("settings", "A4_WORKLOAD") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["A4_LEASE_SECONDS", "lease_seconds", "a4_lease_seconds"])
def test_one_setting(name: str, pod: Path, capsys: Shown) -> None:
    assert verb("settings", name, "NNODES") == 0
    assert re.findall(r"^\S+", capsys.readouterr().out, re.MULTILINE) == ["setting", "A4_LEASE_SECONDS", "NNODES"]
    assert verb("settings", "lease_second") == 2
    assert "there is no setting 'lease_second'; did you mean A4_LEASE_SECONDS?" in capsys.readouterr().err


def test_settings_from_secrets_are_not_shown(pod: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "canary-0123456789"
    monkeypatch.setenv("A4_SECRET_ENV", "JOB_IDENTIFIER, A4_LOG_LEVEL")
    monkeypatch.setenv("JOB_IDENTIFIER", canary * 9)  # longer than a table shows
    monkeypatch.setenv("A4_LOG_LEVEL", "tiny")
    for words in ([], ["--json"]):
        assert verb("settings", *words) == 78
        shown = capsys.readouterr()
        assert canary[:9] not in shown.out + shown.err and "***" in shown.out
        assert "A4_LOG_LEVEL='***' (environment) should be one of" in shown.err


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_jobs_secret_is_masked_in_the_log(end: str, pod: Path, tmp_path: Path, capsys: Shown) -> None:
    (tmp_path / "secret").write_text("0123456789abcdef" * 2 + end)
    found, secret = look(os.environ)
    assert found == Found()
    settings, _ = read_settings(os.environ, found)
    log_for(settings, os.environ | {"HF_TOKEN": "hf_12345678"}, secret).info(f"{'0123456789abcdef' * 2} hf_12345678")
    assert capsys.readouterr().err.endswith(" a4-agent [1/3] *** ***\n")


# run, version, help


@pytest.mark.parametrize("argv", [["run"], ["run", "connectivity"], ["run", "--dry-run"]])
def test_run_outside_a_pod_points_to_local(argv: list[str], run_dir: Path, capsys: Shown) -> None:
    assert verb(*argv) == 78
    assert "a4-agent local run" in capsys.readouterr().err
    assert os.listdir(run_dir) == []


@pytest.mark.parametrize("name", ["conectivity", "pai-megatron", "exec"])
def test_run_of_a_workload_that_there_is_not(name: str, pod: Path, capsys: Shown) -> None:
    assert verb("run", name) == 78
    assert f"A4_WORKLOAD='{name}' (command line) should be one of none, connect" in capsys.readouterr().err
    assert os.listdir(pod) == []


@pytest.mark.parametrize("name", ["exec", "mpirun"])
def test_without_an_agent_it_does_not_matter_what_one_has_left(name: str, run_dir: Path, capsys: Shown) -> None:
    (run_dir / "state.json").write_text("{")
    assert verb(name, "hostname") == 69
    assert capsys.readouterr().err.startswith("a4-agent: no a4-agent runs in this pod\n")


def test_version(capsys: Shown) -> None:
    assert verb("version") == 0
    assert capsys.readouterr().out.startswith(f"a4-agent {__version__}\n")
    assert verb("version", "--json") == 0
    versions = json.loads(capsys.readouterr().out)
    assert versions["a4-agent"] == __version__
    assert {"python", "paramiko", "sshd", "mpirun", "tini"} <= set(versions)


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["statsu"], "status"),
        (["exce", "hostname"], "exec"),
        (["local", "rnu"], "run"),
        (["exec", "--hots=3", "hostname"], "--hosts"),
        (["run", "--order", "topologi"], "topology"),
        (["local", "run", "--pods", "2", "conectivity"], "connectivity"),
        (["local", "run", "--pods", "2", "--missng", "1"], "--missing"),
        (["conectivity"], "a4-agent run connectivity"),
        (["local", "conectivity"], "a4-agent local run connectivity"),
        (["qqqqqq"], ""),
    ],
)
def test_what_may_have_been_meant(argv: list[str], meant: str, capsys: Shown) -> None:
    assert verb(*argv) == 2
    err = capsys.readouterr().err
    assert (f"; did you mean {meant}?" in err) if meant else ("did you mean" not in err)


@pytest.mark.parametrize("words", ["status --col never", "local list --js", "sync list --di /", "exec --no hostname"])
def test_options_are_not_abbreviated(words: str, capsys: Shown) -> None:
    assert verb(*words.split()) == 2
    assert "unrecognized arguments: --" in capsys.readouterr().err


def test_options_of_the_command_of_local_exec_are_not_taken(capsys: Shown) -> None:
    assert verb("local", "exec", "0", "grep", "--color", "never", "x") == 2
    assert "unrecognized arguments: --color never x" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["local", "sync"])
def test_a_verb_that_needs_another(name: str, capsys: Shown) -> None:
    assert verb(name) == 2
    assert f"required: VERB; see a4-agent {name} --help\n" in capsys.readouterr().err


@pytest.mark.parametrize("before", ["", "local "])
def test_a_workload_typed_as_a_verb(before: str, capsys: Shown) -> None:
    prog = f"a4-agent {before}".strip()
    for name in RUNNABLE if before else set(RUNNABLE) - set(VERBS):
        assert verb(*before.split(), name, "--", "-b", "8") == 2
        expected = f"{prog}: error: there is no verb '{name}'; type {prog} run {name}; see {prog} --help\n"
        assert capsys.readouterr().err == expected


def test_help_with_a_verb_is_its_help(capsys: Shown) -> None:
    for name in ("run", "local"):
        shown = []
        for argv in (["help", name], [name, "--help"]):
            assert verb(*argv) == 0
            shown.append(capsys.readouterr().out)
        assert shown[0] == shown[1] and "usage: a4-agent" in shown[0]


@pytest.mark.parametrize("argv", [[], ["--help", "status"]], ids=" ".join)
def test_help_without_a_verb_lists_all_of_them(argv: list[str], capsys: Shown) -> None:
    assert verb(*argv) == 0
    shown = capsys.readouterr().out
    assert f"status              {VERBS['status']}" in shown and all(name in shown for name in VERBS)


PAGES = {"matplotlib", "numpy", "jinja2", "markupsafe"}


@pytest.mark.parametrize(
    "words",
    [
        *("exec hostname", "run none", "logs", "get", "status", "release"),
        *("report", "report --help", "report no-such", "report --json result.json result.json"),
    ],
)
def test_what_asks_the_agent_or_makes_no_page_starts_light(words: str, run_dir: Path) -> None:
    write(run_dir / "result.json", ddp())
    code = "import sys; from agent.cli import main\ntry: main(sys.argv[1:])\nfinally: print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=run_dir, env=environment)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "agent" in loaded
    assert not loaded & (HEAVY | PAGES | {"cryptography"})
    assert words.startswith("report") or "subprocess" not in loaded


def test_a_reader_that_leaves_early_is_no_bug(formed: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    code = "import sys; from agent.cli import entry; sys.argv = ['a4-agent', 'topology']; entry()"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, env=env)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")
