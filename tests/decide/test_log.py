"""The agent's log: labelled lines, one JSON object each if wanted, and no secrets."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.log import LEVELS, Log, secret_values

names = st.sampled_from(["HF_TOKEN", "WANDB_API_KEY", "MY_SECRET", "DB_PASSWORD", "AWS_CREDENTIALS", "hf_token"])
# The mask itself is made of stars.
secrets = st.text(st.characters(blacklist_characters="*", blacklist_categories=["Cs"]), min_size=8, max_size=30)


def written(form: str, texts: list[str], secrets: set[str] | None = None, level: str = "debug") -> str:
    stream = io.StringIO()
    log = Log(level, form, stream, secrets or ())
    log.labels = {"pod": "2/4", "job": "job-1"}
    for text in texts:
        log.info(text)
    return stream.getvalue()


@given(st.dictionaries(names, secrets, min_size=1), st.lists(st.text(max_size=10), min_size=1, max_size=4))
def test_secrets_never_appear(environ: dict[str, str], around: list[str]) -> None:
    message = "".join(before + secret for before in around for secret in environ.values())
    stream = io.StringIO()
    assert secret_values(environ) == set(environ.values())
    log = Log("debug", "json", stream, secret_values(environ))
    log.error(message)
    shown = json.loads(stream.getvalue())["message"]
    assert not [secret for secret in environ.values() if secret in shown]
    assert "***" in shown
    assert shown == log.masked(message)


def test_a_secret_inside_another_is_masked_with_it() -> None:
    assert "inner" not in written("text", ["x outer-inner-123 y"], {"inner-123", "outer-inner-123"})


@pytest.mark.parametrize(
    "environ",
    [
        {"SSH_PUBLIC_KEY": "ssh-ed25519 AAAA"},
        {"A4_SECRET_FILE": "/etc/secret/file"},
        {"KEY_PATH": "/a/long/path"},
        {"TOKEN_DIR": "/a/long/path"},
        {"HOME": "/root/somewhere"},
        {"HF_TOKEN": "short"},
        {"HF_TOKEN": ""},
    ],
)
def test_what_is_no_secret_stays(environ: dict[str, str]) -> None:
    assert secret_values(environ) == set()


@given(st.lists(st.text(max_size=40), max_size=5))
def test_json_is_one_object_a_line(texts: list[str]) -> None:
    lines = written("json", texts).split("\n")
    assert lines.pop() == ""
    objects = [json.loads(line) for line in lines]
    assert [entry["message"] for entry in objects] == texts
    for entry in objects:
        assert entry.pop("time").endswith("Z")
        assert entry == {"severity": "INFO", "message": entry["message"], "pod": "2/4", "job": "job-1"}


@given(st.text())
def test_every_line_of_text_names_its_pod(text: str) -> None:
    lines = written("text", [text]).splitlines()
    assert len(lines) == len(text.splitlines())
    assert all(" a4-agent [2/4] " in line for line in lines)


@pytest.mark.parametrize("least", LEVELS)
def test_levels(least: str) -> None:
    stream = io.StringIO()
    log = Log(least, "json", stream)
    for level in LEVELS:
        getattr(log, level)(level)
    shown = [json.loads(line) for line in stream.getvalue().splitlines()]
    wanted = LEVELS[LEVELS.index(least) :]
    assert [(entry["severity"], entry["message"]) for entry in shown] == [(level.upper(), level) for level in wanted]


def test_without_a_place_yet_and_with_a_mark() -> None:
    stream = io.StringIO()
    Log(stream=stream).warning("look out")
    assert stream.getvalue().endswith(" a4-agent warning: look out\n")


def test_a_reader_that_has_gone_ends_nothing() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    log = Log(stream=Broken())
    log.error("nobody hears this")
    assert log.labels == {}
