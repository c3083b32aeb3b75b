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


FLAG = """
if [ "$A4_NODE_RANK" = 0 ]; then
    sleep 1; mkdir -p /mnt/sync_flags_x; touch /mnt/sync_flags_x/download_complete_flag
else
    a4-agent sync wait download_complete && echo "pod $JOB_COMPLETION_INDEX saw the flag"
fi
"""


def test_the_script_of_the_page_and_a_flag_that_an_old_script_makes(start: Start) -> None:
    trial = start(3, script=script() + FLAG, env={"A4_SHARED_DIR": "/mnt", "JOB_ID": "x"})
    all_codes(trial, 0)
    assert [trial.cluster.logs(index, "out") for index in range(3)] == [
        f"pod {index} has the data\n" + (f"pod {index} saw the flag\n" if index else "") for index in range(3)
    ]
