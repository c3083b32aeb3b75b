"""entrypoints/steps.py with real commands."""

from __future__ import annotations

import base64
import json
import os
import runpy
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.decide.ranks import FOLLOWED
from tests.machine.waiting import wait_until

STEPS = Path(__file__).parents[1] / "entrypoints" / "steps.py"
HASTY = "import sys, steps; steps.ENDING_SECONDS = 0.0; sys.exit(steps.main())"
"""Without patience for what has said its end."""
PATIENT = "import sys, steps; sys.exit(steps.main())"


def shell(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"names": [name], "argv": ["sh", "-c", text], **more}


def packed(steps: list[dict[str, Any]]) -> str:
    return base64.b64encode(zlib.compress(json.dumps(steps).encode())).decode()


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record.jsonl"


@pytest.fixture
def env(record: Path) -> dict[str, str]:
    return {**os.environ, "A4_RECORD": str(record), "HF_TOKEN": "hf_canary"}


def run(steps: list[dict[str, Any]], env: dict[str, str], how: str = HASTY) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", how, packed(steps)]
    env = {**env, "PYTHONPATH": str(STEPS.parent)}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=150)


def events(record: Path) -> Iterator[tuple[str, str, int | None]]:
    for line in record.read_text().splitlines():
        data = json.loads(line)
        yield data["step"], data["name"], data.get("status")


def test_one_after_the_other(env: dict[str, str], record: Path) -> None:
    steps = [shell("a", "echo $A4_X; echo said >&2; printf no-end", env={"A4_X": "one"}), shell("b", "echo $A4_X two")]
    done = run(steps, env)
    assert (done.returncode, done.stderr) == (0, "said\n")
    assert done.stdout == "# a4-agent: step a\none\nno-end\n# a4-agent: step b\ntwo\n"
    assert list(events(record)) == [("begin", "a", None), ("done", "a", 0), ("begin", "b", None), ("done", "b", 0)]


@pytest.mark.parametrize(("end", "status", "code"), [("exit 7", 7, 7), ("kill -KILL $$", -9, 137)])
def test_the_first_that_fails_is_the_last(end: str, status: int, code: int, env: dict[str, str], record: Path) -> None:
    done = run([shell("a", end), shell("b", "echo never")], env)
    assert done.returncode == code and "never" not in done.stdout
    assert list(events(record))[-1] == ("done", "a", status)


@pytest.mark.parametrize("said", ["line", "record"])
def test_what_has_said_its_end_and_hangs_is_ended(said: str, env: dict[str, str], record: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    text = "echo '# Avg bus bandwidth : 1'" if said == "line" else f"""echo '{{"step": "end"}}' > {own}"""
    hangs = shell("a", f"{text}; exec sleep 600", ends="# Avg bus", record=str(own) if said == "record" else "")
    done = run([hangs, shell("b", "echo goes on")], env)
    assert done.returncode == 0 and "goes on" in done.stdout
    assert "it is ended" in done.stderr
    assert json.loads(record.read_text().splitlines()[1])["stuck"] is True


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"version": 3, "env": ["HF_TOKEN=hf_canary"], "results": []}', {"version": 3, "results": []}),
        ('{"version": 3, "env": ["HF_TOKEN=hf_canary", ', None),
        ("[1]", None),
        ("", None),
    ],
)
def test_a_result_is_kept_without_the_environment(
    text: str, kept: dict[str, Any] | None, env: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    done = run([shell("a", f"printf %s '{text}' > {path}", result=str(path))], env)
    assert done.returncode == 0, done.stderr
    assert (json.loads(path.read_text()) if path.exists() else None) == kept
    assert not any(b"canary" in each.read_bytes() for each in tmp_path.iterdir())


def test_no_result_is_no_error(env: dict[str, str], tmp_path: Path) -> None:
    assert run([shell("a", "true", result=str(tmp_path / "none.json"))], env).stderr == ""


def test_a_signal_ends_it_and_deletes_the_result_at_once(env: dict[str, str], record: Path, tmp_path: Path) -> None:
    """Though the command does not mind the signal."""
    path, ready, go = (tmp_path / name for name in ("result.json", "ready", "go"))
    text = f"trap '' TERM; echo '{{\"env\": 1}}' > {path}; touch {ready}; until test -e {go}; do sleep 0.05; done"
    steps = [shell("a", text, result=str(path)), shell("b", "echo never")]
    process = subprocess.Popen(
        [sys.executable, "-ES", str(STEPS), packed(steps)], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        wait_until(ready.exists)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not path.exists())
        go.touch()
        out, _ = process.communicate(timeout=150)
    finally:
        process.kill()
    assert "never" not in out and list(events(record))[-1] == ("done", "a", 0)


def test_one_step_several_times(env: dict[str, str], record: Path, tmp_path: Path) -> None:
    text = f"""echo $A4_STEP; echo '{{"env": 1}}' > {tmp_path}/$A4_STEP.json"""
    done = run([shell("", text, names=["a", "a-2"], result=f"{tmp_path}/{{step}}.json"), shell("b", "true")], env)
    assert done.stdout == "# a4-agent: step a\na\n# a4-agent: step a-2\na-2\n# a4-agent: step b\n"
    assert [(tmp_path / f"{name}.json").read_text() for name in ("a", "a-2")] == ["{}", "{}"]
    begun = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(line["number"], line["of"]) for line in begun if line["step"] == "begin"] == [(1, 3), (2, 3), (3, 3)]


SILENT = "; exec sleep 600"
HANGS = f"; echo '# Avg bus'{SILENT}"


@pytest.mark.parametrize(
    ("end", "records", "code"),
    [
        ("", {}, 0),
        ("", {0: "ended 0  of a", 1: "ended 3 9.5 of a"}, 3),
        ("", {0: "ended 139 9.4 of a", 1: "ended 3 9.5 of a"}, 139),
        ("", {0: "ended 143 9.5 of a"}, 143),
        (HANGS, {0: "ended 0  of a", 1: "ended 143 9.5 of a", 2: "ended 14 9.5 of a"}, 0),
        (HANGS, {0: "ended 143 9.4 of a", 1: "ended 139 9.5 of a"}, 139),
        (HANGS, {0: "started 7"}, 0),
        (SILENT, {0: "ended 3 9.5 of a"}, 3),
        ("; exit 5", {0: "ended 3 9.5 of a"}, 5),
    ],
)
def test_a_rank_that_failed_fails_its_step(
    end: str, records: dict[int, str], code: int, env: dict[str, str], record: Path, tmp_path: Path
) -> None:
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    (ranks / "7").write_text("started 1 of first\nended 9 1.0 of first\n")
    text = "".join(f"echo '{line}' > {ranks}/{rank}; " for rank, line in records.items()) + "true" + end
    steps = [shell("a", text, ends="# Avg bus", ranks=str(ranks)), shell("b", "echo goes on")]
    hangs = SILENT in end
    done = run(steps, env, HASTY if hangs else PATIENT)
    assert (done.returncode, "goes on" in done.stdout) == (code, not code), done
    status = json.loads(record.read_text().splitlines()[1])
    assert (status["stuck"], "hangs: it is ended" in done.stderr) == (hangs, hangs)
    assert status["status"] == code or not code
    assert ("a rank on this pod ended with" in done.stderr) is (code not in (0, 5))


def test_the_codes_that_are_excused_are_those_of_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STEPS.parent))  # record.py, which lies beside it
    assert runpy.run_path(str(STEPS))["FOLLOWED"] == FOLLOWED
