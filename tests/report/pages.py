"""The pages of all examples, each rendered once."""

from __future__ import annotations

from functools import cache

from agent.report.page import render_comparison, render_run
from agent.report.reading import read_result
from tests.report.examples import EXAMPLES, compared, hostile

COMPARISON, HOSTILE_COMPARISON = "comparison", "hostile-comparison"
PAGES = (*EXAMPLES, COMPARISON, HOSTILE_COMPARISON)


@cache
def rendered(name: str) -> str:
    if name == COMPARISON:
        return render_comparison([read_result(data) for data in compared()])
    if name == HOSTILE_COMPARISON:
        return render_comparison([read_result(data) for data in (hostile(), compared()[0])])
    return render_run(read_result(EXAMPLES[name]()))
