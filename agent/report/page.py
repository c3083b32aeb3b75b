"""Results as one HTML file that needs nothing else: no network, no script, no font of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from agent.decide.result import Result
from agent.report import charts, palette
from agent.report.comparison import comparison_page
from agent.report.model import run_page
from agent.report.trends import series_page

if TYPE_CHECKING:
    from jinja2 import Environment

UNSEEN = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), "�")
"""Control characters: no HTML may have them, and a terminal that shows the file must not obey them."""


def render_run(result: Result) -> str:
    """The page of one run. Raises ImportError where Jinja2 or matplotlib is missing."""
    return _render("report.html.j2", page=run_page(result))


def render_comparison(results: Sequence[Result]) -> str:
    """The page that compares these runs, the first of which is the measure. Raises ImportError as `render_run`."""
    return _render("comparison.html.j2", page=comparison_page(results))


def render_series(results: Sequence[Result], unread: Sequence[str]) -> str:
    """The page of many runs, and of what could not be read. Raises ImportError as `render_run`."""
    return _render("series.html.j2", page=series_page(results, unread))


def _render(template: str, **values: object) -> str:
    """The page as text that any file can hold: what is not valid Unicode or HTML is replaced."""
    text = _environment().get_template(template).render(**values)
    return text.encode("utf-8", "replace").decode().translate(UNSEEN)


@cache
def _environment() -> Environment:
    """Made once: Jinja2 compiles each template at its first use."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("agent.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["light"] = palette.variables(palette.LIGHT)
    environment.globals["dark"] = palette.variables(palette.DARK)
    environment.filters["chart"] = lambda picture: Markup(charts.chart(picture))  # of our own words, or escaped there
    return environment
