"""`a4-agent report`, as people and the agent itself type it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import ROOT, Prints, Shown, verb
from tests.report.examples import NOON, collectives, compared, ddp, write


@pytest.fixture
def here(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, in a pod whose run directory is beside it."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_beside_the_result(here: Path, capfd: Shown) -> None:
    path = write(here / "results" / "result.json", ddp())
    assert verb("report", "results/result.json") == 0
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", f"a4-agent: the report is in {path.parent}/report.html\n")
    assert "<title>✓ passed: ddp --steps 50 ·" in (here / "results" / "report.html").read_text()
    assert sorted(os.listdir(here / "results")) == ["report.html", "result.json"]


def test_of_a_directory_into_a_file_or_to_stdout(here: Path, capfd: Shown) -> None:
    write(here / "results" / "result.json", ddp())
    (here / "page.html").write_text("old")
    assert verb("report", "results", "-o", "page.html") == 0
    capfd.readouterr()
    assert verb("report", "results", "-o", "-") == 0
    assert capfd.readouterr() == ((here / "page.html").read_text(), "")
    assert os.listdir(here / "results") == ["result.json"]


def test_from_stdin_or_a_pipe(here: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a shell's <(…)."""
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(ddp())))
    assert verb("report", "-") == 0
    assert os.listdir(here) == ["report.html"]
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w") as file:
        file.write(json.dumps(ddp()))
        file.close()
        assert verb("report", f"/dev/fd/{reader}", "-o", "page.html") == 0
    assert "passed" in (here / "page.html").read_text()


def test_of_a_run_of_this_pod_by_default_the_newest(here: Path, capsys: Shown) -> None:
    runs = here.parent / "run" / "runs"
    for number, name in enumerate(("ddp-2", "ddp-1", "exec-1")):
        (runs / name).mkdir(parents=True)
        if name != "exec-1":
            write(runs / name / "result.json", ddp() | {"run": name, "name": f"of-{name}"})
        os.utime(runs / name, (number, number))
    assert verb("report", "-o", "page.html") == 0
    assert "<title>✓ passed: of-ddp-1 ·" in (here / "page.html").read_text()
    assert verb("report", "ddp-2") == 0
    assert (runs / "ddp-2" / "report.html").exists()


def test_several_are_compared(here: Path, capfd: Shown) -> None:
    paths = [str(write(here / str(number) / "result.json", data)) for number, data in enumerate(compared())]
    assert verb("report", *paths) == 0
    assert "3 runs: 1 failed, 2 passed" in (here / "comparison.html").read_text()
    assert f"the report is in {here}/comparison.html" in capfd.readouterr().err
    assert verb("report", "--json", *paths) == 0
    assert json.loads(capfd.readouterr().out)["settings"]["$NCCL_IB_TC"] == ["52", "52", "0"]
    assert verb("report", "--json", *paths[:2], "-o", "found.json") == 0
    assert len(json.loads((here / "found.json").read_text())["runs"]) == 2
    assert verb("report", "--json", paths[0]) == 2


def rows(page: Path) -> list[str]:
    """The runs on a page of many, from the top."""
    return re.findall(r'<th scope="row" class="number">\d+</th><td>([^<]+)</td>', page.read_text())


def test_a_directory_of_many_is_shown_by_time(here: Path, capfd: Shown) -> None:
    """What cannot be read is named, there and on stderr."""
    for number in (4, 1, 5, 2, 3):
        data = ddp() | {"name": f"ddp-{number}", "since": NOON + number}
        write(here / "kept" / f"at-{9 - number}" / "result.json", data)
    write(here / "kept" / "at-0" / "deep" / "result.json", {"version": 1, "run": "x"})
    (here / "kept" / "at-0" / "result.json").write_bytes(b"\xff\x00{")
    assert verb("report", "kept") == 0
    page = (here / "trend.html").read_text()
    assert rows(here / "trend.html") == [f"ddp-{number}" for number in range(1, 6)]
    assert "2 of 7 could not be read" in page
    shown = capfd.readouterr().err
    for name in ("kept/at-0/result.json is not JSON", "kept/at-0/deep/result.json cannot be reported on"):
        assert name in page and f"skipped: {name}" in shown


