"""entrypoints/vendor-script.sh: the environment before and after a script."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent.decide.environment import Layer, effect
from agent.paths import shipped

RUNNER = shipped("entrypoints", "vendor-script.sh")
HOSTILE = 'it\'s $(touch bad) `x` "y" ;\n =\\ \udcff\udc80'


def source(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    script = tmp_path / "set env.sh"
    script.write_text(text)
    return subprocess.run(
        ["bash", RUNNER, script], env={"PATH": os.environ["PATH"], **(env or {})}, cwd=tmp_path, capture_output=True
    )


def layer(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> Layer:
    done = source(tmp_path, text, env)
    assert done.returncode == 0, done
    return effect("x", done.stdout)


@pytest.mark.parametrize(
    ("text", "values", "unset"),
    [
        ("export NCCL_NET=gIB", {"NCCL_NET": "gIB"}, []),
        ("not_exported=1", {}, []),
        ("unset KEPT", {}, ["KEPT"]),
        ("set -eu; export A=1", {"A": "1"}, []),
        ("set -- a b; export A=$#", {"A": "2"}, []),
        ("export A=$#", {"A": "0"}, []),
        ("cd /tmp; declare -x A=1", {"A": "1"}, []),
        ("PATH=/nowhere; export A=1", {"A": "1", "PATH": "/nowhere"}, []),
        ("env() { echo no; }; export A=1", {"A": "1"}, []),
        ("export A=$script$status", {"A": ""}, []),
        ("script=x status=y", {}, []),
        ('[ -n "$BASH_SOURCE" ] && export A=${BASH_SOURCE##*/}', {"A": "set env.sh"}, []),
        ("read -r A || export A=no-input", {"A": "no-input"}, []),
    ],
)
def test_its_effect(tmp_path: Path, text: str, values: dict[str, str], unset: list[str]) -> None:
    assert layer(tmp_path, text, {"KEPT": "1"}) == Layer("x", values, unset)


def test_what_it_prints_is_apart(tmp_path: Path) -> None:
    done = source(tmp_path, "echo out; echo err >&2; export A=1")
    assert (done.stderr, effect("x", done.stdout).values) == (b"out\nerr\n", {"A": "1"})


def test_any_value_passes_through(tmp_path: Path) -> None:
    env = {"HOSTILE": HOSTILE, "BASH_FUNC_f%%": "() { echo; }", "odd.name": "1"}
    assert layer(tmp_path, 'export COPY="$HOSTILE"', env).values == {"COPY": HOSTILE}
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize(
    ("text", "status"),
    [("false", 1), ("return 7", 7), ("exit 9", 9), ("set -e; false; true", 1), ("set -u; echo $NOTHING", 1)],
)
def test_one_that_fails(tmp_path: Path, text: str, status: int) -> None:
    assert source(tmp_path, text).returncode == status


def test_one_that_ends_the_shell(tmp_path: Path) -> None:
    done = source(tmp_path, "exit 0")
    assert done.returncode == 0
    with pytest.raises(ValueError, match="ended the shell"):
        effect("x", done.stdout)
