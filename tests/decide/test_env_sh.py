"""env.sh and what leads to it, read by the real bash and sh: every value whole, none executed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.decide.env_sh import MARK, env_sh, exports, forwarder, hook

BYTES = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b"").decode(errors="surrogateescape"))
HOSTILE = ["'", '"', "$(touch bad)", "`touch bad`", "\\", "\n", ";", "=", " ", "${X}", "!", "\x01", "\x7f", "é"]
SNIPPETS = st.lists(st.sampled_from(HOSTILE)).map("".join)
VALUES = st.one_of(BYTES, SNIPPETS, st.text(max_size=10).map(lambda text: text.replace("\0", "")))
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{3,8}", fullmatch=True).map(lambda name: f"X{name}")


def sourced(shell: str, path: Path, env: dict[str, str] | None = None, then: str = "exec env -0") -> dict[str, str]:
    done = subprocess.run(
        [shell, "-c", f'. "$0" && {then}', path], env={"PATH": os.environ["PATH"], **(env or {})}, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    pairs = (entry.partition(b"=") for entry in done.stdout.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, found, value in pairs if found}


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode(errors="surrogateescape"))
    return path


@pytest.mark.parametrize("shell", ["bash", "sh"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(env=st.dictionaries(NAMES, VALUES, max_size=30))
def test_every_value_arrives_whole_and_is_not_executed(tmp_path: Path, shell: str, env: dict[str, str]) -> None:
    found = sourced(shell, write(tmp_path / "env.sh", exports(env)))
    assert {name: found.get(name) for name in env} == env
    assert not list(tmp_path.glob("bad"))


def test_what_is_unset_and_what_is_left_out(tmp_path: Path) -> None:
    env = {"A": "1", "TOKEN": "canary", "PWD": "/x", "UID": "7", "A-B": "1", "BASH_FUNC_f%%": "() { echo; }"}
    text = env_sh(env, ["GONE", "bad name"], lambda name, value: name == "TOKEN")
    assert "canary" not in text and "'TOKEN'" in text
    found = sourced("bash", write(tmp_path / "env.sh", text), {"GONE": "1", "KEPT": "2"})
    assert {name: found.get(name) for name in ("A", "TOKEN", "GONE", "KEPT", "UID", "A-B", MARK)} == {
        "A": "1", "TOKEN": None, "GONE": None, "KEPT": "2", "UID": None, "A-B": None, MARK: "1",
    }  # fmt: skip
    assert found["PWD"] != "/x"


def test_a_shell_inside_keeps_what_its_user_has_changed(tmp_path: Path) -> None:
    path = write(tmp_path / "env.sh", env_sh({"A": "pod"}, [], lambda name, value: False))
    again = write(tmp_path / "hook", hook(str(path)))
    assert sourced("bash", again, {"A": "other"})["A"] == "pod"
    assert sourced("bash", again, {"A": "mine", MARK: "1"})["A"] == "mine"
    by_hand = write(tmp_path / "by hand", forwarder(str(path)))
    assert sourced("bash", by_hand, {"A": "mine", MARK: "1"})["A"] == "pod"


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_torchrun_by_hand(tmp_path: Path, shell: str) -> None:
    path, there = write(tmp_path / "env.sh", env_sh({}, [], lambda name, value: False)), tmp_path / "bin"
    for has_one, code in ((False, 127), (True, 0)):
        typed = [shell, "-c", '. "$0" && torchrun x.py', str(path)]
        done = subprocess.run(typed, env={"PATH": f"{there}:/usr/bin:/bin"}, capture_output=True, text=True)
        assert done.returncode == code
        assert ("a4-agent torchrun -- PROGRAM" in done.stderr) == (not has_one)
        there.mkdir(exist_ok=True)
        write(there / "torchrun", "#!/bin/sh\n").chmod(0o755)
    later = [shell, "-c", f'. "$0" && PATH={there}:$PATH && torchrun x.py', str(path)]
    assert subprocess.run(later, env={"PATH": "/usr/bin:/bin"}).returncode == 0


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_nothing_to_lead_to(tmp_path: Path, shell: str) -> None:
    assert "A" not in sourced(shell, write(tmp_path / "hook", hook(f"{tmp_path}/it's not there")))
    path = write(tmp_path / "by hand", forwarder(f"{tmp_path}/it's not there"))
    done = subprocess.run([shell, "-c", '. "$0" && echo on', path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "it's not there cannot be read: only root may" in done.stderr
