"""The pages in Chromium, without JavaScript: nothing is fetched, nothing complains, nothing sticks out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from tests.report.pages import PAGES, rendered

pytestmark = pytest.mark.xdist_group("browser")

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
        !element.parentElement.closest('.sheet, svg, .track') && !element.closest('.unseen') &&
        element.getClientRects().length && element.getBoundingClientRect().right > wide + 0.5);
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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests of this process."""
    path = shutil.which("chromium")
    assert path, "chromium is not installed: `scripts/setup.sh test` installs it (Debian's package chromium)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


class Opened:
    """A page, with what it asked for and what it complained of."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.path = path
        self.asked: list[str] = []
        self.said: list[str] = []
        page.route("**/*", self._route)
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))

    def show(self, html: str) -> None:
        self.path.write_text(html)
        self.page.goto(self.path.as_uri())

    def _route(self, route: Route) -> None:
        self.asked.append(route.request.url)
        route.continue_() if route.request.url == self.path.as_uri() else route.abort()


@pytest.fixture(params=["without-scripts", "with-scripts"])
def opened(request: pytest.FixtureRequest, browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    context = browser.new_context(java_script_enabled=request.param == "with-scripts")
    yield Opened(context.new_page(), tmp_path / "report.html")
    context.close()


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    """Without scripts, as in a mail program."""
    context = browser.new_context(java_script_enabled=False)
    yield Opened(context.new_page(), tmp_path / "report.html")
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_fetched_and_nothing_complains(name: str, opened: Opened) -> None:
    opened.show(rendered(name))
    assert opened.page.locator("h1").is_visible()
    assert opened.asked == [opened.path.as_uri()]
    assert opened.said == []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_sticks_out(name: str, page: Opened) -> None:
    """With all details open, too. Tables may scroll, each in its own frame."""
    for html in (rendered(name), rendered(name).replace("<details>", "<details open>")):
        page.show(html)
        for width in WIDTHS:
            page.page.set_viewport_size({"width": width, "height": 900})
            assert page.page.evaluate(STICKING_OUT) == [], f"{width} pixels"
            assert page.page.evaluate(CHART_TEXT_OUTSIDE) == [], f"{width} pixels"


@pytest.mark.parametrize("name", PAGES)
def test_text_is_large_enough_on_a_phone(name: str, page: Opened) -> None:
    page.page.set_viewport_size({"width": min(WIDTHS), "height": 800})
    page.show(rendered(name).replace("<details>", "<details open>"))
    in_page, in_charts = page.page.evaluate(TEXT_SIZES)
    assert in_page >= SMALLEST_TEXT
    assert in_charts >= SMALLEST_IN_CHARTS


@pytest.mark.parametrize("name", ["collectives", "comparison"])
def test_light_and_dark(name: str, page: Opened) -> None:
    page.show(rendered(name))
    grounds, curves = set(), set()
    for scheme in ("light", "dark"):
        page.page.emulate_media(color_scheme=scheme)
        grounds.add(page.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        curves.add(page.page.evaluate("getComputedStyle(document.querySelector('svg [style*=series-1]')).stroke"))
    assert len(grounds) == len(curves) == 2


def test_print_is_light_and_whole(page: Opened) -> None:
    page.show(rendered("many"))
    page.page.emulate_media(media="print", color_scheme="dark")
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.page.evaluate("getComputedStyle(document.body).color") == "rgb(23, 28, 36)"
    assert page.page.evaluate(
        "[...document.querySelectorAll('.sheet')].every(sheet => sheet.scrollHeight <= sheet.clientHeight + 1)"
    )


def test_details_open_without_scripts(page: Opened) -> None:
    page.show(rendered("collectives"))
    numbers = page.page.get_by_role("region", name="all_reduce: time and bandwidth by size")
    assert not numbers.is_visible()
    page.page.get_by_text("Numbers of all_reduce").click()
    assert numbers.is_visible()


def test_hostile_text_is_shown_as_it_is(page: Opened) -> None:
    page.show(rendered("hostile"))
    assert page.page.locator("p.what").inner_text() == '<script>alert("x")</script>'
    assert page.page.title().startswith("✗ failed (1): <script>")
