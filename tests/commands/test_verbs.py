"""The verbs that only read, through the command line, with a run directory of the test's own."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent import __version__
from agent.catalogue import RUNNABLE
from agent.commands import ELSEWHERE, VERBS, build_parser
from agent.decide.plan import PLAN_VERSION, Plan, PlannedPeer, peer_name
from agent.environment import log_for, look
from agent.settings import Found, read_settings
from tests.commands.conftest import DOMAIN, POD, PREFIX, ROOT, Patch, Prints, Shown, Type, verb
from tests.hostfiles import parse_hostfile
from tests.report.examples import ddp, write
from tests.terminal import Terminal
from tests.test_architecture import HEAVY

ORDER = (0, 2, 1)
PLAN = Plan(
    "uid.0.0",
    8,
    tuple(PlannedPeer(i, peer_name(PREFIX, i, DOMAIN), f"10.0.0.{i}", f"node-{i}", ("c", f"b{i % 2}")) for i in ORDER),
    "physical_host",
    ("one warning",),
)
NAMES = [peer.name for peer in PLAN.peers]
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
def formed(run_dir: Path) -> Path:
    (run_dir / "plan.json").write_text(json.dumps(PLAN.to_json()))
    return run_dir


@pytest.fixture
def pod(run_dir: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    (tmp_path / "secret").write_text("s" * 40)
    for name, value in {**POD, "A4_SECRET_FILE": str(tmp_path / "secret")}.items():
        monkeypatch.setenv(name, value)
    return run_dir


def write_state(run_dir: Path, **more: object) -> None:
    (run_dir / "state.json").write_text(json.dumps(STATE | {"since": time.time()} | more))


# hostfile


def test_hostfile_in_plan_order(formed: Path, prints: Prints) -> None:
    assert parse_hostfile(prints("hostfile")) == [(name, 8) for name in NAMES]
    assert json.loads(prints("hostfile", "--slots", "2", "--json")) == [{"name": name, "slots": 2} for name in NAMES]


@pytest.mark.parametrize(
    ("argv", "indices"),
    [
        (["--nodes", "2"], [0, 2]),
        (["--hosts", "1", "--hosts", "0,2", "--exclude", "2"], [0, 1]),
        (["--order", "index", "--nodes", "2"], [0, 1]),
    ],
)
def test_hostfile_of_some_pods(argv: list[str], indices: list[int], formed: Path, pod: Path, prints: Prints) -> None:
    expected = [peer_name(PREFIX, index, DOMAIN) for index in indices]
    assert [name for name, _ in parse_hostfile(prints("hostfile", *argv))] == expected


@pytest.mark.parametrize("argv", [["--hosts", "3"], ["--nodes", "4"], ["--exclude", "0-2"], ["--hosts", "no-such"]])
def test_hostfile_of_pods_that_there_are_not(argv: list[str], formed: Path, refused: Prints) -> None:
    assert "a4-agent peers lists them" in refused(2, "hostfile", *argv)


def test_hostfile_without_a_plan(run_dir: Path, refused: Prints) -> None:
    told = refused(69, "hostfile")
    assert "there is no plan yet" in told and "no a4-agent has run in this pod yet" in told
    write_state(run_dir)
    assert "a4-agent status" in refused(69, "hostfile")


def test_hostfile_in_index_order_needs_a_pod(pod: Path, prints: Prints, refused: Prints, monkeypatch: Patch) -> None:
    """And no plan."""
    expected = [(peer_name(PREFIX, i, DOMAIN), 4) for i in range(3)]
    assert parse_hostfile(prints("hostfile", "--order", "index")) == expected
    monkeypatch.delenv("NNODES")
    assert "a4-agent local" in refused(78, "hostfile", "--order", "index")


def test_hostfile_into_a_file(formed: Path, tmp_path: Path, prints: Prints, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("hosts", str(tmp_path / "other")):
        assert prints("hostfile", "-o", path) == ""
        assert parse_hostfile((tmp_path / path).read_text()) == [(name, 8) for name in NAMES]
    assert parse_hostfile(prints("hostfile", "-o", "-")) == [(name, 8) for name in NAMES]
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize("path", ["/no/such/directory/file", "/proc/file", "/dev/null/file", "/etc"])
def test_hostfile_where_nothing_can_be_written(path: str, formed: Path, refused: Prints) -> None:
    assert f"{path} cannot be written: " in refused(73, "hostfile", "-o", path)


def test_hostfile_into_a_device_leaves_the_device(formed: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert verb("hostfile", "-o", str(fifo)) == 0
    assert parse_hostfile(os.read(reader, 65536).decode()) == [(name, 8) for name in NAMES]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    os.close(reader)


@pytest.mark.parametrize("slots", ["0", "1025", "-1", "x", "1.5", "", "²"])
def test_hostfile_with_bad_slots(slots: str, formed: Path, refused: Prints) -> None:
    assert "--slots" in refused(2, "hostfile", f"--slots={slots}")


# peers and topology


def test_peers(formed: Path, prints: Prints) -> None:
    lines = prints("peers").splitlines()
    assert [line.split() for line in lines[-3:]] == [
        [str(rank), str(i), peer_name(PREFIX, i, DOMAIN), f"10.0.0.{i}", f"/c/b{i % 2}", "-", f"node-{i}"]
        for rank, i in enumerate(ORDER)
    ]
    assert json.loads(prints("peers", "--json")) == [{**peer, "lost": ""} for peer in PLAN.to_json()["peers"]]


@pytest.mark.parametrize(
    ("name", "words"), [("peers", {"job-0-x7k2p", "/c/01234567/b1"}), ("topology", {"c", "01234567", "b1"})]
)
def test_tables_on_a_terminal_are_short(name: str, words: set[str], run_dir: Path, type_command: Type) -> None:
    place = ("c", "0123456789abcdef0123", "b1")
    plan = Plan("e", 8, (PlannedPeer(0, "job-0.a.b.c", "10.0.0.1", "node", place, "job-0-x7k2p"),))
    (run_dir / "plan.json").write_text(json.dumps(plan.to_json()))
    with Terminal() as terminal:
        assert type_command(name, stdout=terminal.streams["stdout"]).process.wait() == 0
        shown = terminal.written_so_far()
    assert words <= set(shown.split()), shown


def test_peers_that_are_lost(formed: Path, prints: Prints) -> None:
    write_state(formed, lost={"2": {"why": "not heard for 30 s", "since": 0.0}})
    assert prints("peers").splitlines()[-1] == f"lost: {PLAN.peers[1].where}: not heard for 30 s"
    lost = {peer["index"]: peer["lost"] for peer in json.loads(prints("peers", "--json"))}
    assert lost == {0: "", 1: "", 2: "not heard for 30 s"}


def test_peers_that_are_missing(run_dir: Path, prints: Prints, refused: Prints) -> None:
    for name in ("peers", "topology"):
        assert "there is no plan yet" in refused(69, name)
    missing = {"2": "port 2222 refused", "5": "DNS does not know its name yet"}
    write_state(run_dir, phase="forming", missing=missing)
    shown = prints("peers")
    assert all(index in shown and why in shown for index, why in missing.items())
    assert json.loads(prints("peers", "--json")) == {"missing": missing}


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples_that_can_be_typed(verb: str, prints: Prints) -> None:
    shown = prints(verb, "--help")
    examples = [line.strip().split("  ")[0] for line in shown.splitlines() if line.startswith(f"  a4-agent {verb}")]
    assert examples
    for example in examples:
        build_parser(verb).parse_args(shlex.split(example.replace(">", "#"), comments=True)[1:])


def test_topology(formed: Path, prints: Prints) -> None:
    shown = prints("topology")
    assert shown.splitlines()[0].split() == ["rank", "pod", "name", "node", "cluster", "block"]
    assert "places from physical_host\n" in shown
    assert "note: one warning\n" in shown
    assert Plan.from_json(json.loads(prints("topology", "--json"))) == PLAN


@pytest.mark.parametrize(
    "text", ["{", "[]", "7", '"x"', json.dumps({"version": PLAN_VERSION + 1}), json.dumps({"version": PLAN_VERSION})]
)
@pytest.mark.parametrize("name", ["hostfile", "peers", "topology", "status"])
def test_a_damaged_plan_is_told_and_no_bug(name: str, text: str, run_dir: Path, refused: Prints) -> None:
    write_state(run_dir)
    (run_dir / "plan.json").write_text(text)
    assert "plan.json is damaged" in refused(71, name)


# settings


def test_settings(pod: Path, capsys: Shown, prints: Prints) -> None:
    assert verb("settings") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    (line,) = (line for line in shown.out.splitlines() if line.startswith("GPUS_PER_NODE"))
    assert line.split()[1:3] == ["4", "environment"]
    data = json.loads(prints("settings", "--json"))
    assert data["problems"] == []
    assert {"NNODES": 3, "A4_EPOCH": "uid.0.0"}.items() <= {v["name"]: v["value"] for v in data["settings"]}.items()


def test_settings_with_problems_shows_all_of_them(pod: Path, capsys: Shown, prints: Prints, monkeypatch: Patch) -> None:
    monkeypatch.setenv("A4_SSH_PORT", "x")
    monkeypatch.setenv("A4_SSHPORT", "2222")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "3")
    monkeypatch.setenv("A4_SECRET_FILE", "/no/such/file")
    assert verb("settings") == 78
    errors = capsys.readouterr().err
    for words in ("A4_SSH_PORT='x'", "JOB_COMPLETION_INDEX=3", "A4_SECRET_FILE=/no/such/file", "mean A4_SSH_PORT?"):
        assert words in errors
    data = json.loads(prints("settings", "--json", code=78))
    assert (len(data["problems"]), len(data["warnings"])) == (3, 1)


def test_settings_outside_a_pod(run_dir: Path, capsys: Shown) -> None:
    assert verb("settings", "peer_timeout_seconds") == 0
    assert capsys.readouterr().err == ""
    for words in (["nnodes"], []):
        assert verb("settings", *words) == 78
        assert "a4-agent: NNODES is not set (number of pods)" in capsys.readouterr().err


def test_one_setting(pod: Path, capsys: Shown, prints: Prints, monkeypatch: Patch) -> None:
    """It has no problems of longer names."""
    for name in ("A4_LEASE_SECONDS", "lease_seconds", "a4_lease_seconds"):
        shown = prints("settings", name, "NNODES")
        assert re.findall(r"^\S+", shown, re.MULTILINE) == ["setting", "A4_LEASE_SECONDS", "NNODES"]
    assert verb("settings", "lease_second") == 2
    assert "there is no setting 'lease_second'; did you mean A4_LEASE_SECONDS?" in capsys.readouterr().err
    monkeypatch.setenv("A4_WORKLOAD_TIMEOUT_SECONDS", "x")
    assert verb("settings", "A4_WORKLOAD") == 0
    assert capsys.readouterr().err == ""


def test_settings_from_secrets_are_not_shown(pod: Path, capsys: Shown, monkeypatch: Patch) -> None:
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


@pytest.mark.parametrize(
    ("place", "words", "told"),
    [
        ("run_dir", "run", "a4-agent local run"),
        ("run_dir", "run connectivity", "a4-agent local run"),
        ("run_dir", "run --dry-run", "a4-agent local run"),
        ("pod", "run conectivity", "A4_WORKLOAD='conectivity' (command line) should be one of none, connect"),
        ("pod", "run exec", "A4_WORKLOAD='exec' (command line) should be one of none, connect"),
    ],
)
def test_run_outside_a_pod_and_of_what_is_no_workload(
    place: str, words: str, told: str, request: pytest.FixtureRequest, refused: Prints
) -> None:
    directory = request.getfixturevalue(place)
    assert told in refused(78, *words.split())
    assert os.listdir(directory) == []


@pytest.mark.parametrize("name", ["exec", "mpirun"])
def test_without_an_agent_it_does_not_matter_what_one_has_left(name: str, run_dir: Path, refused: Prints) -> None:
    (run_dir / "state.json").write_text("{")
    assert refused(69, name, "hostname").startswith("a4-agent: no a4-agent runs in this pod\n")


def test_version(prints: Prints) -> None:
    assert prints("version").startswith(f"a4-agent {__version__}\n")
    versions = json.loads(prints("version", "--json"))
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
def test_what_may_have_been_meant(argv: list[str], meant: str, refused: Prints) -> None:
    err = refused(2, *argv)
    assert (f"; did you mean {meant}?" in err) if meant else ("did you mean" not in err)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("status --col never", "unrecognized arguments: --"),  # options are not abbreviated
        ("local list --js", "unrecognized arguments: --"),
        ("sync list --di /", "unrecognized arguments: --"),
        ("exec --no hostname", "unrecognized arguments: --"),
        ("local exec 0 grep --color never x", "unrecognized arguments: --color never x"),  # those of the command
        ("local", "required: VERB; see a4-agent local --help\n"),
        ("sync", "required: VERB; see a4-agent sync --help\n"),
    ],
)
def test_words_that_are_not_taken(words: str, told: str, refused: Prints) -> None:
    assert told in refused(2, *words.split())


@pytest.mark.parametrize("before", ["", "local "])
def test_a_workload_typed_as_a_verb(before: str, refused: Prints) -> None:
    prog = f"a4-agent {before}".strip()
    for name in RUNNABLE if before else set(RUNNABLE) - set(VERBS):
        expected = f"{prog}: error: there is no verb '{name}'; type {prog} run {name}; see {prog} --help\n"
        assert refused(2, *before.split(), name, "--", "-b", "8") == expected


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("squeue", "; type a4-agent status; see"),
        ("srun hostname", "type a4-agent exec -- COMMAND;"),
        ("stop ddp-1", "type a4-agent cancel RUN;"),
        ("run train.py", "train.py is a program, not a workload: a4-agent torchrun -- train.py;"),
        ("run ./train.py --epochs 3", "not a workload: a4-agent torchrun -- ./train.py;"),
        ("run ./start.sh", "not a workload: a4-agent exec -- ./start.sh;"),
    ],
)
def test_words_of_other_tools(words: str, told: str, refused: Prints) -> None:
    assert told in refused(2, *words.split())


def test_every_verb_of_another_tool_has_one_here() -> None:
    assert not ELSEWHERE.keys() & VERBS.keys() and {words.split()[0] for words in ELSEWHERE.values()} <= VERBS.keys()


def test_help_with_a_verb_is_its_help(prints: Prints) -> None:
    for name in ("run", "local"):
        shown = prints("help", name)
        assert shown == prints(name, "--help") and "usage: a4-agent" in shown


@pytest.mark.parametrize("argv", [[], ["--help", "status"]], ids=" ".join)
def test_help_without_a_verb_lists_all_of_them(
    argv: list[str], prints: Prints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one screen."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = prints(*argv)
    assert f"status      {VERBS['status']}\n" in shown and all(name in shown for name in VERBS)
    assert len(shown.splitlines()) <= 24


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


def test_a_reader_that_leaves_early_is_no_bug(formed: Path, type_command: Type) -> None:
    read, write = os.pipe()
    os.close(read)
    assert type_command("topology", stdout=write).end() == (141, "", "")
    os.close(write)
