"""`a4-agent sync` in the pods of a cluster."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from tests.cluster.conftest import Start, all_codes

PAGE = (Path(__file__).parents[2] / "docs/sync.md").read_text()


def script() -> str:
    """The task script of the page."""
    found = re.search(r"<!-- task script -->\n\n((?:(?:    .*)?\n)+)", PAGE)
    assert found is not None
    return inspect.cleandoc("\n" + found[1]).replace("sleep 5 ", "true ")


def test_the_script_of_the_page(start: Start) -> None:
    trial = start(3, script=script(), env={"A4_SHARED_DIR": "/mnt"})
    all_codes(trial, 0)
    assert [trial.cluster.logs(index, "out") for index in range(3)] == [
        f"pod {index} has the data\n" for index in range(3)
    ]
