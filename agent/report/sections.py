"""The sections of a run's page, in their order. The navigation follows this list.

Each has its words here, its data in agent/report/model.py, and its body in templates/sections/ID.html.j2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Section(NamedTuple):
    """One heading, and what stands below it."""

    id: str
    title: str
    short: str = ""
    """In the navigation, where that is not the title."""
    needs: str = ""
    """What the page must have, by its name there; empty: the section is always shown."""
    number: Callable[[Any], int] | None = None
    """Shown beside it in the navigation."""

    def link(self, page: Any) -> str:
        words = self.short or self.title
        return f"{words} ({self.number(page)})" if self.number else words


SECTIONS = (
    Section("why", "Why it stood still", needs="diagnosis"),
    Section("health", "Health of the pods", "Health", "health", lambda page: page.health.length),
    Section("bandwidth", "Bandwidth and time over message size", "Bandwidth", "overview"),
    Section("training", "Training", needs="trained"),
    Section("series", "Series of the program", "Series", "series"),
    Section("measured", "Measured", needs="tables"),
    Section(
        "differences",
        "What differed between pods",
        "Differences",
        "differences",
        lambda page: len(page.result.differences),
    ),
    Section("order", "Order of the ranks", "Order"),
    Section("startup", "Start-up", needs="startup"),
    Section("pods", "Pods"),
    Section("launch", "Launch"),
    Section("versions", "Versions"),
)


def sections_of(page: Any) -> list[Section]:
    """Those that this page has something for."""
    return [section for section in SECTIONS if not section.needs or getattr(page, section.needs)]
