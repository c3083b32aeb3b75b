"""Results as one HTML file that needs nothing else: no network, no script, no font of its own."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from agent.decide.result import Result
from agent.report import charts, palette
from agent.report.model import run_page

if TYPE_CHECKING:
    from jinja2 import Environment

UNSEEN = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), "�")
"""Control characters: no HTML may have them, and a terminal that shows the file must not obey them."""

DIGEST = r"\b(?=[0-9a-f-]*[0-9])(?:[0-9a-f]{24,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b"
"""Hashes, places and UUIDs: long, and alike to people."""


def render_run(result: Result) -> str:
    """The page of one run. Raises ImportError where Jinja2 or matplotlib is missing."""
    return render("report.html.j2", page=run_page(result))


def render(template: str, package: str = __package__, **values: object) -> str:
    """The page as text that any file can hold: what is not valid Unicode or HTML is replaced.

    package: the one that has the template; templates of agent.report can be used in it.
    """
    text = _environment(package).get_template(template).render(**values)
    return text.encode("utf-8", "replace").decode().translate(UNSEEN)


def folded(text: str) -> str:
    """The text as markup, with the ends of each digest, and the whole under the pointer."""
    from markupsafe import Markup, escape

    found, end = Markup(""), 0
    for match in re.finditer(DIGEST, text):
        whole = match[0]
        short = Markup('<abbr title="{0}">{1}…{2}</abbr>').format(whole, whole[:6], whole[-4:])
        found, end = found + escape(text[end : match.start()]) + short, match.end()
    return found + escape(text[end:])


@cache
def _environment(package: str) -> Environment:
    """Made once: Jinja2 compiles each template at its first use."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(__package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["light"] = palette.variables(palette.LIGHT)
    environment.globals["dark"] = palette.variables(palette.DARK)
    environment.filters["folded"] = folded
    environment.filters["chart"] = lambda picture: Markup(charts.chart(picture))  # of our own words, or escaped there
    return environment
