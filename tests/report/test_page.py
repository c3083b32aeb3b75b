"""The HTML itself: safe, whole, the same each time, with colours that can be read."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agent.decide.result_reader import read_result
from agent.report import palette
from agent.report.charts import DRAWN, MOST_TITLES, PLACEHOLDERS, Line, Picture, Scale, chart
from agent.report.model import SECTIONS
from agent.report.page import folded, render_run
from agent.workbench import comparing
from agent.workbench.comparing.page import render_comparison, render_series
from tests.report.examples import HOSTILE, NOON, collectives, compared, many, result, wrong
from tests.report.pages import PAGES, rendered

TEMPLATES = Path(palette.__file__).parent / "templates"
COMPARING = Path(comparing.__file__).parent / "templates"
STYLE = (TEMPLATES / "style.css").read_text()
SECTION = r'<section id="([^"]+)"'
VOID = {"meta", "link", "br", "img", "input", "hr", "use", "path"}


class Page(HTMLParser):
    """Elements with their attributes, ids, text; complains of elements that are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_warnings_are_shown() -> None:
    assert "Socket on pod 1" in Page(render_run(read_result(result("torchrun", [], warnings=["Socket on pod 1"])))).text


def test_findings_are_shown_the_worst_first() -> None:
    base = {"pod": 1, "node": "<n>", "device": "GPU 3", "limit": "None", "source": "", "action": "reset it"}
    seen = [("XIDs", "unknown"), ("NVLink replays", "bad"), ("GPU gone", "bad"), ("disk space", "ok")]
    worse = {"NVLink replays": "degraded"}
    found = [
        {"check": name, "state": state, "severity": worse.get(name, "fatal"), "value": "v", **base}
        for name, state in seen
    ]
    text = " ".join(Page(render_run(read_result(result("script", [], findings=found)))).text)
    at = [text.index(words) for words in ("Health of the pods", "GPU gone", "NVLink replays", "not checked", "XIDs")]
    assert at == sorted(at) and "pod 1, GPU 3" in text and "reset it" in text
    assert "Health" not in render_run(read_result(result("script", [], findings=found[3:])))


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_whole(name: str) -> None:
    page = Page(rendered(name))
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == len(page.all("main")) == 1
    assert rendered(name).partition("</head>")[0].count("<title>") == 1  # cells of maps have titles, too
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = re.findall(r'(?:href="#|url\(#)([^")]+)', rendered(name))
    assert set(targets) <= set(ids)
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(attributes.get("scope") in {"col", "row", "rowgroup"} for attributes in page.all("th"))
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in page.all("svg"))


@pytest.mark.parametrize("name", PAGES)
def test_the_navigation_names_the_sections_of_the_page_in_their_order(name: str) -> None:
    html = rendered(name)
    for links in re.findall(r"(?s)<nav .*?</nav>", html):  # a comparison has none
        assert re.findall(r'href="#([^"]+)"', links) == re.findall(SECTION, html)


def test_each_section_is_shown_by_an_example_and_has_a_template() -> None:
    shown = {section for page in PAGES for section in re.findall(SECTION, rendered(page))}
    of_runs = {section.id for section in SECTIONS}
    of_others = {name for path in COMPARING.glob("*.j2") for name in re.findall(SECTION, path.read_text())}
    assert (of_runs | of_others) - shown == set(), "no page of tests/report/examples.py shows them"
    assert {path.name.partition(".")[0] for path in (TEMPLATES / "sections").iterdir()} == of_runs


@pytest.mark.parametrize("name", PAGES)
def test_nothing_comes_from_elsewhere(name: str) -> None:
    page = Page(rendered(name))
    assert {"script", "iframe", "object", "embed", "img"} & {tag for tag, _ in page.elements} == set()
    for _, attributes in page.elements:
        assert not any(attribute.startswith("on") for attribute in attributes)
        for attribute in ("src", "href", "action"):
            assert (attributes.get(attribute) or "#").startswith(("#", "data:,"))
    assert re.findall(r"@import|https?://|url\((?!#)", rendered(name)) == []
    assert "default-src 'none'" in rendered(name)


@pytest.mark.parametrize("name", ["hostile", "hostile-comparison", "hostile-series"])
def test_text_stays_text(name: str) -> None:
    html = rendered(name)
    page = Page(html)
    assert HOSTILE in "".join(page.text)
    assert "<script" not in html
    assert "{{" not in html.replace("{{ 7 * 7 }}", "")
    assert not any(ord(character) < 32 and character not in "\t\n\r" for character in html)
    html.encode()


def test_two_renders_are_equal() -> None:
    data = wrong()
    assert render_run(read_result(data)) == render_run(read_result(data))
    results = [read_result(one) for one in compared()]
    assert render_comparison(results) == render_comparison(results)


def test_the_pages_of_many_pods_and_of_many_runs_are_small() -> None:
    assert len(rendered("many").encode()) < 1_500_000
    assert len(render_run(read_result(many(1024))).encode()) < 4_000_000
    hundred = [read_result(collectives() | {"since": NOON + 3600 * at}) for at in range(100)]
    assert len(render_series(hundred, []).encode()) < 1_000_000


