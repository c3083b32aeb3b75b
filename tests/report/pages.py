"""The pages of all examples, each rendered once."""

from __future__ import annotations

from functools import cache

from agent.decide.result_reader import read_result
from agent.report.page import render_run
from agent.workbench.comparing.page import render_comparison, render_series
from tests.report.examples import EXAMPLES, HOSTILE, compared, hostile

COMPARISON, HOSTILE_COMPARISON = "comparison", "hostile-comparison"
SERIES, HOSTILE_SERIES = "series", "hostile-series"
NODES = {"workload": "find-slow"}  # which measures nodes
PAGES = (*EXAMPLES, COMPARISON, HOSTILE_COMPARISON, SERIES, HOSTILE_SERIES)


@cache
def rendered(name: str) -> str:
    if name == COMPARISON:
        return render_comparison([read_result(data) for data in compared()])
    if name == HOSTILE_COMPARISON:
        return render_comparison([read_result(data) for data in (hostile() | NODES, compared()[0])])
    if name == SERIES:
        return render_series([read_result(make()) for make in EXAMPLES.values() if make is not hostile], [])
    if name == HOSTILE_SERIES:
        return render_series([read_result(one) for one in (hostile(), hostile(), hostile() | NODES)], [HOSTILE])
    return render_run(read_result(EXAMPLES[name]()))
