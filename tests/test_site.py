"""docs/ as a site: mkdocs warns of nothing, what it builds links to what is there, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

ROOT = Path(__file__).parents[1]


class Html(HTMLParser):
    """What links lead to, what is loaded, and the anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors = {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                (self.links if tag == "a" else self.loaded).add(value)


def test_the_site_is_built_without_a_warning_and_complete(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    pages = {
        f"/{path.relative_to(tmp_path)}".removesuffix("index.html"): Html(path)
        for path in tmp_path.rglob("*.html")
        if path.name != "404.html"  # is served at any address, so its links begin with that of the site
    }
    assert {"/", "/why/", "/repository/CONTRIBUTING/", "/repository/chart/ci/nccl-values.yaml/"} <= pages.keys()
    broken, foreign = set(), set()
    for page, html in pages.items():
        for link in html.links | html.loaded:
            target = urlsplit(urljoin(page, link))
            if target.netloc:
                foreign |= {link} & html.loaded
            elif target.path in pages:
                broken |= {(page, link)} if unquote(target.fragment) not in pages[target.path].anchors else set()
            elif not (tmp_path / unquote(target.path[1:])).is_file():
                broken.add((page, link))
    assert (broken, foreign) == (set(), set())


def test_a_page_is_in_the_navigation_once() -> None:
    """That each is there at all, mkdocs says."""
    named = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert {name for name in named if named.count(name) > 1} == set()
    assert len(named) > 70


def test_lists_within_lists_are_lists_on_the_site() -> None:
    """For that they are indented by four spaces; GitHub takes two."""
    pages = {page: page.read_text() for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))}
    texts = {page: re.sub(r"^```.*?^```", "", text, flags=re.M | re.S) for page, text in pages.items()}
    assert [(page, line) for page, text in texts.items() for line in re.findall(r"^ {1,3}[*-] .*", text, re.M)] == []