def test_what_a_reader_looks_for_is_there() -> None:
    text = " ".join(" ".join(Page(rendered("wrong")).text).split())
    for words in (
        "pod 3, a4-train-workload-0-3",
        "a4-agent run --exclude 3 collectives",
        "17 wrong elements on rank 27",
        "torchrun --nnodes=4",
        "NCCL_NET",
        "2.28.9",
    ):
        assert words in text
    assert text.index("failed") < text.index("workload")


def test_runs_without_anything_are_pages_too() -> None:
    html = render_run(read_result(result("none", [], launch=None, versions={})))
    for words in ("No pod took part.", "Nothing was started.", "None is known."):
        assert words in html


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("block 00524478<52ecb6d1a9c03f5e7d2b8810a0, x", "block 00524478&lt;52ecb6…10a0, x"),
        ("0f0e5f3a-7a6b-4d0e-9c57-4a1f9b1f6d3e.0.0", "0f0e5f…6d3e.0.0"),
        ("gke-a4-pool-4c9f4b71-0000 2.9.1+cu130", "gke-a4-pool-4c9f4b71-0000 2.9.1+cu130"),
        ("12345678901234567890", "12345678901234567890"),
    ],
)
def test_digests_are_folded(text: str, shown: str) -> None:
    assert re.sub(r"</?abbr[^>]*>", "", folded(text)) == shown
    assert all(len(whole) > 20 for whole in re.findall('title="([^"]+)"', folded(text)))


# charts


LINE = Line("A", [(8, 0.1), (2**20, 100.0)], 0)


def test_nothing_to_draw() -> None:
    assert chart(Picture([], "x", "")) == ""
    assert chart(Picture([Line("A", [(0, 1.0), (8, float("inf")), (9, float("nan"))])], "x", "")) == ""


def test_odd_curves_are_drawn() -> None:
    for points in ([(8, 1.0)], [(8, 0.0), (16, 0.0)], [(1, 1.0), (2**62, 1e12)], [(3, 1.0), (5, 2.0)]):
        assert chart(Picture([Line("A", points)], "x", "")).startswith("<svg viewBox=")


def test_pictures_of_one_page_share_no_id() -> None:
    found = [set(re.findall(r'id="([^"]+)"', chart(Picture([LINE], name, "")))) for name in ("one", "other")]
    assert all(found) and not found[0] & found[1]


def test_pictures_have_the_pages_colours() -> None:
    svg = chart(
        Picture([LINE, Line("baseline", LINE.points, -1), Line("B", LINE.points, 1, frozenset([8]))], "x", '<&">')
    )
    assert re.findall(r"#[0-9a-fA-F]{6}", svg) == []
    assert {"--series-1", "--series-2", "--reference", "--bad", "--soft", "--grid"} <= set(re.findall(r"--[\w-]+", svg))
    assert 'aria-label="&lt;&amp;&quot;&gt;"' in svg
    assert "font-family" not in svg and "matplotlib" not in svg


def test_each_point_tells_its_numbers_under_the_pointer() -> None:
    crossed = Line("<i>", [(8, 0.1)], 0, apart=[(2**20, 3.0)])
    svg = chart(Picture([crossed, Line("baseline", LINE.points, -1)], "x", ""))
    assert re.findall(r"<title>(.*)</title>", svg) == ["&lt;i&gt;: 8 B: 0.1", "&lt;i&gt;: 1 MiB: 3.000"]
    many = Line("A", [(step, 1.0) for step in range(1000)])
    assert chart(Picture([many], "x", "", Scale("", "step"))).count("<title>A: step") in range(100, MOST_TITLES + 1)
    assert "message size, log" in svg and "GB/s, linear" in svg


def test_more_curves_than_styles() -> None:
    assert chart(Picture([Line(str(n), LINE.points, n) for n in range(20)], "x", "")).count("<text") > 20


# colours


def test_light_and_dark_have_the_same_names() -> None:
    assert palette.LIGHT.keys() == palette.DARK.keys()
    used = set(re.findall(r"var\(--([\w-]+)\)", STYLE)) - {"tone", "wash"}
    assert used | set(PLACEHOLDERS) <= palette.LIGHT.keys()
    assert set(DRAWN) == set(PLACEHOLDERS)
    assert re.findall(r"#[0-9a-f]{3,6}\b", STYLE) == ["#fff"]  # paper that is printed on


TEXT = ("ink", "soft", "link", "good", "bad", "warn", "ended")
PAIRS = [
    *((text, ground) for text in TEXT for ground in ("page", "paper")),
    *((text, "raised") for text in ("ink", "soft", "bad", "warn", "good")),
    *(("ink", f"{tone}-wash") for tone in ("good", "bad", "warn", "ended")),
    ("warn", "warn-wash"),
    *((name, "paper") for name in (*palette.SERIES, "reference")),
    *(("on-phase", f"phase-{number}") for number in range(1, 8)),
]


SCHEMES = {"light": palette.LIGHT, "dark": palette.DARK}


def test_text_can_be_read_and_bars_can_be_seen() -> None:
    """WCAG AA: for text of any size, and for what is no text."""
    least = dict.fromkeys(PAIRS, 4.5) | {(f"phase-{number}", "raised"): 3.0 for number in range(1, 8)}
    low = [
        (name, text, ground)
        for name, colours in SCHEMES.items()
        for (text, ground), ratio in least.items()
        if contrast(colours[text], colours[ground]) < ratio
    ]
    assert low == []


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours such as #12ab9f, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
