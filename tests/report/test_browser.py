"""The pages in Chromium, without JavaScript: nothing is fetched, nothing complains, nothing sticks out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from agent.decide.result_reader import read_result
from agent.report.page import render_run
from tests.report.examples import Json, connectivity, many
from tests.report.pages import PAGES, rendered

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTHS = (360, 768, 1440)
SMALLEST_TEXT, SMALLEST_IN_CHARTS = 12.0, 9.5
"""CSS pixels on the narrowest phone."""

STICKING_OUT = """() => {
    const wide = document.documentElement.clientWidth;
    const out = [...document.querySelectorAll('body *')].filter(element =>
        element.getBoundingClientRect().right > wide + 0.5 && element.getClientRects().length &&
        !element.parentElement.closest('.sheet, svg, .track') && !element.closest('.unseen'));
    const scrolls = document.documentElement.scrollWidth > wide ? ['the page'] : [];
    return [...scrolls, ...out.map(element => element.outerHTML.slice(0, 200))];
}"""
CHART_TEXT_OUTSIDE = """() => [...document.querySelectorAll('svg text')].filter(text => {
    const own = text.getBoundingClientRect(), chart = text.closest('.card').getBoundingClientRect();
    return own.left < chart.left - 0.5 || own.right > chart.right + 0.5;
}).map(text => text.textContent)"""
TEXT_SIZES = """() => {
    const sizes = {page: [], charts: []};
    for (const text of document.querySelectorAll('svg text'))
        sizes.charts.push(parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a);
    for (const element of document.querySelectorAll('body :not(svg, svg *)'))
        if ([...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
            sizes.page.push(parseFloat(getComputedStyle(element).fontSize));
    return [Math.min(...sizes.page), Math.min(...sizes.charts, 99)];
}"""


OPEN_DETAILS = "document.querySelectorAll('details').forEach(each => each.open = true)"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests of this process."""
    path = shutil.which("chromium")
    assert path, "chromium is not installed: `scripts/setup.sh test` installs it (Debian's package chromium)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


class Tab:
    """One for many pages, with what the last one asked for and what it complained of."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.path = path
        self.asked: list[str] = []
        self.said: list[str] = []
        page.route("**/*", self._route)
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))

    def show(self, html: str) -> None:
        self.asked, self.said = [], []
        self.path.write_text(html)
        self.page.goto(self.path.as_uri())

    def _route(self, route: Route) -> None:
        self.asked.append(route.request.url)
        route.continue_() if route.request.url == self.path.as_uri() else route.abort()


WITHOUT, WITH = "without-scripts", "with-scripts"


@pytest.fixture(scope="session")
def tabs(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tab]:
    """Without scripts, as in a mail program, and with them."""
    directory = tmp_path_factory.mktemp("pages")
    return {
        scripts: Tab(browser.new_context(java_script_enabled=scripts == WITH).new_page(), directory / f"{scripts}.html")
        for scripts in (WITHOUT, WITH)
    }


@pytest.fixture
def tab(tabs: dict[str, Tab]) -> Iterator[Tab]:
    """Without scripts, and as wide as it is at first."""
    tabs[WITHOUT].page.set_viewport_size({"width": 1280, "height": 720})
    yield tabs[WITHOUT]
    tabs[WITHOUT].page.emulate_media(media="null", color_scheme="null")


def out_of_place(page: Page) -> Iterator[str]:
    """What sticks out at each width, with all details closed and open."""
    for details in ("closed", "open"):
        if details == "open":
            page.evaluate(OPEN_DETAILS)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for found in (*page.evaluate(STICKING_OUT), *page.evaluate(CHART_TEXT_OUTSIDE)):
                yield f"{details}, {width} pixels: {found}"


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_fetched_nothing_complains_nothing_sticks_out(name: str, tabs: dict[str, Tab]) -> None:
    """With all details open, too. Tables may scroll, each in its own frame."""
    for scripts, tab in tabs.items():
        tab.show(rendered(name))
        assert tab.page.locator("h1").is_visible()
        assert (tab.asked, tab.said) == ([tab.path.as_uri()], []), scripts
    page = tabs[WITHOUT].page
    assert list(out_of_place(page)) == []
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    in_page, in_charts = page.evaluate(TEXT_SIZES)
    assert in_page >= SMALLEST_TEXT and in_charts >= SMALLEST_IN_CHARTS, "on a phone"


@pytest.mark.parametrize("name", ["collectives", "comparison"])
def test_light_and_dark(name: str, tab: Tab) -> None:
    tab.show(rendered(name))
    grounds, curves = set(), set()
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme=scheme)
        grounds.add(tab.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        curves.add(tab.page.evaluate("getComputedStyle(document.querySelector('svg [style*=series-1]')).stroke"))
    assert len(grounds) == len(curves) == 2


def test_print_is_light_and_whole(tab: Tab) -> None:
    tab.show(rendered("many"))
    tab.page.emulate_media(media="print", color_scheme="dark")
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.page.evaluate("getComputedStyle(document.body).color") == "rgb(23, 28, 36)"
    assert tab.page.evaluate(
        "[...document.querySelectorAll('.sheet')].every(sheet => sheet.scrollHeight <= sheet.clientHeight + 1)"
    )


@pytest.mark.parametrize("pods", [many, lambda: connectivity(64)], ids=["ranks", "neighbours"])
def test_64_pods_print_on_six_sheets_of_a4(pods: Callable[[], Json], tab: Tab) -> None:
    tab.show(render_run(read_result(pods())))
    printed = tab.page.pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 6


def test_a_phone_shows_what_was_measured_without_scrolling(tab: Tab) -> None:
    tab.show(rendered("connectivity"))
    tab.page.set_viewport_size({"width": 390, "height": 844})
    units = tab.page.get_by_role("region", name="Neighbours").locator("thead span")
    edges = [box["x"] + box["width"] for one in units.all() if (box := one.bounding_box())]
    assert len(edges) == 2 and max(edges) <= 390


def test_details_open_without_scripts(tab: Tab) -> None:
    tab.show(rendered("collectives"))
    numbers = tab.page.get_by_role("region", name="all_reduce: time and bandwidth by size")
    assert not numbers.is_visible()
    tab.page.get_by_text("Numbers of all_reduce").click()
    assert numbers.is_visible()


def test_hostile_text_is_shown_as_it_is(tab: Tab) -> None:
    tab.show(rendered("hostile"))
    assert tab.page.locator("p.what").inner_text() == '<script>alert("x")</script>'
    assert tab.page.title().startswith("✗ failed (1): '<script>")
