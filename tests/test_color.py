"""When text is coloured."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.output import BAD, painted, wants_color


@pytest.mark.parametrize(
    ("when", "environ", "is_terminal", "coloured"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_when(when: str, environ: Mapping[str, str], is_terminal: bool, coloured: bool) -> None:
    assert wants_color(when, environ, is_terminal=is_terminal) is coloured


def test_the_first_line_is_painted() -> None:
    assert painted("it failed\n  why\n", BAD) == "\x1b[31mit failed\x1b[0m\n  why\n"
