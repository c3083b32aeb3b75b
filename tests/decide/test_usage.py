"""What argparse says of wrong arguments, found among everything else that was printed."""

from __future__ import annotations

import pytest

from agent.workloads.connectivity import wrong_usage


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("", ""),
        (
            "usage: ddp.py [-h]\nddp.py: error: unrecognized arguments: --stepps 3\n",
            "unrecognized arguments: --stepps 3",
        ),
        ("W1121 torch\r\ncollectives.py: error: -b is more than -e\nTraceback …", "-b is more than -e"),
        ("/opt/a4/entrypoints/connectivity.py: error: sizes are at least 1\n", "sizes are at least 1"),
        ("train.py raised an error: no", ""),
    ],
)
def test_the_programs_own_words(output: str, told: str) -> None:
    assert wrong_usage(output) == told