def test_many_stand_by_time(here: Path, capfd: Shown) -> None:
    names = [
        str(write(here / f"{number}.json", ddp() | {"name": f"ddp-{number}", "since": NOON - number}))
        for number in range(5)
    ]
    (here / "no-result").mkdir()
    assert verb("report", *names, "no-result", "-o", "page.html") == 0
    assert rows(here / "page.html") == [f"ddp-{number}" for number in reversed(range(5))]
    assert "skipped: no-result has no result.json" in capfd.readouterr().err


@pytest.mark.parametrize(("count", "name"), [(1, "kept/report.html"), (4, "comparison.html"), (5, "trend.html")])
def test_how_many_a_directory_has_says_which_page_is_made(count: int, name: str, here: Path, capsys: Shown) -> None:
    for number in range(count):
        write(here / "kept" / f"{number}.json", ddp() | {"run": f"ddp-{number}"})
    assert verb("report", "kept") == 0
    assert (here / name).exists()


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        ([], 2, "a4-agent get fetches one; then a4-agent report a4-results/RUN"),
        (["no-such"], 66, "no-such is not a file, a directory or a run"),
        (["../etc"], 66, "../etc is not a file"),
        ([""], 66, "is not a file"),
        (["."], 66, ". has no result.json"),
        (["gs://bucket/result.json"], 66, "gcloud storage cp gs://bucket/result.json"),
        (["text"], 2, "text is not JSON"),
        (["deep"], 2, "deep is not JSON"),
        (["empty"], 2, "empty is not JSON"),
        (["other"], 2, "other cannot be reported on: it is JSON, but no result"),
        (["old"], 2, "old cannot be reported on: it has version 1"),
        (["wrong"], 2, "wrong cannot be reported on: job is not a text"),
        (["good", "old"], 2, "old cannot be reported on"),
        (["good"] * 5 + ["no-such"], 66, "no-such is not a file, a directory or a run"),
        (["old"] * 5, 2, "none of the 5 results can be read"),
        (["nothing"], 66, "nothing has no result.json"),
        (["good", "-o", "no/such/report.html"], 73, "write it elsewhere with -o FILE"),
        (["good", "-o", "/proc/report.html"], 73, "/proc/report.html cannot be written"),
        (["good", "-o", "/etc"], 73, "/etc cannot be written"),
    ],
)
def test_errors(argv: list[str], code: int, words: str, here: Path, capsys: Shown) -> None:
    write(here / "good", ddp())
    write(here / "other", {"a": 1})
    write(here / "old", {"version": 1, "run": "x"})
    write(here / "wrong", ddp() | {"job": 7})
    (here / "text").write_text("hello")
    (here / "empty").write_text("")
    (here / "nothing").mkdir()
    (here / "deep").write_text("[" * 100_000)
    before = sorted(os.listdir(here))
    assert verb("report", *argv) == code
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""
    assert sorted(os.listdir(here)) == before


@pytest.mark.parametrize(("library", "words"), [("jinja2", "needs Jinja2"), ("matplotlib", "needs matplotlib")])
def test_without_its_libraries(
    library: str, words: str, here: Path, refused: Prints, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent.report.page import _environment

    write(here / "result.json", collectives())
    _environment.cache_clear()
    for name in list(sys.modules):
        if name.split(".")[0] == library:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    shown = refused(66, "report", ".")
    assert words in shown
    assert f"{sys.executable} -m pip install Jinja2 matplotlib" in shown
    assert os.listdir(here) == ["result.json"]


def test_as_a_child_of_the_agent(here: Path) -> None:
    """Without the pod's environment, without an agent, in a directory that says nothing."""
    path = write(here / "result.json", collectives())
    done = subprocess.run(
        [sys.executable, "-m", "agent", "report", str(path), "-o", str(here / "report.html")],
        env={"PYTHONPATH": str(ROOT)},
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"a4-agent: the report is in {here}/report.html\n"
