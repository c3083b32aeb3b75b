"""A launch as text: a shell that runs it starts the same process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.launch import Launch, packed, repacked
from tests.laws import examples

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"
_WORDS = """$(id) `id` ${HOME} a'b a"b \\ -c -- * ~ !x #x ; & é"""
HOSTILE = [*_WORDS.split(), "", " ", "a\nb"]
text = st.sampled_from(HOSTILE) | st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]))


@given(st.lists(text, max_size=5), st.dictionaries(st.sampled_from(["A", "B_1", "C"]), text))
@examples(15)
def test_a_shell_starts_the_same_process(args: list[str], added: dict[str, str]) -> None:
    env = {"PATH": "/usr/bin:/bin", "PYTHONUTF8": "1"}
    launch = Launch([sys.executable, "-I", "-S", "-X", "utf8", "-c", SHOW, *args], env | added, "/usr", tuple(added))
    shown = subprocess.run(["sh", "-c", str(launch)], env=env, capture_output=True)
    assert shown.returncode == 0, shown.stderr
    argv, environ, cwd = json.loads(shown.stdout)
    assert argv == args
    assert {name: environ[name] for name in added} == added
    assert cwd == "/usr"


def test_a_directory_with_a_hostile_name(tmp_path: Path) -> None:
    directory = tmp_path / "a b; $(x) 'y'"
    directory.mkdir()
    shown = subprocess.run(["sh", "-c", str(Launch(["pwd"], {}, str(directory)))], capture_output=True, text=True)
    assert shown.stdout == f"{directory}\n"


def test_the_pods_own_environment_is_not_shown() -> None:
    launch = Launch(["true"], {"HF_TOKEN": "hf_secret", "RANK": "0"}, "/", ("RANK",))
    assert str(launch) == "cd / && \\\n  RANK=0 \\\n  true"
    assert "hf_secret" not in repr(launch)


@pytest.mark.parametrize("word", ["--steps", "", "eNr", "é", packed([1])[:-4], packed({"a": [1]}), "[" * 100_000])
def test_a_word_in_which_nothing_changes_stays(word: str) -> None:
    assert repacked(word, lambda value: value) == word
