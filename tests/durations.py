"""How long each test takes on an idle machine, as a file says: no test reads a clock to judge another.

`make test-durations` writes the file. Tests that start clusters or processes all stand in it, and go to the workers in
its order: the longest first, so that all workers end together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("durations.json")
LONGEST_SECONDS = 15.0
"""For every test that has not the marker `faults` or `long`."""
WORTH_NOTING_SECONDS = 3.0
"""What takes less stands in the file only if every test of its place does."""
RENEW = "make test-durations ARGS={file} writes its figures, on an idle machine"


@cache
def read(file: Path = FILE) -> dict[str, float]:
    """Seconds by test; of a test with several cases, those of the longest."""
    return dict(json.loads(file.read_text()))


def key(nodeid: str) -> str:
    """The test without its case."""
    return nodeid.partition("[")[0]


def objection(nodeid: str, figures: Mapping[str, float], must_have_one: bool) -> str:
    """Why a test without the marker `faults` may not be as it is; empty: it may."""
    seconds = figures.get(key(nodeid))
    file = nodeid.partition("::")[0]
    if seconds is None:
        return f"tests/durations.json does not have this test: {RENEW.format(file=file)}" if must_have_one else ""
    if seconds > LONGEST_SECONDS:
        return (
            f"this test takes {seconds:g} s on an idle machine, and {LONGEST_SECONDS:g} s is the most: make it faster, "
            f"then {RENEW.format(file=file)}"
        )
    return ""


def renewed(
    old: Mapping[str, float], measured: Iterable[tuple[str, float]], places: tuple[str, ...]
) -> dict[str, float]:
    """The figures after a run of whole files: of these files, only the tests that ran keep or get one.

    measured: ids of tests, and their seconds
    places: beginnings of ids whose tests all have a figure
    """
    measured = list(measured)
    files = {nodeid.partition("::")[0] for nodeid, _ in measured}
    figures = {name: seconds for name, seconds in old.items() if name.partition("::")[0] not in files}
    for nodeid, seconds in measured:
        if nodeid.startswith(places) or seconds >= WORTH_NOTING_SECONDS:
            figures[key(nodeid)] = max(figures.get(key(nodeid), 0.0), round(seconds, 1))
    return dict(sorted(figures.items()))


def write(figures: Mapping[str, float], file: Path = FILE) -> None:
    file.write_text(json.dumps(figures, indent=0, sort_keys=True) + "\n")
