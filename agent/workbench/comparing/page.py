"""The pages of several runs: a comparison of two to four, and a list of more over time."""

from __future__ import annotations

from collections.abc import Sequence

from agent.decide.result import Result
from agent.report.page import render
from agent.workbench.comparing.comparison import comparison_page
from agent.workbench.comparing.trends import series_page


def render_comparison(results: Sequence[Result]) -> str:
    """The page that compares these runs with the first of them. Raises ImportError where Jinja2 or matplotlib is
    missing."""
    return render("comparison.html.j2", __package__, page=comparison_page(results))


def render_series(results: Sequence[Result], unread: Sequence[str]) -> str:
    """The page of many runs, and of what could not be read. Raises ImportError as `render_comparison`."""
    return render("series.html.j2", __package__, page=series_page(results, unread))
