"""`a4-agent sync` in the pods of a cluster, in runs and outside them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tests.cluster.conftest import END_SECONDS, Start, all_codes
from tests.cluster.work import agent, sleeping

PAGE = (Path(__file__).parents[2] / "docs/sync.md").read_text()
ENV = {"A4_SHARED_DIR": "/mnt"}


def script() -> str:
    """The task script of the page."""
    found = re.search(r"<!-- task script -->\n\n((?:(?:    .*)?\n)+)", PAGE)
    assert found is not None
    return inspect.cleandoc("\n" + found[1]).replace("sleep 5 ", "$DOWNLOAD ")


def test_the_script_of_the_page(start: Start) -> None:
    trial = start(3, script=script(), env={**ENV, "DOWNLOAD": "sleep 0"})
    all_codes(trial, 0)
    assert [trial.cluster.logs(index, "out") for index in range(3)] == [
        f"pod {index} has the data\n" for index in range(3)
    ]


@pytest.mark.faults
def test_the_script_of_the_page_when_the_download_fails(start: Start) -> None:
    trial = start(3, script=script(), env={**ENV, "DOWNLOAD": "false"})
    all_codes(trial, 1)
    assert all("has the data" not in trial.cluster.logs(index, "out") for index in range(3))


def test_what_one_run_has_set_does_not_count_in_the_next(start: Start) -> None:
    """The same script, again and again in a cluster that stays."""
    waits = "[ $JOB_COMPLETION_INDEX = 0 ] && a4-agent sync set first || a4-agent sync wait first"
    never = "[ $JOB_COMPLETION_INDEX = 0 ] || a4-agent sync wait first --timeout 1"
    trial = sleeping(start, 2, arguments=("none",), env=ENV)
    for words, code in ((waits, 0), (waits, 0), (never, 69)):
        done = agent(trial, 1, "exec", "--", "sh", "-c", words)
        assert done.returncode == code, done.stderr
    whole = "[ $JOB_COMPLETION_INDEX = 1 ] || a4-agent sync set first --job"
    assert agent(trial, 1, "exec", "--", "sh", "-c", whole).returncode == 0
    typed = trial.cluster.exec(1, ["a4-agent", "sync", "wait", "first", "--timeout", "30"], timeout=END_SECONDS)
    assert typed.returncode == 0, typed.stderr  # pod 0 is heard when its part of that run is over
